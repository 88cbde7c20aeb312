// The extension module remat._core: one file a domain.
#include "bindings.h"

NB_MODULE(_core, m) {
  // Caches of other packages (PyTorch's compiled graphs) hold graphs and plans until exit: not leaks.
  nanobind::set_leak_warnings(false);
  m.doc() = "The C++ core of remat. Use it through the package `remat`.";
  remat::python::bind_errors(m);
  remat::python::bind_graph(m);
  remat::python::bind_host(m);
  remat::python::bind_plan(m);
  remat::python::bind_effort(m);
  remat::python::bind_allocator(m);
  remat::python::bind_planning(m);
  remat::python::bind_sweep(m);
  remat::python::bind_generate(m);
  remat::python::bind_largest(m);
  remat::python::bind_layout(m);
  remat::python::bind_report(m);
  remat::python::bind_files(m);
  remat::python::bind_devices(m);
  remat::python::bind_hiremate(m);
  remat::python::bind_selection(m);
  remat::python::bind_pipeline(m);
  remat::python::bind_registering(m);
}
