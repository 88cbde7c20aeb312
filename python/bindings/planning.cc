// remat.plan and remat.PlanResult.
#include "planning.h"

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "planner_thread.h"
#include "remat/bounds.h"
#include "remat/layout_io.h"
#include "remat/report.h"

namespace remat::python {
namespace {

void set_options(Request& request, nb::dict options) {
  for (auto [name, value] : options) set_option(request, nb::cast<std::string>(name), option_text(value));
}

Question asked(nb::handle_t<Graph> graph_object, nb::handle budget, nb::handle host, nb::dict options) {
  const Graph& graph = nb::cast<const Graph&>(graph_object);
  Question question;
  question.graph_object = nb::borrow(graph_object);
  question.budget = parse_budget_object(budget, keep_all_peak(graph), floor_bound(graph).peak);
  if (nb::isinstance<nb::str>(budget)) question.asked_budget = nb::cast<std::string>(budget);
  set_options(question.request, options);
  Problem& problem = question.request.problem;
  problem.graph = &graph;
  problem.budget = question.budget.value_or(kNoBudget);
  problem.host = host_of(host, graph);
  return question;
}

/// For pickles: texts, and objects that can be pickled.
nb::tuple state_of_question(const Question& q) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const OptionInfo& option : request_options()) {
    options.emplace_back(option.name, option_of(q.request, option.name));
  }
  return nb::make_tuple(q.graph_object, q.budget, q.asked_budget, options, q.request.problem.host,
                        q.request.planner, q.request.effort);
}

void set_question(Question& question, nb::tuple t) {
  Question q;
  q.graph_object = nb::object(t[0]);
  q.budget = nb::cast<std::optional<Bytes>>(t[1]);
  q.asked_budget = nb::cast<std::string>(t[2]);
  for (const auto& [name, text] : nb::cast<std::vector<std::pair<std::string, std::string>>>(t[3])) {
    set_option(q.request, name, text);
  }
  q.request.planner = nb::cast<std::string>(t[5]);
  q.request.effort = nb::cast<Effort>(t[6]);
  Problem& problem = q.request.problem;
  problem.graph = &nb::cast<const Graph&>(q.graph_object);
  problem.budget = q.budget.value_or(kNoBudget);
  problem.host = nb::cast<std::optional<Host>>(t[4]);
  new (&question) Question(std::move(q));
}

/// Planners that improve plans start from the process's plan store, so that more memory is never slower.
BoundResult bound_plan(const Question& asked, const std::string& planner, const Effort& effort,
                       nb::handle progress) {
  Answer found;
  BoundResult outcome = plan_by_name(
      with_effort(asked, planner, effort), progress, [&](const Request& request, Limits& limits) {
        found = with_fault<GraphFault>([&] { return answer(request, limits, &plan_store()); });
        return found.result;
      });
  const Request& request = outcome.question.request;
  if (found.full) {
    BoundResult full = outcome;
    full.result = std::move(*found.full);
    full.record.reset();
    if (full.result.plan)
      full.record = make_record(request.problem, full.result, request.effort.options.seed);
    outcome.full = nb::cast(std::move(full));
  }
  if (found.packed) {
    outcome.layout = make_layout_record(*request.problem.graph, *outcome.result.plan, found.packed->buffers,
                                        found.packed->layout);
  }
  outcome.peaks = found.peaks;
  outcome.smallest_known = found.smallest_known;
  outcome.executor_plan = std::move(found.executor_plan);
  return outcome;
}

std::optional<Bytes> arena_of_plan(const BoundResult& r) {
  if (!r.within()) return std::nullopt;
  if (r.layout) return r.layout->arena;
  constexpr std::int64_t kCacheLine = 64;
  const PlanBuffers buffers = plan_buffers(*r.question.request.problem.graph, *r.result.plan, kCacheLine);
  return buffers.resident + glance_layout(buffers.problem).arena;
}

