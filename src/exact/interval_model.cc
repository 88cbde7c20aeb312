#include "exact/interval_model.h"

#include <algorithm>
#include <numeric>

#include "base/numbers.h"
#include "base/sorted.h"
#include "model/step.h"
#include "remat/check.h"

namespace remat::moccasin {

using cpsat::Affine;
using cpsat::Literal;
using cpsat::Var;

Formulation::Formulation(const Graph& graph, const Shape& shape, Goal goal, Bytes capacity, Bytes most,
                         const Window* window, Limits* limits)
    : graph_(graph), shape_(shape), time_(graph, shape), goal_(goal), runs_(graph.num_ops()) {
  settled_.assign(narrow<std::size_t>(time_.end()) + 1, 0);
  movable_ = settled_;
  boundary_.assign(narrow<std::size_t>(time_.end()) + 1, false);
  choose_units();
  const auto add = [&](void (Formulation::*part)(OpId)) {
    for (OpId op : graph.ops()) {
      if (limits && limits->reached()) return false;
      (this->*part)(op);
    }
    return true;
  };
  is_complete_ = add(&Formulation::add_runs) && add(&Formulation::add_memory);
  if (is_complete_ && shape.form == Form::kEvents) add_disjoint_starts();
  is_complete_ = is_complete_ && add(&Formulation::add_reads) && add(&Formulation::add_kept);
  if (!is_complete_) return;
  // An unread rerun only costs time.
  for (OpId op : graph.ops()) {
    for (Run& run : runs_[op]) {
      if (!run.active) continue;
      run.reads.push_back(!*run.active);
      model_.at_least_one(run.reads);
    }
  }
  goal == Goal::kPeak ? minimize_peak(capacity, most, window) : minimize_duration(capacity);
}

/// CP-SAT adds up demand times length over all intervals, and the objective, in 64 bits.
void Formulation::choose_units() {
  constexpr std::int64_t kMostEnergy = std::int64_t{1} << 60, kMostObjective = std::int64_t{1} << 52;
  const auto scale = [](std::int64_t total, std::int64_t gcd, std::int64_t most, bool& exact) {
    std::int64_t unit = std::max<std::int64_t>(1, gcd);
    while (total / unit > most) unit *= 2, exact = false;
    return unit;
  };
  std::int64_t gcd = 0, total = 0;
  const auto count = [&](std::int64_t bytes, int runs) {
    gcd = std::gcd(gcd, bytes);
    if (__builtin_add_overflow(total, bytes, &total) || total > kMaxCount / runs) total = kMaxCount;
  };
  for (OpId op : graph_.ops()) {
    count(momentary(graph_, op).count(), shape_.runs[op]);
    for (ValueId v : graph_.outputs[op]) count(graph_.bytes[v].count(), shape_.runs[op]);
  }
  // The model does not write outputs over inputs: its plans fit, but it does not hold every plan that fits.
  if (has_reuses(graph_)) exact_bytes_ = false;
  const int most_runs = *std::max_element(shape_.runs.begin(), shape_.runs.end());
  byte_unit_ =
      scale(total, gcd, kMostEnergy / most_runs / std::max<std::int64_t>(1, time_.end()), exact_bytes_);

  std::int64_t duration_gcd = 0, most = 0;
  for (OpId op : graph_.ops()) {
    if (shape_.runs[op] == 1) continue;
    duration_gcd = std::gcd(duration_gcd, graph_.duration[op].count());
    most = std::max(most, graph_.duration[op].count());
  }
  const auto reruns = std::accumulate(shape_.runs.begin(), shape_.runs.end(), std::int64_t{0});
  duration_unit_ =
      scale(most, duration_gcd, kMostObjective / std::max<std::int64_t>(1, reruns), exact_durations_);
}

/// Sizes are rounded up and budgets down, so that what fits in units fits in bytes.
std::int64_t Formulation::units(Bytes bytes) const { return (bytes.count() + byte_unit_ - 1) / byte_unit_; }
std::int64_t Formulation::room(Bytes bytes) const { return (bytes - graph_.resident).count() / byte_unit_; }

Affine Formulation::add_event(std::vector<std::int64_t> domain) {
  const Var var = model_.add_var(domain);
  for (std::int64_t event : domain) boundary_[at(event)] = true;
  domains_[var.index] = std::move(domain);
  return var;
}

void Formulation::add_runs(OpId op) {
  const bool stages = shape_.form == Form::kStage, pinned = !shape_.pinned[op].empty();
  const auto& events = time_.events(op);
  auto& runs = runs_[op];
  for (int k = 0; k < shape_.runs[op]; ++k) {
    Run run;
    if (!stages) {
      run.start = model_.add_var(0, time_.end() - 1);
    } else if (k == 0 || pinned) {
      run.start = events[at(k)];
    } else {
      run.start = add_event({events.begin() + 1, events.end()});
    }
    if (k > 0 && !pinned) run.active = model_.add_bool();
    for (ValueId v : graph_.outputs[op]) run.ends.push_back(add_end(op, v, run, k));
    if (k > 0) {
      // Runs of one op follow each other without overlap, the active ones first.
      const Run& previous = runs.back();
      model_.at_most(previous.start + 1, run.start, when(run));
      for (const Affine& end : previous.ends) model_.at_most(end, run.start, when(run));
      if (previous.active && run.active) model_.implies(*run.active, *previous.active);
    }
    runs.push_back(std::move(run));
  }
}

Affine Formulation::add_end(OpId op, ValueId v, const Run& run, int k) {
  const auto readers = graph_.readers[v];
  if (readers.empty() && !graph_.kept[v]) return run.start + 1;
  const bool once = shape_.runs[op] == 1;
  if (once && (graph_.kept[v] || graph_.bytes[v] == Bytes())) return time_.end();
  if (shape_.form == Form::kEvents) return model_.add_var(1, time_.end());
  const auto& own = time_.events(op);
  const auto at = narrow<std::size_t>(k);
  std::int64_t earliest = own[k == 0 ? 0 : 1] + 1, latest = time_.end();
  if (settled(op)) {
    earliest = certain_end(op, v, at);
    if (at + 1 < own.size()) latest = own[at + 1];
    if (std::all_of(readers.begin(), readers.end(), [&](OpId r) { return settled(r); })) return earliest;
  }
  // Right after a run of a reader, right after its own run where nobody reads this instance, or at the end.
  std::vector<std::int64_t> values{earliest};
  if (graph_.kept[v]) values.push_back(time_.end());
  const auto add_after = [&](OpId other) {
    for (std::int64_t event : time_.events(other)) {
      values.push_back(event + 1);
      if (shape_.runs[other] == 1) break;
    }
  };
  if (k > 0) add_after(op);
  for (OpId reader : readers) add_after(reader);
  std::erase_if(values, [&](std::int64_t end) { return end < earliest || end > latest; });
  sort_unique(values);
  return add_event(std::move(values));
}

std::int64_t Formulation::certain_end(OpId op, ValueId v, std::size_t k) const {
  const auto& made = time_.events(op);
  const bool last = k + 1 == made.size();
  if (last && graph_.kept[v]) return time_.end();
  std::int64_t end = made[k] + 1;
  for (OpId reader : graph_.readers[v]) {
    const std::span<const std::int64_t> all = time_.events(reader);
    const auto reads = settled(reader) ? all : all.first(1);
    const auto after = last ? reads.end() : std::lower_bound(reads.begin(), reads.end(), made[k + 1]);
    if (after != reads.begin()) end = std::max(end, *std::prev(after) + 1);
  }
  return end;
}

void Formulation::add_memory(OpId op) {
  const auto outputs = graph_.outputs[op];
  for (const Run& run : runs_[op]) {
    Bytes briefly = momentary(graph_, op);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const bool unread = graph_.readers[outputs[i]].empty() && !graph_.kept[outputs[i]];
      if (unread) {
        briefly += graph_.bytes[outputs[i]];
      } else {
        retain(run, run.ends[i], graph_.bytes[outputs[i]]);
      }
    }
    retain(run, run.start + 1, briefly);
  }
}

