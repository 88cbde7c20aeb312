// Declarations that the binding files share: one bind function per domain, and the wrappers seen from Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "casters.h"
#include "remat/graph.h"
#include "remat/host.h"
#include "remat/io.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"
#include "remat/plan.h"
#include "remat/planner.h"

namespace remat::python {

using Int64Array = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;
using Int32Array = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>>;
using BoolArray = nb::ndarray<nb::numpy, const bool, nb::ndim<1>>;

/// A read-only numpy view of a column that `owner` keeps alive. Quantities and ids are one integer wide.
template <class Array, class Column>
Array view_of(const Column& column, nb::handle owner) {
  using Entry = std::remove_cvref_t<decltype(column.raw()[0])>;
  using Scalar = typename Array::Scalar;
  static_assert(sizeof(Entry) == sizeof(Scalar) && std::is_trivially_copyable_v<Entry>);
  return Array(reinterpret_cast<const Scalar*>(column.raw().data()), {column.size()}, owner);
}

/// A new read-only numpy array that owns its entries.
template <class Array, class T>
Array array_of(std::vector<T> entries) {
  auto* owned = new std::vector<T>(std::move(entries));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Array(reinterpret_cast<const typename Array::Scalar*>(owned->data()), {owned->size()}, owner);
}

/// Reads a member, or a member of a member, for a property. A copy.
template <class Owner, class Part, class... Parts>
auto of(Part Owner::* first, Parts... rest) {
  return [=](const Owner& owner) { return ((owner.*first).*....*rest); };
}

/// Equality of what `key` makes of two objects.
template <class T, class Key>
void def_equal(nb::class_<T>& bound, Key key) {
  bound.def(
      "__eq__", [key](const T& a, const T& b) { return key(a) == key(b); }, nb::is_operator(),
      nb::sig("def __eq__(self, other: object, /) -> bool"));
}
template <class T>
void def_equal(nb::class_<T>& bound) {
  def_equal(bound, [](const T& object) -> const T& { return object; });
}

/// Pickles an object as a tuple of members. `finish` completes a copy.
template <class T, class... Members>
void def_state(nb::class_<T>& bound, void (*finish)(T&), Members... members) {
  bound
      .def(
          "__getstate__", [=](const T& object) { return state_of(object, std::tuple(members...)); },
          nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__setstate__",
          [=](T& object, nb::tuple state) {
            T copy = from_state<T>(state, std::tuple(members...));
            if (finish != nullptr) finish(copy);
            new (&object) T(std::move(copy));
          },
          nb::arg("state"), nb::sig("def __setstate__(self, state: tuple[typing.Any, ...], /) -> None"));
}

/// Equality, hash and pickles by these members: all of them.
template <class T, class... Members>
void def_value(nb::class_<T>& bound, Members... members) {
  def_equal(bound);
  def_state<T>(bound, nullptr, members...);
  bound.def("__hash__", [=](const T& object) { return nb::hash(state_of(object, std::tuple(members...))); });
}

/// For the contents of a file: equality, hash and pickles by its text, and a method that writes it.
template <class T>
void def_file(nb::class_<T>& bound, std::string (*format)(const T&), T (*parse)(const std::string&),
              void (*save)(const T&, const std::filesystem::path&), const char* save_doc) {
  def_equal(bound, format);
  bound.def("__hash__", [format](const T& object) { return nb::hash(nb::str(format(object).c_str())); })
      .def("__getstate__", format)
      .def("__setstate__", [parse](T& object, const std::string& text) { new (&object) T(parse(text)); })
      .def("save", save, nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
           save_doc);
}

/// `remat.Simulation`: the cost of a sequence of steps, by the reference simulator.
struct BoundSimulation {
  Simulation cost;
  bool is_timed = true;  ///< false: it has copies, and no host to time them
  double overhead = 0;
  std::int64_t recomputed_ops = 0;
  std::vector<std::int64_t> memory;
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> overwrites;
};

/// Readers of Python objects throw InputError "WHAT: found ... instead of ..." as the JSON reader does.
/// Integers are int, numpy integers and other objects with __index__, except bool.
std::int64_t to_integer(nb::handle object, const std::string& what);
/// Integers of a list, tuple or array.
std::vector<std::int64_t> to_integers(nb::handle object, const std::string& what);
std::string to_text(nb::handle object, const std::string& what);
nb::dict to_dict(nb::handle object, const std::string& what);
/// The position of `word` in `words`.
std::size_t choose(const std::string& word, std::initializer_list<std::string_view> words,
                   const std::string& what);
/// The items of anything iterable that is neither a text nor a dict.
nb::iterator items_of(nb::handle object, const std::string& what, const char* expected = "an array");

OrderMode parse_order(const std::string& text);
/// A budget from Python: bytes, "6GiB", "75%" or None; `floor` as for `parse_budget`. Throws BudgetFault.
std::optional<Bytes> parse_budget_object(nb::handle budget, Bytes keep_all_peak, Bytes floor);

/// The argument `host`: a Host, one bandwidth for both ways, or None. Throws GraphFault if the graph's time
/// unit cannot time copies.
std::optional<Host> host_of(nb::handle object, const Graph& graph);
/// (value, "out" or "in", issue, wait) for each copy.
std::vector<Copy> copies_of(nb::handle object);
/// Steps and copies of the record as a plan, valid in `order` and within the budget if one is given. Throws
/// PlanFault if they break a rule.
Plan checked_plan(const Graph& graph, const PlanRecord& record, OrderMode order,
                  std::optional<Bytes> budget = std::nullopt);
nb::dict dict_of(const Counters& counters);
/// "1.23%", or "unknown", for representations.
std::string percent_text(std::optional<double> share);
/// Each line as a UserWarning.
void warn(const std::vector<std::string>& lines);

void bind_errors(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_graph_dict(nb::class_<Graph>& graph_class);
void bind_host(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_effort(nb::module_& m);
void bind_planning(nb::module_& m);
void bind_sweep(nb::module_& m);
void bind_largest(nb::module_& m);
void bind_layout(nb::module_& m);
void bind_report(nb::module_& m);
void bind_files(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_allocator(nb::module_& m);
void bind_hiremate(nb::module_& m);
void bind_generate(nb::module_& m);
void bind_selection(nb::module_& m);
void bind_pipeline(nb::module_& m);
void bind_registering(nb::module_& m);

}  // namespace remat::python
