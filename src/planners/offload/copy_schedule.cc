#include "planners/offload/copy_schedule.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::offload {
namespace {

/// A value's time on the host: out after the step `made`, off the device from `out_wait` (after the step
/// `last`, which reads it last) to `in_issue`, and needed at the step `next`; at the end where it is kept.
struct Absence {
  ValueId value;
  StepId made, last, next;
  StepId out_wait, in_issue;
  Wide out_finish = 0, in_time = 0;
};

class Scheduler {
 public:
  Scheduler(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen, Bytes budget,
            const Host& host)
      : graph_(graph), chosen_(chosen), budget_(budget), clock_(graph, host), plan_(steps) {
    plan_.copies.clear();
    start_.reserve(steps.steps.size() + 1);
    Wide now = 0;
    for (OpId op : plan_.steps) {
      start_.push_back(now);
      now += graph.duration[op].count();
    }
    start_.push_back(now);
  }

  Plan run() {
    find_absences();
    schedule_out();
    schedule_in();
    fit();
    write_copies();
    return std::move(plan_);
  }

 private:
  StepId end() const { return StepId(std::ssize(plan_.steps)); }
  bool is_chosen(ValueId v) const { return chosen_[v] && graph_.copyable[v]; }

  /// The longest gap of each chosen value between two uses of one instance.
  void find_absences() {
    IndexVector<ValueId, Absence> open(graph_.num_values()), best(graph_.num_values());
    const auto close = [&](ValueId v, StepId next) {
      Absence gap = open[v];
      gap.next = next;
      const Absence& known = best[v];
      const auto length = [&](const Absence& one) { return start_[one.next] - start_[one.last.next()]; };
      if (gap.last.next() < next && (known.next.is_none() || length(gap) > length(known))) best[v] = gap;
    };
    for (StepId step : plan_.steps.ids()) {
      for (ValueId v : graph_.inputs[plan_.steps[step]]) {
        if (!is_chosen(v) || graph_.is_graph_input(v)) continue;
        close(v, step);
        open[v].last = step;
      }
      for (ValueId v : graph_.outputs[plan_.steps[step]]) {
        if (is_chosen(v)) open[v] = {v, step, step, {}, {}, {}};
      }
    }
    for (ValueId v : graph_.graph_outputs) {
      if (is_chosen(v) && !graph_.is_graph_input(v)) close(v, end());
    }
    for (const Absence& one : best) {
      if (one.next) absences_.push_back(one);
    }
    // An instance that is back at the end only has no step to be issued at.
    std::erase_if(absences_, [&](const Absence& one) { return one.next == end(); });
  }

  void schedule_out() {
    std::stable_sort(absences_.begin(), absences_.end(),
                     [](const Absence& a, const Absence& b) { return a.made < b.made; });
    Wide free = 0;
    for (Absence& one : absences_) {
      free = std::max(free, start_[one.made.next()]) + clock_.time(Way::kOut, graph_.bytes[one.value]);
      one.out_finish = free;
      one.out_wait = one.last.next();
      while (one.out_wait < one.next && start_[one.out_wait] < free) ++one.out_wait;
    }
  }

  void schedule_in() {
    std::stable_sort(absences_.begin(), absences_.end(),
                     [](const Absence& a, const Absence& b) { return a.next < b.next; });
    Wide latest = start_[end()];
    for (std::size_t i = absences_.size(); i-- > 0;) {
      Absence& one = absences_[i];
      one.in_time = clock_.time(Way::kIn, graph_.bytes[one.value]);
      latest = std::min(latest, start_[one.next]) - one.in_time;
      one.in_issue = one.next;
      while (one.in_issue > one.out_wait && start_[one.in_issue] > latest) one.in_issue = one.in_issue.prev();
    }
  }

  /// Moves waits and issues where a step is over the budget.
  void fit() {
    IndexVector<StepId, Bytes> memory;
    write_copies();
    simulate(graph_, plan_, memory);
    for (StepId step : plan_.steps.ids()) {
      while (memory[step] > budget_ && relieve(step, memory)) continue;
    }
  }

  /// The cheapest move that takes a value off the device at the step; false where there is none.
  bool relieve(StepId step, IndexVector<StepId, Bytes>& memory) {
    Absence* best = nullptr;
    bool is_out = false;
    double least = 0;
    const auto offer = [&](Absence& one, bool out, Wide late) {
      const double stall = real(std::max<Wide>(0, late)) + 1;
      const double price = stall / std::max(1.0, real(graph_.bytes[one.value]));
      if (best && price >= least) return;
      best = &one;
      is_out = out;
      least = price;
    };
    for (Absence& one : absences_) {
      if (one.last < step && step < one.out_wait) offer(one, true, one.out_finish - start_[step]);
      if (one.in_issue <= step && step < one.next) {
        offer(one, false, start_[step.next()] + one.in_time - start_[one.next]);
      }
    }
    if (!best) return false;
    StepId first = step, last = best->out_wait;
    if (is_out) {
      best->out_wait = step;
    } else {
      first = best->in_issue;
      last = step.next();
      best->in_issue = last;
    }
    for (StepId at : IdRange<StepId>(first, last)) memory[at] -= graph_.bytes[best->value];
    return true;
  }

  void write_copies() {
    plan_.copies.clear();
    for (const Absence& one : absences_) {
      if (one.out_wait == one.in_issue) continue;  // never gone
      plan_.copies.push_back({one.value, Way::kOut, one.made, one.out_wait});
      plan_.copies.push_back({one.value, Way::kIn, one.in_issue, one.next});
    }
    std::stable_sort(plan_.copies.begin(), plan_.copies.end(), [](const Copy& a, const Copy& b) {
      return a.issue != b.issue ? a.issue < b.issue : a.wait < b.wait;
    });
  }

  const Graph& graph_;
  const IndexVector<ValueId, bool>& chosen_;
  Bytes budget_;
  CopyClock clock_;
  Plan plan_;
  IndexVector<StepId, Wide> start_;  ///< of every step where nothing stalls, and the end
  std::vector<Absence> absences_;
};

}  // namespace

Plan with_copies(const Graph& graph, const Plan& steps, const IndexVector<ValueId, bool>& chosen,
                 Bytes budget, const Host& host) {
  return Scheduler(graph, steps, chosen, budget, host).run();
}

}  // namespace remat::offload
