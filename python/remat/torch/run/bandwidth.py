"""Measures the bandwidth to the host: copies both ways, alone and beside ops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

import remat

from ..base.devices import runtime_of
from ..base.errors import log
from ..base.units import format_bytes
from .channels import Channels, Copy, Region

# Of a measurement: bytes of a copy, copies per way, and number of small copies that show the latency.
_BYTES, _COPIES, _SMALL = 8 << 20, 8, 4096
_SMALL_COPIES = 50
# Two ways share a link if together they are not faster than this factor times one of them.
_SHARED = 1.4


@cache
def measured_host(channels: Channels, device: torch.device) -> remat.Host:
    """Bandwidths during ops, which are lower, to two digits; measured once per process.

    Raises HostMemoryError if there is no room for it.
    """
    found = _Measurement(channels, device)
    out, back = (min(found.rate(way), found.rate(way, beside_ops=True)) for way in ("out", "in"))
    together = found.rate("out", "in", beside_ops=True)
    host = remat.Host(
        out=_rounded(out),
        in_=_rounded(back),
        latency=_rounded(found.latency() * 1e9) / 1e9,
        shared=together < _SHARED * min(out, back),
    )
    log.info(
        "host=auto: %s/s out, %s/s in%s",
        format_bytes(_rounded(out)),
        format_bytes(_rounded(back)),
        ", one link for both" if host.shared else "",
    )
    return host


def _rounded(amount: float) -> int:
    return max(1, int(float(f"{amount:.2g}")))


class _Measurement:
    def __init__(self, channels: Channels, device: torch.device) -> None:
        self.channels, self.device = channels, device
        self.region: Region = channels.reserve(2 * _BYTES * _COPIES)
        self.tensors = [
            torch.zeros(_BYTES, dtype=torch.uint8, device=device).untyped_storage() for _ in range(2)
        ]
        self.rate("out", "in")  # the first copy into new memory is slower

    def _issue(self, way: str, number: int) -> Copy:
        if way == "out":
            return self.channels.out(self.tensors[0], self.region, number * _BYTES, None)
        return self.channels.back(self.region, (_COPIES + number) * _BYTES, self.tensors[1], None)

    def rate(self, *ways: str, beside_ops: bool = False) -> float:
        """Total bytes per second of these ways."""
        with _ops(self.device) if beside_ops else _nothing() as run_one:
            start = self._now()
            copies = [self._issue(way, number) for number in range(_COPIES) for way in ways]
            while not all(copy.has_ended() for copy in copies):
                run_one()
            for copy in copies:
                copy.wait()
            seconds = self._now() - start
        return len(copies) * _BYTES / max(seconds, 1e-9)

    def latency(self) -> float:
        """Seconds of a tiny copy."""
        small = torch.zeros(_SMALL, dtype=torch.uint8, device=self.device).untyped_storage()
        found = []
        for _ in range(_SMALL_COPIES):
            start = self._now()
            self.channels.out(small, self.region, 0, None).wait()
            found.append(self._now() - start)
        return statistics.median(found)

    def _now(self) -> float:
        runtime_of(self.device).synchronize()
        return time.perf_counter()


@contextmanager
def _ops(device: torch.device) -> Iterator[Callable[[], object]]:
    """Alternates an op that is bound by memory with one that is not."""
    a, b = (torch.ones(512, 512, device=device) for _ in range(2))
    wide = torch.ones(1 << 20, device=device)

    def run_one() -> None:
        torch.mm(a, b)
        wide.add_(1)
        runtime_of(device).synchronize_stream()  # else ops pile up while copies run

    yield run_one


@contextmanager
def _nothing() -> Iterator[Callable[[], object]]:
    yield lambda: time.sleep(1e-4)
