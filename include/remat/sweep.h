// The curve of overhead against memory, in one run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remat/export.h"
#include "remat/limits.h"
#include "remat/planner.h"
#include "remat/store.h"

namespace REMAT_API remat {

inline constexpr int kLeastPoints = 2, kMostPoints = 1000;

struct SweepOptions {
  std::string planner = "auto";
  OrderMode order = OrderMode::kFixed;
  int points = 20;  ///< budgets, evenly spaced from the smallest peak found to the keep-all peak
  PlanOptions plan;
  std::optional<Host> host = std::nullopt;  ///< plans may copy values to it
  /// Further budgets; each also gets a point `SweepResult::apart` above and below it.
  std::vector<Bytes> around = {};
};

/// The best known plan at one budget, and the best bound.
struct SweepPoint {
  Bytes budget;
  PlanResult result;
  bool knee = false;
};

struct SweepResult {
  std::vector<SweepPoint> points;  ///< falling budget; overhead never falls along it
  Bytes keep_all_peak;
  PeakBound peak_bound;  ///< lower bound on the peak of every plan
  Bytes smallest_peak;   ///< of any plan found
  Bytes apart;           ///< distance of the points on either side of `SweepOptions::around`
  std::optional<StoppedBy> stopped_by;
  double seconds = 0;
};

/// Plans at every budget with one store: a plan found at one budget is a start at all others and is valid at
/// every larger one, so that more memory is never slower. The knee is the point farthest below the chord from
/// the first to the last point, both axes scaled to [0, 1]. When a limit is reached, returns the points known
/// so far. With a host, budgets go down to the floor of the ops, budgets without a plan are left out, and the
/// store, which holds no plans with copies, is not used. Throws UsageError for a planner that does not
/// support the graph, and for fewer points than kLeastPoints or more than kMostPoints.
SweepResult sweep(const Graph& graph, const SweepOptions& options, Limits& limits, PlanStore& store);

}  // namespace REMAT_API remat
