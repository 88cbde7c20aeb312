"""True if this thread is in a `planned` context, where fitted models run without their own plans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Active(threading.local):
    depth = 0

    def enter(self) -> None:
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1


_active = _Active()


def is_active() -> bool:
    return _active.depth > 0


@contextmanager
def entered() -> Iterator[None]:
    _active.enter()
    try:
        yield
    finally:
        _active.leave()
