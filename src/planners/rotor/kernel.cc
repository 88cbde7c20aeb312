#include "planners/rotor/kernel.h"

#include "base/vector_clones.h"

namespace remat::rotor {
namespace {

using Row = Cell __attribute__((vector_size(sizeof(Line)), may_alias));

REMAT_VECTOR
void fold_here(Line& best, const Line* right, std::int64_t stride, const Line* left, std::int64_t count) {
  Row least = *reinterpret_cast<const Row*>(&best);
  for (std::int64_t k = 0; k < count; ++k) {
    const Row sum =
        *reinterpret_cast<const Row*>(right + k * stride) + *reinterpret_cast<const Row*>(left + k);
    least = sum < least ? sum : least;
  }
  *reinterpret_cast<Row*>(&best) = least;
}

// On machines with 32 vector registers, sixteen minima stay in registers, for eight loads per round.
REMAT_VECTOR
void fold_tile_here(Line* const* best, const Line* right, std::int64_t stride, const Line* const* left,
                    std::int64_t count) {
  Row least[kTile][kTile];
  for (int i = 0; i < kTile; ++i) {
    for (int j = 0; j < kTile; ++j) least[i][j] = *reinterpret_cast<const Row*>(best[kTile * i + j]);
  }
  for (std::int64_t k = 0; k < count; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < kTile; ++i) {
      const Row one = *reinterpret_cast<const Row*>(left[i] + k);
#pragma GCC unroll 4
      for (int j = 0; j < kTile; ++j) {
        const Row sum = *reinterpret_cast<const Row*>(right + k * stride + j) + one;
        least[i][j] = sum < least[i][j] ? sum : least[i][j];
      }
    }
  }
  for (int i = 0; i < kTile; ++i) {
    for (int j = 0; j < kTile; ++j) *reinterpret_cast<Row*>(best[kTile * i + j]) = least[i][j];
  }
}

}  // namespace

void fold(Line& best, const Line* right, std::int64_t stride, const Line* left, std::int64_t count) {
  fold_here(best, right, stride, left, count);
}

void fold_tile(Line* const* best, const Line* right, std::int64_t stride, const Line* const* left,
               std::int64_t count) {
  fold_tile_here(best, right, stride, left, count);
}

}  // namespace remat::rotor
