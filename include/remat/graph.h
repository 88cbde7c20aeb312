// The op graph, the input of every planner. Normative description: docs/model.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "remat/export.h"
#include "remat/ids.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

/// The part of a training step that an op belongs to, as far as the front-end knows it.
enum class Phase : std::uint8_t { kNone, kForward, kLoss, kBackward, kUpdate };
std::string_view to_string(Phase phase);

/// Text columns without one allocation per entry: each row is a slice of a shared buffer, equal
/// consecutive or repeated short texts (kinds, modules) share one slice when `intern` is used.
template <class I>
class TextColumn {
 public:
  void push_back(std::string_view text) {
    slices_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(text.size())});
    text_.append(text);
  }
  std::string_view operator[](I i) const {
    const auto& s = slices_[static_cast<std::size_t>(i.index())];
    return std::string_view(text_).substr(s.begin, s.size);
  }
  /// Appends a row that repeats row `i`.
  void push_copy_of(I i) { slices_.push_back(slices_[static_cast<std::size_t>(i.index())]); }
  /// Appends rows without text.
  void append_empty(std::size_t rows) { slices_.resize(slices_.size() + rows, {0, 0}); }
  std::size_t size() const { return slices_.size(); }
  friend bool operator==(const TextColumn& a, const TextColumn& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t r = 0; r < a.size(); ++r) {
      if (a[I(static_cast<std::int64_t>(r))] != b[I(static_cast<std::int64_t>(r))]) return false;
    }
    return true;
  }
  void shrink_to_fit() {
    text_.shrink_to_fit();
    slices_.shrink_to_fit();
  }
  std::size_t text_size() const { return text_.size(); }

 private:
  struct Slice {
    std::uint32_t begin, size;
  };
  std::string text_;
  std::vector<Slice> slices_;
};

/// An op may write `output` over `input`: at a step that reads an instance of `input` for the last time the
/// output takes its place, and the step counts the larger of the two (docs/model.md).
struct Over {
  ValueId input, output;
  friend bool operator==(const Over&, const Over&) = default;
};

/// A directed acyclic graph of ops and values, columns by id. Made by `GraphBuilder::build` (or by a
/// reader in io.h), which validates once; everything after trusts it:
/// - op ids are the graph's own order, and it is topological: every input of an op is a graph input or
///   an output of an earlier op, and every op in `after` is earlier;
/// - a value is either a graph input or an output of exactly one op;
/// - rows of `inputs`, `outputs` and `after` are sorted and free of duplicates;
/// - pairs of `over` name an input of their op that an op makes and an output of it, and no value twice;
/// - all sums of bytes over all values, and of durations over all ops, fit into 62 bits.
struct Graph {
  std::string name;
  std::string time_unit;

  // Values.
  IndexVector<ValueId, Bytes> bytes;    ///< size of the storage
  IndexVector<ValueId, OpId> producer;  ///< none for a graph input
  IndexVector<ValueId, bool> kept;      ///< must be in memory at the end
  IndexVector<ValueId, bool> copyable;  ///< false: no plan may copy it
  Rows<ValueId, OpId> readers;          ///< ops that read the value, ascending
  TextColumn<ValueId> value_name;

  // Ops.
  IndexVector<OpId, Duration> duration;
  IndexVector<OpId, Bytes> workspace;  ///< needed only while the op runs
  /// Size of the random generator's state, which a plan saves to run the op again; 0: draws no numbers.
  IndexVector<OpId, Bytes> generator_state;
  IndexVector<OpId, bool> recomputable;  ///< false: runs exactly once in every plan
  IndexVector<OpId, Phase> phase;
  IndexVector<OpId, OpId> forward_of;  ///< the forward op that a backward op differentiates, or none
  Rows<OpId, ValueId> inputs;
  Rows<OpId, ValueId> outputs;
  Rows<OpId, OpId> after;  ///< ops that must have run at least once before
  Rows<OpId, Over> over;   ///< outputs that may be written over an input, by input
  TextColumn<OpId> op_name, op_kind, op_module;
  TextColumn<OpId> op_source;  ///< "model.py:42", the line of the program that asked for the op