/// The bytes are in memory from the start of the run to `end`; the certain part goes into the profile.
void Formulation::retain(const Run& run, Affine end, Bytes bytes) {
  const std::int64_t demand = units(bytes);
  if (demand == 0) return;
  if (!run.start.is_constant() || run.active) {
    add_movable(run, run.start, end, demand);
    return;
  }
  const std::int64_t certain =
      end.is_constant() ? end.offset : domains_.at(end.var.index).front() + end.offset;
  settled_[at(run.start.offset)] += demand;
  settled_[at(certain)] -= demand;
  if (!end.is_constant()) add_movable(run, certain, end, demand);
}

void Formulation::add_movable(const Run& run, Affine start, Affine end, std::int64_t demand) {
  Affine size;
  if (start.is_constant()) {
    size = end + -start.offset;
  } else if (!end.is_constant() && start.var == end.var) {
    size = end.offset - start.offset;
  } else {
    size = model_.add_var(1, time_.end());
  }
  intervals_.push_back(model_.add_interval(start, size, end, when(run)));
  demands_.push_back(demand);
  if (shape_.form == Form::kEvents) return;
  const auto first = start.is_constant() ? start.offset : domains_.at(start.var.index).front() + start.offset;
  const auto last = end.is_constant() ? end.offset : domains_.at(end.var.index).back() + end.offset;
  movable_[at(first)] += demand;
  movable_[at(last)] -= demand;
  for (std::int64_t event : {first, last}) boundary_[at(event)] = true;
  if (end.offset != 0 && !end.is_constant()) {
    for (std::int64_t event : domains_.at(end.var.index)) boundary_[at(event + end.offset)] = true;
  }
}

