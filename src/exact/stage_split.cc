// Checks a relaxation's solution against one more stage.
#include <algorithm>

#include "exact/stage_row.h"

namespace remat {

/// Splits the stage of `at` in two, the first half ended by `at`: reruns that first runs of the first half
/// need stay there, all others move to the second half, and values that the second half needs and does not
/// make are held.
class StageModel::Split {
 public:
  Split(const StageModel& model, const std::vector<double>& x, OpId at)
      : model_(model),
        graph_(model.graph_),
        x_(x),
        at_(at),
        stage_(model.stage_of_[at]),
        early_(graph_.num_ops(), 0),
        late_(graph_.num_ops(), 0) {}

  double memory() {
    double sum = model_.need(at_);
    const bool ends_it = at_.next() == model_.end_of(stage_);  // all its reruns are before
    if (!ends_it) find_early();
    for (OpId op = at_; op && !ends_it; op = op.prev()) {
      const lp::Column again = model_.rerun_column(stage_, op);
      late_[op] = again < 0 ? 0 : std::max(0.0, x_[at(again)] - early_[op]);
    }
    for (ValueId v : graph_.values()) {
      const OpId maker = graph_.producer[v];
      if (!maker || maker >= at_) continue;
      const double held = late_want(v) - late_[maker];
      if (held > 0) sum += held * model_.beside(at_, v);
    }
    return sum;
  }

 private:
  double held_before(ValueId v) const {
    return model_.before(stage_, v) ? model_.value_at(model_.held(stage_, v), x_) : 1;
  }
  bool is_read(ValueId v, OpId from, OpId to) const {
    const auto readers = graph_.readers[v];
    return std::any_of(readers.begin(), readers.end(),
                       [&](OpId reader) { return reader >= from && reader < to; });
  }

  /// Latest first, so that the readers of an op's outputs are known.
  void find_early() {
    for (OpId op = model_.begin_of(stage_).prev(); op; op = op.prev()) {
      double want = 0;
      for (ValueId v : graph_.outputs[op]) {
        double most = is_read(v, model_.begin_of(stage_), at_.next()) ? 1 : 0;
        for (OpId reader : graph_.readers[v]) most = std::max(most, early_[reader]);
        want = std::max(want, most - held_before(v));
      }
      early_[op] = want;
    }
  }

  double late_want(ValueId v) const {
    if (is_read(v, at_.next(), model_.end_of(stage_))) return 1;
    double most = model_.value_at(model_.held(stage_ + 1, v), x_);
    for (OpId reader : graph_.readers[v]) {
      if (reader <= at_) most = std::max(most, late_[reader]);
    }
    return most;
  }

  const StageModel& model_;
  const Graph& graph_;
  const std::vector<double>& x_;
  OpId at_;
  int stage_;
  IndexVector<OpId, double> early_, late_;
};

double StageModel::excess_at(const std::vector<double>& x, OpId at) const {
  return Split(*this, x, at).memory() / std::max(capacity_, 1e-9) - 1;
}

}  // namespace remat
