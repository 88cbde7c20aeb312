// The protobuf wire format, as much of it as messages to and from CP-SAT need.
//
// A message is a sequence of fields; a field is a tag (field number << 3 | wire type) and its payload.
// Numbers are varints (seven bits a byte, low bits first), doubles eight bytes, everything else is a length
// and that many bytes. A repeated number may come packed: one field with all varints back to back.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace remat::cpsat {

/// Appends fields to a message. int32, int64, bool and enum fields are all `number`.
class WireWriter {
 public:
  WireWriter& number(int field, std::int64_t value);
  WireWriter& real(int field, double value);
  WireWriter& bytes(int field, std::string_view payload);
  WireWriter& packed(int field, std::span<const std::int64_t> values);
  WireWriter& message(int field, const WireWriter& inner) { return bytes(field, inner.data()); }

  const std::string& data() const { return data_; }

 private:
  void varint(std::uint64_t value);
  std::string data_;
};

/// One field of a message. Only the member that belongs to the wire type is set.
struct WireField {
  int number = 0;
  std::int64_t value = 0;  ///< varint
  double real = 0;         ///< eight bytes
  std::string_view bytes;  ///< length-delimited; a view into the message
};

/// Reads a message field by field. `ok` turns false on a message that breaks off or is malformed.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}
  std::optional<WireField> next();
  bool ok() const { return ok_; }

  /// The next varint of a packed payload.
  std::optional<std::int64_t> next_packed();

 private:
  std::optional<std::uint64_t> varint();
  std::optional<std::string_view> take(std::uint64_t size);

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace remat::cpsat
