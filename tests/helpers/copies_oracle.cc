#include "helpers/copies_oracle.h"

#include <algorithm>

namespace remat::testing {
namespace {

class Oracle {
 public:
  Oracle(const Graph& graph, const Host& host, int most_reruns, int most_values)
      : graph_(graph), host_(host), most_reruns_(most_reruns), most_values_(most_values) {}

  std::map<Bytes, Duration> run() {
    extend(OpId(0), 0);
    std::map<Bytes, Duration> front;
    Duration least = kTooLong;
    for (const auto& [peak, duration] : best_) {
      if (duration < least) front[peak] = least = duration;
    }
    return front;
  }

 private:
  void extend(OpId next, int reruns) {
    if (next.index() == graph_.ops().size()) {
      copy(ValueId(0), 0);
      if (reruns == most_reruns_) return;
    } else {
      steps_.push_back(next);
      extend(next.next(), reruns);
      steps_.pop_back();
    }
    if (reruns == most_reruns_) return;
    for (OpId op(0); op < next; ++op) {
      // Running the same op twice in a row is useless.
      if (!graph_.recomputable[op] || steps_.back() == op) continue;
      steps_.push_back(op);
      extend(next, reruns + 1);
      steps_.pop_back();
    }
  }

  bool reads(std::int64_t step, ValueId v) const {
    const auto row = graph_.inputs[steps_[static_cast<std::size_t>(step)]];
    return std::find(row.begin(), row.end(), v) != row.end();
  }

  void copy(ValueId v, int values) {
    if (v.index() == std::ssize(graph_.bytes)) return evaluate();
    copy(v.next(), values);
    if (graph_.is_graph_input(v) || values == most_values_) return;
    const auto n = std::ssize(steps_);
    const auto made = std::find(steps_.begin(), steps_.end(), graph_.producer[v]) - steps_.begin();
    for (std::int64_t issue = made; issue < n; ++issue) {
      for (std::int64_t wait = issue + 1; wait <= n; ++wait) {
        copies_.push_back({v, Way::kOut, StepId(issue), StepId(wait)});
        copy(v.next(), values + 1);
        for (std::int64_t back = wait; back <= n; ++back) {
          std::int64_t use = back;
          while (use < n && !reads(use, v)) ++use;
          if (use == n && !graph_.kept[v]) break;  // nobody reads it
          copies_.push_back({v, Way::kIn, StepId(back), StepId(use)});
          copy(v.next(), values + 1);
          copies_.pop_back();
        }
        copies_.pop_back();
      }
    }
  }

  void evaluate() {
    Plan plan;
    for (OpId op : steps_) plan.steps.push_back(op);
    plan.copies = copies_;
    std::stable_sort(plan.copies.begin(), plan.copies.end(),
                     [](const Copy& a, const Copy& b) { return a.issue < b.issue; });
    offer(plan);
    // Copies with the same issue step, in the opposite sequence.
    std::reverse(plan.copies.begin(), plan.copies.end());
    std::stable_sort(plan.copies.begin(), plan.copies.end(),
                     [](const Copy& a, const Copy& b) { return a.issue < b.issue; });
    if (plan.copies.size() > 1) offer(plan);
  }

  void offer(const Plan& plan) {
    if (validate(graph_, plan, OrderMode::kFixed, std::nullopt, &host_)) return;
    const Simulation cost = simulate(graph_, plan, &host_);
    const auto [at, is_new] = best_.emplace(cost.peak, cost.duration);
    if (!is_new) at->second = std::min(at->second, cost.duration);
  }

  const Graph& graph_;
  const Host& host_;
  int most_reruns_, most_values_;
  std::vector<OpId> steps_;
  std::vector<Copy> copies_;
  std::map<Bytes, Duration> best_;
};

}  // namespace

std::map<Bytes, Duration> best_with_copies(const Graph& graph, const Host& host, int most_reruns,
                                           int most_values) {
  return Oracle(graph, host, most_reruns, most_values).run();
}

}  // namespace remat::testing
