"""One op of the graph of a recorded step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from .recorder import BACKWARD, FORWARD, Ran


@dataclass
class GraphOp:
    """One op of the graph: an op of the record, joined with directly following ops that write over its
    results."""

    name: str
    kind: str
    phase: str
    inputs: dict[int, None] = field(default_factory=dict)
    outputs: dict[int, None] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    duration: int = 0
    workspace: int = 0
    recompute: bool = False
    module: str = ""
    members: list[int] = field(default_factory=list)

    def join(self, op: Ran) -> None:
        """Joins an op that writes over its results."""
        old = {value for value, _ in op.wrote}
        self.outputs = {value: None for value in self.outputs if value not in old}
        self.outputs.update((new, None) for _, new in op.wrote)
        for value in op.reads:
            if value not in old:
                self.read(value)
        self.take_time(op)
        self.workspace = max(self.workspace, op.workspace)
        self.members.append(op.number)
        self.recompute = self.recompute and op.may_repeat
        self.name = f"{name_of(op)}_{op.number}"

    def read(self, value: int) -> None:
        self.inputs[value] = None

    def take_time(self, op: Ran) -> None:
        self.duration += op.duration

    def runs_once(self) -> None:
        self.recompute = False


def phase_of(op: Ran) -> str:
    return BACKWARD if op.phase == BACKWARD else FORWARD


def name_of(op: Ran) -> str:
    return op.kind.removeprefix("aten.").partition(".")[0]


def to_dict(op: GraphOp, place: Mapping[int, int], made: Collection[int]) -> dict[str, Any]:
    over = [
        [place[old], place[new]]
        for old, new in op.over.items()
        if old in op.inputs and new in op.outputs and old in made
    ]
    return {
        "name": op.name,
        "kind": op.kind,
        "duration": op.duration,
        "workspace": op.workspace,
        "inputs": [place[value] for value in op.inputs],
        "outputs": [place[value] for value in op.outputs],
        **({"over": over} if over else {}),
        "recompute": "allowed" if op.recompute else "never",
        "phase": op.phase,
        "module": op.module,
    }