/// Turns the profile of fixed demands, and the ceilings of a window, into fixed intervals: one for each
/// stretch between boundaries, none where all movable demands fit as well. The capacity lies in [least,
/// highest].
void Formulation::add_settled(std::int64_t least, std::int64_t highest, const Window* window) {
  if (shape_.form == Form::kEvents) return;
  std::vector<std::int64_t> ceiling(narrow<std::size_t>(time_.end()) + 1, least);
  if (window) {
    for (std::int64_t t = 0; t < std::ssize(window->ceilings); ++t) {
      const bool inside = t >= window->first && t < window->end;
      const std::int64_t limit = inside ? least : units(window->ceilings[at(t)] - graph_.resident);
      for (std::int64_t event = time_.stage_begin(t); event < time_.stage_begin(t + 1); ++event) {
        ceiling[at(event)] = std::min(limit, highest);
      }
    }
    boundary_[at(time_.stage_begin(window->first))] = true;
    boundary_[at(time_.stage_begin(window->end))] = true;
  }
  const auto inside = [&](std::int64_t event) {
    return !window || (event >= time_.stage_begin(window->first) && event < time_.stage_begin(window->end));
  };
  std::int64_t begin = 0, most = 0, load = 0, movable = 0, tightest = highest;
  std::int64_t open_begin = 0, open_end = 0, open_demand = 0;  // stretches of one demand become one interval
  const auto flush = [&] {
    if (open_demand == 0) return;
    intervals_.push_back(model_.add_interval(open_begin, open_end - open_begin, open_end));
    demands_.push_back(open_demand);
  };
  const auto close = [&](std::int64_t end) {
    if (end == begin) return;
    const std::int64_t demand = most + movable > tightest ? most : 0;
    if (demand != open_demand) {
      flush();
      open_begin = begin, open_demand = demand;
    }
    open_end = begin = end, most = 0;
  };
  for (std::int64_t event = 0; event < time_.end(); ++event) {
    const auto at = narrow<std::size_t>(event);
    if (boundary_[at]) close(event);
    load += settled_[at], movable += movable_[at];
    // Outside a window its fixed ceiling is part of the demand; inside, a filler of its own is.
    const bool fixed = window && !inside(event);
    most = std::max(most, load + (fixed ? highest - ceiling[at] : 0));
    tightest = fixed ? highest : ceiling[at];
  }
  close(time_.end());
  flush();
}

void Formulation::add_disjoint_starts() {
  std::vector<std::int64_t> starts;
  for (OpId op : graph_.ops()) {
    for (const Run& run : runs_[op]) {
      starts.push_back(model_.add_interval(run.start, 1, run.start + 1, when(run)));
    }
    const Affine first = runs_[op].front().start;
    if (shape_.order == OrderMode::kFixed) {
      if (op.index() > 0) model_.at_most(runs_[op.prev()].front().start + 1, first);
      continue;
    }
    for (OpId before : predecessors(graph_, op)) model_.at_most(runs_[before].front().start + 1, first);
    for (OpId before : graph_.after[op]) model_.at_most(runs_[before].front().start + 1, first);
  }
  model_.no_overlap(starts);
}

