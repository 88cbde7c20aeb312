"""From the joint graph of PyTorch (forward and backward in one fx graph) to a Remat graph.

Values are storages: a view, a `getitem` or a `detach` is contracted into its storage, and emitted again next
to its readers when a plan is written (run/rewrite.py). The backward half cannot start before the caller has
computed the loss: the *loss boundary* is a separate op that reads the forward's outputs and makes the
tangents; there a plan is cut into two graphs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..base.devices import generator_bytes_held
from ..base.errors import UnplannableError
from ..base.nodes import (
    SMALL,
    arguments,
    dense_bytes,
    is_mutable,
    is_number,
    is_random,
    is_write_to_input,
    may_run_twice,
    module_path,
    returns_alias,
    source_line,
    storage_bytes,
    tensors_of,
)
from ..base.private import storage_id
from ..base.step import Op, OutputUse, StepGraph
from .gradients import end_of, takes_gradient
from .schedule import placeholders, schedule


def contract(gm: fx.GraphModule, num_forward_outputs: int, name: str, use: OutputUse) -> StepGraph:
    """Contract a joint graph. Raises UnplannableError if it contains something that a plan cannot express."""
    step = StepGraph(gm, num_forward_outputs, name, use)
    _Contraction(step).run()
    return step


class _Contraction:
    """State: the step so far; the value of each storage seen, and those of the elements of a tuple node."""

    def __init__(self, step: StepGraph) -> None:
        self.step = step
        self.nodes = list(step.gm.graph.nodes)
        self.storage_value: dict[int, int] = {}
        self.elements: dict[fx.Node, list[int | None]] = {}
        self.overwritten: set[fx.Node] = set()
        self.random_tail: int | None = None
        self.forward_by_seq: dict[int, int] = {}

    def run(self) -> None:
        step = self.step
        primals, tangents = placeholders(step.gm)
        forward, backward = schedule(step.gm, step.num_forward_outputs)
        for node in primals:
            self._add_input(node)
        for node in self.nodes:
            if node.op == "get_attr" and isinstance(self._attribute(node), torch.Tensor):
                self._add_input(node)
        self.overwritten = {arguments(n)[0] for n in forward + backward if is_write_to_input(n)}
        self._add_clones(forward + backward)
        self._add_replay(primals, forward)
        for node in forward:
            self._add(node, "forward")
        self._add_loss(tangents)
        for node in backward:
            self._add(node, "backward")
        step.keep(self._kept(tangents))
        self._make_held_outputs_once()

    def _attribute(self, node: fx.Node) -> Any:
        return operator.attrgetter(str(node.target))(self.step.gm)

    def _new_value(self, name: str, tensor: torch.Tensor, size: int | None = None) -> int:
        index = self.step.add_value(name, storage_bytes(tensor) if size is None else size)
        self.storage_value[storage_id(tensor)] = index
        return index

    def _value_at(self, tensor: torch.Tensor) -> int | None:
        return self.storage_value.get(storage_id(tensor))

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
        self.step.show(node, value)

    def _add_clones(self, nodes: Sequence[fx.Node]) -> None:
        """One clone per overwritten buffer, made before all ops, for recomputed readers.

        None if buffers are overwritten at the end: the planner of such a step ensures that no op reads later.
        """
        if self.step.use.at_end:
            return
        read = {n for node in nodes for n in node.all_input_nodes if not is_write_to_input(node)}
        for buffer in self.nodes:
            if buffer in self.overwritten and buffer in read:
                self.step.add_clone(buffer)

    def _add_replay(self, primals: Sequence[fx.Node], forward: Sequence[fx.Node]) -> None:
        """Generator states and overwritten inputs, for outputs that are cut off."""
        states = {tensors_of(n.meta["val"])[0].device.type for n in forward if is_random(n)}
        size = sum(generator_bytes_held(kind) for kind in states)
        size += sum(storage_bytes(n.meta["val"]) for n in primals if n in self.overwritten)
        if self.step.use.cut and size:
            self.step.add_replay(size)

    def _inputs_of(self, node: fx.Node) -> list[int]:
        """The storages a node reads, without repetition; overwritten buffers through their clone."""
        return list(dict.fromkeys(leaf for read in node.all_input_nodes for leaf in self._leaves(read)))

    def _leaves(self, node: fx.Node) -> list[int]:
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
        val = node.meta.get("val")
        if is_number(val):
            raise UnplannableError(f"{node.name} ({node.target}) depends on data or on symbolic sizes")
        if node.target is operator.getitem:
            self._add_element(node)
            return
        if is_write_to_input(node):
            self._add_write(node, phase)
            return
        if is_mutable(node):
            raise UnplannableError(f"{node.name} ({node.target}) changes a tensor in place inside the step")
        tensors = tensors_of(val)
        shown = [self._value_at(t) for t in tensors]
        # What shows a constant shows nobody's value.
        of_constants = all(each.op == "get_attr" for each in node.all_input_nodes)
        makes_all = all(s is None for s in shown) and not returns_alias(node)
        if not tensors or makes_all or of_constants:
            self._add_op(node, phase, val)
        elif returns_alias(node) or all(s is not None for s in shown):
            self._add_view(node, val, shown)
        else:
            raise UnplannableError(
                f"{node.name} ({node.target}) returns new memory together with that of an input"
            )

    def _add_element(self, node: fx.Node) -> None:
        source, index = arguments(node)
        self.step.add_element(node, source)
        element = self.elements[source][index]
        if element is not None:
            self.step.show(node, element)

    def _add_view(self, node: fx.Node, val: Any, shown: list[int | None]) -> None:
        bases = [self.step.value_of[n] for n in node.all_input_nodes if n in self.step.value_of]
        bases += [v for n in node.all_input_nodes for v in self.elements.get(n, []) if v is not None]
        if not bases:
            raise UnplannableError(f"{node.name} ({node.target}) is a view of nothing that is known")
        for value in shown:
            if value is not None and value not in bases:
                raise UnplannableError(
                    f"{node.name} ({node.target}) shows memory that is none of its inputs'"
                )
        if isinstance(val, torch.Tensor):
            self.step.show(node, bases[0] if shown[0] is None else shown[0])
        else:
            self.elements[node] = [
                (self._value_at(t) if self._value_at(t) is not None else bases[0])
                if isinstance(t, torch.Tensor)
                else None
                for t in val
            ]

    def _add_op(self, node: fx.Node, phase: str, val: Any) -> None:
        inputs, random = self._inputs_of(node), is_random(node)
        index = len(self.step.ops)
        self.step.add_op(
            Op(
                node.name,
                node,
                end_of(node).kind if takes_gradient(node) else str(node.target),
                phase,
                inputs,
                self._outputs_of(node, val),
                recompute=may_run_twice(node) and bool(tensors_of(val)),
                random=random,
                after=self._after_random(index) if random else [],
                module=module_path(node),
                source=source_line(node),
                forward_of=self._forward_of(node, phase, index),
            )
        )

    def _outputs_of(self, node: fx.Node, val: Any) -> list[int]:
        """The new values that a node makes."""
        if isinstance(val, torch.Tensor):
            return [self.step.show(node, self._new_value(node.name, val))]
        outputs: list[int] = []
        if not isinstance(val, (tuple, list)):
            return outputs
        elements: list[int | None] = []
        for i, item in enumerate(val):
            if isinstance(item, (tuple, list)):
                raise UnplannableError(f"{node.name} ({node.target}) returns nested sequences")
            found = self._value_at(item) if isinstance(item, torch.Tensor) else None
            if found is None and isinstance(item, torch.Tensor):
                found = self._new_value(f"{node.name}.{i}", item)
                outputs.append(found)
            elements.append(found)
        self.elements[node] = elements
        return outputs

    def _after_random(self, index: int) -> list[int]:
        """Random ops keep their order."""
        before, self.random_tail = self.random_tail, index
        return [] if before is None else [before]

    def _forward_of(self, node: fx.Node, phase: str, index: int) -> int | None:
        """The forward op of a backward op, if PyTorch tells."""
        seq = node.meta.get("seq_nr")
        if seq is None:
            return None
        if phase == "forward":
            self.forward_by_seq.setdefault(seq, index)
            return None
        return self.forward_by_seq.get(seq)

    def _add_write(self, node: fx.Node, phase: str) -> None:
        """`copy_` into an input: reads the new value, runs once, after everything that reads the old one."""
        step = self.step
        buffer = arguments(node)[0]
        value, clone = step.value_of[buffer], step.clone_of_buffer.get(buffer)
        readers = [i for i, op in enumerate(step.ops) if value in op.inputs]
        step.show(node, value)
        inputs = [v for read in node.all_input_nodes if read is not buffer for v in self._leaves(read)]
        step.add_op(
            Op(
                node.name,
                node,
                str(node.target),
                phase,
                sorted(set(inputs)),
                [],
                recompute=False,
                overwrites=buffer,
                after=readers if clone is None else [clone],
                module=module_path(node),
                source=source_line(node),
            )
        )

    def _add_loss(self, tangents: Sequence[fx.Node]) -> None:
        step = self.step
        reads = [v for n in step.forward_outputs if isinstance(n, fx.Node) for v in self._leaves_shown(n)]
        if step.replay is not None:
            reads.append(step.replay)
        writes = []
        for node in tangents:
            value = self._value_at(node.meta["val"])
            if value is None:
                # It is traced with the storage of the output, which may be larger than the tensor.
                tangent = node.meta["val"]
                size = min(storage_bytes(tangent), dense_bytes(tangent))
                value = self._new_value(node.name, tangent, size)
                writes.append(value)
            step.show(node, value)
        step.add_loss(reads, writes)

    def _leaves_shown(self, node: fx.Node) -> list[int]:
        return self._leaves(node) if node in self.step.value_of else []

    def _is_small(self, node: Any) -> bool:
        value = self.step.value_of.get(node)
        return value is not None and self.step.values[value].bytes <= SMALL

    def _kept(self, tangents: Sequence[fx.Node]) -> list[int]:
        """Kept values: gradients, user outputs that the caller holds, and their gradients if held."""
        step = self.step
        tangents = [t for t in tangents if step.use.tangents_held or self._is_small(t)]
        kept: dict[int, None] = {}
        for node in [*self._held_outputs(), *step.backward_outputs, *tangents]:
            if isinstance(node, fx.Node) and node in step.value_of and step.value_of[node] not in step.inputs:
                kept.setdefault(step.value_of[node])
        if step.replay is not None and step.use.cut - step.use.dropped:
            kept[step.replay] = None
        return list(kept)

    def _make_held_outputs_once(self) -> None:
        """Outputs held by the caller are never recomputed: they would exist twice. Also their inputs may have
        changed: parameters may have stepped by then (`End.writes`).
        """
        step = self.step
        if step.use.at_end:
            return
        held = {step.value_of[node] for node in self._held_outputs() if node in step.value_of}
        for op in step.ops:
            if not held.isdisjoint(op.outputs):
                step.run_once(op)

    def _held_outputs(self) -> list[Any]:
        """The user's outputs that are not dropped, and AOTAutograd's additional outputs that are no views of
        the user's.
        """
        step = self.step
        outputs, plain = step.forward_outputs, step.plain_outputs()
        shown = {step.value_of.get(outputs[position]) for position in plain}
        return [
            node
            for position, node in enumerate(outputs)
            if (
                plain[position] not in step.use.dropped or self._is_small(node)
                if position in plain
                else isinstance(node, fx.Node) and step.value_of.get(node) not in shown
            )
        ]
