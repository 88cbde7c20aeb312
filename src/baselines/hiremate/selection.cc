#include "baselines/hiremate/selection.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/numbers.h"

namespace remat::hiremate {
namespace {

auto key(const Costed& c) {
  return std::tuple(c.cost.saved, c.cost.backward, c.cost.forward, c.cost.duration, c.cost.reads.size());
}

bool no_worse(const OptionCost& a, const OptionCost& b) {
  return a.refreshed == b.refreshed && a.duration <= b.duration && a.saved <= b.saved &&
         a.forward <= b.forward && a.backward <= b.backward &&
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

/// Those on the lower convex hull of (saved, duration), of the refreshed and of the others: where memory is
/// scarce between the two parts, no sum of options over members is better than one of these. Every so
/// many of them where they are too many.
std::vector<std::size_t> on_hull(const std::vector<Costed>& all, std::size_t most) {
  std::vector<std::size_t> chosen;
  for (const bool refreshed : {false, true}) {
    std::vector<std::size_t> order, hull;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].cost.refreshed == refreshed) order.push_back(i);
    }
    const auto saved = [&](std::size_t i) { return real(all[i].cost.saved); };
    const auto duration = [&](std::size_t i) { return real(all[i].cost.duration); };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(saved(a), duration(a)) < std::tuple(saved(b), duration(b));
    });
    for (std::size_t i : order) {
      if (!hull.empty() && duration(i) >= duration(hull.back())) continue;
      while (hull.size() > 1) {
        const std::size_t a = hull[hull.size() - 2], b = hull.back();
        if ((duration(a) - duration(b)) * (saved(i) - saved(a)) >
            (duration(a) - duration(i)) * (saved(b) - saved(a)))
          break;
        hull.pop_back();
      }
      hull.push_back(i);
    }
    const std::size_t share =
        std::max<std::size_t>(1, refreshed ? most - std::min(most, chosen.size()) : (most + 1) / 2);
    const std::size_t take = std::min(share, hull.size());
    for (std::size_t k = 0; k < take; ++k)
      chosen.push_back(hull[take < 2 ? hull.size() - 1 : k * (hull.size() - 1) / (take - 1)]);
  }
  return chosen;
}

std::vector<Option> spread(const std::vector<Costed>& all, std::size_t most) {
  double saved = 1, peak = 1, duration = 1;
  for (const Costed& c : all) {
    saved = std::max(saved, real(c.cost.saved));
    peak = std::max(peak, real(std::max(c.cost.forward, c.cost.backward)));
    duration = std::max(duration, real(c.cost.duration));
  }
  const auto distance = [&](const Costed& a, const Costed& b) {
    const double x = real(a.cost.saved - b.cost.saved) / saved;
    const double y =
        real(std::max(a.cost.forward, a.cost.backward) - std::max(b.cost.forward, b.cost.backward)) / peak;
    const double z = real(a.cost.duration - b.cost.duration) / duration;
    const double w = a.cost.refreshed == b.cost.refreshed ? 0 : 0.5;
    return x * x + y * y + z * z + w * w;
  };
  std::vector<std::size_t> chosen = on_hull(all, most);
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
