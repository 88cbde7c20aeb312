"""Handles Ctrl-C without losing it: Python drops exceptions of handlers inside imports, callbacks and
finalizers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_seen = False


def _remember(*_: object) -> None:
    global _seen
    _seen = True
    raise KeyboardInterrupt


def raise_if_seen() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed since `kept` began, even if Python dropped the
    exception."""
    if _seen:
        raise KeyboardInterrupt


@contextmanager
def held() -> Iterator[None]:
    """Delays Ctrl-C to the end of the block: for imports that an exception would leave half done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def kept() -> Iterator[None]:
    """Remembers Ctrl-C. `remat bench` blocks it while Python starts; an earlier one is raised here."""
    global _seen
    _seen = False
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as a shell does for its background jobs
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _remember)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield
    finally:
        signal.signal(signal.SIGINT, before)