/// The inputs of `op`, made by one producer after the other.
void Formulation::add_reads(OpId op) {
  for (OpId producer : predecessors(graph_, op)) {
    std::vector<std::size_t> read;
    const auto outputs = graph_.outputs[producer];
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto inputs = graph_.inputs[op];
      if (std::binary_search(inputs.begin(), inputs.end(), outputs[i])) read.push_back(i);
    }
    for (std::size_t k = 0; k < runs_[op].size(); ++k) add_read(producer, read, op, k);
  }
}

/// Run `k` of `reader` starts after exactly one run of `producer` and before what it made is dropped.
void Formulation::add_read(OpId producer, const std::vector<std::size_t>& outputs, OpId reader,
                           std::size_t k) {
  const Run& run = runs_[reader][k];
  const auto hold = [&](const Run& made, std::span<const Literal> condition) {
    for (std::size_t i : outputs) model_.at_most(run.start + 1, made.ends[i], condition);
  };
  std::vector<Run>& makers = runs_[producer];
  // Excludes runs that surely come after the reader, or before another run that surely comes before it.
  std::size_t first = 0, end = 1;
  for (std::size_t j = 1; j < makers.size(); ++j) {
    const bool stays = makers[j].start.is_constant();
    if (run.start.is_constant() && (stays || j == 1)) {
      const std::int64_t earliest = stays ? makers[j].start.offset : time_.events(producer)[1];
      if (earliest > run.start.offset) break;
      if (stays) first = j;
    }
    end = j + 1;
  }
  if (end - first == 1) {
    hold(makers[first], when(run));
    return;
  }
  std::vector<Literal> choices;
  for (std::size_t j = first; j < end; ++j) {
    const Literal reads = model_.add_bool();
    if (makers[j].active) model_.implies(reads, *makers[j].active);
    model_.at_most(makers[j].start + 1, run.start, std::span(&reads, 1));
    hold(makers[j], std::span(&reads, 1));
    makers[j].reads.push_back(reads);
    reads_.push_back({producer, reader, k, j, reads});
    choices.push_back(reads);
  }
  if (!run.active) {
    model_.exactly_one(choices);
    return;
  }
  for (Literal choice : choices) model_.implies(choice, *run.active);
  choices.push_back(!*run.active);
  model_.at_least_one(choices);
}

/// One run keeps its instances of the kept outputs to the end.
void Formulation::add_kept(OpId op) {
  std::vector<std::size_t> kept;
  const auto outputs = graph_.outputs[op];
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (graph_.kept[outputs[i]]) kept.push_back(i);
  }
  auto& makers = runs_[op];
  if (kept.empty() || makers.size() == 1) return;
  if (!shape_.pinned[op].empty()) {
    for (std::size_t i : kept) model_.at_most(time_.end(), makers.back().ends[i]);
    return;
  }
  std::vector<Literal> choices;
  for (std::size_t j = 0; j < makers.size(); ++j) {
    const Literal keeps = model_.add_bool();
    if (makers[j].active) model_.implies(keeps, *makers[j].active);
    for (std::size_t i : kept) model_.at_most(time_.end(), makers[j].ends[i], std::span(&keeps, 1));
    makers[j].reads.push_back(keeps);
    reads_.push_back({op, OpId::none(), 0, j, keeps});
    choices.push_back(keeps);
  }
  model_.exactly_one(choices);
}

void Formulation::minimize_peak(Bytes capacity, Bytes most, const Window* window) {
  const std::int64_t least = std::max<std::int64_t>(0, room(capacity));
  const std::int64_t highest = std::max(least, units(most - graph_.resident));
  peak_ = model_.add_var(least, highest);
  add_settled(least, highest, window);
  if (window) {
    // A filler lowers the one capacity to the peak that is minimized.
    const std::int64_t from = time_.stage_begin(window->first), to = time_.stage_begin(window->end);
    intervals_.push_back(model_.add_interval(from, to - from, to));
    demands_.push_back(Affine(*peak_, -1, highest));
  }
  model_.cumulative(intervals_, demands_, window ? Affine(highest) : Affine(*peak_));
  const std::int64_t one = 1;
  model_.minimize(std::span(&*peak_, 1), std::span(&one, 1));
}

