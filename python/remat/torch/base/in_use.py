"""Bytes in use on a device, by one call to its allocator."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import torch

from .devices import runtime_of

# Bytes of tensors that show whether the answer counts them: glibc maps the large one, at first.
_PROBES = (1 << 18, 1 << 14)


class _Mallinfo2(ctypes.Structure):
    """As in malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def in_use_on(device: torch.device) -> Callable[[], int] | None:
    """A function that returns the bytes in use; on the CPU, of the whole process. None if there is no such
    count.
    """
    runtime = runtime_of(device)
    if runtime.counts_memory:
        return runtime.allocated
    return _of_the_process() if device.type == "cpu" else None


@cache
def _of_the_process() -> Callable[[], int] | None:
    """Only if it is seen to count tensors: not with an allocator other than the C library's."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return None
    mallinfo2 = ctypes.CFUNCTYPE(_Mallinfo2)(("mallinfo2", library))

    def in_use() -> int:
        found = mallinfo2()
        return int(found.uordblks) + int(found.hblkhd)

    return in_use if all(_counts(in_use, size) for size in _PROBES) else None


def _counts(in_use: Callable[[], int], size: int) -> bool:
    before = in_use()
    probe = torch.empty(size, dtype=torch.uint8)
    grown = in_use() - before
    del probe
    return abs(grown - size) < size // 2
