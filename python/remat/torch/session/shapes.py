"""Limits the combinations of input shapes that keep their plans."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from ..base.errors import log
from ..base.private import CompileContext, _dynamo


class ShapeTable:
    """The shapes that each frame (a piece of the model's code) was called with, least recently used first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._frames: dict[int, OrderedDict[Hashable, None]] = {}
        self._warned: set[int] = set()

    def use(self, frame: int, shapes: Hashable, forget: Callable[[int, Hashable], None]) -> None:
        """A call with these shapes begins. Surplus shapes are passed to `forget`, with a warning the first
        time.
        """
        known = self._frames.setdefault(frame, OrderedDict())
        known[shapes] = None
        known.move_to_end(shapes)
        if len(known) <= self.limit:
            return
        oldest, _ = known.popitem(last=False)
        forget(frame, oldest)
        if frame not in self._warned:
            self._warned.add(frame)
            log.warning(
                "more than %d combinations of input shapes: the plan of the least recently used is dropped, "
                "and made again when its shapes come again; pad inputs to few shapes, or raise max_shapes",
                self.limit,
            )


def compiled_frame(default: int) -> tuple[int, int]:
    """The frame that Dynamo compiles at this moment, and how many times it has compiled it before."""
    compiling = CompileContext.current_compile_id()
    if compiling is None or compiling.frame_id is None:
        return default, 0
    return compiling.frame_id, compiling.frame_compile_id or 0


def warn_at_recompile_limit(times: int) -> None:
    """Beyond Dynamo's own limit a frame silently runs eagerly, without a plan."""
    limit = _dynamo.config.recompile_limit
    if times + 1 == limit:
        log.warning(
            "Dynamo has compiled this model %d times, its limit: further shapes will run eagerly, beyond the "
            "budget; use remat.torch.fit, or raise torch._dynamo.config.recompile_limit",
            limit,
        )