std::int64_t smallest_known_budget_of(BoundResult& r) {
  if (!r.smallest_known) {
    PlannerThread thread;
    const Effort& effort = r.question.request.effort;
    effort.apply(thread.limits());
    std::optional<Bytes> found;
    thread.run(
        [&] {
          found = smallest_known_budget(r.question.request.problem, r.result, effort.options, thread.limits(),
                                        effort.work_limit ? nullptr : &plan_store());
        },
        nb::none());
    r.smallest_known = std::min(found.value_or(r.keep_all_peak), r.keep_all_peak);
  }
  return r.smallest_known->count();
}

std::string budget_text(const BoundResult& r) {
  return r.question.budget ? std::to_string(r.question.budget->count()) : std::string("none");
}

/// ", overhead 1.2%, gap 0.3%" of a plan within the budget.
std::string costs_text(const BoundResult& r) {
  if (!r.within()) return "";
  return ", overhead " + percent_text(r.record->overhead) + ", gap " + percent_text(gap(r.result));
}

std::string budget_for_people(const BoundResult& r) {
  return r.question.budget ? describe_budget(r.question.asked_budget, *r.question.budget) : "no budget";
}

/// "; none goes below 12 (the bound 'floor'); ..."
std::string what_is_known(BoundResult& r) {
  return "; no plan of " + std::string(to_string(r.result.order)) + " order goes below " +
         exact_bytes(r.result.peak_bound.peak) + ", by the bound '" + r.result.peak_bound.argument +
         "'; the smallest budget known to work is " + exact_bytes(Bytes(smallest_known_budget_of(r)));
}

std::string kind_of_plan(const BoundResult& r) {
  return r.executor_plan ? "set of saved results of the executor '" +
                               std::string(to_string(r.executor_plan->executor)) + "'"
                         : "plan";
}

void raise_if_infeasible(BoundResult& r) {
  if (r.result.status != Status::kInfeasible) return;
  throw NoPlanFault(
      "proved infeasible: no " + kind_of_plan(r) + " fits into " + budget_for_people(r) + what_is_known(r),
      true, r.floor, *r.smallest_known);
}

void raise_if_no_plan(BoundResult& r) {
  raise_if_infeasible(r);
  if (r.within()) return;
  throw NoPlanFault("no " + kind_of_plan(r) + " within " + budget_for_people(r) +
                        " found, nothing proved; stopped by " + std::string(to_string(r.result.stopped_by)) +
                        what_is_known(r),
                    false, r.floor, *r.smallest_known);
}

std::optional<PlanRecord> plan_of(const BoundResult& r, bool within) {
  if (!r.record || r.within() != within) return std::nullopt;
  return r.record;
}

template <class Get>
auto if_within(Get get) {
  return [get](const BoundResult& r) -> std::optional<decltype(get(r))> {
    if (!r.within()) return std::nullopt;
    return get(r);
  };
}

