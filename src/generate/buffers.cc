#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "generate/checks.h"
#include "remat/generate.h"
#include "remat/random.h"

namespace remat {
namespace {

using generate::kMaxOps;
using generate::require_between;

constexpr std::int64_t kGrain = 64;  ///< sizes are multiples of it
constexpr int kSpread = 10;          ///< sizes of a phase are within 2^kSpread of each other

/// A phase of the table.
struct TablePhase {
  std::int64_t first = 0, end = 0;
  std::int64_t starts = 1;  ///< buffers that begin at a step, in relation to other phases
  int most_bits = 1;        ///< sizes are below kGrain * 2^most_bits
};

void check(const RandomBuffersOptions& o) {
  require_between<std::int64_t>("count", o.count, 1, kMaxOps);
  require_between<std::int64_t>("phases", o.phases, 1, o.count);
  require_between<std::int64_t>("life", o.life, 1, kMaxOps);
  require_between("long share", o.long_share, 0.0, 1.0);
  require_between<std::int64_t>("max bytes", o.max_bytes, kGrain, std::int64_t{1} << 40);
}

std::vector<TablePhase> draw_phases(const RandomBuffersOptions& o, Random& random) {
  constexpr std::int64_t kMostStarts = 3, kMostHalvings = 4;
  const auto bits = narrow<int>(std::bit_width(narrow<std::uint64_t>(o.max_bytes / kGrain))) - 1;
  std::vector<TablePhase> phases;
  for (std::int64_t p = 0; p < o.phases; ++p) {
    TablePhase phase;
    phase.first = p * o.count / o.phases;
    phase.end = (p + 1) * o.count / o.phases;
    phase.starts = random.between(1, kMostStarts);
    phase.most_bits = std::max(0, bits - narrow<int>(random.below(kMostHalvings)));
    phases.push_back(phase);
  }
  return phases;
}

/// Each power of two as likely as the next, and uniform between them: no logarithm, whose last digit differs
/// between machines.
Bytes draw_size(const TablePhase& phase, Random& random) {
  const std::int64_t low = std::int64_t{1} << random.between(std::max(0, phase.most_bits - kSpread),
                                                             std::max(0, phase.most_bits - 1));
  return Bytes(kGrain * random.between(low, 2 * low - 1));
}

}  // namespace

IndexVector<BufferId, Buffer> random_buffers(const RandomBuffersOptions& o) {
  check(o);
  Random random(o.seed);
  const std::vector<TablePhase> phases = draw_phases(o, random);
  std::vector<const TablePhase*> drawn;  // as often as buffers begin in it
  for (const TablePhase& phase : phases) drawn.insert(drawn.end(), at(phase.starts), &phase);
  const std::int64_t least_long = o.count / o.phases;
  std::vector<Buffer> buffers;
  for (std::int64_t k = 0; k < o.count; ++k) {
    const TablePhase& phase = *drawn[at(random.below(std::ssize(drawn)))];
    Buffer buffer;
    if (random.chance(o.long_share)) {
      buffer.first = random.between(0, o.count - least_long);
      buffer.end = random.between(buffer.first + least_long, o.count);
    } else {
      buffer.first = random.between(phase.first, phase.end - 1);
      buffer.end = std::min(buffer.first + random.between(1, 2 * o.life - 1), phase.end);
    }
    buffer.size = draw_size(phase, random);
    buffers.push_back(buffer);
  }
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const Buffer& a, const Buffer& b) { return a.first < b.first; });
  return IndexVector<BufferId, Buffer>(std::move(buffers));
}

}  // namespace remat
