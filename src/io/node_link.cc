// Node-link JSON (networkx). Checkmate writes `cost_ram` and `cost_cpu`, links by `source` and `target`;
// MOCCASIN's instances have `out_cost` and `duration`, links by "0" and "1" and an order in `graph`.
#include <algorithm>
#include <functional>
#include <map>
#include <variant>

#include "base/numbers.h"
#include "base/sorted.h"
#include "base/topological.h"
#include "io/graph_formats.h"
#include "io/json_reader.h"

namespace remat::io {
namespace {

using NodeName = std::variant<std::int64_t, std::string>;

std::string spelled(const NodeName& name) {
  if (const auto* text = std::get_if<std::string>(&name)) return "'" + *text + "'";
  return std::to_string(std::get<std::int64_t>(name));
}

bool is_whole(double value) {
  return value >= -0x1p62 && value <= 0x1p62 && real(static_cast<std::int64_t>(value)) == value;
}

/// A node's name. As in Python 1, 1.0 and true are one name, "1" is another.
class Name : public Element {
 public:
  std::string_view expected() const override { return "the name of a node (text or an integer)"; }
  void reset() override { value = std::int64_t{0}; }
  void boolean(Reader&, bool read) override { take(std::int64_t{read}); }
  void integer(Reader&, std::int64_t read) override { take(read); }
  void number(Reader& reader, double read, const std::string& text) override {
    if (!is_whole(read)) Element::number(reader, read, text);
    take(static_cast<std::int64_t>(read));
  }
  void text(Reader&, std::string& read) override { take(std::move(read)); }
  NodeName value;

 protected:
  virtual void take(NodeName read) { value = std::move(read); }
};

/// A size or duration; fractions are cut off, as the publishers' own readers do.
class Amount : public Integer {
 public:
  explicit Amount(std::int64_t& cut) : cut_(&cut) {}
  std::string_view expected() const override { return "a number"; }
  void boolean(Reader&, bool read) override { value = read; }
  void integer(Reader& reader, std::int64_t read) override {
    if (read < 0 || read >= kMaxCount) fail_range(reader, std::to_string(read));
    value = read;
  }
  void number(Reader& reader, double read, const std::string& text) override {
    if (!(read >= 0 && read < 0x1p62)) fail_range(reader, text);
    value = static_cast<std::int64_t>(read);
    *cut_ += real(value) != read;
  }

 private:
  [[noreturn]] static void fail_range(Reader& reader, const std::string& text) {
    reader.fail(text + " is outside [0, " + std::to_string(kMaxCount) + ")");
  }
  std::int64_t* cut_;
};

/// Text if it is text or a number; anything else is skipped.
class LooseText : public Skip {
 public:
  void reset() override { value.clear(); }
  void integer(Reader&, std::int64_t read) override { value = std::to_string(read); }
  void number(Reader&, double, const std::string& text) override { value = text; }
  void text(Reader&, std::string& read) override { value = std::move(read); }
  std::string value;
};

class LooseFlag : public Flag {
 public:
  void integer(Reader&, std::int64_t read) override { value = read != 0; }
};

struct Node {
  NodeName id;
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t duration = 0;
  Phase phase = Phase::kNone;
};

class NodeObject : public Object {
 public:
  NodeObject() {
    optional("id", id_);
    optional("name", name_);
    optional("out_cost", out_cost_);
    optional("cost_ram", cost_ram_);
    optional("duration", duration_);
    optional("cost_cpu", cost_cpu_);
    optional("backward", backward_);
  }
  std::vector<Node> nodes;
  std::int64_t cut = 0;  ///< fractions cut off
  std::int64_t without_size = 0;

 protected:
  std::string label() const override { return "node " + std::to_string(nodes.size()); }
  bool unknown_keys_are_noted() const override { return false; }
  void finish(Reader& reader) override {
    if (!has("id") && !has("name")) reader.fail("the node has neither 'id' nor 'name'");
    Node node;
    node.id = has("id") ? id_.value : name_.value;
    node.name = has("name") ? text_of(name_.value) : std::to_string(nodes.size());
    node.bytes = has("out_cost") ? out_cost_.value : cost_ram_.value;
    node.duration = has("duration") ? duration_.value : cost_cpu_.value;
    if (has("backward")) node.phase = backward_.value ? Phase::kBackward : Phase::kForward;
    without_size += !has("out_cost") && !has("cost_ram");
    nodes.push_back(std::move(node));
  }

 private:
  static std::string text_of(const NodeName& name) {
    if (const auto* text = std::get_if<std::string>(&name)) return *text;
    return std::to_string(std::get<std::int64_t>(name));
  }

