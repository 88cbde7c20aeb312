// The incremental tracker: the exact cost of a sequence of steps while it is edited.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "base/sampled_check.h"
#include "model/step_model.h"
#include "plan/tracker_blocks.h"
#include "remat/plan.h"

namespace remat {

/// What pending edits change: exact, in the graph's time unit and in memory units x steps.
struct Change {
  Wide duration = 0;
  Wide excess = 0;
  /// True if memory would exceed the tracker's range: such a change must not be committed.
  bool out_of_range() const { return excess >= StepBlocks::kNever / 2; }
  friend bool operator==(const Change&, const Change&) = default;
};

/// State: the sequence of occurrences (`StepBlocks`). Derived from it:
/// - per op the chain of its occurrences, by position;
/// - per occurrence and bundle the last reader: the last step that reads that instance, or the occurrence
///   itself where nobody does (steps + 4 bytes per instance);
/// - per step the memory, and how much of it belongs to the step alone and changes: what outputs over inputs
///   take off, less the generator states that a run of an op with several adds; duration; the sum over steps
///   of memory over the budget (`excess`).
///
/// Edits (`insert`, `erase`, `shift`) change sequence, chains and last readers at once and only
/// note which ranges of steps gain or lose bytes. `change()` evaluates all pending edits together by one
/// sweep over those ranges; `commit()` applies them, `rollback(mark)` takes back everything since a mark.
/// So compound moves nest: edit, look, edit further, look, take back. An edit costs the degree of its op
/// and at most one block of steps; `change` and `commit` one look per block (64 steps) of the ranges.
///
/// Preconditions of edits are the caller's: `erasable` and `shiftable` say whether they hold, and an op may
/// be inserted wherever it may run again and all that it reads has an instance.
class Tracker {
 public:
  using Key = StepBlocks::Key;

  /// The graph must outlive the tracker. Starts empty: call `reset`.
  Tracker(const StepModel& graph, OrderMode order) : graph_(&graph), order_(order) {}

  /// Takes a valid plan and a budget; drops everything pending.
  void reset(const Plan& plan, Bytes budget);
  /// A new budget for the same sequence; nothing may be pending.
  void set_budget(Bytes budget);

  // The sequence.
  const StepModel& graph() const { return *graph_; }
  OrderMode order() const { return order_; }
  std::int64_t steps() const { return blocks_.size() - 2; }
  Wide duration() const { return duration_; }  ///< of the committed sequence
  Wide excess() const { return excess_; }      ///< of the committed sequence
  std::int64_t peak_units() const { return blocks_.peak(); }
  OpId op(OccId occ) const { return op_[occ]; }
  Key key(OccId occ) const { return blocks_.key(occ); }
  OccId next(OccId occ) const { return blocks_.next(occ); }
  OccId prev(OccId occ) const { return blocks_.prev(occ); }
  bool present(OccId occ) const { return blocks_.contains(occ); }
  const StepBlocks& blocks() const { return blocks_; }
  OccId begin_occ() const { return head_[graph_->begin_op]; }
  OccId end_occ() const { return head_[graph_->end_op]; }
  Plan plan() const;

  // Occurrences of one op, by position.
  OccId first(OpId op) const { return head_[op]; }
  OccId last(OpId op) const { return tail_[op]; }
  OccId next_run(OccId occ) const { return next_run_[occ]; }
  OccId prev_run(OccId occ) const { return prev_run_[occ]; }
  /// The last occurrence of op before a position, or none.
  OccId newest_before(OpId op, Key key) const {
    OccId occ = tail_[op];
    while (occ && this->key(occ) >= key) occ = prev_run_[occ];
    return occ;
  }
  /// Occurrences that have an earlier one of the same op, in no particular order.
  const std::vector<OccId>& recomputations() const { return extras_; }

  // Instances.
  OccId last_reader(OccId occ, BundleId bundle) const { return last_reader_[instance(occ, bundle)]; }
  /// The last reader of the instance made by `occ` that lies before a position; `occ` itself if none does.
  OccId last_reader_before(OccId occ, BundleId bundle, Key key) const;
  /// The first reader of the instance made by `occ`, or none.
  OccId first_reader(OccId occ, BundleId bundle) const;
  bool unread(OccId occ) const;

  // May an edit be made? They check the rules of valid plans in the tracker's order mode.
  bool erasable(OccId occ) const;
  bool shiftable(OccId occ, OccId before) const;

  // Edits.
  OccId insert(OpId op, OccId before);
  void erase(OccId occ);
  /// Moves a step to just before another; returns its new id.
  OccId shift(OccId occ, OccId before);
  /// Erases recomputations that pending edits left unread, cascades included. Returns how many.
  std::int64_t trim();

