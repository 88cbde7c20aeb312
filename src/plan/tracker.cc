#include "plan/tracker.h"

#include <algorithm>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {

void Tracker::reset(const Plan& plan, Bytes budget) {
  evaluated_ = false;
  log_.clear();
  deltas_.clear();
  overlaps_.clear();
  unread_.clear();
  extras_.clear();
  last_reader_.clear();
  std::int64_t width = 0;
  for (OpId op : graph_->graph->ops()) width = std::max(width, graph_->num_bundles(op));
  free_.assign(narrow<std::size_t>(width) + 1, {});
  pending_duration_ = pending_excess_ = duration_ = 0;
  const std::size_t ops = graph_->duration.size();
  const std::size_t n = plan.steps.size() + 2;
  head_.assign(ops, OccId());
  tail_.assign(ops, OccId());
  op_.clear();
  next_run_.assign(n, OccId());
  prev_run_.assign(n, OccId());
  base_.assign(n, 0);
  extra_at_.assign(n, -1);
  committed_at_.assign(n, 1);
  overlap_.assign(n, 0);
  op_.push_back(graph_->begin_op);
  for (OpId op : plan.steps) op_.push_back(op);
  op_.push_back(graph_->end_op);
  for (OccId occ : op_.ids()) start_chain(occ);
  // The memory of a step: its own, plus instances made before it and read at it or later.
  std::vector<std::int64_t> crossing(n + 1, 0);
  for (OccId occ : op_.ids()) {
    for (BundleId b : graph_->bundles(op_[occ])) {
      crossing[narrow<std::size_t>(occ.index()) + 1] += graph_->units[b];
      const OccId reader = last_reader(occ, b);
      crossing[narrow<std::size_t>(reader.index()) + 1] -= graph_->units[b];
      overlap_[reader] += graph_->overlap(op_[reader], b);
    }
  }
  for (OccId occ : extras_) {
    // From one run to the next.
    const OpId op = op_[occ];
    const std::int64_t state = graph_->state[op];
    crossing[narrow<std::size_t>(prev_run_[occ].index()) + 1] += state;
    crossing[narrow<std::size_t>(occ.index()) + 1] -= state;
    overlap_[occ] -= state;
    if (prev_run_[occ] == head_[op]) overlap_[head_[op]] -= state;
  }
  std::vector<std::int64_t> memory(n);
  std::int64_t live = 0;
  for (OccId occ : op_.ids()) {
    const auto at = narrow<std::size_t>(occ.index());
    live += crossing[at];
    memory[at] = live + graph_->own[op_[occ]] - overlap_[occ];
  }
  blocks_.assign(memory, graph_->narrow, 0);
  set_budget(budget);
  REMAT_ASSERT_HEAVY(is_right_or_not_due(commits_), verify());
}

/// Appends `occ` to the chain of its op and reads its inputs; steps come in order.
void Tracker::start_chain(OccId occ) {
  const OpId op = op_[occ];
  duration_ += graph_->duration[op];
  base_[occ] = narrow<std::int32_t>(last_reader_.size());
  last_reader_.resize(last_reader_.size() + narrow<std::size_t>(graph_->num_bundles(op)), occ);
  for (BundleId b : graph_->inputs[op]) {
    last_reader_[instance(tail_[graph_->producer[b]], b)] = occ;
  }
  link(occ, tail_[op]);
}

void Tracker::set_budget(Bytes budget) {
  REMAT_ASSERT(log_.empty(), log_.size());
  blocks_.set_budget(std::min(graph_->budget_units(budget), blocks_.ceiling()));
  excess_ = blocks_.total_excess();
}

Plan Tracker::plan() const {
  Plan plan;
  plan.steps.reserve(narrow<std::size_t>(steps()));
  for (OccId occ = next(begin_occ()); occ != end_occ(); occ = next(occ)) plan.steps.push_back(op_[occ]);
  return plan;
}

