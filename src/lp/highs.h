// HiGHS behind one call: relaxations and integer programs under our limits.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lp/model.h"
#include "remat/limits.h"

namespace remat::lp {

struct Settings {
  bool relax = false;          ///< ignore that columns are integer
  double relative_gap = 1e-4;  ///< of the objective as it stands in the model, without any constant
  double absolute_gap = 1e-6;
  std::optional<double> cutoff = std::nullopt;  ///< only solutions below are asked for; none: kInfeasible
  double heuristic_effort = 0.05;               ///< share of the work that goes into finding solutions
  int threads = 1;
  std::int64_t seed = 0;
  std::optional<std::vector<double>> start;  ///< to start from; NaN: not known
  /// Called with each better integer solution, on the thread of the caller.
  std::function<void(const std::vector<double>&, double objective)> on_better;
};

enum class Outcome { kOptimal, kInfeasible, kStopped, kFailed };

struct Solution {
  Outcome outcome = Outcome::kFailed;
  std::optional<std::vector<double>> x;  ///< feasible (or optimal for a relaxation)
  double objective = 0;                  ///< of `x`
  double bound = -kInfinity;             ///< proved, also where the run was stopped
  std::vector<double> row_dual;          ///< of a relaxation
  std::int64_t nodes = 0, iterations = 0;
};

/// Runs until solved or a limit is reached, on a thread of its own, which is left behind where it does not
/// stop within milliseconds after time or Ctrl-C. A work limit is met by counting simplex iterations (one
/// unit of work per 32 entries of the model each), so that a run without a time limit is repeatable on one
/// thread. Spends what it used.
Solution solve(const Model& model, const Settings& settings, Limits& limits);

}  // namespace remat::lp
