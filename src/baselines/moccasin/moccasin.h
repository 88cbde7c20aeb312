// Retention intervals solved by constraint programming (Bartan et al., ICML 2023), with OR-tools' CP-SAT.
#pragma once

#include <cstdint>
#include <string>

#include "remat/planner.h"

namespace remat::moccasin {

struct Options {
  /// C_v: most runs of one op. Where a start plan runs an op more often, that op may run as often here.
  std::int64_t c = 2;
  /// stage, events, or auto: stage in fixed order, events in free order (exact/interval_model.h).
  std::string form = "auto";
  /// Planner whose plan the search starts from, or none: then phase 1 starts from keep-all.
  std::string warm_start = "none";
  /// CP-SAT's presolve; see cpsat::Parameters.
  bool presolve = false;
  /// CP-SAT's linear relaxation.
  bool linearization = true;
  /// Before each phase solves the whole model: solve it with most ops pinned to the best plan so far, over
  /// and over with others free (stage form only). Off: the two phases as published.
  bool neighbourhoods = true;
};

PlannerInfo info();

PlanResult plan(const Problem& problem, const Options& options, const PlanOptions& common, Limits& limits);

}  // namespace remat::moccasin
