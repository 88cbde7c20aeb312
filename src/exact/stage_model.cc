#include "exact/stage_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/numbers.h"
#include "exact/stage_row.h"
#include "model/step.h"
#include "plan/script.h"

namespace remat {

StageModel::StageModel(const Graph& graph, const StageSpec& spec) : graph_(graph), first_(spec.first) {
  if (first_.empty()) {
    for (OpId op : graph.ops()) first_.push_back(op);
  }
  const OpId end(graph.ops().size());
  const int full_stages = narrow<int>(first_.size());
  first_.push_back(end);
  stage_of_.assign(graph.num_ops(), 0);
  for (int s = 0; s < full_stages; ++s) {
    for (OpId op : IdRange<OpId>(begin_of(s), end_of(s))) stage_of_[op] = s;
  }
  may_rerun_.assign(graph.num_ops(), false);
  bool tail = false;
  for (OpId op : graph.ops()) {
    may_rerun_[op] = graph.recomputable[op] && !graph.outputs[op].empty() &&
                     (!spec.cutoff || graph.base_duration + graph.duration[op] <= *spec.cutoff);
    if (!may_rerun_[op]) continue;
    for (ValueId v : graph.outputs[op]) tail |= graph.kept[v];
  }
  if (tail) first_.push_back(end);
  stages_ = full_stages + tail;
  choose_units(spec);
  find_uses();
  add_columns();
  for (int s = 0; s < stages_; ++s) add_availability(s);
  for (int s = 0; s < stages_; ++s) add_memory(s, spec);
}

namespace {

/// Most units of amounts: finer than a solver with tolerances of 1e-6 can distinguish, yet with exact sums.
constexpr std::int64_t kMostUnits = std::int64_t{1} << 32, kMostCostUnits = std::int64_t{1} << 40;

int bits_of(std::int64_t units) {
  return narrow<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, units))));
}
/// A power of two that brings the amount to 512 ... 1,024.
double scale_for(std::int64_t units) { return std::ldexp(1.0, 10 - bits_of(units)); }
/// The same for costs, but larger where one unit would be less than 1/64: solvers look at objectives with an
/// absolute tolerance. No cost is above 2^26, where the duals lose too many digits.
double cost_scale_for(std::int64_t dearest) {
  const int bits = bits_of(dearest);
  return std::ldexp(1.0, std::max(10 - bits, std::min(-6, 26 - bits)));
}

}  // namespace

void StageModel::choose_units(const StageSpec& spec) {
  std::int64_t bytes = 0, duration = 0, dearest = 1;
  for (ValueId v : graph_.values()) {
    if (made_by_op(v)) bytes = std::gcd(bytes, graph_.bytes[v].count());
  }
  for (OpId op : graph_.ops()) {
    bytes = std::gcd(bytes, momentary(graph_, op).count());
    if (!may_rerun_[op]) continue;
    duration = std::gcd(duration, graph_.duration[op].count());
    dearest = std::max(dearest, graph_.duration[op].count());
  }
  const std::int64_t room = std::max<std::int64_t>(-1, (spec.budget - graph_.resident).count());
  memory_unit_ = std::max<std::int64_t>(1, bytes);
  while (room / memory_unit_ > kMostUnits) memory_unit_ *= 2;
  most_bytes_ = capped(Wide{room} + memory_unit_);
  duration_unit_ = std::max<std::int64_t>(1, duration);
  while (dearest / duration_unit_ > kMostCostUnits) duration_unit_ *= 2;
  memory_scale_ = scale_for(room / memory_unit_);
  cost_scale_ = cost_scale_for(dearest / duration_unit_);
  capacity_ = room < 0 ? -memory_scale_ : memory(Bytes(room));
}

double StageModel::need(OpId op) const {
  double sum = memory(momentary(graph_, op));
  for (ValueId v : graph_.outputs[op]) sum += memory(graph_.bytes[v]);
  for (ValueId v : graph_.inputs[op]) {
    if (made_by_op(v)) sum += memory(graph_.bytes[v]);
  }
  for (const Reuse& reuse : reuses(graph_, op)) {
    if (may_end(graph_, reuse.input)) sum -= memory(reuse.bytes);
  }
  return sum;
}

double StageModel::beside(OpId op, ValueId v) const {
  // Both amounts are rounded down, so their overlap, the smaller one, is too.
  return memory(bytes_beside(graph_, op, v));
}

