#include "planners/offload/timetable.h"

#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "model/step.h"

namespace remat::offload {
namespace {

/// Insertion sort: lists are nearly sorted.
template <class Less>
void insertion_sort(std::vector<int>& order, Less&& less) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    const int moved = order[i];
    std::size_t to = i;
    for (; to > 0 && less(moved, order[to - 1]); --to) order[to] = order[to - 1];
    order[to] = moved;
  }
}

}  // namespace

Timetable::Copied Timetable::Channel::copy(Way way, Wide ready, Wide time, OpId op) {
  if (ready > free_ || first_.is_none()) {
    begin_ = ready;
    first_ = op;
  }
  free_ = std::max(free_, ready) + time;
  return {free_, begin_, first_, op, way};
}

Timetable::Timetable(const Graph& graph, Bytes budget, const Host& host)
    : graph_(graph),
      budget_(budget),
      is_shared_(host.shared),
      has_states_(has_rerun_states(graph)),
      out_time_(graph.num_values()),
      in_time_(graph.num_values()) {
  const CopyClock clock(graph, host);
  for (ValueId v : graph.values()) {
    out_time_[v] = clock.time(Way::kOut, graph.bytes[v]);
    in_time_[v] = clock.time(Way::kIn, graph.bytes[v]);
  }
}

const Simulation& Timetable::evaluate(const Script& script) {
  read(script);
  schedule_out();
  schedule_in();
  fill_memory();
  fit();
  run();
  measure();
  return cost_;
}

void Timetable::read(const Script& script) {
  steps_.clear();
  start_.clear();
  outs_.clear();
  ins_.clear();
  last_reads_.clear();
  uses_.assign(graph_.num_values(), Use());
  memory_.assign(script.size() + 2, Bytes());
  Wide now = 0;
  for (const Item& item : script) {
    if (!item.op) {
      uses_[item.fetched].is_fetched = true;
      continue;
    }
    const StepId step = end();
    for (ValueId v : graph_.inputs[item.op]) {
      if (!graph_.is_graph_input(v)) use(v, step);
    }
    for (ValueId v : graph_.outputs[item.op]) make(v, step);
    start_.push_back(now);
    now += graph_.duration[item.op].count();
    steps_.push_back(item.op);
  }
  start_.push_back(now);
  for (ValueId v : graph_.graph_outputs) {
    if (!graph_.is_graph_input(v)) use(v, end());
  }
  for (ValueId v : graph_.values()) {
    if (uses_[v].made) close(v);
  }
  for (Out& one : outs_) one.last = uses_[one.value].first_last;
}

void Timetable::use(ValueId v, StepId step) {
  Use& one = uses_[v];
  if (one.is_fetched && one.last.next() < step) {
    close(v);
    if (one.out == kNoCopy) {
      one.out = narrow<int>(std::ssize(outs_));
      outs_.push_back({v, one.made, {}, {}, step});
    }
    ++outs_[at(one.out)].backs;
    ins_.push_back({v, one.out, one.last, step, {}});
    one.is_first = false;
    one.first = step;
  }
  one.is_fetched = false;
  one.last = step;
  if (one.is_first) one.first_last = step;
}

void Timetable::make(ValueId v, StepId step) {
  Use& one = uses_[v];
  one.is_first = one.made.is_none();
  if (one.is_first) {
    one.made = one.first_last = step;
  } else {
    close(v);
  }
  one.first = one.last = step;
  one.is_fetched = false;
}

/// Ends the newest instance of a value.
void Timetable::close(ValueId v) {
  const Use& one = uses_[v];
  memory_[one.first] += graph_.bytes[v];
  memory_[one.last.next()] -= graph_.bytes[v];
  if (one.last < end() || !graph_.kept[v]) last_reads_.push_back({v, one.last, one.is_first});
}