  std::vector<ValueId> graph_inputs;   ///< resident from start to end, ascending
  std::vector<ValueId> graph_outputs;  ///< kept values, ascending
  Bytes resident;                      ///< sum of the bytes of `graph_inputs`
  Duration base_duration;              ///< every op once

  IdRange<OpId> ops() const { return duration.ids(); }
  IdRange<ValueId> values() const { return bytes.ids(); }
  std::size_t num_ops() const { return duration.size(); }
  std::size_t num_values() const { return bytes.size(); }
  bool is_graph_input(ValueId v) const { return producer[v].is_none(); }
  /// Bytes that a step saves if the output is written over the input: the smaller size of the two.
  Bytes overlap(const Over& pair) const { return std::min(bytes[pair.input], bytes[pair.output]); }
  bool has_generator_states() const {
    return std::ranges::any_of(generator_state, [](Bytes state) { return state > Bytes(); });
  }

  friend bool operator==(const Graph&, const Graph&) = default;
};

/// All per-op columns of bytes.
inline constexpr std::array kBytesOfOps{&Graph::workspace, &Graph::generator_state};

/// One op for the builder. Lists may be unsorted and hold duplicates.
struct OpSpec {
  std::string_view name;
  std::string_view kind = {};
  std::string_view module = {};
  std::string_view source = {};  ///< "model.py:42"
  Duration duration = {};
  Bytes workspace = {};
  Bytes generator_state = {};  ///< of an op that draws random numbers
  bool recomputable = true;
  Phase phase = Phase::kNone;
  std::int64_t forward_of = -1;                ///< op index, or -1
  std::span<const std::int64_t> inputs = {};   ///< value indices
  std::span<const std::int64_t> outputs = {};  ///< value indices
  std::span<const std::int64_t> after = {};    ///< op indices
  /// Value indices: an input, and the output that may be written over it.
  std::span<const std::array<std::int64_t, 2>> over = {};
};

/// Collects values and ops in any sequence; `build` checks everything at once.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = {}, std::string time_unit = {});
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  /// Returns the index of the new value.
  std::int64_t add_value(Bytes bytes, std::string_view name = {}, bool copyable = true);
  /// Returns the index of the new op. Indices inside `op` are checked by `build`.
  std::int64_t add_op(const OpSpec& op);
  void add_input(std::int64_t value);
  void add_output(std::int64_t value);
  void set_name(std::string name);
  void set_time_unit(std::string unit);

  /// Validates and returns the graph. Throws InputError naming op and value, and both numbers where two
  /// disagree: unknown indices, two producers, a value nobody makes that is not a declared input, an op
  /// that reads a value of a later op (a cycle through the order), a pair of `over` that is not one of
  /// input and output, negative or overflowing sizes, an empty graph. The builder is empty afterwards.
  Graph build();

 private:
  struct REMAT_HIDDEN State;
  std::unique_ptr<State> state_;
};

/// Ops whose outputs `op` reads, ascending, without duplicates.
std::vector<OpId> predecessors(const Graph& graph, OpId op);

/// Hex digits of a 64-bit hash over everything that a plan depends on: sizes, durations, workspaces,
/// edges, `after`, flags and kept outputs; not over names.
std::string graph_hash(const Graph& graph);
/// The same over what decides whether a plan is valid: without sizes, durations and workspaces.
std::string structure_hash(const Graph& graph);

/// "op 12 'layer.0.mm'", or "op 12" where it has no name.
std::string describe(const Graph& graph, OpId op);
/// "value 7 'x'", or "value 7" where it has no name.
std::string describe(const Graph& graph, ValueId value);

}  // namespace REMAT_API remat
