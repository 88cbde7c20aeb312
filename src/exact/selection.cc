// The knapsack over time (Bartlett et al. 2005, "The temporal knapsack problem and its solution").
#include "remat/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/numbers.h"
#include "lp/highs.h"
#include "lp/model.h"
#include "remat/check.h"
#include "remat/error.h"

namespace remat {
namespace {

/// A moment that limits the selection, and the items alive then.
struct Row {
  Bytes room;
  std::vector<int> items;    // rising
  std::vector<Bytes> bytes;  // of each
};

void check(const SelectionProblem& problem) {
  const int moments = narrow<int>(std::ssize(problem.room)), count = narrow<int>(std::ssize(problem.items));
  for (int i = 0; i < count; ++i) {
    const Selectable& item = problem.items[at(i)];
    for (const Stretch& life : item.lives) {
      if (life.begin < 0 || life.end > moments || life.begin > life.end || life.bytes < Bytes())
        throw UsageError("item " + std::to_string(i) + ": [" + std::to_string(life.begin) + ", " +
                         std::to_string(life.end) + ") is no stretch of " + std::to_string(moments) +
                         " moments");
    }
    for (const std::vector<int>* others : {&item.excludes, &item.needs}) {
      for (int other : *others) {
        if (other < 0 || other >= count || other == i)
          throw UsageError("item " + std::to_string(i) + " names item " + std::to_string(other) + " of " +
                           std::to_string(count));
      }
    }
  }
}

/// Does the selection fit the room of every moment, satisfy `needs` and `excludes`, and have the stated gain?
bool is_selection(const SelectionProblem& problem, const Selection& selection) {
  std::vector<Bytes> taken(problem.room.size());
  Duration gain;
  const auto has = [&](int i) { return std::ranges::binary_search(selection.items, i); };
  for (int i : selection.items) {
    const Selectable& item = problem.items[at(i)];
    gain += item.gain;
    for (const Stretch& life : item.lives) {
      if (life.bytes == Bytes()) continue;
      for (int m = life.begin; m < life.end; ++m) {
        taken[at(m)] += life.bytes;
        if (taken[at(m)] > problem.room[at(m)]) return false;
      }
    }
    if (std::ranges::any_of(item.excludes, has) || !std::ranges::all_of(item.needs, has)) return false;
  }
  return gain == selection.gain && std::ranges::is_sorted(selection.items);
}

bool holds_all_of(const Row& larger, const Row& smaller) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < smaller.items.size(); ++i) {
    while (next < larger.items.size() && larger.items[next] < smaller.items[i]) ++next;
    if (next == larger.items.size() || larger.items[next] != smaller.items[i] ||
        larger.bytes[next] < smaller.bytes[i])
      return false;
  }
  return true;
}

/// The moments not implied by a neighbour: moments between two changes are merged.
std::vector<Row> rows_of(const SelectionProblem& problem) {
  const int moments = narrow<int>(std::ssize(problem.room));
  struct Change {
    int item;
    Bytes bytes;
  };
  std::vector<std::vector<Change>> changes(at(moments) + 1);
  for (int i : indices(problem.items)) {
    for (const Stretch& life : problem.items[at(i)].lives) {
      if (life.begin == life.end || life.bytes == Bytes()) continue;
      changes[at(life.begin)].push_back({i, life.bytes});
      changes[at(life.end)].push_back({i, Bytes() - life.bytes});
    }
  }
  std::vector<Row> rows;
  std::vector<Bytes> level(problem.items.size());
  for (int t = 0; t < moments; ++t) {
    if (t > 0 && changes[at(t)].empty()) {
      rows.back().room = std::min(rows.back().room, problem.room[at(t)]);
      continue;
    }
    for (const Change& change : changes[at(t)]) level[at(change.item)] += change.bytes;
    Row row{problem.room[at(t)], {}, {}};
    for (int i : indices(level)) {
      if (level[at(i)] > Bytes()) {
        row.items.push_back(i);
        row.bytes.push_back(level[at(i)]);
      }
    }
    rows.push_back(std::move(row));
  }
  std::vector<Row> kept;
  for (Row& row : rows) {
    while (!kept.empty() && kept.back().room >= row.room && holds_all_of(row, kept.back())) kept.pop_back();
    if (kept.empty() || kept.back().room > row.room || !holds_all_of(kept.back(), row))
      kept.push_back(std::move(row));
  }
  return kept;
}