void Timetable::schedule_out() {
  out_order_.clear();
  for (int i : indices(outs_)) out_order_.push_back(i);
  std::ranges::stable_sort(out_order_, {}, [&](int i) { return outs_[at(i)].made; });
  Wide free = 0;
  for (int i : out_order_) {
    Out& one = outs_[at(i)];
    free = std::max(free, start_[one.made.next()]) + out_time_[one.value];
    one.finish = free;
    one.wait = one.last.next();
    while (one.wait < one.back && start_[one.wait] < free) ++one.wait;
  }
}

void Timetable::schedule_in() {
  // Copies in are listed by the steps that read them.
  Wide latest = start_[end()];
  for (std::size_t i = ins_.size(); i-- > 0;) {
    In& one = ins_[i];
    latest = std::min(latest, start_[one.next]) - in_time_[one.value];
    const StepId earliest = std::max(outs_[at(one.out)].wait, one.last.next());
    one.issue = one.next;
    while (one.issue > earliest && start_[one.issue] > latest) one.issue = one.issue.prev();
  }
}

void Timetable::fill_memory() {
  for (const LastRead& read : last_reads_) {
    if (read.is_first && uses_[read.value].out != kNoCopy) continue;
    if (read.step >= end() || graph_.producer[read.value] == steps_[read.step]) continue;
    const Bytes saved = reuse_of(graph_, steps_[read.step], read.value);
    memory_[read.step] -= saved;
    memory_[read.step.next()] += saved;
  }
  const auto hold = [&](ValueId v, StepId first, StepId last) {
    memory_[first] += graph_.bytes[v];
    memory_[last] -= graph_.bytes[v];
  };
  for (const Out& one : outs_) hold(one.value, one.last.next(), one.wait);
  for (const In& one : ins_) hold(one.value, one.issue, one.next);
  Bytes live = graph_.resident;
  for (StepId step : steps_.ids()) {
    live += memory_[step];
    memory_[step] = live + momentary(graph_, steps_[step]);
  }
  if (!has_states_) return;
  const IndexVector<StepId, Bytes> states = saved_generator_states(graph_, Plan{steps_});
  for (StepId step : steps_.ids()) memory_[step] += states[step];
}

/// Moves waits and issues of copies until no step is over the budget, or none can move.
void Timetable::fit() {
  for (StepId step : steps_.ids()) {
    while (memory_[step] > budget_ && relieve(step)) continue;
  }
}

/// The cheapest move that takes a value off the device at the step; false where there is none.
bool Timetable::relieve(StepId step) {
  Out* out = nullptr;
  In* in = nullptr;
  double least = 0;
  const auto is_least = [&](ValueId v, Wide late) {
    const double stall = real(std::max<Wide>(0, late)) + 1;
    const double price = stall / std::max(1.0, real(graph_.bytes[v]));
    if ((out || in) && price >= least) return false;
    least = price;
    return true;
  };
  for (Out& one : outs_) {
    if (step <= one.last || step >= one.wait || !is_least(one.value, one.finish - start_[step])) continue;
    out = &one;
  }
  for (In& one : ins_) {
    if (one.issue > step || step >= one.next) continue;
    if (!is_least(one.value, start_[step.next()] + in_time_[one.value] - start_[one.next])) continue;
    in = &one;
    out = nullptr;
  }
  if (!out && !in) return false;
  const ValueId v = out ? out->value : in->value;
  const StepId first = out ? step : in->issue, last = out ? out->wait : step.next();
  (out ? out->wait : in->issue) = out ? step : last;
  for (StepId moved : IdRange<StepId>(first, last)) memory_[moved] -= graph_.bytes[v];
  return true;
}

