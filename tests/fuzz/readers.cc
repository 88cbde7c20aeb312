#include <stdexcept>
#include <string>

#include "fuzz/one_input.h"
#include "helpers/graphs.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/io.h"

namespace remat::fuzz {
namespace {

void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(promise);
}

void require_one_line(const InputError& error) {
  const std::string_view message = error.what();
  require(!message.empty() && message.find('\n') == std::string_view::npos, "a message is one line");
}

}  // namespace

bool check_graph_text(std::string_view text) try {
  const Graph graph = parse_graph(text, "fuzz").graph;
  const Plan plan = keep_all_plan(graph);
  require(!validate(graph, plan, OrderMode::kFixed), "the keep-all plan is valid");
  require(simulate(graph, plan).peak >= floor_bound(graph).peak, "no plan is below the floor");
  require(parse_graph(format_graph(graph), "again").graph == graph, "a graph reads as it was written");
  return true;
} catch (const InputError& error) {
  require_one_line(error);
  return false;
}

bool check_plan_text(std::string_view text) try {
  static const Graph graph = testing::training_chain(2);
  const PlanRecord plan = parse_plan(text, "fuzz");
  check_record(graph, plan);
  require(parse_plan(format_plan(plan), "again").steps == plan.steps, "a plan reads as it was written");
  return true;
} catch (const InputError& error) {
  require_one_line(error);
  return false;
}

}  // namespace remat::fuzz
