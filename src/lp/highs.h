// HiGHS behind one call: relaxations and integer programs under our limits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lp/model.h"
#include "remat/limits.h"

namespace remat::lp {

/// Nothing where this build has HiGHS; else one line that says so. Whatever is to be solved then fails at
/// once.
std::optional<std::string> unavailable();

struct Settings {
  bool relax = false;       ///< ignore that columns are integer
  double relative_gap = 0;  ///< of the objective as it stands in the model, without any constant
  double absolute_gap = 0;
  std::optional<double> cutoff = std::nullopt;  ///< only solutions below are asked for; none: kInfeasible
  double heuristic_effort = 0.05;               ///< share of the work that goes into finding solutions
  bool strong_branching = true;                 ///< looks ahead before it branches: fewer nodes, longer ones
  int threads = 1;
  std::int64_t seed = 0;
  /// After which it ends for good, also where it looks at no limit.
  std::optional<double> seconds = std::nullopt;
  std::optional<std::vector<double>> start;  ///< to start from; NaN: not known
  /// Called with each better integer solution, on the thread of the caller.
  std::function<void(const std::vector<double>&, double objective)> on_better;
};

/// kInfeasible: of a relaxation, proved by a dual ray; of an integer program, what HiGHS's tree search says
/// within its tolerances, for solutions below the cutoff where there is one.
enum class Outcome { kOptimal, kInfeasible, kStopped, kFailed };

struct Solution {
  Outcome outcome = Outcome::kFailed;
  std::optional<std::vector<double>> x;  ///< feasible within tolerances (or optimal for a relaxation)
  double objective = 0;                  ///< of `x`
  /// No solution is below, also where the run was stopped. Of a relaxation: proved (`dual_bound`). Of an
  /// integer program: what HiGHS says, less `milp_margin`.
  double bound = -kInfinity;
  std::vector<double> row_dual;  ///< of a relaxation
  std::int64_t nodes = 0, iterations = 0;
};

/// HiGHS takes a point for feasible that breaks a row by 1e-6, and a node for closed at as much below the
/// best objective: a thousand times that is allowed for, and as much for ten thousand reduced costs that are
/// wrong by its 1e-7; and the rounding of an objective of many digits.
constexpr double milp_margin(double objective) {
  return 1e-3 + 1e-9 * (objective < 0 ? -objective : objective);
}

/// Runs until solved or a limit is reached, on a thread of its own, which is left behind where it does not
/// stop within milliseconds after time or Ctrl-C. A work limit is met by counting simplex iterations (one
/// unit of work per 32 entries of the model each), so that a run without a time limit is repeatable on one
/// thread. Spends what it used.
Solution solve(const Model& model, const Settings& settings, Limits& limits);

/// An integer program that goes on where a limit ended it: the solver waits in between, on a thread of its
/// own.
class Program {
 public:
  Program(Model model, const Settings& settings);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// As `solve`; where it returns kStopped, with the bound and the best solution by then, it may be called
  /// again. Work limits make it wait at the same place everywhere.
  Solution advance(Limits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A relaxation that is solved again and again with other bounds on its columns and with more rows, each time
/// from where the last solution was.
class Relaxation {
 public:
  /// The model must outlive it.
  explicit Relaxation(const Model& model);
  ~Relaxation();
  Relaxation(const Relaxation&) = delete;
  Relaxation& operator=(const Relaxation&) = delete;

  /// New bounds of a column, as they stand in the model by then.
  void update(Column column);
  /// Rows that were added to the model since.
  void add_rows();
  Solution solve(Limits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace remat::lp
