// Runs a plan through the allocator, step by step.
#include <algorithm>

#include "base/numbers.h"
#include "remat/allocator.h"
#include "remat/check.h"
#include "remat/error.h"
#include "remat/layout.h"

namespace remat {
namespace {

/// Buffers that begin and end at each step, in the sequence in which a step allocates them.
class Timetable {
 public:
  Timetable(const IndexVector<BufferId, Buffer>& buffers, std::size_t steps) : buffers_(&buffers) {
    std::vector<BufferId> by_end;
    for (const BufferId buffer : buffers.ids()) by_end.push_back(buffer);
    std::vector<BufferId> by_first = by_end;
    const auto sort = [&](std::vector<BufferId>& ids, auto when) {
      std::stable_sort(ids.begin(), ids.end(),
                       [&](BufferId a, BufferId b) { return when(buffers[a]) < when(buffers[b]); });
    };
    sort(by_first, [](const Buffer& b) { return b.first; });
    sort(by_end, [](const Buffer& b) { return b.end; });
    fill(begins_, by_first, steps, [](const Buffer& b) { return b.first; });
    fill(ends_, by_end, steps, [](const Buffer& b) { return b.end - 1; });
  }
  std::span<const BufferId> begins(StepId step) const { return begins_[step]; }
  /// After the step.
  std::span<const BufferId> ends(StepId step) const { return ends_[step]; }

 private:
  void fill(Rows<StepId, BufferId>& rows, const std::vector<BufferId>& ids, std::size_t steps, auto when) {
    auto next = ids.begin();
    for (int step : Indices(narrow<int>(steps))) {
      for (; next != ids.end() && when((*buffers_)[*next]) == step; ++next) rows.push(*next);
      rows.end_row();
    }
  }

  const IndexVector<BufferId, Buffer>* buffers_;
  Rows<StepId, BufferId> begins_, ends_;
};

}  // namespace

AllocatorPeaks simulate_allocator(const Graph& graph, const Plan& plan, const AllocatorConfig& config,
                                  int most_steps) {
  const IndexVector<BufferId, Buffer> buffers = plan_buffers(graph, plan, 1).problem.buffers;
  const Timetable timetable(buffers, plan.steps.size());
  CachingAllocator allocator(config);
  const auto allocate = [&](Bytes size) {
    if (const auto address = allocator.allocate(size)) return *address;
    throw InputError("the simulated device has no addresses for " + std::to_string(size.count()) +
                     " bytes more than " + std::to_string(allocator.stats().reserved.count()));
  };
  for (const ValueId input : graph.graph_inputs) allocate(graph.bytes[input]);
  IndexVector<BufferId, Address> place(buffers.size());
  AllocatorPeaks peaks;
  while (!peaks.is_steady && peaks.steps < most_steps) {
    const Bytes before = allocator.stats().reserved;
    for (const StepId step : plan.steps.ids()) {
      for (const BufferId buffer : timetable.begins(step)) place[buffer] = allocate(buffers[buffer].size);
      for (const BufferId buffer : timetable.ends(step)) allocator.free(place[buffer]);
    }
    ++peaks.steps;
    // All free blocks are merged, so the segments and the blocks that stay in them decide the placement of
    // the next run.
    peaks.is_steady = allocator.stats().reserved == before;
  }
  const AllocatorStats& stats = allocator.stats();
  peaks.requested = stats.requested_peak;
  peaks.allocated = stats.allocated_peak;
  peaks.reserved = stats.reserved_peak;
  REMAT_ASSERT(peaks.requested <= peaks.allocated && peaks.allocated <= peaks.reserved, peaks.requested,
               peaks.allocated, peaks.reserved);
  REMAT_ASSERT_HEAVY(peaks.requested >= simulate(graph, plan).peak, peaks.requested);
  return peaks;
}

}  // namespace remat
