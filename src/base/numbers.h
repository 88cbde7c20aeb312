// Conversions between signed integers (all counts here), the unsigned ones of containers, and real numbers.
// Checked from level "debug" on.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "remat/check.h"
#include "remat/ids.h"
#include "remat/quantity.h"

namespace remat {

/// The same number in another integer type, which must be able to hold it.
template <std::integral To, std::integral From>
constexpr To narrow(From number) {
  REMAT_ASSERT(std::in_range<To>(number), number);
  return static_cast<To>(number);
}

/// An index for a container: `rows[at(i)]`.
template <std::integral Index>
constexpr std::size_t at(Index index) {
  return narrow<std::size_t>(index);
}
template <class Tag>
constexpr std::size_t at(Id<Tag> id) {
  return at(id.index());
}
template <class Choice>
  requires std::is_enum_v<Choice>
constexpr std::size_t at(Choice choice) {
  return static_cast<std::size_t>(choice);
}

/// 0, 1, ... end - 1.
class Indices {
 public:
  struct iterator {
    int at;
    constexpr int operator*() const { return at; }
    constexpr iterator& operator++() {
      ++at;
      return *this;
    }
    friend constexpr bool operator==(iterator, iterator) = default;
  };
  constexpr explicit Indices(int end) : end_(end) {}
  constexpr iterator begin() const { return {0}; }
  constexpr iterator end() const { return {end_}; }

 private:
  int end_;
};

/// The indices of a container that does not grow in the loop: `for (int i : indices(rows))`.
template <class List>
constexpr Indices indices(const List& list) {
  return Indices(narrow<int>(list.size()));
}

/// The nearest real number.
template <std::integral Number>
constexpr double real(Number number) {
  return static_cast<double>(number);
}
constexpr double real(Wide number) { return static_cast<double>(number); }
double real(std::floating_point auto) = delete;
template <class Tag>
constexpr double real(Quantity<Tag> amount) {
  return real(amount.count());
}

}  // namespace remat
