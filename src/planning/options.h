// The options of a planner as one table: it reads what was given by name, and lists what may be given.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "remat/planner.h"

namespace remat {

/// The value of an option, of the type that `OptionInfo::type` says; texts and choices are strings.
using OptionValue = std::variant<std::int64_t, double, bool, std::string>;

/// The row of an option with this default.
OptionInfo option_row(std::string_view name, const OptionValue& value, std::string_view unit,
                      std::string_view description);
/// Throws UsageError, in one line with planner, option, value and range, where the text is no value of the
/// option.
OptionValue parse_option(std::string_view planner, const OptionInfo& option, const std::string& text);
/// Throws UsageError, in one line, for a name that is none of the options, and as `parse_option` does.
void check_options(std::string_view planner, std::span<const OptionInfo> options, const PlanOptions& given);
/// The same for a planner that lists its options.
void check_options(const PlannerInfo& planner, const PlanOptions& given);

/// A row for each field of `Options` that users may set.
template <class Options>
class OptionTable {
 public:
  /// The defaults of the rows are those of the struct.
  explicit OptionTable(std::string_view planner, Options defaults = {})
      : planner_(planner), defaults_(std::move(defaults)) {}

  /// A value within [low, high]. `unit`: empty for a pure number.
  OptionTable& integer(std::string_view name, std::int64_t Options::* field, std::int64_t low,
                       std::int64_t high, std::string_view unit, std::string_view description) {
    add(name, field, unit, description).range = IntegerRange{low, high};
    return *this;
  }
  OptionTable& number(std::string_view name, double Options::* field, double low, double high,
                      std::string_view unit, std::string_view description) {
    add(name, field, unit, description).range = NumberRange{low, high};
    return *this;
  }
  OptionTable& flag(std::string_view name, bool Options::* field, std::string_view description) {
    add(name, field, "", description);
    return *this;
  }
  OptionTable& choice(std::string_view name, std::string Options::* field,
                      std::initializer_list<std::string_view> choices, std::string_view description) {
    OptionInfo& row = add(name, field, "", description);
    row.type = OptionType::kChoice;
    row.choices.assign(choices.begin(), choices.end());
    return *this;
  }
  /// `check` throws UsageError where it does not like a value.
  OptionTable& text(std::string_view name, std::string Options::* field,
                    std::function<void(const std::string&)> check, std::string_view description) {
    add(name, field, "", description).check = std::move(check);
    return *this;
  }

  const std::vector<OptionInfo>& list() const { return rows_; }

  /// `into` with what was given in place of its values. Throws as `check_options` does.
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

 private:
  template <class T>
  OptionInfo& add(std::string_view name, T Options::* field, std::string_view unit,
                  std::string_view description) {
    set_.push_back([field](Options& into, const OptionValue& value) { into.*field = std::get<T>(value); });
    return rows_.emplace_back(option_row(name, defaults_.*field, unit, description));
  }

  std::string planner_;
  Options defaults_;
  std::vector<OptionInfo> rows_;
  std::vector<std::function<void(Options&, const OptionValue&)>> set_;
};

}  // namespace remat
