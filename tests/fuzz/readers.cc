#include <stdexcept>
#include <string>

#include "fuzz/one_input.h"
#include "helpers/graphs.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/io.h"
#include "remat/layout_io.h"

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

bool check_layout_text(std::string_view text) try {
  static const Graph graph = testing::training_chain(2);
  static const Plan plan = keep_all_plan(graph);
  const LayoutRecord layout = parse_layout(text, "fuzz");
  check_layout_record(graph, plan, layout);
  require(format_layout(parse_layout(format_layout(layout), "again")) == format_layout(layout),
          "a layout reads as it was written");
  return true;
} catch (const InputError& error) {
  require_one_line(error);
  return false;
}

bool check_table_text(std::string_view text) try {
  const BufferTable table = parse_buffers(text, "fuzz");
  constexpr std::int64_t kWork = 2000;
  Limits limits;
  limits.set_work(kWork);
  const LayoutResult result = make_layout({table.buffers, 1, std::nullopt}, {}, limits);
  const BufferTable again = parse_buffers(format_buffers(table, result.offsets.raw()), "again");
  require(again.buffers == table.buffers && again.offsets == result.offsets.raw(),
          "a table reads as it was written");
  return true;
} catch (const InputError& error) {
  require_one_line(error);
  return false;
}

}  // namespace remat::fuzz
