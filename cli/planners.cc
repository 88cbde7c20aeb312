// remat planners: the table of planners.
#include "commands.h"
#include "common.h"

namespace remat::cli {
namespace {

int print_planners(bool json) {
  Report rows = Report::array();
  for (const PlannerInfo& planner : planners()) {
    rows.push_back({{"name", planner.name},
                    {"description", planner.description},
                    {"guarantee", planner.guarantee},
                    {"source", planner.source}});
  }
  print(Report{{"planners", rows}}, json);
  return kOk;
}

}  // namespace

void add_planners(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("planners", "the table of planners");
  sub->add_flag("--json", *json, "print one JSON object");
  sub->callback([json, &action] { action = [json] { return print_planners(*json); }; });
}

}  // namespace remat::cli
