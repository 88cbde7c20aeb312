#include "model/step_model.h"

#include <algorithm>
#include <numeric>

#include "base/numbers.h"
#include "model/step.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

std::int64_t common_unit(const Graph& graph) {
  std::int64_t unit = 0;
  for (ValueId v : graph.values()) {
    if (!graph.is_graph_input(v)) unit = std::gcd(unit, graph.bytes[v].count());
  }
  for (const auto column : kBytesOfOps) {
    for (Bytes bytes : graph.*column) unit = std::gcd(unit, bytes.count());
  }
  return std::max<std::int64_t>(unit, 1);
}

bool same_lives(const Graph& graph, ValueId a, ValueId b) {
  return graph.kept[a] == graph.kept[b] && std::ranges::equal(graph.readers[a], graph.readers[b]);
}

}  // namespace

StepModel::StepModel(const Graph& g)
    : graph(&g), begin_op(g.ops().size()), end_op(begin_op.next()), unit(common_unit(g)) {
  std::vector<ValueId> members;
  IndexVector<ValueId, BundleId> bundle_of(g.num_values());
  for (OpId op : g.ops()) {
    first_bundle.push_back(BundleId(std::ssize(producer)));
    duration.push_back(g.duration[op].count());
    own.push_back(momentary(g, op).count() / unit);
    state.push_back(rerun_state(g, op).count() / unit);
    members.assign(g.outputs[op].begin(), g.outputs[op].end());
    std::stable_sort(members.begin(), members.end(), [&](ValueId a, ValueId b) {
      if (g.kept[a] != g.kept[b]) return static_cast<bool>(g.kept[a]);
      return std::ranges::lexicographical_compare(g.readers[a], g.readers[b]);
    });
    ValueId last;
    for (ValueId v : members) {
      own[op] += g.bytes[v].count() / unit;
      if (!g.kept[v] && g.readers[v].empty()) continue;  // lives during its own step only
      if (!last || !same_lives(g, last, v)) {
        producer.push_back(op);
        units.push_back(0);
        for (OpId reader : g.readers[v]) readers.push(reader);
        if (g.kept[v]) readers.push(end_op);
        readers.end_row();
      }
      last = v;
      bundle_of[v] = BundleId(std::ssize(producer) - 1);
      units[bundle_of[v]] += g.bytes[v].count() / unit;
    }
  }
  for (int pseudo = 0; pseudo < 3; ++pseudo) first_bundle.push_back(BundleId(std::ssize(producer)));
  for (int pseudo = 0; pseudo < 2; ++pseudo) {
    duration.push_back(0);
    own.push_back(0);
    state.push_back(0);
  }
  add_overlaps(bundle_of);
  inputs = Rows<BundleId, OpId>::transpose(readers, g.num_ops() + 2);
  for (OpId op : g.ops()) after.append_row(g.after[op]);
  before = Rows<OpId, OpId>::transpose(after, g.num_ops());
  const Bytes peak = keep_all_peak(g) - g.resident;
  narrow = peak.count() / unit < (std::int64_t{1} << 31) / 10 * 9;
}

void StepModel::add_overlaps(const IndexVector<ValueId, BundleId>& bundle_of) {
  std::vector<Overlap> row;
  for (OpId op : graph->ops()) {
    row.clear();
    for (const Reuse& reuse : reuses(*graph, op)) {
      const BundleId bundle = bundle_of[reuse.input];
      const std::int64_t saved = reuse.bytes.count() / unit;
      const auto known = std::ranges::find(row, bundle, &Overlap::bundle);
      if (known == row.end()) {
        row.push_back({bundle, saved});
      } else {
        known->units += saved;
      }
    }
    overlaps.append_row(row);
  }
  for (int pseudo = 0; pseudo < 2; ++pseudo) overlaps.end_row();
}

std::int64_t StepModel::budget_units(Bytes budget) const {
  const std::int64_t room = (budget - graph->resident).count();
  return room < 0 ? -1 : room / unit;
}

}  // namespace remat
