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

/// Nothing if this build has HiGHS; else one line that says so. Without it, every solve fails at once.
std::optional<std::string> unavailable();

struct Settings {
  bool relax = false;       ///< ignore that columns are integer
  double relative_gap = 0;  ///< of the objective as it stands in the model, without any constant
  double absolute_gap = 0;
  std::optional<double> cutoff = std::nullopt;  ///< only solutions below it are sought; none: kInfeasible
  double heuristic_effort = 0.05;               ///< share of the work spent on primal heuristics
  bool strong_branching = true;                 ///< fewer nodes, but each takes longer
  int threads = 1;
  std::int64_t seed = 0;
  /// HiGHS's own time limit, which also ends phases that check no other limit.
  std::optional<double> seconds = std::nullopt;
  std::optional<std::vector<double>> start;  ///< to start from; NaN: not known
  /// Called for every improved integer solution, on the caller's thread.
  std::function<void(const std::vector<double>&, double objective)> on_better;
};

/// kInfeasible: for a relaxation, proved by a dual ray; for an integer program, the result of HiGHS's tree
/// search within its tolerances, over solutions below the cutoff if there is one.
enum class Outcome { kOptimal, kInfeasible, kStopped, kFailed };

struct Solution {
  Outcome outcome = Outcome::kFailed;
  std::optional<std::vector<double>> x;  ///< feasible within tolerances (or optimal for a relaxation)
  double objective = 0;                  ///< of `x`
  /// Lower bound on the objective, valid also if the run was stopped. For a relaxation: proved
  /// (`dual_bound`). For an integer program: HiGHS's bound less `milp_margin`.
  double bound = -kInfinity;
  std::vector<double> row_dual;  ///< of a relaxation
  std::int64_t nodes = 0, iterations = 0;
};

/// HiGHS accepts points that break a row by 1e-6, and closes nodes within 1e-6 of the best objective. The
/// margin is a thousand times that, the same again for ten thousand reduced costs that are wrong by its 1e-7,
/// and the rounding of an objective with many digits.
constexpr double milp_margin(double objective) {
  return 1e-3 + 1e-9 * (objective < 0 ? -objective : objective);
}

/// Runs until solved or a limit is reached, on a separate thread, which is abandoned if it does not stop
/// within milliseconds of a time limit or Ctrl-C. Work limits count simplex iterations (one unit per 32
/// entries of the model), so that a run without a time limit is deterministic on one thread. Adds its work to
/// `limits`.
Solution solve(const Model& model, const Settings& settings, Limits& limits);

/// An integer program that can continue after a limit: between calls the solver waits on a separate thread.
class Program {
 public:
  Program(Model model, const Settings& settings);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// As `solve`. After kStopped, which comes with the bound and best solution so far, it may be called again.
  /// Under work limits it pauses at the same point on every machine.
  Solution advance(Limits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A relaxation that is solved repeatedly with changed column bounds and added rows, each time warm-started
/// from the last solution.
class Relaxation {
 public:
  /// The model must outlive it.
  explicit Relaxation(const Model& model);
  ~Relaxation();
  Relaxation(const Relaxation&) = delete;
  Relaxation& operator=(const Relaxation&) = delete;

  /// Takes over a column's bounds from the model.
  void update(Column column);
  /// Takes over rows added to the model.
  void add_rows();
  Solution solve(Limits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace remat::lp
