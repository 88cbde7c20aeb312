"""What the user wants kept, and what never run again, by name of a module or kind of op."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence

from ..base.step import Op, StepGraph

log = logging.getLogger("remat.torch")


def apply_choices(step: StepGraph, never_recompute: Sequence[str], always_keep: Sequence[str]) -> None:
    """Forbid the recomputation of ops.

    never_recompute: of every op of a kind, or inside a module, that one of these patterns names.
    always_keep: of the ops that make what leaves such a module (those inside may run again), and of every op
        of such a kind. An op that runs once keeps its results until they are read for the last time.

    A pattern names module paths ("layers.*.attention") or kinds ("mm", "aten.mm", "aten.mm.default"); "*"
    stands for anything within one part of a path, "**" for any number of parts.
    """
    for name, patterns in (("never_recompute", never_recompute), ("always_keep", always_keep)):
        for pattern in patterns:
            chosen = list(_inside(step, pattern) if name == "never_recompute" else _leaving(step, pattern))
            for op in chosen:
                step.run_once(op)
            if not chosen:
                log.warning("%s: %r names no module and no kind of op in %s", name, pattern, step.name)


def _inside(step: StepGraph, pattern: str) -> Iterable[Op]:
    matches = _matcher(pattern)
    for op in step.ops:
        if matches(_kinds(op)) or matches(_enclosing(op.module)):
            yield op


def _leaving(step: StepGraph, pattern: str) -> Iterable[Op]:
    """Ops of a kind, and forward ops whose results are read outside a module of theirs that is named."""
    matches = _matcher(pattern)
    readers: dict[int, list[Op]] = {}
    for op in step.ops:
        for value in op.inputs:
            readers.setdefault(value, []).append(op)
    for op in step.ops:
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


def _kinds(op: Op) -> list[str]:
    """What the kind of an op may be called: "aten.mm.default", "aten.mm", "mm"."""
    parts = op.kind.split(".")
    return [op.kind, ".".join(parts[:2]), parts[1]] if len(parts) > 2 else [op.kind, parts[-1]]


def _matcher(pattern: str) -> Callable[[Iterable[str]], bool]:
    pieces = re.split(r"(\*\*|\*|\?)", pattern)
    wild = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}
    compiled = re.compile("".join(wild.get(piece) or re.escape(piece) for piece in pieces))
    return lambda names: any(compiled.fullmatch(name) for name in names)
