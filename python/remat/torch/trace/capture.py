"""From the joint graph of PyTorch (forward and backward in one fx graph) to a Remat graph.

Values are storages: a view, a `getitem` or a `detach` is contracted into the storage it shows, and emitted
again beside its readers when a plan is carried out (rewrite.py). The backward half cannot start before the
caller has computed the
loss: the *loss boundary* is an op of its own that reads the forward's outputs and makes the tangents, and it
is where a plan is cut into two graphs.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._functorch import partitioners
from torch._functorch._aot_autograd.descriptors import PlainAOTOutput

from ..base.errors import UnsupportedModelError

# Blocks of the CUDA allocator are multiples of this.
_CUDA_BLOCK = 512
# Bytes of one saved generator state.
RNG_STATE_BYTES = {"cpu": 5056, "cuda": 16}
# Outputs of no more bytes, such as a loss, count as held.
SMALL = 1024
BUILTIN_NAMESPACES = {"aten", "prims"}
_partitioners: Any = partitioners


@dataclass
class Value:
    """A storage."""

    name: str
    bytes: int


@dataclass
class Op:
    """One op of the step.

    node: what it runs; None for the loss boundary and for clones.
    clone_of: the placeholder that a clone op copies before it is overwritten.
    overwrites: the placeholder that a `copy_` writes to.
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
    after: list[int] = field(default_factory=list)
    module: str = ""
    forward_of: int | None = None
    duration: int = 0
    workspace: int = 0


@dataclass(frozen=True)
class OutputUse:
    """What a plan takes for granted about the outputs of the captured function, by index.

    cut: outputs without a gradient; dropped: outputs that nobody holds when the backward starts.
    tangents_held: does somebody hold the gradients of outputs until the backward returns?
    """

    cut: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    tangents_held: bool = True


@dataclass
class StepGraph:
    """A captured step: the Remat graph in the making, and the way back to the nodes of the joint graph.

    value_of: the storage that each tensor node shows (views and placeholders too).
    op_of: the op that makes each node that is not a view (an op's own node and its getitems).
    clone_of_buffer: for each placeholder that the step overwrites, the op that clones it for recomputed
    readers.
    written_over: by op, bytes of its result where that takes the place of an argument if nothing runs again.
    """

    gm: fx.GraphModule
    num_forward_outputs: int
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    value_of: dict[fx.Node, int] = field(default_factory=dict)
    op_of: dict[fx.Node, int] = field(default_factory=dict)
    clone_of_buffer: dict[fx.Node, int] = field(default_factory=dict)
    loss: int = -1
    replay: int | None = None
    written_over: dict[int, int] = field(default_factory=dict)
    name: str = "step"
    use: OutputUse = field(default_factory=lambda: OutputUse())

    @property
    def forward_outputs(self) -> list[Any]:
        return list(outputs_of(self.gm)[: self.num_forward_outputs])

    @property
    def backward_outputs(self) -> list[Any]:
        return list(outputs_of(self.gm)[self.num_forward_outputs :])

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

    def add_resident(self, name: str, size: int) -> None:
        """Count `size` bytes that are there from start to end without being read (existing gradients)."""
        if size:
            self.inputs.append(len(self.values))
            self.values.append(Value(name, size))

    def set_loss(self, workspace: int, held: int) -> None:
        """Bytes that the caller's loss takes while it is computed, and from then to the end."""
        op = self.ops[self.loss]
        op.workspace = workspace
        if held:
            op.outputs.append(len(self.values))
            self.kept.append(len(self.values))
            self.values.append(Value("loss", held))

    def to_dict(self) -> dict[str, Any]:
        """The graph as a `remat.graph` version 1 object."""
        ops = [
            {
                "name": op.name,
                "kind": op.kind,
                "duration": op.duration,
                "workspace": op.workspace,
                "inputs": op.inputs,
                "outputs": op.outputs,
                "recompute": "allowed" if op.recompute else "never",
                "after": op.after,
                "phase": op.phase,
                "module": op.module,
                "forward_of": op.forward_of,
            }
            for op in self.ops
        ]
        return {
            "format": "remat.graph",
            "version": 1,
            "name": self.name,
            "time_unit": "ns",
            "values": [{"bytes": v.bytes, "name": v.name} for v in self.values],
            "ops": ops,
            "inputs": self.inputs,
            "outputs": self.kept,
        }