  /// Valid until the next commit or a rollback to an earlier mark.
  struct Mark {
    std::size_t log = 0, deltas = 0, overlaps = 0, unread = 0;
    Wide duration = 0, excess = 0;
  };
  Mark mark() const {
    return {log_.size(),    deltas_.size(),    overlaps_.size(),
            unread_.size(), pending_duration_, pending_excess_};
  }
  /// The change by all edits since the last commit.
  Change change();
  Wide pending_duration() const { return pending_duration_; }
  void commit();
  void rollback(const Mark& mark);
  void rollback() { rollback(Mark()); }
  /// Work so far, in units of about ten nanoseconds: deterministic, for work limits.
  std::int64_t ticks() const { return ticks_; }
  /// True for steps inserted since the last commit.
  bool pending(OccId occ) const { return committed_at_[occ] == 0; }

  /// Rebuilds everything from the sequence, memory by the reference simulator, and returns the first
  /// difference, or empty. Nothing may be pending. Builds with heavy checks call it after `commit` and
  /// `rollback`.
  std::string verify() const;

 private:
  enum class LogKind : std::uint8_t { kInsert, kErase, kLastReader, kAfter, kUpto };
  struct LogEntry {
    LogKind kind;
    std::int32_t at;     ///< occurrence, or index into last_reader_ or deltas_
    OccId occ;           ///< the previous entry; for kErase the step behind the erased one
    std::int64_t units;  ///< memory of the erased step
  };
  /// Steps behind `after` up to and including `upto` gain `units`.
  struct Delta {
    OccId after, upto;
    std::int64_t units;
  };
  /// One step takes `units` more, wherever it lies. No effect while the step is erased.
  struct StepDelta {
    OccId occ;
    std::int64_t units;
  };
  struct Edge {
    Key key;
    std::int64_t units;
  };

  std::size_t instance(OccId occ, BundleId bundle) const {
    return narrow<std::size_t>(base_[occ] + (bundle.index() - graph_->first_bundle[op_[occ]].index()));
  }
  OccId new_occ(OpId op);
  void link(OccId occ, OccId prev_run);
  void unlink(OccId occ);
  void set_extra(OccId occ, bool extra);
  void set_last(OccId occ, BundleId bundle, OccId reader);
  Wide excess_of_step(std::int64_t memory) const;
  void add_delta(OccId after, OccId upto, std::int64_t units);
  void add_overlap(OccId reader, BundleId bundle, int sign);
  void add_states(OpId op, int sign);
  void forget_endpoint(OccId occ, OccId instead);
  void collect_edges();
  void finish_log();
  void start_chain(OccId occ);
  bool is_right_or_not_due(const SampledCheck& sampled, std::int64_t rarely = 1) const;
  std::string verify_chains() const;
  std::string verify_instances() const;
  std::string verify_overlaps() const;
  std::string verify_memory() const;

  const StepModel* graph_;
  OrderMode order_;
  StepBlocks blocks_;
  Wide duration_ = 0;
  Wide excess_ = 0;

  // By op.
  IndexVector<OpId, OccId> head_, tail_;
  // By occurrence.
  IndexVector<OccId, OpId> op_;
  IndexVector<OccId, OccId> next_run_, prev_run_;
  IndexVector<OccId, std::int32_t> base_;          ///< of its instances in last_reader_
  IndexVector<OccId, std::int32_t> extra_at_;      ///< place in extras_, or -1
  IndexVector<OccId, std::uint8_t> committed_at_;  ///< 0 while pending
  IndexVector<OccId, std::int64_t> overlap_;       ///< already subtracted from the memory in `blocks_`
  std::vector<OccId> last_reader_;                 ///< by instance
  std::vector<OccId> extras_;
  std::vector<std::vector<OccId>> free_;  ///< unused occurrences, by number of bundles

  // Pending.
  std::vector<LogEntry> log_;
  std::vector<Delta> deltas_;
  std::vector<StepDelta> overlaps_;
  std::vector<OccId> unread_;
  Wide pending_duration_ = 0;
  Wide pending_excess_ = 0;  ///< of inserted and erased steps, before all deltas
  std::vector<Edge> edges_;
  Change change_;           ///< the last result of change()
  bool evaluated_ = false;  ///< true while change_ and edges_ describe the pending edits
  std::vector<OccId> touched_;
  SampledCheck commits_, rollbacks_;
  mutable std::int64_t ticks_ = 0;
};

}  // namespace remat
