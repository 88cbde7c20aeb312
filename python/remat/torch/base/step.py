"""A captured training step: the Remat graph under construction, and the mapping back to traced nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from .devices import generator_bytes_held
from .nodes import output_node, outputs_of, storage_bytes, tensors_of
from .private import PlainAOTOutput


@dataclass
class Value:
    """A storage."""

    name: str
    bytes: int


@dataclass
class Op:
    """One op of the step.

    node: the traced node; None for the loss boundary, for clones and for values kept for a replay.
    clone_of: the placeholder that a clone op copies before it is overwritten.
    overwrites: the placeholder that a `copy_` writes to.
    over: the value over which its first output may be written, and the node's argument that shows it.
    """

    name: str
    node: fx.Node | None
    kind: str
    phase: str
    inputs: list[int]
    outputs: list[int]
    recompute: bool = True
    random: bool = False
    clone_of: fx.Node | None = None
    overwrites: fx.Node | None = None
    over: tuple[int, int] | None = None
    after: list[int] = field(default_factory=list)
    module: str = ""
    source: str = ""
    forward_of: int | None = None
    duration: int = 0
    workspace: int = 0

    @property
    def state_bytes(self) -> int:
        """Of the generator's saved state on the device, if the op draws random numbers."""
        if not self.random or self.node is None:
            return 0
        return generator_bytes_held(tensors_of(self.node.meta["val"])[0].device.type)


@dataclass(frozen=True)
class OutputUse:
    """A plan's assumptions about the outputs of the captured function, by index.

    cut: outputs without a gradient; dropped: outputs that the program no longer holds when the backward
    starts. tangents_held: True if the program holds the gradients of outputs until the backward returns.
    at_end: the program does not hold outputs before all ops have run, so that they may be dropped and
    recomputed.
    """

    cut: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    tangents_held: bool = True
    at_end: bool = False


