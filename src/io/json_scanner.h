// Splits JSON text into tokens, strictly as RFC 8259 has it. It says that a text is wrong, not how: messages
// are made by a parser that is slower (json_reader.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remat::io {

/// First those that a value begins with.
enum class Token : std::uint8_t {
  kNull,
  kFalse,
  kTrue,
  kInteger,  ///< fits into 64 bits
  kNumber,   ///< any other
  kText,
  kBeginObject,
  kBeginArray,
  kEndObject,
  kEndArray,
  kColon,
  kComma,
  kEnd,
  kWrong
};
inline bool begins_value(Token token) { return token <= Token::kBeginArray; }

class Scanner {
 public:
  explicit Scanner(std::string_view text);

  Token next();
  /// The first character behind what was looked at: the last token, and behind a number one more.
  const char* at() const { return at_; }

  std::int64_t integer() const { return integer_; }
  double number() const { return number_; }
  /// Of a text what it says, of a number (not of an integer) how it is spelled; until the next token.
  std::string_view text() const { return text_; }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  Token one(Token token) {
    at_ = ++next_;
    return token;
  }
  Token word(std::string_view spelled, Token token);
  Token scan_number();
  Token scan_real(const char* begin);
  bool skip_digits() {
    const char* begin = next_;
    while (next_ != end_ && is_digit(*next_)) ++next_;
    return next_ != begin;
  }
  Token scan_text();
  Token scan_unplain(const char* begin);
  bool scan_escape();
  bool scan_code_unit(std::uint32_t& unit);
  bool skip_character();

  const char* next_;  ///< where the next token, or blanks before it, begin
  const char* end_;
  const char* at_;
  std::int64_t integer_ = 0;
  double number_ = 0;
  std::string_view text_;
  std::string decoded_;  ///< what `text_` looks at where the file spells it otherwise
};

}  // namespace remat::io
