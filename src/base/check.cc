#include "remat/check.h"

#include <stdexcept>

#include "remat/quantity.h"

namespace remat::checks {

std::string text(Integer128 value) { return to_string(value); }

void fail_with(const Place& place, const std::string& values) {
  // Without the build folder, which means nothing to users.
  std::string_view file = place.file;
  for (const std::string_view folder : {"/src/", "/include/"}) {
    if (const auto at = file.rfind(folder); at != std::string_view::npos) file.remove_prefix(at + 1);
  }
  std::string message =
      std::string(file) + ":" + std::to_string(place.line) + ": check failed: " + place.condition;
  if (!values.empty()) message += " (" + std::string(place.names) + ": " + values + ")";
  throw std::logic_error(message);
}

}  // namespace remat::checks
