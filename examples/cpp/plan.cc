// Builds the training step of a chain of layers, plans it at 60 % of its memory and prints the plan.
#include <iostream>
#include <string>
#include <vector>

#include "remat/remat.h"

// f0 .. fn make the activations; b_i reads the activation below f_i and the gradient that came down to it.
remat::Graph training_step(std::int64_t layers) {
  const remat::Bytes size(1 << 20);
  remat::GraphBuilder builder("chain", "us");
  std::vector<std::int64_t> activations{builder.add_value(size, "x")};
  builder.add_input(activations[0]);
  const auto add = [&](const std::string& name, std::int64_t us, const std::vector<std::int64_t>& reads) {
    const std::int64_t made = builder.add_value(size);
    builder.add_op({.name = name, .duration = remat::Duration(us), .inputs = reads, .outputs = {&made, 1}});
    return made;
  };
  for (std::int64_t i = 0; i < layers; ++i) {
    activations.push_back(add("f" + std::to_string(i), 10, {activations.back()}));
  }
  std::int64_t gradient = activations.back();
  for (std::int64_t i = layers; i-- > 0;) {
    gradient = add("b" + std::to_string(i), 20, {activations[i], gradient});
  }
  builder.add_output(gradient);
  return builder.build();
}

int main() {
  const remat::Graph graph = training_step(8);
  const remat::Bytes all = remat::keep_all_peak(graph);
  remat::Limits limits;
  limits.set_time(1);
  const remat::Problem problem{.graph = &graph, .budget = remat::parse_budget("60%", all)};
  const remat::PlanResult result = remat::make_plan(problem, "auto", {}, limits);
  if (!remat::has_plan(result)) {
    std::cerr << "no plan within " << problem.budget.count() << " bytes\n";
    return 1;
  }
  std::cout << to_string(result.status) << ": " << result.cost.peak.count() << " of " << all.count()
            << " bytes, overhead " << remat::overhead(graph, result.cost.duration) << "\n";
  for (remat::OpId op : result.plan->steps) std::cout << graph.op_name[op] << " ";
  std::cout << "\n";
}
