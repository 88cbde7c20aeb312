// Policies for other executors of a pipeline's blocks.
#include <algorithm>
#include <map>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/pipeline.h"
#include "remat/words.h"

namespace remat {
namespace {

BlockPolicy policy_of(const Graph& graph, const PipelineBlock& block, const BlockChoice& choice) {
  BlockPolicy policy;
  policy.name = block.name;
  policy.runs_again = choice.extra > Duration() || choice.as_a_whole;
  if (!policy.runs_again) return policy;
  std::map<std::string, int> calls;
  std::map<std::string, std::size_t> row;
  for (int k : indices(block.forward)) {
    const std::string kind(graph.op_kind[block.forward[at(k)]]);
    const int call = calls[kind]++;
    if (!std::ranges::binary_search(choice.saved_ops, k)) continue;
    const auto [at_row, is_new] = row.emplace(kind, policy.saved.size());
    if (is_new) policy.saved.push_back({kind, {}});
    policy.saved[at_row->second].second.push_back(call);
  }
  return policy;
}

}  // namespace

std::vector<BlockPolicy> policies_of(const PipelineResult& result, const std::vector<PipelinePart>& parts,
                                     const PipelineStage& stage) {
  std::vector<BlockPolicy> policies;
  for (int b = stage.first; b < stage.last; ++b) {
    const PipelineBlock& block = result.blocks[at(b)];
    const BlockChoice& choice =
        result.curves[at(block.curve)].choices[at(stage.choices[at(b - stage.first)])];
    policies.push_back(policy_of(*parts[at(block.graph)].graph, block, choice));
  }
  return policies;
}

Schedule parse_schedule(std::string_view text) {
  if (text == "1f1b") return Schedule::k1f1b;
  if (text == "interleaved") return Schedule::kInterleaved;
  throw UsageError(unknown_word("schedule", text, {"1f1b", "interleaved"}));
}

PipelineExecutor parse_pipeline_executor(std::string_view text) {
  if (text == "saved") return PipelineExecutor::kSaved;
  if (text == "checkpoint") return PipelineExecutor::kCheckpoint;
  throw UsageError(unknown_word("executor", text, {"saved", "checkpoint"}));
}

}  // namespace remat
