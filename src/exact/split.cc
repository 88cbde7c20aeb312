// The multiple-choice knapsack of several rows.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/numbers.h"
#include "lp/highs.h"
#include "lp/model.h"
#include "remat/check.h"
#include "remat/error.h"
#include "remat/selection.h"

namespace remat {
namespace {

// The scaled room in rows of bytes, and slack for the solver's tolerances.
constexpr double kScale = 1000, kTolerance = 1e-5;
constexpr int kMostRounds = 40;

void check(const SplitProblem& problem) {
  for (int p : indices(problem.parts)) {
    for (const SplitChoice& choice : problem.parts[at(p)]) {
      if (choice.bytes.size() != problem.room.size())
        throw UsageError("a choice of part " + std::to_string(p) + " has bytes of " +
                         std::to_string(choice.bytes.size()) + " moments, there are " +
                         std::to_string(problem.room.size()));
    }
  }
}

class Splitter {
 public:
  explicit Splitter(const SplitProblem& problem) : problem_(problem) {
    Wide most = 0;
    for (const auto& part : problem.parts) {
      Duration dearest;
      for (const SplitChoice& choice : part) dearest = std::max(dearest, choice.cost);
      most += dearest.count();
    }
    unit_ = std::max(1.0, static_cast<double>(most) / 1e6);
    for (const auto& part : problem.parts) add_part(part);
    for (int moment : indices(problem.room)) add_moment(moment);
  }

  Split run(Limits& limits) {
    Split found;
    for (int round = 0; round < kMostRounds && !limits.reached(); ++round) {
      const lp::Solution solution = lp::solve(model_, {}, limits);
      if (solution.outcome == lp::Outcome::kInfeasible) {
        found.proved = true;
        return found;
      }
      const double bound = std::ceil(std::max(0.0, solution.bound) * unit_ - 1e-6);
      found.bound = std::max(found.bound, Duration(static_cast<std::int64_t>(bound)));
      if (!solution.x) return found;
      const std::vector<int> choices = choices_of(*solution.x);
      const bool is_best = solution.outcome == lp::Outcome::kOptimal;
      if (is_within(choices)) {
        found.choices = choices;
        found.cost = cost_of(choices);
        found.proved = is_best;
        if (is_best || found.bound > found.cost) found.bound = found.cost;
        return found;
      }
      if (!is_best) return found;
      forbid(choices);
    }
    return found;
  }

 private:
  void add_part(const std::vector<SplitChoice>& part) {
    std::vector<lp::Term> one;
    first_.push_back(model_.num_columns());
    for (const SplitChoice& choice : part)
      one.push_back({model_.add_column(real(choice.cost) / unit_, 0, 1, true), 1});
    if (one.empty()) one.push_back({model_.add_column(0, 0, 0, false), 1});
    model_.add_row(1, 1, one);
  }

  void add_moment(int moment) {
    const double scale = kScale / std::max(1.0, real(problem_.room[at(moment)]));
    std::vector<lp::Term> terms;
    for (int p : indices(problem_.parts)) {
      for (int c : indices(problem_.parts[at(p)])) {
        const Bytes bytes = problem_.parts[at(p)][at(c)].bytes[at(moment)];
        if (bytes != Bytes()) terms.push_back({first_[at(p)] + c, real(bytes) * scale});
      }
    }
    if (terms.empty()) terms.push_back({model_.add_column(0, 0, 0, false), 1});
    model_.add_row(-lp::kInfinity, real(problem_.room[at(moment)]) * scale + kTolerance, terms);
  }

  std::vector<int> choices_of(const std::vector<double>& x) const {
    std::vector<int> choices;
    for (int p : indices(problem_.parts)) {
      const auto begin = x.begin() + first_[at(p)];
      const auto end = begin + std::ssize(problem_.parts[at(p)]);
      choices.push_back(narrow<int>(std::max_element(begin, end) - begin));
    }
    return choices;
  }

  bool is_within(const std::vector<int>& choices) const {
    for (int moment : indices(problem_.room)) {
      Bytes left = problem_.room[at(moment)];
      for (int p : indices(choices)) left -= problem_.parts[at(p)][at(choices[at(p)])].bytes[at(moment)];
      if (left < Bytes()) return false;
    }
    return true;
  }

  Duration cost_of(const std::vector<int>& choices) const {
    Duration sum;
    for (int p : indices(choices)) sum += problem_.parts[at(p)][at(choices[at(p)])].cost;
    return sum;
  }

  void forbid(const std::vector<int>& choices) {
    std::vector<lp::Term> terms;
    for (int p : indices(choices)) terms.push_back({first_[at(p)] + choices[at(p)], 1});
    model_.add_row(-lp::kInfinity, real(std::ssize(choices)) - 1, terms);
  }

  const SplitProblem& problem_;
  double unit_ = 1;
  lp::Model model_;
  std::vector<lp::Column> first_;  // of each part
};

/// True for one choice of each part, within the room of every moment, at the stated cost.
bool is_split(const SplitProblem& problem, const Split& split) {
  if (split.choices.empty()) return true;
  if (split.choices.size() != problem.parts.size()) return false;
  std::vector<Bytes> taken(problem.room.size());
  Duration cost;
  for (int part : indices(problem.parts)) {
    const SplitChoice& choice = problem.parts[at(part)][at(split.choices[at(part)])];
    cost += choice.cost;
    for (int moment : indices(taken)) taken[at(moment)] += choice.bytes[at(moment)];
  }
  for (int moment : indices(taken)) {
    if (taken[at(moment)] > problem.room[at(moment)]) return false;
  }
  return cost == split.cost;
}

}  // namespace

Split split_within(const SplitProblem& problem, Limits& limits) {
  check(problem);
  if (const auto reason = lp::unavailable()) throw UsageError("split_within needs HiGHS, and " + *reason);
  Split split = Splitter(problem).run(limits);
  REMAT_ASSERT_HEAVY(is_split(problem, split), split.choices.size(), split.cost);
  REMAT_ASSERT(split.choices.empty() || split.bound <= split.cost, split.bound, split.cost);
  return split;
}

}  // namespace remat
