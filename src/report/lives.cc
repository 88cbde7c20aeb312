#include <algorithm>
#include <set>

#include "base/numbers.h"
#include "model/step.h"
#include "remat/report.h"
#include "report/plans.h"

namespace remat {
namespace {

bool is_backward(Phase phase) { return phase == Phase::kBackward || phase == Phase::kUpdate; }

/// The first step that runs a backward op, or the end. 0 if no op has a phase: kinds are not distinguished
/// then.
StepId begin_of_backward(const Graph& graph, const Plan& plan) {
  const bool has_phases =
      std::any_of(graph.phase.begin(), graph.phase.end(), [](Phase phase) { return phase != Phase::kNone; });
  if (!has_phases) return StepId::none();
  for (StepId step : plan.steps.ids()) {
    if (is_backward(graph.phase[plan.steps[step]])) return step;
  }
  return StepId(narrow<std::int64_t>(plan.steps.size()));
}

MemoryKind kind_of_input(const Graph& graph, ValueId value) {
  return report::is_parameter(graph, value) ? MemoryKind::kParameters : MemoryKind::kInputs;
}

}  // namespace

bool report::is_parameter(const Graph& graph, ValueId value) {
  const std::string_view name = graph.value_name[value];
  return name.starts_with("parameter") || name.starts_with("buffer");
}

std::string_view to_string(MemoryKind kind) {
  constexpr std::array<std::string_view, kMemoryKinds> kNames{"parameters",      "inputs",
                                                              "kept to the end", "activations kept",
                                                              "computed again",  "gradients passing",
                                                              "short-lived",     "copied to the host or back",
                                                              "workspace"};
  return kNames[at(kind)];
}

namespace {

/// Sorts by first step, and removes live ranges without steps.
void sort_by_first_step(std::vector<KindOfLife>& lives) {
  std::erase_if(lives, [](const KindOfLife& one) { return one.life.first >= one.life.end; });
  std::stable_sort(lives.begin(), lives.end(),
                   [](const KindOfLife& a, const KindOfLife& b) { return a.life.first < b.life.first; });
}

/// If an output is written over an input, the step counts the larger of the two, so the other's live range is
/// shortened by this step. Then the bytes of all live ranges add up to the memory of every step.
void shorten_overwritten(const Graph& graph, const Plan& plan, std::vector<KindOfLife>& lives) {
  std::set<std::pair<StepId, ValueId>> smaller;
  for (const auto& [step, pair] : overwrites(graph, plan)) {
    const bool is_input = graph.bytes[pair.input] <= graph.bytes[pair.output];
    smaller.emplace(step, is_input ? pair.input : pair.output);
  }
  if (smaller.empty()) return;
  for (KindOfLife& one : lives) {
    InstanceLife& life = one.life;
    const StepId first = life.first, last = life.end.prev();
    if (smaller.contains({first, life.value})) life.first = first.next();
    if (last != first && smaller.contains({last, life.value})) life.end = last;
  }
  sort_by_first_step(lives);
}

}  // namespace

std::vector<KindOfLife> kinds_of_lives(const Graph& graph, const Plan& plan) {
  const std::vector<InstanceLife> lives = instance_lives(graph, plan);
  IndexVector<OpId, StepId> first_run(graph.num_ops());
  for (StepId step : plan.steps.ids()) {
    StepId& first = first_run[plan.steps[step]];
    if (first.is_none()) first = step;
  }
  IndexVector<ValueId, StepId> newest(graph.num_values());
  for (const InstanceLife& life : lives) newest[life.value] = life.first;
  const StepId backward = begin_of_backward(graph, plan);
  std::set<std::pair<ValueId, StepId>> leaves;
  for (const Copy& copy : plan.copies) {
    if (copy.way == Way::kOut) leaves.emplace(copy.value, copy.wait);
  }

  std::vector<KindOfLife> result;
  result.reserve(lives.size());
  for (const InstanceLife& life : lives) {
    MemoryKind kind = MemoryKind::kGradients;
    if (graph.kept[life.value] && newest[life.value] == life.first) {
      kind = MemoryKind::kOutputs;
    } else if (graph.producer[life.value] != plan.steps[life.first] ||
               leaves.contains({life.value, life.end})) {
      kind = MemoryKind::kCopied;
    } else if (first_run[plan.steps[life.first]] != life.first) {
      kind = MemoryKind::kRecomputed;
    } else if (backward.is_none()) {
      kind = MemoryKind::kActivations;
    } else if (life.first < backward) {
      kind = life.end > backward ? MemoryKind::kActivations : MemoryKind::kShortLived;
    }
    result.push_back({life, kind});
  }
  shorten_overwritten(graph, plan, result);
  return result;
}

IndexVector<StepId, KindSums> memory_by_kind(const Graph& graph, const Plan& plan) {
  const std::size_t steps = plan.steps.size();
  KindSums now{};
  for (ValueId value : graph.graph_inputs) now[at(kind_of_input(graph, value))] += graph.bytes[value];
  IndexVector<StepId, KindSums> change(steps + 1);
  for (const KindOfLife& one : kinds_of_lives(graph, plan)) {
    change[one.life.first][at(one.kind)] += graph.bytes[one.life.value];
    change[one.life.end][at(one.kind)] -= graph.bytes[one.life.value];
  }
  const IndexVector<StepId, Bytes> extra = extra_bytes(graph, plan);
  IndexVector<StepId, KindSums> memory(steps);
  for (StepId step : plan.steps.ids()) {
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) now[kind] += change[step][kind];
    now[at(MemoryKind::kWorkspace)] = extra[step];
    memory[step] = now;
  }
  return memory;
}

}  // namespace remat
