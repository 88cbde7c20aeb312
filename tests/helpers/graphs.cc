#include "helpers/graphs.h"

#include <algorithm>
#include <iterator>

#include "helpers/reproduce.h"

namespace remat::testing {

Graph make_graph(const std::vector<std::int64_t>& input_bytes, const std::vector<TestOp>& ops,
                 const std::vector<std::int64_t>& outputs) {
  GraphBuilder builder("test");
  for (std::int64_t bytes : input_bytes) builder.add_input(builder.add_value(Bytes(bytes)));
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::vector<std::int64_t> made;
    for (std::int64_t bytes : ops[i].output_bytes) made.push_back(builder.add_value(Bytes(bytes)));
    const std::string name = "op" + std::to_string(i);
    OpSpec spec;
    spec.name = name;
    spec.duration = Duration(ops[i].duration);
    spec.workspace = Bytes(ops[i].workspace);
    spec.recomputable = ops[i].recomputable;
    spec.inputs = ops[i].inputs;
    spec.outputs = made;
    spec.after = ops[i].after;
    spec.over = ops[i].over;
    spec.generator_state = Bytes(ops[i].generator_state);
    builder.add_op(spec);
  }
  for (std::int64_t v : outputs) builder.add_output(v);
  return builder.build();
}

Graph training_chain(int layers, std::int64_t bytes, std::int64_t duration) {
  std::vector<TestOp> ops;
  for (std::int64_t i = 0; i < layers; ++i) {
    ops.push_back({.inputs = i == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{i - 1},
                   .output_bytes = {bytes},
                   .duration = duration});
  }
  for (std::int64_t i = layers - 1; i >= 0; --i) {
    const auto incoming = static_cast<std::int64_t>(ops.size()) - 1;
    std::vector<std::int64_t> inputs{incoming};
    if (i > 0) inputs.push_back(i - 1);
    ops.push_back({.inputs = inputs, .output_bytes = {bytes}, .duration = duration});
  }
  return make_graph({}, ops, {});
}

namespace {

/// Outputs that may be written over inputs; half of them get the size of the input.
void write_over(std::vector<TestOp>& ops, std::int64_t first, Random random) {
  std::vector<std::int64_t*> bytes;
  for (TestOp& op : ops) {
    std::vector<std::int64_t> inputs;
    std::copy_if(op.inputs.begin(), op.inputs.end(), std::back_inserter(inputs),
                 [&](std::int64_t v) { return v >= first; });
    for (std::int64_t& size : op.output_bytes) {
      bytes.push_back(&size);
      if (inputs.empty() || random.chance(0.25)) continue;
      const auto at = inputs.begin() + random.below(std::ssize(inputs));
      op.over.push_back({*at, first + std::ssize(bytes) - 1});
      if (random.chance(0.5)) size = *bytes[static_cast<std::size_t>(*at - first)];
      inputs.erase(at);
    }
  }
}

}  // namespace

Graph training_step(const std::string& model, const ModelSettings& settings) {
  TrainingOptions options;
  options.model = model;
  options.settings = settings;
  options.device = parse_device("a100");
  return training_graph(options);
}

Graph random_graph(Random& random, const RandomShape& shape) {
  const auto num_ops = static_cast<int>(random.between(shape.min_ops, shape.max_ops));
  std::vector<std::int64_t> input_bytes;
  if (shape.graph_inputs) {
    for (std::int64_t k = random.below(3); k > 0; --k) input_bytes.push_back(random.below(4));
  }
  const auto first = static_cast<std::int64_t>(input_bytes.size());
  std::int64_t num_values = first;
  std::vector<TestOp> ops;
  for (int i = 0; i < num_ops; ++i) {
    TestOp op;
    const std::int64_t reads = std::min<std::int64_t>(num_values, random.below(4));
    for (std::int64_t k = 0; k < reads; ++k) {
      // Near values mostly, so that chains appear, and far ones often enough to be worth dropping.
      const std::int64_t back =
          random.chance(0.5) ? random.below(std::min<std::int64_t>(num_values, 3)) : random.below(num_values);
      op.inputs.push_back(num_values - 1 - back);
    }
    std::sort(op.inputs.begin(), op.inputs.end());
    op.inputs.erase(std::unique(op.inputs.begin(), op.inputs.end()), op.inputs.end());
    std::int64_t outputs = 1;
    if (shape.multi_output) outputs = random.chance(0.25) ? 2 : random.chance(0.08) ? 0 : 1;
    outputs = std::min<std::int64_t>(outputs, first + shape.max_values - num_values);
    for (; outputs > 0; --outputs) {
      op.output_bytes.push_back(random.chance(0.1) ? 0 : random.between(1, 9));
      ++num_values;
    }
    op.duration = random.between(0, 5);
    if (shape.workspaces && random.chance(0.3)) op.workspace = random.between(1, 6);
    if (shape.never_recompute && random.chance(0.15)) op.recomputable = false;
    if (shape.after && i > 0 && random.chance(0.1)) op.after.push_back(random.below(i));
    ops.push_back(std::move(op));
  }
  std::vector<std::int64_t> outputs;
  if (shape.kept_outputs) {
    for (std::int64_t v = first; v < num_values; ++v) {
      if (random.chance(v + 1 == num_values ? 0.6 : 0.12)) outputs.push_back(v);
    }
  }
  // A separate random sequence, so that the other graphs and the rest of this one do not change.
  Random own(Random(random).next());
  if (own.chance(shape.over)) write_over(ops, first, own);
  if (own.chance(shape.states)) {
    for (TestOp& op : ops) op.generator_state = own.chance(0.4) ? own.between(1, 4) : 0;
  }
  return recorded(make_graph(input_bytes, ops, outputs));
}

Plan plan_of(std::initializer_list<int> ops) {
  Plan plan;
  for (int op : ops) plan.steps.push_back(OpId(op));
  return plan;
}

Plan random_plan(const Graph& graph, Random& random, int extra_steps) {
  std::vector<OpId> steps;
  const auto n = static_cast<std::int64_t>(graph.num_ops());
  std::vector<std::int64_t> extra_before(static_cast<std::size_t>(n) + 1, 0);
  for (int k = 0; k < extra_steps; ++k) ++extra_before[static_cast<std::size_t>(random.below(n + 1))];
  for (std::int64_t i = 0; i <= n; ++i) {
    for (std::int64_t k = 0; k < extra_before[static_cast<std::size_t>(i)] && i > 0; ++k) {
      // Every earlier op has run, so each one that allows it may run again.
      const OpId op(random.below(i));
      if (graph.recomputable[op]) steps.push_back(op);
    }
    if (i < n) steps.push_back(OpId(i));
  }
  return {IndexVector<StepId, OpId>(std::move(steps))};
}

std::vector<std::int64_t> memory_of(const Graph& graph, const Plan& plan) {
  IndexVector<StepId, Bytes> memory;
  simulate(graph, plan, memory);
  std::vector<std::int64_t> counts;
  for (Bytes bytes : memory) counts.push_back(bytes.count());
  return counts;
}

}  // namespace remat::testing
