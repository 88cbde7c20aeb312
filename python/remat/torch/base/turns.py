"""One thread of the process at a time where PyTorch has one of something: its tracer, its profiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.RLock()
_owner: int | None = None


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Other threads wait here until this one is through; it may enter again.

    Held while models are traced, measured and planned, and while the allocator is watched. Steps that run a
    plan do not come here.
    """
    global _owner
    with _turn:
        before, _owner = _owner, threading.get_ident()
        try:
            yield
        finally:
            _owner = before


def is_turn_of_another() -> bool:
    """Is another thread in `one_at_a_time` at this moment?"""
    return _owner not in (None, threading.get_ident())
