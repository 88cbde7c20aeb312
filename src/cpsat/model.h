// Builds a CP-SAT model in its serialised form, one constraint at a time.
//
// Field numbers are those of CpModelProto in OR-tools 9.15 (ortools/sat/cp_model.proto, readable from the
// descriptors in the Python package); they have not changed since 9.4.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpsat/wire.h"

namespace remat::cpsat {

/// An integer variable.
struct Var {
  std::int64_t index = -1;
  friend bool operator==(Var, Var) = default;
};

/// A Boolean variable or its negation; index -i - 1 is the negation of variable i, as in CP-SAT.
struct Literal {
  std::int64_t index = 0;
  Literal operator!() const { return {-index - 1}; }
  Var var() const { return {index < 0 ? -index - 1 : index}; }
  friend bool operator==(Literal, Literal) = default;
};

/// coefficient * var + offset; a constant where the coefficient is 0.
struct Affine {
  Var var;
  std::int64_t coefficient = 0;
  std::int64_t offset = 0;
  Affine() = default;
  Affine(Var v, std::int64_t plus = 0) : var(v), coefficient(1), offset(plus) {}
  Affine(Var v, std::int64_t times, std::int64_t plus) : var(v), coefficient(times), offset(plus) {}
  Affine(std::int64_t constant) : offset(constant) {}
  bool is_constant() const { return coefficient == 0; }
  Affine operator+(std::int64_t plus) const {
    Affine sum = *this;
    sum.offset += plus;
    return sum;
  }
};

class Model {
 public:
  /// A variable in the closed range [lo, hi].
  Var add_var(std::int64_t lo, std::int64_t hi);
  /// A variable that takes one of the values: ascending, without duplicates, at least one.
  Var add_var(std::span<const std::int64_t> values);
  Literal add_bool() { return {add_var(0, 1).index}; }

  /// a <= b wherever all of `when` hold.
  void at_most(Affine a, Affine b, std::span<const Literal> when = {});
  /// a == b wherever all of `when` hold.
  void equal(Affine a, Affine b, std::span<const Literal> when = {});
  void at_least_one(std::span<const Literal> literals);
  void exactly_one(std::span<const Literal> literals);
  void implies(Literal a, Literal b);

  /// The interval [start, end), there only if all of `when` hold; start + size == end is enforced.
  /// Returns its index for `cumulative` and `no_overlap`.
  std::int64_t add_interval(Affine start, Affine size, Affine end, std::span<const Literal> when = {});
  /// The demands of the intervals over each point add up to at most `capacity`.
  void cumulative(std::span<const std::int64_t> intervals, std::span<const Affine> demands, Affine capacity);
  void no_overlap(std::span<const std::int64_t> intervals);

  /// Minimizes sum of coefficients[i] * vars[i] over vars. At most one call.
  void minimize(std::span<const Var> vars, std::span<const std::int64_t> coefficients);
  /// A value to try first.
  void hint(Var var, std::int64_t value);

  std::int64_t num_variables() const { return num_variables_; }
  std::int64_t num_constraints() const { return num_constraints_; }
  /// CpModelProto as bytes, hints included.
  std::string serialized() const;

 private:
  void add_constraint(int kind, const WireWriter& body, std::span<const Literal> when);
  void difference(Affine a, Affine b, std::int64_t lo, std::span<const Literal> when);

  WireWriter model_;
  std::vector<std::int64_t> hint_vars_, hint_values_;
  std::int64_t num_variables_ = 0;
  std::int64_t num_constraints_ = 0;
};

}  // namespace remat::cpsat
