#include <algorithm>

#include "base/numbers.h"
#include "plan/copies.h"
#include "remat/keep_all.h"
#include "remat/plan.h"

namespace remat {

std::string_view to_string(OrderMode mode) { return mode == OrderMode::kFixed ? "fixed" : "free"; }

Plan keep_all_plan(const Graph& graph) {
  Plan plan;
  plan.steps.reserve(graph.num_ops());
  for (OpId op : graph.ops()) plan.steps.push_back(op);
  return plan;
}

namespace {

/// The same with copies, which bring instances that no step makes.
template <class End, class Write>
void for_each_copied_life(const Graph& graph, const Plan& plan, End&& end, Write&& over) {
  const std::vector<CopiedInstance> instances = walk_copies(graph, plan).instances;
  // From the back, as without copies.
  for (std::size_t i = instances.size(); i-- > 0;) {
    const CopiedInstance& one = instances[i];
    end(one.first, one.value, one.last.next());
    if (one.is_copied || one.is_kept || !one.last_read) continue;
    for (const Over& pair : graph.over[plan.steps[one.last_read]]) {
      if (pair.input == one.value) over(one.last_read, pair);
    }
  }
}

/// Calls end(step, value, end) for every instance of the plan, where `step` makes it and [step, end) is
/// its life, and over(step, pair) for every output that takes the place of an input. One pass from the back:
/// the first read met on the way to an instance's birth is its last.
template <class End, class Write>
void for_each_life(const Graph& graph, const Plan& plan, End&& end, Write&& over) {
  if (!plan.copies.empty()) return for_each_copied_life(graph, plan, end, over);
  const StepId n(std::ssize(plan.steps));
  IndexVector<ValueId, StepId> last_read(graph.num_values());
  for (ValueId v : graph.graph_outputs) last_read[v] = n.prev();
  for (StepId step = n.prev(); step; step = step.prev()) {
    const OpId op = plan.steps[step];
    for (ValueId v : graph.outputs[op]) {
      const StepId last = last_read[v];
      end(step, v, last ? last.next() : step.next());
      last_read[v] = StepId::none();
    }
    // Not over a value that a later step reads or that is kept to the end.
    for (const Over& pair : graph.over[op]) {
      if (!last_read[pair.input]) over(step, pair);
    }
    for (ValueId v : graph.inputs[op]) {
      if (!last_read[v]) last_read[v] = step;
    }
  }
}

void add_copies(const Graph& graph, const Plan& plan, const Host* host, Simulation& result) {
  result.traffic = bytes_of_copies(graph, plan);
  if (!host) return;
  const CopyTimes times = time_copies(graph, plan, *host);
  result.duration = Duration(capped(times.duration));
  result.traffic.stalled = Duration(capped(times.stalled));
  result.traffic.busy_out = Duration(capped(times.busy_out));
  result.traffic.busy_in = Duration(capped(times.busy_in));
}

}  // namespace

Wide total_duration(const Graph& graph, const Plan& plan) {
  Wide sum = 0;
  for (OpId op : plan.steps) sum += graph.duration[op].count();
  return sum;
}

Simulation simulate(const Graph& graph, const Plan& plan, IndexVector<StepId, Bytes>& memory,
                    const Host* host) {
  // memory[s] first collects what appears at s less what was last read at s - 1.
  memory.assign(plan.steps.size() + 1, Bytes());
  for_each_life(
      graph, plan,
      [&](StepId step, ValueId v, StepId end) {
        memory[step] += graph.bytes[v];
        memory[end] -= graph.bytes[v];
      },
      [&](StepId step, const Over& pair) {
        memory[step] -= graph.overlap(pair);
        memory[step.next()] += graph.overlap(pair);
      });
  memory.raw().pop_back();
  const IndexVector<StepId, Bytes> states = saved_generator_states(graph, plan);
  Simulation result;
  Bytes live = graph.resident;
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    live += memory[step];
    memory[step] = live + graph.workspace[op];
    if (!states.empty()) memory[step] += states[step];
    if (!result.peak_step || memory[step] > result.peak) {
      result.peak = memory[step];
      result.peak_step = step;
    }
  }
  result.duration = Duration(capped(total_duration(graph, plan)));
  if (!plan.copies.empty()) add_copies(graph, plan, host, result);
  return result;
}

Simulation simulate(const Graph& graph, const Plan& plan, const Host* host) {
  IndexVector<StepId, Bytes> memory;
  return simulate(graph, plan, memory, host);
}

IndexVector<StepId, Bytes> saved_generator_states(const Graph& graph, const Plan& plan) {
  IndexVector<StepId, Bytes> states;
  if (!graph.has_generator_states()) return states;
  IndexVector<OpId, StepId> first(graph.num_ops()), last(graph.num_ops());
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    if (!first[op]) first[op] = step;
    last[op] = step;
  }
  states.assign(plan.steps.size() + 1, Bytes());
  for (OpId op : graph.ops()) {
    if (first[op] == last[op]) continue;
    states[first[op]] += graph.generator_state[op];
    states[last[op].next()] -= graph.generator_state[op];
  }
  Bytes held;
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    states[step] = held += states[step];
    if (step != first[op]) states[step] += graph.generator_state[op];
  }
  states.raw().pop_back();
  return states;
}

std::vector<InstanceLife> instance_lives(const Graph& graph, const Plan& plan) {
  std::vector<InstanceLife> lives;
  for_each_life(
      graph, plan, [&](StepId step, ValueId v, StepId end) { lives.push_back({v, step, end}); },
      [](StepId, const Over&) {});
  std::reverse(lives.begin(), lives.end());
  return lives;
}

std::vector<Overwrite> overwrites(const Graph& graph, const Plan& plan) {
  std::vector<Overwrite> found;
  for_each_life(
      graph, plan, [](StepId, ValueId, StepId) {},
      [&](StepId step, const Over& pair) { found.push_back({step, pair}); });
  std::reverse(found.begin(), found.end());
  // Copied-in instances come by their first step, not by the step that writes over them.
  std::stable_sort(found.begin(), found.end(),
                   [](const Overwrite& a, const Overwrite& b) { return a.step < b.step; });
  return found;
}

double overhead(const Graph& graph, Duration duration) {
  const auto base = graph.base_duration.count();
  return base == 0 ? 0.0 : real(duration.count() - base) / real(base);
}

std::int64_t recomputed_ops(const Graph& graph, const Plan& plan) {
  return std::ssize(plan.steps) - graph.ops().size();
}

Bytes keep_all_peak(const Graph& graph) { return simulate(graph, keep_all_plan(graph)).peak; }

}  // namespace remat
