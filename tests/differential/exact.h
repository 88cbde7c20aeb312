// An independent implementation of docs/model.md: it includes nothing of remat, sums have 128 bits, and the
// search knows no planner. A disagreement is a bug on one of the two sides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace exact {

__extension__ using Sum = __int128;
std::string to_string(Sum sum);

struct Op {
  std::vector<int> inputs, outputs, after;
  std::int64_t duration = 0, workspace = 0;
  bool may_run_again = true;
  bool is_backward = false;                    ///< a hint for planners; no rule uses it
  int forward_of = -1;                         ///< the same
  std::vector<std::pair<int, int>> over = {};  ///< an input and the output that may be written over it
};

/// Values and ops by index, ops in the graph's order.
struct Graph {
  std::vector<std::int64_t> bytes;  ///< of each value
  std::vector<int> inputs, kept;    ///< values
  std::vector<Op> ops;
};

struct Cost {
  Sum peak = 0, duration = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

/// The error of step `s` after the steps before it, or nothing.
std::optional<std::string> broken_step(const Graph& graph, const std::vector<int>& steps, std::size_t s);

/// The first rule that the plan breaks, or nothing.
std::optional<std::string> broken_rule(const Graph& graph, const std::vector<int>& steps, bool fixed_order);

/// The cost of a valid plan by definition: every instance with its first and last step. Quadratic.
Cost cost_of(const Graph& graph, const std::vector<int>& steps);

/// The Pareto front of all valid plans: rising peak, falling duration. The first is the least peak and the
/// least duration at it, the last runs every op once. For tiny graphs: time and memory double with each op
/// and each value that an op makes.
std::vector<Cost> trade_off(const Graph& graph, bool fixed_order);

}  // namespace exact
