"""Time of a call by phase; each second counts in exactly one phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

REST = "other"


class Account:
    """Seconds by phase, in the sequence in which the phases first began.

    Time of a nested phase does not count for the outer one, and time in no phase is "other": all add up to
    the time since the account was opened.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """clock: in seconds; `time.perf_counter` unless given."""
        self._clock = time.perf_counter if clock is None else clock
        self._since = self._clock()
        self._phases = [REST]
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the block for this phase."""
        self._turn()
        self._phases.append(name)
        self._seconds.setdefault(name, 0.0)
        try:
            yield
        finally:
            self._turn()
            self._phases.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds by phase up to now; time in no phase comes last."""
        self._turn()
        return {**{n: s for n, s in self._seconds.items() if n != REST}, REST: self._seconds[REST]}

    def _turn(self) -> None:
        now, name = self._clock(), self._phases[-1]
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """The difference of two results of `Account.seconds`."""
    return {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}


_open: ContextVar[Account | None] = ContextVar("remat_account", default=None)


@contextmanager
def account() -> Iterator[Account]:
    """Counts the block's time on this thread; continues an account that is already open."""
    known = _open.get()
    if known is not None:
        yield known
        return
    opened = Account()
    token = _open.set(opened)
    try:
        yield opened
    finally:
        _open.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Counts the block for this phase of the open account, if any."""
    known = _open.get()
    if known is None:
        yield
        return
    with known.phase(name):
        yield
