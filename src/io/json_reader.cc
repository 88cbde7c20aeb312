#include "io/json_reader.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/one_line.h"
#include "remat/quantity.h"

namespace remat::io {

namespace {

/// A character pointer that shares its position with the reader: the parser gives positions only for syntax
/// errors, not for errors of meaning.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  TrackedIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  [[maybe_unused]] friend bool operator==(const TrackedIterator& a, const TrackedIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const TrackedIterator& a, const TrackedIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  const char** seen_;
};

/// At most 40 bytes of a text, quoted, cut between characters.
std::string in_quotes(const std::string& text) {
  constexpr std::size_t kShown = 40;
  if (text.size() <= kShown) return "'" + text + "'";
  std::size_t cut = kShown;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  return std::string("'").append(text, 0, cut).append("...'");
}

}  // namespace

/// Passes nlohmann's SAX events to the open element.
class Events {
 public:
  using json = nlohmann::json;
  explicit Events(Reader& reader) : r_(reader) {}

  bool null() {
    r_.target().null(r_);
    return !r_.stopped_;
  }
  bool boolean(bool value) {
    r_.target().boolean(r_, value);
    return !r_.stopped_;
  }
  bool number_integer(json::number_integer_t value) {
    r_.target().integer(r_, value);
    return !r_.stopped_;
  }
  bool number_unsigned(json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_float(real(value), std::to_string(value));
    }
    return number_integer(static_cast<std::int64_t>(value));
  }
  bool number_float(json::number_float_t value, const std::string& text) {
    r_.target().number(r_, value, text);
    return !r_.stopped_;
  }
  bool string(std::string& value) {
    r_.target().text(r_, value);
    return !r_.stopped_;
  }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    Element& element = r_.target();
    element.begin_object(r_);
    r_.open(element, true);
    return !r_.stopped_;
  }
  bool start_array(std::size_t) {
    Element& element = r_.target();
    element.begin_array(r_);
    r_.open(element, false);
    return !r_.stopped_;
  }
  bool key(std::string& name) {
    r_.next_ = &r_.stack_.back()->member(r_, name);
    return !r_.stopped_;
  }
  bool end_object() { return end_array(); }
  bool end_array() {
    r_.close();
    return !r_.stopped_;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) {
    r_.fail_syntax(error.what());
  }

 private:
  Reader& r_;
};

Reader::Reader(std::string_view text, std::string_view place)
    : text_(text), place_(place), at_(text.data()) {}

void Reader::read(Element& root) {
  if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError(std::string(place_) + ": the file is empty");
  }
  root_ = &root;
  Events events(*this);
  const char* end = text_.data() + text_.size();
  nlohmann::json::sax_parse(TrackedIterator(text_.data(), &at_), TrackedIterator(end, &at_), &events);
}

void Reader::open(Element& element, bool object) {
  if (stack_.size() == kMaxDepth) {
    fail_here("nested deeper than " + std::to_string(kMaxDepth) + " levels");
  }
  stack_.push_back(&element);
  in_object_.push_back(object);
  unread_.emplace_back();
}

void Reader::close() {
  stack_.back()->end(*this);
  stack_.pop_back();
  in_object_.pop_back();
  unread_.pop_back();
}

std::string Reader::position() const {
  const std::string_view read = text_.substr(0, narrow<std::size_t>(at_ - text_.data()));
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const std::size_t newline = read.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? read.size() : read.size() - newline - 1;
  return std::string(place_) + ":" + std::to_string(line) + ":" +
         std::to_string(std::max<std::size_t>(column, 1)) + ": ";
}

void Reader::fail_here(const std::string& what) const { throw InputError(one_line(position() + what)); }

void Reader::fail(const std::string& what) const {
  std::string places;
  for (const Element* element : stack_) {
    const std::string one = element->where();
    if (!one.empty()) places += one + ": ";
  }
  fail_here(places + what);
}

