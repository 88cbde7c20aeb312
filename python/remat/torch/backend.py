"""The `torch.compile` backend named "remat"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import fx

import remat

from .base.errors import errors_stand_alone
from .plan.options import Options
from .session.session import Session
from .trace.conversion import watch_conversions


class _AskedSession(Session):
    """The session of one options object: all its graphs share it."""

    def __init__(self, given: dict[str, Any] | None) -> None:
        options = Options.from_mapping(given)
        if options.step is not None:
            raise remat.UsageError('remat: step="backward" is an option of remat.torch.fit alone')
        super().__init__(options)
        self.given = given


_sessions: WeakValueDictionary[int, _AskedSession] = WeakValueDictionary()


def remat_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Entry point of the backend named "remat"; `options` are those of `remat.torch.Options`."""
    try:
        return _compiled(gm, example_inputs, options, mode)
    except remat.RematError as error:
        # Raised here, Dynamo would wrap the error and add advice; the first call raises it unchanged.
        return _failing(error)


def _failing(error: remat.RematError) -> Callable[..., Any]:
    @errors_stand_alone
    def fail(*args: Any) -> Any:
        raise error

    disable: Any = torch.compiler.disable
    failing: Callable[..., Any] = disable(fail, reason="remat says why it cannot plan")
    return failing


def _compiled(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: dict[str, Any] | None, mode: str | None
) -> Callable[..., Any]:
    if mode not in (None, "default"):
        raise remat.UsageError(f"remat: mode={mode!r} is not supported, only options")
    return _session_of(options)(gm, example_inputs)


def _session_of(options: dict[str, Any] | None) -> _AskedSession:
    session = _sessions.get(id(options)) if options is not None else None
    if session is None or session.given is not options:
        session = _AskedSession(options)
        _sessions[id(options)] = session
    return session


watch_conversions(
    lambda backend: backend is remat_backend,
    lambda _, keywords: _session_of(keywords.get("options")),
    unlimited=False,
)
