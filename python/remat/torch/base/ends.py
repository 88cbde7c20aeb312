"""What is done when an object ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def when_gone(thing: object, call: Callable[..., object], *args: Any) -> weakref.finalize[..., Any]:
    """Call this once nobody holds the thing any more; not at the end of the process, which ends all."""
    ended = weakref.finalize(thing, call, *args)
    ended.atexit = False
    return ended