void bind_outcome(nb::class_<BoundResult>& result) {
  result
      .def_prop_ro(
          "status", of(&BoundResult::result, &PlanResult::status),
          "\"optimal\": proved least duration in this order; \"feasible\": a plan within the budget;\n"
          "\"infeasible\": proved that none exists; \"unknown\": none found, nothing proved.")
      .def_prop_ro("stopped_by", of(&BoundResult::result, &PlanResult::stopped_by),
                   "\"proof\", \"time\", \"work\", \"interrupted\" or \"target\".")
      .def_prop_ro(
          "plan", [](const BoundResult& r) { return plan_of(r, true); }, "A plan within the budget, or None.")
      .def_prop_ro(
          "closest", [](const BoundResult& r) { return plan_of(r, false); },
          "If no plan is within the budget: the one with the smallest peak, for display only, not to be\n"
          "run; else None.")
      .def_prop_ro("peak", if_within(of(&BoundResult::result, &PlanResult::cost, &Simulation::peak)),
                   "Of `plan`, in bytes, or None.")
      .def_prop_ro(
          "arena", arena_of_plan,
          "Bytes that `plan` needs with a fixed offset for each buffer (and graph inputs), or None. If "
          "the budget\n"
          "is not on the arena: computed on each access, in some milliseconds, with an alignment of 64 "
          "bytes;\n"
          "`remat.layout` may find a smaller one.")
      .def_prop_ro(
          "layout", [](const BoundResult& r) { return r.within() ? r.layout : std::nullopt; },
          "Layout of `plan` if the budget is on the arena; else None.")
      .def_prop_ro(
          "allocator_peaks", [](const BoundResult& r) { return r.within() ? r.peaks : std::nullopt; },
          "Allocator peaks of `plan` if the budget is on reserved bytes; else None.")
      .def_prop_ro(
          "executor",
          [](const BoundResult& r) { return r.executor_plan ? r.executor_plan->executor : Executor::kRemat; },
          "The executor whose limits `plan` keeps: \"remat\", \"partitioner\" or \"checkpoint\" "
          "(docs/executors.md).")
      .def_prop_ro("full", of(&BoundResult::full), nb::sig("def full(self) -> PlanResult | None"),
                   "With an executor: the result over all plans, within the same budget; else None.")
      .def_prop_ro(
          "saved",
          [](const BoundResult& r) -> std::optional<std::vector<ValueId>> {
            if (!r.within() || !r.executor_plan) return std::nullopt;
            return r.executor_plan->saved;
          },
          "With an executor: the values that the forward half saves for the backward half; else None.")
      .def_prop_ro(
          "regions",
          [](const BoundResult& r) -> std::optional<std::vector<std::pair<std::string, std::vector<OpId>>>> {
            if (!r.within() || !r.executor_plan || r.executor_plan->executor != Executor::kCheckpoint)
              return std::nullopt;
            std::vector<std::pair<std::string, std::vector<OpId>>> regions;
            for (const CheckpointRegion& region : r.executor_plan->regions) {
              regions.emplace_back(region.name, region.again);
            }
            return regions;
          },
          "With the executor \"checkpoint\": the recomputed ops of each region, in order; else None.")
      .def_prop_ro("duration", if_within(of(&BoundResult::result, &PlanResult::cost, &Simulation::duration)),
                   "Of `plan`, in the graph's time unit, or None.")
      .def_prop_ro("overhead", if_within([](const BoundResult& r) { return r.record->overhead.value(); }),
                   "Of `plan`: extra duration as a fraction of running every op once, or None.")
      .def_prop_ro("gap", if_within([](const BoundResult& r) { return gap(r.result); }),
                   "(duration - duration_lower_bound) / duration_lower_bound, or None.")
      .def_prop_ro(
          "best_peak",
          [](const BoundResult& r) { return r.record ? std::optional(r.result.cost.peak) : std::nullopt; },
          "Peak of `plan` or `closest` in bytes, or None.")
      .def("smallest_known_budget", smallest_known_budget_of,
           "The smallest budget in bytes that is known to work: the least peak of `plan`, `closest`, "
           "keep-all\n"
           "and a search for it (at most five seconds, within the same limits), which runs on first "
           "access.")
      .def("raise_if_infeasible", raise_if_infeasible,
           "Raises InfeasibleError if `status` is \"infeasible\".")
      .def("raise_if_no_plan", raise_if_no_plan,
           "Raises InfeasibleError if `status` is \"infeasible\", and NoPlanError if nothing was found.");
}

