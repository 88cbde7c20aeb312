// The scanner beside the parser that words the messages: both must find the same tokens, and the same texts
// wrong at the same places.
#include "io/json_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fuzz/damage.h"
#include "helpers/reproduce.h"
#include "io/json_reader.h"

namespace remat::io {
namespace {

/// What a document says, as one line.
class Said : public Element {
 public:
  std::string_view expected() const override { return "anything"; }
  void null(Reader&) override { line += "null "; }
  void boolean(Reader&, bool read) override { line += read ? "true " : "false "; }
  void integer(Reader&, std::int64_t read) override { line += std::to_string(read) + " "; }
  void number(Reader&, double read, const std::string& text) override {
    line += std::to_string(read) + "=" + text + " ";
  }
  void text(Reader&, std::string_view read) override { line.append("'").append(read).append("' "); }
  void begin_object(Reader&) override { line += "{ "; }
  void begin_array(Reader&) override { line += "[ "; }
  Element& member(Reader&, std::string_view key) override {
    line.append(key).append(": ");
    return *this;
  }
  Element& item(Reader&) override { return *this; }
  void end(Reader&) override { line += "end "; }
  std::string line;
};

/// The same from nlohmann's events.
class SaidByOther {
 public:
  using json = nlohmann::json;
  bool null() { return add("null"); }
  bool boolean(bool read) { return add(read ? "true" : "false"); }
  bool number_integer(json::number_integer_t read) { return add(std::to_string(read)); }
  bool number_unsigned(json::number_unsigned_t read) {
    const bool fits = read <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    return fits ? add(std::to_string(read)) : number_float(static_cast<double>(read), std::to_string(read));
  }
  bool number_float(double read, const std::string& text) { return add(std::to_string(read) + "=" + text); }
  bool string(std::string& read) { return add("'" + read + "'"); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return add("{"); }
  bool start_array(std::size_t) { return add("["); }
  bool key(std::string& name) { return add(name + ":"); }
  bool end_object() { return add("end"); }
  bool end_array() { return add("end"); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }
  bool add(const std::string& what) {
    line += what + " ";
    return true;
  }
  std::string line;
};

/// Empty where the text is accepted.
std::string message_of(const std::string& text, Said& said) {
  try {
    Reader(text, "t").read(said);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

void expect_alike(const std::string& text) {
  Said said;
  SaidByOther other;
  const std::string message = message_of(text, said);
  if (message == "t: the file is empty" || message.find("nested deeper") != std::string::npos) return;
  const bool is_right = nlohmann::json::sax_parse(text, &other);
  EXPECT_EQ(message.empty(), is_right) << text << "\n" << message;
  EXPECT_EQ(said.line, other.line) << text;
  EXPECT_EQ(message.find("not valid JSON: ") != std::string::npos, !is_right) << text << "\n" << message;
}

TEST(JsonScanner, ReadsNumbersAsTheOtherParserDoes) {
  for (const char* text : {"0",
                           "-0",
                           "7",
                           "-7",
                           "00",
                           "01",
                           "-",
                           "-a",
                           "1.",
                           "1.5",
                           ".5",
                           "1e",
                           "1e5",
                           "1E+5",
                           "1e-",
                           "1e+400",
                           "-1e400",
                           "1e-400",
                           "0.1e1",
                           "1.0",
                           "123456789012345678",
                           "999999999999999999",
                           "9223372036854775807",
                           "9223372036854775808",
                           "-9223372036854775808",
                           "-9223372036854775809",
                           "18446744073709551615",
                           "18446744073709551616",
                           "1000000000000000000000000000000",
                           "0x10",
                           "1_000",
                           "+1",
                           "NaN",
                           "Infinity",
                           "4.9e-324",
                           "2e-324",
                           "1.7976931348623157e308",
                           "1.7976931348623159e308",
                           "12 ",
                           "12,",
                           "12]"}) {
    expect_alike(text);
    expect_alike("[" + std::string(text) + "]");
    expect_alike("{\"a\":" + std::string(text) + ",\"b\":" + text + "}");
  }
}

TEST(JsonScanner, ReadsTextsAsTheOtherParserDoes) {
  for (const char* inside : {"",
                             "a",
                             "1234567",
                             "12345678",
                             "123456789",
                             "\\n\\t\\r\\b\\f\\/\\\\\\\"",
                             "\\u0041\\u00e9\\u20ac",
                             "\\ud83d\\ude00",
                             "\\uD83D\\uDE00",
                             "\\ud83d",
                             "\\ud83dx",
                             "\\ud83d\\n",
                             "\\ud83d\\u0041",
                             "\\ude00",
                             "\\u12",
                             "\\u12g4",
                             "\\u-123",
                             "\\u0x12",
                             "\\u 123",
                             "\\x41",
                             "\\",
                             "\\u0000",
                             "\xc3\xa9",
                             "\xe2\x82\xac",
                             "\xf0\x9f\x98\x80",
                             "\xc0\xaf",
                             "\xc1\xbf",
                             "\xe0\x9f\xbf",
                             "\xed\xa0\x80",
                             "\xf0\x8f\xbf\xbf",
                             "\xf4\x90\x80\x80",
                             "\xf5\x80\x80\x80",
                             "\xc3",
                             "\xe2\x82",
                             "\xf0\x9f\x98",
                             "\x80",
                             "\xff",
                             "a\tb",
                             "a\nb",
                             "\x7f",
                             "a\x1f",
                             "long enough for whole words, and then \xc3\xa9 and \\n",
                             "1234567\\u00e912345678"}) {
    expect_alike("\"" + std::string(inside) + "\"");
    expect_alike("\"" + std::string(inside));
    expect_alike("{\"" + std::string(inside) + "\":[\"" + inside + "\",1]}");
  }
  expect_alike(std::string("\"a\0b\"", 5));
}

TEST(JsonScanner, ReadsEveryByteInATextAsTheOtherParserDoes) {
  for (int place = 0; place < 9; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string inside = "abcdefghi";
      inside[static_cast<std::size_t>(place)] = static_cast<char>(byte);
      expect_alike("[\"" + inside + "\"]");
    }
  }
}

TEST(JsonScanner, ReadsWordsMarksAndEndsAsTheOtherParserDoes) {
  for (const char* text : {"null",
                           "true",
                           "false",
                           "nul",
                           "nullx",
                           "True",
                           "[]",
                           "{}",
                           "[",
                           "]",
                           "{",
                           "}",
                           "[,]",
                           "[1,]",
                           "[1 2]",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\" 1}",
                           "{1:2}",
                           "{null:2}",
                           "[1}",
                           "{\"a\":1]",
                           ":",
                           ",",
                           "1 2",
                           "{} {}",
                           "[] x",
                           "// c\n1",
                           "/* c */ 1",
                           "\xef\xbb\xbf[1]",
                           "\xef\xbb[1]",
                           "\xef\xbb\xbf",
                           " \t\r\n[ \n1 , 2 ] \n",
                           "\v1",
                           "[1]\xef\xbb\xbf",
                           "'a'",
                           "[[[[]]],{\"a\":{}}]"}) {
    expect_alike(text);
  }
  expect_alike(std::string("[1]\0x", 5));
  expect_alike(std::string("[1\0]", 4));
}

TEST(JsonScanner, ReadsDamagedFilesAsTheOtherParserDoes) {
  constexpr int kRounds = 4000;
  Random random(17);
  const auto files = static_cast<std::int64_t>(fuzz::seed_files().size());
  for (int round = 0; round < kRounds; ++round) {
    std::string text = fuzz::seed_files()[static_cast<std::size_t>(random.below(files))];
    for (std::int64_t times = random.between(1, 4); times > 0; --times) fuzz::damage(text, random);
    testing::record(text + "\n");
    expect_alike(text);
  }
}

}  // namespace
}  // namespace remat::io
