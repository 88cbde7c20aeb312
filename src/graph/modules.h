// Layers, read off the names of modules.
#pragma once

#include <string>
#include <string_view>

namespace remat {

/// The module up to its first number: "encoder.layers.3" of "encoder.layers.3.fc1"; empty where it has none.
std::string layer_of(std::string_view module);

}  // namespace remat
