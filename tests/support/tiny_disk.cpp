#include "support/tiny_disk.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "support/spawn.hpp"

namespace spillway::test {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (number_ < 0) fail("open " + path.string());
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return number_; }

 private:
  int number_;
};

constexpr const char* kMakeExt4 = "/usr/sbin/mkfs.ext4";
constexpr const char* kLoopControl = "/dev/loop-control";

std::filesystem::path loop_device(int number) { return "/dev/loop" + std::to_string(number); }

/// Mounts the image through a loop device that the kernel lets go when the file system is unmounted.
void mount_image(const std::filesystem::path& image, const std::filesystem::path& mount_point) {
  const Descriptor control(kLoopControl, O_RDWR);
  const Descriptor file(image, O_RDWR);
  loop_config config{};
  config.fd = static_cast<std::uint32_t>(file.get());
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  constexpr int kTries = 16;  // Another process may take the free device between the two calls.
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) fail("no free loop device");
    const Descriptor device(loop_device(number), O_RDWR);
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) {
      if (::mount(loop_device(number).c_str(), mount_point.c_str(), "ext4", 0, nullptr) != 0) fail("mount ext4");
      return;
    }
    if (errno != EBUSY) fail("LOOP_CONFIGURE");
  }
  fail("every free loop device was taken by others");
}

}  // namespace

std::optional<std::string> TinyDisk::unavailable(TinyDiskKind kind) {
  if (kind == TinyDiskKind::Ext4 && ::access(kMakeExt4, X_OK) != 0) return std::string("there is no ") + kMakeExt4;
  try {
    constexpr std::uint64_t kProbeBytes = 8U << 20U;
    const TinyDisk probe(kind, kProbeBytes);
    return std::nullopt;
  } catch (const std::system_error& error) {
    return std::string("a small file system cannot be mounted here (it takes root): ") + error.what();
  }
}

TinyDisk::TinyDisk(TinyDiskKind kind, std::uint64_t bytes) : folder_("spillway-disk"), mount_point_(folder_ / "mount") {
  std::filesystem::create_directory(mount_point_);
  if (kind == TinyDiskKind::Tmpfs) {
    const std::string options = "size=" + std::to_string(bytes);
    if (::mount("tmpfs", mount_point_.c_str(), "tmpfs", 0, options.c_str()) != 0) fail("mount tmpfs");
  } else if (kind == TinyDiskKind::Ramfs) {
    if (::mount("ramfs", mount_point_.c_str(), "ramfs", 0, nullptr) != 0) fail("mount ramfs");
  } else {
    mount_ext4(bytes);
  }
}

void TinyDisk::mount_ext4(std::uint64_t bytes) {
  const std::filesystem::path image = folder_ / "image";
  {
    const Descriptor file(image, O_RDWR | O_CREAT | O_EXCL);
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate " + image.string());
  }
  // No journal and no reserved blocks: nearly all of the size is there for files.
  const Outcome made = run(kMakeExt4, {.arguments = {"-q", "-F", "-O", "^has_journal", "-m", "0", image.string()}});
  if (made.exit_status != 0) {
    errno = EIO;
    fail(std::string(kMakeExt4) + ": " + made.error);
  }
  mount_image(image, mount_point_);
}

TinyDisk::~TinyDisk() { ::umount2(mount_point_.c_str(), MNT_DETACH); }

}  // namespace spillway::test
