// Planning with anything that makes a PlanResult.
#pragma once

#include <functional>

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "remat/sweep.h"

namespace remat::python {

/// `_core.Question`: what is asked.
struct Question {
  nb::object graph_object;  ///< keeps `problem.graph`
  Problem problem;
  std::optional<Bytes> budget;  ///< none: `problem.budget` is kNoBudget
  std::string asked_budget;     ///< as a text, if it was one
};

/// `remat.SweepPoint`.
struct BoundPoint {
  Bytes budget;
  PlanRecord record;
  DurationBound duration_bound;
  bool knee = false;
};

/// `remat.SweepResult`.
struct BoundSweep {
  std::string planner;
  OrderMode order = OrderMode::kFixed;
  Duration base_duration;
  SweepResult result;
  std::vector<BoundPoint> points;
};

/// A remat.PlanResult of what `run` finds, on a thread of its own, without the GIL.
nb::object plan_with(const Question& question, const Effort& effort, nb::handle progress,
                     const std::function<PlanResult(const Problem&, Limits&)>& run);

}  // namespace remat::python