/// The parser's message quotes what it read last, at any length.
static std::string printable(const std::string& text) {
  constexpr std::size_t kLongest = 240;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (char c : text) {
    if (result.size() >= kLongest) return result + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

void Reader::fail_syntax(const std::string& message) const {
  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ...".
  const std::size_t id_end = message.find("] ");
  std::string what = id_end == std::string::npos ? message : message.substr(id_end + 2);
  if (what.starts_with("parse error")) {
    const std::size_t colon = what.find(": ");
    if (colon != std::string::npos) what = what.substr(colon + 2);
  }
  fail_here("not valid JSON: " + printable(what));
}

void Reader::require_new(const std::string& key) {
  if (!unread_.back().insert(key).second) fail("the key " + in_quotes(key) + " appears twice");
}

void Reader::note_unknown(std::string what) {
  if (noted_.insert(what).second) unknown_.push_back(std::move(what));
}

std::string Reader::unknown_keys() const {
  constexpr std::size_t kShown = 12;
  if (unknown_.empty()) return {};
  std::string line = std::string(place_) + ": ignored unknown keys: ";
  for (std::size_t i = 0; i < std::min(unknown_.size(), kShown); ++i) line += (i ? ", " : "") + unknown_[i];
  if (unknown_.size() > kShown) line += " and " + std::to_string(unknown_.size() - kShown) + " more";
  return line;
}

namespace {

[[noreturn]] void refuse(Reader& reader, const Element& element, const std::string& found) {
  reader.fail("found " + found + " instead of " + std::string(element.expected()));
}

}  // namespace

void Element::null(Reader& reader) { refuse(reader, *this, "null"); }
void Element::boolean(Reader& reader, bool value) { refuse(reader, *this, value ? "true" : "false"); }
void Element::integer(Reader& reader, std::int64_t value) { refuse(reader, *this, std::to_string(value)); }
void Element::number(Reader& reader, double, const std::string& text) {
  const bool whole = text.find_first_of(".eE") == std::string::npos;
  if (!whole) refuse(reader, *this, "the fraction " + text);
  reader.fail(text + " does not fit into 64 bits");
}
void Element::text(Reader& reader, std::string& value) {
  refuse(reader, *this, "the text " + in_quotes(value));
}
void Element::begin_object(Reader& reader) { refuse(reader, *this, "an object"); }
void Element::begin_array(Reader& reader) { refuse(reader, *this, "an array"); }
Element& Element::member(Reader& reader, const std::string&) { refuse(reader, *this, "an object"); }
Element& Element::item(Reader& reader) { refuse(reader, *this, "an array"); }

Skip& Skip::nothing() {
  static Skip skip;
  return skip;
}

void Count::integer(Reader& reader, std::int64_t read) {
  if (read < 0 || read >= kMaxCount) {
    reader.fail(std::to_string(read) + " is outside [0, " + std::to_string(kMaxCount) + ")");
  }
  value = read;
}

void FormatName::text(Reader& reader, std::string& read) {
  if (read != name_) reader.fail("found " + in_quotes(read) + " instead of " + in_quotes(std::string(name_)));
}

void FormatVersion::integer(Reader& reader, std::int64_t read) {
  if (read >= 1 && read <= newest_) {
    value = read;
    return;
  }
  const std::string known = newest_ == 1 ? "version 1" : "versions 1 to " + std::to_string(newest_);
  reader.fail("version " + std::to_string(read) + " is not supported; this reader knows " + known);
}

void Choice::text(Reader& reader, std::string& read) {
  const auto at = std::find(words_.begin(), words_.end(), read);
  if (at == words_.end()) {
    std::string known;
    for (std::string_view word : words_) known += (known.empty() ? "'" : ", '") + std::string(word) + "'";
    reader.fail("found " + in_quotes(read) + " instead of one of " + known);
  }
  value = narrow<std::size_t>(at - words_.begin());
}

void Object::begin_object(Reader&) {
  seen_ = 0;
  last_ = kNone;
  at_unknown_ = false;
  for (const Field& field : fields_) field.element->reset();
}

std::size_t Object::find(std::string_view key) const {
  // Files repeat their keys in the same sequence, so the search starts after the last one.
  for (std::size_t tried = 1; tried <= fields_.size(); ++tried) {
    const std::size_t at = last_ == kNone ? tried - 1 : (last_ + tried) % fields_.size();
    if (fields_[at].key == key) return at;
  }
  return kNone;
}

Element& Object::member(Reader& reader, const std::string& key) {
  static Skip skip;
  const std::size_t at = find(key);
  at_unknown_ = at == kNone;
  if (at_unknown_) {
    reader.require_new(key);
    if (unknown_keys_are_noted()) reader.note_unknown(std::string(key_prefix()) + key);
    return skip;
  }
  last_ = at;
  if (seen_ >> at & 1) reader.fail("the key appears twice");
  seen_ |= 1u << at;
  return *fields_[at].element;
}

bool Object::has(std::string_view key) const {
  const std::size_t at = find(key);
  return at != kNone && (seen_ >> at & 1) != 0;
}

void Object::end(Reader& reader) {
  last_ = kNone;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].required && !(seen_ >> i & 1)) {
      reader.fail("the key '" + std::string(fields_[i].key) + "' is missing");
    }
  }
  finish(reader);
}

std::string Object::where() const {
  std::string text = label();
  if (last_ == kNone || at_unknown_) return text;
  if (!text.empty()) text += ": ";
  return text + "'" + std::string(fields_[last_].key) + "'";
}

}  // namespace remat::io
