// The page without its numbers, as cmake/page.cmake puts it into the library.
#pragma once

#include <string_view>

namespace remat::report { std::string_view page_template(); }  // namespace remat::report
