#include "layout/random_buffers.h"

#include <algorithm>
#include <vector>

namespace remat::testing {
namespace {

bool share_a_moment(const Buffer& a, const Buffer& b) { return a.first < b.end && b.first < a.end; }

/// Any layout in which nothing can be moved down arises when buffers are put down by rising offsets, each on
/// top of those that it shares a moment with.
class PackingOracle {
 public:
  explicit PackingOracle(const LayoutProblem& problem)
      : problem_(&problem), ends_(problem.buffers.size(), -1) {
    for (const Buffer& one : problem.buffers) {
      std::int64_t load = 0;
      for (const Buffer& other : problem.buffers) {
        if (other.first <= one.first && one.first < other.end) load += rounded(other.size.count());
      }
      load_ = std::max(load_, load);
    }
  }

  std::int64_t least() {
    extend(0, 0, 0);
    return best_;
  }

 private:
  void extend(std::int64_t height, std::int64_t lowest, std::size_t placed) {
    if (height >= best_ || best_ == load_) return;
    if (placed == ends_.size()) {
      best_ = height;
      return;
    }
    for (BufferId id : problem_->buffers.ids()) {
      std::int64_t& end = ends_[static_cast<std::size_t>(id.index())];
      if (end >= 0) continue;
      const std::int64_t offset = offset_on_top(id);
      if (offset < lowest) continue;
      end = offset + rounded(problem_->buffers[id].size.count());
      extend(std::max(height, end), offset, placed + 1);
      end = -1;
    }
  }
  std::int64_t offset_on_top(BufferId id) const {
    std::int64_t offset = 0;
    for (BufferId other : problem_->buffers.ids()) {
      const std::int64_t end = ends_[static_cast<std::size_t>(other.index())];
      if (end > offset && share_a_moment(problem_->buffers[id], problem_->buffers[other])) offset = end;
    }
    return offset;
  }
  std::int64_t rounded(std::int64_t size) const {
    return (size + problem_->alignment - 1) / problem_->alignment * problem_->alignment;
  }

  const LayoutProblem* problem_;
  std::vector<std::int64_t> ends_;  ///< -1: not placed yet
  std::int64_t load_ = 0;           ///< no layout is lower
  std::int64_t best_ = std::int64_t{1} << 40;
};

}  // namespace

LayoutProblem random_buffers(Random& random, int most) {
  LayoutProblem problem;
  problem.alignment = random.chance(0.7) ? 1 : random.between(2, 5);
  const std::int64_t count = random.between(1, most), moments = random.between(1, 7);
  const std::int64_t largest = random.between(1, 12);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t first = random.between(-1, moments - 2);
    problem.buffers.push_back({first, random.between(first + 1, moments), Bytes(random.between(0, largest))});
  }
  return problem;
}

Bytes oracle_arena(const LayoutProblem& problem) { return Bytes(PackingOracle(problem).least()); }

std::string fault_of(const LayoutProblem& problem, std::span<const Bytes> offsets, Bytes arena) {
  if (offsets.size() != problem.buffers.size()) return "not one offset for each buffer";
  for (BufferId a : problem.buffers.ids()) {
    const Bytes begin = offsets[static_cast<std::size_t>(a.index())];
    const Bytes end = begin + problem.buffers[a].size;
    if (begin < Bytes() || end > arena) return "outside the arena";
    if (begin.count() % problem.alignment != 0) return "not aligned";
    for (BufferId b : problem.buffers.ids()) {
      const Bytes other = offsets[static_cast<std::size_t>(b.index())];
      if (a != b && share_a_moment(problem.buffers[a], problem.buffers[b]) && begin < end &&
          other < other + problem.buffers[b].size && begin < other + problem.buffers[b].size && other < end) {
        return "buffers " + std::to_string(a.index()) + " and " + std::to_string(b.index()) + " overlap";
      }
    }
  }
  return "";
}

std::string table_of(const LayoutProblem& problem) {
  std::string text = "id,lower,upper,size\n";
  for (BufferId id : problem.buffers.ids()) {
    const Buffer& buffer = problem.buffers[id];
    text += std::to_string(id.index()) + "," + std::to_string(buffer.first) + "," +
            std::to_string(buffer.end) + "," + std::to_string(buffer.size.count()) + "\n";
  }
  return text;
}

}  // namespace remat::testing
