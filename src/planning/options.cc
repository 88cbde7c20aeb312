#include "planning/options.h"

#include <algorithm>
#include <charconv>

#include "remat/error.h"
#include "remat/words.h"

namespace remat {
namespace {

template <class T>
bool parse_whole(const std::string& text, T& into) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, into);
  return error == std::errc() && at == end;
}

}  // namespace

const std::string* OptionReader::find(std::string_view name) {
  known_.emplace(name);
  const auto at = options_->set.find(std::string(name));
  return at == options_->set.end() ? nullptr : &at->second;
}

void OptionReader::refuse(std::string_view name, const std::string& expected) const {
  throw UsageError("planner " + planner_ + ": option " + std::string(name) + "=" +
                   options_->set.at(std::string(name)) + " is not " + expected);
}

OptionReader& OptionReader::integer(std::string_view name, std::int64_t& into, std::int64_t lo,
                                    std::int64_t hi) {
  if (const std::string* text = find(name)) {
    std::int64_t value = 0;
    if (!parse_whole(*text, value) || value < lo || value > hi) {
      refuse(name, "an integer in [" + std::to_string(lo) + ", " + std::to_string(hi) + "]");
    }
    into = value;
  }
  return *this;
}

OptionReader& OptionReader::number(std::string_view name, double& into, double lo, double hi) {
  if (const std::string* text = find(name)) {
    double value = 0;
    if (!parse_whole(*text, value) || !(value >= lo && value <= hi)) {
      refuse(name, "a number in [" + std::to_string(lo) + ", " + std::to_string(hi) + "]");
    }
    into = value;
  }
  return *this;
}

OptionReader& OptionReader::flag(std::string_view name, bool& into) {
  if (const std::string* text = find(name)) {
    if (*text == "on" || *text == "true" || *text == "1") {
      into = true;
    } else if (*text == "off" || *text == "false" || *text == "0") {
      into = false;
    } else {
      refuse(name, "on or off");
    }
  }
  return *this;
}

OptionReader& OptionReader::text(std::string_view name, std::string& into) {
  if (const std::string* text = find(name)) into = *text;
  return *this;
}

OptionReader& OptionReader::choice(std::string_view name, std::string& into,
                                   std::initializer_list<std::string_view> allowed) {
  if (const std::string* text = find(name)) {
    if (std::ranges::find(allowed, *text) == allowed.end()) {
      refuse(name, "one of " + listed({allowed.begin(), allowed.end()}));
    }
    into = *text;
  }
  return *this;
}

void OptionReader::finish() const {
  for (const auto& [name, text] : options_->set) {
    if (known_.contains(name)) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    const std::string hint = did_you_mean(name, known);
    throw UsageError("planner " + planner_ + " has no option '" + name + "'" + (hint.empty() ? ";" : hint) +
                     (known.empty() ? " it has none" : " it has: " + listed(known)));
  }
}

}  // namespace remat
