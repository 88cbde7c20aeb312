// The Python errors, each thrown here as a C++ exception of its own.
#pragma once

#include <string>
#include <typeinfo>
#include <utility>

#include "remat/error.h"
#include "remat/plan.h"

namespace remat::python {

/// remat.GraphError: the graph, or its file, is not one.
struct GraphFault : InputError {
  using InputError::InputError;
};
/// remat.PlanError: the plan, or its file, breaks a rule. `rule` is empty where no rule of the model did.
struct PlanFault : InputError {
  explicit PlanFault(const std::string& message) : InputError(message) {}
  explicit PlanFault(const Violation& violation)
      : InputError(violation.message), rule(to_string(violation.rule)), step(violation.step) {}
  std::string rule;
  StepId step;
};
/// remat.BudgetError: a budget that is no positive amount of bytes.
struct BudgetFault : UsageError {
  using UsageError::UsageError;
};
/// remat.InfeasibleError where `proved`, otherwise remat.NoPlanError.
struct NoPlanFault : std::runtime_error {
  NoPlanFault(const std::string& message, bool is_proved, Bytes floor_bytes, Bytes smallest)
      : std::runtime_error(message), proved(is_proved), floor(floor_bytes), smallest_known(smallest) {}
  bool proved;
  Bytes floor, smallest_known;
};

/// Calls `fn` and turns the core's InputError, but no error that is more than that, into `Fault`.
template <class Fault, class Fn>
decltype(auto) with_fault(Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const InputError& error) {
    if (typeid(error) != typeid(InputError)) throw;
    throw Fault(error.what());
  }
}

}  // namespace remat::python
