// Algorithm 3. An interleaved schedule on a set X gives for each x in X the nodes to run just before x, given
// the earlier nodes of X; schedules of the bags to the left and right of X are joined node by node.
// Differences from the printed algorithm:
// - known nodes are not recomputed (the paper returns them as a schedule of one step);
// - the paper makes the whole spine between u_i-1 and u_i in the inner bags, so that all inputs of u_i are
// among
//   it; here each input of u_i in the inner bags is computed by name, given those before it and u_1 ...
//   u_i-1. These calls too see only nodes before u_i, which strips the last node from each bag (Lemma 11).
#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "base/sorted.h"
#include "baselines/pw_remat/pw_remat.h"

namespace remat::pw_remat {
namespace {

using decomposition::Bag;
using Ranks = std::vector<std::int32_t>;
using Bags = std::vector<Bag>;

bool has(const Ranks& ranks, std::int32_t r) { return std::binary_search(ranks.begin(), ranks.end(), r); }
void append(Ranks& to, const Ranks& more) { to.insert(to.end(), more.begin(), more.end()); }

Ranks united(const Ranks& a, const Ranks& b) {
  Ranks result;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

/// Bags without nodes after u, and without bags that are then empty.
Bags up_to(const Bags& bags, std::int32_t u) {
  Bags result;
  for (const Bag& bag : bags) {
    const auto end = std::upper_bound(bag.begin(), bag.end(), u);
    if (end != bag.begin()) result.emplace_back(bag.begin(), end);
  }
  return result;
}

/// What an interleaved schedule runs before each of its nodes, in the order of the nodes.
struct Interleaved {
  Ranks nodes;
  std::vector<Ranks> before;

  const Ranks* find(std::int32_t x) const {
    const auto found = std::lower_bound(nodes.begin(), nodes.end(), x);
    if (found == nodes.end() || *found != x) return nullptr;
    return &before[at(found - nodes.begin())];
  }
};

class Recursion {
 public:
  Recursion(const std::vector<Ranks>& inputs, std::int64_t k, std::int64_t max_steps, Limits& limits)
      : inputs_(inputs), k_(k), max_steps_(max_steps), limits_(limits), mark_(inputs.size(), 0) {}

  bool stopped() const { return stopped_; }

  /// PWRemat: computes u, where `known` and everything outside the bags is known.
  Ranks compute(const Bags& bags, std::int32_t u, const Ranks& known) {
    if (stopped_ || has(known, u)) return {};
    const Bags part = up_to(bags, u);
    const std::int64_t here = mark_all(part);
    if (mark_[at(u)] != here) return {};
    if (std::ssize(part) < k_ || decomposition::width(part) <= 1) return straight(u, known, here);
    const auto is_open = [&](std::int32_t r) { return mark_[at(r)] == here && !has(known, r); };
    if (std::none_of(inputs_[at(u)].begin(), inputs_[at(u)].end(), is_open)) return {u};
    const auto middle = std::find_if(part.begin(), part.end(), [&](const Bag& bag) { return has(bag, u); });
    const Interleaved left =
        interleaved(*middle, Bags(std::make_reverse_iterator(middle), part.rend()), known);
    const Interleaved right = interleaved(*middle, Bags(middle + 1, part.end()), known);
    Ranks result;
    for (std::size_t i = 0; i < middle->size(); ++i) {
      append(result, left.before[i]);
      append(result, right.before[i]);
      if (!has(known, (*middle)[i])) result.push_back((*middle)[i]);
    }
    return spent(std::move(result));
  }

 private:
  /// InterleavedSchedule. The bags lead away from the targets.
  Interleaved interleaved(const Ranks& targets, const Bags& bags, const Ranks& known) {
    Interleaved result{targets, std::vector<Ranks>(targets.size())};
    const bool all_known = std::includes(known.begin(), known.end(), targets.begin(), targets.end());
    if (bags.empty() || stopped_ || all_known) return result;
    if (std::ssize(bags) < k_) return straight_between(targets, bags, known);
    const auto half = (std::ssize(bags) - 1) / 2;
    const Bag& middle = bags[at(half)];
    const Bags inner(bags.begin(), bags.begin() + half);
    const Bags outer(bags.begin() + half + 1, bags.end());
    Ranks earlier, later;  // than the last node of the middle
    for (std::int32_t x : targets) (x < middle.back() ? earlier : later).push_back(x);
    const Ranks nodes = united(earlier, middle);
    const Interleaved parts[] = {from_inner(nodes, inner, known), interleaved(middle, outer, known),
                                 interleaved(later, inner, united(known, nodes))};
    // Condense: schedules of nodes between two targets are added to the later target.
    Ranks open;
    std::size_t target = 0;
    for (std::int32_t x : united(targets, middle)) {
      for (const Interleaved& part : parts) {
        if (const Ranks* steps = part.find(x)) append(open, *steps);
      }
      if (target < targets.size() && targets[target] == x) {
        result.before[target++] = spent(std::exchange(open, {}));
      } else if (!has(known, x)) {
        open.push_back(x);
      }
    }
    return result;
  }

  /// Before each node what it reads in the inner bags.
  Interleaved from_inner(const Ranks& nodes, const Bags& inner, const Ranks& known) {
    Interleaved result{nodes, std::vector<Ranks>(nodes.size())};
    if (inner.empty()) return result;
    for (std::size_t i = 0; i < nodes.size() && !stopped_; ++i) {
      const std::int64_t here = mark_all(inner);
      Ranks reads;
      for (std::int32_t r : inputs_[at(nodes[i])]) {
        if (mark_[at(r)] == here && !has(nodes, r) && !has(known, r)) reads.push_back(r);
      }
      const Ranks before(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i));
      for (auto r = reads.begin(); r != reads.end(); ++r) {
        append(result.before[i], compute(inner, *r, united(before, Ranks(reads.begin(), r))));
      }
    }
    return result;
  }

  /// No recomputation: what leads to u, in order.
  Ranks straight(std::int32_t u, const Ranks& known, std::int64_t here) {
    Ranks found{u};
    mark_[at(u)] = 0;
    const auto visit = [&](std::int32_t r) {
      if (mark_[at(r)] != here || has(known, r)) return;
      mark_[at(r)] = 0;
      found.push_back(r);
    };
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (std::int32_t r : inputs_[at(found[i])]) visit(r);
    }
    std::sort(found.begin(), found.end());
    return spent(std::move(found));
  }

