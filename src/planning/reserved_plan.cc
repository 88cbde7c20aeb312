// Plan and allocator together.
#include "allocator/rules.h"
#include "planning/footprint.h"
#include "remat/error.h"
#include "remat/reserved.h"

namespace remat {
namespace {

using namespace allocator;

/// Nothing reserved goes back to a device without end, so each pool in the end has segments for the most
/// that ever lived in it. `rounded` has sizes as blocks.
PeakBound pools_bound(const Graph& rounded, OrderMode order, const AllocatorConfig& config) {
  const auto part = [&](bool is_small) {
    Graph graph = rounded;
    bool are_shared = true;  // no request has a segment of its own
    const auto keep = [&](Bytes& size) {
      if ((size <= kMostSmall) != is_small) size = Bytes();
      if (size >= kLeastLarge) are_shared = false;
    };
    for (Bytes& size : graph.bytes) keep(size);
    for (Bytes& size : graph.workspace) keep(size);
    for (Bytes& size : graph.generator_state) keep(size);
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

ReservedPlan make_reserved_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                                const AllocatorConfig& allocator, Limits& limits) {
  if (problem.objective != Objective::kTime) {
    throw UsageError("a budget on reserved bytes goes with objective time only");
  }
  if (problem.host) throw UsageError("a budget on reserved bytes and a host do not go together");
  Graph rounded = rounded_up(*problem.graph, true, "blocks",
                             [&](Bytes size) { return Wide{rounded_request(allocator, size).count()}; });
  const auto run = [&](const PlanResult& result, Limits&) {
    return ReservedPlan{result, simulate_allocator(*problem.graph, *result.plan, allocator), 0};
  };
  const PeakBound bound = allocator.exact ? PeakBound() : pools_bound(rounded, problem.order, allocator);
  FootprintSearch<ReservedPlan> search(problem, planner, options, std::move(rounded), run, limits);
  search.set_bound(bound);
  return search.run();
}

}  // namespace remat
