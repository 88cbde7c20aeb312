// The extension module remat._core: one file a domain.
#include "bindings.h"

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of remat. Use it through the package `remat`.";
  remat::python::bind_errors(m);
  remat::python::bind_graph(m);
  remat::python::bind_plan(m);
  remat::python::bind_planning(m);
  remat::python::bind_files(m);
}
