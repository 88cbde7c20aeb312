#include "io/json_scanner.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/numbers.h"

namespace remat::io {
namespace {

/// A character of a text that stands for itself, in one byte.
bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= ' ' && byte < 0x80 && c != '"' && c != '\\';
}

/// Whether all eight are plain: in each byte the high bit tells, of the byte itself, of a difference that
/// went below zero, or of an exclusive or that did when one was taken off.
bool are_plain(const char* eight) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = kOnes << 7;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, eight, sizeof bytes);
  const std::uint64_t quote = bytes ^ (kOnes * '"'), backslash = bytes ^ (kOnes * '\\');
  return ((bytes | (bytes - kOnes * ' ') | (quote - kOnes) | (backslash - kOnes)) & kHigh) == 0;
}

/// At `at`, which is not the end, or behind it.
const char* skip_plain(const char* at, const char* end) {
  constexpr std::ptrdiff_t kEight = 8;
  while (end - at >= kEight && are_plain(at)) at += kEight;
  while (at != end && is_plain(*at)) ++at;
  return at;
}

void append_utf8(std::string& into, std::uint32_t code) {
  const auto byte = [&](std::uint32_t bits) { into += static_cast<char>(bits); };
  const auto six = [&](int shift) { byte(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    six(0);
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    six(6);
    six(0);
  } else {
    byte(0xf0 | code >> 18);
    six(12);
    six(6);
    six(0);
  }
}

/// Bytes of the UTF-8 character at `at` (Unicode, Table 3-7), or 0 where there is none.
int utf8_length(const char* at, const char* end) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  const auto is_between = [](unsigned char b, int low, int high) { return b >= low && b <= high; };
  const auto goes_on = [&](int i) { return end - at > i && is_between(byte(i), 0x80, 0xbf); };
  const unsigned char first = byte(0);
  if (is_between(first, 0xc2, 0xdf)) return goes_on(1) ? 2 : 0;
  if (is_between(first, 0xe0, 0xef)) {
    if (!goes_on(1) || !goes_on(2)) return 0;
    const bool is_long = first == 0xe0 && byte(1) < 0xa0, is_surrogate = first == 0xed && byte(1) > 0x9f;
    return is_long || is_surrogate ? 0 : 3;
  }
  if (!is_between(first, 0xf0, 0xf4) || !goes_on(1) || !goes_on(2) || !goes_on(3)) return 0;
  const bool is_long = first == 0xf0 && byte(1) < 0x90, is_beyond = first == 0xf4 && byte(1) > 0x8f;
  return is_long || is_beyond ? 0 : 4;
}

}  // namespace

Scanner::Scanner(std::string_view text) : next_(text.data()), end_(text.data() + text.size()), at_(next_) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) next_ += kByteOrderMark.size();
}

Token Scanner::next() {
  while (next_ != end_ && is_blank(*next_)) ++next_;
  if (next_ == end_) return Token::kEnd;
  switch (*next_) {
    case '{':
      return one(Token::kBeginObject);
    case '}':
      return one(Token::kEndObject);
    case '[':
      return one(Token::kBeginArray);
    case ']':
      return one(Token::kEndArray);
    case ':':
      return one(Token::kColon);
    case ',':
      return one(Token::kComma);
    case '"':
      return scan_text();
    case 'n':
      return word("null", Token::kNull);
    case 'f':
      return word("false", Token::kFalse);
    case 't':
      return word("true", Token::kTrue);
    case '\0':  // as the parser that makes the messages
      return Token::kEnd;
    default:
      return *next_ == '-' || is_digit(*next_) ? scan_number() : Token::kWrong;
  }
}

Token Scanner::word(std::string_view spelled, Token token) {
  if (!std::string_view(next_, end_).starts_with(spelled)) return Token::kWrong;
  at_ = next_ += spelled.size();
  return token;
}