@dataclass
class StepGraph:
    """A captured step.

    value_of: the storage that each tensor node shows (views and placeholders too).
    op_of: the op that makes each node that is not a view (an op's own node and its getitems).
    clone_of_buffer: for each placeholder that the step overwrites, the op that clones it for recomputed
    readers.
    loss: the op for the caller's loss; replay: the value that a replay would need, if any.
    copyable: by value that may be copied to a host, the node that makes it; None without a host.
    """

    gm: fx.GraphModule
    num_forward_outputs: int
    name: str = "step"
    use: OutputUse = field(default_factory=OutputUse)
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    value_of: dict[fx.Node, int] = field(default_factory=dict)
    op_of: dict[fx.Node, int] = field(default_factory=dict)
    clone_of_buffer: dict[fx.Node, int] = field(default_factory=dict)
    loss: int = -1
    replay: int | None = None
    copyable: dict[int, fx.Node] | None = None

    @property
    def forward_outputs(self) -> list[Any]:
        return list(outputs_of(self.gm)[: self.num_forward_outputs])

    @property
    def backward_outputs(self) -> list[Any]:
        return list(outputs_of(self.gm)[self.num_forward_outputs :])

    @property
    def tangent_bytes(self) -> int:
        """Of the gradients that the caller's loss hands to the backward."""
        return sum(self.values[value].bytes for value in self.ops[self.loss].outputs)

    @property
    def is_random(self) -> bool:
        """Does it draw random numbers?"""
        return any(op.random for op in self.ops)

    def plain_outputs(self) -> dict[int, int]:
        """Position among the forward outputs -> index among those of the captured function; AOTAutograd adds
        others.
        """
        descriptions = output_node(self.gm).meta.get("desc", ())
        return {
            position: description.idx
            for position, description in enumerate(descriptions[: self.num_forward_outputs])
            if isinstance(description, PlainAOTOutput)
        }

    def output_bytes(self) -> dict[int, int]:
        """Bytes of the outputs of the captured function, by index; inputs that it returns are none."""
        outputs = self.forward_outputs
        return {
            index: self.values[self.value_of[outputs[position]]].bytes
            for position, index in self.plain_outputs().items()
            if outputs[position] in self.value_of and self.value_of[outputs[position]] not in self.inputs
        }

    def gradient_bytes(self) -> dict[int, int]:
        """Bytes of the storages of gradients that have one to themselves, by argument."""
        values = {i: self.value_of[n] for i, n in enumerate(self.backward_outputs) if n in self.value_of}
        times = Counter(values.values())
        return {i: self.values[value].bytes for i, value in values.items() if times[value] == 1}

    def add_value(self, name: str, size: int) -> int:
        """Returns its index, as `add_op` does."""
        self.values.append(Value(name, size))
        return len(self.values) - 1

    def add_op(self, op: Op) -> int:
        self.ops.append(op)
        if op.node is not None:
            self.op_of[op.node] = len(self.ops) - 1
        return len(self.ops) - 1

    def add_element(self, node: fx.Node, source: fx.Node) -> None:
        """A getitem: made by the op that makes its source, unless that is a view."""
        if source in self.op_of:
            self.op_of[node] = self.op_of[source]

    def show(self, node: fx.Node, value: int) -> int:
        """The node shows this value, which is returned."""
        self.value_of[node] = value
        return value

    def add_clone(self, buffer: fx.Node) -> None:
        """A clone of a placeholder that the step overwrites."""
        name = f"clone_{buffer.name}"
        reads, writes = [self.value_of[buffer]], [self.add_value(name, storage_bytes(buffer.meta["val"]))]
        clone = Op(name, None, "remat.clone", "forward", reads, writes, recompute=False, clone_of=buffer)
        self.clone_of_buffer[buffer] = self.add_op(clone)

    def add_replay(self, size: int) -> None:
        """Values held for outputs without a gradient, in case they get one: see `run.replay`."""
        self.replay = self.add_value("replay", size)
        self.add_op(Op("replay", None, "remat.replay", "forward", [], [self.replay], recompute=False))

    def add_loss(self, reads: Iterable[int], writes: Sequence[int]) -> None:
        """The loss boundary, after all ops added so far; it makes nothing."""
        after = [i for i, op in enumerate(self.ops) if op.node is not None and not op.outputs]
        reads = list(dict.fromkeys(reads))
        loss = Op("loss", None, "remat.loss", "loss", reads, list(writes), recompute=False, after=after)
        self.loss = self.add_op(loss)

    def add_resident(self, name: str, size: int) -> None:
        """Count `size` bytes as resident without being read (existing gradients)."""
        if size:
            self.inputs.append(self.add_value(name, size))

    def keep(self, values: Iterable[int]) -> None:
        """Marks values as kept to the end."""
        self.kept.extend(values)

    def set_loss(self, workspace: int, held: int, measured_for: int = 0) -> None:
        """Bytes that the caller's loss takes while it is computed, and from then to the end.

        measured_for: bytes of gradients of outputs in the step where it took these; 0: unknown. It takes
        more in proportion where those are larger.
        """
        op = self.ops[self.loss]
        if measured_for:
            workspace = max(workspace, -(-workspace * self.tangent_bytes // measured_for))
        op.workspace = workspace
        if held:
            op.outputs.append(self.add_value("loss", held))
            self.keep(op.outputs[-1:])

    def set_cost(self, index: int, duration: int, workspace: int, outputs: Sequence[int]) -> None:
        """Sets the cost of an op, with the bytes of the storages that it really makes."""
        op = self.ops[index]
        op.duration, op.workspace = duration, workspace
        if len(outputs) == len(op.outputs):
            for value, size in zip(op.outputs, outputs, strict=True):
                self.values[value].bytes = size
        else:
            # Memory that the trace does not show exists while the op runs.
            op.workspace += max(0, sum(outputs) - sum(self.values[value].bytes for value in op.outputs))

    def run_once(self, op: Op) -> None:
        """Forbid that the op runs again."""
        op.recompute = False

    def name_value(self, value: int, name: str) -> None:
        self.values[value].name = name

    def write_over(self, index: int, value: int, argument: int) -> None:
        """The op may write its first output over a value, which its node reads as this argument."""
        self.ops[index].over = value, argument

    def allow_copies(self, nodes: dict[int, fx.Node]) -> None:
        """There is a host, for these values."""
        self.copyable = nodes

    def _value_to_dict(self, index: int) -> dict[str, Any]:
        value = self.values[index]
        described: dict[str, Any] = {"bytes": value.bytes, "name": value.name}
        if self.copyable is not None and index not in self.copyable:
            described["copy"] = "never"
        return described

    def to_dict(self) -> dict[str, Any]:
        """The graph as a `remat.graph` version 1 object."""
        ops = [
            {
                "name": op.name,
                "kind": op.kind,
                "duration": op.duration,
                "workspace": op.workspace,
                **({"generator_state": op.state_bytes} if op.recompute and op.state_bytes else {}),
                "inputs": op.inputs,
                "outputs": op.outputs,
                **({"over": [[op.over[0], op.outputs[0]]]} if op.over else {}),
                "recompute": "allowed" if op.recompute else "never",
                "after": op.after,
                "phase": op.phase,
                "module": op.module,
                "source": op.source,
                "forward_of": op.forward_of,
            }
            for op in self.ops
        ]
        return {
            "format": "remat.graph",
            "version": 1,
            "name": self.name,
            "time_unit": "ns",
            "values": [self._value_to_dict(index) for index in range(len(self.values))],
            "ops": ops,
            "inputs": self.inputs,
            "outputs": self.kept,
        }
