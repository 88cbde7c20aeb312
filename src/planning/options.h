// The options of a planner in one table, which lists them and reads values by name.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "remat/planner.h"

namespace remat {

/// The value of an option, of the type that `OptionInfo::type` says; texts and choices are strings.
using OptionValue = std::variant<std::int64_t, double, bool, std::string>;

/// A value as text, as users give it.
std::string spell(const OptionValue& value);
/// The table row of an option with this default.
OptionInfo option_row(std::string_view name, const OptionValue& value, std::string_view unit,
                      std::string_view description);
/// Throws UsageError, in one line with planner, option, value and range, for an invalid value.
OptionValue parse_option(std::string_view planner, const OptionInfo& option, const std::string& text);
/// The same for an option of a request, which is named as users write it.
OptionValue parse_option(const Spelling& spelling, const OptionInfo& option, const std::string& text);
/// Throws UsageError, in one line, for a name that is none of the options, and as `parse_option` does.
void check_options(std::string_view planner, std::span<const OptionInfo> options, const PlanOptions& given);
/// The same for a planner that lists its options.
void check_options(const PlannerInfo& planner, const PlanOptions& given);

/// The row with this name. Throws UsageError, in one line, for a name that is none of the options.
std::size_t index_of_option(std::span<const OptionInfo> options, std::string_view name);

/// A row for each field of `Options` that users may set. A field is a pointer to a member, or any callable
/// that returns a reference from an `Options&`.
template <class Options>
class OptionTable {
 public:
  /// The defaults of the rows are those of the struct. `planner`: whose options they are, for messages.
  explicit OptionTable(std::string_view planner = {}, Options defaults = {})
      : planner_(planner), defaults_(std::move(defaults)) {}

  /// A value within [low, high]. `unit`: empty for a pure number.
  template <class Field>
  OptionTable& integer(std::string_view name, Field field, std::int64_t low, std::int64_t high,
                       std::string_view unit, std::string_view description) {
    add<std::int64_t>(name, field, unit, description).range = IntegerRange{low, high};
    return *this;
  }
  template <class Field>
  OptionTable& number(std::string_view name, Field field, double low, double high, std::string_view unit,
                      std::string_view description) {
    add<double>(name, field, unit, description).range = NumberRange{low, high};
    return *this;
  }
  template <class Field>
  OptionTable& flag(std::string_view name, Field field, std::string_view description) {
    add<bool>(name, field, "", description);
    return *this;
  }
  template <class Field>
  OptionTable& choice(std::string_view name, Field field, std::initializer_list<std::string_view> choices,
                      std::string_view description) {
    return choose(add<std::string>(name, field, "", description), {choices.begin(), choices.end()});
  }
  /// The same for the values of an enum, named by `to_string`.
  template <class Field, class Enum>
    requires std::is_enum_v<Enum>
  OptionTable& choice(std::string_view name, Field field, std::initializer_list<Enum> values,
                      std::string_view description) {
    std::vector<std::string> choices;
    for (const Enum value : values) choices.emplace_back(to_string(value));
    const auto parse = [values = std::vector(values)](const std::string& text) {
      return *std::ranges::find_if(values, [&](Enum value) { return to_string(value) == text; });
    };
    const auto format = [](Enum value) { return std::string(to_string(value)); };
    return choose(add_parsed(name, field, parse, format, description), std::move(choices));
  }
  /// A text; `check` throws UsageError for values that it refuses.
  template <class Field>
  OptionTable& text(std::string_view name, Field field, std::function<void(const std::string&)> check,
                    std::string_view description) {
    add<std::string>(name, field, "", description).check = std::move(check);
    return *this;
  }
  /// A text that `parse` turns into a value (or throws UsageError) and `format` turns back.
  template <class Field, class Parse, class Format>
  OptionTable& parsed(std::string_view name, Field field, Parse parse, Format format,
                      std::string_view description) {
    add_parsed(name, field, parse, format, description).check = [parse](const std::string& text) {
      parse(text);
    };
    return *this;
  }

  const std::vector<OptionInfo>& list() const { return rows_; }

  /// `into` with the given values put in. Throws as `check_options` does.
  Options read(const PlanOptions& given, Options into) const {
    check_options(planner_, rows_, given);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto found = given.set.find(rows_[i].name);
      if (found != given.set.end()) set_[i](into, parse_option(planner_, rows_[i], found->second));
    }
    return into;
  }
  /// The same with the defaults.
  Options read(const PlanOptions& given) const { return read(given, defaults_); }

  /// Sets one option. Throws as `parse_option` does, and for a name that is none.
  void set(Options& into, std::string_view name, const std::string& text, const Spelling& spelling) const {
    const std::size_t row = row_of(name);
    set_[row](into, parse_option(spelling, rows_[row], text));
  }
  /// The value as text, as users give it.
  std::string get(Options options, std::string_view name) const { return spell(get_[row_of(name)](options)); }

 private:
  std::size_t row_of(std::string_view name) const { return index_of_option(rows_, name); }

  template <class Value, class Field>
  OptionInfo& add(std::string_view name, Field field, std::string_view unit, std::string_view description) {
    static_assert(std::same_as<std::invoke_result_t<Field&, Options&>, Value&>);
    set_.push_back([field](Options& into, const OptionValue& value) {
      std::invoke(field, into) = std::get<Value>(value);
    });
    get_.push_back([field](Options& from) { return OptionValue(std::invoke(field, from)); });
    return rows_.emplace_back(option_row(name, get_.back()(defaults_), unit, description));
  }

  template <class Field, class Parse, class Format>
  OptionInfo& add_parsed(std::string_view name, Field field, Parse parse, Format format,
                         std::string_view description) {
    set_.push_back([field, parse](Options& into, const OptionValue& value) {
      std::invoke(field, into) = parse(std::get<std::string>(value));
    });
    get_.push_back([field, format](Options& from) { return OptionValue(format(std::invoke(field, from))); });
    return rows_.emplace_back(option_row(name, get_.back()(defaults_), "", description));
  }

  OptionTable& choose(OptionInfo& row, std::vector<std::string> choices) {
    row.type = OptionType::kChoice;
    row.choices = std::move(choices);
    return *this;
  }

  std::string planner_;
  Options defaults_;
  std::vector<OptionInfo> rows_;
  std::vector<std::function<void(Options&, const OptionValue&)>> set_;
  std::vector<std::function<OptionValue(Options&)>> get_;
};

/// The planner with the options of this table; `run` takes the problem, the options as they are given, what
/// else is given, and the limits.
template <class Options, class Run>
PlannerInfo with_options(PlannerInfo planner, const OptionTable<Options>& table, Run run) {
  planner.options = table.list();
  planner.run = [table, run](const Problem& problem, const PlanOptions& given, Limits& limits) {
    const Options options = table.read(given);
    return run(problem, options, given, limits);
  };
  return planner;
}

}  // namespace remat
