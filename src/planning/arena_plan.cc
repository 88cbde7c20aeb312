// Plans and lays out in turn: the layout decides for which live bytes to plan next.
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "layout/ejection.h"
#include "layout/neighbours.h"
#include "planning/footprint.h"
#include "planning/measured.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

/// Offsets of the last plan's buffers, as starts for the next plan, which differs little.
class Places {
 public:
  Places(const Graph& graph, std::int64_t alignment, Bytes budget, std::uint64_t seed)
      : graph_(&graph), alignment_(alignment), budget_(budget), seed_(seed) {}

  /// The offsets of the fastest plan that fitted, if this is that plan.
  std::vector<Bytes> start(const PlanResult& result, const PlanBuffers& buffers) const {
    const bool is_fastest = fastest_ && result.cost.duration == fastest_->first;
    return known(*result.plan, buffers, is_fastest ? fastest_->second : places_);
  }

  /// Negative offsets are unknown.
  void learn(const Plan& plan, const PlanBuffers& buffers, std::span<const Bytes> offsets) {
    each(plan, buffers, [&](std::size_t kind, std::size_t run, BufferId buffer) {
      const Bytes offset = offsets[buffer.index()];
      if (offset < Bytes()) return;
      if (places_.size() <= kind) places_.resize(kind + 1);
      if (places_[kind].size() <= run) places_[kind].resize(run + 1, Bytes(-1));
      places_[kind][run] = offset;
    });
  }

  /// The budget plus the bytes left unplaced within it by a short search, or the peak if that is more.
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

  /// Offsets of buffers known from before; negative for others.
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

Answer answer_on_arena(const Request& request, Limits& limits) {
  const Problem& problem = request.problem;
  const Graph& graph = *problem.graph;
  const std::int64_t alignment = request.alignment;
  const std::uint64_t seed = request.effort.options.seed;
  Places places(graph, alignment, problem.budget, seed);
  Footprint footprint;
  // Graph inputs are not laid out.
  footprint.rounded = rounded_up(graph, false, "the alignment " + std::to_string(alignment), [&](Bytes size) {
    return (Wide{size.count()} + alignment - 1) / alignment * alignment;
  });
  footprint.quick = [&](const Plan& plan, const Simulation& cost, Limits& inner) {
    return places.footprint(plan, cost, inner);
  };
  footprint.measure = [&](Answer& answer, Limits& inner) {
    const PlanResult& result = answer.result;
    PackedPlan& packed = answer.packed.emplace();
    packed.buffers = plan_buffers(graph, *result.plan, alignment);
    packed.buffers.problem.capacity = problem.budget - packed.buffers.resident;
    LayoutOptions layout;
    layout.seed = seed;
    layout.closest = true;
    layout.start = places.start(result, packed.buffers);
    packed.layout = make_layout(packed.buffers.problem, layout, inner);
    places.learn(*result.plan, packed.buffers, packed.layout.offsets.raw());
    answer.footprint = packed.arena();
  };
  Answer answer = plan_within(request, std::move(footprint), limits);
  if (answer.packed) {
    answer.smallest_known = answer.footprint;
  } else {
    const PlanBuffers all = plan_buffers(graph, keep_all_plan(graph), alignment);
    answer.smallest_known = all.resident + glance_layout(all.problem).arena;
  }
  return answer;
}

LayoutResult glance_layout(const LayoutProblem& problem) {
  constexpr std::int64_t kWork = 50'000;
  Limits limits;
  limits.set_work(kWork);
  return make_layout(problem, {}, limits);
}

}  // namespace remat