def cuda_devices() -> list[int]:
    """The CUDA devices whose generators are in use."""
    cuda: Any = torch.cuda
    return list(range(cuda.device_count())) if cuda.is_initialized() else []


def output_node(gm: fx.GraphModule) -> fx.Node:
    node: fx.Node
    (node,) = gm.graph.find_nodes(op="output")
    return node


def outputs_of(gm: fx.GraphModule) -> list[Any]:
    outputs: Any = output_node(gm).args[0]
    return list(outputs)


def arguments(node: fx.Node) -> tuple[Any, ...]:
    return node.args


def is_primal(node: fx.Node) -> bool:
    return bool(_partitioners._is_primal(node))


def is_tangent(node: fx.Node) -> bool:
    return bool(_partitioners._is_tangent(node))


def tensors_of(val: Any) -> list[torch.Tensor]:
    """The tensors in a node's value: itself, or those of the tuple or list it is."""
    if isinstance(val, torch.Tensor):
        return [val]
    if isinstance(val, (tuple, list)):
        return [t for t in val if isinstance(t, torch.Tensor)]
    return []


def storage_bytes(tensor: torch.Tensor) -> int:
    size = tensor.untyped_storage().nbytes()
    if tensor.device.type == "cuda":
        size = -(-size // _CUDA_BLOCK) * _CUDA_BLOCK
    return size


def is_random(node: fx.Node) -> bool:
    """Does running the node draw random numbers?"""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    # Attention kernels carry the tag even where they drop nothing.
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return bool(given != 0.0)
    return True


def is_mutable(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def may_run_twice(node: fx.Node) -> bool:
    """Can the op run again without any effect but its result? Unknown (custom) ops and collectives: no."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace in BUILTIN_NAMESPACES and not is_mutable(node)
    return False


def _returns_alias(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    returns = target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\['\w+'\](\.__self__)?\.?", "", path)
    path = re.sub(
        r"_modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]",
        lambda m: "." + next(g for g in m.groups() if g),
        path,
    )
    return re.sub(r"\.+", ".", path).strip(".")


def capture_step(
    gm: fx.GraphModule,
    num_forward_outputs: int,
    name: str = "step",
    use: OutputUse | None = None,
) -> StepGraph:
    """Contract a joint graph. Raises UnsupportedModelError where it holds something a plan cannot express."""
    step = StepGraph(gm, num_forward_outputs, name=name, use=use or OutputUse())
    _Contraction(step).run()
    return step


class _Contraction:
    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.nodes = list(step.gm.graph.nodes)
        self.storage_value: dict[int, int] = {}
        self.overwritten: set[fx.Node] = set()
        self.random_tail: int | None = None
        self.forward_by_seq: dict[int, int] = {}
        # Which storages the elements of a tuple node show.
        self.elements: dict[fx.Node, list[int | None]] = {}

    def run(self) -> None:
        step = self.step
        primals, tangents = self._placeholders()
        forward, backward = self._schedule()
        for node in primals:
            self._add_input(node)
        for node in self.nodes:
            if node.op == "get_attr" and isinstance(self._attribute(node), torch.Tensor):
                self._add_input(node)
        self.overwritten = {arguments(n)[0] for n in forward + backward if _is_write_to_input(n)}
        self._add_clones(forward + backward)
        self._add_replay(primals, forward)
        for node in forward:
            self._add(node, "forward")
        self._add_loss(tangents)
        for node in backward:
            self._add(node, "backward")
        step.kept = self._kept(tangents)

    def _attribute(self, node: fx.Node) -> Any:
        return operator.attrgetter(str(node.target))(self.step.gm)

    def _placeholders(self) -> tuple[list[fx.Node], list[fx.Node]]:
        primals, tangents = [], []
        for node in self.nodes:
            if node.op != "placeholder":
                continue
            if is_tangent(node):
                tangents.append(node)
            elif is_primal(node):
                primals.append(node)
            else:
                raise UnsupportedModelError(
                    f"the step takes an input of a kind that is not supported: {node.name}"
                )
            val = node.meta.get("val")
            if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise UnsupportedModelError(f"input {node.name} is a symbolic size; plans need static shapes")
        return primals, tangents

    def _schedule(self) -> tuple[list[fx.Node], list[fx.Node]]:
        """The nodes of the forward and of the backward half, each in the order of the graph itself.

        The joint graph lists nodes that depend on no tangent early even if only the backward reads them; here
        they come right before their first reader, or nothing would be left to save at the loss.
        """
        outputs = outputs_of(self.step.gm)
        tainted: set[fx.Node] = set()
        for node in self.nodes:
            if is_tangent(node) or any(n in tainted for n in node.all_input_nodes):
                tainted.add(node)
        roots = [n for n in outputs[: self.step.num_forward_outputs] if isinstance(n, fx.Node)]
        roots += [
            n
            for n in self.nodes
            if n.op == "call_function"
            and n not in tainted
            and n.target is not operator.getitem
            and (
                is_random(n)
                or is_mutable(n)
                or (not may_run_twice(n) and tensors_of(n.meta.get("val")) == [])
            )
        ]
        in_forward = _ancestors(roots)
        if in_forward & tainted:
            raise UnsupportedModelError("an output of the forward depends on a gradient")
        forward = [n for n in self.nodes if n in in_forward and n.op == "call_function"]
        done = set(forward)
        backward: list[fx.Node] = []
        wanted = {n for n in outputs[self.step.num_forward_outputs :] if isinstance(n, fx.Node)}
        wanted |= {n for n in tainted if n.op == "call_function" and is_mutable(n)}
        needed = _ancestors(wanted)
        position = {n: i for i, n in enumerate(self.nodes)}
        for node in self.nodes:
            if node.op != "call_function" or node in done or node not in needed:
                continue
            if node not in tainted and node not in wanted:
                continue
            stack = [(node, False)]
            while stack:
                top, expanded = stack.pop()
                if top in done or top.op != "call_function":
                    continue
                if expanded:
                    done.add(top)
                    backward.append(top)
                    continue
                stack.append((top, True))
                reads = sorted((n for n in top.all_input_nodes if n not in done), key=position.__getitem__)
                stack.extend((n, False) for n in reversed(reads))
        return forward, backward

    def _new_value(self, name: str, tensor: torch.Tensor) -> int:
        index = len(self.step.values)
        self.step.values.append(Value(name, storage_bytes(tensor)))
        self.storage_value[tensor.untyped_storage()._cdata] = index
        return index

    def _value_at(self, tensor: torch.Tensor) -> int | None:
        return self.storage_value.get(tensor.untyped_storage()._cdata)

    def _add_input(self, node: fx.Node) -> None:
        val = node.meta.get("val")
        if node.op == "get_attr" and val is None:
            val = self._attribute(node)
        if not isinstance(val, torch.Tensor):
            return
        value = self._value_at(val)
        if value is None:
            value = self._new_value(node.name, val)
            self.step.inputs.append(value)
        self.step.value_of[node] = value

    def _add_clones(self, nodes: Sequence[fx.Node]) -> None:
        """One clone per overwritten buffer, made before everything: what recomputed readers see."""
        read = {n for node in nodes for n in node.all_input_nodes if not _is_write_to_input(node)}
        for buffer in self.nodes:
            if buffer not in self.overwritten or buffer not in read:
                continue
            value = len(self.step.values)
            self.step.values.append(Value(f"clone_{buffer.name}", storage_bytes(buffer.meta["val"])))
            self.step.clone_of_buffer[buffer] = len(self.step.ops)
            self.step.ops.append(
                Op(
                    f"clone_{buffer.name}",
                    None,
                    "remat.clone",
                    "forward",
                    [self.step.value_of[buffer]],
                    [value],
                    recompute=False,
                    clone_of=buffer,
                )
            )

    def _add_replay(self, primals: Sequence[fx.Node], forward: Sequence[fx.Node]) -> None:
        """What outputs without a gradient hold in case they get one: see `Replay`."""
        step = self.step
        states = {tensors_of(n.meta["val"])[0].device.type for n in forward if is_random(n)}
        size = sum(RNG_STATE_BYTES[kind] for kind in states)
        size += sum(storage_bytes(n.meta["val"]) for n in primals if n in self.overwritten)
        if step.use.cut and size:
            step.replay = len(step.values)
            step.values.append(Value("replay", size))
            step.ops.append(Op("replay", None, "remat.replay", "forward", [], [step.replay], recompute=False))

    def _inputs_of(self, node: fx.Node) -> list[int]:
        """The storages a node reads, without repetition; overwritten buffers through their clone."""
        found: dict[int, None] = {}
        for read in node.all_input_nodes:
            for leaf in self._leaves(read):
                found.setdefault(leaf)
        return list(found)

    def _leaves(self, node: fx.Node) -> Iterable[int]:
        if node in self.elements:
            return [v for v in self.elements[node] if v is not None]
        if node not in self.step.value_of:
            return []
        value = self.step.value_of[node]
        for buffer, clone in self.step.clone_of_buffer.items():
            if self.step.value_of[buffer] == value:
                return [self.step.ops[clone].outputs[0]]
        return [value]

    def _add(self, node: fx.Node, phase: str) -> None:
        step = self.step
        val = node.meta.get("val")
        if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise UnsupportedModelError(f"{node.name} ({node.target}) depends on data or on symbolic sizes")
        if node.target is operator.getitem:
            source, index = arguments(node)
            if source in step.op_of:
                step.op_of[node] = step.op_of[source]
            element = self.elements[source][index]
            if element is not None:
                step.value_of[node] = element
            return
        if _is_write_to_input(node):
            self._add_write(node, phase)
            return
        if is_mutable(node):
            raise UnsupportedModelError(
                f"{node.name} ({node.target}) changes a tensor in place inside the step"
            )
        tensors = tensors_of(val)
        shown = [self._value_at(t) for t in tensors]
        if not tensors or (all(s is None for s in shown) and not _returns_alias(node)):
            self._add_op(node, phase, val)
        elif _returns_alias(node) or all(s is not None for s in shown):
            self._add_view(node, val, shown)
        else:
            raise UnsupportedModelError(
                f"{node.name} ({node.target}) returns new memory together with that of an input"
            )

    def _add_view(self, node: fx.Node, val: Any, shown: list[int | None]) -> None:
        bases = [self.step.value_of[n] for n in node.all_input_nodes if n in self.step.value_of]
        bases += [v for n in node.all_input_nodes for v in self.elements.get(n, []) if v is not None]
        if not bases:
            raise UnsupportedModelError(f"{node.name} ({node.target}) is a view of nothing that is known")
        for value in shown:
            if value is not None and value not in bases:
                raise UnsupportedModelError(
                    f"{node.name} ({node.target}) shows memory that is none of its inputs'"
                )
        if isinstance(val, torch.Tensor):
            self.step.value_of[node] = bases[0] if shown[0] is None else shown[0]
        else:
            self.elements[node] = [
                (self._value_at(t) if self._value_at(t) is not None else bases[0])
                if isinstance(t, torch.Tensor)
                else None
                for t in val
            ]

    def _add_op(self, node: fx.Node, phase: str, val: Any) -> None:
        step = self.step
        op = Op(
            node.name,
            node,
            str(node.target),
            phase,
            self._inputs_of(node),
            [],
            recompute=may_run_twice(node),
            random=is_random(node),
            module=module_path(node),
        )
        if not tensors_of(val):
            op.recompute = False
        index = len(step.ops)
        if isinstance(val, torch.Tensor):
            step.value_of[node] = self._new_value(node.name, val)
            op.outputs.append(step.value_of[node])
        elif isinstance(val, (tuple, list)):
            elements: list[int | None] = []
            for i, item in enumerate(val):
                if isinstance(item, (tuple, list)):
                    raise UnsupportedModelError(f"{node.name} ({node.target}) returns nested sequences")
                if not isinstance(item, torch.Tensor):
                    elements.append(None)
                    continue
                value = self._value_at(item)
                if value is None:
                    value = self._new_value(f"{node.name}.{i}", item)
                    op.outputs.append(value)
                elements.append(value)
            self.elements[node] = elements
        self._link(op, index, node)
        step.op_of[node] = index
        step.ops.append(op)

    def _link(self, op: Op, index: int, node: fx.Node) -> None:
        """Order of random ops, and which forward op a backward op belongs to."""
        if op.random:
            if self.random_tail is not None:
                op.after.append(self.random_tail)
            self.random_tail = index
        seq = node.meta.get("seq_nr")
        if seq is None:
            return
        if op.phase == "forward":
            self.forward_by_seq.setdefault(seq, index)
        else:
            op.forward_of = self.forward_by_seq.get(seq)

    def _add_write(self, node: fx.Node, phase: str) -> None:
        """`copy_` into an input: reads the new value, runs once, after everything that reads the old one."""
        step = self.step
        buffer = arguments(node)[0]
        step.value_of[node] = step.value_of[buffer]
        inputs = [v for read in node.all_input_nodes if read is not buffer for v in self._leaves(read)]
        after = [step.clone_of_buffer[buffer]] if buffer in step.clone_of_buffer else []
        step.op_of[node] = len(step.ops)
        step.ops.append(
            Op(
                node.name,
                node,
                str(node.target),
                phase,
                sorted(set(inputs)),
                [],
                recompute=False,
                overwrites=buffer,
                after=after,
                module=module_path(node),
            )
        )

    def _add_loss(self, tangents: Sequence[fx.Node]) -> None:
        step = self.step
        reads = [
            v
            for n in step.forward_outputs
            if isinstance(n, fx.Node) and n in step.value_of
            for v in self._leaves(n)
        ]
        if step.replay is not None:
            reads.append(step.replay)
        step.loss = len(step.ops)
        writes = []
        for node in tangents:
            val = node.meta["val"]
            value = self._value_at(val)
            if value is None:
                value = self._new_value(node.name, val)
                writes.append(value)
            step.value_of[node] = value
        after = [i for i, op in enumerate(step.ops) if op.node is not None and not op.outputs]
        step.ops.append(
            Op(
                "loss",
                None,
                "remat.loss",
                "loss",
                list(dict.fromkeys(reads)),
                writes,
                recompute=False,
                after=after,
            )
        )

    def _is_small(self, node: Any) -> bool:
        value = self.step.value_of.get(node)
        return value is not None and self.step.values[value].bytes <= SMALL

    def _kept(self, tangents: Sequence[fx.Node]) -> list[int]:
        """Gradients, and what the caller holds: user outputs, and their gradients where somebody holds
        those.
        """
        step = self.step
        outputs, plain = step.forward_outputs, step.plain_outputs()
        shown = {step.value_of.get(outputs[position]) for position in plain}
        held = [
            node
            for position, node in enumerate(outputs)
            if (
                plain[position] not in step.use.dropped or self._is_small(node)
                if position in plain
                else isinstance(node, fx.Node) and step.value_of.get(node) not in shown
            )
        ]
        kept: dict[int, None] = {}
        tangents = [t for t in tangents if step.use.tangents_held or self._is_small(t)]
        for node in [*held, *step.backward_outputs, *tangents]:
            if isinstance(node, fx.Node) and node in step.value_of and step.value_of[node] not in step.inputs:
                kept.setdefault(step.value_of[node])
        if step.replay is not None and step.use.cut - step.use.dropped:
            kept[step.replay] = None
        return list(kept)


def _is_write_to_input(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and node.target is torch.ops.aten.copy_.default
        and isinstance(node.args[0], fx.Node)
        and node.args[0].op == "placeholder"
    )


def _ancestors(roots: Iterable[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found
