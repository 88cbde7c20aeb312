// The caching allocator of one device. The rules are those of c10/cuda/CUDACachingAllocator.cpp of PyTorch
// 2.13, as stated in docs/allocator.md; the data structure is our own: a map of blocks by address, in which
// neighbours within a segment are neighbours in the map.
#include <algorithm>
#include <iterator>

#include "allocator/rules.h"
#include "remat/allocator.h"
#include "remat/check.h"
#include "remat/error.h"

namespace remat {
namespace {

using namespace allocator;

constexpr Address kFirstAddress = Address{1} << 48;  // above those that devices have
constexpr Address kLastAddress = kMaxCount;
/// Address range of an expandable segment on an unlimited device.
constexpr Bytes kEndlessRange{Address{1} << 56};

Address end_of(Address begin, Bytes size) { return begin + size.count(); }

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorConfig& config, std::optional<Bytes> capacity)
    : config_(config), capacity_(capacity), next_(kFirstAddress) {
  if (capacity && (*capacity <= Bytes() || capacity->count() >= kMaxCount)) {
    throw UsageError("capacity " + std::to_string(capacity->count()) + " is outside [1, 2^62)");
  }
}

std::optional<Address> CachingAllocator::allocate(Bytes size, std::int64_t stream,
                                                  std::optional<Address> segment) {
  if (size < Bytes() || size.count() >= kMaxCount) {
    throw UsageError("size " + std::to_string(size.count()) + " is outside [0, 2^62)");
  }
  if (size == Bytes()) return 0;
  const Bytes rounded = rounded_request(config_, size);
  const Request request{size, rounded, stream, rounded <= kMostSmall, segment};
  std::optional<At> block = take_cached(request);
  if (!block) block = take_new(request);
  if (!block && release_oversize(request)) block = take_new(request);
  if (!block) {
    empty_cache();
    ++stats_.retries;
    block = take_new(request);
  }
  if (!block) {
    ++stats_.failures;
    return std::nullopt;
  }
  hand_out(*block, request);
  REMAT_ASSERT_HEAVY(is_sound(), blocks_.size(), size);
  return (*block)->first;
}

void CachingAllocator::free(Address address) {
  if (address == 0) return;
  At block = used_block(address);
  block->second.is_used = false;
  stats_.requested -= block->second.requested;
  stats_.allocated -= block->second.size;
  --stats_.allocations;
  if (config_.exact) {
    end_segment(block);
  } else {
    insert_free(merge(block));
  }
  REMAT_ASSERT_HEAVY(is_sound(), blocks_.size(), address);
}

/// The invariants: blocks fill their segments, unused neighbours that can be merged are merged, each unused
/// block is in the pool of its size class, and the statistics are sums over the blocks.
bool CachingAllocator::is_sound() const {
  Bytes reserved, allocated, requested;
  std::size_t unused = 0;
  for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
    const auto& [address, block] = *at;
    const auto segment = segments_.find(block.segment);
    if (segment == segments_.end() || block.size <= Bytes()) return false;
    if (block.is_mapped) reserved += block.size;
    if (block.is_used) {
      if (!block.is_mapped) return false;
      allocated += block.size;
      requested += block.requested;
    } else {
      const Pool& pool = segment->second.is_small ? small_ : large_;
      const std::int64_t stream = segment->second.stream;
      ++unused;
      if (block.is_mapped ? !pool.free.contains({stream, block.size, address})
                          : !pool.unmapped.contains({stream, address}))
        return false;
    }
    const auto next = std::next(at);
    if (next == blocks_.end() || next->second.segment != block.segment) continue;
    if (end_of(address, block.size) != next->first) return false;
    const bool are_alike = block.is_used == next->second.is_used && block.is_mapped == next->second.is_mapped;
    if (!block.is_used && are_alike) return false;
  }
  const std::size_t pooled =
      small_.free.size() + large_.free.size() + small_.unmapped.size() + large_.unmapped.size();
  return pooled == unused && reserved == stats_.reserved && allocated == stats_.allocated &&
         requested == stats_.requested && (!capacity_ || reserved <= *capacity_);
}

void CachingAllocator::empty_cache() {
  release_pool(false);
  release_pool(true);
}

