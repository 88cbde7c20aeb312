// The whole curve of overhead against memory, from one run.
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
  std::optional<Host> host = std::nullopt;  ///< that plans may copy values to
  /// Budgets that are points too, each with one on either side: so much more and so much less memory.
  std::vector<Bytes> around = {};
};

/// The best plan known at one budget, and the best bound.
struct SweepPoint {
  Bytes budget;
  PlanResult result;
  bool knee = false;
};

struct SweepResult {
  std::vector<SweepPoint> points;  ///< falling budget; overhead never falls along it
  Bytes keep_all_peak;
  PeakBound peak_bound;  ///< no plan goes below
  Bytes smallest_peak;   ///< of any plan found
  Bytes apart;           ///< of the points on either side of those that were asked for
  std::optional<StoppedBy> stopped_by;
  double seconds = 0;
};

/// Plans at every budget with one store: a plan found at one budget is a start at every other and counts at
/// every larger one, so that more memory is never slower. The knee is the point farthest below the chord
/// from the first to the last point, both axes scaled to [0, 1]. With a limit reached the points that are
/// known so far come back. With a host the budgets go down to the floor of the ops, those that no plan was
/// found for are left out, and the store, which knows no plans with copies, is not asked. Throws UsageError
/// for a planner that does not support the graph, and for fewer points than kLeastPoints or more than
/// kMostPoints.
SweepResult sweep(const Graph& graph, const SweepOptions& options, Limits& limits, PlanStore& store);

}  // namespace REMAT_API remat
