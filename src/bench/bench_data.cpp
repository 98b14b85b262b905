#include <spillway/app/bench/bench_data.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/data_loader_peer.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/photo_files.hpp>
#include <spillway/app/bench/scratch_folder.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/data/decode.hpp>
#include <spillway/app/data/file_bytes.hpp>
#include <spillway/app/data/image_folder.hpp>
#include <spillway/app/data/view_data_reader.hpp>
#include <spillway/app/data/work_data_reader.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataRow = "simclr_224";
constexpr std::uint32_t kDataSide = 224;
constexpr double kDataBar = 1.5;
constexpr std::uint64_t kDataPrefetch = 2;

void check_data_options(const BenchDataOptions& options) {
  if (options.rounds == 0 || options.batch == 0 || options.batches == 0 || options.images == 0 ||
      options.workers == 0) {
    throw ConfigError("spillway bench data: at least one round, image, batch and worker is needed");
  }
  check_row_names("data", {kDataRow}, options.rows);
  check_report_file(options.json);
}

ImageSet listed_images(const fs::path& folder) {
  DataConfig config;
  config.image_size = kDataSide;
  config.check = false;
  config.train_fraction = 1.0;
  return load_image_folder(folder, config).images.train;
}

/// Batches without end, in the order of the files.
class ReaderSide {
 public:
  ReaderSide(const ImageSet& set, const BenchDataOptions& options)
      : options_(options),
        views_(set, {}, Method::kSimClr),
        reader_(views_, 0, [this](std::uint64_t index) { return batch(index); },
                {.workers = options.workers, .prefetch = kDataPrefetch}) {}

  /// Images a second. What was made while others had their turn is not counted.
  double rate() {
    for (std::uint64_t i = 0; i < kDataPrefetch; ++i) static_cast<void>(reader_.take(next_++));
    const CostClock clock;
    for (std::uint64_t i = 0; i < options_.batches; ++i) static_cast<void>(reader_.take(next_++));
    return static_cast<double>(options_.batches * options_.batch) / clock.elapsed().seconds;
  }

 private:
  [[nodiscard]] SampleBatch batch(std::uint64_t index) const {
    SampleBatch made;
    for (std::uint64_t i = index * options_.batch; i < (index + 1) * options_.batch; ++i) {
      made.epoch = static_cast<std::uint32_t>(i / views_.set().size());
      made.samples.push_back(static_cast<std::uint32_t>(i % views_.set().size()));
    }
    return made;
  }

  const BenchDataOptions& options_;
  ViewMaker views_;
  ViewDataReader reader_;
  std::uint64_t next_ = 0;
};

/// Images a second that are read and decoded at full size, and nothing more.
double decoding_rate(const ImageSet& set, const BenchDataOptions& options, std::uint64_t& next) {
  const std::uint64_t count = options.batches * options.batch;
  const std::uint64_t first = std::exchange(next, next + count);
  const CostClock clock;
  read_each(count, static_cast<unsigned>(options.workers), [&](std::uint64_t i) {
    const fs::path& path = set.files[(first + i) % set.files.size()];
    static_cast<void>(decode_image(read_file(path), path.string()));
  });
  return static_cast<double>(count) / clock.elapsed().seconds;
}

BenchRow measure_data(const fs::path& folder, const BenchDataOptions& options) {
  const ImageSet set = listed_images(folder);
  ReaderSide ours(set, options);
  std::string why_no_peer = DataLoaderPeer::unavailable(options.peers_folder);
  std::optional<DataLoaderPeer> peer;
  if (why_no_peer.empty()) {
    try {
      peer.emplace(options.peers_folder, DataLoaderJob{.folder = folder.string(),
                                                       .workers = options.workers,
                                                       .batch = options.batch,
                                                       .batches = options.batches});
      static_cast<void>(peer->rate());
    } catch (const Error& error) {
      peer.reset();
      why_no_peer = error.what();
    }
  }
  static_cast<void>(ours.rate());
  std::uint64_t decoded = 0;
  std::vector<BenchRound> rounds(options.rounds);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = ours.rate(); },
      [&](std::size_t round) { rounds[round].bound = decoding_rate(set, options, decoded); }};
  if (peer) sides.emplace_back([&](std::size_t round) { rounds[round].peer = peer->rate(); });
  by_turns(options.rounds, sides);
  const std::string threads = std::to_string(options.workers) + " threads";
  return make_bench_row({.name = kDataRow,
                         .unit = "images/s",
                         .bound = {.name = "decoding alone, " + threads},
                         .peer = {.name = peer ? peer->name() : "torchvision DataLoader", .why_absent = why_no_peer},
                         .bar = BenchBar{.ratio = kDataBar, .to = BenchBar::To::kPeer}},
                        rounds);
}

Json data_machine(const BenchDataOptions& options) {
  Json machine = describe_machine();
  auto& members = *machine.get_if<Json::Object>();
  members.emplace_back("data",
                       options.data.empty() ? std::to_string(options.images) + " made, 500 x 375" : options.data);
  members.emplace_back("workers", options.workers);
  members.emplace_back("batch", options.batch);
  members.emplace_back("rounds", std::uint64_t{options.rounds});
  return machine;
}

}  // namespace

int run_bench_data(const BenchDataOptions& options) {
  check_data_options(options);
  std::optional<ScratchFolder> scratch;
  fs::path folder = options.data;
  if (options.data.empty()) {
    folder = scratch.emplace(fs::temp_directory_path()).path();
    say_on_stderr("making " + std::to_string(options.images) + " images in " + folder.string());
    write_photos(folder, static_cast<std::uint32_t>(options.images));
  }
  const std::vector<BenchRow> rows = {measure_data(folder, options)};
  if (!options.json.empty()) write_json_file(options.json, bench_json("data", data_machine(options), rows));
  std::printf("Two views of 224 x 224 of each image, %u rounds.\n%s", options.rounds, bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app
