#include <spillway/app/data/image_folder.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <spillway/app/data/csv.hpp>
#include <spillway/app/data/decode.hpp>
#include <spillway/app/data/file_bytes.hpp>
#include <spillway/app/data/work_data_reader.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kCheckShrink = 8;  // Every code of a JPEG is read at any size; fewer pixels are computed.
constexpr std::size_t kNamedDamage = 5;    // In the message that ends a run.

using ClassFiles = std::map<std::string, std::vector<fs::path>>;

bool has_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// The images below each sub-folder, by its name. Counts what is passed over.
ClassFiles list_classes(const fs::path& folder, std::uint64_t& passed_over) {
  ClassFiles classes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) {
      ++passed_over;
      continue;
    }
    std::vector<fs::path> files;
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(entry.path())) {
      if (file.is_directory()) continue;
      has_image_name(file.path()) ? files.push_back(file.path()) : static_cast<void>(++passed_over);
    }
    std::ranges::sort(files, {}, [](const fs::path& path) { return path.native(); });
    if (!files.empty()) classes.emplace(entry.path().filename().string(), std::move(files));
  }
  return classes;
}

ImageSet empty_set(const DataConfig& config) {
  ImageSet set;
  set.width = set.height = static_cast<std::uint32_t>(config.image_size);
  set.channels = config.grey ? 1 : 3;
  return set;
}

/// @param names  In order; a class's place is its label.
ImageSet to_set(const ClassFiles& classes, const std::vector<std::string>& names, const DataConfig& config,
                const fs::path& folder) {
  ImageSet set = empty_set(config);
  for (const auto& [name, files] : classes) {
    const auto place = std::ranges::find(names, name);
    if (place == names.end()) {
      throw FormatError((folder / name).string() +
                        ": a class that the training set does not have; take it out, or add its training images");
    }
    set.files.insert(set.files.end(), files.begin(), files.end());
    set.labels.insert(set.labels.end(), files.size(), static_cast<std::uint16_t>(place - names.begin()));
  }
  return set;
}

std::vector<std::string> names_of(const ClassFiles& classes, const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : classes) names.push_back(item.first);
  if (names.empty()) {
    throw FormatError(folder.string() + ": no image in it; classes are sub-folders with .jpg, .jpeg or .png files");
  }
  if (names.size() > kMaxLabel + 1) {
    throw FormatError(folder.string() + ": " + std::to_string(names.size()) + " classes; at most " +
                      std::to_string(kMaxLabel + 1) + " are supported");
  }
  return names;
}

/// Why a file can't be decoded, where it can't.
std::optional<std::string> damage_of(const fs::path& path) {
  try {
    static_cast<void>(decode_image(read_file(path), path.string(), {.shrink = kCheckShrink}));
  } catch (const FormatError& error) {
    return error.what();
  }
  return std::nullopt;
}

/// Takes damaged files out of the set; their reasons, in the order of the set.
std::vector<std::string> take_damaged_out(ImageSet& set, unsigned workers) {
  std::vector<std::optional<std::string>> damage(set.files.size());
  read_each(set.files.size(), workers, [&](std::uint64_t index) { damage[index] = damage_of(set.files[index]); });
  std::vector<std::string> reasons;
  std::size_t kept = 0;
  for (std::size_t index = 0; index < damage.size(); ++index) {
    if (damage[index]) {
      reasons.push_back(*damage[index]);
      continue;
    }
    set.files[kept] = set.files[index];
    set.labels[kept++] = set.labels[index];
  }
  set.files.resize(kept);
  set.labels.resize(kept);
  return reasons;
}

void leave_damaged_out(FolderImages& loaded, const fs::path& folder, const DataConfig& config) {
  const auto workers = static_cast<unsigned>(std::max<std::uint64_t>(1, config.workers));
  std::vector<std::string> reasons = take_damaged_out(loaded.images.train, workers);
  std::ranges::move(take_damaged_out(loaded.images.test, workers), std::back_inserter(reasons));
  if (reasons.empty()) return;
  const std::string count = std::to_string(reasons.size()) + " of " +
                            std::to_string(reasons.size() + loaded.images.train.size() + loaded.images.test.size()) +
                            " image files are damaged";
  if (reasons.size() > config.damaged_max) {
    std::string named;
    for (std::size_t i = 0; i < std::min(kNamedDamage, reasons.size()); ++i) named += "; " + reasons[i];
    throw FormatError(folder.string() + ": " + count + ", data.damaged_max allows " +
                      std::to_string(config.damaged_max) + named + (reasons.size() > kNamedDamage ? "; …" : ""));
  }
  loaded.notes.push_back(count + " and left out:");
  std::ranges::move(reasons, std::back_inserter(loaded.notes));
}

/// `train` and the folder of the test set, where both are there.
std::optional<std::pair<fs::path, fs::path>> split_folders(const fs::path& folder) {
  for (const char* test : {"test", "val"}) {
    if (fs::is_directory(folder / "train") && fs::is_directory(folder / test)) {
      return std::pair(folder / "train", folder / test);
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_image_folder(const fs::path& folder) {
  return std::ranges::any_of(fs::directory_iterator(folder),
                             [](const fs::directory_entry& entry) { return entry.is_directory(); });
}

FolderImages load_image_folder(const fs::path& folder, const DataConfig& config) {
  FolderImages loaded;
  std::uint64_t passed_over = 0;
  const auto split = split_folders(folder);
  if (split) {
    const ClassFiles train = list_classes(split->first, passed_over);
    const std::vector<std::string> names = names_of(train, split->first);
    loaded.images.train = to_set(train, names, config, split->first);
    loaded.images.test = to_set(list_classes(split->second, passed_over), names, config, split->second);
  } else {
    const ClassFiles all = list_classes(folder, passed_over);
    loaded.images.train = to_set(all, names_of(all, folder), config, folder);
  }
  if (passed_over > 0) {
    loaded.notes.push_back(std::to_string(passed_over) + " files that are no .jpg, .jpeg or .png in the folder of a " +
                           "class are passed over");
  }
  if (config.check) leave_damaged_out(loaded, folder, config);
  if (!split) loaded.images = split_by_class(loaded.images.train, config.train_fraction);
  return loaded;
}

}  // namespace spillway::app
