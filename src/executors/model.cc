#include "executors/model.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/numbers.h"
#include "model/step.h"

namespace remat::executors {
namespace {

// The scaled budget in rows of bytes, and slack for the solver's tolerances.
constexpr double kScale = 1000, kTolerance = 1e-5;

/// For each backward op, the ops that may be recomputed right before it.
std::vector<std::vector<OpId>> places(const Shape& shape) {
  const Graph& graph = *shape.graph;
  std::vector<std::vector<OpId>> found(graph.num_ops());
  if (shape.executor == Executor::kCheckpoint) {
    for (const CheckpointRegion& region : shape.regions) {
      for (OpId op : region.ops)
        if (shape.may[op]) found[at(region.trigger)].push_back(op);
    }
    return found;
  }
  Again away = shape.may;  // not yet needed by a backward op directly
  for (OpId op : IdRange<OpId>(shape.first_backward, OpId(graph.ops().size()))) {
    found[at(op)] = asked_by(graph, op, away);
    for (ValueId v : graph.inputs[op]) {
      if (graph.producer[v]) away[graph.producer[v]] = false;
    }
  }
  return found;
}

}  // namespace

/// Terms in bytes; `constant` does not depend on the choice.
struct Model::Row {
  Bytes constant;
  std::map<lp::Column, std::int64_t> terms;

