#include "cpsat/model.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "remat/check.h"

namespace remat::cpsat {
namespace {

// CpModelProto
constexpr int kVariables = 2, kConstraints = 3, kObjective = 4, kSolutionHint = 6;
// IntegerVariableProto
constexpr int kVariableDomain = 2;
// ConstraintProto
constexpr int kEnforcement = 2, kBoolOr = 3, kLinear = 12, kInterval = 19, kNoOverlap = 20, kCumulative = 22,
              kExactlyOne = 29;
// LinearConstraintProto, LinearExpressionProto, CpObjectiveProto and PartialVariableAssignment
constexpr int kVars = 1, kCoeffs = 2, kLinearDomain = 3, kExpressionOffset = 3, kObjectiveCoeffs = 4,
              kHintValues = 2;
// BoolArgumentProto and NoOverlapConstraintProto
constexpr int kLiterals = 1, kDisjointIntervals = 1;
// IntervalConstraintProto
constexpr int kStart = 4, kEnd = 5, kSize = 6;
// CumulativeConstraintProto
constexpr int kCapacity = 1, kIntervals = 2, kDemands = 3;

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

WireWriter expression(const Affine& a) {
  WireWriter out;
  if (!a.is_constant()) {
    out.packed(kVars, std::span(&a.var.index, 1)).packed(kCoeffs, std::span(&a.coefficient, 1));
  }
  if (a.offset != 0) out.number(kExpressionOffset, a.offset);
  return out;
}

std::vector<std::int64_t> indices(std::span<const Literal> literals) {
  std::vector<std::int64_t> out;
  for (Literal literal : literals) out.push_back(literal.index);
  return out;
}

}  // namespace

Var Model::add_var(std::int64_t lo, std::int64_t hi) {
  REMAT_ASSERT(lo <= hi, lo, hi);
  const std::int64_t domain[] = {lo, hi};
  model_.message(kVariables, WireWriter().packed(kVariableDomain, domain));
  return {num_variables_++};
}

Var Model::add_var(std::span<const std::int64_t> values) {
  REMAT_ASSERT(!values.empty() && std::ranges::adjacent_find(values, std::greater_equal()) == values.end(),
               num_variables_);
  std::vector<std::int64_t> domain;  // closed ranges, as CP-SAT wants them: disjoint and not adjacent
  for (std::int64_t value : values) {
    if (!domain.empty() && value == domain.back() + 1) {
      domain.back() = value;
    } else {
      domain.insert(domain.end(), {value, value});
    }
  }
  model_.message(kVariables, WireWriter().packed(kVariableDomain, domain));
  return {num_variables_++};
}

void Model::add_constraint(int kind, const WireWriter& body, std::span<const Literal> when) {
  WireWriter constraint;
  constraint.packed(kEnforcement, indices(when)).message(kind, body);
  model_.message(kConstraints, constraint);
  ++num_constraints_;
}

/// lo <= b - a (and b - a <= 0 as well is `equal`'s second call).
void Model::difference(Affine a, Affine b, std::int64_t lo, std::span<const Literal> when) {
  std::vector<std::int64_t> vars, coefficients;
  if (!b.is_constant()) vars.push_back(b.var.index), coefficients.push_back(b.coefficient);
  if (!a.is_constant()) vars.push_back(a.var.index), coefficients.push_back(-a.coefficient);
  const std::int64_t domain[] = {lo + a.offset - b.offset, kUnbounded};
  add_constraint(kLinear,
                 WireWriter().packed(kVars, vars).packed(kCoeffs, coefficients).packed(kLinearDomain, domain),
                 when);
}

void Model::at_most(Affine a, Affine b, std::span<const Literal> when) {
  if (when.empty() && a.is_constant() && b.is_constant() && a.offset <= b.offset) return;
  difference(a, b, 0, when);
}

void Model::equal(Affine a, Affine b, std::span<const Literal> when) {
  at_most(a, b, when);
  at_most(b, a, when);
}

void Model::at_least_one(std::span<const Literal> literals) {
  add_constraint(kBoolOr, WireWriter().packed(kLiterals, indices(literals)), {});
}

void Model::exactly_one(std::span<const Literal> literals) {
  add_constraint(kExactlyOne, WireWriter().packed(kLiterals, indices(literals)), {});
}

void Model::implies(Literal a, Literal b) {
  const Literal clause[] = {!a, b};
  at_least_one(clause);
}

std::int64_t Model::add_interval(Affine start, Affine size, Affine end, std::span<const Literal> when) {
  WireWriter body;
  body.message(kStart, expression(start)).message(kEnd, expression(end)).message(kSize, expression(size));
  const std::int64_t index = num_constraints_;
  add_constraint(kInterval, body, when);
  return index;
}

void Model::cumulative(std::span<const std::int64_t> intervals, std::span<const Affine> demands,
                       Affine capacity) {
  REMAT_ASSERT(intervals.size() == demands.size(), intervals.size(), demands.size());
  WireWriter body;
  body.message(kCapacity, expression(capacity)).packed(kIntervals, intervals);
  for (const Affine& demand : demands) body.message(kDemands, expression(demand));
  add_constraint(kCumulative, body, {});
}

void Model::no_overlap(std::span<const std::int64_t> intervals) {
  add_constraint(kNoOverlap, WireWriter().packed(kDisjointIntervals, intervals), {});
}

void Model::minimize(std::span<const Var> vars, std::span<const std::int64_t> coefficients) {
  REMAT_ASSERT(vars.size() == coefficients.size(), vars.size(), coefficients.size());
  std::vector<std::int64_t> indices_of;
  for (Var var : vars) indices_of.push_back(var.index);
  model_.message(kObjective, WireWriter().packed(kVars, indices_of).packed(kObjectiveCoeffs, coefficients));
}

void Model::hint(Var var, std::int64_t value) {
  REMAT_ASSERT(var.index >= 0 && var.index < num_variables_, var.index, num_variables_);
  hint_vars_.push_back(var.index);
  hint_values_.push_back(value);
}

std::string Model::serialized() const {
  WireWriter hint;
  hint.packed(kVars, hint_vars_).packed(kHintValues, hint_values_);
  WireWriter end;
  if (!hint_vars_.empty()) end.message(kSolutionHint, hint);
  return model_.data() + end.data();
}

}  // namespace remat::cpsat
