#include <spillway/offload/parallel_arenas.hpp>

#include <algorithm>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

namespace spillway::offload {
namespace tbb = oneapi::tbb;

struct ParallelArenas::Node {
  tbb::task_arena arena;
};

namespace {

// oneTBB is asked only where the kernel lists several, as in "0-1": it loads a library for it, which the sanitizers
// refuse.
std::vector<tbb::numa_node_id> memory_nodes() {
  std::string list;
  std::ifstream("/sys/devices/system/node/online") >> list;
  return list.find_first_of(",-") == std::string::npos ? std::vector<tbb::numa_node_id>{tbb::task_arena::automatic}
                                                       : tbb::info::numa_nodes();
}

}  // namespace

ParallelArenas::ParallelArenas(unsigned threads, unsigned nodes) {
  const std::vector<tbb::numa_node_id> ids = memory_nodes();
  const unsigned wanted = nodes != 0 ? nodes : static_cast<unsigned>(ids.size());
  count_ = std::clamp(wanted, 1U, std::max(threads, 1U));
  nodes_ = std::make_unique<Node[]>(count_);
  for (unsigned n = 0; n < count_; ++n) {
    const unsigned share = threads * (n + 1) / count_ - threads * n / count_;
    tbb::task_arena::constraints constraints(tbb::task_arena::automatic, static_cast<int>(share));
    if (count_ > 1) {
      constraints.set_numa_id(ids[n % ids.size()]);
    }
    nodes_[n].arena.initialize(constraints);
  }
}

ParallelArenas::~ParallelArenas() = default;

unsigned ParallelArenas::nodes() const noexcept { return count_; }

unsigned ParallelArenas::usable_threads() noexcept {
  return static_cast<unsigned>(std::max(tbb::info::default_concurrency(), 1));
}

void ParallelArenas::run(std::uint64_t count, const std::function<void(std::uint64_t)>& body) {
  const auto share = [&](unsigned node) {
    const std::uint64_t begin = count * node / count_;
    const std::uint64_t end = count * (node + 1) / count_;
    tbb::parallel_for(begin, end, std::uint64_t{1}, body, tbb::simple_partitioner());
  };
  if (count_ == 1) {
    nodes_[0].arena.execute([&] { share(0); });
    return;
  }
  // Groups of this call's own: calls from several threads must not wait for one another's.
  const auto groups = std::make_unique<tbb::task_group[]>(count_);
  for (unsigned n = 0; n < count_; ++n) {
    nodes_[n].arena.execute([&, n] { groups[n].run([&share, n] { share(n); }); });
  }
  std::exception_ptr first;
  for (unsigned n = 0; n < count_; ++n) {
    try {
      nodes_[n].arena.execute([&] { groups[n].wait(); });
    } catch (...) {
      first = first ? first : std::current_exception();
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace spillway::offload