  Name id_, name_;
  Amount out_cost_{cut}, cost_ram_{cut}, duration_{cut}, cost_cpu_{cut};
  LooseFlag backward_;
};

/// Numbers names in the sequence of their first use, so that a link is two integers.
class NameTable {
 public:
  std::int32_t number(const NodeName& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, narrow<std::int32_t>(names_.size()));
    if (is_new) names_.push_back(&at->first);
    return at->second;
  }
  const NodeName& name(std::int32_t number) const { return *names_[at(number)]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::map<NodeName, std::int32_t> numbers_;
  std::vector<const NodeName*> names_;
};

class LinkObject : public Object {
 public:
  explicit LinkObject(NameTable& names) : names_(&names) {
    optional("source", source_);
    optional("target", target_);
    optional("0", zero_);
    optional("1", one_);
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> links;

 protected:
  std::string label() const override { return "link " + std::to_string(links.size()); }
  bool unknown_keys_are_noted() const override { return false; }
  void finish(Reader& reader) override {
    const bool by_word = has("source");
    if (by_word ? !has("target") : !has("0") || !has("1")) {
      reader.fail("the link has neither 'source' and 'target' nor '0' and '1'");
    }
    const Name& from = by_word ? source_ : zero_;
    const Name& to = by_word ? target_ : one_;
    links.emplace_back(names_->number(from.value), names_->number(to.value));
  }

 private:
  NameTable* names_;
  Name source_, target_, zero_, one_;
};

class NameList : public Array {
 public:
  explicit NameList(NameTable& names) : Array(each_), each_(names) {}
  std::string where() const override { return "entry " + std::to_string(numbers().size()); }
  const std::vector<std::int32_t>& numbers() const { return each_.numbers; }

 private:
  struct Each : Name {
    explicit Each(NameTable& table) : names(&table) {}
    void take(NodeName read) override { numbers.push_back(names->number(read)); }
    NameTable* names;
    std::vector<std::int32_t> numbers;
  };
  Each each_;
};

/// The graph's attributes: an object, or (older networkx) a list of [key, value] pairs.
class GraphAttributes : public Object {
 public:
  explicit GraphAttributes(NameTable& names) : order(names), pair_(*this) {
    optional("name", name);
    optional("order", order);
  }
  std::string_view expected() const override { return "an object or an array of pairs"; }
  void begin_array(Reader& reader) override {
    begin_object(reader);
    as_pairs_ = true;
  }
  Element& item(Reader&) override { return pair_; }
  void end(Reader& reader) override {
    has_order = has("order");
    if (!as_pairs_) Object::end(reader);
  }
  LooseText name;
  NameList order;
  bool has_order = false;

 protected:
  bool unknown_keys_are_noted() const override { return false; }

 private:
  class Pair : public Element {
   public:
    explicit Pair(GraphAttributes& attributes) : attributes_(&attributes) {}
    std::string_view expected() const override { return "a pair of a key and a value"; }
    void begin_array(Reader&) override { count_ = 0; }
    Element& item(Reader& reader) override {
      if (count_ == 2) reader.fail("found a third entry in a pair of a key and a value");
      return count_++ == 0 ? static_cast<Element&>(key_) : attributes_->member(reader, key_.value);
    }
    void end(Reader& reader) override {
      if (count_ != 2) reader.fail("a pair of a key and a value has " + std::to_string(count_) + " entries");
    }

   private:
    GraphAttributes* attributes_;
    Text key_;
    int count_ = 0;
  };

  Pair pair_;
  bool as_pairs_ = false;
};

class NodeLinkDocument : public Object {
 public:
  NodeLinkDocument() {
    optional("graph", graph);
    required("nodes", nodes_);
    optional("links", links_);
    optional("edges", edges_);
  }
  const std::vector<Node>& nodes() const { return node_.nodes; }
  const std::vector<std::pair<std::int32_t, std::int32_t>>& links() const {
    return has("links") ? link_.links : edge_.links;
  }
  std::int64_t cut() const { return node_.cut; }
  std::int64_t without_size() const { return node_.without_size; }
  NameTable names;
  GraphAttributes graph{names};

 protected:
  bool unknown_keys_are_noted() const override { return false; }
  void finish(Reader& reader) override {
    if (!has("links") && !has("edges")) reader.fail("the key 'links' (or 'edges') is missing");
  }

 private:
  NodeObject node_;
  LinkObject link_{names}, edge_{names};
  Array nodes_{node_}, links_{link_}, edges_{edge_};
};

/// The document with its names resolved: nodes by index, one edge per pair.
class NodeLinkGraph {
 public:
  explicit NodeLinkGraph(NodeLinkDocument& document)
      : document_(document), successors_(document.nodes().size()) {
    number_nodes();
    connect();
  }

  Graph build() {
    const std::vector<std::int32_t> order = document_.graph.has_order ? given_order() : derived_order();
    std::vector<std::int64_t> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int64_t>(i);
    std::vector<std::vector<std::int64_t>> inputs(order.size());
    for (std::size_t from = 0; from < successors_.size(); ++from) {
      for (std::int32_t to : successors_[from]) inputs[at(place[at(to)])].push_back(place[from]);
    }
    GraphBuilder builder(document_.graph.name.value);
    for (std::int32_t index : order) add(builder, document_.nodes()[at(index)], inputs);
    return builder.build();
  }

