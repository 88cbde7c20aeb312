// Planning from Python.
#pragma once

#include <nanobind/stl/map.h>

#include <functional>

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "remat/layout_io.h"
#include "remat/request.h"
#include "remat/sweep.h"

namespace remat::python {

/// `_core.Question`: a request without planner and effort.
struct Question {
  nb::object graph_object;  ///< keeps the graph of the request
  Request request;
  std::optional<Bytes> budget;  ///< none: kNoBudget in the request
  std::string asked_budget;     ///< the user's text, if it was one
};

/// `remat.PlanResult`.
struct BoundResult {
  Question question;  ///< with planner and effort
  PlanResult result;
  std::optional<PlanRecord> record;  ///< of `result.plan`, even if that is over the budget
  Bytes keep_all_peak;
  Bytes floor;
  std::optional<Bytes> smallest_known;        ///< cached by the first call that asks for it
  std::optional<LayoutRecord> layout;         ///< of the plan, for budgets on its arena
  std::optional<AllocatorPeaks> peaks;        ///< of the plan, for budgets on reserved memory
  std::optional<ExecutorPlan> executor_plan;  ///< if the plan was made for one
  nb::object full = nb::none();               ///< with an executor: PlanResult of the full plan

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
/// A remat.PlanResult of the plan that `run` finds, on a separate thread without the GIL.
BoundResult plan_with(const Question& question, nb::handle progress, const Run& run);
/// The same where `run` calls the request's planner by name: the plan's file records the request, unless that
/// planner is a function of this process.
BoundResult plan_by_name(const Question& question, nb::handle progress, const Run& run);

/// The question with planner and effort filled in.
Question with_effort(const Question& question, const std::string& planner, const Effort& effort);
/// True if the planner was registered from Python.
bool is_in_python(const std::string& planner);

/// Binds the list of planners, and the calls of single planners for comparisons.
void bind_comparing(nb::module_& m);

template <>
inline constexpr auto kMembers<PlanOptions> =
    std::tuple(&PlanOptions::seed, &PlanOptions::threads, &PlanOptions::set);
template <>
inline constexpr auto kMembers<LoggedPlan> =
    std::tuple(&LoggedPlan::duration, &LoggedPlan::peak, &LoggedPlan::within_budget);
template <>
inline constexpr auto kMembers<Traffic> =
    std::tuple(&Traffic::stalled, &Traffic::out, &Traffic::in, &Traffic::busy_out, &Traffic::busy_in,
               &Traffic::host_peak);
template <>
inline constexpr auto kMembers<Simulation> =
    std::tuple(&Simulation::peak, &Simulation::peak_step, &Simulation::duration, &Simulation::traffic);
template <>
inline constexpr auto kMembers<PeakBound> =
    std::tuple(&PeakBound::argument, &PeakBound::peak, &PeakBound::op);
template <>
inline constexpr auto kMembers<DurationBound> =
    std::tuple(&DurationBound::argument, &DurationBound::duration);
/// All but the plan, which is beside it as a record.
template <>
inline constexpr auto kMembers<PlanResult> =
    std::tuple(&PlanResult::status, &PlanResult::stopped_by, &PlanResult::planner, &PlanResult::known,
               &PlanResult::order, &PlanResult::cost, &PlanResult::peak_bound, &PlanResult::duration_bound,
               &PlanResult::counters, &PlanResult::log, &PlanResult::seconds);
template <>
inline constexpr auto kMembers<SweepPoint> =
    std::tuple(&SweepPoint::budget, &SweepPoint::result, &SweepPoint::knee);
template <>
inline constexpr auto kMembers<SweepResult> = std::tuple(
    &SweepResult::points, &SweepResult::keep_all_peak, &SweepResult::peak_bound, &SweepResult::smallest_peak,
    &SweepResult::apart, &SweepResult::stopped_by, &SweepResult::seconds);
/// Those that `remat.PlanResult` shows.
template <>
inline constexpr auto kMembers<CheckpointRegion> =
    std::tuple(&CheckpointRegion::name, &CheckpointRegion::again);
template <>
inline constexpr auto kMembers<ExecutorPlan> =
    std::tuple(&ExecutorPlan::executor, &ExecutorPlan::regions, &ExecutorPlan::saved);

}  // namespace remat::python
