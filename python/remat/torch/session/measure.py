"""What a call really needs at its peak, beside what was predicted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from ..base.allocator import trace_allocations
from ..base.storages import live_storages, tensor_storages
from .watch import compare_all, recorded_steps


def device_to_measure(device: str | torch.device | None) -> torch.device:
    """By default the CUDA device, if CUDA is in use, else the CPU."""
    cuda: Any = torch.cuda
    return torch.device(device or ("cuda" if cuda.is_available() and cuda.is_initialized() else "cpu"))


def warm_up(fn: Callable[[], Any], calls: int, device: torch.device) -> None:
    """Calls before the one that is measured; on the CPU their blocks are known to the allocator's trace."""
    with trace_allocations() if calls and device.type == "cpu" else nullcontext():
        for _ in range(calls):
            fn()


def measure_peak(
    fn: Callable[[], Any], *, device: str | torch.device | None = None, resident: Any = None, warmup: int = 0
) -> int:
    """Peak bytes allocated on `device` while `fn()` runs, everything that is alive at the start included.

    On the CPU this follows the allocator's own events and is exact for all memory that PyTorch allocates;
    memory that MKL or oneDNN take for themselves does not show. On CUDA it is
    `torch.cuda.max_memory_allocated`. Planned steps that run inside `fn` are compared with their predictions;
    more than 2 % above is a warning.

    Args:
        fn: what is measured.
        device: where; by default the CUDA device, if CUDA is in use, else the CPU.
        resident: tensors, modules and optimizers (or containers of them) that are in memory at the start,
            counted with their gradients. None: every tensor of the process that Python can see. CPU only.
        warmup: calls of `fn` before the measured one. On the CPU, a block that is older than the first call
            counts to the end even if `fn` frees it, since the allocator does not report that; after one
            warm-up call there is none.
    """
    where = device_to_measure(device)
    if where.type == "cuda":
        if resident is not None:
            raise ValueError(
                "measure_peak: `resident` has no meaning on CUDA, whose allocator counts everything"
            )
        warm_up(fn, warmup, where)
        torch.cuda.synchronize(where)
        torch.cuda.reset_peak_memory_stats(where)
        fn()
        torch.cuda.synchronize(where)
        return torch.cuda.max_memory_allocated(where)
    if where.type != "cpu":
        raise ValueError(f"measure_peak: device {where} is neither CPU nor CUDA")
    warm_up(fn, warmup, where)
    known = live_storages() if resident is None else tensor_storages(resident, "cpu")
    start = sum(known.values())
    with trace_allocations() as trace, recorded_steps() as windows:
        fn()
    compare_all(windows, trace, known)
    return start + trace.rise(known)[0]
