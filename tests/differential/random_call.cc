#include "differential/random_call.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "remat/quantity.h"

namespace remat::differential {
namespace {

struct Setting {
  std::string_view planner, key, value;
};

// Techniques switched off or on against their default, and numbers at their ends.
constexpr Setting kSettings[] = {
    {"auto", "proof_ops", "0"},
    {"auto", "tree_gap", "0"},
    {"auto", "chain_gap", "0"},
    {"auto", "search_before_proof", "1"},
    {"retention", "buy_back", "off"},
    {"rotor", "slots", "3"},
    {"rotor", "stages", "2"},
    {"rotor", "costs", "unit"},
    {"rotor", "buy_back", "off"},
    {"rotor", "first", "on"},
    {"tw_remat", "k", "0"},
    {"tw_remat", "k", "7"},
    {"tw_remat", "min_degree", "off"},
    {"tw_remat", "improve", "0"},
    {"tw_remat", "buy_back", "off"},
    {"evict", "rounds", "1"},
    {"evict", "buy_back", "off"},
    {"search", "insert_chain", "off"},
    {"search", "erase", "off"},
    {"search", "shift", "off"},
    {"search", "window", "off"},
    {"search", "aim", "off"},
    {"search", "trim", "off"},
    {"search", "restart", "off"},
    {"search", "mix", "off"},
    {"search", "adapt", "off"},
    {"search", "constructive", "off"},
    {"search", "retention", "off"},
    {"search", "hot", "1000000"},
    {"dtr", "heuristic", "local"},
    {"dtr", "heuristic", "msps"},
    {"dtr", "heuristic", "lru"},
    {"dtr", "heuristic", "size"},
    {"chen", "liveness", "off"},
    {"lower_set_dp", "family", "all"},
    {"lower_set_dp", "family", "pruned"},
    {"lower_set_dp", "centric", "time"},
    {"lower_set_dp", "centric", "memory"},
    {"lower_set_dp", "liveness", "off"},
    {"pw_remat", "k", "0"},
    {"pw_remat", "k", "7"},
    {"pw_remat", "buy_back", "off"},
    {"checkmate_lp", "threshold", "0"},
    {"checkmate_lp", "threshold", "1"},
    {"checkmate_lp", "shrink", "off"},
    {"checkmate_milp", "warm_start", "none"},
    {"checkmate_milp", "warm_start", "tw_remat"},
    {"checkmate_milp", "rows", "checkmate"},
    {"checkmate_milp", "gap", "0.1"},
    {"moccasin", "c", "1"},
    {"moccasin", "c", "3"},
    {"moccasin", "form", "stage"},
    {"moccasin", "form", "events"},
    {"moccasin", "warm_start", "none"},
    {"moccasin", "warm_start", "search"},
    {"hiremate", "preset", "published"},
    {"hiremate", "preset", "h_ilp"},
    {"hiremate", "preset", "rockmate"},
    {"hiremate", "preset", "checkmate"},
    {"hiremate", "partitioner", "sequence"},
    {"hiremate", "partitioner", "single_level"},
    {"hiremate", "most_lower", "2"},
    {"hiremate", "polish", "off"},
    {"hiremate", "all_phases", "on"},
};

}  // namespace

std::map<std::string, std::string> random_options(std::string_view planner, Random& random) {
  std::vector<Setting> own;
  std::copy_if(std::begin(kSettings), std::end(kSettings), std::back_inserter(own),
               [&](const Setting& one) { return one.planner == planner; });
  std::map<std::string, std::string> drawn;
  for (std::int64_t k = own.empty() || !random.chance(0.25) ? 0 : random.between(1, 2); k > 0; --k) {
    const Setting& one = own[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(own.size())))];
    drawn.insert_or_assign(std::string(one.key), std::string(one.value));
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
