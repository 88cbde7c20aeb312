#include <array>
#include <vector>

#include "base/one_line.h"
#include "io/graph_formats.h"
#include "io/json_reader.h"

namespace remat::io {
namespace {

std::string describe(std::string_view what, std::int64_t index, const std::string& name) {
  std::string text = std::string(what) + " " + std::to_string(index);
  if (!name.empty()) text += " '" + one_line(name) + "'";
  return text;
}

class ValueObject : public Object {
 public:
  explicit ValueObject(GraphBuilder& builder) : builder_(&builder) {
    required("bytes", bytes_);
    optional("name", name_);
    optional("copy", copy_);
  }

 protected:
  std::string label() const override { return describe("value", count_, name_.value); }
  std::string_view key_prefix() const override { return "values[]."; }
  void finish(Reader& reader) override {
    try {
      builder_->add_value(Bytes(bytes_.value), name_.value, copy_.value == 0);
    } catch (const InputError& error) {
      reader.fail_here(error.what());
    }
    ++count_;
  }

 private:
  GraphBuilder* builder_;
  std::int64_t count_ = 0;
  Integer bytes_;
  Text name_;
  Choice copy_{{"allowed", "never"}};
};

/// An op index or null.
class ForwardOf : public Integer {
 public:
  std::string_view expected() const override { return "an op index or null"; }
  void reset() override { value = -1; }
  void null(Reader&) override { value = -1; }
  void integer(Reader& reader, std::int64_t read) override {
    if (read < 0) reader.fail(std::to_string(read) + " is not an op index");
    value = read;
  }
};

/// An input and the output that may be written over it: an array of two value indices.
class OverPairs : public Element {
 public:
  std::string_view expected() const override { return "an array of pairs of integers"; }
  void reset() override { values.clear(); }
  void begin_array(Reader&) override { values.clear(); }
  Element& item(Reader&) override { return pair_; }
  std::string where() const override { return "entry " + std::to_string(values.size()); }
  std::vector<std::array<std::int64_t, 2>> values;

 private:
  struct Pair : IntegerList {
    explicit Pair(std::vector<std::array<std::int64_t, 2>>& into) : pairs(&into) {}
    std::string_view expected() const override { return "a pair of integers"; }
    std::string where() const override { return {}; }
    void end(Reader& reader) override {
      if (values.size() != 2) {
        reader.fail("found " + std::to_string(values.size()) + " integers instead of an input and an output");
      }
      pairs->push_back({values[0], values[1]});
    }
    std::vector<std::array<std::int64_t, 2>>* pairs;
  };
  Pair pair_{values};
};

class OpObject : public Object {
 public:
  explicit OpObject(GraphBuilder& builder) : builder_(&builder) {
    required("name", name_);
    optional("kind", kind_);
    required("duration", duration_);
    optional("workspace", workspace_);
    optional("generator_state", generator_state_);
    required("inputs", inputs_);
    required("outputs", outputs_);
    optional("recompute", recompute_);
    optional("after", after_);
    optional("over", over_);
    optional("phase", phase_);
    optional("module", module_);
    optional("source", source_);
    optional("forward_of", forward_of_);
  }

 protected:
  std::string label() const override { return describe("op", count_, name_.value); }
  std::string_view key_prefix() const override { return "ops[]."; }
  void finish(Reader& reader) override {
    try {
      builder_->add_op({.name = name_.value,
                        .kind = kind_.value,
                        .module = module_.value,
                        .source = source_.value,
                        .duration = Duration(duration_.value),
                        .workspace = Bytes(workspace_.value),
                        .generator_state = Bytes(generator_state_.value),
                        .recomputable = recompute_.value == 0,
                        .phase = static_cast<Phase>(phase_.value),
                        .forward_of = forward_of_.value,
                        .inputs = inputs_.values,
                        .outputs = outputs_.values,
                        .after = after_.values,
                        .over = over_.values});
    } catch (const InputError& error) {
      reader.fail_here(error.what());
    }
    ++count_;
  }

 private:
  static std::vector<std::string_view> phase_names() {
    std::vector<std::string_view> names;
    for (int phase = 0; phase <= static_cast<int>(Phase::kUpdate); ++phase) {
      names.push_back(to_string(static_cast<Phase>(phase)));
    }
    return names;
  }

  GraphBuilder* builder_;
  std::int64_t count_ = 0;
  Text name_, kind_, module_, source_;
  Integer duration_, workspace_, generator_state_;
  IntegerList inputs_, outputs_, after_;
  OverPairs over_;
  Choice recompute_{{"allowed", "never"}};
  Choice phase_{phase_names()};
  ForwardOf forward_of_;
};

class GraphDocument : public Object {
 public:
  GraphDocument() {
    required("format", format_);
    required("version", version_);
    optional("name", name_);
    optional("time_unit", time_unit_);
    required("values", values_);
    required("ops", ops_);
    optional("inputs", inputs_);
    optional("outputs", outputs_);
  }
  Graph build() {
    builder_.set_name(name_.value);
    builder_.set_time_unit(time_unit_.value);
    for (std::int64_t value : inputs_.values) builder_.add_input(value);
    for (std::int64_t value : outputs_.values) builder_.add_output(value);
    return builder_.build();
  }

 private:
  GraphBuilder builder_;
  ValueObject value_{builder_};
  OpObject op_{builder_};
  FormatName format_{"remat.graph"};
  FormatVersion version_;
  Text name_, time_unit_;
  Array values_{value_}, ops_{op_};
  IntegerList inputs_, outputs_;
};

}  // namespace

LoadedGraph read_remat_graph(std::string_view text, std::string_view place) {
  GraphDocument document;
  Reader reader(text, place);
  reader.read(document);
  LoadedGraph loaded;
  loaded.format = GraphFormat::kRematGraph;
  if (std::string line = reader.unknown_keys(); !line.empty()) loaded.warnings.push_back(std::move(line));
  try {
    loaded.graph = document.build();
  } catch (const InputError& error) {
    throw InputError(std::string(place) + ": " + error.what());
  }
  return loaded;
}

}  // namespace remat::io
