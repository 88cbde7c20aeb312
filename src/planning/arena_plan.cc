// Plan and layout together: the layout says by how much a plan's live bytes must shrink.
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "layout/ejection.h"
#include "layout/neighbours.h"
#include "planning/footprint.h"
#include "remat/arena.h"
#include "remat/error.h"

namespace remat {
namespace {

/// Where the buffers of the plan before were. Plans that follow each other differ in little.
class Places {
 public:
  Places(const Graph& graph, std::int64_t alignment, Bytes budget, std::uint64_t seed)
      : graph_(&graph), alignment_(alignment), budget_(budget), seed_(seed) {}

  /// Of the fastest plan that fitted, where this is it.
  std::vector<Bytes> start(const PlanResult& result, const PlanBuffers& buffers) const {
    const bool is_fastest = fastest_ && result.cost.duration == fastest_->first;
    return known(*result.plan, buffers, is_fastest ? fastest_->second : places_);
  }

  /// Offsets below 0 say nothing.
  void learn(const Plan& plan, const PlanBuffers& buffers, std::span<const Bytes> offsets) {
    each(plan, buffers, [&](std::size_t kind, std::size_t run, BufferId buffer) {
      const Bytes offset = offsets[buffer.index()];
      if (offset < Bytes()) return;
      if (places_.size() <= kind) places_.resize(kind + 1);
      if (places_[kind].size() <= run) places_[kind].resize(run + 1, Bytes(-1));
      places_[kind][run] = offset;
    });
  }

  /// The budget and what found no place within it after a short search, or the peak if that is more.
  Bytes footprint(const Plan& plan, const Simulation& cost, Limits& limits) {
    constexpr std::int64_t kUnits = 20;  // an item
    constexpr std::int64_t kMostPairs = 5'000'000;
    if (cost.peak > budget_) return cost.peak;
    PlanBuffers buffers = plan_buffers(*graph_, plan, alignment_);
    const layout::Packing packing = layout::make_packing(buffers.problem);
    const std::int64_t capacity = (budget_ - buffers.resident).count() / alignment_;
    const std::int64_t pairs = layout::Neighbours::pairs(packing);
    if (pairs > kMostPairs) return Bytes(kMaxCount);
    limits.spend(pairs / 64);
    const std::vector<Bytes> before = known(plan, buffers, places_);
    std::vector<std::int64_t> offsets;
    for (const BufferId buffer : packing.buffer) {
      const Bytes offset = before[buffer.index()];
      offsets.push_back(offset < Bytes() ? -1 : offset.count() / alignment_);
    }
    layout::EjectionSearch search(packing, std::make_shared<layout::Neighbours>(packing), seed_++);
    const std::int64_t out = search.fit(offsets, capacity, kUnits * std::ssize(packing.items), limits);
    if (out == 0) {
      std::vector<Bytes> found(buffers.problem.buffers.size(), Bytes(-1));
      for (std::size_t i = 0; i < offsets.size(); ++i) {
        found[packing.buffer[i].index()] = Bytes(offsets[i] * alignment_);
      }
      learn(plan, buffers, found);
      if (!fastest_ || cost.duration < fastest_->first) fastest_ = {cost.duration, places_};
    }
    return out == 0 ? cost.peak : budget_ + Bytes(out * alignment_);
  }

 private:
  using Offsets = std::vector<std::vector<Bytes>>;  ///< of each value and each op's workspace: of each run

  /// Offsets for those that were there before, below 0 for the rest.
  std::vector<Bytes> known(const Plan& plan, const PlanBuffers& buffers, const Offsets& places) const {
    std::vector<Bytes> offsets(buffers.problem.buffers.size(), Bytes(-1));
    each(plan, buffers, [&](std::size_t kind, std::size_t run, BufferId buffer) {
      if (kind < places.size() && run < places[kind].size()) offsets[buffer.index()] = places[kind][run];
    });
    return offsets;
  }

  /// see(value or op, which of its buffers, buffer)
  template <class See>
  void each(const Plan& plan, const PlanBuffers& buffers, See&& see) const {
    std::vector<std::size_t> runs(graph_->bytes.size() + graph_->duration.size(), 0);
    for (const PlanPiece& piece : buffers.pieces) {
      const std::size_t kind =
          piece.value
              ? piece.value.index()
              : graph_->bytes.size() + plan.steps[StepId(narrow<std::int32_t>(piece.life.first))].index();
      see(kind, runs[kind]++, piece.buffer);
    }
  }

  const Graph* graph_;
  std::int64_t alignment_;
  Bytes budget_;
  std::uint64_t seed_;
  std::optional<std::pair<Duration, Offsets>> fastest_;  ///< a plan that fitted, and where it did
  Offsets places_;
};

}  // namespace

ArenaPlan make_arena_plan(const Problem& problem, std::string_view planner, const PlanOptions& options,
                          std::int64_t alignment, Limits& limits) {
  if (problem.objective != Objective::kTime) {
    throw UsageError("a budget on the arena goes with objective time only");
  }
  if (alignment < 1 || alignment >= kMaxCount) {
    throw UsageError("alignment " + std::to_string(alignment) + " is outside [1, 2^62)");
  }
  // Graph inputs are not laid out.
  Graph rounded =
      rounded_up(*problem.graph, false, "the alignment " + std::to_string(alignment),
                 [&](Bytes size) { return (Wide{size.count()} + alignment - 1) / alignment * alignment; });
  Places places(*problem.graph, alignment, problem.budget, options.seed);
  const auto laid_out = [&](const PlanResult& result, Limits& inner) {
    ArenaPlan plan{result, plan_buffers(*problem.graph, *result.plan, alignment), {}, 0};
    plan.buffers.problem.capacity = problem.budget - plan.buffers.resident;
    LayoutOptions layout;
    layout.seed = options.seed;
    layout.closest = true;
    layout.start = places.start(result, plan.buffers);
    plan.layout = make_layout(plan.buffers.problem, layout, inner);
    places.learn(*result.plan, plan.buffers, plan.layout.offsets.raw());
    return plan;
  };
  const auto footprint = [&](const Plan& plan, const Simulation& cost, Limits& inner) {
    return places.footprint(plan, cost, inner);
  };
  FootprintSearch<ArenaPlan> search(problem, planner, options, std::move(rounded), laid_out, limits);
  search.set_footprint(footprint);
  return search.run();
}

LayoutResult glance_layout(const LayoutProblem& problem) {
  constexpr std::int64_t kWork = 50'000;
  Limits limits;
  limits.set_work(kWork);
  return make_layout(problem, {}, limits);
}

}  // namespace remat
