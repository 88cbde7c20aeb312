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

AllocatorPeaks simulated(const Graph& graph, const BoundPlan& plan, const std::string& allocator,
                         int most_steps) {
  if (most_steps < 1)
    throw UsageError("most_steps is " + std::to_string(most_steps) + ", and it is at least 1");
  const AllocatorConfig config = parse_allocator(allocator);
  nb::gil_scoped_release release;
  return simulate_allocator(graph, checked_plan(graph, plan.record, OrderMode::kFree), config, most_steps);
}

void bind_peaks(nb::module_& m) {
  const auto bytes = [](Bytes AllocatorPeaks::* which) {
    return [which](const AllocatorPeaks& p) { return (p.*which).count(); };
  };
  nb::class_<AllocatorPeaks>(m, "AllocatorPeaks",
                             "The most bytes that a plan takes of a device, its graph's inputs included.")
      .def_prop_ro("requested", bytes(&AllocatorPeaks::requested),
                   "As its values and workspaces ask for them.")
      .def_prop_ro("allocated", bytes(&AllocatorPeaks::allocated), "In blocks that are in use.")
      .def_prop_ro("reserved", bytes(&AllocatorPeaks::reserved),
                   "Taken from the device, the cache included: what must fit.")
      .def_ro("steps", &AllocatorPeaks::steps, "How often the plan was run, one run after the other.")
      .def_ro("is_steady", &AllocatorPeaks::is_steady,
              "The last run took nothing new: neither would another.")
      .def(
          "__eq__", [](const AllocatorPeaks& a, const AllocatorPeaks& b) { return a == b; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const AllocatorPeaks& p) {
             return nb::hash(nb::make_tuple(p.requested.count(), p.allocated.count(), p.reserved.count(),
                                            p.steps, p.is_steady));
           })
      .def("__repr__", [](const AllocatorPeaks& p) {
        return "<remat.AllocatorPeaks: " + exact_bytes(p.allocated) + " allocated, " +
               exact_bytes(p.reserved) + " reserved>";
      });
  m.def(
      "simulate_allocator", simulated, nb::arg("graph"), nb::arg("plan"), nb::arg("allocator") = "cuda",
      nb::kw_only(), nb::arg("most_steps") = 20,
      "What PyTorch's caching allocator (as of :class:`CachingAllocator`) takes of a device without end "
      "while\n"
      "a plan runs again and again, as a training step does, until a run takes nothing new, or `most_steps`\n"
      "times: docs/allocator.md. Raises PlanError for a broken rule, UsageError for an unknown allocator.");
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
  const auto bytes = [](Bytes AllocatorStats::* which) {
    return [which](const CachingAllocator& a) { return (a.stats().*which).count(); };
  };
  const auto count = [](std::int64_t AllocatorStats::* which) {
    return [which](const CachingAllocator& a) { return a.stats().*which; };
  };
  using Stats = AllocatorStats;
  nb::class_<CachingAllocator>(
      m, "CachingAllocator",
      "PyTorch's caching allocator of a CUDA device, simulated: what requests take from the device. All\n"
      "amounts are bytes. The rules, and what is left out: docs/allocator.md.\n\n"
      "Args:\n"
      "    allocator: \"cuda\", \"cuda-expandable\" (expandable segments) or \"exact\" (no blocks, no\n"
      "        cache); the first two may go on as PYTORCH_CUDA_ALLOC_CONF does:\n"
      "        \"cuda:max_split_size_mb:200\".\n"
      "    capacity: what the device holds, bytes or \"80GiB\"; None: without end.\n\n"
      "Raises:\n"
      "    UsageError: an allocator or option that is not known.\n"
      "    BudgetError: a capacity that is not a positive amount of bytes.")
      .def(
          "__init__",
          [](CachingAllocator* self, const std::string& allocator, nb::handle capacity) {
            new (self) CachingAllocator(made(allocator, capacity));
          },
          nb::arg("allocator") = "cuda", nb::arg("capacity").none() = nb::none(),
          nb::sig("def __init__(self, allocator: str = \"cuda\", capacity: int | str | None = None) -> None"))
      .def(
          "allocate", allocate, nb::arg("size"), nb::arg("stream") = 0,
          nb::arg("segment").none() = nb::none(),
          nb::sig("def allocate(self, size: int, stream: int = 0, segment: int | None = None) -> int"),
          "The address of a new block for `size` bytes; 0 for none. Blocks that were freed serve only their\n"
          "own stream. Where a segment is new and not expandable it begins at the address `segment`, if "
          "that\n"
          "is given and free: addresses decide between blocks of equal size. Raises MemoryError where the\n"
          "device has no room, even with all cached memory given back.")
      .def("free", &CachingAllocator::free, nb::arg("address"),
           "Gives a block back to the cache, at once. Raises UsageError where none in use begins there.")
      .def("empty_cache", &CachingAllocator::empty_cache,
           "Gives back to the device what shares no segment (no mapped page) with a block in use.")
      .def("reset_peaks", &CachingAllocator::reset_peaks, "Peaks from here on.")
      .def(
          "size_of",
          [](const CachingAllocator& a, Address address) { return a.block_at(address).size.count(); },
          nb::arg("address"), "The size of the block in use that begins there. Raises UsageError.")
      .def(
          "segment_of",
          [](const CachingAllocator& a, Address address) { return a.block_at(address).segment; },
          nb::arg("address"),
          "Where the segment of the block in use that begins there begins. Raises UsageError.")
      .def(
          "blocks",
          [](const CachingAllocator& a) {
            std::vector<std::tuple<Address, std::int64_t, Address, std::int64_t, std::string>> all;
            for (const AllocatorBlock& b : a.blocks()) {
              const char* state = b.is_used ? "used" : b.is_mapped ? "cached" : "unmapped";
              all.emplace_back(b.address, b.size.count(), b.segment, b.stream, state);
            }
            return all;
          },
          "All blocks by address: (address, size, begin of the segment, stream, \"used\", \"cached\" or\n"
          "\"unmapped\": addresses of an expandable segment without memory).")
      .def_prop_ro(
          "allocator", [](const CachingAllocator& a) { return to_string(a.config()); },
          "As it was asked for.")
      .def_prop_ro(
          "capacity", [](const CachingAllocator& a) { return count_of(a.capacity()); },
          "What the device holds; None: without end.")
      .def_prop_ro("requested", bytes(&Stats::requested), "As asked, of what is in use.")
      .def_prop_ro("requested_peak", bytes(&Stats::requested_peak))
      .def_prop_ro("allocated", bytes(&Stats::allocated), "In blocks that are in use.")
      .def_prop_ro("allocated_peak", bytes(&Stats::allocated_peak))
      .def_prop_ro("reserved", bytes(&Stats::reserved), "Taken from the device, the cache included.")
      .def_prop_ro("reserved_peak", bytes(&Stats::reserved_peak))
      .def_prop_ro("allocations", count(&Stats::allocations), "Blocks in use.")
      .def_prop_ro("segments", count(&Stats::segments),
                   "Held now; an expandable one counts once, whatever it has mapped.")
      .def_prop_ro("retries", count(&Stats::retries),
                   "How often all cached memory was given back to make room.")
      .def_prop_ro("failures", count(&Stats::failures), "Requests that had no room even so.")
      .def("__repr__", [](const CachingAllocator& a) {
        const Stats& now = a.stats();
        return "<remat.CachingAllocator: " + to_string(a.config()) + ", " + exact_bytes(now.allocated) +
               " allocated, " + exact_bytes(now.reserved) + " reserved>";
      });
}

}  // namespace remat::python
