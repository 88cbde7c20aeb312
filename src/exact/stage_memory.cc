// The memory rows of the stage model.
#include <algorithm>

#include "exact/stage_row.h"
#include "model/step.h"

namespace remat {
namespace {

bool contains(std::span<const ValueId> row, ValueId v) {
  return std::binary_search(row.begin(), row.end(), v);
}

}  // namespace

void StageModel::add_memory(int stage, const StageSpec& spec) {
  double slack = 0;
  if (!is_tail(stage)) slack = add_last_run(stage);
  if (spec.rows == StageRows::kGraphOrder) {
    add_graph_order(stage);
    return;
  }
  find_through(stage);
  if (spec.first_runs && end_of(stage).index() - begin_of(stage).index() > 1) add_first_runs(stage);
  add_any_order(stage, slack);
}

/// The last step of a stage is the first run of its last op, at which the values held into the next stage are
/// alive. Returns the part of this step's memory that is never held through the whole stage.
double StageModel::add_last_run(int stage) {
  const OpId op = end_of(stage).prev();
  Row row(model_);
  row.constant(need(op));
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || graph_.producer[v] >= op) continue;
    const double bytes = beside(op, v);
    if (bytes == 0 && contains(graph_.inputs[op], v)) continue;
    row.add(held(stage + 1, v), bytes);
  }
  row.at_most(capacity_);
  double own = need(op);
  for (ValueId v : graph_.inputs[op]) {
    if (made_by_op(v)) own -= memory(graph_.bytes[v]);
  }
  return own;
}

/// through(v) = max(0, held out of the stage - run again in it): a value that is held out of a stage and not
/// made in it was in memory all through it, or from its first making on. Constants where structure decides.
void StageModel::find_through(int stage) {
  through_.assign(graph_.num_values(), Literal());
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || graph_.producer[v] >= end_of(stage)) continue;
    const Literal next = held(stage + 1, v);
    const lp::Column again = rerun_column(stage, graph_.producer[v]);
    through_[v] = next;
    if (again < 0 || next.is_zero()) continue;
    through_[v] = {fraction(), 0};
    Row(model_).add(through_[v], 1).add(next, -1).add(again, 1).at_least(0);
  }
}

/// Reruns in any order: at the step of a rerun, what is held through the stage is there beside its own
/// inputs, outputs and workspace. `slack` is memory that the last step of the stage needs beside what is held
/// through, so that the row may be lifted by it: it is as strong for a rerun, and stronger between.
void StageModel::add_any_order(int stage, double slack) {
  std::vector<OpId> reruns;
  for (OpId op : IdRange<OpId>(OpId(0), end_of(stage))) {
    if (rerun_column(stage, op) >= 0 && need(op) > slack) reruns.push_back(op);
  }
  if (reruns.empty()) return;
  const OpId last = is_tail(stage) ? OpId::none() : end_of(stage).prev();
  const auto add_held = [&](Row& row, ValueId v, double bytes) {
    if (last && contains(graph_.inputs[last], v)) {
      row.constant(bytes).add(rerun_column(stage, graph_.producer[v]), -bytes);
    } else {
      row.add(through_[v], bytes);
    }
  };
  double most = 0;
  const lp::Column all = fraction(0, capacity_);
  Row sum(model_);
  sum.add(all, -1);
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || !before(stage, v)) continue;
    if (!(last && contains(graph_.inputs[last], v)) && through_[v].is_zero()) continue;
    add_held(sum, v, memory(graph_.bytes[v]));
    most += memory(graph_.bytes[v]);
  }
  sum.at_most(0);
  for (OpId op : reruns) {
    if (most + need(op) <= capacity_) continue;
    Row row(model_);
    row.add(all, 1).add(rerun_column(stage, op), need(op) - slack);
    for (ValueId v : graph_.inputs[op]) {
      if (made_by_op(v) && before(stage, v)) add_held(row, v, beside(op, v) - memory(graph_.bytes[v]));
    }
    for (ValueId v : graph_.outputs[op]) {
      if (before(stage, v)) add_held(row, v, -memory(graph_.bytes[v]));
    }
    row.at_most(capacity_ - slack);
  }
}

