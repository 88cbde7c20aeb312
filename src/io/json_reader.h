// Streams JSON into a tree of elements. Each place of a document is an element that defines which events it
// accepts; the reader keeps the stack of open elements, so that messages name file, line, column and place.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "remat/error.h"

namespace remat::io {

class Reader;

/// One place of a document. Every event is refused unless a subclass takes it.
class Element {
 public:
  virtual ~Element() = default;

  /// "an integer", "text", ...: what belongs here.
  virtual std::string_view expected() const = 0;
  /// Back to the default, before the object that holds this element is read again.
  virtual void reset() {}
  /// How messages name this place while it is open: "op 12 'mm'", "entry 3"; may be empty.
  virtual std::string where() const { return {}; }

  virtual void null(Reader& reader);
  virtual void boolean(Reader& reader, bool value);
  virtual void integer(Reader& reader, std::int64_t value);
  /// A number that is not an int64; `text` is its spelling in the file.
  virtual void number(Reader& reader, double value, const std::string& text);
  virtual void text(Reader& reader, std::string& value);
  virtual void begin_object(Reader& reader);
  virtual void begin_array(Reader& reader);

  /// The element for the value of `key` (in an open object) or for the next item (in an open array).
  virtual Element& member(Reader& reader, const std::string& key);
  virtual Element& item(Reader& reader);
  virtual void end(Reader&) {}
};

/// Reads one document from memory.
class Reader {
 public:
  /// `place` stands for the file's name in messages.
  Reader(std::string_view text, std::string_view place);

  /// Feeds the whole text to `root`; throws InputError.
  void read(Element& root);
  /// Ends `read` early and without an error.
  void stop() { stopped_ = true; }

  /// Throws InputError: file, line, column, the open places, `what`.
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws InputError: file, line, column, `what` (which names its place itself).
  [[noreturn]] void fail_here(const std::string& what) const;
  /// Throws InputError if the open object already had this key, which no element reads.
  void require_new(const std::string& key);
  /// Notes a key that no element reads, as "ops[].color".
  void note_unknown(std::string what);
  /// One line that names all unknown keys, or empty.
  std::string unknown_keys() const;

 private:
  friend class Events;
  Element& target() {
    return stack_.empty() ? *root_ : in_object_.back() ? *next_ : stack_.back()->item(*this);
  }
  void open(Element& element, bool object);
  void close();
  [[noreturn]] void fail_syntax(const std::string& message) const;
  std::string position() const;

  /// No format of Remat is deeper than 5.
  static constexpr std::size_t kMaxDepth = 128;

  std::string_view text_;
  std::string_view place_;
  const char* at_;  ///< first character not read yet
  bool stopped_ = false;
  Element* root_ = nullptr;
  Element* next_ = nullptr;  ///< takes the value of the key just read
  std::vector<Element*> stack_;
  std::vector<bool> in_object_;
  std::vector<std::set<std::string>> unread_;  ///< of each open object or array: keys that no element reads
  std::vector<std::string> unknown_;
  std::set<std::string> noted_;  ///< what `unknown_` holds
};

/// Takes anything and keeps nothing.
class Skip : public Element {
 public:
  std::string_view expected() const override { return "anything"; }
  void null(Reader&) override {}
  void boolean(Reader&, bool) override {}
  void integer(Reader&, std::int64_t) override {}
  void number(Reader&, double, const std::string&) override {}
  void text(Reader&, std::string&) override {}
  void begin_object(Reader&) override {}
  void begin_array(Reader&) override {}
  Element& member(Reader& reader, const std::string& key) override {
    reader.require_new(key);
    return nothing();
  }
  Element& item(Reader&) override { return nothing(); }

