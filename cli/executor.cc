#include "executor.h"

#include <algorithm>

namespace remat::cli {

void add_executor(Report& report, const Request& request, const Answer& answer) {
  const ExecutorPlan& executor = *answer.executor_plan;
  const PlanResult& full = *answer.full;
  const bool found = has_plan(answer.result), is_full = has_plan(full);
  report["executor"] = to_string(request.executor);
  if (request.executor == Executor::kCheckpoint) {
    report["regions"] = executor.regions.size();
    report["regions_again"] = std::ranges::count_if(
        executor.regions, [](const CheckpointRegion& region) { return !region.again.empty(); });
  }
  report["saved_bytes"] = found ? Report(executor.saved_bytes.count()) : Report(nullptr);
  report["full_status"] = to_string(full.status);
  report["full_peak"] = is_full ? Report(full.cost.peak.count()) : Report(nullptr);
  report["full_duration"] = is_full ? Report(full.cost.duration.count()) : Report(nullptr);
  report["full_overhead"] =
      is_full ? Report(overhead(*request.problem.graph, full.cost.duration)) : Report(nullptr);
}

std::string executor_failure(const Request& request, const Answer& answer, const std::string& asked,
                             Report& report) {
  const std::string set =
      "no set of saved results of the executor '" + std::string(to_string(request.executor)) + "' ";
  report["smallest_known_budget"] = answer.smallest_known->count();
  std::string message = answer.result.status == Status::kInfeasible
                            ? "proved infeasible: " + set + "fits into " + asked
                            : set + "within " + asked + " found, nothing proved";
  message += "; the smallest peak found is " + exact_bytes(*answer.smallest_known);
  if (has_plan(*answer.full)) message += "; a full plan has " + exact_bytes(answer.full->cost.peak);
  return message;
}

}  // namespace remat::cli