void Formulation::minimize_duration(Bytes capacity) {
  add_settled(room(capacity), room(capacity), nullptr);
  model_.cumulative(intervals_, demands_, room(capacity));
  std::vector<Var> vars;
  std::vector<std::int64_t> coefficients;
  for (OpId op : graph_.ops()) {
    for (const Run& run : runs_[op]) {
      const std::int64_t duration = graph_.duration[op].count() / duration_unit_;
      if (!run.active || duration == 0) continue;
      vars.push_back(run.active->var());
      coefficients.push_back(duration);
    }
  }
  model_.minimize(vars, coefficients);
}

std::int64_t Formulation::real_objective(std::int64_t objective) const {
  const bool peak = goal_ == Goal::kPeak;
  const Wide beyond = Wide{objective} * (peak ? byte_unit_ : duration_unit_);
  return capped(beyond + (peak ? graph_.resident.count() : graph_.base_duration.count()));
}

namespace {

void hint_affine(cpsat::Model& model, const Affine& a, std::int64_t value) {
  if (!a.is_constant()) model.hint(a.var, value - a.offset);
}

}  // namespace

bool Formulation::hint(const Plan& plan) {
  if (!is_complete_) return false;
  const auto starts = time_.starts(graph_, shape_, plan);
  if (!starts) return false;
  // Ends by the last read of each instance: the newest one that was made before the reader.
  IndexVector<OpId, std::vector<std::vector<std::int64_t>>> ends(graph_.num_ops());
  for (OpId op : graph_.ops()) {
    for (std::int64_t start : (*starts)[op]) {
      ends[op].emplace_back(graph_.outputs[op].size(), start + 1);
    }
  }
  const auto newest = [&](OpId op, std::int64_t before) {
    const auto& of = (*starts)[op];
    return narrow<std::size_t>(std::lower_bound(of.begin(), of.end(), before) - of.begin()) - 1;
  };
  const auto extend = [&](ValueId v, std::int64_t before, std::int64_t end) {
    const OpId op = graph_.producer[v];
    const auto outputs = graph_.outputs[op];
    const auto output = std::lower_bound(outputs.begin(), outputs.end(), v) - outputs.begin();
    auto& last = ends[op][newest(op, before)][at(output)];
    last = std::max(last, end);
  };
  for (OpId op : graph_.ops()) {
    for (std::int64_t start : (*starts)[op]) {
      for (ValueId v : graph_.inputs[op]) {
        if (!graph_.is_graph_input(v)) extend(v, start, start + 1);
      }
    }
  }
  for (ValueId v : graph_.graph_outputs) {
    if (!graph_.is_graph_input(v)) extend(v, time_.end(), time_.end());
  }
  for (OpId op : graph_.ops()) {
    for (std::size_t k = 0; k < runs_[op].size(); ++k) {
      const Run& run = runs_[op][k];
      const bool active = k < (*starts)[op].size();
      if (run.active) model_.hint(run.active->var(), active);
      if (!active) continue;
      hint_affine(model_, run.start, (*starts)[op][k]);
      for (std::size_t i = 0; i < run.ends.size(); ++i) {
        // What nobody reads ends right after its start, which is hinted already.
        if (run.ends[i].var != run.start.var) hint_affine(model_, run.ends[i], ends[op][k][i]);
      }
    }
  }
  for (const Read& read : reads_) {
    const bool there = !read.reader || read.k < (*starts)[read.reader].size();
    const std::int64_t before = read.reader && there ? (*starts)[read.reader][read.k] : time_.end();
    model_.hint(read.holds.var(), there && newest(read.producer, before) == read.j);
  }
  if (peak_)
    model_.hint(*peak_, std::max<std::int64_t>(0, units(simulate(graph_, plan).peak - graph_.resident)));
  return true;
}

Plan Formulation::plan(const std::vector<std::int64_t>& solution) const {
  const auto value = [&](const Affine& a) {
    return a.is_constant() ? a.offset : solution[at(a.var.index)] * a.coefficient + a.offset;
  };
  std::vector<std::pair<std::int64_t, OpId>> runs;
  for (OpId op : graph_.ops()) {
    for (const Run& run : runs_[op]) {
      if (!run.active || value(run.active->var()) != 0) runs.emplace_back(value(run.start), op);
    }
  }
  std::sort(runs.begin(), runs.end());
  Plan plan;
  for (const auto& [start, op] : runs) plan.steps.push_back(op);
  REMAT_ASSERT_HEAVY(!validate(graph_, plan, OrderMode::kFree) || simulate(graph_, plan).duration == kTooLong,
                     plan.steps.size());
  return plan;
}

}  // namespace remat::moccasin
