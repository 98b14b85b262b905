#include <spillway/app/data/dataset.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <spillway/app/data/cifar.hpp>
#include <spillway/app/data/csv.hpp>
#include <spillway/app/data/file_bytes.hpp>
#include <spillway/app/data/idx.hpp>
#include <spillway/app/data/image_folder.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDigitsFile = "digits.csv.gz";

ImageSet load_csv(const fs::path& path) {
  const std::vector<std::byte> bytes = read_image_file(path);
  return parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

/// The path, or the same with .gz added or taken away, whichever exists; the path itself where neither does.
fs::path packed_or_not(const fs::path& path) {
  fs::path other = path;
  if (path.extension() == ".gz") {
    other.replace_extension();
  } else {
    other += ".gz";
  }
  return !fs::exists(path) && fs::exists(other) ? other : path;
}

ImageSet load_idx(const fs::path& images, const fs::path& labels) {
  const std::vector<std::byte> image_bytes = read_image_file(images);
  const std::vector<std::byte> label_bytes = read_image_file(labels);
  const std::string images_label = images.string();
  const std::string labels_label = labels.string();
  return parse_idx({image_bytes, images_label}, {label_bytes, labels_label});
}

fs::path labels_beside(const fs::path& images) {
  return packed_or_not(images.parent_path() / *idx_labels_name(images.filename().string()));
}

/// The test images that belong to "train-images…", where they are there.
std::optional<fs::path> test_images_beside(const fs::path& images) {
  constexpr std::string_view kTrain = "train-";
  const std::string name = images.filename().string();
  if (!name.starts_with(kTrain)) {
    return std::nullopt;
  }
  const fs::path path = packed_or_not(images.parent_path() / ("t10k-" + name.substr(kTrain.size())));
  return fs::exists(path) ? std::optional(path) : std::nullopt;
}

SplitImages load_idx_pair(const fs::path& images, double train_fraction) {
  ImageSet train = load_idx(images, labels_beside(images));
  const std::optional<fs::path> test_images = test_images_beside(images);
  if (!test_images) {
    return split_by_class(train, train_fraction);
  }
  ImageSet test = load_idx(*test_images, labels_beside(*test_images));
  if (test.width != train.width || test.height != train.height) {
    throw FormatError(test_images->string() + ": images of " + std::to_string(test.width) + " x " +
                      std::to_string(test.height) + " beside training images of " + std::to_string(train.width) +
                      " x " + std::to_string(train.height) + "; the two files don't belong together");
  }
  train.peak = test.peak = std::max(train.peak, test.peak);
  return {std::move(train), std::move(test)};
}

std::optional<fs::path> idx_file_in(const fs::path& folder) {
  for (const char* name : {"train-images-idx3-ubyte", "train-images.idx3-ubyte"}) {
    const fs::path path = packed_or_not(folder / name);
    if (fs::exists(path)) {
      return path;
    }
  }
  return std::nullopt;
}

ImageSet load_cifar(const std::vector<fs::path>& paths, CifarKind kind) {
  std::vector<std::string> labels;
  std::vector<std::vector<std::byte>> contents;
  std::vector<NamedBytes> files;
  for (const fs::path& path : paths) {
    labels.push_back(path.string());
    contents.push_back(read_image_file(path));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) files.push_back({contents[i], labels[i]});
  return parse_cifar(files, kind);
}

/// CIFAR's files, where they are there: data_batch_1.bin … and test_batch.bin, or train.bin and test.bin.
std::optional<SplitImages> cifar_in(const fs::path& folder) {
  if (fs::exists(packed_or_not(folder / "data_batch_1.bin"))) {
    std::vector<fs::path> train;
    for (const char number : {'1', '2', '3', '4', '5'}) {
      train.push_back(packed_or_not(folder / (std::string("data_batch_") + number + ".bin")));
    }
    return SplitImages{load_cifar(train, CifarKind::kTen),
                       load_cifar({packed_or_not(folder / "test_batch.bin")}, CifarKind::kTen)};
  }
  if (fs::exists(packed_or_not(folder / "train.bin"))) {
    return SplitImages{load_cifar({packed_or_not(folder / "train.bin")}, CifarKind::kHundred),
                       load_cifar({packed_or_not(folder / "test.bin")}, CifarKind::kHundred)};
  }
  return std::nullopt;
}

Dataset load_folder(const fs::path& folder, const DataConfig& config) {
  if (const auto idx = idx_file_in(folder)) return {idx->string(), load_idx_pair(*idx, config.train_fraction), {}};
  if (auto cifar = cifar_in(folder)) return {folder.string(), std::move(*cifar), {}};
  if (is_image_folder(folder)) {
    FolderImages loaded = load_image_folder(folder, config);
    return {folder.string(), std::move(loaded.images), std::move(loaded.notes)};
  }
  throw FormatError(folder.string() +
                    ": neither train-images-idx3-ubyte (or .gz), nor CIFAR's data_batch_1.bin or train.bin, nor "
                    "sub-folders with images in this folder; name a CSV or IDX file, or a folder of one of these");
}

Dataset load_path(const fs::path& path, const DataConfig& config) {
  if (fs::is_directory(path)) return load_folder(path, config);
  if (idx_labels_name(path.filename().string())) {
    return {path.string(), load_idx_pair(path, config.train_fraction), {}};
  }
  return {path.string(), split_by_class(load_csv(path), config.train_fraction), {}};
}

Dataset load_digits(const DataFolders& folders, double train_fraction) {
  for (const fs::path& folder : folders.bundled) {
    if (fs::exists(folder / kDigitsFile)) {
      return {"digits", split_by_class(load_csv(folder / kDigitsFile), train_fraction), {}};
    }
  }
  std::string tried;
  for (const fs::path& folder : folders.bundled) {
    tried += (tried.empty() ? "" : ", ") + folder.string();
  }
  throw IoError(
      {.operation = "open",
       .path = std::string(kDigitsFile),
       .error_number = ENOENT,
       .advice = "it belongs to Spillway and was in none of: " + tried + "; install again, or use --data synthetic"});
}

Dataset load_mnist5k(const DataFolders& folders, double train_fraction) {
  const fs::path path = folders.cache / "data" / "mnist_5k.csv.gz";
  if (fs::exists(path)) {
    return {"mnist5k", split_by_class(load_csv(path), train_fraction), {}};
  }
  Dataset digits = load_digits(folders, train_fraction);
  digits.notes.push_back("the MNIST-5k images are not at " + path.string() +
                         ": the small digits set stands in (scripts/bootstrap data fetches them)");
  return digits;
}

Dataset load_source(const DataConfig& config, std::uint64_t seed, const DataFolders& folders) {
  if (config.source == "mnist5k") {
    return load_mnist5k(folders, config.train_fraction);
  }
  if (config.source == "digits") {
    return load_digits(folders, config.train_fraction);
  }
  if (config.source == "synthetic") {
    return {"synthetic", split_by_class(make_synthetic(config.synthetic, seed), config.train_fraction), {}};
  }
  return load_path(config.source, config);
}

}  // namespace

DataFolders default_data_folders() {
  const auto folder_of = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  DataFolders folders;
  folders.cache = folder_of("SPILLWAY_CACHE");
  if (folders.cache.empty()) {
    const fs::path caches = folder_of("XDG_CACHE_HOME");
    folders.cache = (caches.empty() ? folder_of("HOME") / ".cache" : caches) / "spillway";
  }
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  folders.bundled = {program.parent_path().parent_path() / "share" / "spillway", SPILLWAY_INSTALLED_DATA,
                     SPILLWAY_SOURCE_DATA};
  return folders;
}

Dataset load_dataset(const DataConfig& config, std::uint64_t seed, const DataFolders& folders) {
  Dataset dataset = load_source(config, seed, folders);
  if (config.grey) {
    dataset.images.train = grey_set(std::move(dataset.images.train));
    dataset.images.test = grey_set(std::move(dataset.images.test));
  }
  for (const bool train : {true, false}) {
    if ((train ? dataset.images.train : dataset.images.test).size() == 0) {
      throw FormatError(dataset.name + ": no image left to " + (train ? "train" : "test") +
                        " on; give more images per class or change data.train_fraction");
    }
  }
  return dataset;
}

}  // namespace spillway::app
