// The shared entry point: first fit, then the search of each part, which proves the optimum if it finishes.
#include "remat/layout.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "base/numbers.h"
#include "layout/ejection.h"
#include "layout/first_fit.h"
#include "layout/neighbours.h"
#include "layout/search.h"
#include "layout/sections.h"
#include "remat/check.h"
#include "remat/error.h"

namespace remat {
namespace layout {
namespace {

/// The state of one part of time.
struct PartState {
  Part part;
  Packed packed;
  std::int64_t bound = 0;  ///< lower bound on its packings
  std::int64_t grain = 1;  ///< divides the height of every packing in which no item can move down
  bool is_searchable = true;
  int rounds = 0;
  std::shared_ptr<const Neighbours> neighbours;
  std::optional<EjectionSearch> ejection;
  std::optional<CapacitySearch> search;  ///< for the current goal
};

void check(const LayoutProblem& problem, const LayoutOptions& options = {}) {
  if (!options.start.empty() && options.start.size() != problem.buffers.size()) {
    throw UsageError("a layout to start from has " + std::to_string(options.start.size()) + " offsets for " +
                     std::to_string(problem.buffers.size()) + " buffers");
  }
  if (problem.alignment < 1 || problem.alignment >= kMaxCount) {
    throw UsageError("alignment " + std::to_string(problem.alignment) + " is outside [1, 2^62)");
  }
  std::int64_t sum = 0;
  for (BufferId id : problem.buffers.ids()) {
    const Buffer& buffer = problem.buffers[id];
    const auto fail = [&](const std::string& what) {
      throw InputError("buffer " + std::to_string(id.index()) + ": " + what);
    };
    if (buffer.first >= buffer.end) {
      fail("its life ends at " + std::to_string(buffer.end) + ", not after it begins at " +
           std::to_string(buffer.first));
    }
    if (buffer.size.count() < 0 || buffer.size.count() >= kMaxCount) {
      fail("size " + std::to_string(buffer.size.count()) + " is outside [0, 2^62)");
    }
    const std::int64_t units = (buffer.size.count() + problem.alignment - 1) / problem.alignment;
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(units, problem.alignment, &bytes) ||
        __builtin_add_overflow(sum, bytes, &sum) || sum >= kMaxCount) {
      fail("the sizes up to here, rounded up to the alignment, sum up to 2^62 bytes or more");
    }
  }
}

Packed stacked(const Packing& packing) {
  Packed packed;
  for (const Item& item : packing.items) {
    packed.offsets.push_back(packed.height);
    packed.height += item.size;
  }
  return packed;
}

class Layouter {
 public:
  Layouter(const LayoutProblem& problem, const LayoutOptions& options, Limits& limits)
      : problem_(&problem), options_(&options), limits_(&limits), packing_(make_packing(problem)) {}

  LayoutResult run(bool search) {
    LayoutResult result;
    start();
    if (search) improve();
    write(result);
    return result;
  }

 private:
  void start() {
    // Beyond this the search is too slow to be of use, and its tables too large.
    constexpr std::int64_t kMostPlaces = 20'000'000;
    if (problem_->capacity) {
      capacity_ = std::max<std::int64_t>(0, problem_->capacity->count()) / problem_->alignment;
    }
    for (Part& part : split(packing_)) {
      PartState state;
      state.part = std::move(part);
      const Packing& packing = state.part.packing;
      state.bound = *std::max_element(packing.load.begin(), packing.load.end());
      state.grain = 0;
      std::int64_t places = 0;
      for (const Item& item : packing.items) {
        state.grain = std::gcd(state.grain, item.size);
        places += item.end - item.first;
      }
      state.is_searchable = places <= kMostPlaces;
      parts_.push_back(std::move(state));
    }
    live_peak_ = bound();
    for (PartState& state : parts_) {
      const Packing& packing = state.part.packing;
      const bool is_started = !options_->start.empty() && std::ssize(packing.items) <= kMostQuadratic;
      if (is_started) {
        state.packed = started(packing);
        if (state.packed.height <= goal()) continue;
      }
      Packed packed = options_->first_fit ? fitted(state) : stacked(packing);
      if (!is_started || packed.height < state.packed.height) state.packed = std::move(packed);
    }
  }

