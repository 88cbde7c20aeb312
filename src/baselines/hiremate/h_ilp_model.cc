#include "baselines/hiremate/h_ilp_model.h"

#include <algorithm>
#include <limits>

#include "base/numbers.h"

namespace remat::hiremate {

/// constant + sum of factor * column.
class HilpModel::Row {
 public:
  void add(Literal x, double factor) {
    if (factor == 0) return;
    if (x.column < 0) {
      constant += factor * x.constant;
    } else {
      terms.push_back({x.column, factor});
    }
  }
  double constant = 0;
  std::vector<lp::Term> terms;

  /// Adds "row <= limit", or nothing where the columns' bounds say so.
  void at_most(lp::Model& model, double limit) const {
    double worst = constant;
    for (const lp::Term& term : terms) {
      const auto c = narrow<std::size_t>(term.column);
      worst += term.factor * (term.factor > 0 ? model.upper[c] : model.lower[c]);
    }
    if (worst > limit) model.add_row(-lp::kInfinity, limit - constant, terms);
  }
  void at_least(lp::Model& model, double limit) const {
    model.add_row(limit - constant, lp::kInfinity, terms);
  }
  void equals(lp::Model& model, double value) const {
    model.add_row(value - constant, value - constant, terms);
  }
};

HilpModel::HilpModel(const LevelGraph& level, const HilpSpec& spec) : level_(level), spec_(spec) {
  memory_scale_ = 1000.0 / std::max(1.0, spec.peak);
  std::int64_t total = 0;
  for (const MemberShape& m : level.members) total += m.unsaved.duration;
  cost_scale_ = 1000.0 / real(std::max<std::int64_t>(1, total));
  find_phases();
  add_runs();
  add_held();
  add_saved();
  for (int t = 0; t < level_.num_nodes(); ++t) {
    add_dependencies(t);
    add_phantoms(t);
    add_alive(t);
    add_memory(t);
  }
}

int HilpModel::options_of(int node) const {
  if (node == level_.turn) return 1;
  const MemberShape& m = member(node);
  if (!level_.is_forward(node)) return narrow<int>(m.options.size());
  return 2 * narrow<int>(m.options.size()) + 1;
}

const RunShape& HilpModel::shape(int node, int option) const {
  static const RunShape kNothing;
  if (node == level_.turn) return kNothing;
  const MemberShape& m = member(node);
  const auto o = narrow<std::size_t>(option);
  if (!level_.is_forward(node)) return m.options[o].backward;
  if (o > m.options.size()) return m.options[o - m.options.size() - 1].refresh;
  return o < m.options.size() ? m.options[o].forward : m.unsaved;
}

/// Does option o of the node's member have a phantom node? (The option "saves nothing" has none.)
bool HilpModel::saves(int node, int option) const {
  if (node == level_.turn) return false;
  const MemberShape& m = member(node);
  return narrow<std::size_t>(option) < m.options.size() && m.backward_node >= 0 &&
         m.options[at(option)].saved > 0;
}

/// The member's option that an option of the node, other than "saves nothing", belongs to.
std::size_t HilpModel::option_index(int node, int option) const {
  const std::size_t n = member(node).options.size();
  const auto o = narrow<std::size_t>(option);
  return o > n ? o - n - 1 : o;
}

/// Is it the refresh of a refreshed option?
bool HilpModel::refreshed(int node, int option) const {
  return level_.is_forward(node) && narrow<std::size_t>(option) > member(node).options.size() &&
         member(node).options[option_index(node, option)].refreshed;
}

bool HilpModel::refreshes(int node, int option) const {
  if (!level_.is_forward(node)) return false;
  const MemberShape& m = member(node);
  const auto o = narrow<std::size_t>(option);
  return o > m.options.size() && !m.options[o - m.options.size() - 1].refresh_steps.empty();
}

void HilpModel::find_phases() {
  const int n = level_.num_nodes();
  related_.resize(num_nodes());
  for (std::size_t d = 0; d < level_.data.size(); ++d) {
    related_[at(level_.data[d].maker)].push_back(narrow<int>(d));
    for (int reader : level_.data[d].readers) related_[at(reader)].push_back(narrow<int>(d));
  }
  may_run_.assign(num_nodes(), std::vector<bool>(num_nodes(), false));
  for (int t = 0; t < n; ++t) {
    may_run_[at(t)][at(t)] = true;
    if (t <= level_.turn && !spec_.all_phases) continue;
    for (int k = t - 1; k >= 0; --k) {
      if (k == level_.turn || (!level_.is_forward(k) && !spec_.all_phases) || !member(k).may_rerun) continue;
      // Of use: its own backward node is still to come, or somebody reads what it makes in this phase or may
      // do so in a later one. What is of use later is of use now.
      bool useful = level_.is_forward(k) && member(k).backward_node >= t;
      for (int d : related_[at(k)]) {
        if (data(d).maker != k) continue;
        useful = useful || data(d).at_end;
        for (int reader : data(d).readers) useful = useful || reader >= t || may_run(t, reader);
      }
      may_run_[at(t)][at(k)] = useful;
    }
  }
}

void HilpModel::add_runs() {
  const int n = level_.num_nodes();
  run_.resize(num_nodes());
  for (int t = 0; t < n; ++t) {
    run_[at(t)].resize(num_nodes());
    for (int k = 0; k <= t; ++k) {
      std::vector<Literal>& literals = run(t, k);
      literals.resize(narrow<std::size_t>(options_of(k)));
      if (!may_run(t, k)) continue;
      const bool forward = level_.is_forward(k);
      std::vector<int> usable;
      for (int o = 0; o < options_of(k); ++o) {
        // A forward run that is to save nothing serves options without a phantom too.
        const bool unsaved = forward && narrow<std::size_t>(o) == member(k).options.size();
        const bool late = forward && !spec_.all_phases && member(k).backward_node < t;
        if (k != level_.turn && !unsaved && member(k).options[option_index(k, o)].refreshed) {
          // Begun by the first run, turned by a later one; not where anything may run in any phase.
          const bool first = saves(k, o) && k == t, turned = refreshed(k, o) && t > level_.turn;
          if (!spec_.all_phases && (!forward || (!late && (first || turned)))) usable.push_back(o);
          continue;
        }
        const bool refresh = refreshes(k, o) && k < t;
        if (!forward || unsaved || (!late && (saves(k, o) || refresh))) usable.push_back(o);
      }
      if (usable.size() == 1 && k == t) {
        literals[at(usable.front())] = {-1, 1};
        continue;
      }
      Row sum;
      std::int64_t cheapest = std::numeric_limits<std::int64_t>::max();
      for (int o : usable) cheapest = std::min(cheapest, shape(k, o).duration);
      for (int o : usable) {
        literals[at(o)] = binary();
        const std::int64_t extra = shape(k, o).duration - (k == t ? cheapest : 0);
        model_.cost[at(literals[at(o)].column)] = real(extra) * cost_scale_;
        sum.add(literals[at(o)], 1);
      }
      if (k == t) {
        sum.equals(model_, 1);  // node t is executed in phase t
      } else {
        sum.at_most(model_, 1);  // (5)
      }
    }
  }
}

void HilpModel::add_held() {
  const int n = level_.num_nodes();
  held_.assign(num_nodes() + 1, std::vector<Literal>(level_.data.size()));
  for (int d : indices(level_.data)) {
    held(n, d) = {-1, data(d).at_end ? 1.0 : 0.0};
    bool needed = data(d).at_end;
    for (int t = n - 1; t > data(d).maker; --t) {
      bool touched = may_run(t, data(d).maker), read = false;
      for (int reader : data(d).readers) read = read || (reader <= t && may_run(t, reader));
      needed = needed || read;
      if (!needed) {
        held(t, d) = {-1, 0};
      } else if (!touched && !read) {
        held(t, d) = held(t + 1, d);
      } else {
        held(t, d) = binary();
      }
    }
  }
}

void HilpModel::add_saved() {
  const int n = level_.num_nodes();
  saved_.assign(num_nodes() + 1, std::vector<std::vector<Literal>>(level_.members.size()));
  after_ = saved_;
  for (int j : indices(level_.members)) {
    const MemberShape& m = level_.members[at(j)];
    for (int t = 0; t <= n; ++t) {
      saved(t, j).resize(m.options.size());
      after(t, j).resize(m.options.size());
    }
    for (int o : indices(m.options)) {
      if (!saves(j, o)) continue;
      const auto i = narrow<std::size_t>(o);
      for (int t = j + 1; t <= (spec_.all_phases ? n : m.backward_node); ++t) {
        const int before = t - 1;
        if (m.options[i].refreshed) {
          // Before the turn nothing changes; after it the phase before may have turned it into the other.
          saved(t, j)[i] = t <= level_.turn + 1 ? run(j, j)[i] : binary();
          if (t > level_.turn + 1) after(t, j)[i] = binary();
        } else if (before == j) {
          saved(t, j)[i] = run(j, j)[i];
        } else if (!may_run(before, j) && !(before >= m.backward_node && may_run(before, m.backward_node))) {
          saved(t, j)[i] = saved(before, j)[i];
        } else {
          saved(t, j)[i] = binary();
        }
      }
    }
    for (int t = j + 1; t <= n; ++t) {
      Row sum;
      for (const Literal& literal : saved(t, j)) sum.add(literal, 1);
      for (const Literal& literal : after(t, j)) sum.add(literal, 1);
      sum.at_most(model_, 1);  // (6)
    }
  }
}

/// Sum of the runs of k in phase t that read data node d.
void HilpModel::add_reads(int t, int k, int d, Row& row, double factor) const {
  if (k == level_.turn) {
    row.add({-1, t == k ? 1.0 : 0.0}, factor);
    return;
  }
  for (int o = 0; o < options_of(k); ++o) {
    const auto& reads = shape(k, o).reads;
    if (std::binary_search(reads.begin(), reads.end(), d)) row.add(run(t, k)[at(o)], factor);
  }
}

void HilpModel::add_dependencies(int t) {
  for (int d : indices(level_.data)) {
    const int maker = data(d).maker;
    if (maker > t) continue;
    Row available;  // negative: P + CR of the maker
    available.add(held(t, d), -1);
    for (const Literal& literal : run(t, maker)) available.add(literal, -1);
    for (int k : data(d).readers) {
      if (k > t || !may_run(t, k)) continue;
      Row row = available;
      add_reads(t, k, d, row, 1);
      row.at_most(model_, 0);
    }
    Row next = available;
    next.add(held(t + 1, d), 1);
    next.at_most(model_, 0);
  }
}

void HilpModel::add_phantoms(int t) {
  for (int j : indices(level_.members)) {
    const MemberShape& m = level_.members[at(j)];
    if (j > t || m.backward_node < 0) continue;
    const bool backward = may_run(t, m.backward_node) && m.backward_node <= t;
    for (int o : indices(m.options)) {
      if (!saves(j, o)) continue;
      const auto i = narrow<std::size_t>(o);
      if (m.options[i].refreshed) {
        add_stages(t, j, o);
        continue;
      }
      if (const std::size_t again = m.options.size() + 1 + i; refreshes(j, narrow<int>(again))) {
        Row refresh;
        refresh.add(run(t, j)[again], 1);
        refresh.add(saved(t, j)[i], -1);
        refresh.at_most(model_, 0);
      }
      const Literal forward_run = run(t, j)[i];
      const Literal backward_run = backward ? run(t, m.backward_node)[i] : Literal{};
      Row there;
      there.add(saved(t, j)[i], 1);
      there.add(forward_run, 1);
      if (!spec_.all_phases && t == m.backward_node) {
        // (8) and (9): what is saved is used, and the other way round.
        there.add(backward_run, -1);
        there.equals(model_, 0);
        continue;
      }
      if (!spec_.all_phases && t > m.backward_node) continue;
      const Literal next = saved(t + 1, j)[i];
      Row created = there;  // (7)
      created.add(next, -1);
      created.at_least(model_, 0);
      Row kept = there;  // (8)
      kept.add(backward_run, -1);
      kept.add(next, -1);
      kept.at_most(model_, 0);
      there.add(backward_run, -1);  // (9)
      there.at_least(model_, 0);
    }
  }
}

/// The phantom node of a refreshed option becomes the other one by the refresh, and that one serves the
/// backward part.
void HilpModel::add_stages(int t, int j, int o) {
  const MemberShape& m = level_.members[at(j)];
  const auto i = narrow<std::size_t>(o);
  if (t <= level_.turn || t > m.backward_node) return;
  const Literal refresh = run(t, j)[m.options.size() + 1 + i];
  const bool last = t == m.backward_node;
  Row before;
  before.add(saved(t, j)[i], 1);
  before.add(refresh, -1);
  if (!last) before.add(saved(t + 1, j)[i], -1);
  before.equals(model_, 0);
  Row later;
  later.add(after(t, j)[i], 1);
  later.add(refresh, 1);
  later.add(last ? run(t, m.backward_node)[i] : after(t + 1, j)[i], -1);
  later.equals(model_, 0);
}

void HilpModel::add_alive(int t) {
  alive_.assign(num_nodes(), {});
  for (int k = 0; k <= t; ++k) alive_[at(k)].resize(related_[at(k)].size());
  for (int d : indices(level_.data)) {
    if (data(d).maker > t) continue;
    std::vector<int> nodes;
    if (may_run(t, data(d).maker)) nodes.push_back(data(d).maker);
    for (int k : data(d).readers) {
      if (k <= t && may_run(t, k)) nodes.push_back(k);
    }
    Literal after = held(t + 1, d);
    for (auto k = nodes.rbegin(); k != nodes.rend(); ++k) {
      const auto& related = related_[at(*k)];
      const auto slot = narrow<std::size_t>(std::find(related.begin(), related.end(), d) - related.begin());
      alive_[at(*k)][slot] = after;
      if (std::next(k) == nodes.rend()) break;
      // Needed before node k: by k itself, or after it.
      Row reads;
      add_reads(t, *k, d, reads, 1);
      if (after.is(1) || (reads.terms.empty() && reads.constant >= 1)) {
        after = {-1, 1};
        continue;
      }
      if (reads.terms.empty() && reads.constant == 0) continue;
      if (after.is(0) && reads.terms.size() == 1 && reads.constant == 0) {
        after = {reads.terms.front().column, 0};
        continue;
      }
      const Literal before{model_.add_column(0, 0, 1, false), 0};
      Row by_reads = reads;
      by_reads.add(before, -1);
      by_reads.at_most(model_, 0);
      Row later;
      later.add(after, 1);
      later.add(before, -1);
      later.at_most(model_, 0);
      after = before;
    }
  }
}

void HilpModel::add_memory(int t) {
  Row usage;
  double base = 0;
  for (int k = 0; k < t; ++k) {
    if (k == level_.turn) continue;
    base += real(level_.is_forward(k) ? member(k).kept_forward : member(k).kept_backward);
  }
  usage.constant = base * memory_scale_;
  statuses_.assign(level_.data.size(), {});
  for (int d : indices(level_.data)) {
    if (data(d).maker >= t) continue;
    statuses_[at(d)] = held(t, d);
    usage.add(held(t, d), real(data(d).bytes) * memory_scale_);
  }
  for (int j : indices(level_.members)) {
    const MemberShape& m = level_.members[at(j)];
    for (std::size_t o = 0; o < m.options.size(); ++o) {
      usage.add(saved(t, j)[o], real(m.options[o].saved) * memory_scale_);
      usage.add(after(t, j)[o], real(m.options[o].saved_after) * memory_scale_);
    }
  }
  if (t == level_.turn + 1 && spec_.saved) usage.at_most(model_, *spec_.saved * memory_scale_);
  for (int k = 0; k <= t; ++k) {
    if (!may_run(t, k)) continue;
    add_moments(t, k, usage);
    if (k < t) finish_phase(t, k, usage);
  }
}

/// The memory budget, with correction terms, for every option and every moment of its run.
void HilpModel::add_moments(int t, int k, const Row& usage) {
  const auto& related = related_[at(k)];
  for (int o = 0; o < options_of(k); ++o) {
    const Literal runs = k == level_.turn ? Literal{-1, 1} : run(t, k)[at(o)];
    if (runs.is(0)) continue;
    for (const Moment& moment : shape(k, o).moments) {
      Row row = usage;
      row.add(runs, real(moment.own) * memory_scale_);
      for (std::size_t i = 0; i < related.size(); ++i) {
        const int d = related[i];
        const bool released = std::binary_search(moment.released.begin(), moment.released.end(), d);
        if (!released) continue;
        const double bytes = real(data(d).bytes) * memory_scale_;
        row.add(alive_[at(k)][i], bytes);
        row.add(statuses_[at(d)], -bytes);
      }
      row.at_most(model_, 1000.0);
    }
  }
}

/// Memory after node k of phase t: data nodes come and go, so do phantom nodes.
void HilpModel::finish_phase(int t, int k, Row& usage) {
  const auto& related = related_[at(k)];
  for (std::size_t i = 0; i < related.size(); ++i) {
    const auto d = narrow<std::size_t>(related[i]);
    const double bytes = real(level_.data[d].bytes) * memory_scale_;
    usage.add(alive_[at(k)][i], bytes);
    usage.add(statuses_[d], -bytes);
    statuses_[d] = alive_[at(k)][i];
  }
  if (k != level_.turn) {
    const MemberShape& m = member(k);
    const int j = member_index(k);
    for (std::size_t o = 0; o < m.options.size(); ++o) {
      const double bytes = real(m.options[o].saved) * memory_scale_;
      if (level_.is_forward(k)) {
        if (saves(k, narrow<int>(o))) usage.add(run(t, k)[o], bytes);
        if (m.options[o].refreshed) {
          const auto more = real(m.options[o].saved_after - m.options[o].saved);
          usage.add(run(t, k)[m.options.size() + 1 + o], more * memory_scale_);
        }
      } else if (m.options[o].refreshed) {
        const auto after = real(m.options[o].saved_after);
        usage.add(run(t, k)[o], -after * memory_scale_);
      } else {
        usage.add(run(t, j)[o], -bytes);
        usage.add(saved(t, j)[o], -bytes);
        usage.add(saved(t + 1, j)[o], bytes);
      }
    }
  }
  if (usage.terms.size() <= 8) return;
  const Literal total{model_.add_column(0, 0, 1000.0, false), 0};
  Row equal = usage;
  equal.add(total, -1);
  equal.equals(model_, 0);
  usage = Row();
  usage.add(total, 1);
}

std::vector<HilpModel::Run> HilpModel::runs_of(const std::vector<double>& x) const {
  std::vector<Run> runs;
  for (int t = 0; t < level_.num_nodes(); ++t) {
    for (int k = 0; k <= t; ++k) {
      if (k == level_.turn) continue;
      for (int o : indices(run(t, k))) {
        const Literal literal = run(t, k)[at(o)];
        const double value = literal.column < 0 ? literal.constant : x[at(literal.column)];
        if (value > 0.5) runs.push_back({t, k, o});
      }
    }
  }
  return runs;
}

std::vector<double> HilpModel::start_from(const std::vector<Run>& runs) const {
  std::vector<double> x(model_.cost.size(), std::numeric_limits<double>::quiet_NaN());
  const auto set = [&](Literal literal, double value) {
    if (literal.column >= 0) x[at(literal.column)] = value;
  };
  const int n = level_.num_nodes();
  std::vector<std::vector<int>> option(num_nodes(), std::vector<int>(num_nodes(), -1));
  for (int t = 0; t < n; ++t) {
    for (int k = 0; k <= t; ++k) {
      for (const Literal& literal : run(t, k)) set(literal, 0);
    }
  }
  for (const Run& r : runs) {
    option[at(r.phase)][at(r.node)] = r.option;
    set(run(r.phase, r.node)[at(r.option)], 1);
  }
  const auto ran = [&](int t, int k) { return option[at(t)][at(k)]; };
  for (int d : indices(level_.data)) {
    bool needed = data(d).at_end;
    for (int t = n - 1; t > data(d).maker; --t) {
      // What phase t makes itself it need not find.
      const bool remade = ran(t, data(d).maker) >= 0;
      if (remade) needed = false;
      for (int k : data(d).readers) {
        if (k > t || remade) continue;
        if (k == level_.turn) {
          needed = needed || t == k;
        } else if (const int o = ran(t, k); o >= 0) {
          const auto& reads = shape(k, o).reads;
          needed = needed || std::binary_search(reads.begin(), reads.end(), d);
        }
      }
      set(held(t, d), needed ? 1 : 0);
    }
  }
  for (int j : indices(level_.members)) {
    const MemberShape& m = level_.members[at(j)];
    std::vector<bool> is_saved(m.options.size(), false), is_after(m.options.size(), false);
    for (int t = j; t < n; ++t) {
      for (std::size_t o = 0; o < is_saved.size() && t > j; ++o) {
        set(saved_[at(t)][at(j)][o], is_saved[o] ? 1 : 0);
        set(after_[at(t)][at(j)][o], is_after[o] ? 1 : 0);
      }
      const int o = ran(t, j);
      if (o >= 0 && saves(j, o)) is_saved[at(o)] = true;
      if (o >= 0 && refreshed(j, o)) {
        is_saved[narrow<std::size_t>(o) - m.options.size() - 1] = false;
        is_after[narrow<std::size_t>(o) - m.options.size() - 1] = true;
      }
      const int backward = level_.members[at(j)].backward_node;
      if (backward < 0 || backward > t || ran(t, backward) < 0) continue;
      is_saved.assign(is_saved.size(), false);
      is_after.assign(is_after.size(), false);
    }
  }
  return x;
}

}  // namespace remat::hiremate