 private:
  template <class T>
  static std::size_t at(T index) {
    return narrow<std::size_t>(index);
  }
  static void add(GraphBuilder& builder, const Node& node,
                  const std::vector<std::vector<std::int64_t>>& inputs) {
    const std::int64_t outputs[] = {builder.add_value(Bytes(node.bytes))};
    builder.add_op({.name = node.name,
                    .duration = Duration(node.duration),
                    .phase = node.phase,
                    .inputs = inputs[at(outputs[0])],
                    .outputs = outputs});
  }

  void number_nodes() {
    const auto& nodes = document_.nodes();
    index_.assign(document_.names.size(), -1);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::size_t number = at(document_.names.number(nodes[i].id));
      if (number >= index_.size()) index_.resize(number + 1, -1);
      if (index_[number] >= 0) {
        throw InputError("nodes " + std::to_string(index_[number]) + " and " + std::to_string(i) +
                         " have the same name " + spelled(nodes[i].id));
      }
      index_[number] = narrow<std::int32_t>(i);
    }
  }
  std::int32_t node_of(std::int32_t number, const std::string& place) const {
    if (index_[at(number)] < 0) {
      throw InputError(place + " names " + spelled(document_.names.name(number)) +
                       ", which is not one of the " + std::to_string(document_.nodes().size()) + " nodes");
    }
    return index_[at(number)];
  }
  void connect() {
    const auto& links = document_.links();
    for (std::size_t i = 0; i < links.size(); ++i) {
      const std::string place = "link " + std::to_string(i);
      successors_[at(node_of(links[i].first, place))].push_back(node_of(links[i].second, place));
    }
    for (auto& row : successors_) sort_unique(row);
  }

  std::vector<std::int32_t> given_order() const {
    std::vector<std::int32_t> order;
    std::vector<bool> seen(document_.nodes().size(), false);
    for (std::int32_t number : document_.graph.order.numbers()) {
      order.push_back(node_of(number, "graph.order entry " + std::to_string(order.size())));
      if (seen[at(order.back())]) {
        throw InputError("graph.order names " + spelled(document_.names.name(number)) + " twice");
      }
      seen[at(order.back())] = true;
    }
    if (order.size() != seen.size()) {
      throw InputError("graph.order names " + std::to_string(order.size()) + " of the " +
                       std::to_string(seen.size()) + " nodes");
    }
    return order;
  }

  /// The smallest index first.
  std::vector<std::int32_t> derived_order() const {
    std::vector<std::int32_t> order = topological_order(successors_, std::identity());
    if (order.size() != successors_.size()) fail_on_cycle(order);
    return order;
  }

  /// Every waiting node has a waiting predecessor, so walking back must repeat a node.
  [[noreturn]] void fail_on_cycle(const std::vector<std::int32_t>& order) const {
    std::vector<bool> waits(successors_.size(), true);
    for (std::int32_t i : order) waits[at(i)] = false;
    std::vector<std::int32_t> before(successors_.size(), -1);
    std::int32_t start = -1;
    for (std::size_t from = 0; from < successors_.size(); ++from) {
      if (!waits[from]) continue;
      for (std::int32_t to : successors_[from]) before[at(to)] = narrow<std::int32_t>(from);
      start = narrow<std::int32_t>(from);
    }
    for (std::size_t i = 0; i < successors_.size(); ++i) start = before[at(start)];
    std::vector<std::int32_t> cycle{start};
    for (std::int32_t i = before[at(start)]; i != start; i = before[at(i)]) cycle.push_back(i);
    constexpr std::size_t kShown = 8;
    std::string text = spelled(document_.nodes()[at(start)].id);
    std::reverse(cycle.begin() + 1, cycle.end());
    for (std::size_t i = 1; i < std::min(cycle.size(), kShown); ++i) {
      text += " -> " + spelled(document_.nodes()[at(cycle[i])].id);
    }
    if (cycle.size() > kShown) text += " -> ...";
    throw InputError("the links form a cycle of " + std::to_string(cycle.size()) + " nodes: " + text +
                     " -> " + spelled(document_.nodes()[at(start)].id));
  }

  NodeLinkDocument& document_;
  std::vector<std::int32_t> index_;                    ///< node of each number in the name table, or -1
  std::vector<std::vector<std::int32_t>> successors_;  ///< by node, sorted, no duplicates
};

}  // namespace

LoadedGraph read_node_link(std::string_view text, std::string_view place) {
  NodeLinkDocument document;
  Reader(text, place).read(document);
  const std::string file(place);
  LoadedGraph loaded;
  loaded.format = GraphFormat::kNodeLink;
  if (document.cut() > 0) {
    loaded.warnings.push_back(file + ": cut off the fractions of " + std::to_string(document.cut()) +
                              " sizes and durations");
  }
  if (document.without_size() > 0) {
    loaded.warnings.push_back(file + ": " + std::to_string(document.without_size()) + " of " +
                              std::to_string(document.nodes().size()) +
                              " nodes have neither 'out_cost' nor 'cost_ram': their size is 0");
  }
  try {
    loaded.graph = NodeLinkGraph(document).build();
  } catch (const InputError& error) {
    throw InputError(file + ": " + error.what());
  }
  return loaded;
}

}  // namespace remat::io
