"""Callbacks for the end of an object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def when_gone(thing: object, call: Callable[..., object], *args: Any) -> weakref.finalize[..., Any]:
    """Call this when the object is garbage collected, but not at the exit of the process."""
    ended = weakref.finalize(thing, call, *args)
    ended.atexit = False
    return ended