/// First runs inside a stage of several ops, in the graph's order: a value that a later first run of the
/// stage reads and that does not run again in the stage is alive until then.
void StageModel::add_first_runs(int stage) {
  const OpId lo = begin_of(stage), last = end_of(stage).prev();
  const auto last_reader = [&](ValueId v) {
    OpId latest;
    for (OpId reader : graph_.readers[v]) {
      if (reader >= lo && reader <= last) latest = reader;
    }
    return latest;
  };
  const auto add_bytes = [&](Row& row, ValueId v, OpId at, double bytes) {
    if (last_reader(v) >= at) {
      row.constant(bytes).add(rerun_column(stage, graph_.producer[v]), -bytes);
    } else {
      row.add(through_[v], bytes);
    }
  };
  const auto add_alive = [&](Row& row, ValueId v, OpId at, double sign) {
    add_bytes(row, v, at, sign * memory(graph_.bytes[v]));
  };
  lp::Column now = fraction(0, capacity_);
  Row begin(model_);
  begin.add(now, -1);
  for (ValueId v : graph_.values()) {
    if (made_by_op(v) && before(stage, v)) add_alive(begin, v, lo, 1);
  }
  begin.at_most(0);
  for (OpId op = lo; op < last; op = op.next()) {
    Row row(model_);
    row.add(now, 1).constant(need(op));
    for (ValueId v : graph_.inputs[op]) {
      if (made_by_op(v)) add_alive(row, v, op, -1);
    }
    for (const Reuse& reuse : reuses(graph_, op)) {
      const double saved = beside(op, reuse.input);
      if (saved > 0) add_bytes(row, reuse.input, op.next(), saved);
    }
    row.at_most(capacity_);
    const lp::Column then = fraction(0, capacity_);
    Row change(model_);
    change.add(now, 1).add(then, -1);
    for (ValueId v : graph_.inputs[op]) {
      if (!made_by_op(v) || last_reader(v) != op) continue;
      add_alive(change, v, op, -1);
      add_alive(change, v, op.next(), 1);
    }
    for (ValueId v : graph_.outputs[op]) add_alive(change, v, op.next(), 1);
    change.at_most(0);
    now = then;
  }
}

/// At least `now` and `later`: what is needed from here on.
StageModel::Literal StageModel::chained(Literal later, Literal now) {
  if (later.is_one() || now.is_zero()) return later;
  if (now.is_one() || later.is_zero()) return now;
  const Literal result{fraction(), 0};
  Row(model_).add(result, 1).add(later, -1).at_least(0);
  Row(model_).add(result, 1).add(now, -1).at_least(0);
  return result;
}

/// Checkmate's running memory: reruns in the graph's order, each value alive from its making (or the
/// beginning of the stage) to the last step that reads it, exactly.
///   needed[v] = {from the making of v, after its first reader, ..., after its last}, a falling chain
void StageModel::add_graph_order(int stage) {
  const OpId last = is_tail(stage) ? OpId::none() : begin_of(stage);
  std::vector<OpId> steps;
  for (OpId op : IdRange<OpId>(OpId(0), begin_of(stage))) {
    if (rerun_column(stage, op) >= 0) steps.push_back(op);
  }
  if (steps.empty()) return;
  const auto runs = [&](OpId op) { return op == last ? Literal{-1, 1} : rerun(stage, op); };
  IndexVector<ValueId, std::vector<Literal>> needed(graph_.num_values());
  IndexVector<ValueId, Literal> current(graph_.num_values());
  double most = 0;
  const lp::Column begin = fraction(0, capacity_);
  Row sum(model_);
  sum.add(begin, -1);
  for (ValueId v : graph_.values()) {
    if (!made_by_op(v) || !before(stage, v) || last_use_[v] < stage) continue;
    std::vector<Literal>& chain = needed[v];
    chain.push_back(held(stage + 1, v));
    const auto readers = graph_.readers[v];
    for (auto at = readers.rbegin(); at != readers.rend(); ++at) {
      if (*at <= (last ? last : begin_of(stage).prev()) && !runs(*at).is_zero())
        chain.push_back(chained(chain.back(), runs(*at)));
    }
    const lp::Column again = rerun_column(stage, graph_.producer[v]);
    current[v] = chain.back();
    if (again >= 0 && !current[v].is_zero()) {
      // Before its rerun a value is dead: no op that reads it comes earlier in the order.
      current[v] = {fraction(), 0};
      Row(model_).add(current[v], 1).add(chain.back(), -1).add(again, 1).at_least(0);
    }
    if (!current[v].is_zero()) most += memory(graph_.bytes[v]);
    sum.add(current[v], memory(graph_.bytes[v]));
  }
  sum.at_most(0);
  lp::Column now = begin;
  for (OpId op : steps) {
    Row row(model_);
    row.add(now, 1).add(rerun_column(stage, op), need(op));
    const lp::Column then = fraction(0, capacity_);
    Row change(model_);
    change.add(now, 1).add(then, -1);
    for (ValueId v : graph_.inputs[op]) {
      if (!made_by_op(v)) continue;
      const double bytes = memory(graph_.bytes[v]);
      row.add(current[v], -bytes);
      change.add(current[v], -bytes);
      needed[v].pop_back();
      current[v] = needed[v].back();
      change.add(current[v], bytes);
      // Needed later, it is not written over.
      if (const double overlap = beside(op, v); overlap > 0) row.add(current[v], overlap);
    }
    for (ValueId v : graph_.outputs[op]) {
      if (needed[v].empty()) continue;
      const double bytes = memory(graph_.bytes[v]);
      row.add(current[v], -bytes);
      change.add(current[v], -bytes);
      current[v] = needed[v].back();
      change.add(current[v], bytes);
    }
    row.at_most(capacity_);
    change.at_most(0);
    now = then;
  }
  (void)most;
}

}  // namespace remat