OccId Tracker::last_reader_before(OccId occ, BundleId bundle, Key before) const {
  ticks_ += 1 + std::ssize(graph_->readers[bundle]) / 4;
  OccId best = occ;
  Key best_key = key(occ);
  for (OpId reader : graph_->readers[bundle]) {
    OccId r = tail_[reader];
    while (r) {
      const Key k = key(r);
      if (k < before) {
        if (k > best_key) {
          best = r;
          best_key = k;
        }
        break;
      }
      r = prev_run_[r];
    }
  }
  return best;
}

OccId Tracker::first_reader(OccId occ, BundleId bundle) const {
  const Key from = key(occ);
  OccId best = last_reader(occ, bundle);
  if (best == occ) return OccId::none();
  Key best_key = key(best);
  for (OpId reader : graph_->readers[bundle]) {
    for (OccId r = head_[reader]; r; r = next_run_[r]) {
      const Key k = key(r);
      if (k <= from) continue;
      if (k < best_key) {
        best = r;
        best_key = k;
      }
      break;
    }
  }
  return best;
}

bool Tracker::unread(OccId occ) const {
  const auto base = narrow<std::size_t>(base_[occ]);
  const auto count = narrow<std::size_t>(graph_->num_bundles(op_[occ]));
  for (std::size_t i = base; i < base + count; ++i) {
    if (last_reader_[i] != occ) return false;
  }
  return true;
}

bool Tracker::erasable(OccId occ) const {
  if (prev_run_[occ]) return true;
  const OccId second = next_run_[occ];
  if (!second || !unread(occ)) return false;
  const OpId op = op_[occ];
  if (order_ == OrderMode::kFixed) {
    const OccId following = head_[op.next()];
    return op.next() == graph_->begin_op || key(second) < key(following);
  }
  for (OpId b : graph_->before[op]) {
    if (key(head_[b]) < key(second)) return false;
  }
  return true;
}

bool Tracker::shiftable(OccId occ, OccId before) const {
  const OpId op = op_[occ];
  if (before == begin_occ() || op >= graph_->begin_op) return false;
  const Key from = key(occ);
  const Key to = key(before);
  if (to <= from) {
    // To an earlier place: inputs must have run; a first run must not pass ops that have to run before it.
    for (BundleId b : graph_->inputs[op]) {
      const OccId made = head_[graph_->producer[b]];
      if (key(made) >= to) return false;
    }
    const OccId head = head_[op];
    if (key(head) < to) return true;
    if (order_ == OrderMode::kFixed) return op.index() == 0 || key(head_[op.prev()]) < to;
    return std::ranges::all_of(graph_->after[op], [&](OpId a) { return key(head_[a]) < to; });
  }
  // To a later place: only a first run has dependents; the new first run is this step or the op's second run.
  if (prev_run_[occ]) return true;
  const OccId second = next_run_[occ];
  const Key first = second ? std::min(to, key(second)) : to;
  for (BundleId b : graph_->bundles(op)) {
    const OccId reader = first_reader(occ, b);
    if (reader && key(reader) < first) return false;
  }
  if (order_ == OrderMode::kFixed) return op.next() == graph_->begin_op || first <= key(head_[op.next()]);
  return std::ranges::all_of(graph_->before[op], [&](OpId b) { return first <= key(head_[b]); });
}

OccId Tracker::new_occ(OpId op) {
  const auto width = narrow<std::size_t>(graph_->num_bundles(op));
  OccId occ;
  if (!free_[width].empty()) {
    occ = free_[width].back();
    free_[width].pop_back();
    op_[occ] = op;
  } else {
    occ = op_.push_back(op);
    next_run_.push_back(OccId());
    prev_run_.push_back(OccId());
    base_.push_back(narrow<std::int32_t>(last_reader_.size()));
    extra_at_.push_back(-1);
    committed_at_.push_back(0);
    overlap_.push_back(0);
    last_reader_.resize(last_reader_.size() + width);
    blocks_.reserve_ids(op_.size());
  }
  committed_at_[occ] = 0;
  overlap_[occ] = 0;
  std::fill_n(last_reader_.begin() + base_[occ], width, occ);
  return occ;
}

