// remat.CachingAllocator.
#include "remat/allocator.h"

#include "bindings.h"
#include "errors.h"

namespace remat::python {
namespace {

/// Python's MemoryError.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

CachingAllocator made(const std::string& allocator, nb::handle capacity) {
  if (nb::isinstance<nb::str>(capacity) && nb::cast<std::string>(capacity).ends_with('%')) {
    throw BudgetFault("a capacity in percent needs a graph and its plan");
  }
  return CachingAllocator(parse_allocator(allocator), parse_budget_object(capacity, Bytes(), Bytes()));
}

Address allocate(CachingAllocator& allocator, nb::handle size, std::int64_t stream,
                 std::optional<Address> segment) {
  const Bytes bytes(with_fault<UsageError>([&] { return to_integer(size, "size"); }));
  if (const auto address = allocator.allocate(bytes, stream, segment)) return *address;
  const AllocatorStats& now = allocator.stats();
  throw OutOfMemory("out of memory: " + exact_bytes(bytes) + " of a capacity of " +
                    exact_bytes(allocator.capacity().value_or(Bytes(kMaxCount))) + ", of which " +
                    exact_bytes(now.allocated) + " are allocated and " + exact_bytes(now.reserved) +
                    " reserved");
}

AllocatorPeaks simulated(const Graph& graph, const PlanRecord& plan, const std::string& allocator,
                         int most_steps) {
  if (most_steps < 1)
    throw UsageError("most_steps is " + std::to_string(most_steps) + ", and it is at least 1");
  const AllocatorConfig config = parse_allocator(allocator);
  nb::gil_scoped_release release;
  return simulate_allocator(graph, checked_plan(graph, plan, OrderMode::kFree), config, most_steps);
}

void bind_peaks(nb::module_& m) {
  using Peaks = AllocatorPeaks;
  nb::class_<Peaks> peaks(m, "AllocatorPeaks",
                          "Peaks of a plan's device memory under an allocator, graph inputs included.");
  peaks.def_ro("requested", &Peaks::requested, "Peak of the requested bytes, before rounding.")
      .def_ro("allocated", &Peaks::allocated, "In blocks that are in use.")
      .def_ro("reserved", &Peaks::reserved, "Taken from the device, the cache included: what must fit.")
      .def_ro("steps", &Peaks::steps, "How many times the plan was run in sequence.")
      .def_ro("is_steady", &Peaks::is_steady,
              "The last run reserved no further memory, so that no later run will.")
      .def("__repr__", [](const Peaks& p) {
        return "<remat.AllocatorPeaks: " + exact_bytes(p.allocated) + " allocated, " +
               exact_bytes(p.reserved) + " reserved>";
      });
  def_value(peaks, &Peaks::requested, &Peaks::allocated, &Peaks::reserved, &Peaks::steps, &Peaks::is_steady);
  m.def("simulate_allocator", simulated, nb::arg("graph"), nb::arg("plan"), nb::arg("allocator") = "cuda",
        nb::kw_only(), nb::arg("most_steps") = 20,
        "Memory that PyTorch's caching allocator (see :class:`CachingAllocator`) takes from a device "
        "of unlimited size\n"
        "while a plan runs repeatedly, like a training step, until a run reserves nothing new, or "
        "`most_steps`\n"
        "times: docs/allocator.md. Raises PlanError for a broken rule, UsageError for an unknown "
        "allocator.");
}

}  // namespace

void bind_allocator(nb::module_& m) {
  bind_peaks(m);
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const OutOfMemory& full) {
      PyErr_SetString(PyExc_MemoryError, full.what());
    }
  });
  const auto stat = [](auto AllocatorStats::* which) {
    return [which](const CachingAllocator& a) { return a.stats().*which; };
  };
  using Stats = AllocatorStats;
  nb::class_<CachingAllocator>(
      m, "CachingAllocator",
      "Simulates PyTorch's caching allocator of a CUDA device. All amounts are bytes. The rules, and "
      "the\n"
      "omissions: docs/allocator.md.\n"
      "\n"
      "Args:\n"
      "    allocator: \"cuda\", \"cuda-expandable\" (expandable segments) or \"exact\" (no blocks, "
      "no\n"
      "        cache); the first two may be followed by options in the syntax of "
      "PYTORCH_CUDA_ALLOC_CONF:\n"
      "        \"cuda:max_split_size_mb:200\".\n"
      "    capacity: device memory, bytes or \"80GiB\"; None: unlimited.\n"
      "\n"
      "Raises:\n"
      "    UsageError: an unknown allocator or option.\n"
      "    BudgetError: a capacity that is not a positive amount of bytes.")
      .def(
          "__init__",
          [](CachingAllocator* self, const std::string& allocator, nb::handle capacity) {
            new (self) CachingAllocator(made(allocator, capacity));
          },
          nb::arg("allocator") = "cuda", nb::arg("capacity").none() = nb::none(),
          nb::sig("def __init__(self, allocator: str = \"cuda\", capacity: int | str | None = None) -> None"))
      .def("allocate", allocate, nb::arg("size"), nb::arg("stream") = 0,
           nb::arg("segment").none() = nb::none(),
           nb::sig("def allocate(self, size: int, stream: int = 0, segment: int | None = None) -> int"),
           "The address of a new block for `size` bytes; 0 for none. Freed blocks serve only their\n"
           "own stream. A new segment that is not expandable begins at the address `segment`, if given "
           "and\n"
           "free: addresses decide between blocks of equal size. Raises MemoryError if the device has no\n"
           "room, even after all cached memory is released.")
      .def("free", &CachingAllocator::free, nb::arg("address"),
           "Frees a block at once, into the cache. Raises UsageError if no block in use begins at "
           "`address`.")
      .def("empty_cache", &CachingAllocator::empty_cache,
           "Releases the cached segments (mapped pages) without a block in use to the device.")
      .def("reset_peaks", &CachingAllocator::reset_peaks, "Restarts the peaks from the current amounts.")
      .def(
          "size_of", [](const CachingAllocator& a, Address address) { return a.block_at(address).size; },
          nb::arg("address"), "The size of the block in use at `address`. Raises UsageError.")
      .def(
          "segment_of",
          [](const CachingAllocator& a, Address address) { return a.block_at(address).segment; },
          nb::arg("address"),
          "First address of the segment with the block in use at `address`. Raises UsageError.")
      .def(
          "blocks",
          [](const CachingAllocator& a) {
            std::vector<std::tuple<Address, Bytes, Address, std::int64_t, std::string>> all;
            for (const AllocatorBlock& b : a.blocks()) {
              const char* state = b.is_used ? "used" : b.is_mapped ? "cached" : "unmapped";
              all.emplace_back(b.address, b.size, b.segment, b.stream, state);
            }
            return all;
          },
          "All blocks by address: (address, size, begin of the segment, stream, \"used\", \"cached\" or\n"
          "\"unmapped\": addresses of an expandable segment without memory).")
      .def_prop_ro(
          "allocator", [](const CachingAllocator& a) { return to_string(a.config()); },
          "As it was asked for.")
      .def_prop_ro("capacity", &CachingAllocator::capacity, "Bytes of the device; None: unlimited.")
      .def_prop_ro("requested", stat(&Stats::requested), "Requested bytes of the blocks in use.")
      .def_prop_ro("requested_peak", stat(&Stats::requested_peak))
      .def_prop_ro("allocated", stat(&Stats::allocated), "In blocks that are in use.")
      .def_prop_ro("allocated_peak", stat(&Stats::allocated_peak))
      .def_prop_ro("reserved", stat(&Stats::reserved), "Taken from the device, the cache included.")
      .def_prop_ro("reserved_peak", stat(&Stats::reserved_peak))
      .def_prop_ro("allocations", stat(&Stats::allocations), "Blocks in use.")
      .def_prop_ro("segments", stat(&Stats::segments),
                   "Current number of segments; an expandable one counts once.")
      .def_prop_ro("retries", stat(&Stats::retries),
                   "How many times all cached memory was released to make room.")
      .def_prop_ro("failures", stat(&Stats::failures), "Requests that failed nevertheless.")
      .def("__repr__", [](const CachingAllocator& a) {
        const Stats& now = a.stats();
        return "<remat.CachingAllocator: " + to_string(a.config()) + ", " + exact_bytes(now.allocated) +
               " allocated, " + exact_bytes(now.reserved) + " reserved>";
      });
}

}  // namespace remat::python