/// From the last op to the first: a rerun is useful while one of its outputs is.
void StageModel::find_uses() {
  last_rerun_.assign(graph_.num_ops(), -1);
  last_use_.assign(graph_.num_values(), -1);
  last_first_use_.assign(graph_.num_values(), -1);
  for (OpId op(graph_.ops().size() - 1); op; op = op.prev()) {
    for (ValueId v : graph_.outputs[op]) {
      int first_use = graph_.kept[v] ? stages_ : -1;
      int use = first_use;
      for (OpId reader : graph_.readers[v]) {
        first_use = std::max(first_use, stage_of_[reader]);
        use = std::max({use, stage_of_[reader], last_rerun_[reader]});
      }
      last_first_use_[v] = first_use;
      last_use_[v] = use;
      if (may_rerun_[op]) last_rerun_[op] = std::max(last_rerun_[op], std::min(use, stages_ - 1));
    }
  }
}

void StageModel::add_columns() {
  rerun_.assign(narrow<std::size_t>(stages_) * graph_.num_ops(), -1);
  held_.assign(narrow<std::size_t>(stages_ + 1) * graph_.num_values(), Literal());
  for (OpId op : graph_.ops()) {
    const int own = stage_of_[op];
    const bool own_too = end_of(own).index() - begin_of(own).index() > 1;
    for (int s = own + (own_too ? 0 : 1); s <= last_rerun_[op]; ++s) {
      const double cost = real(graph_.duration[op].count() / duration_unit_) * cost_scale_;
      rerun_[stage_row(s, op)] = model_.add_column(cost, 0, 1, true);
    }
  }
  for (ValueId v : graph_.values()) {
    const OpId maker = graph_.producer[v];
    if (!maker) continue;
    for (int s = stage_of_[maker] + 1; s <= last_use_[v]; ++s) {
      const bool at_end = s == stages_;
      const bool must = !may_rerun_[maker] && s <= last_first_use_[v];
      held(s, v) = must || at_end ? Literal{-1, 1} : Literal{model_.add_column(0, 0, 1, true), 0};
    }
  }
}

/// A value read or held in a stage was held into it, or its op runs in it.
void StageModel::add_availability(int stage) {
  const auto available = [&](Row& row, ValueId v) {
    row.add(held(stage, v), 1).add(rerun(stage, graph_.producer[v]), 1);
  };
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || !before(stage, v) || last_use_[v] < stage) continue;
    const Literal next = held(stage + 1, v);
    bool read = next.is_one();
    for (OpId reader : graph_.readers[v]) {
      if (reader >= begin_of(stage) && reader < end_of(stage)) {
        read = true;
      } else if (reader < begin_of(stage) && rerun_column(stage, reader) >= 0 && !read) {
        Row row(model_);
        available(row, v);
        row.add(rerun_column(stage, reader), -1).at_least(0);
      }
    }
    Row row(model_);
    available(row, v);
    if (read) {
      row.at_least(1);
    } else if (!next.is_zero()) {
      row.add(next, -1).at_least(0);
    }
  }
}

double StageModel::objective_of(Duration duration) const {
  const std::int64_t units = (duration - graph_.base_duration).count() / duration_unit_;
  auto rounded = real(units);
  if (rounded < 0x1p62 && static_cast<std::int64_t>(rounded) < units)
    rounded = std::nextafter(rounded, lp::kInfinity);
  return rounded * cost_scale_;
}

Duration StageModel::duration_of(double bound) const {
  if (!(bound > 0)) return graph_.base_duration;
  // Capped at the longest plan.
  const double units = std::min(std::ceil(bound / cost_scale_), 0x1p62);
  const Wide extra = static_cast<Wide>(units) * duration_unit_;
  return Duration(capped(graph_.base_duration.count() + extra));
}

std::vector<double> StageModel::start_from(const Plan& plan) const {
  std::vector<double> x(narrow<std::size_t>(model_.num_columns()), std::numeric_limits<double>::quiet_NaN());
  for (lp::Column c : rerun_) {
    if (c >= 0) x[at(c)] = 0;
  }
  for (const Literal& l : held_) {
    if (l.column >= 0) x[at(l.column)] = 0;
  }
  IndexVector<StepId, int> stage_at(plan.steps.size());
  IndexVector<OpId, bool> ran(graph_.num_ops(), false);
  int stage = 0;
  for (StepId step : plan.steps.ids()) {
    const OpId op = plan.steps[step];
    stage_at[step] = stage;
    if (ran[op]) {
      if (const lp::Column c = rerun_column(stage, op); c >= 0) x[at(c)] = 1;
    }
    ran[op] = true;
    while (stage + 1 < stages_ && ran[end_of(stage).prev()]) ++stage;
  }
  for (const InstanceLife& life : instance_lives(graph_, plan)) {
    for (int s = stage_at[life.first] + 1; s <= stage_at[life.end.prev()]; ++s) {
      if (const lp::Column c = held_column(s, life.value); c >= 0) x[at(c)] = 1;
    }
  }
  return x;
}