  void add(lp::Column column, Bytes bytes) {
    if (column >= 0 && bytes != Bytes()) terms[column] += bytes.count();
  }
};

bool Model::fits(const Shape& shape, std::int64_t most) {
  auto count = narrow<std::int64_t>(shape.graph->num_ops());
  for (const auto& place : places(shape)) count += std::ssize(place);
  return count * narrow<std::int64_t>(shape.graph->num_values()) <= most;
}

Model::Model(const Shape& shape, Bytes budget)
    : shape_(shape), graph_(*shape.graph), budget_(budget), again_(graph_.num_ops()) {
  unit_ = std::max(1.0, real(graph_.base_duration) / 1e4);
  add_slots();
  add_presences();
  add_executor_rules();
  add_memory_rows();
}

void Model::add_slots() {
  const auto places_of = places(shape_);
  slot_.assign(graph_.num_ops(), -1);
  for (OpId op : graph_.ops()) {
    for (OpId again : places_of[at(op)]) {
      again_[again].push_back(narrow<int>(slots_.size()));
      slots_.push_back({again, true, model_.add_column(real(graph_.duration[again]) / unit_, 0, 1, true)});
    }
    slot_[op] = narrow<int>(slots_.size());
    slots_.push_back({op});
  }
  for (OpId op : graph_.ops()) {
    if (again_[op].size() < 2) continue;
    std::vector<lp::Term> terms;
    for (int slot : again_[op]) terms.push_back({slots_[at(slot)].column, 1});
    model_.add_row(-lp::kInfinity, 1, terms);
  }
}

void Model::add_presences() {
  presence_.resize(graph_.num_values());
  for (ValueId v : graph_.values()) {
    if (!graph_.is_graph_input(v) && shape_.is_forward(graph_.producer[v])) add_presence(v);
  }
}

void Model::add_presence(ValueId v) {
  Presence& presence = presence_[v];
  presence.is_kept = graph_.kept[v];
  presence.last = slot_[graph_.producer[v]];
  for (int slot : again_[graph_.producer[v]]) presence.events.push_back({slot, true});
  for (OpId reader : graph_.readers[v]) {
    for (int slot : again_[reader]) presence.events.push_back({slot, false});
    if (shape_.is_forward(reader)) {
      presence.last = std::max(presence.last, slot_[reader]);
    } else {
      presence.events.push_back({slot_[reader], false});
    }
  }
  std::ranges::sort(presence.events, {}, &Event::slot);
  // From the last event back: nothing is there after it, unless it is kept.
  const std::size_t count = presence.events.size();
  presence.columns.assign(count + 1, -1);
  if (presence.is_kept) return;
  for (std::size_t i = count; i-- > 0;) {
    const auto& [slot, makes] = presence.events[i];
    const Slot& step = slots_[at(slot)];
    const lp::Column later = presence.columns[i + 1];
    if (makes && later < 0) continue;
    const bool surely = !makes && !step.again;
    const lp::Column now = presence.columns[i] = model_.add_column(0, surely ? 1 : 0, 1, false);
    if (later >= 0 && !surely) {
      std::vector<lp::Term> terms{{now, 1}, {later, -1}};
      if (makes) terms.push_back({step.column, 1});
      model_.add_row(0, lp::kInfinity, terms);
    }
    if (!makes && step.again) {
      const std::vector<lp::Term> terms{{now, 1}, {step.column, -1}};
      model_.add_row(0, lp::kInfinity, terms);
    }
  }
}

lp::Column Model::run_of(OpId op) const {
  return again_[op].empty() ? -1 : slots_[at(again_[op].front())].column;
}

/// Rules of checkpoints; partitioners have none except that values are made before they are read.
void Model::add_executor_rules() {
  for (const auto& [maker, reader] : shape_.conflicts) {
    const lp::Column first = run_of(maker), second = run_of(reader);
    if (first < 0 || second < 0) continue;
    const std::vector<lp::Term> terms{{first, 1}, {second, 1}};
    model_.add_row(-lp::kInfinity, 1, terms);
  }
  for (const CheckpointRegion& region : shape_.regions) add_region_rules(region);
}

/// Up to the last missing result, all ops are recomputed except those whose saved results are read again; a
/// random op is recomputed if a later one is.
void Model::add_region_rules(const CheckpointRegion& region) {
  lp::Column reached = -1, draws = -1;
  for (auto op = region.ops.rbegin(); op != region.ops.rend(); ++op) {
    const lp::Column run = run_of(*op);
    if (run < 0) continue;
    if (reached >= 0 && !shape_.read_again[*op]) {
      std::vector<lp::Term> terms{{run, 1}, {reached, -1}};
      for (ValueId v : graph_.outputs[*op]) {
        for (OpId reader : graph_.readers[v]) {
          if (shape_.is_forward(reader) && run_of(reader) >= 0) terms.push_back({run_of(reader), 1});
        }
      }
      model_.add_row(0, lp::kInfinity, terms);
    }
    if (is_random(graph_, *op)) {
      const std::vector<lp::Term> terms{{run, 1}, {draws, -1}};
      if (draws >= 0) model_.add_row(0, lp::kInfinity, terms);
      draws = run;
    }
    if (!shape_.reaches[*op]) continue;
    const lp::Column before = std::exchange(reached, model_.add_column(0, 0, 1, false));
    for (lp::Column implied : {before, run}) {
      if (implied < 0) continue;
      const std::vector<lp::Term> terms{{reached, 1}, {implied, -1}};
      model_.add_row(0, lp::kInfinity, terms);
    }
  }
}

/// What a value takes at a slot.
void Model::add_value(Row& row, ValueId v, int slot) const {
  const Bytes bytes = graph_.bytes[v];
  const OpId producer = graph_.producer[v];
  if (slot < slot_[producer]) return;
  if (!shape_.is_forward(producer)) {
    int last = slot_[producer];
    for (OpId reader : graph_.readers[v]) last = std::max(last, slot_[reader]);
    if (slot <= last || graph_.kept[v]) row.constant += bytes;
    return;
  }
  const Presence& presence = presence_[v];
  if (slot <= presence.last || presence.is_kept) {
    row.constant += bytes;
    return;
  }
  const auto event = std::ranges::lower_bound(presence.events, slot, {}, &Event::slot);
  row.add(presence.columns[at(event - presence.events.begin())], bytes);
  if (event != presence.events.end() && event->slot == slot && event->makes)
    row.add(slots_[at(slot)].column, bytes);
}

/// Subtracts the overlap of outputs that are, or may be, written over inputs.
void Model::add_over(Row& row, int slot) const {
  const Slot& step = slots_[at(slot)];
  for (const auto& [v, saved] : reuses(graph_, step.op)) {
    if (graph_.kept[v]) continue;
    if (step.again) {
      row.add(step.column, Bytes() - saved);
      continue;
    }
    const auto later = [&](OpId reader) { return slot_[reader] > slot; };
    const bool from_forward = shape_.is_forward(graph_.producer[v]);
    if (std::ranges::any_of(graph_.readers[v], [&](OpId r) {
          return later(r) && shape_.is_forward(r) == shape_.is_forward(step.op);
        }))
      continue;
    row.constant -= saved;
    if (!from_forward) continue;
    const Presence& presence = presence_[v];
    const auto next = std::ranges::upper_bound(presence.events, slot, {}, &Event::slot);
    row.add(presence.columns[at(next - presence.events.begin())], saved);
  }
}

/// Holds a random op's state until it is recomputed, and the current state as well during that run.
void Model::add_states(std::vector<Row>& rows) const {
  for (OpId op : graph_.ops()) {
    const Bytes state = rerun_state(graph_, op);
    if (state == Bytes() || again_[op].empty()) continue;
    const int last = again_[op].front();
    for (int slot = slot_[op]; slot <= last; ++slot) rows[at(slot)].add(slots_[at(last)].column, state);
    rows[at(last)].add(slots_[at(last)].column, state);
  }
}

void Model::add_memory_rows() {
  std::vector<Row> rows(slots_.size());
  for (ValueId v : graph_.values()) {
    if (graph_.is_graph_input(v)) continue;
    for (int slot : indices(slots_)) add_value(rows[at(slot)], v, slot);
  }
  for (int slot : indices(slots_)) {
    Row& row = rows[at(slot)];
    const Slot& step = slots_[at(slot)];
    if (step.again) {
      row.add(step.column, momentary(graph_, step.op));
    } else {
      row.constant += momentary(graph_, step.op);
    }
    add_over(row, slot);
  }
  add_states(rows);
  // Of rows that differ only in the constant, the largest suffices.
  std::map<std::vector<std::pair<lp::Column, std::int64_t>>, Bytes> fullest;
  for (const Row& row : rows) {
    Bytes most = row.constant;
    for (const auto& [column, bytes] : row.terms) most += std::max(Bytes(), Bytes(bytes));
    if (most + graph_.resident <= budget_) continue;
    auto& kept = fullest[{row.terms.begin(), row.terms.end()}];
    kept = std::max(kept, row.constant);
  }
  const double scale = kScale / std::max(1.0, real(budget_));
  for (const auto& [entries, constant] : fullest) {
    std::vector<lp::Term> terms;
    for (const auto& [column, bytes] : entries) terms.push_back({column, real(Bytes(bytes)) * scale});
    // One that no choice meets stays a row.
    if (terms.empty()) terms.push_back({model_.add_column(0, 0, 0, false), 1});
    model_.add_row(-lp::kInfinity, real(budget_ - graph_.resident - constant) * scale + kTolerance, terms);
  }
}

Again Model::again_of(const std::vector<double>& x) const {
  Again again(graph_.num_ops(), false);
  for (const Slot& slot : slots_) {
    if (slot.again && x[at(slot.column)] > 0.5) again[slot.op] = true;
  }
  return again;
}

std::vector<double> Model::start_of(const Again& again) const {
  std::vector<double> start(at(model_.num_columns()), std::numeric_limits<double>::quiet_NaN());
  for (const Slot& slot : slots_) {
    if (slot.again) start[at(slot.column)] = 0;
  }
  const Plan plan = plan_of(shape_, again);
  std::vector<OpId> asked;
  for (StepId step(shape_.first_backward.index()); step < StepId(std::ssize(plan.steps.raw())); ++step) {
    const OpId op = plan.steps[step];
    if (shape_.is_forward(op)) {
      asked.push_back(op);
      continue;
    }
    // Of the possible places, the last one before the op that needs it.
    for (OpId one : asked) {
      const auto place = std::ranges::lower_bound(again_[one], slot_[op]);
      if (place != again_[one].begin()) start[at(slots_[at(*std::prev(place))].column)] = 1;
    }
    asked.clear();
  }
  return start;
}

void Model::forbid(const Again& again) {
  std::vector<lp::Term> terms;
  double runs = 0;
  for (const Slot& slot : slots_) {
    if (!slot.again) continue;
    terms.push_back({slot.column, again[slot.op] ? -1.0 : 1.0});
  }
  for (OpId op : graph_.ops()) runs += again[op] && !again_[op].empty() ? 1 : 0;
  model_.add_row(1 - runs, lp::kInfinity, terms);
}

}  // namespace remat::executors