void Tracker::set_extra(OccId occ, bool extra) {
  if (extra) {
    extra_at_[occ] = narrow<std::int32_t>(extras_.size());
    extras_.push_back(occ);
    return;
  }
  const auto place = extra_at_[occ];
  extras_[at(place)] = extras_.back();
  extra_at_[extras_.back()] = place;
  extras_.pop_back();
  extra_at_[occ] = -1;
}

void Tracker::link(OccId occ, OccId prev_run) {
  const OpId op = op_[occ];
  const OccId next_run = prev_run ? next_run_[prev_run] : head_[op];
  prev_run_[occ] = prev_run;
  next_run_[occ] = next_run;
  (prev_run ? next_run_[prev_run] : head_[op]) = occ;
  (next_run ? prev_run_[next_run] : tail_[op]) = occ;
  if (prev_run) {
    set_extra(occ, true);
  } else if (next_run) {
    set_extra(next_run, true);
  }
}

void Tracker::unlink(OccId occ) {
  const OpId op = op_[occ];
  const OccId prev_run = prev_run_[occ];
  const OccId next_run = next_run_[occ];
  (prev_run ? next_run_[prev_run] : head_[op]) = next_run;
  (next_run ? prev_run_[next_run] : tail_[op]) = prev_run;
  if (prev_run) {
    set_extra(occ, false);
  } else if (next_run) {
    set_extra(next_run, false);
  }
}

void Tracker::set_last(OccId occ, BundleId bundle, OccId reader) {
  const std::size_t at = instance(occ, bundle);
  log_.push_back({LogKind::kLastReader, narrow<std::int32_t>(at), last_reader_[at], 0});
  last_reader_[at] = reader;
  if (reader == occ) unread_.push_back(occ);
}

void Tracker::add_delta(OccId after, OccId upto, std::int64_t units) {
  if (units != 0 && after != upto) deltas_.push_back({after, upto, units});
}

/// Adds (sign -1) or removes the overlap of a step that writes over its input bundle. A step that makes an
/// unread instance is formally its last reader, but has no overlap.
void Tracker::add_overlap(OccId reader, BundleId bundle, int sign) {
  const std::int64_t units = graph_->overlap(op_[reader], bundle);
  if (units != 0) overlaps_.push_back({reader, sign * units});
}

/// Removes (sign -1) or adds the generator states of all runs of the op: one at every step from the first run
/// to the last, and another at every run but the first.
void Tracker::add_states(OpId op, int sign) {
  const std::int64_t units = sign * graph_->state[op];
  if (units == 0 || head_[op] == tail_[op]) return;
  add_delta(head_[op], tail_[op], units);
  for (OccId occ = head_[op]; occ; occ = next_run_[occ]) overlaps_.push_back({occ, units});
}

/// The excess of an inserted or erased step.
Wide Tracker::excess_of_step(std::int64_t memory) const {
  return memory > blocks_.ceiling() ? StepBlocks::kNever : Wide{blocks_.excess(memory)};
}

OccId Tracker::insert(OpId op, OccId before) {
  evaluated_ = false;
  ticks_ += 10;
  const OccId c = new_occ(op);
  const std::int64_t memory =
      blocks_.memory(before) + overlap_[before] - graph_->own[op_[before]] + graph_->own[op];
  blocks_.insert_before(c, before, memory);
  pending_excess_ += excess_of_step(memory);
  pending_duration_ += graph_->duration[op];
  const Key at = key(c);
  const OccId old = newest_before(op, at);
  add_states(op, -1);
  link(c, old);
  add_states(op, 1);
  log_.push_back({LogKind::kInsert, c.index(), OccId(), 0});
  for (BundleId b : graph_->bundles(op)) {
    if (!old) {
      unread_.push_back(c);
      continue;
    }
    const OccId end = last_reader(old, b);
    if (key(end) <= at) continue;
    // Readers behind c now read c; the old instance ends at its last reader before c.
    const OccId cut = last_reader_before(old, b, at);
    add_delta(cut, c, -graph_->units[b]);
    add_overlap(cut, b, -1);
    set_last(old, b, cut);
    last_reader_[instance(c, b)] = end;
  }
  for (BundleId b : graph_->inputs[op]) {
    const OccId made = newest_before(graph_->producer[b], at);
    REMAT_ASSERT(made, op, b, graph_->producer[b]);
    const OccId end = last_reader(made, b);
    if (key(end) >= at) continue;
    add_delta(end, c, graph_->units[b]);
    add_overlap(end, b, 1);
    add_overlap(c, b, -1);
    set_last(made, b, c);
  }
  return c;
}

