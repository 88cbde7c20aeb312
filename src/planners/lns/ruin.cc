#include "planners/lns/ruin.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/numbers.h"
#include "base/portable_math.h"

namespace remat::lns {
namespace {

/// Near enough: the sum of four even ones.
double normal(Random& random) {
  double sum = -2;
  for (int i = 0; i < 4; ++i) sum += random.unit();
  return sum * std::sqrt(3.0);
}

}  // namespace

Script ruined(const Graph& graph, const Script& script, Random& random) {
  constexpr double kStretch = 0.9, kMostOfStretch = 0.6, kMostOfAll = 0.5;
  std::vector<int> extras;
  IndexVector<OpId, bool> has_run(graph.num_ops(), false);
  for (int i : indices(script)) {
    const OpId op = script[at(i)].op;
    if (!op || has_run[op]) extras.push_back(i);
    if (op) has_run[op] = true;
  }
  std::vector<bool> goes(script.size(), false);
  const auto count = std::ssize(extras);
  const double u = random.unit(), share = u * u * std::sqrt(u);
  if (count > 0 && random.chance(kStretch)) {
    const auto length = 1 + static_cast<std::int64_t>(kMostOfStretch * share * real(count));
    const std::int64_t first = random.below(count), last = std::min(count, first + length);
    for (std::int64_t i = first; i < last; ++i) goes[at(extras[at(i)])] = true;
  } else {
    for (int i : extras) goes[at(i)] = random.chance(kMostOfAll * share);
  }
  Script rest;
  for (int i : indices(script)) {
    if (!goes[at(i)]) rest.push_back(script[at(i)]);
  }
  return without_unread(graph, rest);
}

void shake(const Graph& graph, Graph& shaken, Random& random) {
  constexpr double kSpread = 1.2, kMost = 0x1p61;
  const double spread = kSpread * random.unit();
  for (OpId op : graph.ops()) {
    const double factor = exponential(spread * normal(random));
    const double duration = std::min(kMost, factor * real(graph.duration[op]));
    shaken.duration[op] = Duration(static_cast<std::int64_t>(duration));
  }
}

}  // namespace remat::lns
