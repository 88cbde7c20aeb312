#include "planners/hiremate/selection.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace remat::hiremate {
namespace {

auto key(const Costed& c) {
  return std::tuple(c.cost.saved, c.cost.backward, c.cost.forward, c.cost.duration, c.cost.reads.size());
}

bool no_worse(const OptionCost& a, const OptionCost& b) {
  return a.duration <= b.duration && a.saved <= b.saved && a.forward <= b.forward &&
         a.backward <= b.backward &&
         std::includes(b.reads.begin(), b.reads.end(), a.reads.begin(), a.reads.end());
}

}  // namespace

std::vector<Costed> undominated(std::vector<Costed> all) {
  std::stable_sort(all.begin(), all.end(), [](const Costed& a, const Costed& b) { return key(a) < key(b); });
  std::vector<Costed> left;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool dominated = false;
    for (std::size_t j = 0; j < all.size() && !dominated; ++j) {
      if (i == j || !no_worse(all[j].cost, all[i].cost)) continue;
      dominated = !no_worse(all[i].cost, all[j].cost) || j < i;
    }
    if (!dominated) left.push_back(all[i]);
  }
  return left;
}

std::vector<Option> spread(const std::vector<Costed>& all, std::size_t most) {
  double saved = 1, peak = 1, duration = 1;
  for (const Costed& c : all) {
    saved = std::max(saved, static_cast<double>(c.cost.saved));
    peak = std::max(peak, static_cast<double>(std::max(c.cost.forward, c.cost.backward)));
    duration = std::max(duration, static_cast<double>(c.cost.duration));
  }
  const auto distance = [&](const Costed& a, const Costed& b) {
    const double x = static_cast<double>(a.cost.saved - b.cost.saved) / saved;
    const double y = static_cast<double>(std::max(a.cost.forward, a.cost.backward) -
                                         std::max(b.cost.forward, b.cost.backward)) /
                     peak;
    const double z = static_cast<double>(a.cost.duration - b.cost.duration) / duration;
    return x * x + y * y + z * z;
  };
  std::vector<std::size_t> chosen;
  const auto by = [&](auto less) {
    const auto best = std::min_element(all.begin(), all.end(), less) - all.begin();
    const auto i = static_cast<std::size_t>(best);
    if (chosen.size() < most && std::find(chosen.begin(), chosen.end(), i) == chosen.end())
      chosen.push_back(i);
  };
  by([](const Costed& a, const Costed& b) {
    return std::tuple(a.cost.duration, a.cost.saved) < std::tuple(b.cost.duration, b.cost.saved);
  });
  by([](const Costed& a, const Costed& b) {
    return std::tuple(a.cost.saved, a.cost.duration) < std::tuple(b.cost.saved, b.cost.duration);
  });
  by([](const Costed& a, const Costed& b) {
    return std::tuple(a.cost.backward, a.cost.duration) < std::tuple(b.cost.backward, b.cost.duration);
  });
  while (chosen.size() < std::min(most, all.size())) {
    std::size_t farthest = all.size();
    double most_apart = -1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      double nearest = std::numeric_limits<double>::infinity();
      for (std::size_t c : chosen) nearest = std::min(nearest, c == i ? -2 : distance(all[i], all[c]));
      if (nearest <= most_apart) continue;
      most_apart = nearest;
      farthest = i;
    }
    if (farthest == all.size()) break;
    chosen.push_back(farthest);
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<Option> options;
  for (std::size_t i : chosen) options.push_back(all[i].option);
  return options;
}

}  // namespace remat::hiremate
