#include "plan/copies.h"

#include <algorithm>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {
namespace {

/// The copies of a plan by the steps of their events; step n is the end of the plan.
struct CopiesByStep {
  explicit CopiesByStep(const Plan& plan)
      : out_at(plan.steps.size() + 1), freed_at(plan.steps.size() + 1), in_at(plan.steps.size() + 1) {
    for (const Copy& copy : plan.copies) {
      if (copy.way == Way::kIn) {
        in_at[copy.issue].push_back(copy);
      } else {
        out_at[copy.issue].push_back(copy.value);
        freed_at[copy.wait].push_back(copy.value);
      }
    }
  }
  IndexVector<StepId, std::vector<ValueId>> out_at, freed_at;  ///< issues and waits of copies out
  IndexVector<StepId, std::vector<Copy>> in_at;                ///< copies in by issue
};

class Walker {
 public:
  Walker(const Graph& graph, const Plan& plan)
      : graph_(graph),
        plan_(plan),
        copies_(plan),
        newest_(graph.num_values(), kGone),
        copied_(graph.num_values(), kGone) {}

  CopyWalk run() {
    const StepId end(std::ssize(plan_.steps));
    for (StepId step(0); step <= end && !walk_.fault; ++step) {
      free_copied(step);
      bring_in(step);
      if (step == end) break;
      run_step(step);
      for (ValueId v : copies_.out_at[step]) begin_copy_out(v, step);
    }
    if (!walk_.fault) keep_outputs(end);
    std::erase_if(walk_.instances, [&](const CopiedInstance& one) { return one.first >= end; });
    return std::move(walk_);
  }

 private:
  static constexpr std::int64_t kGone = -1;

  CopiedInstance& instance(std::int64_t index) { return walk_.instances[at(index)]; }
  void fail(Rule rule, StepId step, ValueId value) {
    if (!walk_.fault) walk_.fault = {rule, step, value};
  }
  void add(ValueId v, StepId first, StepId last, StepId usable) {
    newest_[v] = std::ssize(walk_.instances);
    walk_.instances.push_back({v, first, last, StepId::none(), usable});
  }

  void free_copied(StepId step) {
    for (ValueId v : copies_.freed_at[step]) {
      CopiedInstance& one = instance(copied_[v]);
      one.last = std::max(one.last, step.prev());
      if (newest_[v] == copied_[v]) newest_[v] = kGone;
    }
  }

  void bring_in(StepId step) {
    for (const Copy& copy : copies_.in_at[step]) {
      add(copy.value, step, std::max(step, copy.wait.prev()), copy.wait);
    }
  }

  void run_step(StepId step) {
    const OpId op = plan_.steps[step];
    for (ValueId v : graph_.inputs[op]) {
      if (graph_.is_graph_input(v)) continue;
      if (newest_[v] == kGone) return fail(Rule::kOnDevice, step, v);
      CopiedInstance& read = instance(newest_[v]);
      if (read.usable > step) return fail(Rule::kWaitedFor, step, v);
      read.last = std::max(read.last, step);
      read.last_read = step;
    }
    for (ValueId v : graph_.outputs[op]) add(v, step, step, step);
  }

  void begin_copy_out(ValueId v, StepId step) {
    if (newest_[v] == kGone) return fail(Rule::kCopySource, step, v);
    copied_[v] = newest_[v];
    instance(newest_[v]).is_copied = true;
  }