void Tracker::erase(OccId c) {
  evaluated_ = false;
  ticks_ += 10;
  const OpId op = op_[c];
  const Key at = key(c);
  const OccId pred = prev(c);
  const OccId succ = next(c);
  const OccId old = prev_run_[c];
  for (BundleId b : graph_->bundles(op)) {
    const OccId end = last_reader(c, b);
    if (end == c) continue;
    REMAT_ASSERT(old, op, b, c);
    const OccId old_end = last_reader(old, b);
    add_delta(old_end, pred, graph_->units[b]);
    add_overlap(old_end, b, 1);
    set_last(old, b, end);
  }
  for (BundleId b : graph_->inputs[op]) {
    const OccId made = newest_before(graph_->producer[b], at);
    if (last_reader(made, b) != c) continue;
    const OccId cut = last_reader_before(made, b, at);
    add_delta(cut, pred, -graph_->units[b]);
    add_overlap(cut, b, -1);
    set_last(made, b, cut);
  }
  add_states(op, -1);
  unlink(c);
  add_states(op, 1);
  const std::int64_t memory = blocks_.erase(c);
  pending_excess_ -= excess_of_step(memory);
  pending_duration_ -= graph_->duration[op];
  log_.push_back({LogKind::kErase, c.index(), succ, memory});
  forget_endpoint(c, pred);
}

/// Moves the ends of ranges from an erased step to `instead`.
void Tracker::forget_endpoint(OccId occ, OccId instead) {
  for (std::size_t i = 0; i < deltas_.size(); ++i) {
    if (deltas_[i].after == occ) {
      log_.push_back({LogKind::kAfter, narrow<std::int32_t>(i), occ, 0});
      deltas_[i].after = instead;
    }
    if (deltas_[i].upto == occ) {
      log_.push_back({LogKind::kUpto, narrow<std::int32_t>(i), occ, 0});
      deltas_[i].upto = instead;
    }
  }
}

OccId Tracker::shift(OccId occ, OccId before) {
  if (before == occ || next(occ) == before) return occ;
  const OccId moved = insert(op_[occ], before);
  erase(occ);
  return moved;
}

std::int64_t Tracker::trim() {
  std::int64_t gone = 0;
  // Entries stay in the list: a rollback to a mark inside it must find them again.
  for (std::size_t i = 0; i < unread_.size(); ++i) {
    const OccId occ = unread_[i];
    if (!present(occ) || op_[occ] >= graph_->begin_op) continue;
    if (!prev_run_[occ] && !next_run_[occ]) continue;
    if (!unread(occ) || !erasable(occ)) continue;
    erase(occ);
    ++gone;
  }
  return gone;
}

void Tracker::collect_edges() {
  edges_.clear();
  for (const Delta& d : deltas_) {
    const Key lo = key(d.after);
    const Key hi = key(d.upto);
    if (lo == hi) continue;
    edges_.push_back({lo, d.units});
    edges_.push_back({hi, -d.units});
  }
  for (const StepDelta& d : overlaps_) {
    if (!present(d.occ)) continue;
    edges_.push_back({key(prev(d.occ)), d.units});
    edges_.push_back({key(d.occ), -d.units});
  }
  if (edges_.size() <= 32) {
    for (std::size_t i = 1; i < edges_.size(); ++i) {
      const Edge edge = edges_[i];
      std::size_t j = i;
      for (; j > 0 && edges_[j - 1].key > edge.key; --j) edges_[j] = edges_[j - 1];
      edges_[j] = edge;
    }
  } else {
    std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.key < b.key; });
  }
}

