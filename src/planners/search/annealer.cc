#include "planners/search/annealer.h"

#include <algorithm>

#include "base/numbers.h"
#include "base/portable_math.h"
namespace remat::search {
namespace {

constexpr std::int64_t kBatch = 64;        // moves between updates of limits, temperature and price
constexpr std::int64_t kLook = 4;          // moves between checks of the clock
constexpr double kPriceStep = 0.005;       // relative, per batch
constexpr double kPriceReach = 4.0;        // short cycles take larger steps: e^4 up or down in one cycle
constexpr std::int64_t kPeakSteps = 500;   // objective peak: the budget falls by this part of the peak
constexpr std::int64_t kTicksPerMove = 5;  // the draw
constexpr std::int64_t kTicksPerUnit = 10;

std::vector<Use> all_uses(const StepModel& graph) {
  std::vector<Use> uses;
  for (OpId op : graph.duration.ids()) {
    for (BundleId b : graph.inputs[op]) {
      if (graph.recomputable(graph.producer[b])) uses.push_back({op, b});
    }
  }
  return uses;
}

}  // namespace

Annealer::Annealer(const StepModel& graph, OrderMode order, const Options& options, std::uint64_t seed)
    : graph_(&graph), options_(options), state_(graph, order, seed), moves_(make_moves(options, order)) {
  state_.uses = all_uses(graph);
  state_.aimed = options.aim;
  for (const auto& move : moves_) total_weight_ += move->weight();
  double sum = 0;
  std::int64_t count = 0;
  for (OpId op : graph.graph->ops()) {
    if (!graph.recomputable(op)) continue;
    sum += real(graph.duration[op]);
    ++count;
  }
  mean_recomputation_ = std::max(1e-9, count > 0 ? sum / real(count) : 1);
}

void Annealer::set_budget(Bytes budget) {
  budget_ = budget;
  best_.reset();
  closest_.reset();
  unsaved_ = false;
}

void Annealer::begin(const Plan& plan) {
  settle_best();
  state_.tracker.reset(plan, budget_);
  if (state_.price == 0 || !options_.adapt) guess_price();
  if (chase_peak_) {
    if (state_.tracker.excess() == 0) lower_budget();
    return;
  }
  if (state_.tracker.excess() == 0 && (!best_ || state_.tracker.duration() < best_->duration)) {
    unsaved_ = true;
    settle_best();
  }
  keep_closest();
}

/// First guess: all excess of keep-all costs a tenth of its duration. Adaptation corrects the error within
/// some thousand moves.
void Annealer::guess_price() {
  const auto excess = real(state_.tracker.excess());
  const double duration = std::max(1.0, real(graph_->graph->base_duration));
  if (excess > 0) state_.price = (options_.adapt ? 0.1 : 10.0) * duration / excess;
}

/// Takes the committed state, which is within the budget, as the best, and lowers the budget.
void Annealer::lower_budget() {
  Tracker& tracker = state_.tracker;
  const std::int64_t peak = tracker.peak_units();
  best_ = Found{tracker.plan(), tracker.duration(), peak};
  const std::int64_t step = std::max<std::int64_t>(1, peak / kPeakSteps);
  budget_ = graph_->graph->resident + Bytes((peak - step) * graph_->unit);
  tracker.set_budget(budget_);
}

void Annealer::settle_best() {
  if (!unsaved_) return;
  best_ = Found{state_.tracker.plan(), state_.tracker.duration(), state_.tracker.peak_units()};
  unsaved_ = false;
}

void Annealer::keep_closest() {
  if (best_ || unsaved_) return;
  const std::int64_t peak = state_.tracker.peak_units();
  if (!closest_ || peak < closest_->peak)
    closest_ = Found{state_.tracker.plan(), state_.tracker.duration(), peak};
}

Move& Annealer::draw_move() {
  auto at = state_.random.below(total_weight_);
  for (const auto& move : moves_) {
    at -= move->weight();
    if (at < 0) return *move;
  }
  return *moves_.back();
}

void Annealer::try_move() {
  Tracker& tracker = state_.tracker;
  Move& move = draw_move();
  ++move.statistics.drawn;
  state_.threshold = temperature_ * minus_log(state_.random.unit() + 0x1.0p-54);
  if (!move.propose(state_)) {
    tracker.rollback();
    return;
  }
  if (options_.trim) tracker.trim();
  ++move.statistics.proposed;
  const Change change = tracker.change();
  const Wide duration = tracker.duration() + change.duration;
  const bool too_long = duration >= kTooLong.count();
  if (change.out_of_range() || too_long || state_.cost(change) > state_.threshold) {
    tracker.rollback();
    return;
  }
  const bool fits = tracker.excess() + change.excess == 0;
  if (chase_peak_) {
    tracker.commit();
    ++move.statistics.taken;
    return;
  }
  if (unsaved_ && (!fits || duration > tracker.duration())) {
    // Copies the best plan before leaving it, at the cost of this move.
    tracker.rollback();
    settle_best();
    return;
  }
  tracker.commit();
  ++move.statistics.taken;
  if (fits && (unsaved_ || !best_ || duration < best_->duration)) unsaved_ = true;
}

void Annealer::cycle(std::int64_t moves, double hot, double cold, Limits& limits) {
  const auto seconds = limits.seconds_left();
  const auto work = limits.work_left();
  const double begun = limits.seconds();
  const std::int64_t work_begun = limits.work();
  const double step = 1 + std::max(kPriceStep, kPriceReach * real(kBatch) / real(moves));
  double done = 0;
  for (std::int64_t i = 0; i < moves && !idle(); i += kBatch) {
    done = real(i) / real(moves);
    if (seconds) done = std::max(done, (limits.seconds() - begun) / std::max(1e-9, *seconds));
    if (work)
      done = std::max(done, real(limits.work() - work_begun) / real(std::max<std::int64_t>(1, *work)));
    temperature_ = mean_recomputation_ * geometric(hot, cold, std::min(1.0, done));
    const std::int64_t ticks = state_.tracker.ticks() + state_.ticks;
    for (std::int64_t k = 0; k < kBatch; ++k) {
      try_move();
      // A move over a hundred thousand steps may take a millisecond.
      if (k % kLook == kLook - 1 && limits.reached()) break;
    }
    moves_done_ += kBatch;
    if (chase_peak_ && state_.tracker.excess() == 0) lower_budget();
    if (options_.adapt) state_.price *= state_.tracker.excess() > 0 ? step : 1 / step;
    const std::int64_t looks = state_.tracker.ticks() + state_.ticks - ticks;
    if (limits.spend((kBatch * kTicksPerMove + looks) / kTicksPerUnit)) break;
  }
  settle_best();
  keep_closest();
}

void Annealer::add_statistics(Counters& counters) const {
  counters.emplace_back("moves", moves_done_);
  for (const auto& move : moves_) {
    const std::string name(move->name());
    counters.emplace_back(name + ".drawn", move->statistics.drawn);
    counters.emplace_back(name + ".proposed", move->statistics.proposed);
    counters.emplace_back(name + ".taken", move->statistics.taken);
  }
}

}  // namespace remat::search
