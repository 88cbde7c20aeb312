// TWRemat (Kumar et al. 2019, section 3): divide and conquer along balanced separators of a tree
// decomposition of the op graph.
#pragma once

#include <optional>
#include <vector>

#include "decomposition/tree_decomposition.h"
#include "remat/planner.h"

namespace remat::tw_remat {

/// Described by the table in tw_remat.cc.
struct Options {
  std::int64_t k = 0;
  bool min_degree = false;
  std::int64_t improve = 0;
  bool buy_back = true;
};

/// The input of TWRemat(k), computed once for all k.
struct Separators {
  std::int32_t width = 0;
  std::int32_t bags = 0;
  decomposition::SeparatorTree tree;
};
Separators separators(const Graph& graph, const Options& options, Limits& limits);

/// TWRemat(k): stops the recursion at parts of fewer than k bags, k = 1 being the whole of Algorithm 1. A
/// valid plan of the order mode, without unread recomputations; nothing where it would take more than
/// `max_steps` or the limits are reached.
std::optional<Plan> plan_for(const Graph& graph, const Separators& separators, std::int64_t k,
                             OrderMode order, std::int64_t max_steps, Limits& limits);

/// A plan, what it costs, and the k that made it.
struct Candidate {
  Plan plan;
  Simulation cost;
  std::int64_t k = 0;
};

/// The Pareto set over k = 1, 2, 4, ..., bags in (peak, duration), by falling peak; deterministic and cheap:
/// at most 16 times the steps of keep-all each, about log2(ops) plans, each bought back at its own peak. Used
/// as starts of search planners. Never empty: holds keep-all if the limits allow no more.
std::vector<Candidate> candidate_plans(const Problem& problem, Limits& limits);

}  // namespace remat::tw_remat