Change Tracker::change() {
  if (evaluated_) return change_;
  collect_edges();
  Change change{pending_duration_, pending_excess_};
  std::int64_t units = 0;
  for (std::size_t i = 0; i + 1 < edges_.size(); ++i) {
    units += edges_[i].units;
    if (units == 0 || edges_[i].key == edges_[i + 1].key) continue;
    change.excess += blocks_.excess_change(edges_[i].key, edges_[i + 1].key, units);
  }
  change_ = change;
  evaluated_ = true;
  ticks_ += 2 + std::ssize(edges_);
  if (!edges_.empty()) ticks_ += (edges_.back().key - edges_.front().key) / (4 * StepBlocks::kCapacity);
  return change;
}

void Tracker::commit() {
  if (log_.empty()) return;
  const Change total = change();
  std::int64_t units = 0;
  for (std::size_t i = 0; i + 1 < edges_.size(); ++i) {
    units += edges_[i].units;
    if (units == 0 || edges_[i].key == edges_[i + 1].key) continue;
    blocks_.add(edges_[i].key, edges_[i + 1].key, units);
  }
  ticks_ += 4 + 4 * std::ssize(edges_);
  for (const StepDelta& d : overlaps_) overlap_[d.occ] -= d.units;
  duration_ += total.duration;
  excess_ += total.excess;
  finish_log();
  REMAT_ASSERT_HEAVY(is_right_or_not_due(commits_), verify());
}

bool Tracker::is_right_or_not_due(const SampledCheck& sampled, std::int64_t rarely) const {
  constexpr std::int64_t kCostOfStep = 50;  // of validator, simulator and comparisons
  return !sampled.due(rarely * kCostOfStep * steps()) || verify().empty();
}

void Tracker::finish_log() {
  touched_.clear();
  for (const LogEntry& entry : log_) {
    if (entry.kind == LogKind::kInsert) {
      committed_at_[OccId(entry.at)] = 1;
    } else if (entry.kind == LogKind::kErase) {
      const OccId occ(entry.at);
      committed_at_[occ] = 1;
      free_[at(graph_->num_bundles(op_[occ]))].push_back(occ);
      if (present(entry.occ)) touched_.push_back(entry.occ);
    }
  }
  for (OccId occ : touched_) {
    const std::size_t rank = blocks_.rank_of(occ);
    blocks_.tidy(rank);
    if (const std::size_t again = blocks_.rank_of(occ); again > 0) blocks_.tidy(again - 1);
  }
  log_.clear();
  deltas_.clear();
  overlaps_.clear();
  unread_.clear();
  pending_duration_ = pending_excess_ = 0;
  evaluated_ = false;
}

void Tracker::rollback(const Mark& mark) {
  REMAT_ASSERT(mark.log <= log_.size() && mark.deltas <= deltas_.size(), mark.log, log_.size(), mark.deltas,
               deltas_.size());
  evaluated_ = false;
  ticks_ += 2 * static_cast<std::int64_t>(log_.size() - mark.log);
  while (log_.size() > mark.log) {
    const LogEntry entry = log_.back();
    log_.pop_back();
    switch (entry.kind) {
      case LogKind::kInsert: {
        const OccId occ(entry.at);
        unlink(occ);
        blocks_.erase(occ);
        free_[at(graph_->num_bundles(op_[occ]))].push_back(occ);
        break;
      }
      case LogKind::kErase: {
        const OccId occ(entry.at);
        blocks_.insert_before(occ, entry.occ, entry.units);
        link(occ, newest_before(op_[occ], key(occ)));
        break;
      }
      case LogKind::kLastReader:
        last_reader_[at(entry.at)] = entry.occ;
        break;
      case LogKind::kAfter:
        deltas_[at(entry.at)].after = entry.occ;
        break;
      case LogKind::kUpto:
        deltas_[at(entry.at)].upto = entry.occ;
        break;
    }
  }
  deltas_.resize(mark.deltas);
  overlaps_.resize(mark.overlaps);
  unread_.resize(mark.unread);
  pending_duration_ = mark.duration;
  pending_excess_ = mark.excess;
  // Most moves are rolled back: of these a sample is checked; of committed ones, all on small graphs.
  constexpr std::int64_t kRarely = 16;
  REMAT_ASSERT_HEAVY(!log_.empty() || is_right_or_not_due(rollbacks_, kRarely), verify());
}

}  // namespace remat
