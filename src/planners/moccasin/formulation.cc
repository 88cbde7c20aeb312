#include "planners/moccasin/formulation.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace remat::moccasin {

using cpsat::Affine;
using cpsat::Literal;
using cpsat::Var;

Formulation::Formulation(const Graph& graph, const Shape& shape, Goal goal, Bytes capacity, Bytes most)
    : graph_(graph), shape_(shape), time_(graph, shape), goal_(goal), runs_(graph.num_ops()) {
  choose_units();
  for (OpId op : graph.ops()) add_runs(op);
  for (OpId op : graph.ops()) add_memory(op);
  if (shape.form == Form::kEvents) add_disjoint_starts();
  for (OpId op : graph.ops()) add_reads(op);
  for (OpId op : graph.ops()) add_kept(op);
  // A rerun that nobody reads would only cost.
  for (OpId op : graph.ops()) {
    for (Run& run : runs_[op]) {
      if (!run.active) continue;
      run.reads.push_back(!*run.active);
      model_.at_least_one(run.reads);
    }
  }
  add_objective(capacity, most);
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
    count(graph_.workspace[op].count(), shape_.runs[op]);
    for (ValueId v : graph_.outputs[op]) count(graph_.bytes[v].count(), shape_.runs[op]);
  }
  const int most_runs = *std::max_element(shape_.runs.begin(), shape_.runs.end());
  byte_unit_ = scale(total, gcd, kMostEnergy / most_runs / std::max<std::int64_t>(1, time_.end()), exact_bytes_);

  std::int64_t duration_gcd = 0, most = 0;
  for (OpId op : graph_.ops()) {
    if (shape_.runs[op] == 1) continue;
    duration_gcd = std::gcd(duration_gcd, graph_.duration[op].count());
    most = std::max(most, graph_.duration[op].count());
  }
  const auto reruns = std::accumulate(shape_.runs.begin(), shape_.runs.end(), std::int64_t{0});
  duration_unit_ = scale(most, duration_gcd, kMostObjective / std::max<std::int64_t>(1, reruns), exact_durations_);
}

/// Rounded up, so that what fits in units fits in bytes.
std::int64_t Formulation::units(Bytes bytes) const { return (bytes.count() + byte_unit_ - 1) / byte_unit_; }

void Formulation::add_runs(OpId op) {
  const bool stages = shape_.form == Form::kStage;
  auto& runs = runs_[op];
  for (int k = 0; k < shape_.runs[op]; ++k) {
    Run run;
    if (!stages) {
      run.start = model_.add_var(0, time_.end() - 1);
    } else if (k == 0) {
      run.start = time_.events(op).front();
    } else {
      run.start = model_.add_var(std::span(time_.events(op)).subspan(1));
    }
    if (k > 0) run.active = model_.add_bool();
    for (ValueId v : graph_.outputs[op]) run.ends.push_back(add_end(op, v, run, k));
    if (k > 0) {
      // Runs of one op follow each other without overlap, the active ones first.
      const Run& previous = runs.back();
      model_.at_most(previous.start + 1, run.start, when(run));
      for (const Affine& end : previous.ends) model_.at_most(end, run.start, when(run));
      if (previous.active) model_.implies(*run.active, *previous.active);
    }
    runs.push_back(std::move(run));
  }
}

Affine Formulation::add_end(OpId op, ValueId v, const Run& run, int k) {
  if (graph_.readers[v].empty() && !graph_.kept[v]) return run.start + 1;
  const bool once = shape_.runs[op] == 1;
  if (once && (graph_.kept[v] || graph_.bytes[v] == Bytes())) return time_.end();
  if (shape_.form == Form::kEvents) return model_.add_var(1, time_.end());
  // Right after a run of a reader, right after its own run where nobody reads this instance, or at the end.
  std::vector<std::int64_t> values;
  if (graph_.kept[v]) values.push_back(time_.end());
  const auto add_after = [&](OpId other, int runs) {
    for (std::int64_t event : time_.events(other)) {
      values.push_back(event + 1);
      if (runs == 1) break;
    }
  };
  add_after(op, k == 0 ? 1 : shape_.runs[op]);
  for (OpId reader : graph_.readers[v]) add_after(reader, shape_.runs[reader]);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return model_.add_var(values);
}