  void keep_outputs(StepId end) {
    for (ValueId v : graph_.graph_outputs) {
      if (graph_.is_graph_input(v)) continue;
      if (newest_[v] == kGone) return fail(Rule::kKeptOnDevice, StepId::none(), v);
      instance(newest_[v]).last = end.prev();
      instance(newest_[v]).is_kept = true;
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  const CopiesByStep copies_;
  IndexVector<ValueId, std::int64_t> newest_;  ///< index of the newest instance, alive or not
  IndexVector<ValueId, std::int64_t> copied_;  ///< index of the instance that is copied out
  CopyWalk walk_;
};

/// Times steps and copies on the device, the channel out and the channel in.
class Timeline {
 public:
  Timeline(const Graph& graph, const Plan& plan, const Host& host, PlanTimes* written)
      : graph_(graph),
        plan_(plan),
        written_(written),
        clock_(graph, host),
        shared_(host.shared),
        out_done_(graph.num_values(), 0),
        waited_(plan.steps.size() + 1, 0) {
    for (const Copy& copy : plan.copies) (copy.way == Way::kOut ? outs_ : ins_).push_back(&copy);
    if (written_) written_->copies.resize(plan.copies.size());
  }

  CopyTimes run() {
    const StepId end(std::ssize(plan_.steps));
    for (StepId step(0); step <= end; ++step) {
      for (; in_ < ins_.size() && ins_[in_]->issue == step; ++in_) issue(*ins_[in_]);
      const Wide start = std::max(device_time_, waited_[step]);
      times_.stalled += start - device_time_;
      device_time_ = start;
      if (step == end) break;
      device_time_ += graph_.duration[plan_.steps[step]].count();
      if (written_) written_->steps.push_back(span(start, device_time_));
      for (; out_ < outs_.size() && outs_[out_]->issue == step; ++out_) issue(*outs_[out_]);
    }
    times_.duration = device_time_;
    return times_;
  }

 private:
  static TimeSpan span(Wide begin, Wide end) { return {Duration(capped(begin)), Duration(capped(end))}; }

  void issue(const Copy& copy) {
    const bool is_out = copy.way == Way::kOut;
    const Wide takes = clock_.time(copy.way, graph_.bytes[copy.value]);
    Wide& channel = is_out || shared_ ? channel_out_ : channel_in_;
    const Wide ready = is_out ? device_time_ : std::max(device_time_, out_done_[copy.value]);
    const Wide finish = std::max(ready, channel) + takes;
    channel = finish;
    if (written_) written_->copies[at(&copy - plan_.copies.data())] = span(finish - takes, finish);
    if (is_out) out_done_[copy.value] = finish;
    (is_out ? times_.busy_out : times_.busy_in) += takes;
    waited_[copy.wait] = std::max(waited_[copy.wait], finish);
  }

  const Graph& graph_;
  const Plan& plan_;
  PlanTimes* written_;  ///< or null
  const CopyClock clock_;
  bool shared_;
  std::vector<const Copy*> outs_, ins_;
  std::size_t out_ = 0, in_ = 0;         ///< the next of each
  IndexVector<ValueId, Wide> out_done_;  ///< when its copy out has ended
  IndexVector<StepId, Wide> waited_;     ///< end of the last copy that the step waits for
  Wide device_time_ = 0, channel_out_ = 0,
       channel_in_ = 0;  ///< times from which the device and the channels are free
  CopyTimes times_;
};

}  // namespace

CopyWalk walk_copies(const Graph& graph, const Plan& plan) { return Walker(graph, plan).run(); }

CopyTimes time_copies(const Graph& graph, const Plan& plan, const Host& host, PlanTimes* written) {
  const CopyTimes times = Timeline(graph, plan, host, written).run();
  // Ops run one after the other; the rest is waiting for copies.
  REMAT_ASSERT_HEAVY(times.duration == total_duration(graph, plan) + times.stalled, times.duration,
                     times.stalled);
  REMAT_ASSERT(times.busy_out <= times.duration && times.busy_in <= times.duration, times.busy_out,
               times.busy_in, times.duration);
  return times;
}

PlanTimes plan_times(const Graph& graph, const Plan& plan, const Host* host) {
  PlanTimes written;
  written.steps.reserve(plan.steps.size());
  if (!plan.copies.empty()) {
    time_copies(graph, plan, *host, &written);
    return written;
  }
  Duration now;
  for (OpId op : plan.steps) {
    const Duration begin = now;
    now += graph.duration[op];
    written.steps.push_back({begin, now});
  }
  return written;
}

IndexVector<StepId, Bytes> host_memory(const Graph& graph, const Plan& plan) {
  IndexVector<ValueId, StepId> last_wait(graph.num_values());
  for (const Copy& copy : plan.copies) last_wait[copy.value] = std::max(last_wait[copy.value], copy.wait);
  IndexVector<StepId, Bytes> change(plan.steps.size() + 2);
  for (const Copy& copy : plan.copies) {
    if (copy.way != Way::kOut) continue;
    change[copy.issue] += graph.bytes[copy.value];
    change[last_wait[copy.value].next()] -= graph.bytes[copy.value];
  }
  IndexVector<StepId, Bytes> memory(plan.steps.size() + 1);
  Bytes held;
  for (StepId step : memory.ids()) memory[step] = held += change[step];
  return memory;
}

Traffic bytes_of_copies(const Graph& graph, const Plan& plan) {
  Wide out = 0, in = 0;
  for (const Copy& copy : plan.copies) {
    (copy.way == Way::kOut ? out : in) += graph.bytes[copy.value].count();
  }
  Traffic traffic;
  traffic.out = Bytes(capped(out));
  traffic.in = Bytes(capped(in));
  for (Bytes held : host_memory(graph, plan)) traffic.host_peak = std::max(traffic.host_peak, held);
  return traffic;
}

}  // namespace remat
