// Collects lines about numbers in a file that differ from the recomputed ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace remat::io {

class Differences {
 public:
  /// `subject`: the subject of the lines, "the plan".
  explicit Differences(std::string subject) : subject_(std::move(subject)) {}

  void compare(std::string_view what, const std::string& stated, const std::string& found) {
    if (stated != found) add(what, stated, found);
  }
  void add(std::string_view what, const std::string& stated, const std::string& found) {
    lines.push_back(std::string(what) + ": " + subject_ + " says " + stated + ", recomputed " + found);
  }
  template <class Q>
  void compare(std::string_view what, const std::optional<Q>& stated, Q found) {
    if (stated) compare(what, std::to_string(stated->count()), std::to_string(found.count()));
  }
  template <class Q>
  void bound(std::string_view what, const std::optional<Q>& stated, Q reached) {
    if (stated && *stated > reached) {
      lines.push_back(std::string(what) + ": " + subject_ + " says " + std::to_string(stated->count()) +
                      ", but it reaches " + std::to_string(reached.count()));
    }
  }
  std::vector<std::string> lines;

 private:
  std::string subject_;
};

}  // namespace remat::io
