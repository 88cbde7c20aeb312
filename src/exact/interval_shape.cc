#include "exact/interval_shape.h"

#include <algorithm>

#include "base/numbers.h"
#include "base/sorted.h"

namespace remat::moccasin {
namespace {

bool holds_bytes(const Graph& graph, OpId op) {
  const auto outputs = graph.outputs[op];
  return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return graph.bytes[v] > Bytes(); });
}

bool is_used(const Graph& graph, OpId op) {
  const auto outputs = graph.outputs[op];
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId v) { return graph.kept[v] || !graph.readers[v].empty(); });
}

}  // namespace

Shape make_shape(const Graph& graph, OrderMode order, Form form, int c) {
  const auto n = graph.ops().size();
  Shape shape{form,
              order,
              IndexVector<OpId, int>(graph.num_ops(), 1),
              IndexVector<OpId, bool>(graph.num_ops(), false),
              IndexVector<OpId, std::vector<std::int64_t>>(graph.num_ops()),
              IndexVector<OpId, std::int64_t>(graph.num_ops())};
  for (OpId op(n - 1); op; op = op.prev()) {
    std::int64_t last = op.index();
    for (ValueId v : graph.outputs[op]) {
      if (graph.kept[v]) last = n;
      for (OpId r : graph.readers[v]) {
        last = std::max(last, shape.rerun_useful[r] ? shape.last_use[r] : std::int64_t{r.index()});
      }
    }
    // A rerun before any other first run could replace the first run itself.
    const bool apart = order == OrderMode::kFree || last >= op.index() + 2;
    shape.last_use[op] = last;
    shape.rerun_useful[op] = graph.recomputable[op] && holds_bytes(graph, op) && is_used(graph, op) && apart;
    if (!shape.rerun_useful[op]) continue;
    const std::int64_t stages = last - op.index();
    shape.runs[op] = form == Form::kStage ? narrow<int>(std::min<std::int64_t>(c, stages)) : c;
  }
  return shape;
}

void admit(const Graph& graph, const Plan& plan, Shape& shape) {
  IndexVector<OpId, int> runs(graph.num_ops(), 0);
  for (OpId op : plan.steps) ++runs[op];
  for (OpId op : graph.ops()) {
    if (shape.rerun_useful[op]) shape.runs[op] = std::max(shape.runs[op], runs[op]);
  }
}

std::optional<Duration> least_duration_outside(const Graph& graph, const Shape& shape) {
  // Stages follow the graph's order; another order may need no reruns.
  if (shape.form == Form::kStage && shape.order == OrderMode::kFree) return graph.base_duration;
  // Useless reruns can be left out without loss, so they do not count here.
  std::optional<std::int64_t> least;
  const auto consider = [&](std::int64_t times, std::int64_t duration) {
    std::int64_t more = 0;
    if (__builtin_mul_overflow(times, duration, &more) || more > kMaxCount) more = kMaxCount;
    least = std::min(least.value_or(more), more);
  };
  std::vector<std::int64_t> durations;
  for (OpId op : graph.ops()) {
    if (!shape.rerun_useful[op]) continue;
    const bool limited = shape.form == Form::kEvents || shape.runs[op] < shape.last_use[op] - op.index();
    if (limited) consider(shape.runs[op], graph.duration[op].count());
    durations.push_back(graph.duration[op].count());
  }
  if (shape.form == Form::kStage && durations.size() > 1) {
    // Out of order, or one op twice with another between: two different ops run again in one stage.
    std::nth_element(durations.begin(), durations.begin() + 1, durations.end());
    consider(1, durations[0] + durations[1]);
  }
  if (!least) return std::nullopt;
  return graph.base_duration + Duration(*least);
}

IndexVector<OpId, std::vector<std::int64_t>> run_stages(const Graph& graph, const Plan& plan) {
  IndexVector<OpId, std::vector<std::int64_t>> stages(graph.num_ops());
  std::int64_t stage = 0;
  for (OpId op : plan.steps) {
    const bool first = stages[op].empty();
    stages[op].push_back(stage);
    stage += first;
  }
  return stages;
}

void Timeline::add(OpId op, std::int64_t stage) {
  stages_[op].push_back(stage);
  events_[op].push_back(end_++);
}

Timeline::Timeline(const Graph& graph, const Shape& shape)
    : stages_(graph.num_ops()), events_(graph.num_ops()) {
  const auto n = graph.ops().size();
  if (shape.form == Form::kEvents) {
    for (int runs : shape.runs) end_ += runs;
    return;
  }
  std::vector<OpId> rerun;  // ops that may run again in stage t, ascending
  for (std::int64_t t = 0; t <= n; ++t) {
    stage_begin_.push_back(end_);
    if (t >= 2 && shape.runs[OpId(t - 2)] > 1) rerun.push_back(OpId(t - 2));
    std::erase_if(rerun, [&](OpId op) { return shape.last_use[op] < t; });
    for (OpId op : rerun) {
      const auto& pinned = shape.pinned[op];
      if (pinned.empty() || std::binary_search(pinned.begin(), pinned.end(), t)) add(op, t);
    }
    if (t < n) add(OpId(t), t);
  }
  stage_begin_.push_back(end_);
}

std::optional<IndexVector<OpId, std::vector<std::int64_t>>> Timeline::starts(const Graph& graph,
                                                                             const Shape& shape,
                                                                             const Plan& plan) const {
  IndexVector<OpId, std::vector<std::int64_t>> starts(graph.num_ops());
  std::int64_t stage = 0, last = -1;
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    std::int64_t event = step.index();
    if (shape.form == Form::kStage) {
      const auto place = std::lower_bound(stages_[op].begin(), stages_[op].end(), stage);
      if (place == stages_[op].end() || *place != stage) return std::nullopt;
      event = events_[op][at(place - stages_[op].begin())];
      stage += starts[op].empty();
    }
    if (event <= last || event >= end_ || std::ssize(starts[op]) == shape.runs[op]) return std::nullopt;
    last = event;
    starts[op].push_back(event);
  }
  return starts;
}

Plan shaped(const Graph& graph, const Shape& shape, const Plan& plan) {
  Plan result;
  IndexVector<OpId, bool> has_run(graph.num_ops(), false);
  std::vector<OpId> rerun;  // of the current stage
  std::int64_t stage = 0;
  const auto close_stage = [&] {
    if (shape.form == Form::kStage) {
      sort_unique(rerun);
    }
    for (OpId op : rerun) result.steps.push_back(op);
    rerun.clear();
  };
  for (OpId op : plan.steps) {
    if (!has_run[op]) {
      close_stage();
      result.steps.push_back(op);
      has_run[op] = true;
      ++stage;
    } else if (shape.rerun_useful[op] &&
               (shape.form == Form::kEvents || (stage >= op.index() + 2 && stage <= shape.last_use[op]))) {
      rerun.push_back(op);
    }
  }
  close_stage();
  return result;
}

}  // namespace remat::moccasin
