#include <array>
#include <optional>
#include <vector>

#include "c/common.h"
#include "remat/bounds.h"
#include "remat/keep_all.h"

namespace remat::c {
namespace {

/// Element i, or the default if the array is not given.
template <class T, class U>
U element(const T* data, std::int64_t i, U otherwise) {
  return data ? static_cast<U>(data[i]) : otherwise;
}

/// Lists of indices of all ops, concatenated.
class Lists {
 public:
  Lists(const std::int64_t* begin, const std::int64_t* data, std::int64_t ops, const char* begin_name,
        const char* name)
      : begin_(begin), data_(data) {
    array(begin, ops, begin_name, "num_ops");
    if (ops == 0) return;
    if (begin[0] != 0) {
      throw InputError(at_index(begin_name, 0) + " is " + std::to_string(begin[0]) + " in place of 0");
    }
    for (std::int64_t i = 0; i < ops; ++i) {
      if (begin[i + 1] >= begin[i]) continue;
      throw InputError(at_index(begin_name, i + 1) + " is " + std::to_string(begin[i + 1]) +
                       ", less than the " + std::to_string(begin[i]) + " before it");
    }
    if (begin[ops] > 0 && !data) {
      throw InputError(std::string(name) + " is NULL, and " + at_index(begin_name, ops) + " is " +
                       std::to_string(begin[ops]));
    }
  }

  std::span<const std::int64_t> operator[](std::int64_t op) const {
    return {data_ + begin_[op], static_cast<std::size_t>(begin_[op + 1] - begin_[op])};
  }

 private:
  const std::int64_t* begin_;
  const std::int64_t* data_;
};

Phase phase_of(const remat_graph_data& data, std::int64_t op) {
  const auto phase = element(data.phases, op, std::int64_t{REMAT_NO_PHASE});
  if (phase > REMAT_UPDATE) {
    throw InputError(at_index("phases", op) + " is " + std::to_string(phase) + ", above " +
                     std::to_string(REMAT_UPDATE));
  }
  return static_cast<Phase>(phase);
}

std::string_view name_of(const char* const* names, std::int64_t i) {
  return names && names[i] ? std::string_view(names[i]) : std::string_view();
}

using Overs = std::vector<std::vector<std::array<std::int64_t, 2>>>;

Overs read_overs(const remat_graph_data& data) {
  Overs overs(static_cast<std::size_t>(data.num_ops));
  array(data.overs, data.num_overs, "overs", "num_overs");
  for (std::int64_t i = 0; i < data.num_overs; ++i) {
    const std::int64_t op = data.overs[3 * i];
    if (op < 0 || op >= data.num_ops) {
      throw InputError(at_index("overs", 3 * i) + " is " + std::to_string(op) + ", not one of the " +
                       std::to_string(data.num_ops) + " ops");
    }
    overs[static_cast<std::size_t>(op)].push_back({data.overs[3 * i + 1], data.overs[3 * i + 2]});
  }
  return overs;
}

void add_ops(const remat_graph_data& data, GraphBuilder& builder) {
  const auto durations = array(data.durations, data.num_ops, "durations", "num_ops");
  const Lists inputs(data.input_begin, data.inputs, data.num_ops, "input_begin", "inputs");
  const Lists outputs(data.output_begin, data.outputs, data.num_ops, "output_begin", "outputs");
  std::optional<Lists> after;
  if (data.after_begin) after.emplace(data.after_begin, data.after, data.num_ops, "after_begin", "after");
  const Overs overs = read_overs(data);
  for (std::int64_t i = 0; i < data.num_ops; ++i) {
    builder.add_op({.name = name_of(data.op_names, i),
                    .duration = Duration(durations[static_cast<std::size_t>(i)]),
                    .workspace = Bytes(element(data.workspaces, i, std::int64_t{0})),
                    .generator_state = Bytes(element(data.generator_states, i, std::int64_t{0})),
                    .recomputable = element(data.run_once, i, 0) == 0,
                    .phase = phase_of(data, i),
                    .forward_of = element(data.forward_of, i, std::int64_t{-1}),
                    .inputs = inputs[i],
                    .outputs = outputs[i],
                    .after = after ? (*after)[i] : std::span<const std::int64_t>(),
                    .over = overs[static_cast<std::size_t>(i)]});
  }
}

Graph read_graph(const remat_graph_data& data) {
  GraphBuilder builder(data.name ? data.name : "");
  const auto bytes = array(data.value_bytes, data.num_values, "value_bytes", "num_values");
  for (std::int64_t i = 0; i < data.num_values; ++i) {
    builder.add_value(Bytes(bytes[static_cast<std::size_t>(i)]), name_of(data.value_names, i));
  }
  add_ops(data, builder);
  for (const std::int64_t value :
       array(data.graph_inputs, data.num_graph_inputs, "graph_inputs", "num_graph_inputs"))
    builder.add_input(value);
  for (const std::int64_t value :
       array(data.graph_outputs, data.num_graph_outputs, "graph_outputs", "num_graph_outputs"))
    builder.add_output(value);
  return builder.build();
}

static_assert(static_cast<int>(Phase::kUpdate) == REMAT_UPDATE);

}  // namespace
}  // namespace remat::c

using remat::c::guarded;
using remat::c::require;

int remat_make_graph(const remat_graph_data* data, remat_graph** graph) {
  return guarded([&] {
    require(graph, "graph");
    *graph = new remat_graph{remat::c::read_graph(remat::c::read_struct(data, "remat_graph_data"))};
  });
}

int remat_get_graph(const remat_graph* graph, remat_graph_info* info) {
  return guarded([&] {
    require(graph, "graph");
    const remat::Graph& g = graph->graph;
    remat_graph_info filled{};
    filled.num_ops = static_cast<std::int64_t>(g.num_ops());
    filled.num_values = static_cast<std::int64_t>(g.num_values());
    filled.keep_all_peak = remat::keep_all_peak(g).count();
    filled.least_peak = remat::best_peak_bound(g, remat::OrderMode::kFixed).peak.count();
    filled.base_duration = g.base_duration.count();
    remat::c::write_struct(filled, info, "remat_graph_info");
  });
}

void remat_free_graph(remat_graph* graph) { delete graph; }
