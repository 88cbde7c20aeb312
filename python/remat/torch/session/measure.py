"""Measures the real peak of a call, and compares it with predictions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

import remat

from ..base.allocator import trace_allocations
from ..base.devices import DeviceRuntime, default_device, runtime_of, with_index
from ..base.given import check_callable
from ..base.storages import live_storages, storages_held
from .watch import compare_all, recorded_steps


def device_to_measure(device: str | torch.device | None) -> torch.device:
    """By default the accelerator, if one is in use, else the CPU."""
    if device is None:
        return default_device()
    where = torch.device(device)
    try:
        return with_index(where)
    except (RuntimeError, AssertionError, AttributeError):  # it does not exist; `measurable` raises the error
        return where


def measurable(caller: str, device: torch.device) -> DeviceRuntime:
    """Raises UsageError if memory can be neither counted nor traced."""
    if device.type != "cpu":
        try:
            runtime = runtime_of(device)
        except (RuntimeError, AttributeError):
            runtime = None
        if runtime is None or not runtime.counts_memory:
            raise remat.UsageError(f"{caller}: {device} does not count the memory that is allocated there")
        return runtime
    return runtime_of(device)


def bytes_beside(runtime: DeviceRuntime, resident: Any) -> int:
    """On an accelerator, bytes that are neither `resident` nor kept by libraries (which plans count). 0 if
    `resident` is None, which means everything.
    """
    if resident is None:
        return 0
    own = sum(storages_held(resident, runtime.device.type).values()) + runtime.taken_by_libraries()
    return runtime.allocated() - own


def there_on_the_cpu(resident: Any) -> dict[int, int]:
    """Address and bytes of the storages that count at the start; if `resident` is None, all that Python can
    see.
    """
    return live_storages() if resident is None else storages_held(resident, "cpu")


def warm_up(fn: Callable[[], Any], calls: int, device: torch.device) -> None:
    """Calls before the measured one; on the CPU, the allocator's trace then knows their blocks."""
    with trace_allocations() if calls and device.type == "cpu" else nullcontext():
        for _ in range(calls):
            fn()


def measure_peak(
    fn: Callable[[], Any], *, device: str | torch.device | None = None, resident: Any = None, warmup: int = 0
) -> int:
    """Measure the peak bytes allocated on `device` while `fn()` runs, including all memory alive at the
    start.

    On the CPU this uses the allocator's own events and is exact for all memory that PyTorch allocates, but
    not for memory of MKL or oneDNN, nor for that of threads that `fn` starts. (Such a thread must not need a
    new plan while `fn` waits for it: plans are made after the measurement.) On an accelerator it is the
    allocator's count (`torch.cuda.max_memory_allocated`), less memory that existed at the start beside
    `resident` and memory kept by libraries. Planned steps inside `fn` are compared with their predictions;
    more than 2 % above is a warning.

    Args:
        fn: the function to measure.
        device: by default the accelerator, if one is in use, else the CPU.
        resident: tensors, modules and optimizers, or objects that hold them (a batch, `model.parameters()`),
            that are in memory at the start, counted with their gradients. None: every tensor of the process
            that Python can see, on an accelerator all that is there.
        warmup: calls of `fn` before the measured one. On the CPU, a block that is older than the first call
            counts to the end even if `fn` frees it, since the allocator does not report that; after one
            warm-up call there is none.

    Raises UsageError for a device whose memory can be neither counted nor traced.
    """
    check_callable("fn", fn)
    where = device_to_measure(device)
    runtime = measurable("measure_peak", where)
    warm_up(fn, warmup, where)
    if runtime.counts_memory:
        runtime.synchronize()
        beside = bytes_beside(runtime, resident)
        runtime.reset_highest()
        fn()
        runtime.synchronize()
        return runtime.highest() - beside
    known = there_on_the_cpu(resident)
    start = sum(known.values())
    with trace_allocations() as trace, recorded_steps() as windows:
        fn()
    compare_all(windows, trace, known)
    return start + trace.rise(known)[0]
