// The caching allocator of PyTorch's CUDA devices, simulated: what a program's requests take from a device.
// docs/allocator.md has the rules, the sources they were read from, and what is left out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/export.h"
#include "remat/graph.h"
#include "remat/plan.h"
#include "remat/quantity.h"

namespace REMAT_API remat {

/// An allocator and its settings, those of PYTORCH_CUDA_ALLOC_CONF that decide about bytes.
struct AllocatorConfig {
  bool exact = false;  ///< no blocks and no cache: a request takes its bytes, and gives them back
  bool expandable_segments = false;
  Bytes large_segment{20 << 20};           ///< what requests above 1 MiB and below 10 MiB share
  std::optional<Bytes> max_split;          ///< blocks of so many bytes are not split; none: all are
  Bytes max_non_split_rounding{20 << 20};  ///< what such a block may have too much, exclusive
  /// Sizes from 2^k MiB (k = 0: from 0) to below 2^(k+1) MiB (15: without end) are rounded up to one of so
  /// many steps between powers of two; 0 and 1: to blocks.
  std::array<std::int64_t, 16> power2_divisions{};
  friend bool operator==(const AllocatorConfig&, const AllocatorConfig&) = default;
};

/// "cuda", "cuda-expandable" or "exact"; the first two may go on as PYTORCH_CUDA_ALLOC_CONF does:
/// "cuda:max_split_size_mb:200,roundup_power2_divisions:[256:1,512:2,>:4]". What does not decide about bytes
/// on the device (pinned memory, locks) is read over. Throws UsageError, one line.
AllocatorConfig parse_allocator(std::string_view text);
/// What `parse_allocator` reads again.
std::string to_string(const AllocatorConfig& config);

/// The bytes of the block that a request is rounded up to; none for none. A block may be larger where what
/// is left over is too little to be split off.
Bytes rounded_request(const AllocatorConfig& config, Bytes request);

/// A place on a simulated device. None is at 0.
using Address = std::int64_t;

/// Bytes now and at most since the begin or `reset_peaks`, and counts.
struct AllocatorStats {
  Bytes requested, requested_peak;  ///< as asked
  Bytes allocated, allocated_peak;  ///< in blocks that are in use
  Bytes reserved, reserved_peak;    ///< of the device: segments, or mapped pages of expandable ones
  std::int64_t allocations = 0;     ///< blocks in use
  std::int64_t segments = 0;        ///< held now; an expandable one counts once, whatever it has mapped
  std::int64_t retries = 0;         ///< how often all cached memory was given back to make room
  std::int64_t failures = 0;        ///< requests that had no room even so
  friend bool operator==(const AllocatorStats&, const AllocatorStats&) = default;
};

/// A block of a segment, in use or not.
struct AllocatorBlock {
  Address address = 0, segment = 0;  ///< of the block, and where its segment begins
  Bytes size;
  std::int64_t stream = 0;
  bool is_used = false, is_mapped = true;
  friend bool operator==(const AllocatorBlock&, const AllocatorBlock&) = default;
};

/// One device's allocator. Deterministic: segments get ascending addresses, none twice. Blocks go back to the
/// cache at once: the end of work on other streams is not waited for. O(log n) a call, n blocks.
class CachingAllocator {
 public:
  /// Capacity: what the device holds; without one every request finds room. Throws UsageError where it is
  /// below 1.
  explicit CachingAllocator(const AllocatorConfig& config = {}, std::optional<Bytes> capacity = std::nullopt);

  /// Where the block is, or nothing where there is no room even with all cached memory given back. No bytes
  /// are at 0 and take nothing. Where a segment is new and not expandable it begins at `segment`, if that is
  /// given and free: addresses decide between blocks of equal size. Throws UsageError for a size outside
  /// [0, 2^62).
  std::optional<Address> allocate(Bytes size, std::int64_t stream = 0,
                                  std::optional<Address> segment = std::nullopt);
  /// Gives a block back to the cache; 0 is nothing. Throws UsageError where no block in use begins there.
  void free(Address address);
  /// Gives the device back what no block in use shares a segment (or a mapped page) with.
  void empty_cache();
  /// Peaks from here on.
  void reset_peaks();