class Choice {
 public:
  explicit Choice(const SelectionProblem& problem) : problem_(problem), rows_(rows_of(problem)) {
    rows_with_.resize(problem.items.size());
    for (int r : indices(rows_))
      for (int i : rows_[at(r)].items) rows_with_[at(i)].push_back(r);
    possible_.assign(problem.items.size(), true);
    for (const Row& row : rows_) {
      for (std::size_t k = 0; k < row.items.size(); ++k)
        if (row.bytes[k] > row.room) possible_[at(row.items[k])] = false;
    }
  }

  Selection run(Limits& limits) {
    Selection best = greedy();
    if (best.gain < Duration()) best = {};
    Wide most = 0;
    for (int i : indices(problem_.items))
      if (possible_[at(i)]) most += std::max<std::int64_t>(0, problem_.items[at(i)].gain.count());
    best.bound = Duration(capped(most));
    if (best.gain < best.bound) solve(best, limits);
    best.stopped_by = limits.stopped_by();
    return best;
  }

 private:
  /// By gain per byte, with bytes weighted by how full their row could get.
  Selection greedy() const {
    std::vector<double> pressure;
    for (const Row& row : rows_) {
      const double wanted = std::accumulate(row.bytes.begin(), row.bytes.end(), 0.0,
                                            [](double sum, Bytes bytes) { return sum + real(bytes); });
      const double room = std::max(1.0, real(row.room));
      pressure.push_back(std::max(0.0, wanted / room - 1) / room);
    }
    std::vector<double> price(problem_.items.size());
    for (int r : indices(rows_)) {
      for (std::size_t k = 0; k < rows_[at(r)].items.size(); ++k)
        price[at(rows_[at(r)].items[k])] += pressure[at(r)] * real(rows_[at(r)].bytes[k]);
    }
    std::vector<int> order(problem_.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return real(problem_.items[at(a)].gain) * (price[at(b)] + 1e-12) >
             real(problem_.items[at(b)].gain) * (price[at(a)] + 1e-12);
    });
    std::vector<bool> chosen(problem_.items.size());
    std::vector<Bytes> left;
    for (const Row& row : rows_) left.push_back(row.room);
    for (int i : order) take_with_what_it_requires(i, chosen, left);
    return selection_of(chosen);
  }

  void take_with_what_it_requires(int first, std::vector<bool>& chosen, std::vector<Bytes>& left) const {
    if (chosen[at(first)] || problem_.items[at(first)].gain <= Duration()) return;
    std::vector<bool> with = chosen;
    std::vector<Bytes> rest = left;
    std::vector<int> stack{first};
    while (!stack.empty()) {
      const int i = stack.back();
      stack.pop_back();
      if (with[at(i)]) continue;
      if (!possible_[at(i)]) return;
      with[at(i)] = true;
      for (int r : rows_with_[at(i)]) {
        const Row& row = rows_[at(r)];
        const auto found = std::lower_bound(row.items.begin(), row.items.end(), i) - row.items.begin();
        rest[at(r)] -= row.bytes[at(found)];
        if (rest[at(r)] < Bytes()) return;
      }
      for (int other : problem_.items[at(i)].needs) stack.push_back(other);
    }
    if (!keeps_exclusions(with)) return;
    chosen = std::move(with);
    left = std::move(rest);
  }

  bool keeps_exclusions(const std::vector<bool>& chosen) const {
    for (int i : indices(problem_.items)) {
      if (!chosen[at(i)]) continue;
      for (int other : problem_.items[at(i)].excludes)
        if (chosen[at(other)]) return false;
    }
    return true;
  }

  bool keeps_all(const std::vector<bool>& chosen) const {
    for (const Row& row : rows_) {
      Bytes left = row.room;
      bool any = false;
      for (std::size_t k = 0; k < row.items.size(); ++k) {
        if (!chosen[at(row.items[k])]) continue;
        any = true;
        left -= row.bytes[k];
      }
      if (any && left < Bytes()) return false;
    }
    for (int i : indices(problem_.items)) {
      if (!chosen[at(i)]) continue;
      for (int other : problem_.items[at(i)].needs)
        if (!chosen[at(other)]) return false;
    }
    return keeps_exclusions(chosen);
  }

  Selection selection_of(const std::vector<bool>& chosen) const {
    Selection found;
    Wide gain = 0;
    for (int i : indices(problem_.items)) {
      if (!chosen[at(i)]) continue;
      found.items.push_back(i);
      gain += problem_.items[at(i)].gain.count();
    }
    found.gain = Duration(capped(gain));
    return found;
  }

  lp::Model model_of(double unit) const {
    lp::Model model;
    for (int i : indices(problem_.items))
      model.add_column(-real(problem_.items[at(i)].gain) / unit, 0, possible_[at(i)] ? 1 : 0, true);
    for (const Row& row : rows_) {
      std::vector<lp::Term> terms;
      double wanted = 0;
      for (std::size_t k = 0; k < row.items.size(); ++k) {
        if (!possible_[at(row.items[k])]) continue;
        wanted += real(row.bytes[k]);
        terms.push_back({row.items[k], real(row.bytes[k]) / std::max(1.0, real(row.room))});
      }
      if (wanted > real(row.room)) model.add_row(-lp::kInfinity, 1, terms);
    }
    for (int i : indices(problem_.items)) {
      for (int other : problem_.items[at(i)].excludes) {
        const std::vector<lp::Term> terms{{i, 1}, {other, 1}};
        model.add_row(-lp::kInfinity, 1, terms);
      }
      for (int other : problem_.items[at(i)].needs) {
        const std::vector<lp::Term> terms{{i, 1}, {other, -1}};
        model.add_row(-lp::kInfinity, 0, terms);
      }
    }
    return model;
  }

  void solve(Selection& best, Limits& limits) {
    const double unit = std::max(1.0, real(best.bound) / 1e4);
    const lp::Model model = model_of(unit);
    lp::Settings settings;
    settings.relative_gap = kGap;
    std::vector<double> start(problem_.items.size(), 0.0);
    for (int i : best.items) start[at(i)] = 1;
    settings.start = std::move(start);
    const lp::Solution solution = lp::solve(model, settings, limits);
    const double bound = std::ceil(-solution.bound * unit);
    if (bound < real(best.bound))
      best.bound = std::max(best.gain, Duration(static_cast<std::int64_t>(bound)));
    if (!solution.x) return;
    std::vector<bool> chosen;
    for (int i : indices(problem_.items)) chosen.push_back((*solution.x)[at(i)] > 0.5);
    Selection found = selection_of(chosen);
    if (found.gain <= best.gain || !keeps_all(chosen)) return;
    found.bound = std::max(best.bound, found.gain);
    best = std::move(found);
  }

  // Below the accuracy of measured durations.
  static constexpr double kGap = 1e-3;

  const SelectionProblem& problem_;
  std::vector<Row> rows_;
  std::vector<std::vector<int>> rows_with_;  // by item
  std::vector<bool> possible_;               // fits the room alone
};

}  // namespace

Selection select_within(const SelectionProblem& problem, Limits& limits) {
  check(problem);
  Selection selection = Choice(problem).run(limits);
  REMAT_ASSERT_HEAVY(is_selection(problem, selection), selection.items.size(), selection.gain);
  REMAT_ASSERT(selection.gain <= selection.bound, selection.gain, selection.bound);
  return selection;
}

}  // namespace remat
