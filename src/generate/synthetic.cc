#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "base/sorted.h"
#include "generate/checks.h"
#include "remat/generate.h"
#include "remat/random.h"

namespace remat {

using generate::kMaxOps;
using generate::require_between;

namespace {

std::string numbered(char letter, std::int64_t i) {
  std::string text = std::to_string(i);
  text.insert(text.begin(), letter);
  return text;
}

/// Outputs, each over another input that an op makes.
std::vector<std::array<std::int64_t, 2>> random_pairs(Random& random, std::vector<std::int64_t> inputs,
                                                      const std::vector<std::int64_t>& outputs,
                                                      const RandomDagOptions& o) {
  sort_unique(inputs);
  std::erase_if(inputs, [&](std::int64_t v) { return v < o.inputs; });
  std::vector<std::array<std::int64_t, 2>> pairs;
  for (std::int64_t v : outputs) {
    if (inputs.empty() || !random.chance(o.over_share)) continue;
    const auto place = inputs.begin() + random.below(std::ssize(inputs));
    pairs.push_back({*place, v});
    inputs.erase(place);
  }
  return pairs;
}

}  // namespace

Graph chain(const ChainOptions& o) {
  require_between<std::int64_t>("length", o.length, 1, kMaxOps / 2 - 1);
  require_between<std::int64_t>("bytes", o.bytes, 0, kMaxCount - 1);
  require_between<std::int64_t>("duration", o.duration, 0, (kMaxCount - 1) / 2);
  GraphBuilder builder("chain_" + std::to_string(o.length));
  std::vector<std::int64_t> values{builder.add_value(Bytes(o.bytes), "x")};
  builder.add_input(values[0]);
  const auto add = [&](std::string name, Phase phase, std::int64_t duration, std::vector<std::int64_t> inputs,
                       std::int64_t forward) {
    const std::int64_t outputs[] = {builder.add_value(Bytes(o.bytes))};
    OpSpec op;
    op.name = name;
    op.duration = Duration(duration);
    op.phase = phase;
    op.forward_of = forward;
    op.inputs = inputs;
    op.outputs = outputs;
    builder.add_op(op);
    return outputs[0];
  };
  for (std::int64_t i = 0; i < o.length; ++i) {
    values.push_back(add(numbered('f', i), Phase::kForward, o.duration, {values.back()}, -1));
  }
  std::int64_t last = values.back();
  if (o.training) {
    last = add("loss", Phase::kLoss, o.duration, {last}, -1);
    for (std::int64_t i = o.length - 1; i >= 0; --i) {
      last = add(numbered('b', i), Phase::kBackward, 2 * o.duration, {last, values[at(i)]}, i);
    }
  }
  builder.add_output(last);
  return builder.build();
}

Graph random_dag(const RandomDagOptions& o) {
  require_between<std::int64_t>("ops", o.ops, 1, kMaxOps);
  require_between<std::int64_t>("inputs", o.inputs, 0, kMaxOps);
  require_between("reads", o.reads, 0.0, 1e6);
  require_between<std::int64_t>("reach", o.reach, 0, kMaxOps);
  require_between<std::int64_t>("max outputs", o.max_outputs, 1, 1000);
  require_between<std::int64_t>("max bytes", o.max_bytes, 1, std::int64_t{1} << 40);
  require_between<std::int64_t>("max duration", o.max_duration, 1, std::int64_t{1} << 30);
  require_between("workspace share", o.workspace_share, 0.0, 1.0);
  require_between("never share", o.never_share, 0.0, 1.0);
  require_between("after share", o.after_share, 0.0, 1.0);
  require_between("kept share", o.kept_share, 0.0, 1.0);
  require_between("over share", o.over_share, 0.0, 1.0);
  require_between("random share", o.random_share, 0.0, 1.0);

  Random random(o.seed);
  GraphBuilder builder("random_dag_n" + std::to_string(o.ops) + "_seed" + std::to_string(o.seed));
  std::int64_t num_values = 0;
  const auto add_value = [&] {
    num_values = builder.add_value(Bytes(random.between(1, o.max_bytes))) + 1;
    return num_values - 1;
  };
  for (std::int64_t k = 0; k < o.inputs; ++k) builder.add_input(add_value());
  std::vector<std::int64_t> inputs, outputs, after;
  std::vector<std::array<std::int64_t, 2>> over;
  for (std::int64_t i = 0; i < o.ops; ++i) {
    inputs.clear();
    outputs.clear();
    after.clear();
    const std::int64_t window = o.reach > 0 ? std::min(o.reach, num_values) : num_values;
    // Uniform in [0, 2 reads], so that the mean is `reads`.
    const auto wanted = static_cast<std::int64_t>(random.unit() * (2 * o.reads + 1));
    for (std::int64_t k = std::min(wanted, window); k > 0; --k)
      inputs.push_back(num_values - 1 - random.below(window));
    for (std::int64_t k = random.between(1, o.max_outputs); k > 0; --k) outputs.push_back(add_value());
    if (i > 0 && random.chance(o.after_share)) after.push_back(random.below(i));
    const std::string name = "op" + std::to_string(i);
    OpSpec op;
    op.name = name;
    op.duration = Duration(random.between(1, o.max_duration));
    op.inputs = inputs;
    op.outputs = outputs;
    op.after = after;
    if (random.chance(o.workspace_share)) op.workspace = Bytes(random.between(1, o.max_bytes));
    op.recomputable = !random.chance(o.never_share);
    if (o.over_share > 0) {
      over = random_pairs(random, inputs, outputs, o);
      op.over = over;
    }
    if (o.random_share > 0 && random.chance(o.random_share)) {
      op.generator_state = Bytes(random.between(1, o.max_bytes));
    }
    builder.add_op(op);
    for (std::int64_t v : outputs) {
      if (random.chance(o.kept_share)) builder.add_output(v);
    }
  }
  builder.add_output(num_values - 1);
  return builder.build();
}

}  // namespace remat
