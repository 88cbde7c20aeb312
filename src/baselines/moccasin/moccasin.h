// Retention intervals solved by constraint programming (Bartan et al., ICML 2023), with OR-tools' CP-SAT.
#pragma once

#include <cstdint>
#include <string>

#include "remat/planner.h"

namespace remat::moccasin {

/// Described by the table in moccasin.cc.
struct Options {
  std::int64_t c = 2;
  std::string form = "auto";
  std::string warm_start = "none";
  bool presolve = false;
  bool linearization = true;
  bool neighbourhoods = true;
};

PlannerInfo info();

PlanResult plan(const Problem& problem, const Options& options, const PlanOptions& common, Limits& limits);

}  // namespace remat::moccasin
