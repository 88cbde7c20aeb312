"""The measured peak is the allocator's own."""

from __future__ import annotations

import gc

import pytest
import remat
import torch
from remat.torch import measure_peak
from remat.torch.base.allocator import trace_allocations
from torch import nn

KIB = 1024


def floats(kib: int) -> torch.Tensor:
    return torch.empty(kib * KIB // 4)


def test_the_peak_of_a_chain_is_two_tensors_and_the_resident_one() -> None:
    x = floats(64)

    def chain() -> None:
        y = x
        for _ in range(5):
            y = y.exp()

    assert measure_peak(chain, resident=[x]) == (64 + 2 * 64) * KIB
    assert measure_peak(chain, resident=[]) == 2 * 64 * KIB


def test_tensors_freed_in_between_do_not_add_up() -> None:
    def fn() -> None:
        a = floats(16)
        del a
        b = floats(32)
        del b
        floats(8)

    assert measure_peak(fn, resident=[]) == 32 * KIB


def test_views_and_shared_storages_count_once() -> None:
    x = floats(16)
    assert measure_peak(lambda: None, resident=[x, x[1:], x.view(2, -1), {"again": x}]) == 16 * KIB


def test_a_module_counts_with_its_buffers_and_gradients() -> None:
    model = nn.BatchNorm1d(256)
    size = 4 * 256 * 4 + 8
    assert measure_peak(lambda: None, resident=[model]) == size
    model(torch.randn(4, 256)).sum().backward()
    assert measure_peak(lambda: None, resident=[model]) == size + 2 * 256 * 4


def test_an_optimizer_counts_with_its_state() -> None:
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
    weight = 64 * 64 * 4
    assert measure_peak(lambda: None, resident=[model, optimizer]) == 4 * weight + 4


def test_without_a_list_every_live_tensor_counts() -> None:
    gc.collect()
    before = measure_peak(lambda: None)
    x = floats(512)
    assert measure_peak(lambda: None) - before == x.untyped_storage().nbytes()


def test_frees_of_counted_tensors_lower_the_level() -> None:
    with trace_allocations():
        held = [floats(64)]

    def replace() -> None:
        held.clear()
        held.append(floats(64))

    assert measure_peak(replace, resident=held) == 64 * KIB


def test_frees_of_tensors_that_were_not_counted_change_nothing() -> None:
    with trace_allocations():
        held = [floats(64)]

    def replace() -> None:
        held.clear()
        floats(16)

    assert measure_peak(replace, resident=[]) == 16 * KIB


def test_a_warm_up_call_makes_the_frees_of_gradients_visible() -> None:
    model = nn.Linear(256, 256, bias=False)
    x = torch.ones(1, 256)
    weight = 256 * 256 * 4

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    step()
    assert measure_peak(step, resident=[model, x], warmup=1) < 2.2 * weight


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(remat.UsageError, match="measure_peak: meta does not count the memory"):
        measure_peak(lambda: None, device="meta")


def test_a_trace_inside_another_leaves_both_whole() -> None:
    with trace_allocations() as outer:
        x = floats(16)
        with trace_allocations() as inner:
            y = floats(8)
            del x
        z = floats(4)
        del y
    assert [size for _, size in inner.events] == [8 * KIB, -16 * KIB]
    assert [size for _, size in outer.events] == [16 * KIB, 8 * KIB, -16 * KIB, 4 * KIB, -8 * KIB]
    assert outer.times_ns == sorted(outer.times_ns)
    del z


def test_a_step_that_is_planned_while_it_is_measured_counts_whole() -> None:
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())))
    x = torch.randn(256, 64)
    planned = torch.compile(model, backend="remat", options={"budget": "1GB"})

    def step() -> None:
        planned(x).square().mean().backward()

    first = measure_peak(step, resident=[model, x])
    model.zero_grad()
    assert first >= measure_peak(step, resident=[model, x]) > 256 * 64 * 4 * 5


def test_what_is_resident_may_be_an_iterator_or_an_object_of_any_class() -> None:
    class Batch:
        def __init__(self) -> None:
            self.images, self.count = torch.zeros(1000), 3

    model, batch = nn.Linear(10, 10), Batch()

    def step() -> None:
        model(torch.zeros(10))

    least = measure_peak(step, resident=[])
    own = sum(p.untyped_storage().nbytes() for p in model.parameters())
    assert measure_peak(step, resident=model.parameters()) == least + own
    assert measure_peak(step, resident=[model, {"batch": batch}]) == least + own + 4000
