#include "remat/graph.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <limits>
#include <unordered_map>

#include "base/numbers.h"
#include "base/one_line.h"
#include "base/sorted.h"
#include "remat/check.h"
#include "remat/error.h"

namespace remat {

std::string_view to_string(Phase phase) {
  static constexpr std::array<std::string_view, 5> kNames{"", "forward", "loss", "backward", "update"};
  return kNames[at(phase)];
}

std::vector<OpId> predecessors(const Graph& graph, OpId op) {
  std::vector<OpId> result;
  for (ValueId v : graph.inputs[op]) {
    if (!graph.is_graph_input(v)) result.push_back(graph.producer[v]);
  }
  sort_unique(result);
  return result;
}

namespace {

std::string describe(std::string_view what, std::int64_t index, std::string_view name) {
  std::string text = std::string(what) + " " + std::to_string(index);
  if (!name.empty()) text += " '" + one_line(name) + "'";
  return text;
}

/// FNV-1a over 64-bit words, finished by a splitmix64 round so that short inputs spread too.
class Hasher {
 public:
  void add(std::int64_t word) {
    for (int shift = 0; shift < 64; shift += 8) {
      state_ ^= (static_cast<std::uint64_t>(word) >> shift) & 0xff;
      state_ *= 0x100000001b3ULL;
    }
  }
  template <class Range>
  void add_row(const Range& ids) {
    add(static_cast<std::int64_t>(std::size(ids)));
    for (auto id : ids) add(id.index());
  }
  void add_edges(const Graph& graph, OpId op) {
    add(graph.recomputable[op]);
    add_row(graph.inputs[op]);
    add_row(graph.outputs[op]);
    add_row(graph.after[op]);
  }
  void add_over(const Graph& graph, OpId op) {
    add(std::ssize(graph.over[op]));
    for (const Over& pair : graph.over[op]) {
      add(pair.input.index());
      add(pair.output.index());
    }
  }
  std::string text() const {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(finish()));
    return text.data();
  }

