// Plans that are already known for a graph, so that nobody pays twice and more memory is never slower.
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

/// For each graph (by hash) and order mode the plans that no other known plan beats in both peak and
/// duration. A graph that is new begins with plans of the one used last that differs from it in sizes and
/// durations alone, as when a step is measured again. Bounded: the graph that was used longest ago goes
/// first. Safe to use from several threads.
class PlanStore {
 public:
  static constexpr std::size_t kMaxGraphs = 8;
  static constexpr std::size_t kMaxPlans = 256;  ///< a graph and order
  static constexpr std::size_t kMaxTaken = 16;   ///< from a graph with other sizes and durations

  struct Entry {
    Simulation cost;
    Plan plan;
  };

  /// The plan must be valid for the graph in this order.
  void add(const Graph& graph, OrderMode order, const Plan& plan);
  /// The fastest known plan within the budget, or nothing.
  std::optional<Plan> best(const Graph& graph, OrderMode order, Bytes budget);
  /// What a planner may want to start from: the fastest known plan within the budget and the one that is
  /// over it by least; fewer where they do not exist.
  std::vector<Plan> around(const Graph& graph, OrderMode order, Bytes budget);
  /// All that are kept, by falling peak and rising duration.
  std::vector<Entry> all(const Graph& graph, OrderMode order);

 private:
  struct Known {
    std::uint64_t used = 0;
    std::string structure;       ///< hash of all but sizes and durations
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

/// `make_plan` from the plans that the store knows around the budget; the store learns the plan found. So
/// more memory is never slower, whatever is asked in which order.
PlanResult make_plan_from(PlanStore& store, const Problem& problem, std::string_view planner,
                          const PlanOptions& options, Limits& limits);

}  // namespace REMAT_API remat
