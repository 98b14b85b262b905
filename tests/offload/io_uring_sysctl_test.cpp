// io_uring forbidden to the whole machine: runs alone, and puts the setting back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/spawn.hpp"
#include "support/temp_dir.hpp"

namespace spillway::offload::io_uring_sysctl_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The value of kernel.io_uring_disabled while this lives.
class Sysctl {
 public:
  Sysctl() { std::ifstream(kPath) >> former_; }
  ~Sysctl() {
    if (!former_.empty()) {
      static_cast<void>(set(former_));
    }
  }
  Sysctl(const Sysctl&) = delete;
  Sysctl& operator=(const Sysctl&) = delete;

  [[nodiscard]] bool set(const std::string& value) {
    std::ofstream file(kPath);
    file << value << std::flush;
    return file.good();
  }
  [[nodiscard]] bool known() const { return !former_.empty(); }

 private:
  static constexpr char kPath[] = "/proc/sys/kernel/io_uring_disabled";
  std::string former_;
};

TEST(IoUringSysctl, ForbidsItToAllAndLeavesTheSameBytesAndOneLine) {
  Sysctl sysctl;
  if (!sysctl.known()) {
    GTEST_SKIP() << "this kernel has no kernel.io_uring_disabled";
  }
  if (!sysctl.set("2")) {
    GTEST_SKIP() << "kernel.io_uring_disabled can't be written here (it takes root)";
  }
  const test::TempDir folder;
  const auto child = [&](const std::string& engine) {
    return test::run(SPILLWAY_STORAGE_CHILD, {.arguments = {"store", folder.path().string(), "--engine=" + engine}});
  };
  const test::Outcome automatic = child("auto");
  EXPECT_EQ(automatic.exit_status, 0) << automatic.error;
  EXPECT_THAT(automatic.output,
              AllOf(HasSubstr("thread pool"), HasSubstr("`sysctl kernel.io_uring_disabled=0` allows it"),
                    HasSubstr("the same bytes came back")));
  const test::Outcome forced = child("io_uring");
  EXPECT_EQ(forced.exit_status, 1);
  EXPECT_THAT(forced.error,
              AllOf(HasSubstr("kernel.io_uring_disabled is 2"), HasSubstr("set aio.engine to auto or threads")));
}

}  // namespace
}  // namespace spillway::offload::io_uring_sysctl_test
