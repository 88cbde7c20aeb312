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


@pytest.mark.parametrize("name", SETTINGS)
def test_plans_take_what_the_description_says(name: str) -> None:
    for seed in range(4):
        draw = random.Random(seed)
        sizes = [draw.choice([draw.randint(1, 3 * MIB), draw.randint(1, 40) * MIB // 2]) for _ in range(20)]
        graph = chain_of(sizes)
        plan = remat.plan(graph, "80%", work_limit=2000).plan or remat.plan(graph, work_limit=1000).plan
        assert plan is not None
        peaks = remat.simulate_allocator(graph, plan, name, most_steps=6)
        model = Model(SETTINGS[name], None)
        most = 0
        for size in sizes[:1]:
            model.allocate(size, 0)
        lives = lives_of(len(sizes), [int(op) for op in plan.steps])
        for _ in range(peaks.steps):
            places: dict[int, Place] = {}
            for step in range(len(plan.steps)):
                for life, (value, first, _) in enumerate(lives):
                    if first == step:
                        places[life] = model.allocate(sizes[value], 0)
                most = max(most, model.allocated())
                for life, (_, _, last) in enumerate(lives):
                    if last == step:
                        model.free(places[life])
        assert (peaks.allocated, peaks.reserved) == (most, model.most_reserved)


def chain_of(sizes: list[int]) -> remat.Graph:
    """Value 0 is the input; op i makes value i + 1 of value i, and reads value n - i too if it is there."""
    count = len(sizes)
    ops = []
    for i in range(count - 1):
        reads = {i, count - 1 - i} if count - 1 - i < i else {i}
        ops.append(remat.Op(f"op{i}", 1, sorted(reads), [i + 1]))
    return remat.Graph(sizes, ops, inputs=[0], outputs=[count - 1])


def lives_of(count: int, steps: list[int]) -> list[tuple[int, int, int]]:
    """(value, first, last step) of each instance of a chain: made, and read until it is made again or for the
    last time."""
    lives = []
    for step, op in enumerate(steps):
        value, last = op + 1, step
        for later in range(step + 1, len(steps)):
            reader = steps[later]
            if reader == op:
                break
            if value in (reader, count - 1 - reader if count - 1 - reader < reader else reader):
                last = later
        if value == count - 1:
            last = len(steps) - 1
        lives.append((value, step, last))
    return lives


def test_a_budget_on_reserved_bytes_holds() -> None:
    graph = chain_of([MIB] + [7 * MIB] * 24)
    for allocator in ("cuda", "cuda-expandable", "exact"):
        keep_all = remat.plan(graph, work_limit=1000, time_limit=None)
        assert keep_all.plan is not None
        assert keep_all.allocator_peaks is None
        reserved = remat.simulate_allocator(graph, keep_all.plan, allocator).reserved
        result = remat.plan(
            graph,
            reserved * 7 // 10,
            budget_on="reserved",
            allocator=allocator,
            work_limit=200_000,
            time_limit=None,
            check=True,
        )
        assert result.plan is not None
        assert result.allocator_peaks is not None
        assert result.peak is not None
        assert result.allocator_peaks == remat.simulate_allocator(graph, result.plan, allocator)
        assert hash(result.allocator_peaks) == hash(remat.simulate_allocator(graph, result.plan, allocator))
        assert result.peak <= result.allocator_peaks.allocated <= result.allocator_peaks.reserved
        assert result.allocator_peaks.reserved <= reserved * 7 // 10
        assert result.allocator_peaks.is_steady
        assert result.smallest_known_budget() == result.allocator_peaks.reserved


def test_a_budget_below_all_blocks_is_proved_impossible() -> None:
    graph = chain_of([100] * 6)
    result = remat.plan(graph, 1000, budget_on="reserved")
    assert (result.status, result.plan, result.allocator_peaks) == ("infeasible", None, None)
    assert result.smallest_known_budget() == 2 * MIB
    with pytest.raises(remat.InfeasibleError, match="the smallest budget known to work is 2.00 MiB"):
        result.raise_if_no_plan()


def test_what_goes_with_a_budget_on_reserved_bytes() -> None:
    graph = chain_of([100] * 4)
    with pytest.raises(remat.UsageError, match="budget_on='reserved' and host= do not go together"):
        remat.plan(graph, 1000, budget_on="reserved", host="1GB/s")
    with pytest.raises(remat.UsageError, match="budget_on='reserved' goes with objective='time' only"):
        remat.plan(graph, 1000, budget_on="reserved", objective="peak")
    with pytest.raises(remat.UsageError, match="allocator 'x' is not cuda"):
        remat.plan(graph, 1000, budget_on="reserved", allocator="x")
    plan = remat.plan(graph).plan
    assert plan is not None
    with pytest.raises(remat.UsageError, match="most_steps is 0"):
        remat.simulate_allocator(graph, plan, most_steps=0)
    peaks = remat.simulate_allocator(graph, plan)
    assert repr(peaks).startswith("<remat.AllocatorPeaks: ")
    assert peaks != remat.simulate_allocator(graph, plan, "exact")
