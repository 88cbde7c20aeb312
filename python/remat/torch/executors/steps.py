"""Converts a recorded step to a Remat graph, whose simulated memory is PyTorch's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

import remat

from ..base.devices import block_bytes, generator_bytes
from ..base.nodes import is_random
from ..base.private import FakeTensorMode
from ..base.step import Op, StepGraph
from ..cost.source import Costs
from .recording import Recorded, RecordedOp, RegionCall, TensorLike, tensors_like
from .tolls import toll_of

_ADD: Any = torch.ops.aten.add.Tensor


@dataclass(frozen=True)
class ExecutorStep:
    """graph: each op of the recorded step once, recomputations too, in order.

    at: by recorded op, its step in the graph; for views, that of the op before.
    durations, random: by recorded op. memory: of each step. duration: of the step, with PyTorch's overhead
    for checkpoints. All in ns and bytes.
    """

    recorded: Recorded
    graph: remat.Graph
    at: Sequence[int]
    durations: Sequence[int]
    memory: Sequence[int]
    duration: int
    random: Sequence[bool]

    @property
    def peak(self) -> int:
        return max(self.memory)

    def size(self, storage: int) -> int:
        return _blocks(self.recorded.bytes[storage], self.recorded.device[storage])

    def gone(self, storage: int) -> int:
        """The first step after the release of the storage."""
        last = self.recorded.last.get(storage)
        return self.graph.num_ops if last is None else self.at[last] + 1


def _blocks(size: int, device: torch.device) -> int:
    block = block_bytes(device.type)
    return -(-size // block) * block


def build_step(recorded: Recorded, costs: Costs, name: str) -> ExecutorStep:
    """The graph of a recorded step, its ops measured, its memory simulated."""
    return _Building(recorded, name).run(costs)


class _Building:
    """State: the step so far; the value of each storage, the last op that has it, the op that made it."""

    def __init__(self, recorded: Recorded, name: str) -> None:
        self.recorded = recorded
        self.nodes = _Nodes()
        gm = fx.GraphModule(torch.nn.Module(), fx.Graph())
        self.step = StepGraph(gm, 0, name)
        self.value: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.made_by: dict[int, RecordedOp] = {}
        self.at: list[int] = []

    def run(self, costs: Costs) -> ExecutorStep:
        recorded, step = self.recorded, self.step
        for storage in sorted(recorded.resident):
            self.value[storage] = step.add_value(recorded.names[storage], self._size(storage))
            step.inputs.append(self.value[storage])
        gone: defaultdict[int, list[int]] = defaultdict(list)
        for storage, last in recorded.last.items():
            if last is not None and storage not in recorded.resident:
                gone[last].append(storage)
        states = _GeneratorStates(recorded)
        tolls: defaultdict[int, list[RegionCall]] = defaultdict(list)
        for call in recorded.calls:
            if call.region is not None:
                tolls[call.again_begin].append(call)
        nodes: list[fx.Node] = []
        for position, op in enumerate(recorded.ops):
            for storage in op.reads:
                if storage not in self.value:
                    self._make("remat.made_outside", storage, op)
            for call in tolls[position]:
                step.add_op(
                    _op("torch.utils.checkpoint", [], [], op.backward, call.name, duration=toll_of(call))
                )
            for key in states.begin[position]:
                states.value[key] = self._add("remat.generator_state", [], generator_bytes("cpu"))
            nodes.append(self.nodes.node_of(op))
            if not op.is_view:
                self._add_op(op, nodes[-1])
            self.at.append(len(step.ops) - 1)
            for storage in gone[position]:
                self._release(storage, op)
            for key in states.end[position]:
                self._add("remat.release", [states.value[key]], None)
        step.keep(self.value[s] for s, last in recorded.last.items() if last is None and s in self.value)
        step.keep(states.value[key] for key in states.held if key in states.value)
        costs.fill(step)
        graph = remat.Graph.from_dict(step.to_dict())
        simulated = remat.simulate(graph, range(graph.num_ops))
        memory = [int(size) for size in simulated.memory]
        durations = [
            0 if op.is_view else step.ops[at].duration for op, at in zip(recorded.ops, self.at, strict=True)
        ]
        random = [is_random(node) for node in nodes]
        return ExecutorStep(recorded, graph, self.at, durations, memory, simulated.duration, random)

    def _size(self, storage: int) -> int:
        return _blocks(self.recorded.bytes[storage], self.recorded.device[storage])

    def _make(self, kind: str, storage: int, op: RecordedOp) -> None:
        value = self.step.add_value(f"{kind}_{storage}", self._size(storage))
        self.value[storage] = value
        self.last_use[storage] = self.step.add_op(_op(kind, [], [value], op.backward))

    def _add(self, kind: str, reads: list[int], size: int | None) -> int:
        """Returns the value that it makes, or -1."""
        outputs = [] if size is None else [self.step.add_value(f"{kind}_{len(self.step.values)}", size)]
        backward = bool(self.step.ops) and self.step.ops[-1].phase == "backward"
        self.step.add_op(_op(kind, reads, outputs, backward))
        return outputs[0] if outputs else -1

    def _add_op(self, op: RecordedOp, node: fx.Node) -> None:
        step = self.step
        outputs = []
        for storage in op.made:
            self.value[storage] = step.add_value(f"v{storage}", self._size(storage))
            self.made_by[storage] = op
            outputs.append(self.value[storage])
        reads = [self.value[s] for s in op.reads]
        index = step.add_op(_op(str(op.func), reads, outputs, op.backward, node.name, node))
        if self._adds_in_place(op, len(self.at)):
            step.write_over(index, self.value[tensors_like(op.args)[0].storage], 0)
        for storage in (*op.reads, *op.made):
            self.last_use[storage] = index

    def _adds_in_place(self, op: RecordedOp, position: int) -> bool:
        """True if autograd's engine sums gradients in place, which it does if nothing else holds the first; a
        watched engine does not.

        The first is then freed at once, and comes from another node; sums in a node's own code do not count.
        """
        if not op.backward or op.func is not _ADD or op.kwargs or len(op.made) != 1:
            return False
        first, *others = tensors_like(op.args)
        if len(others) != 1 or self.recorded.last.get(first.storage) != position:
            return False
        (other,) = others
        made_by = self.made_by.get(first.storage)
        alike = (first.shape, first.stride, first.dtype, first.storage_bytes)
        return (
            made_by is not None
            and made_by.backward
            and made_by.by != op.by
            and alike == (other.shape, other.stride, other.dtype, other.storage_bytes)
        )

    def _release(self, storage: int, op: RecordedOp) -> None:
        if storage not in self.value or self.last_use[storage] == len(self.step.ops) - 1:
            return
        if self._last_real(storage):
            return
        self._add("remat.release", [self.value[storage]], None)

    def _last_real(self, storage: int) -> bool:
        """True if only releases follow the last op that uses the storage."""
        return all(op.kind == "remat.release" for op in self.step.ops[self.last_use[storage] + 1 :])


def _op(
    kind: str,
    reads: list[int],
    outputs: list[int],
    backward: bool,
    name: str = "",
    node: fx.Node | None = None,
    duration: int = 0,
) -> Op:
    phase = "backward" if backward else "forward"
    return Op(
        name or kind,
        node,
        kind,
        phase,
        list(dict.fromkeys(reads)),
        outputs,
        recompute=False,
        duration=duration,
    )


class _GeneratorStates:
    """The generator states that checkpoints hold: the op before which each is saved, the op after which it is
    released, and those held to the end.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.begin: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        self.end: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        self.value: dict[tuple[int, bool], int] = {}
        self.held: list[tuple[int, bool]] = []
        for number, call in enumerate(recorded.calls):
            if call.region is None or not call.region.preserve_rng_state:
                continue
            self.begin[call.begin].append((number, False))
            if call.freed is None:
                self.held.append((number, False))
            else:
                self.end[max(call.freed, call.begin)].append((number, False))
            if call.again_end > call.again_begin:
                self.begin[call.again_begin].append((number, True))
                self.end[call.again_end - 1].append((number, True))


