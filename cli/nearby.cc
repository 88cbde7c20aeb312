#include "nearby.h"

#include <algorithm>
#include <array>

#include "chart.h"
#include "common.h"
#include "people.h"
#include "remat/keep_all.h"
#include "remat/store.h"

namespace remat::cli {
namespace {

// At most a fraction of a second in all, since the user did not ask for these plans.
constexpr std::size_t kMostOps = 20'000;
constexpr std::int64_t kWork = 500'000;
constexpr double kSeconds = 1;

/// The budget and two on each side, a twentieth of the keep-all peak apart, ascending; no other one above
/// that peak or below `low`.
std::vector<Bytes> budgets_around(Bytes budget, Bytes low, Bytes keep_all_peak) {
  const std::int64_t apart = std::max<std::int64_t>(1, keep_all_peak.count() / 20);
  std::vector<Bytes> budgets{budget};
  for (std::int64_t away : {-2, -1, 1, 2}) {
    const Bytes other(std::min(budget, keep_all_peak).count() + away * apart);
    if (low <= other && other <= keep_all_peak) budgets.push_back(other);
  }
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

using Cells = std::array<std::string, 4>;

Cells cells_of(const Problem& problem, const PlanResult& result, Bytes keep_all_peak) {
  const Graph& graph = *problem.graph;
  const double share = static_cast<double>(problem.budget.count()) /
                       static_cast<double>(std::max<std::int64_t>(1, keep_all_peak.count()));
  Cells cells{format_bytes(problem.budget), percent(share)};
  if (result.status == Status::kInfeasible) {
    cells[2] = "impossible";
  } else if (!has_plan(result)) {
    cells[2] = "none found";
  } else {
    cells[2] = percent(overhead(graph, result.cost.duration));
    cells[3] = percent(overhead(graph, result.duration_bound.duration));
  }
  return cells;
}

}  // namespace

std::vector<std::string> nearby_budgets(const Problem& problem, const PlanResult& result, Bytes keep_all_peak,
                                        const PlanOptions& options, const std::atomic<bool>& stop) {
  const Graph& graph = *problem.graph;
  if (graph.num_ops() > kMostOps) return {};
  Limits limits;
  limits.set_time(kSeconds).set_work(kWork).set_stop(&stop);
  PlanStore store;
  store.add(graph, problem.order, keep_all_plan(graph));
  store.add(graph, problem.order, *result.plan);
  std::vector<Cells> table{{"budget", "of keep-all", "overhead", "at least"}};
  std::vector<char> marks{' '};
  const std::vector<Bytes> budgets = budgets_around(problem.budget, result.peak_bound.peak, keep_all_peak);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    const bool is_own = budgets[i] == problem.budget;
    Problem there{&graph, budgets[i], problem.order};
    Limits share(limits, 1.0 / static_cast<double>(budgets.size() - i));
    const PlanResult found = is_own ? result : make_plan_from(store, there, "auto", options, share);
    table.push_back(cells_of(there, found, keep_all_peak));
    marks.push_back(is_own ? '>' : ' ');
  }
  if (stop) return {};
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < table.size(); ++row) {
    std::string line(1, marks[row]);
    for (std::size_t column = 0; column < table[row].size(); ++column) {
      std::size_t width = 0;
      for (const Cells& cells : table) width = std::max(width, width_of(cells[column]));
      line += (column == 0 ? " " : "  ") + flush_right(table[row][column], width);
    }
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return lines;
}

}  // namespace remat::cli
