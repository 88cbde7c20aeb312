// C++ exceptions, one for each Python error of Remat.
#pragma once

#include <string>
#include <typeinfo>
#include <utility>

#include "remat/error.h"
#include "remat/plan.h"

namespace remat::python {

/// remat.GraphError: the graph or its file is invalid.
struct GraphFault : InputError {
  using InputError::InputError;
};
/// remat.PlanError: the plan or its file is invalid. `rule` is empty if no rule of the model is broken.
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

/// Calls `fn` and turns an InputError of the core, but none of its subclasses, into `Fault`.
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