 private:
  static Skip& nothing();
};

class Text : public Element {
 public:
  std::string_view expected() const override { return "text"; }
  void reset() override { value.clear(); }
  void text(Reader&, std::string& read) override { value.swap(read); }
  std::string value;
};

class Integer : public Element {
 public:
  std::string_view expected() const override { return "an integer"; }
  void reset() override { value = 0; }
  void integer(Reader&, std::int64_t read) override { value = read; }
  std::int64_t value = 0;
};

/// A size or a duration in [0, kMaxCount), or null for "not stated".
class Count : public Element {
 public:
  std::string_view expected() const override { return "an integer"; }
  void reset() override { value.reset(); }
  void null(Reader&) override { value.reset(); }
  void integer(Reader& reader, std::int64_t read) override;
  template <class Q>
  std::optional<Q> as() const {
    return value ? std::optional<Q>(Q(*value)) : std::nullopt;
  }
  std::optional<std::int64_t> value;
};

/// True or false.
class Flag : public Element {
 public:
  std::string_view expected() const override { return "true or false"; }
  void reset() override { value = false; }
  void boolean(Reader&, bool read) override { value = read; }
  bool value = false;
};

/// The name of the format, and its version: 1 up to the newest.
class FormatName : public Text {
 public:
  explicit FormatName(std::string_view name) : name_(name) {}
  void text(Reader& reader, std::string& read) override;

 private:
  std::string_view name_;
};
class FormatVersion : public Integer {
 public:
  explicit FormatVersion(std::int64_t newest = 1) : newest_(newest) {}
  void integer(Reader& reader, std::int64_t read) override;

 private:
  std::int64_t newest_;
};

/// One of a few words; `value` is its index.
class Choice : public Element {
 public:
  explicit Choice(std::vector<std::string_view> words) : words_(std::move(words)) {}
  std::string_view expected() const override { return "text"; }
  void reset() override { value = 0; }
  void text(Reader& reader, std::string& read) override;
  std::string_view word() const { return words_[value]; }
  std::size_t value = 0;

 private:
  std::vector<std::string_view> words_;
};

/// An array whose items are all read by one element, which names them in messages.
class Array : public Element {
 public:
  explicit Array(Element& each) : each_(&each) {}
  std::string_view expected() const override { return "an array"; }
  void begin_array(Reader&) override {}
  Element& item(Reader&) override { return *each_; }

 private:
  Element* each_;
};

/// An array of integers.
class IntegerList : public Element {
 public:
  std::string_view expected() const override { return "an array of integers"; }
  void reset() override { values.clear(); }
  void begin_array(Reader&) override { values.clear(); }
  Element& item(Reader&) override { return each_; }
  std::string where() const override { return "entry " + std::to_string(values.size()); }
  std::vector<std::int64_t> values;

 private:
  struct Each : Integer {
    explicit Each(std::vector<std::int64_t>& into) : values(&into) {}
    void integer(Reader&, std::int64_t read) override { values->push_back(read); }
    std::vector<std::int64_t>* values;
  };
  Each each_{values};
};

/// An object with known keys; each at most once, others noted as unknown and skipped.
class Object : public Element {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  std::string_view expected() const override { return "an object"; }
  void begin_object(Reader&) override;
  Element& member(Reader& reader, const std::string& key) override;
  void end(Reader& reader) override;
  std::string where() const override;

 protected:
  void required(std::string_view key, Element& element) { fields_.push_back({key, &element, true}); }
  void optional(std::string_view key, Element& element) { fields_.push_back({key, &element, false}); }
  /// Whether the object being read had the key.
  bool has(std::string_view key) const;
  /// How messages name the object: "op 12 'mm'"; empty for the document itself.
  virtual std::string label() const { return {}; }
  /// How unknown keys are reported: "ops[]." before the key.
  virtual std::string_view key_prefix() const { return ""; }
  virtual bool unknown_keys_are_noted() const { return true; }
  /// All members are read and the required ones are there.
  virtual void finish(Reader&) {}

 private:
  struct Field {
    std::string_view key;
    Element* element;
    bool required;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t find(std::string_view key) const;

  std::vector<Field> fields_;
  std::uint32_t seen_ = 0;    ///< bit i: field i was read
  std::size_t last_ = kNone;  ///< field of the last known key
  bool at_unknown_ = false;
};

}  // namespace remat::io
