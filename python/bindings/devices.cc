// The devices of the roofline.
#include "bindings.h"
#include "remat/generate.h"

namespace remat::python {

void bind_devices(nb::module_& m) {
  nb::class_<Device> device(m, "Device",
                            "Rates of a device: an op takes launch + max(flops / peak, bytes / bandwidth).");
  device.def_ro("name", &Device::name)
      .def_ro("flops_per_second", &Device::flops_per_second, "Peak, 32-bit floats.")
      .def_ro("bytes_per_second", &Device::bytes_per_second, "Memory bandwidth.")
      .def_ro("launch_seconds", &Device::launch_seconds)
      .def("__repr__", [](const Device& d) { return "<remat.Device: " + d.name + ">"; });
  def_state<Device>(device, nullptr, &Device::name, &Device::flops_per_second, &Device::bytes_per_second,
                    &Device::launch_seconds, &Device::bf16_flops_per_second);
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