/// Computes the times of steps and copies.
void Timetable::run() {
  in_order_.clear();
  for (int i : indices(ins_)) {
    Out& out = outs_[at(ins_[at(i)].out)];
    if (ins_[at(i)].next == out.back) out.is_gone = out.backs > 1 || out.wait < ins_[at(i)].issue;
    if (out.is_gone) in_order_.push_back(i);
  }
  std::erase_if(out_order_, [&](int i) { return !outs_[at(i)].is_gone; });
  const auto out_key = [&](int i) { return std::tuple(outs_[at(i)].made, outs_[at(i)].wait); };
  const auto in_key = [&](int i) { return std::tuple(ins_[at(i)].issue, ins_[at(i)].next); };
  insertion_sort(out_order_, [&](int a, int b) { return out_key(a) < out_key(b); });
  insertion_sort(in_order_, [&](int a, int b) { return in_key(a) < in_key(b); });
  reached_.assign(steps_.size() + 1, OpId(graph_.ops().size()).prev());
  OpId latest(0);
  for (StepId step : steps_.ids()) reached_[step] = latest = std::max(latest, steps_[step]);
  awaited_.assign(steps_.size() + 1, Copied());
  stalls_.clear();
  Wide now = 0, stalled = 0;
  Channel out, in;
  Channel& back = is_shared_ ? out : in;
  std::size_t next_out = 0, next_in = 0;
  const auto await = [&](StepId step, const Copied& copied) {
    if (copied.finish > awaited_[step].finish) awaited_[step] = copied;
  };
  for (StepId step(0); step <= end(); ++step) {
    for (; next_in < in_order_.size(); ++next_in) {
      const In& one = ins_[at(in_order_[next_in])];
      if (one.issue != step) break;
      const Wide ready = std::max(now, outs_[at(one.out)].finish);
      await(one.next, back.copy(Way::kIn, ready, in_time_[one.value], reached_[one.next]));
    }
    if (const Copied& last = awaited_[step]; last.finish > now) {
      stalls_.push_back({last.way, std::min(last.first, last.last), last.last, last.finish - now,
                         last.finish - last.begin});
      stalled += last.finish - now;
      now = last.finish;
    }
    if (step == end()) break;
    now += graph_.duration[steps_[step]].count();
    for (; next_out < out_order_.size(); ++next_out) {
      Out& one = outs_[at(out_order_[next_out])];
      if (one.made != step) break;
      const Copied copied = out.copy(Way::kOut, now, out_time_[one.value], reached_[step]);
      one.finish = copied.finish;
      await(one.wait, copied);
    }
  }
  cost_.duration = Duration(capped(now));
  cost_.traffic.stalled = Duration(capped(stalled));
}

void Timetable::measure() {
  cost_.peak = Bytes();
  for (StepId step : steps_.ids()) {
    if (memory_[step] <= cost_.peak) continue;
    cost_.peak = memory_[step];
    cost_.peak_step = step;
  }
  on_host_.assign(steps_.size() + 2, Bytes());
  cost_.traffic.out = Bytes();
  for (int i : out_order_) {
    const Out& one = outs_[at(i)];
    on_host_[at(one.made)] += graph_.bytes[one.value];
    cost_.traffic.out += graph_.bytes[one.value];
  }
  // Listed by reader, so the last copy of a value comes last.
  for (int i : indices(ins_)) {
    Out& out = outs_[at(ins_[at(i)].out)];
    if (out.is_gone && --out.backs == 0) on_host_[at(ins_[at(i)].next.next())] -= graph_.bytes[out.value];
  }
  cost_.traffic.host_peak = Bytes();
  Bytes held;
  for (Bytes change : on_host_) cost_.traffic.host_peak = std::max(cost_.traffic.host_peak, held += change);
}

Plan Timetable::plan() const {
  Plan plan{steps_, {}};
  for (int i : out_order_) {
    const Out& one = outs_[at(i)];
    plan.copies.push_back({one.value, Way::kOut, one.made, one.wait});
  }
  for (int i : in_order_) {
    const In& one = ins_[at(i)];
    plan.copies.push_back({one.value, Way::kIn, one.issue, one.next});
  }
  std::ranges::stable_sort(plan.copies, {}, &Copy::issue);
  return plan;
}

}  // namespace remat::offload
