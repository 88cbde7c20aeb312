"""Ops of a record that run once, and the warning about them."""

from __future__ import annotations

from collections.abc import Collection

from ..base.choices import chosen_to_run_once
from ..base.nodes import decides
from ..plan.options import Options
from .recorded import Record


def chosen_once(record: Record, options: Options) -> set[int]:
    """Numbers of ops that must not run again: those that decide where, which or how many (`routing`), and
    those that the user named.
    """
    found = {op.number for op in record.ops if decides(op.func)} if options.routing == "once" else set()
    never, keep = options.patterns("never_recompute"), options.patterns("always_keep")
    found.update(op.number for op in chosen_to_run_once(record.ops, never, keep, "the recorded step"))
    return found


def runs_once(ops: str) -> str:
    """The warning about ops whose recomputed results differ."""
    return f"{ops}: a second run makes other bits than the first, so it runs once"


def named_ops(record: Record, numbers: Collection[int]) -> str:
    return ", ".join(sorted({str(record.ops[number].func) for number in numbers}))