void Formulation::add_memory(OpId op) {
  const auto outputs = graph_.outputs[op];
  for (const Run& run : runs_[op]) {
    Bytes momentary = graph_.workspace[op];
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Bytes bytes = graph_.bytes[outputs[i]];
      if (bytes == Bytes()) continue;
      if (graph_.readers[outputs[i]].empty() && !graph_.kept[outputs[i]]) {
        momentary += bytes;
        continue;
      }
      const Affine end = run.ends[i];
      Affine size;
      if (end.is_constant() && run.start.is_constant()) {
        size = end.offset - run.start.offset;
      } else if (run.start.is_constant()) {
        size = end + -run.start.offset;
      } else {
        size = model_.add_var(1, time_.end());
      }
      intervals_.push_back(model_.add_interval(run.start, size, end, when(run)));
      demands_.push_back(units(bytes));
    }
    if (momentary > Bytes()) {
      intervals_.push_back(model_.add_interval(run.start, 1, run.start + 1, when(run)));
      demands_.push_back(units(momentary));
    }
  }
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
void Formulation::add_read(OpId producer, const std::vector<std::size_t>& outputs, OpId reader, std::size_t k) {
  const Run& run = runs_[reader][k];
  const auto hold = [&](const Run& made, std::span<const Literal> condition) {
    for (std::size_t i : outputs) model_.at_most(run.start + 1, made.ends[i], condition);
  };
  std::vector<Run>& makers = runs_[producer];
  const auto may_come_before = [&](std::size_t j) {
    return j == 0 || !run.start.is_constant() || time_.events(producer)[1] < run.start.offset;
  };
  if (makers.size() == 1 || !may_come_before(1)) {
    hold(makers.front(), when(run));
    return;
  }
  std::vector<Literal> choices;
  for (std::size_t j = 0; j < makers.size(); ++j) {
    const Literal reads = model_.add_bool();
    if (j > 0) model_.implies(reads, *makers[j].active);
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
  std::vector<Literal> choices;
  for (std::size_t j = 0; j < makers.size(); ++j) {
    const Literal keeps = model_.add_bool();
    if (j > 0) model_.implies(keeps, *makers[j].active);
    for (std::size_t i : kept) model_.at_most(time_.end(), makers[j].ends[i], std::span(&keeps, 1));
    makers[j].reads.push_back(keeps);
    reads_.push_back({op, OpId::none(), 0, j, keeps});
    choices.push_back(keeps);
  }
  model_.exactly_one(choices);
}

void Formulation::add_objective(Bytes capacity, Bytes most) {
  // Rounded down: what fits in units fits in bytes.
  const auto room = [&](Bytes bytes) { return (bytes - graph_.resident).count() / byte_unit_; };
  if (goal_ == Goal::kPeak) {
    const std::int64_t least = std::max<std::int64_t>(0, room(capacity));
    peak_ = model_.add_var(least, std::max(least, units(most - graph_.resident)));
    model_.cumulative(intervals_, demands_, *peak_);
    const std::int64_t one = 1;
    model_.minimize(std::span(&*peak_, 1), std::span(&one, 1));
    return;
  }
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
  if (goal_ == Goal::kPeak) return graph_.resident.count() + objective * byte_unit_;
  return graph_.base_duration.count() + objective * duration_unit_;
}

namespace {

void hint_affine(cpsat::Model& model, const Affine& a, std::int64_t value) {
  if (!a.is_constant()) model.hint(a.var, value - a.offset);
}

}  // namespace

bool Formulation::hint(const Plan& plan) {
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
    return static_cast<std::size_t>(std::lower_bound(of.begin(), of.end(), before) - of.begin()) - 1;
  };
  const auto extend = [&](ValueId v, std::int64_t before, std::int64_t end) {
    const OpId op = graph_.producer[v];
    const auto outputs = graph_.outputs[op];
    auto& at = ends[op][newest(op, before)][static_cast<std::size_t>(
        std::lower_bound(outputs.begin(), outputs.end(), v) - outputs.begin())];
    at = std::max(at, end);
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
      for (std::size_t i = 0; i < run.ends.size(); ++i) hint_affine(model_, run.ends[i], ends[op][k][i]);
    }
  }
  for (const Read& read : reads_) {
    const bool there = !read.reader || read.k < (*starts)[read.reader].size();
    const std::int64_t before = read.reader && there ? (*starts)[read.reader][read.k] : time_.end();
    model_.hint(read.holds.var(), there && newest(read.producer, before) == read.j);
  }
  if (peak_) model_.hint(*peak_, std::max<std::int64_t>(0, units(simulate(graph_, plan).peak - graph_.resident)));
  return true;
}

Plan Formulation::plan(const std::vector<std::int64_t>& solution) const {
  const auto value = [&](const Affine& a) {
    return a.is_constant() ? a.offset : solution[static_cast<std::size_t>(a.var.index)] * a.coefficient + a.offset;
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
  return plan;
}

}  // namespace remat::moccasin