class _Nodes:
    """fx nodes for measuring ops; equal but distinct tensors of one op are different nodes."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.mode: Any = FakeTensorMode()
        self._placeholders: dict[Any, fx.Node] = {}
        self._fakes: dict[Any, torch.Tensor] = {}

    def node_of(self, op: RecordedOp) -> fx.Node:
        seen: dict[Any, list[TensorLike]] = {}

        def argument(item: Any) -> Any:
            if not isinstance(item, TensorLike):
                return item
            key = _key(item)
            same = seen.setdefault(key, [])
            if item not in same:
                same.append(item)
            return self._placeholder(item, same.index(item))

        args, kwargs = tree_map(argument, op.args), tree_map(argument, op.kwargs)
        node = self.graph.create_node("call_function", op.func, _tupled(args), kwargs)
        node.meta["val"] = tree_map(lambda x: self._fake(x) if isinstance(x, TensorLike) else x, op.result)
        return node

    def _placeholder(self, item: TensorLike, number: int) -> fx.Node:
        key = (*_key(item), number)
        if key not in self._placeholders:
            node = self.graph.placeholder(f"x{len(self._placeholders)}")
            node.meta["val"] = self._fake(item)
            self._placeholders[key] = node
        return self._placeholders[key]

    def _fake(self, item: TensorLike) -> torch.Tensor:
        key = _key(item)
        if key not in self._fakes:
            count = item.storage_bytes // item.dtype.itemsize
            with self.mode:
                flat = torch.empty(count, dtype=item.dtype, device=item.device)
                self._fakes[key] = flat.as_strided(item.shape, item.stride, item.offset)
        return self._fakes[key]


def _tupled(args: Any) -> tuple[Any, ...]:
    return tuple(args)


def _key(item: TensorLike) -> tuple[Any, ...]:
    return (item.shape, item.stride, item.offset, item.dtype, item.device, item.storage_bytes)
