"""Copies to a host and back that begin late, for tests."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from remat.torch.run import channels
from remat.torch.run.copies import HostPool
from torch import nn


def at_random(seed: int, most: float = 0.01) -> Callable[[int], float]:
    """Most copies a little late, some by `most` seconds."""
    rng = random.Random(seed)
    return lambda size: most * rng.random() ** 6


def leave_out_waits(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Nobody waits for copies "out", or "in", from now on."""
    wait, put = channels._Job.wait, channels._Worker.put
    left_out = "remat out" if way == "out" else "remat in"

    def put_and_note(self: Any, job: Any) -> Any:
        job.way = self._name
        return put(self, job)

    monkeypatch.setattr(channels._Worker, "put", put_and_note)
    monkeypatch.setattr(channels._Job, "wait", lambda job: 0.0 if job.way == left_out else wait(job))


def pool_of(fitted: nn.Module) -> HostPool:
    """Where a fitted model has its places on the host."""
    pools = [each for each in gc.get_objects() if type(each) is HostPool]
    size = fitted.remat.parts[0].host_peak
    return next(pool for pool in reversed(pools) if pool.bytes_free() + pool.bytes_used >= size)


def until(holds: Callable[[], bool]) -> None:
    """Wait for the threads that copy."""
    start = time.perf_counter()
    while not holds():
        assert time.perf_counter() - start < 10
        time.sleep(0.01)
