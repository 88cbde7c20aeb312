#include "errors.h"

#include "bindings.h"

namespace remat::python {
namespace {

/// The class of that name in remat.errors, looked up when an error is raised: the module itself depends on
/// no Python file, which is what lets the stubs be generated from it alone.
nb::object error_class(const char* name) { return nb::module_::import_("remat.errors").attr(name); }

void raise(const char* name, const char* message) { PyErr_SetString(error_class(name).ptr(), message); }

void raise(const char* name, const char* message, nb::kwargs fields) {
  const nb::object type = error_class(name);
  const nb::object error = type(nb::str(message), **fields);
  PyErr_SetObject(type.ptr(), error.ptr());
}

nb::kwargs fields_of(const PlanFault& fault) {
  nb::kwargs fields;
  fields["rule"] = fault.rule;
  fields["step"] = fault.step ? nb::cast(fault.step.index()) : nb::none();
  return fields;
}

nb::kwargs fields_of(const NoPlanFault& fault) {
  nb::kwargs fields;
  fields["floor"] = fault.floor.count();
  fields["smallest_known"] = fault.smallest_known.count();
  return fields;
}

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const GraphFault& fault) {
    raise("GraphError", fault.what());
  } catch (const PlanFault& fault) {
    raise("PlanError", fault.what(), fields_of(fault));
  } catch (const BudgetFault& fault) {
    raise("BudgetError", fault.what());
  } catch (const UsageError& fault) {
    raise("UsageError", fault.what());
  } catch (const InputError& fault) {
    raise("RematError", fault.what());
  } catch (const NoPlanFault& fault) {
    raise(fault.proved ? "InfeasibleError" : "NoPlanError", fault.what(), fields_of(fault));
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace remat::python
