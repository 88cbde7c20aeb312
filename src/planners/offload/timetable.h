// The times of the copies of a script, and the cost of the plan.
#pragma once

#include <vector>

#include "planners/offload/script.h"
#include "remat/plan.h"

namespace remat::offload {

/// Times the copies of scripts, one script at a time. Copies out are issued at the end of the step that first
/// makes the value, and waited for at the first step after the instance's last reader that need not stall for
/// it. Copies in are issued as late as the next reader and later copies allow. Both channels are first in,
/// first out. If a step is then over the budget, copies out are waited for earlier and copies in issued
/// later, those with the least stall first. O(edges + copies x steps over the budget).
class Timetable {
 public:
  Timetable(const Graph& graph, Bytes budget, const Host& host);

  /// The cost of the script's plan by the rules of the reference simulator. Its memory may be too high, by
  /// overlaps with values that turn out to stay on the device. Traffic has only the stalls, the bytes out and
  /// the host peak.
  const Simulation& evaluate(const Script& script);
  /// A step that waits for a copy, and the busy period of its channel: the copies without a pause up to that
  /// one, whose values are made (out) or needed (in) between two ops of the order.
  struct Stall {
    Way way;
    OpId first, last;
    Wide length;   ///< time that the step waits
    Wide copying;  ///< time of all these copies
  };
  /// Of the script that was evaluated last.
  const std::vector<Stall>& stalls() const { return stalls_; }
  /// Of the script that was evaluated last: valid, and may be over the budget.
  Plan plan() const;

 private:
  static constexpr int kNoCopy = -1;

  /// A copy out: issued after step `made`; its bytes are free from `wait` on, after `last`, the instance's
  /// last reader.
  struct Out {
    ValueId value;
    StepId made, last, wait;
    StepId back;  ///< the step that reads it first when it is back
    int backs = 0;
    bool is_gone = true;
    Wide finish = 0;
  };
  /// A copy in for step `next`; the end of the plan if the value is kept.
  struct In {
    ValueId value;
    int out = kNoCopy;
    StepId last, next, issue;  ///< `last` reads it last before
  };
  /// The newest instance of a value.
  struct Use {
    StepId made;         ///< the first instance; none before it
    StepId first, last;  ///< of the newest: its making, or first reader when it is back; and last use
    StepId first_last;   ///< the last use of the first instance
    bool is_first = true, is_fetched = false;
    int out = kNoCopy;
  };

  /// A copy, and the start of its channel's busy period: its time, and its op.
  struct Copied {
    Wide finish = 0, begin = 0;
    OpId first, last;
    Way way = Way::kOut;
  };
  class Channel {
   public:
    Copied copy(Way way, Wide ready, Wide time, OpId op);

   private:
    Wide free_ = 0, begin_ = 0;
    OpId first_;
  };

  StepId end() const { return StepId(std::ssize(steps_)); }
  void read(const Script& script);
  void use(ValueId v, StepId step);
  void make(ValueId v, StepId step);
  void close(ValueId v);
  void schedule_out();
  void schedule_in();
  void fill_memory();
  void fit();
  bool relieve(StepId step);
  void run();
  void measure();

  const Graph& graph_;
  const Bytes budget_;
  const bool is_shared_;
  const bool has_states_;
  IndexVector<ValueId, Wide> out_time_, in_time_;

  IndexVector<StepId, OpId> steps_;
  IndexVector<StepId, Wide> start_;    ///< of every step if nothing stalls, and the end
  IndexVector<StepId, Bytes> memory_;  ///< of every step; until `fill_memory` what a step adds
  IndexVector<ValueId, Use> uses_;
  IndexVector<ValueId, Wide> out_done_;
  struct LastRead {
    ValueId value;
    StepId step;
    bool is_first;
  };
  std::vector<LastRead> last_reads_;
  std::vector<Out> outs_;
  std::vector<In> ins_;
  std::vector<int> out_order_, in_order_;  ///< as they are issued
  std::vector<Bytes> on_host_;
  std::vector<Stall> stalls_;
  IndexVector<StepId, OpId> reached_;    ///< the last op of the order that has run, the step's included
  IndexVector<StepId, Copied> awaited_;  ///< the copy that ends last of those that the step waits for
  Simulation cost_;
};

}  // namespace remat::offload