  /// No recomputation: every node of the bags before the first target that comes after it.
  Interleaved straight_between(const Ranks& targets, const Bags& bags, const Ranks& known) {
    Interleaved result{targets, std::vector<Ranks>(targets.size())};
    Ranks nodes;
    for (const Bag& bag : bags) append(nodes, bag);
    sort_unique(nodes);
    std::size_t target = 0;
    for (std::int32_t r : nodes) {
      while (target < targets.size() && targets[target] < r) ++target;
      if (target == targets.size()) break;
      if (targets[target] != r && !has(known, r)) result.before[target].push_back(r);
    }
    stopped_ = stopped_ || limits_.spend(1 + std::ssize(nodes) / 8);
    return result;
  }

  std::int64_t mark_all(const Bags& bags) {
    ++generation_;
    std::int64_t size = 0;
    for (const Bag& bag : bags) {
      for (std::int32_t r : bag) mark_[at(r)] = generation_;
      size += std::ssize(bag);
    }
    stopped_ = stopped_ || limits_.spend(1 + size / 32);
    return generation_;
  }
  Ranks spent(Ranks steps) {
    stopped_ = stopped_ || std::ssize(steps) > max_steps_ || limits_.spend(1 + std::ssize(steps) / 64);
    return stopped_ ? Ranks{} : std::move(steps);
  }

  const std::vector<Ranks>& inputs_;
  std::int64_t k_, max_steps_;
  Limits& limits_;
  std::vector<std::int64_t> mark_;  ///< the generation in which the rank was last in the bags
  std::int64_t generation_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::optional<std::vector<std::int32_t>> interleave(const std::vector<std::vector<std::int32_t>>& inputs,
                                                    const decomposition::PathDecomposition& path,
                                                    std::int64_t k, std::int64_t max_steps, Limits& limits) {
  if (inputs.empty()) return Ranks{};
  Recursion recursion(inputs, k, max_steps, limits);
  Ranks result = recursion.compute(path, narrow<std::int32_t>(inputs.size()) - 1, {});
  if (recursion.stopped()) return std::nullopt;
  return result;
}

}  // namespace remat::pw_remat
