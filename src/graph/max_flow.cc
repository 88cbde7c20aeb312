#include "graph/max_flow.h"

#include <algorithm>

#include "base/numbers.h"
#include "remat/check.h"

namespace remat {

MaxFlow::Arc MaxFlow::add_arc(Node from, Node to) {
  REMAT_ASSERT(from >= 0 && from < num_nodes_ && to >= 0 && to < num_nodes_, from, to, num_nodes_);
  from_.push_back(from);
  to_.push_back(to);
  capacity_.push_back(0);
  built_ = false;
  return narrow<Arc>(from_.size()) - 1;
}

void MaxFlow::build() {
  begin_.assign(narrow<std::size_t>(num_nodes_) + 1, 0);
  for (std::size_t a = 0; a < from_.size(); ++a) {
    ++begin_[narrow<std::size_t>(from_[a]) + 1];
    ++begin_[narrow<std::size_t>(to_[a]) + 1];
  }
  for (std::size_t n = 1; n < begin_.size(); ++n) begin_[n] += begin_[n - 1];
  std::vector<std::int32_t> next(begin_.begin(), begin_.end() - 1);
  half_.resize(2 * from_.size());
  position_.resize(from_.size());
  for (std::size_t a = 0; a < from_.size(); ++a) {
    const std::int32_t there = next[at(from_[a])]++;
    const std::int32_t back = next[at(to_[a])]++;
    half_[at(there)] = {to_[a], back, 0};
    half_[at(back)] = {from_[a], there, 0};
    position_[a] = there;
  }
  level_.assign(at(num_nodes_), -1);
  next_.resize(at(num_nodes_));
  queue_.clear();
  built_ = true;
}

/// Distances from the source over arcs with residual capacity, up to the sink's distance.
bool MaxFlow::find_levels() {
  for (const Node node : queue_) level_[at(node)] = -1;
  queue_.clear();
  const auto reach = [&](Node node, std::int32_t level) {
    level_[at(node)] = level;
    next_[at(node)] = begin_[at(node)];
    queue_.push_back(node);
  };
  reach(kSource, 0);
  for (std::size_t q = 0; q < queue_.size(); ++q) {
    const auto node = narrow<std::size_t>(queue_[q]);
    const std::int32_t level = level_[node] + 1;
    for (std::int32_t h = begin_[node]; h < begin_[node + 1]; ++h) {
      const Half& half = half_[at(h)];
      if (half.left == 0 || level_[at(half.to)] >= 0) continue;
      if (half.to == kSink) {
        for (; level_[at(queue_.back())] == level; queue_.pop_back()) level_[at(queue_.back())] = -1;
        reach(kSink, level);
        ticks_ += h - begin_[node];
        return true;
      }
      reach(half.to, level);
    }
    ticks_ += begin_[node + 1] - begin_[node];
  }
  return false;
}

/// A blocking flow over arcs to the next level.
MaxFlow::Amount MaxFlow::push_paths() {
  path_.clear();
  Amount total = 0;
  Node node = kSource;
  constexpr std::uint32_t kLook = 1 << 14;
  for (std::uint32_t round = 1; ticks_ < stop_at_; ++round) {
    if (round % kLook == 0 && stop_()) stop_at_ = ticks_;
    if (node == kSink) {
      Amount room = kUnlimited;
      for (const std::int32_t h : path_) room = std::min(room, half_[at(h)].left);
      total += room;
      std::size_t keep = path_.size();
      for (std::size_t i = path_.size(); i-- > 0;) {
        Half& half = half_[at(path_[i])];
        half.left -= room;
        half_[at(half.twin)].left += room;
        if (half.left == 0) keep = i;
      }
      ticks_ += std::ssize(path_);
      // Continues from the tail of the first saturated arc.
      node = half_[at(half_[at(path_[keep])].twin)].to;
      path_.resize(keep);
      continue;
    }
    const auto n = narrow<std::size_t>(node);
    std::int32_t& h = next_[n];
    while (h < begin_[n + 1]) {
      const Half& half = half_[at(h)];
      if (half.left > 0 && level_[at(half.to)] == level_[n] + 1) break;
      ++h;
      ++ticks_;
    }
    if (h < begin_[n + 1]) {
      path_.push_back(h);
      node = half_[at(h)].to;
    } else {
      if (path_.empty()) break;
      level_[n] = -1;  // a dead end
      node = half_[at(half_[at(path_.back())].twin)].to;
      path_.pop_back();
    }
    ++ticks_;
  }
  return total;
}

MaxFlow::Amount MaxFlow::solve(std::int64_t most_ticks) {
  if (!built_) build();
  stop_at_ = ticks_ + most_ticks;
  for (std::size_t a = 0; a < position_.size(); ++a) {
    Half& half = half_[at(position_[a])];
    half.left = capacity_[a];
    half_[at(half.twin)].left = 0;
  }
  Amount flow = 0;
  while (ticks_ < stop_at_ && !stop_()) {
    if (!find_levels()) {
      REMAT_ASSERT_HEAVY(is_maximum(flow), flow);
      return flow;
    }
    flow += push_paths();
  }
  return -1;
}

bool MaxFlow::is_maximum(Amount flow) const {
  std::vector<Wide> surplus(at(num_nodes_), 0);
  Wide cut = 0;
  for (Arc arc = 0; arc < narrow<Arc>(from_.size()); ++arc) {
    const Amount amount = this->flow(arc), capacity = capacity_[at(arc)];
    if (amount < 0 || amount > capacity) return false;
    surplus[at(from_[at(arc)])] -= amount;
    surplus[at(to_[at(arc)])] += amount;
    if (on_source_side(from_[at(arc)]) && !on_source_side(to_[at(arc)])) cut += capacity;
  }
  for (Node node = kSink + 1; node < num_nodes_; ++node) {
    if (surplus[at(node)] != 0) return false;
  }
  return surplus[kSink] == flow && surplus[kSource] == -Wide{flow} && cut == flow;
}

}  // namespace remat
