#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "decomposition/tree_decomposition.h"

namespace remat::decomposition {
namespace {

/// Cuts the tree of bags again and again at a bag that leaves parts of at most half (Jordan's theorem).
class Separator {
 public:
  Separator(const TreeDecomposition& decomposition, const std::vector<std::int64_t>& weight)
      : bags_(decomposition.bags),
        weight_(weight),
        next_(bags_.size()),
        removed_(bags_.size(), false),
        size_(bags_.size(), 0),
        parent_(bags_.size(), -1) {
    for (const auto& [a, b] : decomposition.edges) {
      next_[at(a)].push_back(b);
      next_[at(b)].push_back(a);
    }
    result_.owner.assign(weight.size(), -1);
  }

  SeparatorTree build() && {
    struct Part {
      std::int32_t start, parent;
    };
    // Depth first, so that nodes come in preorder; children are pushed in reverse.
    std::vector<Part> open;
    if (!bags_.empty()) open.push_back({0, -1});
    while (!open.empty()) {
      const Part part = open.back();
      open.pop_back();
      collect(part.start);
      const std::int32_t bag = balanced_bag();
      const auto node = narrow<std::int32_t>(result_.nodes.size());
      result_.nodes.emplace_back();
      result_.nodes.back().bags = narrow<std::int32_t>(part_.size());
      if (part.parent >= 0) result_.nodes[at(part.parent)].children.push_back(node);
      parents_.push_back(part.parent);
      for (Vertex v : bags_[at(bag)]) {
        if (result_.owner[at(v)] >= 0) continue;
        result_.owner[at(v)] = node;
        result_.nodes.back().own.push_back(v);
      }
      removed_[at(bag)] = true;
      for (auto n = next_[at(bag)].rbegin(); n != next_[at(bag)].rend(); ++n) {
        if (!removed_[at(*n)]) open.push_back({*n, node});
      }
    }
    for (auto node = narrow<std::int32_t>(result_.nodes.size()) - 1; node >= 0; --node) {
      auto& end = result_.nodes[at(node)].end;
      end = std::max(end, node + 1);
      if (parents_[at(node)] >= 0) {
        auto& above = result_.nodes[at(parents_[at(node)])].end;
        above = std::max(above, end);
      }
    }
    return std::move(result_);
  }

 private:
  /// The bags of the part around `start`, parents before children, with the sizes of their subtrees.
  void collect(std::int32_t start) {
    part_.assign(1, start);
    parent_[at(start)] = -1;
    for (std::size_t i = 0; i < part_.size(); ++i) {
      const std::int32_t bag = part_[i];
      size_[at(bag)] = 1;
      for (std::int32_t n : next_[at(bag)]) {
        if (removed_[at(n)] || n == parent_[at(bag)]) continue;
        parent_[at(n)] = bag;
        part_.push_back(n);
      }
    }
    for (auto bag = part_.rbegin(); bag != part_.rend(); ++bag) {
      if (parent_[at(*bag)] >= 0) size_[at(parent_[at(*bag)])] += size_[at(*bag)];
    }
  }

  /// Bytes of the vertices that removing the bag would hold.
  std::int64_t held(std::int32_t bag) const {
    std::int64_t sum = 0;
    for (Vertex v : bags_[at(bag)]) {
      if (result_.owner[at(v)] < 0) sum += weight_[at(v)];
    }
    return sum;
  }

  std::int32_t balanced_bag() const {
    const auto total = narrow<std::int32_t>(part_.size());
    std::int32_t best = -1;
    std::int64_t best_held = 0;
    for (std::int32_t bag : part_) {
      std::int32_t largest = total - size_[at(bag)];
      for (std::int32_t n : next_[at(bag)]) {
        if (!removed_[at(n)] && n != parent_[at(bag)]) largest = std::max(largest, size_[at(n)]);
      }
      if (2 * largest > total) continue;
      const std::int64_t weight = held(bag);
      if (best < 0 || std::tuple(weight, bag) < std::tuple(best_held, best)) {
        best = bag;
        best_held = weight;
      }
    }
    return best;
  }

  const std::vector<Bag>& bags_;
  const std::vector<std::int64_t>& weight_;
  std::vector<std::vector<std::int32_t>> next_;
  std::vector<bool> removed_;
  std::vector<std::int32_t> size_, parent_, part_;
  std::vector<std::int32_t> parents_;
  SeparatorTree result_;
};

}  // namespace

SeparatorTree separator_tree(const TreeDecomposition& decomposition,
                             const std::vector<std::int64_t>& weight) {
  return Separator(decomposition, weight).build();
}

}  // namespace remat::decomposition