  Packed fitted(PartState& state) const {
    const Packing& packing = state.part.packing;
    Packed packed = best_sweep(packing, goal(), *limits_);
    if (packed.height <= goal() || limits_->reached()) return packed;
    if (std::ssize(packing.items) > kMostQuadratic) {
      find_neighbours(state);
      if (!state.neighbours) return packed;
    }
    lower_by_sequences(packing, goal(), state.neighbours.get(), *limits_, packed);
    return packed;
  }

  Packed started(const Packing& packing) const {
    std::vector<std::int32_t> upward(packing.items.size());
    std::iota(upward.begin(), upward.end(), 0);
    const auto key = [&](std::int32_t i) {
      const Bytes offset = options_->start[packing.buffer[at(i)].index()];
      return std::pair(offset < Bytes(), offset);
    };
    std::stable_sort(upward.begin(), upward.end(),
                     [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    limits_->spend(narrow<std::int64_t>(upward.size() * upward.size() / 64));
    return layout::first_fit(packing, upward);
  }

  void improve() {
    while (!is_impossible() && height() > goal() && !limits_->reached()) {
      PartState* part = next_part();
      if (!part) return;
      improve(*part);
    }
  }

  /// One round: the search at the goal; ejection chains from the best packing towards it; without a capacity,
  /// also the search at heights in between, by bisection. Early rounds are short: one run.
  void improve(PartState& state) {
    const Packing& packing = state.part.packing;
    const auto items = narrow<std::int64_t>(packing.items.size());
    constexpr std::int64_t kEjectionUnits = 100;  // per item; about the work of the search
    constexpr std::int64_t kNear = 30;
    constexpr std::int64_t kMostSearched = 4'000;  // a node of the search is O(items)
    const int doublings = std::min(state.rounds++, 30);
    if (items > kMostSearched && options_->ejection) {
      find_neighbours(state);
      if (state.neighbours) {
        eject(state, (kEjectionUnits * items) << doublings);
        return;
      }
    }
    const std::int64_t nodes = std::max<std::int64_t>(1'000, items + items / 8) << doublings;
    std::int64_t low = goal();
    if (!state.search || state.search->capacity() != low) {
      state.search.emplace(packing, low, *options_);
    }
    if (attempt(state, *state.search, nodes) != Answer::kUnknown) {
      state.search.reset();
      return;
    }
    // Ejection chains do not reach a capacity that is far off.
    const bool is_far = capacity_ && !options_->closest && (state.packed.height - goal()) > goal() / kNear;
    if (options_->ejection && (!is_far || doublings == 0))
      eject(state, (kEjectionUnits * items) << doublings);
    if (capacity_) return;
    LayoutOptions options = *options_;
    while (state.packed.height - low > std::max(state.grain, low / 1000) && !limits_->reached()) {
      options.seed += narrow<std::uint64_t>(state.rounds);
      CapacitySearch search(packing, low + (state.packed.height - low) / 2, options);
      if (attempt(state, search, nodes) != Answer::kFits) low = search.capacity();
    }
  }

  /// Computes the neighbours, unless there are too many pairs.
  static void find_neighbours(PartState& state) {
    const Packing& packing = state.part.packing;
    if (state.neighbours || Neighbours::pairs(packing) > Neighbours::kMostPairs) return;
    state.neighbours = std::make_shared<Neighbours>(packing);
  }

  void eject(PartState& state, std::int64_t units) {
    if (!state.ejection) {
      find_neighbours(state);
      if (!state.neighbours) return;
      state.ejection.emplace(state.part.packing, state.neighbours, options_->seed);
    }
    const std::int64_t before = state.packed.height;
    state.ejection->lower(state.packed, goal(), units, *limits_);
    if (state.packed.height < before) report();
  }

  void report() const {
    Progress progress{"layout", limits_->seconds(), Bytes(height() * problem_->alignment), std::nullopt};
    progress.within_budget = !capacity_ || height() <= *capacity_;
    limits_->report(progress);
  }

  Answer attempt(PartState& state, CapacitySearch& search, std::int64_t nodes) {
    const std::int64_t before = search.nodes();
    const Answer answer = search.run(nodes, *limits_);
    nodes_ += search.nodes() - before;
    if (answer == Answer::kFits) {
      state.packed = {search.offsets(), layout::height(state.part.packing, search.offsets())};
      REMAT_ASSERT(state.packed.height <= search.capacity(), state.packed.height, search.capacity());
      REMAT_ASSERT_HEAVY(is_packing(state.part.packing, state.packed), state.packed.height);
      report();
    } else if (answer == Answer::kImpossible) {
      state.bound = std::max(state.bound, (search.capacity() / state.grain + 1) * state.grain);
      // A bound above a known packing would be wrong.
      REMAT_ASSERT(state.bound <= state.packed.height, state.bound, state.packed.height);
    }
    return answer;
  }

  void write(LayoutResult& result) const {
    const std::int64_t alignment = problem_->alignment;
    result.offsets.assign(problem_->buffers.size(), Bytes());
    for (const PartState& state : parts_) {
      for (std::size_t i = 0; i < state.packed.offsets.size(); ++i) {
        result.offsets[state.part.packing.buffer[i]] = Bytes(state.packed.offsets[i] * alignment);
      }
    }
    result.arena = Bytes(height() * alignment);
    result.bound = {bound() > live_peak_ ? "search" : "live_peak", Bytes(bound() * alignment)};
    result.counters = {
        {"parts", narrow<std::int64_t>(parts_.size())}, {"sections", packing_.sections()}, {"nodes", nodes_}};
    const bool fits = !capacity_ || height() <= *capacity_;
    result.status = is_impossible()       ? Status::kInfeasible
                    : !fits               ? Status::kUnknown
                    : height() == bound() ? Status::kOptimal
                                          : Status::kFeasible;
    if (result.status == Status::kInfeasible || result.status == Status::kOptimal) {
      result.stopped_by = StoppedBy::kProof;
    } else {
      result.stopped_by = limits_->stopped_by().value_or(StoppedBy::kTarget);
    }
  }

  /// The highest part that may become lower; none if that would not help.
  PartState* next_part() {
    const std::int64_t goal = this->goal();
    PartState* next = nullptr;
    for (PartState& state : parts_) {
      if (state.packed.height <= goal) continue;
      if (!state.is_searchable) {
        if (capacity_) continue;  // another part may still prove that nothing fits
        if (state.packed.height == height()) return nullptr;
        continue;
      }
      if (!next ||
          std::pair(state.rounds, -state.packed.height) < std::pair(next->rounds, -next->packed.height)) {
        next = &state;
      }
    }
    return next;
  }

  std::int64_t height() const {
    std::int64_t most = 0;
    for (const PartState& part : parts_) most = std::max(most, part.packed.height);
    return most;
  }
  /// The least height not proved impossible.
  std::int64_t bound() const {
    std::int64_t most = 0;
    for (const PartState& part : parts_) most = std::max(most, part.bound);
    return most;
  }
  /// Reaching this height ends the search.
  std::int64_t goal() const { return capacity_ ? std::max(*capacity_, bound()) : bound(); }
  bool is_impossible() const { return capacity_ && bound() > *capacity_; }

  const LayoutProblem* problem_;
  const LayoutOptions* options_;
  Limits* limits_;
  Packing packing_;
  std::vector<PartState> parts_;
  std::optional<std::int64_t> capacity_;
  std::int64_t live_peak_ = 0;
  std::int64_t nodes_ = 0;
};

}  // namespace
}  // namespace layout

namespace {

LayoutResult confirmed(const LayoutProblem& problem, LayoutResult result) {
  if (const auto violation = validate_layout(problem, result.offsets.raw(), result.arena)) {
    throw std::logic_error("a layout breaks the rule " + std::string(to_string(violation->rule)) + ": " +
                           violation->message);
  }
  if (result.arena < result.bound.arena) throw std::logic_error("a layout is below its lower bound");
  return result;
}

}  // namespace

LayoutResult make_layout(const LayoutProblem& problem, const LayoutOptions& options, Limits& limits) {
  const Limits clock;
  layout::check(problem, options);
  LayoutResult result = confirmed(problem, layout::Layouter(problem, options, limits).run(true));
  result.seconds = clock.seconds();
  return result;
}

LayoutResult quick_layout(const LayoutProblem& problem, std::int64_t units) {
  layout::check(problem);
  Limits limits;
  limits.set_work(units);
  LayoutResult result = confirmed(problem, layout::Layouter(problem, {}, limits).run(false));
  result.seconds = limits.seconds();
  return result;
}

Bytes live_peak(const LayoutProblem& problem) {
  layout::check(problem);
  const layout::Packing packing = layout::make_packing(problem);
  std::int64_t most = 0;
  for (std::int64_t load : packing.load) most = std::max(most, load);
  return Bytes(most * problem.alignment);
}

}  // namespace remat
