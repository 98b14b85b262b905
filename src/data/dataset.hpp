#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

/// Where the sets with a name are looked for.
struct DataFolders {
  std::filesystem::path cache;                 ///< Holds data/mnist_5k.csv.gz; what the set-up fetches.
  std::vector<std::filesystem::path> bundled;  ///< Tried in turn for digits.csv.gz.
};

/// The cache of this user (SPILLWAY_CACHE, else XDG_CACHE_HOME/spillway, else HOME/.cache/spillway), and the bundled
/// files: beside an installed program, at the installed place, in the source tree.
[[nodiscard]] DataFolders default_data_folders();

struct Dataset {
  std::string name;  ///< Of what was really loaded.
  SplitImages images;
  std::vector<std::string> notes;  ///< What the user should know, a line each: another set stands in, for instance.
};

/// Loads what `config.source` names, and splits it into a training and a test set (split_by_class), unless the files
/// bring a test set: an IDX file "train-…" has its "t10k-…" beside it, CIFAR its test file, a folder of images `test`
/// or `val` beside `train`. gzip is recognised by content. Image files stay where they are (load_image_folder). `seed`
/// is used by the synthetic set alone.
/// @throws IoError where a file can't be read; FormatError where its content is wrong, or leaves no image to train or
/// to test on.
[[nodiscard]] Dataset load_dataset(const DataConfig& config, std::uint64_t seed,
                                   const DataFolders& folders = default_data_folders());

/// Images of `config.classes` classes: each a pattern of soft blobs, moved, turned and dimmed from image to image.
/// Sorted by class; a pure function of its arguments.
[[nodiscard]] ImageSet make_synthetic(const SyntheticConfig& config, std::uint64_t seed);

}  // namespace spillway::app
