"""The simulated allocator: against a second one made from its description, and from Python."""

from __future__ import annotations

import random
from typing import Any

import pytest
import remat
from allocator_model import MIB, Model, NoRoom, Place, Settings

SETTINGS: dict[str, Settings] = {
    "cuda": Settings(),
    "cuda-expandable": Settings(expandable=True),
    "cuda:max_split_size_mb:20": Settings(max_split=20 * MIB),
    "cuda:max_split_size_mb:37,max_non_split_rounding_mb:25": Settings(
        max_split=37 * MIB, max_rounding=25 * MIB
    ),
    "cuda:roundup_power2_divisions:4": Settings(divisions=4),
    "cuda:large_segment_size_mb:32,roundup_power2_divisions:2": Settings(large_segment=32 * MIB, divisions=2),
    "cuda-expandable:large_segment_size_mb:12,roundup_power2_divisions:16": Settings(
        expandable=True, large_segment=12 * MIB, divisions=16
    ),
    "cuda-expandable:max_split_size_mb:40": Settings(expandable=True, max_split=40 * MIB),
}


def shape(allocator: remat.CachingAllocator) -> list[list[tuple[int, int, str]]]:
    """Segments by their begin: blocks with the same offsets are in the same places."""
    segments: dict[int, list[tuple[int, int, str]]] = {}
    for address, size, segment, _, state in allocator.blocks():
        segments.setdefault(segment, []).append((address - segment, size, state))
    return list(segments.values())


def shape_of_model(model: Model) -> list[list[tuple[int, int, str]]]:
    return [[(b.offset, b.size, b.state) for b in s.blocks] for s in model.segments]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("capacity", [None, 150 * MIB, 301 * MIB + 77])
def test_random_programs_end_where_the_description_says(name: str, capacity: int | None) -> None:
    failures = 0
    for seed in range(8):
        draw = random.Random(f"{name} {capacity} {seed}")
        allocator = remat.CachingAllocator(name, capacity)
        model = Model(SETTINGS[name], capacity)
        live: list[tuple[int, Place]] = []
        for call in range(150):
            if live and draw.random() < (0.6 if len(live) > 20 else 0.4):
                address, place = live.pop(draw.randrange(len(live)))
                allocator.free(address)
                model.free(place)
            elif draw.random() < 0.02:
                allocator.empty_cache()
                model.empty_cache()
            else:
                size = draw.choice([draw.randint(1, 1 << draw.randint(1, 26)), draw.randint(1, 60) * MIB])
                stream = draw.choice([0, 0, 0, 7])
                try:
                    address = allocator.allocate(size, stream)
                except MemoryError:
                    failures += 1
                    with pytest.raises(NoRoom):
                        model.allocate(size, stream)
                else:
                    live.append((address, model.allocate(size, stream)))
            assert shape(allocator) == shape_of_model(model), (seed, call)
        assert allocator.reserved == model.reserved()
        assert allocator.allocated == model.allocated()
        assert allocator.reserved_peak == model.most_reserved
    assert (failures > 0) == (capacity is not None)


def test_amounts_are_bytes() -> None:
    allocator = remat.CachingAllocator(capacity="64MiB")
    assert (allocator.allocator, allocator.capacity) == ("cuda", 64 * MIB)
    address = allocator.allocate(12_058_624)
    assert allocator.size_of(address) == 12_582_912
    assert (allocator.requested, allocator.allocated, allocator.reserved) == (12_058_624, 12 * MIB, 12 * MIB)
    assert (allocator.allocations, allocator.segments) == (1, 1)
    assert allocator.blocks() == [(address, 12 * MIB, address, 0, "used")]
    allocator.free(address)
    assert allocator.blocks() == [(address, 12 * MIB, address, 0, "cached")]
    assert (allocator.requested, allocator.allocated, allocator.reserved) == (0, 0, 12 * MIB)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.reserved_peak) == (0, 12 * MIB)
    allocator.reset_peaks()
    peaks = (allocator.requested_peak, allocator.allocated_peak, allocator.reserved_peak)
    assert peaks == (0, 0, 0)
    assert repr(allocator) == "<remat.CachingAllocator: cuda, 0 bytes allocated, 0 bytes reserved>"


def test_a_full_device_raises_memory_error() -> None:
    allocator = remat.CachingAllocator("exact", 900)
    allocator.allocate(600)
    with pytest.raises(MemoryError) as error:
        allocator.allocate(401)
    assert str(error.value) == (
        "out of memory: 401 bytes of a capacity of 900 bytes, of which 600 bytes are allocated and "
        "600 bytes reserved"
    )
    assert (allocator.retries, allocator.failures) == (1, 1)
    allocator.allocate(300)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("tpu",), remat.UsageError, "allocator 'tpu' is not cuda, cuda-expandable or exact"),
        (("cuda:x:1",), remat.UsageError, "unknown option 'x'"),
        (("cuda", "50%"), remat.BudgetError, "a capacity in percent needs a graph and its plan"),
        (("cuda", 0), remat.BudgetError, "outside"),
        (("cuda", True), remat.BudgetError, "found True instead of an integer"),
    ],
)
def test_settings_that_are_wrong(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        remat.CachingAllocator(*arguments)


def test_calls_that_are_wrong() -> None:
    allocator = remat.CachingAllocator()
    for call in (allocator.free, allocator.size_of):
        with pytest.raises(remat.UsageError, match="no block in use begins at address 5"):
            call(5)
    with pytest.raises(remat.UsageError, match="outside"):
        allocator.allocate(-1)
    with pytest.raises(remat.UsageError, match="size: found 1.5 instead of an integer"):
        allocator.allocate(1.5)  # type: ignore[arg-type]
    allocator.free(allocator.allocate(0))
