// Dynamic programming over lower sets of the forward graph (Kusumoto et al. 2019).
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "baselines/lower_set_dp/canonical.h"
#include "remat/planner.h"

namespace remat::lower_set_dp {

using canonical::ForwardGraph;

/// Members of a lower set, one bit each.
using Set = std::vector<std::uint64_t>;

/// All lower sets by ascending size, the empty one and the whole among them; nothing where there are more
/// than `most`. O(sets * nodes).
std::optional<std::vector<Set>> all_lower_sets(const ForwardGraph& graph, std::size_t most, Limits& limits);
/// Each node with its ancestors, the empty set and the whole, by ascending size and without duplicates.
/// Empty where a limit was reached.
std::vector<Set> pruned_lower_sets(const ForwardGraph& graph, Limits& limits);
/// What the family and the largest table over it take.
std::int64_t table_bytes(const ForwardGraph& graph, std::int64_t sets, std::int64_t levels);

/// What Algorithm 1 finds for a budget of its own formula, in bytes.
struct Strategy {
  std::vector<std::int32_t> sets;  ///< indices into the family, ascending; the empty set is left out
  std::int64_t time = 0;           ///< recomputation by the formula (the last part included)
};
struct Strategies {
  std::optional<Strategy> time_centric;    ///< least recomputation
  std::optional<Strategy> memory_centric;  ///< most recomputation, meant for use with liveness analysis
};

/// Least bytes kept by strategies that reach a set at a level, and where the best of them comes from.
inline constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max() / 4;
struct Cell {
  std::int64_t least = kInfinite;
  std::int32_t set = -1, level = -1;
};

/// Algorithm 1 over a family of lower sets that holds the empty set and the whole. Times are rounded up to
/// whole levels where their sum exceeds `levels`. O(sets^2 * levels) at worst.
class Table {
 public:
  Table(const ForwardGraph& graph, std::vector<Set> family, std::int64_t levels, Limits& limits);
  Strategies solve(std::int64_t bytes, Limits& limits) const;
  /// The part of each node: the first of the strategy's sets that holds it.
  std::vector<std::int32_t> parts(const Strategy& strategy) const;
  /// A budget of the formula that fits the single part of everything.
  std::int64_t largest_budget() const;
  const std::vector<Set>& family() const { return family_; }

 private:
  Strategy trace(const std::vector<std::vector<Cell>>& cells, std::int32_t level) const;

  std::vector<Set> family_;
  int shift_ = 0;  ///< huge sizes are rounded up to multiples of 2^shift_
  std::int64_t unit_ = 1;
  std::int32_t levels_ = 0;
  std::vector<std::int64_t> node_bytes_, node_time_;  ///< bytes in units of 2^shift_, time in levels
  std::vector<std::int64_t> set_bytes_, set_time_;
  std::vector<std::int64_t> outside_;  ///< bytes of the terms of line 6 that depend on L' alone
  std::vector<std::vector<std::int32_t>> boundary_;
};

}  // namespace remat::lower_set_dp
