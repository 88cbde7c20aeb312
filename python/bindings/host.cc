// remat.Host: host memory and its channels; copies as Python tuples.
#include "remat/host.h"

#include <cmath>

#include "bindings.h"
#include "errors.h"

namespace remat::python {
namespace {

std::int64_t bandwidth_of(nb::handle object, const char* name) {
  if (nb::isinstance<nb::str>(object)) return parse_bandwidth(nb::cast<std::string>(object));
  double bytes = 0;
  if (!nb::try_cast(object, bytes) || !(bytes >= 1) || bytes >= static_cast<double>(kMaxCount)) {
    throw UsageError(std::string(name) + ": found " + nb::cast<std::string>(nb::repr(object)) +
                     " instead of bytes per second (25e9) or a text (25GB/s)");
  }
  return static_cast<std::int64_t>(bytes);
}

/// Rounded up to nanoseconds, except for rounding errors of binary fractions such as 10e-6.
std::int64_t latency_of(double seconds) {
  constexpr double kMost = 1e9, kNanoseconds = 1e9, kNoise = 1e-6;
  if (!(seconds >= 0) || seconds >= kMost) throw UsageError("latency must be a number of seconds, 0 or more");
  return static_cast<std::int64_t>(std::ceil(seconds * kNanoseconds - kNoise));
}

void init_host(Host* self, nb::handle out, nb::handle in, double latency, nb::handle budget, bool shared) {
  new (self) Host{.out = bandwidth_of(out, "out"),
                  .in = bandwidth_of(in, "in_"),
                  .latency_ns = latency_of(latency),
                  .budget = parse_budget_object(budget, Bytes(), Bytes()),
                  .shared = shared};
}

}  // namespace

std::optional<Host> host_of(nb::handle object, const Graph& graph) {
  if (object.is_none()) return std::nullopt;
  with_fault<GraphFault>([&] { require_time_unit(graph); });
  if (nb::isinstance<Host>(object)) return nb::cast<Host>(object);
  const std::int64_t both = bandwidth_of(object, "host");
  return Host{.out = both, .in = both, .budget = std::nullopt};
}

std::vector<Copy> copies_of(nb::handle object) {
  std::vector<Copy> copies;
  for (nb::handle one : items_of(object, "copies")) {
    const std::string what = "copy " + std::to_string(copies.size());
    std::vector<nb::object> parts;
    for (nb::handle part : items_of(one, what)) parts.push_back(nb::borrow(part));
    constexpr std::size_t kParts = 4;
    if (parts.size() != kParts) {
      throw InputError(what + ": found " + std::to_string(parts.size()) +
                       " entries instead of value, way, issue and wait");
    }
    const auto index = [&](std::size_t at, const char* name) {
      const std::int64_t read = to_integer(parts[at], what + ": " + name);
      if (read < 0 || read >= (std::int64_t{1} << 31) - 1) {
        throw InputError(what + ": " + name + ": found " + std::to_string(read) +
                         " instead of an index in [0, 2^31 - 1)");
      }
      return read;
    };
    const std::string way = to_text(parts[1], what + ": way");
    if (way != to_string(Way::kOut) && way != to_string(Way::kIn)) {
      throw InputError(what + ": way: found '" + way + "' instead of 'out' or 'in'");
    }
    copies.push_back({ValueId(index(0, "value")), way == to_string(Way::kOut) ? Way::kOut : Way::kIn,
                      StepId(index(2, "issue")), StepId(index(3, "wait"))});
  }
  return copies;
}

void bind_host(nb::module_& m) {
  nb::class_<Host> host(
      m, "Host",
      "Memory outside the device, and the two channels to it: bytes per second `out` and `in_`\n"
      "(numbers, or texts such as \"25GB/s\"), seconds of `latency` for every copy, a `budget` of\n"
      "host memory or None, and whether both ways are `shared`, taking turns on one link.");
  host.def("__init__", init_host, nb::arg("out"), nb::arg("in_"), nb::arg("latency") = 0.0,
           nb::arg("budget").none() = nb::none(), nb::arg("shared") = false,
           nb::sig(
               "def __init__(self, out: float | str, in_: float | str, latency: float = 0.0, budget: int | "
               "str | None = None, shared: bool = False) -> None"))
      .def_ro("out", &Host::out, "Bytes per second from the device to the host.")
      .def_ro("in_", &Host::in, "Bytes per second from the host to the device.")
      .def_prop_ro(
          "latency", [](const Host& h) { return static_cast<double>(h.latency_ns) / 1e9; },
          "Seconds added to every copy.")
      .def_ro("budget", &Host::budget, "Bytes of host memory, or None.")
      .def_ro("shared", &Host::shared, "Whether both ways take turns on one link.")
      .def("__repr__", [](const Host& h) {
        return nb::str("remat.Host(out={}, in_={}, latency={}, budget={}, shared={})")
            .format(h.out, h.in, static_cast<double>(h.latency_ns) / 1e9, h.budget, h.shared);
      });
  def_value(host, &Host::out, &Host::in, &Host::latency_ns, &Host::budget, &Host::shared);
}

}  // namespace remat::python
