"""Dynamo's conversion of code for our backends, and the code that it skips.

Dynamo calls a converter for each piece of code below a compiled callable. For our backends, the converter
traces what a plan can carry out, lets one thread convert at a time, and tells the backend which code is
skipped: that runs in eager mode, without a plan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType
from typing import Any, Protocol

import torch
from torch import fx

from remat import RematError

from ..base.errors import log
from ..base.garbage import collected_later
from ..base.nodes import module_path, source_line, source_of
from ..base.private import (
    _symbolic_trace,
    changing_numbers,
    compiled_functions,
    convert_frame,
    convert_no_call_below,
    get_compilation_metrics,
    graph_break_reasons,
    innermost_backend,
    is_asked_for,
    is_half_made,
    loop_breaks,
    prepare_dynamo,
    traced_ops,
    without_names,
)
from ..base.reasons import first_sentence, in_a_line
from ..base.turns import is_turn_of_another, one_at_a_time
from .tracing import permissive_tracing

_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")
# Folders of our own code that runs during a model's call, and does not belong to the model.
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OURS = tuple(_PACKAGE + part + os.sep for part in ("base", "cost", "plan", "run", "session", "trace"))
# Except code that calls a fitted model.
_CALLS = tuple(_PACKAGE + os.path.join("session", name) for name in ("fitted.py", "sharding.py"))
GENERATED = "<remat graph "
# Functions of their own before Python 3.12; what they call is converted.
_COMPREHENSIONS = {"<dictcomp>", "<genexpr>", "<listcomp>", "<setcomp>"}


@dataclass(frozen=True)
class Spot:
    """A place where Dynamo gave up, with the reason.

    name: of the function; place: file and line; reason: in Dynamo's words, one line.
    """

    name: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"


class Watcher(Protocol):
    """Interface of a backend that is notified of conversions.

    sees_sizes: later graphs have numbers for sizes, though they vary.
    """

    @property
    def sees_sizes(self) -> bool: ...

    def left_alone(self, spot: Spot) -> None:
        """A function that needs gradients runs in eager mode; functions that it calls are converted
        separately."""

    def broken(self, spot: Spot) -> None:
        """A function is converted in parts; the part at this place is not."""

    def compiled_inside(self, name: str) -> None:
        """A function compiled by `torch.compile` is converted as uncompiled code."""

    def traced(self, ops: int) -> None:
        """The number of ops in the graph under construction."""


# Finds the watcher of a backend, given its keyword arguments.
Find = Callable[[Any, Mapping[str, Any]], Watcher]
_kinds: list[tuple[Callable[[Any], bool], Find, bool]] = []


def watch_conversions(is_ours: Callable[[Any], bool], find: Find, unlimited: bool) -> None:
    """From now on, notifies backends of a kind of code that Dynamo skips.

    find: called when there is something to report. Errors of a watcher reach the caller. unlimited: lifts
    Dynamo's limits on recompilations.
    """
    if not _kinds:
        # Dynamo has no hook for skipped code; and PyTorch takes compiled code that one thread calls while
        # another one traces as called by the traced code.
        convert_frame.catch_errors_wrapper = _make_converter
        _symbolic_trace.is_fx_symbolic_tracing = _is_tracing
        prepare_dynamo()
    _kinds.append((is_ours, find, unlimited))


_plain_converter = convert_frame.catch_errors_wrapper
_plain_is_tracing = _symbolic_trace.is_fx_symbolic_tracing


def _is_tracing() -> bool:
    return _plain_is_tracing() and not is_turn_of_another()


def _make_converter(callback: Any, hooks: Any) -> Any:
    """Dynamo's own converter, or ours for our backends."""
    backend: Any = innermost_backend(callback)
    keywords = getattr(backend, "kwargs", {})
    backend = getattr(backend, "compiler_fn", backend)
    for is_ours, find, unlimited in _kinds:
        if is_ours(backend):
            return _Converter(callback, hooks, partial(find, backend, keywords), unlimited)
    return _plain_converter(callback, hooks)


class _StoppedError(Exception):
    """A watcher raised an error. (Dynamo would add lines to one raised inside a trace.)"""


