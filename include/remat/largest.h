// The largest size of a step (samples of a batch, tokens of a sequence) that fits into a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/limits.h"
#include "remat/planner.h"
#include "remat/store.h"

namespace REMAT_API remat {

/// Sizes are integers in [1, kMostSize].
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 20;

/// The graphs of one step at several sizes, and estimates for the sizes between and beyond them.
///
///   bytes |            x  known          A graph of another size is a known one of the same structure
///         |        o      at(size)       with other amounts: bytes by the polynomial through the three
///         |     x         known          nearest known sizes (so what is affine or quadratic in the size
///         |  x            known          is exact), durations along the line through the nearest two.
///         +------------------ size
class GraphFamily {
 public:
  /// Adds or replaces the graph of that size. Throws UsageError for a size outside [1, kMostSize].
  void add(std::int64_t size, Graph graph);
  bool knows(std::int64_t size) const { return graphs_.contains(size); }
  /// Nothing if that size is unknown and no two known graphs have the same structure. Of several structures,
  /// that of the nearest known size is used. Throws InputError if sums exceed 62 bits.
  std::optional<Graph> at(std::int64_t size) const;

 private:
  std::map<std::int64_t, Graph> graphs_;
};

/// True if only amounts and names differ: a plan of one graph is then a plan of the other.
bool same_structure(const Graph& a, const Graph& b);

struct LargestOptions {
  std::string planner = "auto";
  OrderMode order = OrderMode::kFixed;
  std::int64_t least = 1, most = kMostSize;
  std::int64_t multiple = 1;                         ///< only multiples of it are tried
  std::optional<std::int64_t> guess = std::nullopt;  ///< where the search begins
  int rows = 8;  ///< about how many sizes get a good plan; 0: only the answer is sought
  PlanOptions plan = {};
};

/// What is known about one size.
struct SizeRow {
  std::int64_t size = 0;
  std::vector<Graph> graphs;        ///< all must fit
  std::vector<PlanResult> results;  ///< of each

  /// All have a plan: `kOptimal` or `kFeasible`. One is proved to have none: `kInfeasible`.
  Status status() const;
  bool fits() const { return status() == Status::kOptimal || status() == Status::kFeasible; }
  Bytes peak() const;           ///< the highest of its plans; only for a row that fits
  Bytes keep_all_peak() const;  ///< the highest
  Bytes peak_bound() const;     ///< the highest lower bound of its graphs
  Duration duration() const;    ///< of its first plan; only for a row that fits
  /// size / duration of a row that fits.
  double throughput() const;
};

struct LargestResult {
  std::vector<SizeRow> rows;               ///< rising size
  std::optional<std::int64_t> largest;     ///< that has plans
  std::optional<std::int64_t> impossible;  ///< the least size above `largest` that is proved to have none
  std::optional<std::int64_t> best;        ///< among `rows`, the highest throughput
  std::optional<std::int64_t> missing;     ///< the search ended as the graphs of this size are unknown
  std::optional<StoppedBy> stopped_by;
  double seconds = 0;
};

/// The graphs of a size, one for each kind of step that has to fit; empty if they are unknown.
using StepsOfSize = std::function<std::vector<Graph>(std::int64_t size)>;

/// Finds the largest size at which every step has a plan within the budget, by doubling and bisection: first
/// with bounds and first plans, which take milliseconds; then, between the largest size that fits and the
/// least that is proved impossible, with searches for the least peak. Plans of one size are starts at others.
/// `largest` is proved if `impossible` is the next size; about sizes between the two nothing is known.
/// Assumes that fitting is monotone in the size, but checks the two sizes next to the answer. Throws
/// UsageError for a planner that does not support a graph and for sizes out of range.
LargestResult find_largest(const StepsOfSize& steps, Bytes budget, const LargestOptions& options,
                           Limits& limits, PlanStore& store);

}  // namespace REMAT_API remat
