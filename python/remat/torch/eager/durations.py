"""Durations of ops in a recorded step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from ..base.devices import runtime_of
from ..cost.timing import clock_of_ops
from .recorder import Ran

# How many small ops are timed, and the least time of an op on an accelerator, in ns.
_SMALL_OPS = 50
_LEAST = 2_000


def take_off_calls(ops: Sequence[Ran], device: torch.device) -> None:
    """Subtracts the time of a small op: on an accelerator, a measured time includes calling the op and
    waiting for it, which a real step does not, since the host runs ahead.
    """
    if device.type == "cpu":
        return
    clock, small = clock_of(device), torch.zeros(1, device=device)
    times = []
    for _ in range(_SMALL_OPS):
        start = clock()
        small.add_(1)
        times.append(clock() - start)
    call = min(times)
    for op in ops:
        op.timed_again(max(_LEAST, op.duration - call))


def clock_of(device: torch.device) -> Callable[[], int]:
    if device.type == "cpu":
        return clock_of_ops()
    runtime = runtime_of(device)

    def clock() -> int:
        runtime.synchronize()
        return time.perf_counter_ns()

    return clock
