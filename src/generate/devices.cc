#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "generate/checks.h"
#include "remat/generate.h"

namespace remat {

std::span<const Device> devices() {
  // Peak rates of the vendors' data sheets: 32-bit floats without tensor cores, and bf16 with them (dense).
  static const std::array<Device, 6> kDevices{{
      {"cpu", 1e12, 1e11, 0},
      {"p100", 9.3e12, 0.732e12, 4e-6},
      {"v100", 15.7e12, 0.9e12, 4e-6},
      {"a100", 19.5e12, 2.039e12, 4e-6, 312e12},
      {"h100", 66.9e12, 3.35e12, 4e-6, 989e12},
      {"h200", 66.9e12, 4.8e12, 4e-6, 989e12},
  }};
  return kDevices;
}

namespace {

[[noreturn]] void refuse_device(std::string_view text) {
  std::string known;
  for (const Device& device : devices()) known += device.name + ", ";
  throw UsageError("device '" + std::string(text) + "' is none of " + known +
                   "nor of the form flops=F,bandwidth=B,launch=L with positive F and B");
}

double parse_rate(const std::string& text, std::string_view whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) refuse_device(whole);
  return value;
}

}  // namespace

Device parse_device(std::string_view text) {
  for (const Device& device : devices()) {
    if (device.name == text) return device;
  }
  Device device{std::string(text), 0, 0, 0};
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse_device(text);
    const double value = parse_rate(std::string(part.substr(equals + 1)), text);
    const std::string_view key = part.substr(0, equals);
    if (key == "flops") {
      device.flops_per_second = value;
    } else if (key == "bandwidth") {
      device.bytes_per_second = value;
    } else if (key == "launch") {
      device.launch_seconds = value;
    } else {
      refuse_device(text);
    }
  }
  if (device.flops_per_second <= 0 || device.bytes_per_second <= 0) refuse_device(text);
  return device;
}

}  // namespace remat