void CachingAllocator::reset_peaks() {
  stats_.requested_peak = stats_.requested;
  stats_.allocated_peak = stats_.allocated;
  stats_.reserved_peak = stats_.reserved;
}

AllocatorBlock CachingAllocator::block_at(Address address) const {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || !found->second.is_used) {
    throw UsageError("no block in use begins at address " + std::to_string(address));
  }
  return described(found->first, found->second);
}

std::vector<AllocatorBlock> CachingAllocator::blocks() const {
  std::vector<AllocatorBlock> all;
  for (const auto& [address, block] : blocks_) all.push_back(described(address, block));
  return all;
}

AllocatorBlock CachingAllocator::described(Address address, const Block& block) const {
  const std::int64_t stream = segments_.find(block.segment)->second.stream;
  return {address, block.segment, block.size, stream, block.is_used, block.is_mapped};
}

CachingAllocator::At CachingAllocator::used_block(Address address) {
  block_at(address);
  return blocks_.find(address);
}

/// Memory of an expandable segment is mapped in multiples of it.
Bytes CachingAllocator::page(bool is_small) const { return is_small ? kSmallSegment : config_.large_segment; }

std::optional<CachingAllocator::At> CachingAllocator::before(At block) {
  if (block->first == block->second.segment) return std::nullopt;
  return std::prev(block);
}

std::optional<CachingAllocator::At> CachingAllocator::after(At block) {
  const At next = std::next(block);
  if (next == blocks_.end() || next->second.segment != block->second.segment) return std::nullopt;
  return next;
}

bool CachingAllocator::has_room(Bytes more) const {
  return !capacity_ || more <= *capacity_ - stats_.reserved;
}

/// Segments begin at multiples of 2 MiB, or at `wanted` if that is free.
std::optional<Address> CachingAllocator::new_addresses(Bytes size, std::optional<Address> wanted) {
  if (wanted && *wanted > 0 && *wanted < kFirstAddress - size.count()) {
    const auto next = blocks_.lower_bound(*wanted);
    const bool ends_before = next == blocks_.end() || end_of(*wanted, size) <= next->first;
    const bool begins_behind =
        next == blocks_.begin() || end_of(std::prev(next)->first, std::prev(next)->second.size) <= *wanted;
    if (ends_before && begins_behind) return wanted;
  }
  const Bytes room = round_up(size, kSmallSegment);
  if (room.count() > kLastAddress - next_) return std::nullopt;
  const Address begin = next_;
  next_ += room.count();
  return begin;
}

CachingAllocator::At CachingAllocator::begin_segment(Address address, Bytes size, const Request& request,
                                                     bool is_mapped) {
  segments_[address] = {address, request.stream, request.is_small};
  ++stats_.segments;
  if (is_mapped) count_reserved(size);
  return blocks_.insert({address, {size, Bytes(), address, false, is_mapped}}).first;
}

/// The block must be the whole segment, and in no pool.
void CachingAllocator::end_segment(At block) {
  if (block->second.is_mapped) stats_.reserved -= block->second.size;
  segments_.erase(block->second.segment);
  --stats_.segments;
  blocks_.erase(block);
}

void CachingAllocator::count_reserved(Bytes more) {
  stats_.reserved += more;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
}

void CachingAllocator::insert_free(At block) {
  const Segment& segment = segment_of(block);
  Pool& of = pool(segment.is_small);
  if (block->second.is_mapped) {
    of.free.insert({segment.stream, block->second.size, block->first});
  } else {
    of.unmapped.insert({segment.stream, block->first});
  }
}

void CachingAllocator::erase_free(At block) {
  const Segment& segment = segment_of(block);
  Pool& of = pool(segment.is_small);
  of.free.erase({segment.stream, block->second.size, block->first});
  of.unmapped.erase({segment.stream, block->first});
}

/// Merges this block, which is in no pool, with its unused neighbours of the same mapping.
CachingAllocator::At CachingAllocator::merge(At block) {
  const auto joins = [&](std::optional<At> other) {
    return other && !(*other)->second.is_used && (*other)->second.is_mapped == block->second.is_mapped;
  };
  const auto absorb = [&](At into, At gone) {
    into->second.size += gone->second.size;
    blocks_.erase(gone);
  };
  if (const auto next = after(block); joins(next)) {
    erase_free(*next);
    absorb(block, *next);
  }
  if (const auto previous = before(block); joins(previous)) {
    erase_free(*previous);
    absorb(*previous, block);
    block = *previous;
  }
  return block;
}

