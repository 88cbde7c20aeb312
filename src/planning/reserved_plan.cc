// Plans for memory reserved by the allocator.
#include <algorithm>

#include "allocator/rules.h"
#include "planning/footprint.h"
#include "planning/measured.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

using namespace allocator;

/// On an unlimited device reserved memory is never returned, so each pool finally has segments for its peak.
/// `rounded` has sizes of blocks.
PeakBound pools_bound(const Graph& rounded, OrderMode order, const AllocatorConfig& config) {
  const auto part = [&](bool is_small) {
    Graph graph = rounded;
    bool are_shared = true;  // no request has its own segment
    const auto keep = [&](Bytes& size) {
      if ((size <= kMostSmall) != is_small) size = Bytes();
      if (size >= kLeastLarge) are_shared = false;
    };
    for (Bytes& size : graph.bytes) keep(size);
    for (const auto column : kBytesOfOps) std::ranges::for_each(graph.*column, keep);
    graph.resident = Bytes();
    for (const ValueId input : graph.graph_inputs) graph.resident += graph.bytes[input];
    const bool by_page = config.expandable_segments || are_shared;
    const Bytes multiple = is_small ? kSmallSegment : by_page ? config.large_segment : kLargeMultiple;
    // Segments of either kind, both multiples of a MiB.
    const bool is_mixed = !is_small && !by_page && config.large_segment.count() % multiple.count() != 0;
    return round_up(best_peak_bound(graph, order).peak, is_mixed ? kMiB : multiple);
  };
  return {"pools", part(true) + part(false), OpId()};
}

}  // namespace

Answer answer_on_reserved(const Request& request, Limits& limits) {
  const Problem& problem = request.problem;
  const AllocatorConfig& allocator = request.allocator;
  Footprint footprint;
  footprint.rounded = rounded_up(*problem.graph, true, "blocks",
                                 [&](Bytes size) { return Wide{rounded_request(allocator, size).count()}; });
  if (!allocator.exact) footprint.bound = pools_bound(footprint.rounded, problem.order, allocator);
  footprint.measure = [&](Answer& answer, Limits&) {
    answer.peaks = simulate_allocator(*problem.graph, *answer.result.plan, allocator);
    // Reserved bytes once a run reserves nothing new; kNoBudget if that never happens.
    answer.footprint = answer.peaks->is_steady ? answer.peaks->reserved : kNoBudget;
  };
  Answer answer = plan_within(request, std::move(footprint), limits);
  const AllocatorPeaks& known =
      answer.peaks ? *answer.peaks
                   : simulate_allocator(*problem.graph, keep_all_plan(*problem.graph), allocator);
  answer.smallest_known = known.reserved;
  return answer;
}

}  // namespace remat