void bind_log(nb::module_& m) {
  const auto of = [](std::optional<LoggedPlan> LogEntry::* when, auto LoggedPlan::* which) {
    return [when, which](const LogEntry& e) {
      return e.*when ? std::optional(*(e.*when).*which) : std::nullopt;
    };
  };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  nb::class_<LogEntry> entry(
      m, "LogEntry",
      "One call that planner \"auto\" made, of a planner or for a bound. Plans are the best known, "
      "within\n"
      "the budget or not; None before the first.");
  entry.def_ro("seconds", &LogEntry::seconds, "Seconds from the start of planning to the end of the call.")
      .def_ro("work", &LogEntry::work, "Units of work of the call.")
      .def_ro("round", &LogEntry::round,
              "Number of the round, from 1; each is as long as all earlier ones together.")
      .def_ro("arm", &LogEntry::arm,
              "The planner that was called, some with their purpose (\"lns_restart\"), or \"bound\".")
      .def_prop_ro("duration_before", of(&LogEntry::before, &LoggedPlan::duration),
                   "Of the plan, in the graph's time unit.")
      .def_prop_ro("duration_after", of(&LogEntry::after, &LoggedPlan::duration))
      .def_prop_ro("peak_before", of(&LogEntry::before, &LoggedPlan::peak), "Of the plan, in bytes.")
      .def_prop_ro("peak_after", of(&LogEntry::after, &LoggedPlan::peak))
      .def_prop_ro(
          "within_budget", [](const LogEntry& e) { return e.after && e.after->within_budget; },
          "Whether the plan after the call is within the budget.")
      .def_ro("duration_lower_bound", &LogEntry::bound,
              "Lower bound on the duration of every plan within the budget, after the call.")
      .def_prop_ro(
          "gap", [](const LogEntry& e) { return gap(e); },
          "(duration_after - duration_lower_bound) / duration_lower_bound if the plan is within the "
          "budget; else None.")
      .def("__repr__", [number](const LogEntry& e) {
        return "<remat.LogEntry: round " + number(e.round) + ", " + e.arm + ", " + number(e.work) +
               " units, duration " + (e.after ? number(e.after->duration.count()) : "none") + ", bound " +
               number(e.bound.count()) + ">";
      });
  def_value(entry, &LogEntry::seconds, &LogEntry::work, &LogEntry::round, &LogEntry::arm, &LogEntry::before,
            &LogEntry::after, &LogEntry::bound);
}

void bind_facts(nb::class_<BoundResult>& result) {
  result
      .def_prop_ro("budget", of(&BoundResult::question, &Question::budget),
                   "Bytes, or None where there is none.")
      .def_ro("keep_all_peak", &BoundResult::keep_all_peak)
      .def_ro("floor", &BoundResult::floor)
      .def_prop_ro("order", of(&BoundResult::result, &PlanResult::order))
      .def_prop_ro("planner", of(&BoundResult::result, &PlanResult::planner),
                   "The planner that made the plan.")
      .def_prop_ro("peak_lower_bound", of(&BoundResult::result, &PlanResult::peak_bound, &PeakBound::peak),
                   "Lower bound on the peak of every plan in this order, in bytes.")
      .def_prop_ro("peak_bound_argument",
                   of(&BoundResult::result, &PlanResult::peak_bound, &PeakBound::argument),
                   "Name of the bound that gives `peak_lower_bound`.")
      .def_prop_ro("duration_lower_bound",
                   of(&BoundResult::result, &PlanResult::duration_bound, &DurationBound::duration),
                   "Duration that no plan within the budget can go below.")
      .def_prop_ro("duration_bound_argument",
                   of(&BoundResult::result, &PlanResult::duration_bound, &DurationBound::argument),
                   "Name of the bound that gives `duration_lower_bound`.")
      .def_prop_ro("seconds", of(&BoundResult::result, &PlanResult::seconds),
                   "Wall-clock seconds of planning.")
      .def_prop_ro(
          "counters", [](const BoundResult& r) { return dict_of(r.result.counters); },
          nb::sig("def counters(self) -> dict[str, int]"), "The planner's counters, in its own order.")
      .def_prop_ro("log", of(&BoundResult::result, &PlanResult::log),
                   "The calls of planner \"auto\", in sequence; empty for other planners.")
      .def(
          "_repr_html_",
          [](const BoundResult& r) -> std::optional<std::string> {
            if (!r.record) return std::nullopt;
            return notebook_html(*r.question.request.problem.graph, *r.record);
          },
          "For notebooks: the plan's cost, and its memory by step.")
      .def("__repr__", [](const BoundResult& r) {
        return nb::str("<remat.PlanResult: {} by {}, budget {}, best peak {}{}>")
            .format(r.result.status, r.result.planner, budget_text(r),
                    r.record ? nb::cast(r.result.cost.peak.count()) : nb::none(), costs_text(r));
      });
  const auto finish = [](BoundResult& r) {
    if (r.record) r.result.plan = recorded_plan(*r.record);
  };
  def_state<BoundResult>(result, finish, &BoundResult::question, &BoundResult::result, &BoundResult::record,
                         &BoundResult::keep_all_peak, &BoundResult::floor, &BoundResult::smallest_known,
                         &BoundResult::layout, &BoundResult::peaks, &BoundResult::executor_plan,
                         &BoundResult::full);
}

}  // namespace

