#include "graph/modules.h"

#include <algorithm>

namespace remat {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string layer_of(std::string_view module) {
  std::size_t begin = 0;
  while (begin < module.size()) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (!part.empty() && std::ranges::all_of(part, is_digit)) return std::string(module.substr(0, end));
    begin = end + 1;
  }
  return {};
}

}  // namespace remat
