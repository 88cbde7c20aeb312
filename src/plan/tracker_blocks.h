// The sequence of steps with the memory of each, in blocks, so that edits and range sums cost less than a
// pass over the sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "remat/check.h"
#include "remat/ids.h"
#include "remat/quantity.h"
#include "remat/random.h"

namespace remat {

/// One occurrence of an op in a sequence. The id stays with it while steps around it come and go.
using OccId = Id<struct OccTag>;

/// Steps lie in blocks of up to kCapacity. An insertion or removal moves the steps behind it inside one
/// block; a full block is split, sparse neighbours are merged by `tidy`. A block carries an amount to be
/// added to all its cells, and bounds on its smallest and largest memory, so a range of steps costs one
/// look per block wherever it stays within (or over) the budget, and kCapacity steps of vector code where
/// it does not. Tried before: one flat array (shifting dominates above some thousand steps) and a segment
/// tree (twice as slow below).
///
///   rank      0                 1             2
///   block   [ a b c . . . . ] [ d e . . . ] [ f g h i . ]      key = rank * kCapacity + index
///   cells     3 5 4             9 8           7 2 2 1          memory = cell + added[rank]
///
/// Memory is in units, in 32 bits if the owner asks for it (`narrow`): a range sum that could exceed 31 bits
/// is then kNever, which no caller accepts. In 64 bits memory is below 2^62, and a block's added amount may
/// wrap around: cell + added is still right.
class StepBlocks {
 public:
  static constexpr std::int32_t kCapacity = 64;
  /// Far more than the excess of any sequence.
  static constexpr Wide kNever = Wide{1} << 100;
  using Key = std::int32_t;  ///< grows along the sequence; changes when blocks do

  /// Occurrences 0, 1, ... in this order.
  void assign(std::span<const std::int64_t> memory, bool in_32_bits, std::int64_t budget);
  /// Room for occurrence ids below `count`.
  void reserve_ids(std::size_t count) { slot_.resize(std::max(slot_.size(), count), kNowhere); }

  Key key(OccId occ) const {
    REMAT_ASSERT(contains(occ), occ);
    const std::uint32_t slot = slot_[occ];
    return rank_[slot / kCapacity] * kCapacity + static_cast<Key>(slot % kCapacity);
  }
  bool contains(OccId occ) const { return slot_[occ] != kNowhere; }
  OccId next(OccId occ) const;
  OccId prev(OccId occ) const;
  /// The step at or after a key that may lie in the unused part of a block; the last step at the end.
  OccId at_or_after(Key key) const;
  OccId front() const { return at_or_after(0); }
  std::int64_t memory(OccId occ) const;
  std::int64_t size() const { return size_; }
  OccId random(Random& random) const;
  std::size_t num_blocks() const { return ids_.size(); }
  /// True where the block of that rank may hold a step over the budget.
  bool may_exceed(std::size_t rank) const { return max_[rank] > budget_; }
  /// A random step of the block of that rank whose memory is over the budget, or none.
  OccId random_over(std::size_t rank, Random& random) const;

  void insert_before(OccId occ, OccId next, std::int64_t memory);
  /// Returns the memory that the step had.
  std::int64_t erase(OccId occ);
  /// Merges or drops sparse blocks around the block of this rank.
  void tidy(std::size_t rank);
  std::size_t rank_of(OccId occ) const { return narrow<std::size_t>(rank_[slot_[occ] / kCapacity]); }

  /// Memory over the budget of one step.
  std::int64_t excess(std::int64_t memory) const { return memory > budget_ ? memory - budget_ : 0; }
  /// Change of the sum of excess if `delta` were added to the steps with lo < key <= hi.
  Wide excess_change(Key lo, Key hi, std::int64_t delta) const;
  void add(Key lo, Key hi, std::int64_t delta);
  Wide total_excess() const;
  std::int64_t peak() const;
  std::int64_t budget() const { return budget_; }
  void set_budget(std::int64_t budget) { budget_ = budget; }
  /// Most units that a step may have.
  std::int64_t ceiling() const;

  /// Bounds contain the cells, ranks and slots agree, no block overflows: for verify().
  bool consistent() const;

 private:
  static constexpr std::uint32_t kNowhere = 0xffffffffU;

  std::int64_t load(std::size_t rank, std::int32_t index) const;
  void store(std::size_t rank, std::int32_t index, std::int64_t memory);
  void move_cells(std::size_t from_block, std::int32_t from, std::size_t to_block, std::int32_t to,
                  std::int32_t count);
  std::size_t new_block();
  void split(std::size_t rank);
  void merge_into(std::size_t rank, std::size_t next_rank);
  void drop(std::size_t rank);
  void renumber(std::size_t from_rank);
  void refresh_bounds(std::size_t rank);
  Wide scan(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta) const;
  Wide scan_huge(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta) const;
  void add_part(std::size_t rank, std::int32_t from, std::int32_t to, std::int64_t delta);

  bool narrow_ = false;
  std::int64_t budget_ = 0;
  std::int64_t size_ = 0;
  IndexVector<OccId, std::uint32_t> slot_;  ///< block * kCapacity + index
  // By block.
  std::vector<std::int32_t> rank_;
  std::vector<OccId> occ_;             ///< kCapacity per block
  std::vector<std::int32_t> cells32_;  ///< kCapacity per block, one of the two is used
  std::vector<std::int64_t> cells64_;
  std::vector<std::size_t> unused_;
  // By rank.
  std::vector<std::size_t> ids_;
  std::vector<std::int32_t> count_;
  std::vector<std::int64_t> max_, min_, added_;
};

}  // namespace remat
