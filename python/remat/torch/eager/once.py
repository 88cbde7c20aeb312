"""Ops of a record that run once, and what is said of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..base.choices import chosen_to_run_once
from ..base.nodes import decides
from ..plan.options import Options
from .recorded import Record
from .recorder import Ran


@dataclass(frozen=True)
class _Named:
    """An op, as patterns find it."""

    op: Ran

    @property
    def kind(self) -> str:
        return str(self.op.func)

    @property
    def module(self) -> str:
        return self.op.module

    @property
    def phase(self) -> str:
        return self.op.phase

    @property
    def inputs(self) -> Sequence[int]:
        return self.op.reads

    @property
    def outputs(self) -> Sequence[int]:
        return (*self.op.made, *(new for _, new in self.op.wrote))


def chosen_once(record: Record, options: Options) -> set[int]:
    """Numbers of ops that must not run again: those that decide where, which or how many (`routing`), and
    those that the user named.
    """
    found = {op.number for op in record.ops if decides(op.func)} if options.routing == "once" else set()
    named = [_Named(op) for op in record.ops]
    never, keep = options.patterns("never_recompute"), options.patterns("always_keep")
    found.update(each.op.number for each in chosen_to_run_once(named, never, keep, "the recorded step"))
    return found


def runs_once(ops: str) -> str:
    """What is said of ops whose second run differs."""
    return f"{ops}: a second run makes other bits than the first, so it runs once"


def named_ops(record: Record, numbers: Collection[int]) -> str:
    return ", ".join(sorted({str(record.ops[number].func) for number in numbers}))
