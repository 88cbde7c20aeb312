// Compares the tracker with a rebuild from its sequence alone.
#include "base/numbers.h"
#include "plan/tracker.h"

namespace remat {
namespace {

std::string differ(const std::string& what, Wide held, Wide rebuilt) {
  return what + ": held " + to_string(held) + ", rebuilt " + to_string(rebuilt);
}

}  // namespace

std::string Tracker::verify() const {
  if (!log_.empty()) return "edits are pending";
  if (!blocks_.consistent()) return "blocks are inconsistent";
  const Plan now = plan();
  if (const auto broken = validate(*graph_->graph, now, order_)) return broken->message;
  if (std::string s = verify_chains(); !s.empty()) return s;
  if (std::string s = verify_instances(); !s.empty()) return s;
  return verify_memory();
}

std::string Tracker::verify_chains() const {
  IndexVector<OpId, OccId> latest(head_.size());
  std::int64_t extras = 0;
  for (OccId occ = begin_occ(); occ; occ = next(occ)) {
    const OpId op = op_[occ];
    if (prev_run_[occ] != latest[op]) {
      return differ("previous run of occurrence " + std::to_string(occ.index()), prev_run_[occ].index(),
                    latest[op].index());
    }
    if (!latest[op] && head_[op] != occ) return differ("first run", head_[op].index(), occ.index());
    if (latest[op] && next_run_[latest[op]] != occ)
      return differ("next run", next_run_[latest[op]].index(), occ.index());
    const bool extra = latest[op] && true;
    if (extra != (extra_at_[occ] >= 0)) return differ("place among recomputations", extra_at_[occ], extra);
    if (extra && extras_[at(extra_at_[occ])] != occ) return "recomputations hold another step";
    extras += extra;
    latest[op] = occ;
  }
  for (OpId op : latest.ids()) {
    if (tail_[op] != latest[op])
      return differ("last run of op " + std::to_string(op.index()), tail_[op].index(), latest[op].index());
  }
  return extras == std::ssize(extras_) ? "" : differ("recomputations", std::ssize(extras_), extras);
}

std::string Tracker::verify_instances() const {
  std::vector<OccId> rebuilt(last_reader_.size());
  IndexVector<OpId, OccId> newest(head_.size());
  for (OccId occ = begin_occ(); occ; occ = next(occ)) {
    for (BundleId b : graph_->inputs[op_[occ]]) rebuilt[instance(newest[graph_->producer[b]], b)] = occ;
    for (BundleId b : graph_->bundles(op_[occ])) rebuilt[instance(occ, b)] = occ;
    newest[op_[occ]] = occ;
  }
  for (OccId occ = begin_occ(); occ; occ = next(occ)) {
    for (BundleId b : graph_->bundles(op_[occ])) {
      const std::size_t at = instance(occ, b);
      if (last_reader_[at] == rebuilt[at]) continue;
      return differ("last reader of bundle " + std::to_string(b.index()) + " of occurrence " +
                        std::to_string(occ.index()),
                    last_reader_[at].index(), rebuilt[at].index());
    }
  }
  return "";
}

std::string Tracker::verify_overlaps() const {
  IndexVector<OccId, std::int64_t> rebuilt(op_.size(), 0);
  for (OccId occ = begin_occ(); occ; occ = next(occ)) {
    for (BundleId b : graph_->bundles(op_[occ])) {
      const OccId reader = last_reader(occ, b);
      rebuilt[reader] += graph_->overlap(op_[reader], b);
    }
    const OpId op = op_[occ];
    if (head_[op] != tail_[op]) rebuilt[occ] -= graph_->state[op];
  }
  for (OccId occ = begin_occ(); occ; occ = next(occ)) {
    if (overlap_[occ] != rebuilt[occ])
      return differ("overlap of occurrence " + std::to_string(occ.index()), overlap_[occ], rebuilt[occ]);
  }
  return "";
}

std::string Tracker::verify_memory() const {
  const Graph& graph = *graph_->graph;
  IndexVector<StepId, Bytes> memory;
  const Plan now = plan();
  simulate(graph, now, memory);
  const Wide duration = total_duration(graph, now);
  if (duration != duration_) return differ("duration", duration_, duration);
  Wide excess = 0;
  StepId step(0);
  for (OccId occ = next(begin_occ()); occ != end_occ(); occ = next(occ), ++step) {
    const std::int64_t units = (memory[step] - graph.resident).count() / graph_->unit;
    if (blocks_.memory(occ) != units) {
      return differ("memory of step " + std::to_string(step.index()), blocks_.memory(occ), units);
    }
    excess += blocks_.excess(units);
  }
  if (std::string s = verify_overlaps(); !s.empty()) return s;
  excess += blocks_.excess(blocks_.memory(end_occ()));
  return excess == excess_ ? "" : differ("excess", excess_, excess);
}

}  // namespace remat