class _Converter(convert_frame.CatchErrorsWrapper):
    """Converts for one callable of `torch.compile`."""

    def __init__(self, callback: Any, hooks: Any, find: Callable[[], Watcher], unlimited: bool) -> None:
        super().__init__(callback, hooks)
        self._find_watcher, self._unlimited = find, unlimited
        self._watcher: Watcher | None = None
        self._left: dict[CodeType, tuple[Spot, Any]] = {}
        self._stopped: RematError | None = None

    def __deepcopy__(self, memo: Any) -> _Converter:
        """For copies of a compiled model, which compile separately."""
        return self

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if _is_ours(frame.f_code):
            return convert_no_call_below()
        if frame.f_code in self._left:
            return self._leave(frame)
        with ExitStack() as stack:
            stack.enter_context(one_at_a_time())
            stack.enter_context(collected_later())
            stack.enter_context(without_names())
            sees_sizes = self._sees_sizes()
            stack.enter_context(changing_numbers(ints=self._unlimited and not sees_sizes))
            stack.enter_context(permissive_tracing(self._unlimited, sees_sizes))
            compiled: list[str] = []
            stack.enter_context(compiled_functions(lambda each: compiled.append(each.__qualname__)))
            stack.enter_context(traced_ops(self._note_ops))
            breaks, attempts = len(graph_break_reasons), get_compilation_metrics()[-1:]
            loops = len(loop_breaks)
            result, failure = self._converted(frame, cache_entry, frame_state)
            attempt = get_compilation_metrics()[-1:]
            attempted = bool(attempt) and (not attempts or attempt[0] is not attempts[0])
            found = graph_break_reasons[breaks:]
        if result.guarded_code is not None:
            for name in compiled:
                self._tell().compiled_inside(name)
            for reason in found:
                self._tell().broken(_spot_of_break(reason))
            return result
        why = getattr(result, "skip_reason", None) or "".join(loop_breaks[loops:][:1])
        if failure is not None:
            spot: Spot | None = _spot_failed(frame.f_code, failure)
        else:
            spot = _spot_left(frame.f_code, attempt[0], why) if attempted else None
        if spot is None:
            return result
        # Dynamo would silently skip this code for every model of the process.
        self._left[frame.f_code] = spot, replace(result, apply_to_code=False)
        return self._leave(frame)

    def _converted(self, frame: Any, cache_entry: Any, frame_state: Any) -> tuple[Any, Exception | None]:
        """Dynamo's result and, for code that it cannot convert and that runs unchanged, the reason.

        Errors of the code itself are raised, as in eager mode.
        """
        try:
            return super().__call__(frame, cache_entry, frame_state), None
        except RematError:
            raise
        except Exception as error:
            stopped, self._stopped = self._stopped, None
            if stopped is not None:
                raise stopped from None
            if is_asked_for(error, self):
                raise
            log.debug("Dynamo failed: %s", error, exc_info=True)
            return convert_frame.ConvertFrameReturn(), error

    def _note_ops(self, ops: int) -> None:
        try:
            watcher = self._tell()
        except RematError:  # the backend says why, in the first call
            return
        try:
            watcher.traced(ops)
        except RematError as error:
            self._stopped = error
            raise _StoppedError from None

    def _leave(self, frame: Any) -> Any:
        spot, result = self._left[frame.f_code]
        if _needs_gradient(frame):
            self._tell().left_alone(spot)
        return result

    def _sees_sizes(self) -> bool:
        try:
            return self._tell().sees_sizes
        except RematError:  # the backend says why, in the first call
            return False

    def _tell(self) -> Watcher:
        if self._watcher is None:
            self._watcher = self._find_watcher()
        return self._watcher


def _needs_gradient(frame: Any) -> bool:
    """True if calling this code may need gradients, by its arguments."""
    if not torch.is_grad_enabled():
        return False
    return any(_requires_grad(item) for item in frame.f_locals.values())


def _requires_grad(item: Any, depth: int = 2) -> bool:
    if isinstance(item, torch.Tensor):
        return item.requires_grad
    if isinstance(item, torch.nn.Module):
        return not is_half_made(item) and any(p.requires_grad for p in item.parameters())
    if isinstance(item, Mapping):
        item = tuple(item.values())
    if isinstance(item, (list, tuple)) and depth:
        return any(_requires_grad(each, depth - 1) for each in item)
    return False


def _spot_left(code: CodeType, attempt: Any, why: str) -> Spot | None:
    """The spot of code that Dynamo failed to convert; None if it had nothing to convert."""
    reason = attempt.fail_reason or why
    if "No ops traced" in reason or (not reason and attempt.fail_type is None):
        return None
    if code.co_name in _COMPREHENSIONS:
        return None
    name = getattr(code, "co_qualname", code.co_name)
    file, line = attempt.fail_user_frame_filename, attempt.fail_user_frame_lineno
    if not file or not line:
        file, line = code.co_filename, code.co_firstlineno
    return Spot(name, _place(file, line), first_sentence(reason or str(attempt.fail_type)))


def _spot_failed(code: CodeType, failure: Exception) -> Spot:
    """Of code with which Dynamo failed."""
    name = getattr(code, "co_qualname", code.co_name)
    return Spot(name, _place(code.co_filename, code.co_firstlineno), in_a_line(failure))


def spot_of_node(node: fx.Node, failure: Exception) -> Spot:
    """The source of a node of Dynamo's graph."""
    if source_of(node) is None and module_path(node):
        return Spot(f"module {module_path(node)}", "of unknown place", in_a_line(failure))
    return Spot(_function_of(node), source_line(node) or "of unknown place", in_a_line(failure))


def spot_of_graph(gm: fx.GraphModule, failure: Exception) -> Spot:
    """Where a graph of Dynamo begins."""
    called = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    nodes = [node for node in called if source_line(node)] or called
    if not nodes:
        return Spot("code", "of unknown place", in_a_line(failure))
    return spot_of_node(nodes[0], failure)


def _function_of(node: fx.Node) -> str:
    place = source_of(node)
    return _RESUMED.sub(r"\1", place[2]) if place is not None else "code"


def _is_ours(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(GENERATED) or (file.startswith(_OURS) and file not in _CALLS)


def _spot_of_break(reason: Any) -> Spot:
    if not reason.user_stack:
        return Spot("code", "of unknown place", first_sentence(reason.reason))
    where = reason.user_stack[-1]
    return Spot(where.name, _place(where.filename, where.lineno), first_sentence(reason.reason))


def _place(file: str, line: int) -> str:
    """Short enough for a line of a message, and still to be found."""
    _, packages, inside = file.rpartition("site-packages" + os.sep)
    below = os.path.relpath(file) if not packages else inside
    return f"{file if below.startswith('..') else below}:{line}"
