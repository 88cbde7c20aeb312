"""Serializes threads around PyTorch's global objects: its tracer, its profiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.RLock()
_owner: int | None = None


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """A reentrant lock: other threads wait until this one has left.

    Held while models are traced, measured and planned, and while the allocator is traced. Steps that run a
    plan do not take it.
    """
    global _owner
    with _turn:
        before, _owner = _owner, threading.get_ident()
        try:
            yield
        finally:
            _owner = before


def is_turn_of_another() -> bool:
    """True if another thread is in `one_at_a_time` now."""
    return _owner not in (None, threading.get_ident())
