// How amounts, ids and the names of enums look in Python: integers and texts.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "remat/executor.h"
#include "remat/ids.h"
#include "remat/limits.h"
#include "remat/plan.h"
#include "remat/planner.h"
#include "remat/quantity.h"
#include "remat/report.h"

namespace remat::python {

namespace nb = nanobind;

template <class Tag>
std::int64_t to_count(Quantity<Tag> amount) {
  return amount.count();
}
template <class Tag>
std::int64_t to_count(Id<Tag> id) {
  return id.index();
}

/// The members of a struct as a Python tuple, and a struct of them.
template <class T, class... Members>
nb::tuple state_of(const T& object, const std::tuple<Members...>& members) {
  return std::apply([&](auto... member) { return nb::make_tuple(object.*member...); }, members);
}
template <class T, class... Members>
T from_state(nb::tuple state, const std::tuple<Members...>& members) {
  T object;
  std::size_t i = 0;
  const auto set = [&](auto& value) {
    value = nb::cast<std::remove_reference_t<decltype(value)>>(state[i++]);
  };
  std::apply([&](auto... member) { (set(object.*member), ...); }, members);
  return object;
}

/// The members of structs that Python sees in pickles only, where they are tuples: see planning.h.
template <class T>
inline constexpr std::nullptr_t kMembers = nullptr;
template <class T>
inline constexpr bool kHasMembers = !std::is_same_v<decltype(kMembers<T>), const std::nullptr_t>;

}  // namespace remat::python

namespace nanobind::detail {

/// Of a type that `to_count` turns into an integer.
template <class T>
struct CountCaster {
  NB_TYPE_CASTER(T, const_name("int"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::int64_t> count;
    if (!count.from_python(source, flags, cleanup)) return false;
    value = T(count.value);
    return true;
  }
  static handle from_cpp(T amount, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<std::int64_t>::from_cpp(remat::python::to_count(amount), policy, cleanup);
  }
};

/// Of an enum whose values, from 0 on, have the names of `to_string`.
template <class Enum>
struct NameCaster {
  NB_TYPE_CASTER(Enum, const_name("str"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::string> name;
    if (!name.from_python(source, flags, cleanup)) return false;
    constexpr int kMostValues = 16;
    for (int i = 0; i < kMostValues; ++i) {
      value = static_cast<Enum>(i);
      if (to_string(value) == name.value) return true;
    }
    return false;
  }
  static handle from_cpp(Enum word, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<std::string>::from_cpp(std::string(to_string(word)), policy, cleanup);
  }
};

template <class Tag>
struct type_caster<remat::Quantity<Tag>> : CountCaster<remat::Quantity<Tag>> {};
template <class Tag>
struct type_caster<remat::Id<Tag>> : CountCaster<remat::Id<Tag>> {};
template <class T>
struct type_caster<T, enable_if_t<remat::python::kHasMembers<T>>> {
  NB_TYPE_CASTER(T, const_name("tuple"))

  bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept try {
    value = remat::python::from_state<T>(borrow<nanobind::tuple>(source), remat::python::kMembers<T>);
    return true;
  } catch (...) {
    return false;
  }
  static handle from_cpp(const T& object, rv_policy, cleanup_list*) noexcept {
    return remat::python::state_of(object, remat::python::kMembers<T>).release();
  }
};
template <>
struct type_caster<remat::Executor> : NameCaster<remat::Executor> {};
template <>
struct type_caster<remat::OptionType> : NameCaster<remat::OptionType> {};
template <>
struct type_caster<remat::OrderMode> : NameCaster<remat::OrderMode> {};
template <>
struct type_caster<remat::ReportFormat> : NameCaster<remat::ReportFormat> {};
template <>
struct type_caster<remat::Status> : NameCaster<remat::Status> {};
template <>
struct type_caster<remat::StoppedBy> : NameCaster<remat::StoppedBy> {};
template <>
struct type_caster<remat::Way> : NameCaster<remat::Way> {};

}  // namespace nanobind::detail