  /// The block in use that begins there. Throws UsageError as `free` does.
  AllocatorBlock block_at(Address address) const;
  /// All blocks by address.
  std::vector<AllocatorBlock> blocks() const;

  const AllocatorStats& stats() const { return stats_; }
  const AllocatorConfig& config() const { return config_; }
  std::optional<Bytes> capacity() const { return capacity_; }

 private:
  /// Requests of one size class (up to 1 MiB, above) take blocks only from segments of that class.
  struct Segment {
    Address begin = 0;
    std::int64_t stream = 0;
    bool is_small = false;
  };
  struct Block {
    Bytes size, requested;
    Address segment = 0;
    bool is_used = false, is_mapped = true;
  };
  /// Blocks of a segment are back to back: neighbours in this map.
  using Blocks = std::map<Address, Block>;
  using At = Blocks::iterator;
  struct Pool {
    std::set<std::tuple<std::int64_t, Bytes, Address>> free;  ///< stream, size, address
    std::set<std::pair<std::int64_t, Address>> unmapped;      ///< of expandable segments
  };
  struct Request {
    Bytes asked, size;
    std::int64_t stream;
    bool is_small;
    std::optional<Address> segment;
  };

  Pool& pool(bool is_small) { return is_small ? small_ : large_; }
  Bytes page(bool is_small) const;
  const Segment& segment_of(At block) const { return segments_.find(block->second.segment)->second; }
  std::optional<At> before(At block);
  std::optional<At> after(At block);
  bool has_room(Bytes more) const;
  std::optional<Address> new_addresses(Bytes size, std::optional<Address> wanted);
  At begin_segment(Address address, Bytes size, const Request& request, bool is_mapped);
  void end_segment(At block);

  void insert_free(At block);
  void erase_free(At block);
  At merge(At block);
  std::optional<At> take_cached(const Request& request);
  std::optional<At> take_new(const Request& request);
  std::optional<At> take_new_segment(const Request& request);
  std::optional<At> take_new_pages(const Request& request);
  std::optional<At> find_range(const Request& request);
  std::optional<At> map(At block, Bytes size);
  void unmap(At block);
  bool release_oversize(const Request& request);
  void release_pool(bool is_small);
  void hand_out(At block, const Request& request);
  At used_block(Address address);
  AllocatorBlock described(Address address, const Block& block) const;
  void count_reserved(Bytes more);
  bool is_sound() const;

  AllocatorConfig config_;
  std::optional<Bytes> capacity_;
  AllocatorStats stats_;
  Blocks blocks_;
  std::map<Address, Segment> segments_;
  Pool small_, large_;
  Address next_;
};

/// What a plan takes of a device.
struct AllocatorPeaks {
  Bytes requested, allocated, reserved;  ///< as in `AllocatorStats`, the graph's inputs included
  int steps = 0;                         ///< how often the plan was run, one run after the other
  bool is_steady = false;  ///< the last run took nothing new from the device: neither would another
  friend bool operator==(const AllocatorPeaks&, const AllocatorPeaks&) = default;
};

/// Runs a valid plan through the allocator of a device without end, again and again until a run takes nothing
/// new: training repeats its step, and what the first one freed is the cache of the second. The graph's
/// inputs come first and stay. A step allocates its outputs and then its workspace; then what it needed for
/// the last time is freed, its workspace too. An output in the place of an input of the same bytes takes
/// nothing. What the plan keeps is freed at its end. O(n log n) a run, n instances.
AllocatorPeaks simulate_allocator(const Graph& graph, const Plan& plan, const AllocatorConfig& config,
                                  int most_steps = 20);

}  // namespace REMAT_API remat
