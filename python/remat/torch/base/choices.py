"""The user's choices of results to keep and ops never to recompute, by module or kind of op."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

log = logging.getLogger("remat.torch")


class Named(Protocol):
    """An op of a step. kind: "aten.mm.default"; module: the path of the one it belongs to; phase: "forward",
    "loss" or "backward". inputs, outputs: numbers of values.
    """

    @property
    def kind(self) -> str: ...

    @property
    def module(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def inputs(self) -> Sequence[int]: ...

    @property
    def outputs(self) -> Sequence[int]: ...


_Op = TypeVar("_Op", bound=Named)


def chosen_to_run_once(
    ops: Sequence[_Op], never_recompute: Sequence[str], always_keep: Sequence[str], step: str
) -> Iterator[_Op]:
    """Ops that must not be recomputed.

    never_recompute: every op of a kind, or inside a module, that one of these patterns names.
    always_keep: the ops whose results leave such a module (ops inside may be recomputed), and every op of
        such a kind. Results of an op that runs once are kept until their last reader.
    step: its name, for the warning that a pattern names nothing.

    A pattern names module paths ("layers.*.attention") or kinds ("mm", "aten.mm", "aten.mm.default"); "*"
    stands for anything within one part of a path, "**" for any number of parts.
    """
    for name, patterns in (("never_recompute", never_recompute), ("always_keep", always_keep)):
        for pattern in patterns:
            chosen = list(_inside(ops, pattern) if name == "never_recompute" else _leaving(ops, pattern))
            yield from chosen
            if not chosen:
                log.warning("%s: %r names no module and no kind of op in %s", name, pattern, step)


def _inside(ops: Sequence[_Op], pattern: str) -> Iterable[_Op]:
    matches = _matcher(pattern)
    for op in ops:
        if matches(_kinds(op)) or matches(_enclosing(op.module)):
            yield op


def _leaving(ops: Sequence[_Op], pattern: str) -> Iterable[_Op]:
    """Ops of a kind, and forward ops whose results are read outside a module of theirs that is named."""
    matches = _matcher(pattern)
    readers: dict[int, list[_Op]] = {}
    for op in ops:
        for value in op.inputs:
            readers.setdefault(value, []).append(op)
    for op in ops:
        if matches(_kinds(op)):
            yield op
            continue
        if op.phase != "forward":
            continue
        read_by = [r for value in op.outputs for r in readers.get(value, ()) if r.phase != "backward"]
        modules = [path for path in _enclosing(op.module) if matches([path])]
        if any(path not in _enclosing(reader.module) for path in modules for reader in read_by):
            yield op


def _enclosing(path: str) -> list[str]:
    """The module of this path and all it is in, outermost first: "a", "a.b", "a.b.c"."""
    parts = path.split(".") if path else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _kinds(op: Named) -> list[str]:
    """The names of an op's kind: "aten.mm.default", "aten.mm", "mm"."""
    parts = op.kind.split(".")
    return [op.kind, ".".join(parts[:2]), parts[1]] if len(parts) > 2 else [op.kind, parts[-1]]


def _matcher(pattern: str) -> Callable[[Iterable[str]], bool]:
    pieces = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}
    compiled = re.compile("".join(wild.get(piece) or re.escape(piece) for piece in pieces))
    return lambda names: any(compiled.fullmatch(name) for name in names)
