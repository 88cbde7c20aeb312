// PWRemat (Kumar et al. 2019, section 5 and appendix A): divide and conquer along a path decomposition of a
// graph with a spine, in which bags get smaller as well as fewer.
#pragma once

#include <optional>
#include <vector>

#include "decomposition/path_decomposition.h"
#include "remat/planner.h"

namespace remat::pw_remat {

/// Described by the table in pw_remat.cc.
struct Options {
  std::int64_t k = 0;
  bool buy_back = true;
};

/// A spine and a path decomposition over ranks in it: rank r is the r-th op of `order`.
struct Ranked {
  std::vector<OpId> order;
  /// Ranks that each rank reads, ascending, and the rank before it where nobody reads that: the last rank
  /// needs all others.
  std::vector<std::vector<std::int32_t>> inputs;
  decomposition::PathDecomposition path;
  std::int32_t path_width = 0;  ///< before a spine was added
};
/// In fixed order the spine is the graph's order, and the decomposition is one of the graph with its arcs. In
/// free order Algorithm 2 adds a spine.
Ranked ranked(const Graph& graph, OrderMode order, Limits& limits);

/// Algorithm 3 on ranks: a sequence that computes the last of them, in which every input of a rank comes
/// before it. Stops at parts of fewer than k bags, k = 1 being the whole algorithm. Nothing where it takes
/// more than `max_steps` or the limits are reached.
std::optional<std::vector<std::int32_t>> interleave(const std::vector<std::vector<std::int32_t>>& inputs,
                                                    const decomposition::PathDecomposition& path,
                                                    std::int64_t k, std::int64_t max_steps, Limits& limits);

/// The same as a valid plan, first runs along the spine, without unread recomputations.
std::optional<Plan> plan_for(const Graph& graph, const Ranked& ranked, std::int64_t k, std::int64_t max_steps,
                             Limits& limits);

}  // namespace remat::pw_remat