 private:
  std::uint64_t finish() const {
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string describe(const Graph& graph, OpId op) { return describe("op", op.index(), graph.op_name[op]); }
std::string describe(const Graph& graph, ValueId value) {
  return describe("value", value.index(), graph.value_name[value]);
}

std::string graph_hash(const Graph& graph) {
  Hasher hash;
  hash.add(graph.values().size());
  hash.add(graph.ops().size());
  for (Bytes b : graph.bytes) hash.add(b.count());
  hash.add_row(graph.graph_inputs);
  hash.add_row(graph.graph_outputs);
  for (OpId op : graph.ops()) {
    hash.add(graph.duration[op].count());
    hash.add(graph.workspace[op].count());
    hash.add_edges(graph, op);
  }
  // Graphs without these features keep the hash of earlier versions.
  if (graph.over.entries() > 0) {
    for (OpId op : graph.ops()) hash.add_over(graph, op);
  }
  if (graph.has_generator_states()) {
    for (Bytes state : graph.generator_state) hash.add(state.count());
  }
  if (!std::ranges::all_of(graph.copyable, std::identity())) {
    for (bool copyable : graph.copyable) hash.add(copyable);
  }
  return hash.text();
}

std::string structure_hash(const Graph& graph) {
  Hasher hash;
  hash.add(graph.values().size());
  hash.add_row(graph.graph_inputs);
  hash.add_row(graph.graph_outputs);
  for (OpId op : graph.ops()) hash.add_edges(graph, op);
  return hash.text();
}

namespace {

/// Lets texts be found by string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using FirstRows = std::unordered_map<std::string, OpId, TextHash, std::equal_to<>>;

}  // namespace

/// The columns of the future graph, and rows of unchecked indices.
struct GraphBuilder::State {
  Graph graph;
  std::vector<std::int64_t> forward_of;
  Rows<OpId, std::int64_t> inputs, outputs, after;
  Rows<OpId, std::array<std::int64_t, 2>> over;
  FirstRows kinds, modules, sources;
  std::vector<std::int64_t> graph_inputs, graph_outputs;

  template <class I>
  void check_ids(std::span<const std::int64_t> row, std::string_view role, OpId op,
                 std::vector<I>& ids) const;
  void connect_values();
  void connect_ops();
  void connect_over();
  void check_order() const;
};

GraphBuilder::GraphBuilder(std::string name, std::string time_unit) : state_(std::make_unique<State>()) {
  set_name(std::move(name));
  set_time_unit(std::move(time_unit));
}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

void GraphBuilder::set_name(std::string name) { state_->graph.name = std::move(name); }
void GraphBuilder::set_time_unit(std::string unit) { state_->graph.time_unit = std::move(unit); }
void GraphBuilder::add_input(std::int64_t value) { state_->graph_inputs.push_back(value); }
void GraphBuilder::add_output(std::int64_t value) { state_->graph_outputs.push_back(value); }

namespace {

/// `place` builds its text only for an error: graphs have millions of counts.
template <class Place>
void check_count(std::int64_t count, std::string_view what, Place&& place) {
  if (count >= 0 && count < kMaxCount) return;
  throw InputError(place() + ": " + std::string(what) + " " + std::to_string(count) + " is outside [0, " +
                   std::to_string(kMaxCount) + ")");
}

template <class I>
void append_text(TextColumn<I>& column, std::string_view text) {
  if (column.text_size() + text.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError("names hold more than 4 GiB of text");
  }
  column.push_back(text);
}

/// Appends `text`, sharing the characters of an earlier equal row.
void append_shared(TextColumn<OpId>& column, FirstRows& seen, std::string_view text) {
  const OpId row(std::ssize(column));
  if (row.index() > 0 && column[row.prev()] == text) return column.push_copy_of(row.prev());
  if (const auto at = seen.find(text); at != seen.end()) return column.push_copy_of(at->second);
  seen.emplace(text, row);
  append_text(column, text);
}

/// Sum of a column; throws where it leaves [0, kMaxCount).
template <class Q, class Column>
Q checked_total(const Column& column, std::string_view what) {
  Q sum;
  for (Q amount : column) {
    const auto next = checked_add(sum, amount);
    if (!next || next->count() >= kMaxCount) {
      throw InputError("the sum of all " + std::string(what) + " overflows: " + std::to_string(sum.count()) +
                       " + " + std::to_string(amount.count()) + " is not below " + std::to_string(kMaxCount));
    }
    sum = *next;
  }
  return sum;
}

}  // namespace

std::int64_t GraphBuilder::add_value(Bytes bytes, std::string_view name, bool copyable) {
  Graph& g = state_->graph;
  check_count(bytes.count(), "bytes", [&] { return describe("value", g.values().size(), name); });
  append_text(g.value_name, name);
  g.copyable.push_back(copyable);
  return g.bytes.push_back(bytes).index();
}

std::int64_t GraphBuilder::add_op(const OpSpec& op) {
  State& s = *state_;
  Graph& g = s.graph;
  const auto place = [&] { return describe("op", g.ops().size(), op.name); };
  check_count(op.duration.count(), "duration", place);
  check_count(op.workspace.count(), "workspace", place);
  check_count(op.generator_state.count(), "generator state", place);
  append_text(g.op_name, op.name);
  append_shared(g.op_kind, s.kinds, op.kind);
  append_shared(g.op_module, s.modules, op.module);
  append_shared(g.op_source, s.sources, op.source);
  g.workspace.push_back(op.workspace);
  g.generator_state.push_back(op.generator_state);
  g.recomputable.push_back(op.recomputable);
  g.phase.push_back(op.phase);
  s.forward_of.push_back(op.forward_of);
  s.inputs.append_row(op.inputs);
  s.outputs.append_row(op.outputs);
  s.after.append_row(op.after);
  s.over.append_row(op.over);
  return g.duration.push_back(op.duration).index();
}

/// Makes `ids` the sorted, duplicate-free ids of a row of indices; throws where one is out of range. `role`
/// and `op` say where the row stands.
template <class I>
void GraphBuilder::State::check_ids(std::span<const std::int64_t> row, std::string_view role, OpId op,
                                    std::vector<I>& ids) const {
  constexpr bool kOps = std::is_same_v<I, OpId>;
  const auto limit = static_cast<std::int64_t>(kOps ? graph.num_ops() : graph.num_values());
  ids.clear();
  ids.reserve(row.size());
  for (std::int64_t index : row) {
    if (index < 0 || index >= limit) {
      const std::string place = op ? describe(graph, op) + ": " : std::string();
      throw InputError(place + std::string(role) + " " + std::to_string(index) + " is not one of the " +
                       std::to_string(limit) + (kOps ? " ops" : " values"));
    }
    ids.push_back(I(index));
  }
  sort_unique(ids);
}

void GraphBuilder::State::connect_values() {
  Graph& g = graph;
  g.producer.assign(g.num_values(), OpId::none());
  std::vector<ValueId> outs;
  for (OpId op : g.ops()) {
    check_ids(outputs[op], "output", op, outs);
    for (ValueId v : outs) {
      if (g.producer[v]) {
        throw InputError(describe(g, v) + " is made twice: by " + describe(g, g.producer[v]) + " and by " +
                         describe(g, op));
      }
      g.producer[v] = op;
    }
    g.outputs.append_row(outs);
  }
  check_ids(graph_inputs, "graph input", OpId::none(), g.graph_inputs);
  for (ValueId v : g.graph_inputs) {
    if (g.producer[v]) {
      throw InputError(describe(g, v) + " is declared a graph input and is made by " +
                       describe(g, g.producer[v]));
    }
  }
  g.kept.assign(g.num_values(), false);
  check_ids(graph_outputs, "graph output", OpId::none(), g.graph_outputs);
  for (ValueId v : g.graph_outputs) g.kept[v] = true;
}

void GraphBuilder::State::connect_ops() {
  Graph& g = graph;
  std::vector<ValueId> ins;
  std::vector<OpId> ops;
  for (OpId op : g.ops()) {
    check_ids(inputs[op], "input", op, ins);
    g.inputs.append_row(ins);
    check_ids(after[op], "'after'", op, ops);
    g.after.append_row(ops);
    const std::int64_t forward = forward_of[at(op)];
    if (forward != -1) check_ids(std::span(&forward, 1), "'forward_of'", op, ops);
    g.forward_of.push_back(forward == -1 ? OpId::none() : ops.front());
  }
  g.readers = Rows<OpId, ValueId>::transpose(g.inputs, g.num_values());
}

void GraphBuilder::State::connect_over() {
  Graph& g = graph;
  std::vector<Over> row;
  std::vector<ValueId> ids;
  for (OpId op : g.ops()) {
    row.clear();
    const auto fail = [&](ValueId v, std::string_view what) {
      throw InputError(describe(g, op) + ": 'over' names " + describe(g, v) + std::string(what));
    };
    const auto holds = [](std::span<const ValueId> sorted, ValueId v) {
      return std::binary_search(sorted.begin(), sorted.end(), v);
    };
    for (const auto& pair : over[op]) {
      check_ids(pair, "'over'", op, ids);
      const Over next{ValueId(pair[0]), ValueId(pair[1])};
      if (!holds(g.inputs[op], next.input)) fail(next.input, ", which the op does not read");
      if (!g.producer[next.input]) fail(next.input, ", a graph input, which stays in memory");
      if (!holds(g.outputs[op], next.output)) fail(next.output, ", which the op does not make");
      for (const Over& other : row) {
        if (other.input == next.input) fail(next.input, " twice");
        if (other.output == next.output) fail(next.output, " twice");
      }
      row.push_back(next);
    }
    std::sort(row.begin(), row.end(), [](const Over& a, const Over& b) { return a.input < b.input; });
    g.over.append_row(row);
  }
}

void GraphBuilder::State::check_order() const {
  const Graph& g = graph;
  IndexVector<ValueId, bool> declared(g.num_values(), false);
  for (ValueId v : g.graph_inputs) declared[v] = true;
  for (OpId op : g.ops()) {
    for (ValueId v : g.inputs[op]) {
      const OpId maker = g.producer[v];
      if (!maker && !declared[v]) {
        throw InputError(describe(g, op) + " reads " + describe(g, v) +
                         ", which no op makes and which is not declared a graph input");
      }
      if (maker && maker >= op) {
        throw InputError(
            describe(g, op) + " reads " + describe(g, v) + ", which is made by " + describe(g, maker) +
            (maker == op ? " itself"
                         : ", later in the order: the order is not topological or there is a cycle"));
      }
    }
    for (OpId before : g.after[op]) {
      if (before >= op) {
        throw InputError(describe(g, op) + ": 'after' names " + describe(g, before) +
                         ", which is not earlier in the order");
      }
    }
  }
  for (ValueId v : g.values()) {
    if (g.producer[v] || declared[v]) continue;
    throw InputError((g.kept[v] ? "graph output " : "") + describe(g, v) +
                     " is made by no op and is not declared a graph input");
  }
}

Graph GraphBuilder::build() {
  State s = std::move(*state_);
  *state_ = State();
  Graph& g = s.graph;
  if (g.num_ops() == 0) throw InputError("the graph has no ops");
  if (std::max(g.num_ops(), g.num_values()) >=
      narrow<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw InputError("the graph has more than 2^31 ops or values");
  }
  s.connect_values();
  s.connect_ops();
  s.check_order();
  s.connect_over();
  g.base_duration = checked_total<Duration>(g.duration, "durations");
  // One step never needs more than all values, the largest workspace, all states and that of the moment.
  std::vector<Bytes> amounts = g.bytes.raw();
  for (int twice = 0; twice < 2; ++twice)
    amounts.insert(amounts.end(), g.generator_state.begin(), g.generator_state.end());
  amounts.push_back(*std::max_element(g.workspace.begin(), g.workspace.end()));
  checked_total<Bytes>(amounts, "bytes");
  for (ValueId v : g.graph_inputs) g.resident += g.bytes[v];
  REMAT_ASSERT_HEAVY((Rows<ValueId, OpId>::transpose(g.readers, g.num_ops()) == g.inputs), g.num_ops());
  return std::move(s.graph);
}

}  // namespace remat
