// The page: a file of page/, built once, with the numbers in place of its placeholder.
#include "report/page.h"

#include <string_view>

#include "remat/check.h"
#include "report/plans.h"

namespace remat::report {

std::string page_text(const ReportContent& content, const ShownPlans& plans) {
  constexpr std::string_view kPlaceholder = "{\"remat\":\"data\"}";
  const std::string_view page = page_template();
  const std::size_t place = page.find(kPlaceholder);
  REMAT_CHECK(place != std::string_view::npos, page.size());
  std::string text(page.substr(0, place));
  // Inside a script element only "<" can end it or open a comment; in JSON it occurs only in strings.
  for (char c : json_text(content, plans, true)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text.append(page.substr(place + kPlaceholder.size()));
}

}  // namespace remat::report
