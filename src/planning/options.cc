#include "planning/options.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

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

std::string spelled(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

/// "an integer in [0, 9]".
std::string expected(const OptionInfo& option) {
  switch (option.type) {
    case OptionType::kInteger:
      return "an integer in " + values_of(option);
    case OptionType::kNumber:
      return "a number in " + values_of(option);
    case OptionType::kFlag:
      return "on or off";
    case OptionType::kChoice:
    case OptionType::kText:
      break;
  }
  return "one of " + values_of(option);
}

/// Rows of tables have a range; users' planners may list options without one.
template <class Range>
const Range& range_of(const OptionInfo& option) {
  if (const auto* range = std::get_if<Range>(&option.range)) return *range;
  throw std::logic_error("option " + option.name + " has no range of its type");
}

void check_text(const Spelling& spelling, const OptionInfo& option, const std::string& text) {
  try {
    option.check(text);
  } catch (const UsageError& error) {
    throw UsageError(spelling(option.name, text) + ": " + error.what());
  }
}

std::vector<std::string> names_of(std::span<const OptionInfo> options) {
  std::vector<std::string> names;
  for (const OptionInfo& each : options) names.push_back(each.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string spell(const OptionValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return spelled(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "on" : "off";
  return std::get<std::string>(value);
}

std::string_view to_string(OptionType type) {
  switch (type) {
    case OptionType::kInteger:
      return "integer";
    case OptionType::kNumber:
      return "number";
    case OptionType::kFlag:
      return "flag";
    case OptionType::kChoice:
      return "choice";
    case OptionType::kText:
      return "text";
  }
  return "";
}

std::optional<std::string> supports_all(const Problem&) { return std::nullopt; }

std::string values_of(const OptionInfo& option) {
  if (const auto* range = std::get_if<IntegerRange>(&option.range)) {
    return "[" + std::to_string(range->low) + ", " + std::to_string(range->high) + "]";
  }
  if (const auto* range = std::get_if<NumberRange>(&option.range)) {
    return "[" + spelled(range->low) + ", " + spelled(range->high) + "]";
  }
  if (option.type == OptionType::kFlag) return "on, off";
  return listed(option.choices);
}

OptionInfo option_row(std::string_view name, const OptionValue& value, std::string_view unit,
                      std::string_view description) {
  constexpr OptionType kTypes[] = {OptionType::kInteger, OptionType::kNumber, OptionType::kFlag,
                                   OptionType::kText};
  OptionInfo row;
  row.name = name;
  row.type = kTypes[value.index()];
  row.default_value = spell(value);
  row.unit = unit;
  row.description = description;
  return row;
}

OptionValue parse_option(std::string_view planner, const OptionInfo& option, const std::string& text) {
  const auto spelling = [&](std::string_view name, std::string_view value) {
    return "planner " + std::string(planner) + ": option " + std::string(name) + "=" + std::string(value);
  };
  return parse_option(spelling, option, text);
}

OptionValue parse_option(const Spelling& spelling, const OptionInfo& option, const std::string& text) {
  const auto refuse = [&] { throw UsageError(spelling(option.name, text) + " is not " + expected(option)); };
  switch (option.type) {
    case OptionType::kInteger: {
      const auto& [low, high] = range_of<IntegerRange>(option);
      std::int64_t value = 0;
      if (!parse_whole(text, value) || value < low || value > high) refuse();
      return value;
    }
    case OptionType::kNumber: {
      const auto& [low, high] = range_of<NumberRange>(option);
      double value = 0;
      if (!parse_whole(text, value) || !(value >= low && value <= high)) refuse();
      return value;
    }
    case OptionType::kFlag: {
      const bool is_on = text == "on" || text == "true" || text == "1";
      if (!is_on && text != "off" && text != "false" && text != "0") refuse();
      return is_on;
    }
    case OptionType::kChoice:
      if (std::ranges::find(option.choices, text) == option.choices.end()) refuse();
      break;
    case OptionType::kText:
      if (option.check) check_text(spelling, option, text);
      break;
  }
  return text;
}

void check_options(std::string_view planner, std::span<const OptionInfo> options, const PlanOptions& given) {
  for (const auto& [name, text] : given.set) {
    const auto option = std::ranges::find(options, name, &OptionInfo::name);
    if (option != options.end()) {
      parse_option(planner, *option, text);
      continue;
    }
    const std::vector<std::string> known = names_of(options);
    const std::string hint = did_you_mean(name, known);
    throw UsageError("planner " + std::string(planner) + " has no option '" + name + "'" +
                     (hint.empty() ? ";" : hint) +
                     (known.empty() ? " it has none" : " it has: " + listed(known)));
  }
}

std::size_t index_of_option(std::span<const OptionInfo> options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &OptionInfo::name);
  if (found == options.end()) throw UsageError(unknown_word("option", std::string(name), names_of(options)));
  return static_cast<std::size_t>(found - options.begin());
}

void check_options(const PlannerInfo& planner, const PlanOptions& given) {
  if (!planner.takes_any_option) check_options(planner.name, planner.options, given);
}

}  // namespace remat