/// The smallest block that is large enough, at the lowest address.
std::optional<CachingAllocator::At> CachingAllocator::take_cached(const Request& request) {
  if (config_.exact) return std::nullopt;
  auto& free = pool(request.is_small).free;
  const auto is_of_stream = [&](auto entry) {
    return entry != free.end() && std::get<0>(*entry) == request.stream;
  };
  auto found = free.lower_bound({request.stream, request.size, 0});
  if (!is_of_stream(found)) return std::nullopt;
  if (config_.expandable_segments) {
    // A block followed by unmapped addresses counts with the size it can grow to, so larger blocks that
    // cannot grow are taken first.
    const auto may_become = [&](auto entry) {
      const At block = blocks_.find(std::get<2>(*entry));
      const auto next = after(block);
      return block->second.size + (next && !(*next)->second.is_mapped ? (*next)->second.size : Bytes());
    };
    for (auto next = std::next(found); is_of_stream(next) && may_become(next) < may_become(found); ++next) {
      found = next;
    }
  }
  const Bytes size = std::get<1>(*found);
  if (config_.max_split) {
    const bool is_oversize = request.size >= *config_.max_split;
    if (!is_oversize && size >= *config_.max_split) return std::nullopt;
    if (is_oversize && size - request.size >= config_.max_non_split_rounding) return std::nullopt;
  }
  const At block = blocks_.find(std::get<2>(*found));
  free.erase(found);
  return block;
}

std::optional<CachingAllocator::At> CachingAllocator::take_new(const Request& request) {
  return config_.expandable_segments ? take_new_pages(request) : take_new_segment(request);
}

std::optional<CachingAllocator::At> CachingAllocator::take_new_segment(const Request& request) {
  const Bytes size = config_.exact                ? request.size
                     : request.is_small           ? kSmallSegment
                     : request.size < kLeastLarge ? config_.large_segment
                                                  : round_up(request.size, kLargeMultiple);
  if (!has_room(size)) return std::nullopt;
  const auto address = new_addresses(size, request.segment);
  if (!address) return std::nullopt;
  return begin_segment(*address, size, request, true);
}

/// Grows the lowest suitable range of addresses. Pages mapped before room ran out stay in the cache.
std::optional<CachingAllocator::At> CachingAllocator::take_new_pages(const Request& request) {
  auto block = find_range(request);
  if (!block) return std::nullopt;
  if (!(*block)->second.is_mapped) block = map(*block, std::min((*block)->second.size, request.size));
  while (block && (*block)->second.size < request.size) {
    const At next = *after(*block);
    block = map(next, std::min(next->second.size, request.size - (*block)->second.size));
  }
  if (block) erase_free(*block);
  return block;
}

/// The first unused addresses that suffice, mapped or not: an unmapped block, or the unused block before it.
std::optional<CachingAllocator::At> CachingAllocator::find_range(const Request& request) {
  const auto& unmapped = pool(request.is_small).unmapped;
  for (auto entry = unmapped.lower_bound({request.stream, 0});
       entry != unmapped.end() && entry->first == request.stream; ++entry) {
    At begin = blocks_.find(entry->second);
    if (const auto previous = before(begin); previous && !(*previous)->second.is_used) begin = *previous;
    Bytes room;
    for (std::optional<At> at = begin; at && !(*at)->second.is_used && room < request.size; at = after(*at)) {
      room += (*at)->second.size;
    }
    if (room >= request.size) return begin;
  }
  // Addresses for 9/8 of the device's memory, none of them mapped yet.
  const Bytes range = capacity_ ? *capacity_ + Bytes(capacity_->count() / 8) : kEndlessRange;
  const Bytes size = round_up(range, page(request.is_small));
  if (size < request.size) return std::nullopt;
  const auto address = new_addresses(size, std::nullopt);
  if (!address) return std::nullopt;
  const At block = begin_segment(*address, size, request, false);
  insert_free(block);
  return block;
}

