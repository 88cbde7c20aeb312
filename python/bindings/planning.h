// Planning with anything that makes a PlanResult.
#pragma once

#include <functional>

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "remat/layout_io.h"
#include "remat/request.h"
#include "remat/sweep.h"

namespace remat::python {

/// `_core.Question`: what is asked, without planner and effort.
struct Question {
  nb::object graph_object;  ///< keeps the graph of the request
  Request request;
  std::optional<Bytes> budget;  ///< none: that of the request is kNoBudget
  std::string asked_budget;     ///< as a text, if it was one
};

/// `remat.PlanResult`.
struct BoundResult {
  Question question;  ///< with planner and effort
  PlanResult result;
  std::optional<PlanRecord> record;  ///< of `result.plan`, also where that is over the budget
  Bytes keep_all_peak;
  Bytes floor;
  std::optional<Bytes> smallest_known;   ///< once somebody asked
  std::optional<LayoutRecord> layout;    ///< of the plan, where the budget is on its arena
  std::optional<AllocatorPeaks> peaks;   ///< of the plan, where the budget is on what is reserved
  std::optional<ExecutorPlan> executor;  ///< where it was made for one
  nb::object full = nb::none();          ///< and the PlanResult of what any plan can do

  bool within() const { return record && has_plan(result); }
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

using Run = std::function<PlanResult(const Request&, Limits&)>;
/// A remat.PlanResult of what `run` finds, on a thread of its own, without the GIL.
BoundResult plan_with(const Question& question, nb::handle progress, const Run& run);
/// The same where `run` asks the planner of the request by its name: the plan's file says how to make it
/// again, unless that planner is a function of this process.
BoundResult plan_by_name(const Question& question, nb::handle progress, const Run& run);

/// The question with all that planning needs.
Question with_effort(const Question& question, const std::string& planner, const Effort& effort);
/// Whether the planner was registered from Python.
bool is_in_python(const std::string& planner);

/// Adds planners, and what each makes of a problem by itself.
void bind_comparing(nb::module_& m);

/// For pickles: everything of a result but what can be computed again.
nb::tuple packed(const BoundResult& result);
BoundResult unpacked(nb::tuple state);
nb::tuple packed_point(const BoundPoint& point);
BoundPoint unpacked_point(nb::tuple state);
nb::tuple packed_sweep(const BoundSweep& sweep);
BoundSweep unpacked_sweep(nb::tuple state);

}  // namespace remat::python
