// Strict conversions of Python objects to integers, texts and budgets; messages show the value given.
#include <array>
#include <cstdio>

#include "bindings.h"
#include "errors.h"

namespace remat::python {
namespace {

[[noreturn]] void refuse(nb::handle object, const std::string& what, const char* expected) {
  std::string found = nb::cast<std::string>(nb::repr(object));
  constexpr std::size_t kLongest = 60;
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "...";
  throw InputError(what + ": found " + found + " instead of " + expected);
}

}  // namespace

std::int64_t to_integer(nb::handle object, const std::string& what) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) refuse(object, what, "an integer");
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0)
    throw InputError(what + ": " + nb::cast<std::string>(nb::str(index)) + " does not fit into 64 bits");
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

std::size_t choose(const std::string& word, std::initializer_list<std::string_view> words,
                   const std::string& what) {
  std::string known;
  for (const std::string_view* at = words.begin(); at != words.end(); ++at) {
    if (*at == word) return static_cast<std::size_t>(at - words.begin());
    known += (known.empty() ? "'" : ", '") + std::string(*at) + "'";
  }
  throw InputError(what + ": found '" + word + "' instead of one of " + known);
}

nb::iterator items_of(nb::handle object, const std::string& what, const char* expected) {
  if (nb::isinstance<nb::str>(object) || nb::isinstance<nb::dict>(object) ||
      !nb::hasattr(object, "__iter__")) {
    refuse(object, what, expected);
  }
  return nb::iter(object);
}

std::vector<std::int64_t> to_integers(nb::handle object, const std::string& what) {
  std::vector<std::int64_t> result;
  for (nb::handle item : items_of(object, what, "an array of integers"))
    result.push_back(to_integer(item, what));
  return result;
}

std::string to_text(nb::handle object, const std::string& what) {
  if (!nb::isinstance<nb::str>(object)) refuse(object, what, "text");
  return nb::cast<std::string>(object);
}

nb::dict to_dict(nb::handle object, const std::string& what) {
  if (!nb::isinstance<nb::dict>(object)) refuse(object, what, "an object");
  return nb::borrow<nb::dict>(object);
}

OrderMode parse_order(const std::string& text) {
  for (OrderMode mode : {OrderMode::kFixed, OrderMode::kFree}) {
    if (text == to_string(mode)) return mode;
  }
  throw UsageError("order must be 'fixed' or 'free', not '" + text + "'");
}

std::optional<Bytes> parse_budget_object(nb::handle budget, Bytes reference, Bytes floor) {
  if (budget.is_none()) return std::nullopt;
  if (nb::isinstance<nb::str>(budget)) {
    try {
      return parse_budget(nb::cast<std::string>(budget), reference, floor);
    } catch (const InputError& error) {
      throw BudgetFault(error.what());
    }
  }
  const std::int64_t count = with_fault<BudgetFault>([&] { return to_integer(budget, "budget"); });
  if (count <= 0 || count >= kMaxCount) {
    throw BudgetFault("budget " + std::to_string(count) + " is outside [1, " + std::to_string(kMaxCount) +
                      ")");
  }
  return Bytes(count);
}

void warn(const std::vector<std::string>& lines) {
  constexpr int kAboveWrapper = 2;  // the caller of the Python function that calls the core
  for (const std::string& line : lines) {
    if (PyErr_WarnEx(PyExc_UserWarning, line.c_str(), kAboveWrapper) < 0) throw nb::python_error();
  }
}

std::string percent_text(std::optional<double> share) {
  if (!share) return "unknown";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g%%", 100 * *share);
  return text.data();
}

nb::dict dict_of(const Counters& counters) {
  nb::dict dict;
  for (const auto& [name, count] : counters) dict[name.c_str()] = count;
  return dict;
}

}  // namespace remat::python
