// Solves a model with CP-SAT under Remat's limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpsat/model.h"
#include "remat/limits.h"

namespace remat::cpsat {

/// As in CpSolverStatus, same numbers.
enum class Status : std::int64_t {
  kUnknown = 0,
  kModelInvalid = 1,
  kFeasible = 2,
  kInfeasible = 3,
  kOptimal = 4
};

struct Parameters {
  int threads = 1;
  std::uint64_t seed = 0;
  /// Presolve costs seconds on variables whose domain has thousands of holes (all start times in stage
  /// form); without it the search starts at once. Measured in docs/planners/moccasin.md.
  bool presolve = false;
  /// 0: no linear relaxation. 1: CP-SAT's default.
  int linearization = 1;
  /// Tries the least objective first. Far better for the peak, whose bound is close from the start.
  bool from_below = false;
  /// Ends the search after this time, even if the limits leave more. With a work limit, only deterministic
  /// time counts.
  std::optional<double> deterministic_seconds, seconds;
};

/// An improved solution.
struct Improvement {
  double seconds = 0;  ///< from the call of `solve`
  std::int64_t objective = 0;
};

struct Response {
  Status status = Status::kUnknown;
  std::vector<std::int64_t> solution;     ///< value of each variable; empty where none was found
  std::optional<std::int64_t> objective;  ///< of `solution`
  std::optional<std::int64_t> bound;      ///< no solution is below it
  double deterministic_time = 0;
  std::vector<Improvement> improvements;
  std::string message;  ///< why the model is invalid
  bool has_solution() const { return status == Status::kFeasible || status == Status::kOptimal; }
};

/// One work unit of `Limits` is about 100 ns; one second of CP-SAT's deterministic time is about ten seconds
/// on our models. With a work limit, the search ends by deterministic time on one worker, so results repeat.
/// The deterministic time used is added to the limits' work.
inline constexpr double kUnitsPerDeterministicSecond = 1e8;

/// The library must be loaded (`library()`). Stops within milliseconds after `limits` is reached; the stop
/// flag may be set from any thread. Coefficients of the objective must be integers that fit into 53 bits with
/// their sum.
Response solve(const Model& model, const Parameters& parameters, Limits& limits);

}  // namespace remat::cpsat
