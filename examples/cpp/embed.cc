// From the IR of a compiler to a plan and back: instructions become ops, each step of the plan an instruction
// with the address of its result in one arena.
#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "remat/error.h"
#include "remat/keep_all.h"
#include "remat/layout.h"
#include "remat/planner.h"

// The IR: straight-line code in SSA form, a result for each instruction.
struct Instruction {
  std::string result, op;
  std::vector<std::string> operands;
  std::int64_t bytes = 0;
  bool has_effects = false;  // must run exactly once
};
struct Function {
  std::vector<std::pair<std::string, std::int64_t>> arguments;  // and their bytes
  std::vector<Instruction> body;
  std::vector<std::string> returns;
};

// The compiler's own cost model; any unit will do, as long as it is one unit.
std::int64_t nanoseconds(const Instruction& i) { return i.op == "matmul" ? i.bytes / 10 : i.bytes / 100; }

// Op i is instruction i: Remat keeps the order in which ops are added, and names them by their index.
remat::Graph graph_of(const Function& function) {
  remat::GraphBuilder builder("function", "ns");
  std::map<std::string, std::int64_t> values;
  for (const auto& [name, bytes] : function.arguments) {
    values[name] = builder.add_value(remat::Bytes(bytes), name);
    builder.add_input(values[name]);
  }
  for (const Instruction& i : function.body) {
    std::vector<std::int64_t> reads;
    for (const std::string& operand : i.operands) reads.push_back(values.at(operand));
    const std::int64_t made = values[i.result] = builder.add_value(remat::Bytes(i.bytes), i.result);
    builder.add_op({.name = i.result,
                    .kind = i.op,
                    .duration = remat::Duration(nanoseconds(i)),
                    .recomputable = !i.has_effects,
                    .inputs = reads,
                    .outputs = {&made, 1}});
  }
  for (const std::string& name : function.returns) builder.add_output(values.at(name));
  return builder.build();
}

// Every step is an instruction; what runs again gets a new name, and later instructions read the newest one.
void print_planned(const Function& function, const remat::Graph& graph, const remat::Plan& plan) {
  remat::PlanBuffers buffers = remat::plan_buffers(graph, plan, 64);
  remat::Limits limits;
  limits.set_work(10'000'000);
  const remat::LayoutResult layout = remat::make_layout(buffers.problem, {}, limits);
  std::map<std::string, int> runs;
  const auto newest = [&](const std::string& name) {
    return "%" + name + (runs[name] > 1 ? "." + std::to_string(runs[name]) : "");
  };
  std::cout << "arena of " << layout.arena.count() << " bytes\n";
  for (std::int64_t step = 0; step < std::ssize(plan.steps); ++step) {
    const Instruction& i = function.body[static_cast<std::size_t>(plan.steps[remat::StepId(step)].index())];
    std::string operands;
    for (const std::string& operand : i.operands) operands += " " + newest(operand);
    ++runs[i.result];
    const auto piece = std::ranges::find_if(
        buffers.pieces, [&](const remat::PlanPiece& p) { return p.value && p.life.first == step; });
    std::cout << "  " << newest(i.result) << " = " << i.op << operands << "  @"
              << layout.offsets[piece->buffer].count() << "\n";
  }
}

std::atomic<bool> stop{false};  // another thread or a signal handler may set it

int main() {
  constexpr std::int64_t kBig = 1 << 20, kSmall = 1 << 10;
  const Function function{{{"x", kBig}},
                          {{"h", "matmul", {"x"}, kBig},
                           {"a", "gelu", {"h"}, kBig},
                           {"y", "matmul", {"a"}, kBig},
                           {"loss", "sum", {"y"}, kSmall, true},
                           {"dy", "sum_grad", {"loss", "y"}, kBig},
                           {"da", "matmul", {"dy"}, kBig},
                           {"dw", "matmul", {"dy", "a"}, kSmall},
                           {"dh", "gelu_grad", {"da", "h"}, kBig},
                           {"dv", "matmul", {"dh", "x"}, kSmall}},
                          {"loss", "dw", "dv"}};
  try {
    const remat::Graph graph = graph_of(function);
    const remat::Bytes all = remat::keep_all_peak(graph);
    const remat::Problem problem{.graph = &graph, .budget = remat::Bytes(all.count() * 85 / 100)};
    remat::Limits limits;
    limits.set_work(10'000'000).set_stop(&stop).set_progress([](const remat::Progress& found) {
      if (found.within_budget) std::cerr << found.planner << ": " << found.duration->count() << " ns\n";
    });
    const remat::PlanResult result = remat::make_plan(problem, "auto", {}, limits);
    if (!remat::has_plan(result)) {
      std::cerr << to_string(result.status) << " within " << problem.budget.count() << " bytes\n";
      return 1;
    }
    std::cout << "peak " << result.cost.peak.count() << " of " << all.count() << " bytes\n";
    print_planned(function, graph, *result.plan);
  } catch (const remat::InputError& error) {  // a graph that is none, an unknown planner or option
    std::cerr << error.what() << "\n";
    return 1;
  }
}