/// Maps the first `size` bytes of an unmapped block; returns the block merged with its mapped neighbours.
/// Unmapped blocks begin and end at page boundaries.
std::optional<CachingAllocator::At> CachingAllocator::map(At block, Bytes size) {
  const Segment& segment = segment_of(block);
  const Bytes mapped = round_up(size, page(segment.is_small));
  if (!has_room(mapped)) return std::nullopt;
  erase_free(block);
  const Bytes rest = block->second.size - mapped;
  if (rest > Bytes()) {
    insert_free(
        blocks_.insert({end_of(block->first, mapped), {rest, Bytes(), segment.begin, false, false}}).first);
  }
  block->second.size = mapped;
  block->second.is_mapped = true;
  block = merge(block);
  insert_free(block);
  count_reserved(mapped);
  return block;
}

/// Unmaps the pages that lie completely within an unused block.
void CachingAllocator::unmap(At block) {
  const Segment segment = segment_of(block);
  const Bytes whole = page(segment.is_small);
  const Address begin = end_of(segment.begin, round_up(Bytes(block->first - segment.begin), whole));
  const Address end = end_of(block->first, block->second.size);
  const Address stop = end - (end - segment.begin) % whole.count();
  if (begin >= stop) return;
  erase_free(block);
  const auto put = [&](Address from, Address to, bool is_mapped) {
    return blocks_.insert({from, {Bytes(to - from), Bytes(), segment.begin, false, is_mapped}}).first;
  };
  const Address first = block->first;
  blocks_.erase(block);
  if (first < begin) insert_free(put(first, begin, true));
  if (stop < end) insert_free(put(stop, end, true));
  block = merge(put(begin, stop, false));
  stats_.reserved -= Bytes(stop - begin);
  if (before(block) || after(block)) {
    insert_free(block);
  } else {
    end_segment(block);
  }
}

/// Returns unused blocks that are never split to the device: one that would suffice, or the largest ones
/// until their sum does. False if that is not enough.
bool CachingAllocator::release_oversize(const Request& request) {
  if (!config_.max_split || config_.expandable_segments || config_.exact) return false;
  auto& free = pool(request.is_small).free;
  const Bytes wanted = std::max(request.size, *config_.max_split);
  const auto release = [&](auto entry) {
    const At block = blocks_.find(std::get<2>(*entry));
    // Only smaller blocks are split.
    REMAT_ASSERT(!before(block) && !after(block), block->first, block->second.size);
    free.erase(entry);
    end_segment(block);
  };
  auto found = free.lower_bound({request.stream, wanted, 0});
  if (found != free.end() && std::get<0>(*found) == request.stream) {
    release(found);
    return true;
  }
  Bytes released;
  while (released < wanted && found != free.begin()) {
    const auto largest = std::prev(found);
    const auto [stream, size, address] = *largest;
    if (stream != request.stream || size < *config_.max_split) break;
    released += size;
    release(largest);
    found = free.lower_bound({request.stream, wanted, 0});
  }
  return released >= wanted;
}

void CachingAllocator::release_pool(bool is_small) {
  auto& free = pool(is_small).free;
  std::vector<Address> unused;
  for (const auto& entry : free) unused.push_back(std::get<2>(entry));
  for (const Address address : unused) {
    const At block = blocks_.find(address);
    if (config_.expandable_segments) {
      unmap(block);
    } else if (!before(block) && !after(block)) {
      erase_free(block);
      end_segment(block);
    }
  }
}

/// The block must be in no pool. Its rest returns to the pool if the rules allow the split.
void CachingAllocator::hand_out(At block, const Request& request) {
  const Bytes rest = block->second.size - request.size;
  const bool splits_finely = request.is_small || config_.expandable_segments;
  const bool may_split = splits_finely || !config_.max_split || request.size < *config_.max_split;
  if (!config_.exact && may_split && (splits_finely ? rest >= kBlock : rest > kMostSmall)) {
    block->second.size = request.size;
    insert_free(
        blocks_
            .insert({end_of(block->first, request.size), {rest, Bytes(), block->second.segment, false, true}})
            .first);
  }
  block->second.is_used = true;
  block->second.requested = request.asked;
  ++stats_.allocations;
  stats_.requested += request.asked;
  stats_.allocated += block->second.size;
  stats_.requested_peak = std::max(stats_.requested_peak, stats_.requested);
  stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
}

}  // namespace remat