Plan StageModel::plan_of(const std::vector<double>& x, double threshold) const {
  const auto is_held = [&](int stage, ValueId v) {
    if (!may_rerun_[graph_.producer[v]])
      return stage_of_[graph_.producer[v]] < stage && stage <= last_use_[v];
    const Literal& l = held_[value_row(stage, v)];
    return l.column < 0 ? l.constant == 1 : x[at(l.column)] >= threshold;
  };
  Plan plan;
  for (int s = 0; s < stages_; ++s) {
    std::vector<ValueId> wanted;
    for (OpId op : IdRange<OpId>(begin_of(s), end_of(s))) {
      wanted.insert(wanted.end(), graph_.inputs[op].begin(), graph_.inputs[op].end());
    }
    for (ValueId v : graph_.values()) {
      if (made_by_op(v) && is_held(s + 1, v)) wanted.push_back(v);
    }
    IndexVector<OpId, bool> reruns(graph_.num_ops(), false);
    while (!wanted.empty()) {
      const ValueId v = wanted.back();
      wanted.pop_back();
      if (!made_by_op(v) || !before(s, v) || is_held(s, v) || reruns[graph_.producer[v]]) continue;
      reruns[graph_.producer[v]] = true;
      const auto inputs = graph_.inputs[graph_.producer[v]];
      wanted.insert(wanted.end(), inputs.begin(), inputs.end());
    }
    for (OpId op : IdRange<OpId>(OpId(0), begin_of(s))) {
      if (reruns[op]) plan.steps.push_back(op);
    }
    for (OpId op : IdRange<OpId>(begin_of(s), end_of(s))) plan.steps.push_back(op);
  }
  return plan;
}

Plan StageModel::plan_as_run(const std::vector<double>& x) const {
  std::vector<OpId> steps;  // from the back, so that readers come first
  IndexVector<ValueId, bool> wanted(graph_.num_values(), false);
  for (ValueId v : graph_.graph_outputs) wanted[v] = true;
  const auto run = [&](OpId op) {
    steps.push_back(op);
    for (ValueId v : graph_.outputs[op]) wanted[v] = false;
    for (ValueId v : graph_.inputs[op]) wanted[v] = true;
  };
  for (int s = stages_ - 1; s >= 0; --s) {
    for (OpId op = end_of(s).prev(); op >= begin_of(s); op = op.prev()) run(op);
    for (OpId op = begin_of(s).prev(); op; op = op.prev()) {
      const lp::Column c = rerun_column(s, op);
      if (c < 0 || x[at(c)] < 0.5) continue;
      const auto outputs = graph_.outputs[op];
      if (std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return wanted[v]; })) run(op);
    }
  }
  std::reverse(steps.begin(), steps.end());
  return {IndexVector<StepId, OpId>(std::move(steps))};
}

Plan StageModel::plan_late(const std::vector<double>& x) const {
  Script script;
  IndexVector<OpId, bool> pending(graph_.num_ops(), false);
  std::vector<OpId> asked, found;
  const auto bring = [&](OpId reader) {
    asked.assign(1, reader);
    found.clear();
    while (!asked.empty()) {
      const OpId op = asked.back();
      asked.pop_back();
      for (ValueId v : graph_.inputs[op]) {
        const OpId maker = graph_.producer[v];
        if (!maker || !pending[maker]) continue;
        pending[maker] = false;
        asked.push_back(maker);
        found.push_back(maker);
      }
    }
    std::ranges::sort(found);
    for (OpId op : found) script.push_back({op, ValueId::none()});
  };
  for (int s = 0; s < stages_; ++s) {
    for (OpId op : IdRange<OpId>(OpId(0), begin_of(s))) {
      const lp::Column c = rerun_column(s, op);
      pending[op] = c >= 0 && x[at(c)] >= 0.5;
    }
    const auto bring_all = [&] {
      for (OpId op : IdRange<OpId>(OpId(0), begin_of(s))) {
        if (pending[op]) script.push_back({op, ValueId::none()});
        pending[op] = false;
      }
    };
    for (OpId op : IdRange<OpId>(begin_of(s), end_of(s))) {
      bring(op);
      if (op.next() == end_of(s)) bring_all();
      script.push_back({op, ValueId::none()});
    }
    bring_all();
  }
  return steps_of(without_unread(graph_, script));
}

}  // namespace remat