Question with_effort(const Question& question, const std::string& planner, const Effort& effort) {
  Question whole = question;
  whole.request.planner = planner;
  whole.request.effort = effort;
  return whole;
}

namespace {

BoundResult planned(const Question& question, nb::handle progress, const Run& run, bool notes_request) {
  const Request& request = question.request;
  const Graph& graph = *request.problem.graph;
  BoundResult outcome;
  outcome.question = question;
  outcome.keep_all_peak = keep_all_peak(graph);
  outcome.floor = floor_bound(graph).peak;
  PlannerThread thread;
  request.effort.apply(thread.limits());
  thread.run([&] { outcome.result = run(request, thread.limits()); }, progress);
  const PlanResult& found = outcome.result;
  if (found.plan) {
    outcome.record = notes_request ? make_record(request, found)
                                   : make_record(request.problem, found, request.effort.options.seed);
  }
  return outcome;
}

}  // namespace

BoundResult plan_with(const Question& question, nb::handle progress, const Run& run) {
  return planned(question, progress, run, false);
}

BoundResult plan_by_name(const Question& question, nb::handle progress, const Run& run) {
  return planned(question, progress, run, !is_in_python(question.request.planner));
}

void bind_planning(nb::module_& m) {
  nb::class_<Question>(m, "Question", "A planning problem; see remat.plan.")
      .def(
          "__init__",
          [](Question* self, nb::handle_t<Graph> graph, nb::handle budget, nb::handle host,
             nb::dict options) { new (self) Question(asked(graph, budget, host, options)); },
          nb::arg("graph"), nb::arg("budget").none(), nb::arg("host").none(), nb::arg("options"),
          nb::sig(
              "def __init__(self, graph: Graph, budget: int | str | None, host: Host | float | str | None, "
              "options: dict[str, typing.Any]) -> None"))
      .def("__getstate__", state_of_question, nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", set_question, nb::arg("state"),
           nb::sig("def __setstate__(self, state: tuple[typing.Any, ...], /) -> None"));
  bind_log(m);
  nb::class_<BoundResult> result(m, "PlanResult",
                                 "A plan within the budget, if found, and, separately, what is proved.");
  bind_outcome(result);
  bind_facts(result);
  bind_comparing(m);
  m.def("plan", bound_plan, nb::arg("question"), nb::arg("planner"), nb::arg("effort"),
        nb::arg("progress").none(),
        nb::sig("def plan(question: Question, planner: str, effort: Effort, progress: "
                "collections.abc.Callable[[str, float, int | None, int | None, bool], object] | None"
                ") -> PlanResult"),
        "See remat.plan.");
  m.def(
      "check_request",
      [](nb::dict options, bool has_host) {
        Request request;
        set_options(request, options);
        if (has_host) request.problem.host.emplace();
        check_request(request);
      },
      nb::arg("options"), nb::arg("has_host"),
      nb::sig("def check_request(options: dict[str, typing.Any], has_host: bool) -> None"),
      "Raises UsageError for options that cannot be combined.");
  m.def(
      "request_options",
      [] { return std::vector<OptionInfo>(request_options().begin(), request_options().end()); },
      "The options of a request by name: keywords of remat.plan.");
}

}  // namespace remat::python
