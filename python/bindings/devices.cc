// The devices of the roofline.
#include "bindings.h"
#include "remat/generate.h"

namespace remat::python {

void bind_devices(nb::module_& m) {
  nb::class_<Device>(m, "Device",
                     "Rates of a device: an op takes launch + max(flops / peak, bytes / bandwidth).")
      .def_prop_ro("name", [](const Device& d) { return d.name; })
      .def_prop_ro(
          "flops_per_second", [](const Device& d) { return d.flops_per_second; }, "Peak, 32-bit floats.")
      .def_prop_ro(
          "bytes_per_second", [](const Device& d) { return d.bytes_per_second; }, "Memory bandwidth.")
      .def_prop_ro("launch_seconds", [](const Device& d) { return d.launch_seconds; })
      .def(
          "__getstate__",
          [](const Device& d) {
            return std::tuple(d.name, d.flops_per_second, d.bytes_per_second, d.launch_seconds,
                              d.bf16_flops_per_second);
          },
          nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__setstate__",
          [](Device& d, const std::tuple<std::string, double, double, double, double>& state) {
            new (&d) Device(std::apply([](const auto&... field) { return Device{field...}; }, state));
          },
          nb::arg("state"), nb::sig("def __setstate__(self, state: tuple[typing.Any, ...], /) -> None"))
      .def("__repr__", [](const Device& d) { return "<remat.Device: " + d.name + ">"; });
  m.def(
      "devices", [] { return std::vector<Device>(devices().begin(), devices().end()); },
      "The predefined devices.");
  m.def(
      "parse_device", [](const std::string& text) { return parse_device(text); }, nb::arg("text"),
      "A device by name, or of \"flops=19.5e12,bandwidth=2e12,launch=4e-6\" (launch may be left out). "
      "Raises\n"
      "UsageError.");
}

}  // namespace remat::python
