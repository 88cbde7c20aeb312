"""State of a step that leaves the record: bytes in use, and the additional memory of its backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.nodes import storage_bytes
from .meter import Meter
from .online import Evictor
from .recorded import Record, StepGraph
from .recorder import FORWARD
from .results import Cost


def levels(step: StepGraph, memory: Sequence[int]) -> list[int]:
    """By op of the forward, an upper bound on the bytes in use after it. memory: by step of a plan."""
    ops = step.record.ops
    found = [0] * sum(op.phase == FORWARD for op in ops)
    for needed, members in zip(memory, step.ops_of, strict=False):
        for member in members:
            if member < len(found):
                found[member] = needed - max(ops[each].workspace for each in members)
    for number, level in enumerate(found):
        if not level:
            found[number] = found[number - 1] if number else memory[0]
    return found


@dataclass(frozen=True)
class Rest:
    """From a recorded step. costs: of the ops of its forward. backward: peak bytes of loss and backward
    without the forward's results and existing gradients. share: the same in proportion to the largest value
    of the forward.
    """

    costs: Sequence[Cost]
    backward: int
    share: float


def rest_of(record: Record) -> Rest:
    forward = record.forward
    costs = [Cost(op.duration, made, op.workspace) for op, made in zip(forward, record.made, strict=True)]
    changes = [0] * (len(record.ops) + 2)
    for value in record.values:
        if value.made_by is not None and value.made_by >= len(forward):
            end = max([value.made_by, *value.reads, *value.given_up])
            if value.number in record.gradients:
                end = value.made_by  # a parameter has it, where it is seen
            changes[value.made_by] += value.bytes
            changes[end + 1] -= value.bytes
    alive = backward = 0
    for op, change in zip(record.ops, changes, strict=False):
        alive += change
        if op.phase != FORWARD:
            backward = max(backward, alive + op.workspace)
    made = [record.values[value].bytes for op in forward for value in op.made]
    return Rest(costs, backward, backward / max(1, *made))


def rest_of_others(rests: Sequence[Rest]) -> Rest:
    """For a step of other sizes: the largest share of all recorded steps."""
    return Rest((), 0, max(rest.share for rest in rests))


class Gradients:
    """Bytes of gradients that parameters got since this was made."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._without = [p for p in parameters if p.grad is None]

    def bytes(self) -> int:
        return sum(storage_bytes(p.grad) for p in self._without if p.grad is not None)


def evictor_from(
    meter: Meter, limit: int, device: torch.device, over: Callable[[int], object], rest: Rest
) -> Evictor:
    """limit: on bytes in use, at any time."""

    def differs(_: Any) -> None:
        """Nothing to do: the op runs once in such a step."""

    evictor = Evictor(meter, limit, device, over, differs)
    evictor.go_on(rest.costs, rest.backward, rest.share)
    return evictor
