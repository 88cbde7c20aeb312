// A simulation of PyTorch's CUDA caching allocator: how much device memory it reserves for a program's
// requests. docs/allocator.md has the rules, their sources, and what is left out.
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

/// The settings of PYTORCH_CUDA_ALLOC_CONF that change how many bytes the allocator takes.
struct AllocatorConfig {
  bool exact = false;  ///< no rounding and no cache: a request takes exactly its bytes
  bool expandable_segments = false;
  Bytes large_segment{20 << 20};           ///< segment for requests above 1 MiB and below 10 MiB
  std::optional<Bytes> max_split;          ///< blocks of at least this size are never split; none: no limit
  Bytes max_non_split_rounding{20 << 20};  ///< such a block must exceed its request by less
  /// Entry k is for sizes in [2^k, 2^(k+1)) MiB (k = 0: from 0; k = 15: no upper end): they are rounded up to
  /// one of this many divisions between powers of two. 0 and 1: no such rounding.
  std::array<std::int64_t, 16> power2_divisions{};
  friend bool operator==(const AllocatorConfig&, const AllocatorConfig&) = default;
};

/// "cuda", "cuda-expandable" or "exact"; the first two may be followed by settings of
/// PYTORCH_CUDA_ALLOC_CONF: "cuda:max_split_size_mb:200,roundup_power2_divisions:[256:1,512:2,>:4]". Settings
/// that do not change bytes on the device (pinned memory, locks) are ignored. Throws UsageError.
AllocatorConfig parse_allocator(std::string_view text);
/// Text that `parse_allocator` reads back.
std::string to_string(const AllocatorConfig& config);

/// The size of the block for a request; 0 for 0. The block found may be larger when the rest is too small to
/// split off.
Bytes rounded_request(const AllocatorConfig& config, Bytes request);

/// An address on the simulated device; never 0.
using Address = std::int64_t;

/// Current bytes, their peaks since the start or `reset_peaks`, and counts.
struct AllocatorStats {
  Bytes requested, requested_peak;  ///< as asked
  Bytes allocated, allocated_peak;  ///< in blocks that are in use
  Bytes reserved, reserved_peak;    ///< of the device: segments, or mapped pages of expandable ones
  std::int64_t allocations = 0;     ///< blocks in use
  std::int64_t segments = 0;        ///< held now; an expandable one counts once
  std::int64_t retries = 0;         ///< how often the cache was emptied to make room
  std::int64_t failures = 0;        ///< requests that found no room even then
  friend bool operator==(const AllocatorStats&, const AllocatorStats&) = default;
};

/// A block of a segment, in use or not.
struct AllocatorBlock {
  Address address = 0, segment = 0;  ///< of the block, and of its segment
  Bytes size;
  std::int64_t stream = 0;
  bool is_used = false, is_mapped = true;
  friend bool operator==(const AllocatorBlock&, const AllocatorBlock&) = default;
};

/// The allocator of one device. Deterministic: segments get ascending addresses, none twice. A freed block is
/// available at once: work on other streams is not waited for. O(log n) per call with n blocks.
class CachingAllocator {
 public:
  /// `capacity`: bytes of the device; none: unlimited. Throws UsageError if it is below 1.
  explicit CachingAllocator(const AllocatorConfig& config = {}, std::optional<Bytes> capacity = std::nullopt);

  /// The address of the block, or nothing if there is no room even with the cache emptied. Size 0 gives
  /// address 0 and takes no memory. A new segment that is not expandable begins at `segment` if that is given
  /// and free (addresses decide between blocks of equal size). Throws UsageError for a size outside [0,
  /// 2^62).
  std::optional<Address> allocate(Bytes size, std::int64_t stream = 0,
                                  std::optional<Address> segment = std::nullopt);
  /// Returns a block to the cache; address 0 is ignored. Throws UsageError if no block in use begins there.
  void free(Address address);
  /// Returns to the device every segment (or mapped page) that no block in use shares.
  void empty_cache();
  /// Restarts the peaks of `stats` at the current bytes.
  void reset_peaks();

  /// The block in use at this address. Throws UsageError as `free` does.
  AllocatorBlock block_at(Address address) const;
  /// All blocks, ascending by address.
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

/// Device memory that a plan takes.
struct AllocatorPeaks {
  Bytes requested, allocated, reserved;  ///< as in `AllocatorStats`, the graph's inputs included
  int steps = 0;                         ///< consecutive runs of the plan
  bool is_steady = false;  ///< the last run reserved nothing new, so further runs would not either
  friend bool operator==(const AllocatorPeaks&, const AllocatorPeaks&) = default;
};

/// Runs a valid plan through the allocator of an unlimited device, repeatedly until a run reserves nothing
/// new: training repeats its step, and the second step starts with the cache of the first. The graph's inputs
/// are allocated first and stay. A step allocates its outputs, then its workspace; after it, the workspace
/// and all instances without further use are freed. An output written over an input of the same size takes
/// nothing. Kept outputs are freed at the end of the plan. O(n log n) per run with n instances.
AllocatorPeaks simulate_allocator(const Graph& graph, const Plan& plan, const AllocatorConfig& config,
                                  int most_steps = 20);

}  // namespace REMAT_API remat
