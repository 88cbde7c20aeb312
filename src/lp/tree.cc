#include "lp/tree.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "lp/highs.h"

namespace remat::lp {
namespace {

constexpr double kFractional = 1e-6;

/// State: the columns fixed on the path from the root to the current node (`trail_`), and the open nodes. A
/// node fixes one column more than its parent's trail.
class Tree {
 public:
  using OnSolution = std::function<std::optional<double>(const std::vector<double>&)>;

  Tree(Model model, double cutoff, const OnSolution& on_solution, Limits& limits)
      : model_(std::move(model)),
        relaxation_(model_),
        cutoff_(cutoff),
        on_solution_(on_solution),
        limits_(limits) {}

  TreeOutcome run() {
    visit(-kInfinity);
    while (!open_.empty() && !limits_.reached()) {
      const Node node = open_.back();
      open_.pop_back();
      if (node.bound > cutoff_ || node.bound >= left_) continue;
      back_to(node.depth);
      fix(node.column, node.value);
      visit(node.bound);
    }
    for (const Node& node : open_) leave(node.bound);
    outcome_.closed = left_ > cutoff_;
    outcome_.bound = left_;
    return outcome_;
  }

 private:
  struct Node {
    std::size_t depth;  ///< of the parent's trail
    Column column;
    double value;
    double bound;  ///< proved of the parent
  };

  /// Leaves a node open: not proved empty at or below the cutoff.
  void leave(double bound) {
    if (bound <= cutoff_) left_ = std::min(left_, bound);
  }

  void visit(double bound) {
    ++outcome_.nodes;
    const Solution solution = relaxation_.solve(limits_);
    outcome_.iterations += solution.iterations;
    if (solution.outcome == Outcome::kInfeasible) return;
    bound = std::max(bound, solution.bound);
    if (bound > cutoff_) return;
    if (solution.outcome == Outcome::kStopped || !solution.x) return leave(bound);
    for (Column column : fix_by_reduced_cost(model_, solution.row_dual, cutoff_)) settle(column);
    const Column column = most_expensive_fraction(*solution.x);
    if (column < 0) {
      if (const auto lower = on_solution_(*solution.x)) cutoff_ = std::min(cutoff_, *lower);
      return leave(bound);
    }
    const double near = std::round((*solution.x)[at(column)]);
    open_.push_back({trail_.size(), column, 1 - near, bound});
    open_.push_back({trail_.size(), column, near, bound});
  }

  Column most_expensive_fraction(const std::vector<double>& x) const {
    Column best = -1;
    double most = 0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      const double off = std::fabs(x[c] - std::round(x[c]));
      if (!model_.integer[c] || off < kFractional || model_.lower[c] == model_.upper[c]) continue;
      const double score = off * (1 + model_.cost[c]);
      if (score <= most) continue;
      most = score;
      best = static_cast<Column>(c);
    }
    return best;
  }

  void fix(Column column, double value) {
    model_.lower[at(column)] = model_.upper[at(column)] = value;
    settle(column);
  }
  void settle(Column column) {
    trail_.push_back(column);
    relaxation_.update(column);
  }
  void back_to(std::size_t depth) {
    for (; trail_.size() > depth; trail_.pop_back()) {
      const auto c = narrow<std::size_t>(trail_.back());
      model_.lower[c] = 0;
      model_.upper[c] = 1;
      relaxation_.update(trail_.back());
    }
  }

  Model model_;
  Relaxation relaxation_;
  double cutoff_;
  const OnSolution& on_solution_;
  Limits& limits_;
  std::vector<Column> trail_;
  std::vector<Node> open_;
  double left_ = kInfinity;  ///< least bound of the open nodes
  TreeOutcome outcome_;
};

}  // namespace

TreeOutcome search_tree(Model model, double cutoff, const Tree::OnSolution& on_solution, Limits& limits) {
  return Tree(std::move(model), cutoff, on_solution, limits).run();
}

}  // namespace remat::lp
