#include "differential/random_call.h"

#include <vector>

#include "helpers/options.h"
#include "remat/quantity.h"

namespace remat::differential {

std::map<std::string, std::string> random_options(const PlannerInfo& planner, Random& random) {
  std::map<std::string, std::string> drawn;
  if (planner.options.empty() || !random.chance(0.25)) return drawn;
  for (std::int64_t k = random.between(1, 2); k > 0; --k) {
    const OptionInfo& option =
        planner.options[static_cast<std::size_t>(random.below(std::ssize(planner.options)))];
    drawn.insert_or_assign(option.name, testing::random_value(option, random));
  }
  return drawn;
}

Plan random_plan(const exact::Graph& tiny, bool fixed_order, Random& random) {
  std::vector<int> left, steps;
  for (std::size_t i = 0; i < tiny.ops.size(); ++i) left.push_back(static_cast<int>(i));
  exact::Sum duration = 0;
  for (const exact::Op& op : tiny.ops) duration += op.duration;
  while (!left.empty()) {
    const auto fits = [&](int op) {
      std::vector<int> longer = steps;
      longer.push_back(op);
      return !exact::broken_step(tiny, longer, longer.size() - 1);
    };
    const int old = steps.empty() ? -1 : steps[static_cast<std::size_t>(random.below(std::ssize(steps)))];
    if (old >= 0 && steps.size() < 40 && random.chance(0.3)) {
      const exact::Sum longer = duration + tiny.ops[static_cast<std::size_t>(old)].duration;
      if (!fits(old) || longer >= kTooLong.count()) continue;
      duration = longer;
      steps.push_back(old);
      continue;
    }
    auto next = left.begin();
    if (!fixed_order) next += static_cast<std::ptrdiff_t>(random.below(std::ssize(left)));
    if (!fits(*next)) continue;
    steps.push_back(*next);
    left.erase(next);
  }
  Plan plan;
  for (int op : steps) plan.steps.push_back(OpId(op));
  return plan;
}

}  // namespace remat::differential
