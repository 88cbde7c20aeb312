#include "door.h"

#include <algorithm>

namespace remat::cli {

void add_door(Report& report, const Request& request, const Answer& answer) {
  const DoorPlan& door = *answer.door;
  const PlanResult& full = *answer.full;
  const bool found = has_plan(answer.result), is_full = has_plan(full);
  report["door"] = to_string(request.door);
  if (request.door == Door::kCheckpoint) {
    report["regions"] = door.regions.size();
    report["regions_again"] =
        std::ranges::count_if(door.regions, [](const DoorRegion& region) { return !region.again.empty(); });
  }
  report["saved_bytes"] = found ? Report(door.saved_bytes.count()) : Report(nullptr);
  report["full_status"] = to_string(full.status);
  report["full_peak"] = is_full ? Report(full.cost.peak.count()) : Report(nullptr);
  report["full_duration"] = is_full ? Report(full.cost.duration.count()) : Report(nullptr);
  report["full_overhead"] =
      is_full ? Report(overhead(*request.problem.graph, full.cost.duration)) : Report(nullptr);
}

std::string door_failure(const Request& request, const Answer& answer, const std::string& asked,
                         Report& report) {
  const std::string set =
      "no set of saved results of the door '" + std::string(to_string(request.door)) + "' ";
  report["smallest_known_budget"] = answer.smallest_known->count();
  std::string message = answer.result.status == Status::kInfeasible
                            ? "proved infeasible: " + set + "fits into " + asked
                            : set + "within " + asked + " found, nothing proved";
  message += "; the smallest peak found is " + exact_bytes(*answer.smallest_known);
  if (has_plan(*answer.full)) message += "; a full plan has " + exact_bytes(answer.full->cost.peak);
  return message;
}

}  // namespace remat::cli
