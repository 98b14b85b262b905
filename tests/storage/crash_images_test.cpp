// What a power cut may leave at any moment of writing checkpoints, from a record of the calls that were made.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "storage/crash_images.hpp"
#include "storage/recorded_calls.hpp"
#include "storage/saved_steps.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::crash_images_test {
namespace {

namespace fs = std::filesystem;

/// The calls of saving these steps, the fourth of them over one that is there.
std::vector<FileCall> calls_of_saving(const fs::path& root) {
  RecordedCalls recorded(root);
  for (const std::uint64_t step : {1, 2, 3, 3, 4, 5}) {
    save_step(root, step);
    recorded.note_saved(step);
  }
  return recorded.calls();
}

/// Images of each moment. SPILLWAY_IMAGES sets another number.
std::uint64_t variants() {
  const char* const wanted = std::getenv("SPILLWAY_IMAGES");
  return wanted == nullptr ? 24 : std::stoull(wanted);
}

struct Outcome {
  std::uint64_t images = 0;
  std::uint64_t violations = 0;
  std::string first;
};

/// Why an image is not what was promised after `saved` was said to be on the disk and while `next` is written, with
/// `go_on` also for a run that writes on from it.
std::optional<std::string> violation(const fs::path& image, std::uint64_t saved, std::uint64_t next, bool go_on) {
  const ResumedStep resumed = resume_step(image);
  if (!resumed.wrong.empty()) return resumed.wrong;
  if (resumed.step < saved || resumed.step > next) {
    return "step " + std::to_string(resumed.step) + " is found where " + std::to_string(saved) +
           " was said to be on the disk; " + resumed.skipped;
  }
  if (!go_on) return std::nullopt;
  const RecordedCalls without_syncs(image);
  save_step(image, resumed.step + 1);
  if (resume_step(image).step != resumed.step + 1) return "a run can't go on from it";
  return std::nullopt;
}

Outcome look_at_all(SyncsThatCount syncs) {
  const fs::path memory = "/dev/shm";  // Where there is one: thousands of images are made.
  const TempDir folder("spillway-images", fs::is_directory(memory) ? memory : fs::temp_directory_path());
  const fs::path root = folder / "checkpoints";
  fs::create_directory(root);
  const std::vector<FileCall> calls = calls_of_saving(root);
  CrashImages images(root, syncs);
  Outcome outcome;
  Random random(11);
  std::uint64_t saved = 0;
  const fs::path image = folder / "image";
  for (const FileCall& call : calls) {
    images.apply(call);
    if (call.kind == FileCall::Kind::kSaved) saved = call.step;
    for (std::uint64_t variant = 0; variant < variants(); ++variant) {
      images.write_image(image, variant, random);
      ++outcome.images;
      if (const auto wrong = violation(image, saved, saved + 1, variant % 4 == 0)) {
        if (outcome.violations++ == 0) outcome.first = *wrong;
      }
      fs::remove_all(image);
    }
  }
  return outcome;
}

TEST(CrashImages, OfEveryMomentGiveTheCheckpointThatWasSavedOrTheNext) {
  const Outcome outcome = look_at_all({});
  RecordProperty("images", std::to_string(outcome.images));
  EXPECT_GE(outcome.images, 100 * variants());
  EXPECT_EQ(outcome.violations, 0U) << "of " << outcome.images << " images: " << outcome.first;
}

TEST(CrashImages, BreakThePromiseWhereFoldersAreNotSynced) {
  EXPECT_GT(look_at_all({.folders = false}).violations, 0U);
}

TEST(CrashImages, BreakThePromiseWhereFilesAreNotSynced) { EXPECT_GT(look_at_all({.files = false}).violations, 0U); }

}  // namespace
}  // namespace spillway::test::crash_images_test
