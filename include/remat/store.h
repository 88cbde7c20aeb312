// Known plans of each graph, so that work is not repeated and more memory is never slower.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/plan.h"
#include "remat/planner.h"

namespace REMAT_API remat {

/// For each graph (by hash) and order mode, the Pareto-optimal known plans in peak and duration. A new graph
/// starts with plans of the last used one that differs only in sizes and durations, as when a step is
/// measured again. Bounded: the least recently used graph is dropped first. Safe to use from several threads.
class PlanStore {
 public:
  static constexpr std::size_t kMaxGraphs = 8;
  static constexpr std::size_t kMaxPlans = 256;  ///< per graph and order
  static constexpr std::size_t kMaxTaken = 16;   ///< plans taken from a graph of the same structure

  struct Entry {
    Simulation cost;
    Plan plan;
  };

  /// The plan must be valid for the graph in this order.
  void add(const Graph& graph, OrderMode order, const Plan& plan);
  /// The fastest known plan within the budget, or nothing.
  std::optional<Plan> best(const Graph& graph, OrderMode order, Bytes budget);
  /// Plans to start from: the fastest one within the budget and the one that exceeds it by least, as far as
  /// they exist.
  std::vector<Plan> around(const Graph& graph, OrderMode order, Bytes budget);
  /// All stored plans, by falling peak and rising duration.
  std::vector<Entry> all(const Graph& graph, OrderMode order);

 private:
  struct Known {
    std::uint64_t used = 0;
    std::string structure;       ///< `structure_hash` of the graph
    std::vector<Entry> by_peak;  ///< falling peak, rising duration
  };
  Known* find(const Graph& graph, OrderMode order);
  Known& find_or_add(const Graph& graph, OrderMode order);
  Known* take_from_alike(const Graph& graph, OrderMode order);
  Known& insert(const Graph& graph, OrderMode order, Known known);

  std::mutex mutex_;
  std::uint64_t clock_ = 0;
  std::map<std::pair<std::string, OrderMode>, Known> graphs_;
};

/// `make_plan` started from the stored plans around the budget; adds the plan found. So more memory is never
/// slower, in whatever sequence budgets are requested.
PlanResult make_plan_from(PlanStore& store, const Problem& problem, std::string_view planner,
                          const PlanOptions& options, Limits& limits);

}  // namespace REMAT_API remat
