"""Whether calls of a model wait for their backward."""

from __future__ import annotations

import weakref
from typing import Any

from ..base.held import tensors_held


class _Waiting:
    """Lives as long as the graph of a call. begun: its backward has begun."""

    def __init__(self) -> None:
        self.begun = False

    def begin(self, _: Any) -> None:
        self.begun = True


class Flight:
    """The calls of a model."""

    def __init__(self) -> None:
        self._calls: list[weakref.ref[_Waiting]] = []

    def waiting(self) -> int:
        """Calls whose graphs are there, and whose backward has not begun."""
        self._calls = [each for each in self._calls if (call := each()) is not None and not call.begun]
        return len(self._calls)

    def note(self, outputs: Any) -> None:
        """A call ended with these outputs."""
        waiting = _Waiting()
        for tensor in tensors_held(outputs):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(waiting.begin)
        self._calls.append(weakref.ref(waiting))
