#include "graph/pairing.h"

namespace remat {
namespace {

std::optional<Pairing> derived(const Graph& graph) {
  // crossing[i]: values made before op i and read by it or a later op.
  IndexVector<OpId, std::int64_t> change(graph.num_ops() + 1, 0);
  for (ValueId v : graph.values()) {
    if (graph.is_graph_input(v) || graph.readers[v].empty()) continue;
    ++change[graph.producer[v].next()];
    --change[graph.readers[v].back().next()];
  }
  std::int64_t crossing = 0, most = 0;
  OpId boundary;
  for (OpId op : graph.ops()) {
    crossing += change[op];
    if (crossing > most) {
      most = crossing;
      boundary = op;
    }
  }
  if (!boundary) return std::nullopt;
  std::int64_t read = 0;
  for (ValueId v : graph.values()) read += !graph.is_graph_input(v) && !graph.readers[v].empty();
  if (most < 2 || 8 * most < read) return std::nullopt;
  return Pairing{boundary, true};
}

}  // namespace

std::optional<Pairing> find_pairing(const Graph& graph) {
  for (OpId op : graph.ops()) {
    if (graph.phase[op] == Phase::kBackward) return op == OpId(0) ? std::nullopt : std::optional(Pairing{op});
  }
  return derived(graph);
}

}  // namespace remat
