// A linear program with integer columns: min cost x, row_lower <= A x <= row_upper, lower <= x <= upper.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace remat::lp {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Column = int;

/// One entry of a row.
struct Term {
  Column column;
  double factor;
};

/// Rows are stored one after the other, columns only as bounds and cost.
struct Model {
  std::vector<double> cost, lower, upper;
  std::vector<bool> integer;
  std::vector<double> row_lower, row_upper;
  std::vector<int> row_begin{0};
  std::vector<int> entry_column;
  std::vector<double> entry_factor;

  int num_columns() const { return narrow<int>(cost.size()); }
  int num_rows() const { return narrow<int>(row_lower.size()); }
  std::int64_t num_entries() const { return std::ssize(entry_column); }

  Column add_column(double c, double lo, double hi, bool is_integer);
  /// Terms of one column may repeat; they are summed. Rows without terms are dropped where they hold.
  void add_row(double lo, double hi, std::span<const Term> terms);
};

/// A lower bound on the objective of the relaxation (and so of the program itself) from any row duals, by
/// weak duality (Neumaier and Shcherbina 2004): rows of the wrong sign are dropped, the rest is bounded
/// column by column. Whatever a solver's tolerances were, this much is proved of the model as it stands: the
/// rounding of every sum is taken off, by the standard bound on it. Columns need finite bounds.
double dual_bound(const Model& model, std::span<const double> row_dual);

/// Do these row multipliers (a dual ray, of either sign) prove that nothing meets all rows and bounds?
bool proves_infeasible(const Model& model, std::span<const double> ray);

/// Fixes integer columns between 0 and 1 of which the duals prove that the other value costs more than
/// `cutoff`. Returns them.
std::vector<Column> fix_by_reduced_cost(Model& model, std::span<const double> row_dual, double cutoff);

/// Largest violation of a row or bound by `x`, in the row's own unit.
double violation(const Model& model, std::span<const double> x);

}  // namespace remat::lp
