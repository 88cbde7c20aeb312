#include "lp/model.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat::lp {

Column Model::add_column(double c, double lo, double hi, bool is_integer) {
  REMAT_ASSERT(lo <= hi, lo, hi, num_columns());
  cost.push_back(c);
  lower.push_back(lo);
  upper.push_back(hi);
  integer.push_back(is_integer);
  return num_columns() - 1;
}

void Model::add_row(double lo, double hi, std::span<const Term> terms) {
  REMAT_ASSERT(lo <= hi, lo, hi, num_rows());
  REMAT_ASSERT(std::ranges::all_of(terms,
                                   [&](const Term& term) {
                                     return term.column >= 0 && term.column < num_columns() &&
                                            std::isfinite(term.factor);
                                   }),
               num_rows(), num_columns());
  std::vector<Term> sorted(terms.begin(), terms.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Term& a, const Term& b) { return a.column < b.column; });
  for (std::size_t i = 0; i < sorted.size();) {
    double factor = 0;
    const Column column = sorted[i].column;
    for (; i < sorted.size() && sorted[i].column == column; ++i) factor += sorted[i].factor;
    if (factor == 0) continue;
    entry_column.push_back(column);
    entry_factor.push_back(factor);
  }
  const int end = narrow<int>(entry_column.size());
  if (end == row_begin.back() && lo <= 0 && hi >= 0) return;
  row_begin.push_back(end);
  row_lower.push_back(lo);
  row_upper.push_back(hi);
}

namespace {

using Real = long double;

/// The bound that row duals prove, with the rounding error of every sum.
class WeakDuality {
 public:
  WeakDuality(const Model& model, std::span<const double> row_dual, bool with_cost)
      : model_(model),
        reduced_(model.cost.size(), 0),
        mass_(model.cost.size(), 0),
        count_(model.cost.size(), 2) {
    if (with_cost) {
      for (std::size_t c = 0; c < reduced_.size(); ++c) take(c, model.cost[c]);
    }
    for (std::size_t row = 0; row < model.row_lower.size(); ++row) add_row(row, row_dual[row]);
    for (std::size_t c = 0; c < reduced_.size(); ++c) add_column(c);
  }

  /// A lower bound on the objective.
  Real bound() const { return bound_ - error_ - kRounding * static_cast<Real>(terms_) * sum_; }
  Real reduced(std::size_t c) const { return reduced_[c]; }
  /// The rounding error of `reduced`.
  Real error(std::size_t c) const { return kRounding * static_cast<Real>(count_[c]) * mass_[c]; }

 private:
  static constexpr Real kRounding = std::numeric_limits<Real>::epsilon();

  void take(std::size_t c, Real term) {
    reduced_[c] += term;
    mass_[c] += std::fabs(term);
    ++count_[c];
  }
  void add(Real term) {
    bound_ += term;
    sum_ += std::fabs(term);
    ++terms_;
  }
  void add_row(std::size_t row, Real y) {
    const double side = y > 0 ? model_.row_lower[row] : model_.row_upper[row];
    if (y == 0 || !std::isfinite(side)) return;
    add(y * side);
    for (int e = model_.row_begin[row]; e < model_.row_begin[row + 1]; ++e) {
      const auto i = narrow<std::size_t>(e);
      take(narrow<std::size_t>(model_.entry_column[i]), -y * model_.entry_factor[i]);
    }
  }
  void add_column(std::size_t c) {
    if (mass_[c] == 0) return;
    add(reduced_[c] * (reduced_[c] > 0 ? model_.lower[c] : model_.upper[c]));
    error_ += error(c) * std::max(std::fabs(model_.lower[c]), std::fabs(model_.upper[c]));
  }

  const Model& model_;
  std::vector<Real> reduced_, mass_;  ///< by column: the sum, and that of the magnitudes
  std::vector<int> count_;            ///< summands
  Real bound_ = 0, sum_ = 0, error_ = 0;
  std::int64_t terms_ = 2;
};

/// The nearest double that is not above; minus infinity if there is no bound.
double rounded_down(Real bound) {
  if (std::isnan(bound)) return -kInfinity;
  const auto near = static_cast<double>(bound);
  return static_cast<Real>(near) <= bound ? near : std::nextafter(near, -kInfinity);
}

}  // namespace

double dual_bound(const Model& model, std::span<const double> row_dual) {
  REMAT_ASSERT(row_dual.size() == model.row_lower.size(), row_dual.size(), model.row_lower.size());
  return rounded_down(WeakDuality(model, row_dual, true).bound());
}

bool proves_infeasible(const Model& model, std::span<const double> ray) {
  if (WeakDuality(model, ray, false).bound() > 0) return true;
  std::vector<double> opposite(ray.begin(), ray.end());
  for (double& y : opposite) y = -y;
  return WeakDuality(model, opposite, false).bound() > 0;
}

std::vector<Column> fix_by_reduced_cost(Model& model, std::span<const double> row_dual, double cutoff) {
  const WeakDuality duals(model, row_dual, true);
  std::vector<Column> fixed;
  for (std::size_t c = 0; c < model.cost.size(); ++c) {
    if (!model.integer[c] || model.lower[c] != 0 || model.upper[c] != 1) continue;
    if (!(duals.bound() + std::fabs(duals.reduced(c)) - duals.error(c) > cutoff)) continue;
    const bool to_lower = duals.reduced(c) > 0;
    (to_lower ? model.upper[c] : model.lower[c]) = to_lower ? 0 : 1;
    fixed.push_back(static_cast<Column>(c));
  }
  return fixed;
}

double violation(const Model& model, std::span<const double> x) {
  REMAT_ASSERT(x.size() == model.cost.size(), x.size(), model.cost.size());
  double worst = 0;
  for (std::size_t c = 0; c < x.size(); ++c) {
    worst = std::max({worst, model.lower[c] - x[c], x[c] - model.upper[c]});
  }
  for (std::size_t row = 0; row < model.row_lower.size(); ++row) {
    double sum = 0;
    for (int e = model.row_begin[row]; e < model.row_begin[row + 1]; ++e) {
      const auto i = narrow<std::size_t>(e);
      sum += model.entry_factor[i] * x[at(model.entry_column[i])];
    }
    worst = std::max({worst, model.row_lower[row] - sum, sum - model.row_upper[row]});
  }
  return worst;
}

}  // namespace remat::lp
