"""Overhead of PyTorch's Python code for checkpointed blocks, large if ops are small. On an accelerator it
overlaps with the ops, and counts as 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ..base.turns import one_at_a_time
from .recording import RegionCall
from .regions import Region

_OPS = 40
_RUNS = 5


@dataclass(frozen=True)
class Toll:
    """Overhead in ns for each op of a block. checkpoint: for packing, unpacking and ending the recomputation;
    selective: in addition if results are saved, since each op then goes through a dispatch mode in Python.
    """

    checkpoint: int
    selective: int


@cache
def measured_toll() -> Toll:
    """The overhead on this machine, measured once per process; the least of several runs."""
    with one_at_a_time(), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        plain = _least(lambda: _chain(x).backward()) + _least(lambda: _chain(x))
        checkpointed = _least(lambda: Region().around(_chain)(x).backward())
        selective = _least(lambda: Region({"aten.sin.default": [0]}).around(_chain)(x).backward())
    return Toll(max(0, checkpointed - plain) // _OPS, max(0, selective - checkpointed) // _OPS)


def _chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(_OPS):
        x = torch.sin(x)
    return x


def _least(run: Callable[[], Any]) -> int:
    """Nanoseconds of one of several runs."""
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return min(times)


def checkpoint_toll(call: RegionCall) -> int:
    """Overhead of checkpointing the block without saved results."""
    return measured_toll().checkpoint * len(call.ops) if call.on_cpu else 0


def selective_toll(call: RegionCall) -> int:
    """Overhead of saving anything in the block."""
    return measured_toll().selective * len(call.ops) if call.on_cpu else 0


def toll_of(call: RegionCall) -> int:
    """Overhead of the recorded call, in ns."""
    if call.region is None:
        return 0
    return checkpoint_toll(call) + (selective_toll(call) if call.region.save else 0)
