#include "lp/model.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace remat::lp {

Column Model::add_column(double c, double lo, double hi, bool is_integer) {
  assert(lo <= hi);
  cost.push_back(c);
  lower.push_back(lo);
  upper.push_back(hi);
  integer.push_back(is_integer);
  return num_columns() - 1;
}

void Model::add_row(double lo, double hi, std::span<const Term> terms) {
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
  const int end = static_cast<int>(entry_column.size());
  if (end == row_begin.back() && lo <= 0 && hi >= 0) return;
  row_begin.push_back(end);
  row_lower.push_back(lo);
  row_upper.push_back(hi);
}

double dual_bound(const Model& model, std::span<const double> row_dual, std::vector<double>* reduced_cost) {
  using Wide = long double;
  std::vector<Wide> reduced(model.cost.begin(), model.cost.end());
  Wide bound = 0, mass = 0;
  const auto add = [&](Wide term) {
    bound += term;
    mass += std::fabs(term);
  };
  for (int row = 0; row < model.num_rows(); ++row) {
    const Wide y = row_dual[static_cast<std::size_t>(row)];
    const double side = y > 0 ? model.row_lower[static_cast<std::size_t>(row)]
                              : model.row_upper[static_cast<std::size_t>(row)];
    if (y == 0 || !std::isfinite(side)) continue;
    add(y * side);
    for (int e = model.row_begin[static_cast<std::size_t>(row)];
         e < model.row_begin[static_cast<std::size_t>(row) + 1]; ++e) {
      const auto i = static_cast<std::size_t>(e);
      reduced[static_cast<std::size_t>(model.entry_column[i])] -= y * model.entry_factor[i];
    }
  }
  for (std::size_t c = 0; c < reduced.size(); ++c) {
    if (reduced[c] == 0) continue;
    const double side = reduced[c] > 0 ? model.lower[c] : model.upper[c];
    if (!std::isfinite(side)) return -kInfinity;
    add(reduced[c] * side);
  }
  if (reduced_cost) reduced_cost->assign(reduced.begin(), reduced.end());
  return static_cast<double>(bound - mass * 1e-13L);
}

int fix_by_reduced_cost(Model& model, std::span<const double> row_dual, double cutoff) {
  std::vector<double> reduced;
  const double bound = dual_bound(model, row_dual, &reduced);
  int fixed = 0;
  for (std::size_t c = 0; c < reduced.size(); ++c) {
    if (!model.integer[c] || model.lower[c] != 0 || model.upper[c] != 1) continue;
    if (bound + std::fabs(reduced[c]) <= cutoff) continue;
    (reduced[c] > 0 ? model.upper[c] : model.lower[c]) = reduced[c] > 0 ? 0 : 1;
    ++fixed;
  }
  return fixed;
}

double violation(const Model& model, std::span<const double> x) {
  double worst = 0;
  for (std::size_t c = 0; c < x.size(); ++c) {
    worst = std::max({worst, model.lower[c] - x[c], x[c] - model.upper[c]});
  }
  for (std::size_t row = 0; row < model.row_lower.size(); ++row) {
    double sum = 0;
    for (int e = model.row_begin[row]; e < model.row_begin[row + 1]; ++e) {
      const auto i = static_cast<std::size_t>(e);
      sum += model.entry_factor[i] * x[static_cast<std::size_t>(model.entry_column[i])];
    }
    worst = std::max({worst, model.row_lower[row] - sum, sum - model.row_upper[row]});
  }
  return worst;
}

}  // namespace remat::lp
