"""Python's search for garbage that holds itself, put off while a trace is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_later() -> Iterator[None]:
    """While it lasts nothing is searched for. A trace makes hundreds of thousands of objects, nearly all of
    which stay, and every full search goes through them: 6 to 8 % of the time for GPT-2 of 16 layers.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
