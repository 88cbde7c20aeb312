// Rows over several stages: the rows of a model with fewer, longer stages, in the same columns.
#include <algorithm>

#include "exact/stage_row.h"

namespace remat {

/// The demand of stages `from` to `to` for each value and op made before them, and the stage with the most.
class StageModel::Paths {
 public:
  Paths(const StageModel& model, const std::vector<double>& x, int from, int to)
      : model_(model),
        graph_(model.graph_),
        x_(x),
        from_(from),
        to_(to),
        wanted_(graph_.num_values(), 0),
        by_(graph_.num_values()),
        again_(graph_.num_ops(), 0),
        through_(graph_.num_ops()) {}

  /// Adds the rows that `x` violates most to `target`.
  int add_broken(lp::Model& target) {
    seed();
    std::vector<std::pair<double, OpId>> broken;
    for (OpId op = model_.begin_of(from_).prev(); op; op = op.prev()) {
      const double missing = want(op) - reruns(op);
      if (missing > kBroken) broken.emplace_back(missing, op);
    }
    std::sort(broken.begin(), broken.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    if (broken.size() > kMostOfPair) broken.resize(kMostOfPair);
    for (const auto& [missing, op] : broken) add_row(op, target);
    return narrow<int>(std::ssize(broken));
  }

 private:
  static constexpr double kBroken = 1e-3;
  static constexpr std::size_t kMostOfPair = 24;

  double at_x(const Literal& literal) const { return value_at(literal, x_); }
  bool is_read_last(ValueId v) const {
    const auto readers = graph_.readers[v];
    return std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
      return reader >= model_.begin_of(to_) && reader < model_.end_of(to_);
    });
  }
  bool is_seed_one(ValueId v) const { return is_read_last(v) || model_.held(to_ + 1, v).is_one(); }

  void seed() {
    for (ValueId v : graph_.values()) {
      if (!model_.made_by_op(v) || !model_.before(from_, v) || model_.last_use_[v] < to_) continue;
      wanted_[v] = is_seed_one(v) ? 1 : at_x(model_.held(to_ + 1, v));
    }
  }

  double reruns(OpId op) const {
    double sum = 0;
    for (int s = from_; s <= to_; ++s) sum += at_x(model_.rerun(s, op));
    return sum;
  }

  /// The least fraction of the op that must be rerun, and so of the makers of inputs that are not held.
  double want(OpId op) {
    double most = model_.rerun_column(to_, op) >= 0 ? at_x(model_.rerun(to_, op)) : 0;
    for (ValueId v : graph_.outputs[op]) {
      const double want = wanted_[v] - at_x(model_.held(from_, v));
      if (want <= most) continue;
      most = want;
      through_[op] = v;
    }
    again_[op] = most;
    for (ValueId v : graph_.inputs[op]) {
      if (!model_.made_by_op(v) || most <= wanted_[v]) continue;
      wanted_[v] = most;
      by_[v] = op;
    }
    return most;
  }

  /// Along the path of the stage that wants it: one of its values is held into the stages, or `op` runs in
  /// them.
  void add_row(OpId op, lp::Model& target) const {
    Row row(target);
    for (int s = from_; s <= to_; ++s) row.add(model_.rerun(s, op), 1);
    while (true) {
      const ValueId v = through_[op];
      row.add(model_.held(from_, v), 1);
      if (!by_[v]) return is_seed_one(v) ? row.at_least(1) : row.add(model_.held(to_ + 1, v), -1).at_least(0);
      op = by_[v];
      if (!through_[op]) return row.add(model_.rerun(to_, op), -1).at_least(0);
    }
  }

  const StageModel& model_;
  const Graph& graph_;
  const std::vector<double>& x_;
  int from_, to_;
  IndexVector<ValueId, double> wanted_;
  IndexVector<ValueId, OpId> by_;  ///< the rerun that wants it; none: the stages themselves
  IndexVector<OpId, double> again_;
  IndexVector<OpId, ValueId> through_;  ///< the output that is wanted most; none: it runs again by itself
};

int StageModel::add_paths(const std::vector<double>& x, lp::Model& target) const {
  int added = 0;
  for (int from = 1; from < stages_; ++from) {
    for (int to = from + 1; to < stages_; ++to) added += Paths(*this, x, from, to).add_broken(target);
  }
  return added;
}

}  // namespace remat
