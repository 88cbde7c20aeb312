"""Copies to a host and back that begin late, for tests."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

from remat.torch.run.copies import HostPool
from torch import nn


def at_random(seed: int, most: float = 0.01) -> Callable[[int], float]:
    """Most copies a little late, some by `most` seconds."""
    rng = random.Random(seed)
    return lambda size: most * rng.random() ** 6


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
