// Everything goes to the host after the forward pass and comes back one block ahead, as frameworks do it.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::offload_all {
namespace {

/// "layers.3.attention.query" is of the block "layers.3", "embed.dropout" of "embed".
std::string_view block_name(std::string_view module) {
  std::size_t end = 0;
  while (end < module.size()) {
    const std::size_t next = std::min(module.find('.', end), module.size());
    const std::string_view part = module.substr(end, next - end);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_number) return module.substr(0, next);
    end = next + 1;
  }
  return module.substr(0, module.find('.'));
}

/// Runs of ops of one block; those without a module belong to the one before. Where no op has a module, the
/// square root of their number of runs of equal length.
class Blocks {
 public:
  explicit Blocks(const Graph& graph) : of_(graph.num_ops(), 0) {
    const bool has_modules =
        std::ranges::any_of(graph.ops(), [&](OpId op) { return !name(graph, op).empty(); });
    const auto length = static_cast<std::int64_t>(std::ceil(std::sqrt(real(graph.ops().size()))));
    std::string_view current;
    for (OpId op : graph.ops()) {
      const std::string_view block = name(graph, op);
      const bool begins = has_modules ? !block.empty() && block != current : op.index() % length == 0;
      if (begins || first_.empty()) first_.push_back(op);
      if (!block.empty()) current = block;
      of_[op] = narrow<int>(std::ssize(first_)) - 1;
    }
    first_.push_back(OpId(graph.ops().size()));
  }
  /// The first step of the block that is so many after that of the op; the end after the last one.
  StepId first(OpId op, int later) const {
    const int block = std::clamp(of_[op] + later, 0, narrow<int>(std::ssize(first_)) - 1);
    return StepId(first_[at(block)].index());
  }

 private:
  static std::string_view name(const Graph& graph, OpId op) { return block_name(graph.op_module[op]); }
  IndexVector<OpId, int> of_;
  std::vector<OpId> first_;
};

struct Options {
  std::int64_t least_bytes = 1024;
};

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits&) {
  const Graph& graph = *problem.graph;
  const auto turn = std::ranges::find(graph.phase, Phase::kBackward) - graph.phase.begin();
  const OpId backward(turn);
  const Blocks blocks(graph);
  PlanResult result;
  result.plan = keep_all_plan(graph);
  for (ValueId v : graph.values()) {
    const OpId maker = graph.producer[v];
    if (!maker || maker >= backward || graph.bytes[v].count() < options.least_bytes || !graph.copyable[v])
      continue;
    const auto readers = graph.readers[v];
    const auto back = std::ranges::lower_bound(readers, backward);
    if (back == readers.end()) continue;
    const OpId last = back == readers.begin() ? maker : *std::prev(back);
    const StepId wait = blocks.first(last, 2), issue = blocks.first(*back, -1);
    if (issue < wait) continue;  // too near the turn to be worth it
    result.plan->copies.push_back({v, Way::kOut, StepId(last.index()), wait});
    result.plan->copies.push_back({v, Way::kIn, issue, StepId(back->index())});
  }
  std::ranges::stable_sort(result.plan->copies, [](const Copy& a, const Copy& b) {
    return a.issue != b.issue ? a.issue < b.issue : a.wait < b.wait;
  });
  return result;
}

}  // namespace

PlannerInfo info() {
  const auto table = OptionTable<Options>("offload_all")
                         .integer("least_bytes", &Options::least_bytes, 0, kMaxCount, "bytes",
                                  "smaller values stay on the device");
  return with_options(
      {"offload_all", "all that the backward pass reads goes to the host and comes back one block ahead",
       "none; takes no notice of its budget (what frameworks do)", "practice: TorchTune, Transformer Engine",
       [](const Problem& problem) -> std::optional<std::string> {
         if (!problem.host) return "it needs a host (--host 25GB/s)";
         return std::nullopt;
       }},
      table, run);
}

}  // namespace remat::offload_all
