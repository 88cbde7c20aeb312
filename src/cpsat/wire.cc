#include "cpsat/wire.h"

#include <bit>

#include "base/numbers.h"

namespace remat::cpsat {
namespace {

enum WireType : std::uint64_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

std::uint64_t tag(int field, WireType type) { return static_cast<std::uint64_t>(field) << 3 | type; }

}  // namespace

void WireWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) data_.push_back(static_cast<char>(value | 0x80));
  data_.push_back(static_cast<char>(value));
}

WireWriter& WireWriter::number(int field, std::int64_t value) {
  varint(tag(field, kVarint));
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

WireWriter& WireWriter::real(int field, double value) {
  varint(tag(field, kFixed64));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) data_.push_back(static_cast<char>(bits >> shift));
  return *this;
}

WireWriter& WireWriter::bytes(int field, std::string_view payload) {
  varint(tag(field, kLength));
  varint(payload.size());
  data_.append(payload);
  return *this;
}

WireWriter& WireWriter::packed(int field, std::span<const std::int64_t> values) {
  if (values.empty()) return *this;
  WireWriter inner;
  for (std::int64_t value : values) inner.varint(static_cast<std::uint64_t>(value));
  return bytes(field, inner.data_);
}

std::optional<std::uint64_t> WireReader::varint() {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < rest_.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return value;
    }
  }
  ok_ = false;
  return std::nullopt;
}

std::optional<std::string_view> WireReader::take(std::uint64_t size) {
  if (size > rest_.size()) {
    ok_ = false;
    return std::nullopt;
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::optional<std::int64_t> WireReader::next_packed() {
  if (rest_.empty() || !ok_) return std::nullopt;
  const auto value = varint();
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<WireField> WireReader::next() {
  if (rest_.empty() || !ok_) return std::nullopt;
  const auto head = varint();
  if (!head) return std::nullopt;
  WireField field;
  field.number = narrow<int>(*head >> 3);
  switch (*head & 7) {
    case kVarint: {
      const auto value = varint();
      if (!value) return std::nullopt;
      field.value = static_cast<std::int64_t>(*value);
      return field;
    }
    case kFixed64: {
      const auto eight = take(8);
      if (!eight) return std::nullopt;
      std::uint64_t bits = 0;
      for (std::size_t i = 0; i < 8; ++i)
        bits |= std::uint64_t{static_cast<unsigned char>((*eight)[i])} << (8 * i);
      field.real = std::bit_cast<double>(bits);
      return field;
    }
    case kLength: {
      const auto size = varint();
      const auto payload = size ? take(*size) : std::nullopt;
      if (!payload) return std::nullopt;
      field.bytes = *payload;
      return field;
    }
    case kFixed32:
      if (!take(4)) return std::nullopt;
      return field;
    default:
      ok_ = false;
      return std::nullopt;
  }
}

}  // namespace remat::cpsat
