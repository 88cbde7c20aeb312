// Strong index types, index ranges, and containers that take only the right index type.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "remat/check.h"
#include "remat/export.h"

namespace REMAT_API remat {

/// An index of one kind (op, value, step, ...). 32 bits: graphs and plans beyond 2^31 entries are refused at
/// the border. A default-constructed id names nothing and is `none()`.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int64_t index) : index_(static_cast<std::int32_t>(index)) {}
  static constexpr Id none() { return Id(); }

  constexpr std::int32_t index() const { return index_; }
  constexpr bool is_none() const { return index_ < 0; }
  constexpr explicit operator bool() const { return index_ >= 0; }
  constexpr Id& operator++() {
    ++index_;
    return *this;
  }
  constexpr Id next() const { return Id(index_ + 1); }
  constexpr Id prev() const { return Id(index_ - 1); }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t index_ = -1;
};

using OpId = Id<struct OpTag>;
using ValueId = Id<struct ValueTag>;
using StepId = Id<struct StepTag>;

/// The half-open range [begin, end) of ids: `for (OpId op : graph.ops())`.
template <class I>
class IdRange {
 public:
  class iterator {
   public:
    using value_type = I;
    using difference_type = std::ptrdiff_t;
    constexpr iterator() = default;
    constexpr explicit iterator(I at) : at_(at) {}
    constexpr I operator*() const { return at_; }
    constexpr iterator& operator++() {
      ++at_;
      return *this;
    }
    constexpr iterator operator++(int) {
      iterator old = *this;
      ++at_;
      return old;
    }
    friend constexpr bool operator==(iterator, iterator) = default;

   private:
    I at_;
  };
  constexpr IdRange(I begin, I end) : begin_(begin), end_(end) {}
  constexpr iterator begin() const { return iterator(begin_); }
  constexpr iterator end() const { return iterator(end_); }
  constexpr std::int64_t size() const { return end_.index() - begin_.index(); }

 private:
  I begin_, end_;
};

/// A vector indexed by one id type only.
template <class I, class T>
class IndexVector {
 public:
  IndexVector() = default;
  explicit IndexVector(std::size_t n, const T& value = T()) : data_(n, value) {}
  explicit IndexVector(std::vector<T> data) : data_(std::move(data)) {}

  typename std::vector<T>::reference operator[](I i) {
    REMAT_ASSERT(i.index() >= 0 && static_cast<std::size_t>(i.index()) < data_.size(), i, data_.size());
    return data_[static_cast<std::size_t>(i.index())];
  }
  typename std::vector<T>::const_reference operator[](I i) const {
    REMAT_ASSERT(i.index() >= 0 && static_cast<std::size_t>(i.index()) < data_.size(), i, data_.size());
    return data_[static_cast<std::size_t>(i.index())];
  }
  std::size_t size() const { return data_.size(); }
  bool empty() const { return data_.empty(); }
  IdRange<I> ids() const { return {I(0), I(static_cast<std::int64_t>(data_.size()))}; }
  /// Appends and returns the id of the new element.
  I push_back(T value) {
    data_.push_back(std::move(value));
    return I(static_cast<std::int64_t>(data_.size()) - 1);
  }
  void assign(std::size_t n, const T& value) { data_.assign(n, value); }
  void resize(std::size_t n, const T& value = T()) { data_.resize(n, value); }
  void reserve(std::size_t n) { data_.reserve(n); }
  void clear() { data_.clear(); }
  auto begin() { return data_.begin(); }
  auto end() { return data_.end(); }
  auto begin() const { return data_.begin(); }
  auto end() const { return data_.end(); }
  const std::vector<T>& raw() const { return data_; }
  std::vector<T>& raw() { return data_; }
  friend bool operator==(const IndexVector&, const IndexVector&) = default;

 private:
  std::vector<T> data_;
};

/// Compressed rows: for each I a list of T, stored back to back. Rows are appended in order.
template <class I, class T>
class Rows {
 public:
  Rows() : begin_{0} {}
  /// Ends the current row; the entries pushed since the last call are row `size() - 1`.
  void end_row() { begin_.push_back(static_cast<std::int64_t>(data_.size())); }
  void push(T entry) { data_.push_back(entry); }
  template <class Range>
  void append_row(const Range& entries) {
    data_.insert(data_.end(), std::begin(entries), std::end(entries));
    end_row();
  }
  std::span<const T> operator[](I i) const {
    REMAT_ASSERT(i.index() >= 0 && static_cast<std::size_t>(i.index()) < size(), i, size());
    const auto b = begin_[static_cast<std::size_t>(i.index())];
    const auto e = begin_[static_cast<std::size_t>(i.index()) + 1];
    return {data_.data() + b, static_cast<std::size_t>(e - b)};
  }
  std::size_t size() const { return begin_.size() - 1; }
  std::size_t entries() const { return data_.size(); }
  void shrink_to_fit() {
    begin_.shrink_to_fit();
    data_.shrink_to_fit();
  }
  friend bool operator==(const Rows&, const Rows&) = default;

  /// The transposed relation: row j of the result lists, ascending, every i whose row holds j.
  template <class J = T>
  static Rows<J, I> transpose(const Rows& rows, std::size_t columns) {
    std::vector<std::int64_t> count(columns + 1, 0);
    for (const T& entry : rows.data_) ++count[static_cast<std::size_t>(entry.index()) + 1];
    for (std::size_t c = 0; c < columns; ++c) count[c + 1] += count[c];
    Rows<J, I> out;
    out.begin_ = count;
    out.data_.resize(rows.data_.size());
    std::vector<std::int64_t> at(count.begin(), count.end() - 1);
    for (std::size_t r = 0; r + 1 < rows.begin_.size(); ++r) {
      for (const T& entry : rows[I(static_cast<std::int64_t>(r))]) {
        out.data_[static_cast<std::size_t>(at[static_cast<std::size_t>(entry.index())]++)] =
            I(static_cast<std::int64_t>(r));
      }
    }
    return out;
  }

 private:
  template <class, class>
  friend class Rows;
  std::vector<std::int64_t> begin_;
  std::vector<T> data_;
};

}  // namespace REMAT_API remat

template <class Tag>
struct std::hash<remat::Id<Tag>> {
  std::size_t operator()(remat::Id<Tag> id) const { return std::hash<std::int32_t>()(id.index()); }
};
