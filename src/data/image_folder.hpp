#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

struct FolderImages {
  SplitImages images;
  std::vector<std::string> notes;  ///< Damaged files with the reason, and what was passed over, a line each.
};

/// Whether the folder has sub-folders.
[[nodiscard]] bool is_image_folder(const std::filesystem::path& folder);

/// Lists the images (.jpg, .jpeg, .png, in any case) of a folder of classes: a class is a sub-folder, classes are
/// numbered in the order of their names, and images are in the order of theirs, by bytes. Where the folder holds
/// `train` and `test` (or `val`), the classes are below these, and a class of the test set has the number of that of
/// the training set; otherwise the set is split by data.train_fraction. Files of other names are passed over and
/// counted.
///
/// With data.check every file is decoded once, on data.workers threads: damaged ones are left out, counted and listed.
/// What is left out depends on the files alone, so that all ranks that see the same files have the same set.
/// @throws FormatError: no image, a class that only the test set has, too many classes, or more than data.damaged_max
/// damaged files, naming the first of them; IoError for a file or folder that can't be read.
[[nodiscard]] FolderImages load_image_folder(const std::filesystem::path& folder, const DataConfig& config);

}  // namespace spillway::app
