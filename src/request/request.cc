// Requests: checks which options go together, then calls the planner for the measure and executor.
#include "remat/request.h"

#include "executors/executor_plan.h"
#include "planning/measured.h"
#include "remat/error.h"
#include "remat/reserved.h"
#include "remat/store.h"

namespace remat {

std::string_view to_string(Measure measure) {
  switch (measure) {
    case Measure::kPeak:
      return "peak";
    case Measure::kArena:
      return "arena";
    case Measure::kReserved:
      return "reserved";
  }
  return "";
}

void Effort::apply(Limits& limits) const {
  if (work_limit) limits.set_work(*work_limit);
  if (gap > 0) limits.set_gap(gap);
  if (time_limit) limits.set_time(*time_limit);
}

namespace {

/// An option with a value other than its default.
struct Given {
  std::string_view option, value;
};

}  // namespace

void check_request(const Request& request, const Spelling& spelling) {
  const Problem& problem = request.problem;
  const auto text = [&](const Given& given) { return spelling(given.option, given.value); };
  const auto expect = [&](bool is_so, const Given& given, const Given& only) {
    if (!is_so) throw UsageError(text(given) + " goes with " + text(only) + " only");
  };
  const auto expect_time = [&](const Given& given) {
    expect(problem.objective == Objective::kTime, given, {"objective", to_string(Objective::kTime)});
  };
  const auto expect_no_host = [&](const Given& given) {
    if (problem.host) throw UsageError(text(given) + " and " + spelling("host", "") + " do not go together");
  };
  if (request.budget_on != Measure::kPeak) {
    const Given measure{"budget_on", to_string(request.budget_on)};
    expect_time(measure);
    expect_no_host(measure);
  }
  if (request.executor != Executor::kRemat) {
    const Given executor{"executor", to_string(request.executor)};
    expect_time(executor);
    if (request.executor != Executor::kPartitioner) expect_no_host(executor);
    expect(problem.order == OrderMode::kFixed, executor, {"order", to_string(OrderMode::kFixed)});
    expect(request.budget_on == Measure::kPeak, executor, {"budget_on", to_string(Measure::kPeak)});
  }
  if (request.alignment < 1 || request.alignment >= kMaxCount) {
    throw UsageError("alignment " + std::to_string(request.alignment) + " is outside [1, 2^62)");
  }
  find_planner(request.planner);
}

namespace {

constexpr double kExecutorShare = 0.5;

Answer answer_on_peak(const Request& request, Limits& limits, PlanStore* store) {
  const Problem& problem = request.problem;
  const std::string& planner = request.planner;
  const PlanOptions& options = request.effort.options;
  // The store holds no plans with copies, and with a work limit plans must not depend on earlier calls.
  const bool may_start = !problem.host && !request.effort.work_limit;
  const bool from_store = store && may_start && find_planner(planner).improves_starts;
  Answer answer;
  answer.result = from_store ? make_plan_from(*store, problem, planner, options, limits)
                             : make_plan(problem, planner, options, limits);
  answer.footprint = answer.result.cost.peak;
  return answer;
}

Answer answer_of_executor(const Request& request, Limits& limits) {
  const PlanOptions& options = request.effort.options;
  Answer answer;
  {
    Limits share(limits, kExecutorShare);
    answer.executor_plan = executors::best_plan(request.problem, request.executor, options, share);
  }
  answer.result = answer.executor_plan->result;
  answer.footprint = answer.result.cost.peak;
  answer.smallest_known = answer.executor_plan->least_peak;
  Problem full = request.problem;
  // Planners start from no plans with copies.
  if (has_plan(answer.result) && !full.host) full.starts = std::span(&*answer.result.plan, 1);
  answer.full = make_plan(full, request.planner, options, limits);
  if (full.host && better(full, answer.result, *answer.full)) {
    answer.full = answer.result;
    mark_known(*answer.full);
  }
  return answer;
}

Request request_of(const Problem& problem, std::string_view planner, const PlanOptions& options,
                   Measure budget_on) {
  Request request;
  request.problem = problem;
  request.planner = planner;
  request.budget_on = budget_on;
  request.effort.options = options;
  return request;
}

}  // namespace

Answer answer(const Request& request, Limits& limits, PlanStore* store) {
  check_request(request);
  if (request.executor != Executor::kRemat) return answer_of_executor(request, limits);
  switch (request.budget_on) {
    case Measure::kPeak:
      break;
    case Measure::kArena:
      return answer_on_arena(request, limits);
    case Measure::kReserved:
      return answer_on_reserved(request, limits);
  }
  return answer_on_peak(request, limits, store);
}

ArenaPlan make_arena_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                          std::int64_t alignment, Limits& limits) {
  Request request = request_of(problem, planner, options, Measure::kArena);
  request.alignment = alignment;
  Answer found = answer(request, limits);
  ArenaPlan plan{std::move(found.result), {}, {}, found.measured};
  if (found.packed) {
    plan.buffers = std::move(found.packed->buffers);
    plan.layout = std::move(found.packed->layout);
  }
  return plan;
}

ReservedPlan make_reserved_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                                const AllocatorConfig& allocator, Limits& limits) {
  Request request = request_of(problem, planner, options, Measure::kReserved);
  request.allocator = allocator;
  Answer found = answer(request, limits);
  return {std::move(found.result), found.peaks.value_or(AllocatorPeaks()), found.measured};
}

ExecutorPlan make_executor_plan(const Problem& problem, Executor executor, const PlanOptions& options,
                                Limits& limits) {
  Request request = request_of(problem, "auto", options, Measure::kPeak);
  request.executor = executor;
  check_request(request);
  if (executor != Executor::kRemat) return executors::best_plan(problem, executor, options, limits);
  ExecutorPlan plan;
  plan.result = make_plan(problem, "auto", options, limits);
  return plan;
}

PlanRecord make_record(const Request& request, const PlanResult& result) {
  const Effort& effort = request.effort;
  PlanRecord record = make_record(request.problem, result, effort.options.seed);
  if (request.budget_on != Measure::kPeak || request.executor != Executor::kRemat) return record;
  record.request = make_request(request.problem, request.planner, effort.options);
  record.request->time_limit = effort.time_limit;
  record.request->work_limit = effort.work_limit;
  record.request->gap_limit = effort.gap;
  return record;
}

}  // namespace remat
