// remat planners: the table of planners.
#include "commands.h"
#include "common.h"
#include "people.h"

namespace remat::cli {
namespace {

int print_planners(bool json) {
  Report rows = Report::array();
  if (!json && terminal_columns() > 0) {
    for (const PlannerInfo& planner : planners()) {
      rows.push_back({{"name", planner.name},
                      {"what it does", std::string(planner.description) +
                                           ". Guarantee: " + std::string(planner.guarantee) +
                                           ". Source: " + std::string(planner.source)}});
    }
    print(Report{{"planners", rows}}, json);
    return kOk;
  }
  for (const PlannerInfo& planner : planners()) {
    rows.push_back({{"name", planner.name},
                    {"description", planner.description},
                    {"guarantee", planner.guarantee},
                    {"source", planner.source}});
  }
  print(Report{{"planners", rows}}, json);
  return kOk;
}

/// A row for each option that `--set` takes.
int print_options(bool json) {
  Report rows = Report::array();
  for (const PlannerInfo& planner : planners()) {
    for (const OptionInfo& option : planner.options) {
      rows.push_back({{"planner", planner.name},
                      {"option", option.name},
                      {"type", to_string(option.type)},
                      {"default", option.default_value},
                      {"values", values_of(option)},
                      {"unit", option.unit},
                      {"description", option.description}});
    }
  }
  print(Report{{"options", rows}}, json, {.spare = {"type", "unit"}});
  return kOk;
}

}  // namespace

void add_planners(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  auto options = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("planners", "the table of planners");
  sub->add_flag("--json", *json, "print one JSON object");
  sub->add_flag("--options", *options, "the table of their options, as --set takes them");
  sub->callback([json, options, &action] {
    action = [json, options] { return *options ? print_options(*json) : print_planners(*json); };
  });
}

}  // namespace remat::cli
