// One thread of the search: cycle after cycle until the limits are reached.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "planners/search/pool.h"

namespace remat::search {

/// Plans to begin from.
struct Starts {
  Plan keep_all;
  std::vector<Plan> known;         ///< given with the problem, within the budget
  std::vector<Plan> constructive;  ///< given, but over the budget, or made for low budgets
};

class Worker {
 public:
  Worker(const Problem& problem, const StepModel& graph, const Options& options, const Starts& starts,
         Pool& pool, std::uint64_t seed);

  /// Runs until the limits are reached or no plan can be faster.
  void run(Limits& limits);
  const Annealer& annealer() const { return annealer_; }

 private:
  void search_time(Limits& limits);
  void search_peak(Limits& limits);
  /// The plan that the next cycle begins from, and the temperature that suits it.
  double begin_cycle(int cycle);
  enum class Line : std::uint8_t { kGiven, kMade, kKeepAll };
  const Plan& start_of(Line line);
  Line draw_line(int cycle);
  std::optional<Found> best_of(Line line) const;
  /// Counts these plans, unchanged, as results of the line.
  void look_at(Line line, const std::vector<Plan>& plans);
  double hotter();
  double cooler() const;
  double draw_cold(double cold);
  bool restarts();
  bool reorders() const { return problem_->order == OrderMode::kFree && options_.window; }
  void publish();
  bool finished(Limits& limits) const;

  const Problem* problem_;
  const StepModel* graph_;
  Options options_;
  const Starts* starts_;
  Pool* pool_;
  Random random_;
  Annealer annealer_;
  Line line_ = Line::kKeepAll;                ///< of the cycle at hand
  std::array<std::optional<Found>, 3> best_;  ///< within the budget, by line
};

}  // namespace remat::search