Token Scanner::scan_number() {
  constexpr int kSafeDigits = std::numeric_limits<std::int64_t>::digits10;
  const char* begin = next_;
  const bool is_negative = *next_ == '-';
  next_ += is_negative;
  const char* first = next_;
  if (!skip_digits()) return Token::kWrong;
  if (*first == '0') next_ = first + 1;  // no digit follows a leading zero
  at_ = next_ == end_ ? next_ : next_ + 1;
  if (next_ != end_ && (*next_ == '.' || *next_ == 'e' || *next_ == 'E')) return scan_real(begin);
  if (next_ - first > kSafeDigits) {
    return std::from_chars(begin, next_, integer_).ec == std::errc() ? Token::kInteger : scan_real(begin);
  }
  std::int64_t digits = 0;
  for (const char* c = first; c != next_; ++c) digits = digits * 10 + (*c - '0');
  integer_ = is_negative ? -digits : digits;
  return Token::kInteger;
}

/// The rest of a number that is no integer of 64 bits and begins at `begin`.
Token Scanner::scan_real(const char* begin) {
  if (next_ != end_ && *next_ == '.') {
    ++next_;
    if (!skip_digits()) return Token::kWrong;
  }
  if (next_ != end_ && (*next_ == 'e' || *next_ == 'E')) {
    ++next_;
    if (next_ != end_ && (*next_ == '+' || *next_ == '-')) ++next_;
    if (!skip_digits()) return Token::kWrong;
  }
  at_ = next_ == end_ ? next_ : next_ + 1;
  text_ = {begin, next_};
  // Which of too large and too small it is, only the other one tells.
  if (std::from_chars(begin, next_, number_).ec != std::errc())
    number_ = std::strtod(std::string(text_).c_str(), nullptr);
  return std::isfinite(number_) ? Token::kNumber : Token::kWrong;
}

Token Scanner::scan_text() {
  const char* begin = ++next_;
  next_ = skip_plain(begin, end_);
  if (next_ == end_ || *next_ != '"') return scan_unplain(begin);
  text_ = {begin, next_};
  return one(Token::kText);
}

/// The rest of a text that begins at `begin` and is plain up to here.
Token Scanner::scan_unplain(const char* begin) {
  decoded_.assign(begin, next_);
  while (next_ != end_ && *next_ != '"') {
    if (*next_ == '\\' ? !scan_escape() : !skip_character()) return Token::kWrong;
    const char* plain = next_;
    next_ = skip_plain(plain, end_);
    decoded_.append(plain, next_);
  }
  if (next_ == end_) return Token::kWrong;
  text_ = decoded_;
  return one(Token::kText);
}

/// Of more than one byte.
bool Scanner::skip_character() {
  const int length = utf8_length(next_, end_);
  decoded_.append(next_, narrow<std::size_t>(length));
  next_ += length;
  return length > 0;
}

bool Scanner::scan_escape() {
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  constexpr std::uint32_t kHigh = 0xd800, kLow = 0xdc00, kBehind = 0xe000, kUpper = 0x10000;
  if (end_ - next_ < 2) return false;
  if (next_[1] != 'u') {
    const std::size_t which = kEscapes.find(next_[1]);
    if (which == std::string_view::npos) return false;
    decoded_ += kMeant[which];
    next_ += 2;
    return true;
  }
  std::uint32_t code = 0, low = 0;
  if (!scan_code_unit(code) || (code >= kLow && code < kBehind)) return false;
  if (code >= kHigh && code < kLow) {
    if (!scan_code_unit(low) || low < kLow || low >= kBehind) return false;
    code = kUpper + ((code - kHigh) << 10) + (low - kLow);
  }
  append_utf8(decoded_, code);
  return true;
}

/// \u and four hexadecimal digits.
bool Scanner::scan_code_unit(std::uint32_t& unit) {
  constexpr std::ptrdiff_t kLength = 6;
  if (end_ - next_ < kLength || next_[0] != '\\' || next_[1] != 'u') return false;
  const auto read = std::from_chars(next_ + 2, next_ + kLength, unit, 16);
  if (read.ec != std::errc() || read.ptr != next_ + kLength) return false;
  next_ += kLength;
  return true;
}

}  // namespace remat::io
