"""Writes a plan as a forward and a backward graph, with every step a node, in plan order.

An argument reads the newest instance of its value. Values that the backward half reads and has not computed
itself are saved tensors. Views are emitted again next to their readers, so that storages, not views, are
saved.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

import remat

from ..base.devices import generator_bytes
from ..base.errors import UnsupportedModelError
from ..base.nodes import module_of, output_node, tensors_of
from ..base.private import (
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
    detect_fake_mode,
    is_tangent,
    rng_prims,
)
from ..base.step import Op, StepGraph
from ..trace.gradients import end_of, takes_gradient, touched
from ..trace.inplace import over
from ..trace.kernels import kernel_of
from .copies import Copies
from .generators import run_and_save_rng, run_with_rng
from .places import TOKEN, Places, check_places, mark_saved, no_token
from .views import shows_the_same

aten = torch.ops.aten


@dataclass
class Halves:
    """The two graphs of a plan."""

    forward: fx.GraphModule
    backward: fx.GraphModule


def rewrite(
    step: StepGraph,
    steps: Sequence[int],
    overwrites: Collection[int] = (),
    for_compiler: bool = False,
    copies: Copies | None = None,
    places: Places | None = None,
) -> Halves:
    """The forward and backward graph that run `steps` (op indices, one occurrence of the loss among them).

    overwrites: positions of steps whose result is written over an argument.
    for_compiler: in PyTorch's own operators only.
    copies: to a host and back between the steps; the values that `step.copyable` names.
    places: of results in one allocation.
    """
    return _Rewriter(step, steps, overwrites, for_compiler, copies, places).run()


class _Half:
    """One graph under construction: the nodes in it that hold the newest instances.

    inputs: placeholders of the joint graph -> placeholders here.
    made: node of an op, its getitems, placeholders and constants of the joint graph -> node here.
    views: view in the joint graph -> (instance of its storage, node here).
    states: random op -> node here that holds the generator's state from before its first run.
    root: view, getitem or overwriting node here -> node here whose memory it has.
    written: overwriting nodes.
    same: description of a view -> that view, so that none is made twice of the same instance.
    call: node here that holds the call's state of copies.
    """

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.inputs: dict[fx.Node, fx.Node] = {}
        self.made: dict[fx.Node, fx.Node] = {}
        self.views: dict[fx.Node, tuple[int, fx.Node]] = {}
        self.states: dict[int, fx.Node] = {}
        self.root: dict[fx.Node, fx.Node] = {}
        self.written: set[fx.Node] = set()
        self.same: dict[Any, fx.Node] = {}
        self.call: fx.Node | None = None

    def placeholder(self, node: fx.Node) -> None:
        new = self.graph.placeholder(node.name)
        new.meta = dict(node.meta)
        self.inputs[node] = self.made[node] = new

    def holder(self, node: fx.Node) -> fx.Node:
        """The node whose memory it has."""
        while node in self.root:
            node = self.root[node]
        return node

    def check_overwrites(self) -> None:
        """Checks that no later node reads overwritten memory."""
        place = {node: i for i, node in enumerate(self.graph.nodes)}
        since: dict[fx.Node, int] = {}
        for node, i in place.items():
            for read in node.all_input_nodes:
                if place[read] < since.get(self.holder(read), 0):
                    raise AssertionError(f"{node.name} reads {read.name}, which was written over")
            if node in self.written:
                since[self.holder(node)] = i


class _Rewriter:
    def __init__(
        self,
        step: StepGraph,
        steps: Sequence[int],
        overwrites: Collection[int],
        for_compiler: bool,
        copies: Copies | None,
        places: Places | None,
    ) -> None:
        self.step = step
        self.for_compiler = for_compiler
        self.steps = list(steps)
        self.overwrites = overwrites
        self.position = 0
        self.half = self.forward = _Half()
        self.backward = _Half()
        self.instance = [0] * len(step.values)
        self.runs = Counter(self.steps)
        # Getitems of each op, in the order of the joint graph.
        self.parts: dict[int, list[fx.Node]] = {}
        for node, index in step.op_of.items():
            if node.target is operator.getitem:
                self.parts.setdefault(index, []).append(node)
        # Node of the forward half -> placeholder in the backward half.
        self.saved: dict[fx.Node, fx.Node] = {}
        self.clones = self._clones_needed()
        # Made outside the graphs.
        self.replays = {i for i, op in enumerate(step.ops) if step.replay in op.outputs}
        self.fake_mode: Any = detect_fake_mode([n.meta.get("val") for n in step.gm.graph.nodes])
        self.copies, self.places = copies, places
        # By number of an issued copy: its tensor, in the half that issued it.
        self.copied: dict[int, fx.Node] = {}
        self.no_check = {
            step.value_of[n]
            for n in step.gm.graph.nodes
            if n.meta.get("saved_tensor_with_no_vc_check", False) and n in step.value_of
        }

    def _check_reads(self) -> None:
        """Checks that no node reads a parameter after an optimizer wrote to it in the same step."""
        written: set[int] = set()
        for position, index in enumerate(self.steps):
            op = self.step.ops[index]
            if not written.isdisjoint(op.inputs):
                raise remat.PlanError(
                    f"step {position} of the plan ({op.name}) reads a parameter after its optimizer's step"
                )
            if op.node is not None and takes_gradient(op.node) and end_of(op.node).writes:
                written.add(self.step.value_of[touched(op.node)[1]])

    def run(self) -> Halves:
        step = self.step
        self._check_reads()
        cut = self.steps.index(step.loss)
        placeholders = step.gm.graph.find_nodes(op="placeholder")
        tangents = [n for n in placeholders if is_tangent(n)]
        for node in placeholders:
            (self.backward if is_tangent(node) else self.forward).placeholder(node)
        if self.copies is not None:
            self.half.call = self._copy_call(self.copies.begin())
        for position in range(cut):
            self._copies_before(position)
            self._emit(position)
            self._copies_after(position)
        self._copies_before(cut)
        if self.places is not None:
            self._save_token()
        outputs = [self._result(n) for n in step.forward_outputs]
        self.half = self.backward
        self._copies_after(cut)
        for position in range(cut + 1, len(self.steps)):
            self._copies_before(position)
            self._emit(position)
            self._copies_after(position)
        self._copies_before(len(self.steps))
        gradients = [self._result(n) for n in step.backward_outputs]
        return self._finish(outputs, gradients, tangents)

    def _clones_needed(self) -> set[int]:
        """Clones of overwritten buffers that a later step reads; others are not made."""
        step = self.step
        written: dict[int, int] = {}
        needed: set[int] = set()
        for index in self.steps:
            op = step.ops[index]
            needed.update(written[v] for v in op.inputs if v in written)
            if op.overwrites is not None and op.overwrites in step.clone_of_buffer:
                clone = step.clone_of_buffer[op.overwrites]
                written[step.ops[clone].outputs[0]] = clone
        return needed

    def _emit(self, position: int) -> None:
        self.position, index = position, self.steps[position]
        op, half = self.step.ops[index], self.half
        if op.clone_of is not None:
            if index in self.clones:
                # From here on every reader of the buffer sees the clone.
                half.made[op.clone_of] = self._call(
                    aten.clone.default, (half.inputs[op.clone_of],), {}, op.clone_of
                )
            return
        node = op.node
        if index in self.replays:
            return
        if node is None:
            raise AssertionError("the loss boundary runs once, between the halves")
        if op.overwrites is not None:
            # The write itself goes to the buffer, never to its clone.
            args = (half.inputs[op.overwrites], *fx.map_arg(node.args[1:], self._fetch))
            half.made[node] = self._call(node.target, args, fx.map_arg(node.kwargs, self._fetch), node)
            half.root[half.made[node]] = half.inputs[op.overwrites]
            return
        args, kwargs = fx.map_arg(node.args, self._fetch), fx.map_arg(node.kwargs, self._fetch)
        if position in self.overwrites:
            half.made[node] = result = self._write_over(op, node, args)
        else:
            half.made[node] = result = self._run_op(index, op, node, args, kwargs)
            if self.places is not None:
                self.places.mark(result, op, index, position)
        if takes_gradient(node):
            half.root[result] = args[0]  # which it may hand on
        first: dict[int, fx.Node] = {}
        for part in self.parts.get(index, ()):
            half.made[part] = new = self._call(operator.getitem, (result, part.args[1]), {}, part)
            # Parts of a result have their own memory, unless they show the same value.
            holder = first.setdefault(self.step.value_of.get(part, -1), new)
            if holder is not new:
                half.root[new] = holder
        for value in op.outputs:
            self.instance[value] += 1

    def _save_token(self) -> None:
        """Saves the token that tells the backward half where the forward's results are."""
        token = self.forward.graph.call_function(no_token)
        with self.fake_mode:
            token.meta.update({"val": torch.empty(0, dtype=torch.uint8), TOKEN: True})
        self._save(token)

    def _write_over(self, op: Op, node: fx.Node, args: tuple[Any, ...]) -> fx.Node:
        assert op.over is not None
        half, (_, index) = self.half, op.over
        holder = half.holder(args[index])
        result = self._call(over(node, index, saved=holder.op == "placeholder"), args, {}, node)
        half.root[result] = holder
        half.written.add(result)
        return result

    def _copies_before(self, position: int) -> None:
        """Emits the copies between the last step and this one: first those that free memory, then those that
        take it."""
        copies = self.copies
        if copies is None:
            return
        for number in copies.at("out", "wait", position):
            tensor = self._here(self.copied[number])
            self._copy_call(copies.wait(number), self._call_state(), tensor)
            self._forget(self._copied_node(number), self.copied[number])
        for number in copies.at("in", "issue", position):
            origin = self._copied_node(number)
            new = self._copy_call(copies.issue_in(number), self._call_state())
            new.meta.update(origin.meta)
            if position < len(self.steps):
                new.meta["remat_position"] = position
            self.half.made[origin] = self.copied[number] = new
            self.instance[copies.steps[number][0]] += 1
        for number in copies.at("in", "wait", position):
            self._copy_call(copies.wait(number), self._call_state(), self._here(self.copied[number]))

    def _copies_after(self, position: int) -> None:
        copies = self.copies
        if copies is None:
            return
        for number in copies.at("out", "issue", position):
            self.copied[number] = tensor = self._fetch(self._copied_node(number))
            self._copy_call(copies.issue_out(number), self._call_state(), tensor)

    def _copied_node(self, number: int) -> fx.Node:
        """The node of the joint graph that the copy is of."""
        assert self.copies is not None
        return (self.step.copyable or {})[self.copies.steps[number][0]]

    def _copy_call(self, target: Any, *args: fx.Node) -> fx.Node:
        """Emits a node that belongs to no step of the plan."""
        node = self.half.graph.call_function(target, args)
        node.meta["remat_copy"] = True
        return node

    def _call_state(self) -> fx.Node:
        half, copies = self.half, self.copies
        assert copies is not None
        if half.call is None:
            assert self.forward.call is not None
            token = self.forward.graph.call_function(copies.token(), (self.forward.call,))
            with self.fake_mode:
                token.meta["val"] = torch.empty(1, dtype=torch.int64)
            half.call = self._copy_call(copies.resume(), self._save(token))
        return half.call

    def _here(self, node: fx.Node) -> fx.Node:
        """A node of the forward half, or its placeholder in the backward half."""
        return node if node.graph is self.half.graph else self._save(node)

    def _forget(self, origin: fx.Node, left: fx.Node) -> None:
        """Forgets the evicted instance, unless a newer one of its value exists."""
        for half in (self.forward, self.backward):
            known = half.made.get(origin)
            if known is not None and left in (known, self.saved.get(known)):
                del half.made[origin]

    def _run_op(self, index: int, op: Op, node: fx.Node, args: Any, kwargs: Any) -> fx.Node:
        if not op.random or self.runs[index] == 1:
            return self._call(node.target, args, kwargs, node)
        device = tensors_of(node.meta["val"])[0].device
        if not self._has_state(index):
            call = self._call(*self._saving(node.target, str(device), args), kwargs, None)
            state = self._call(operator.getitem, (call, 0), {}, None)
            with self.fake_mode:
                state.meta["val"] = torch.empty(generator_bytes(device.type), dtype=torch.uint8)
            self.half.states[index] = state
            return self._call(operator.getitem, (call, 1), {}, node)
        state = self._state(index)
        if self.for_compiler:
            return self._call(rng_prims.run_with_rng_state, (state, node.target, *args), kwargs, node)
        return self._call(run_with_rng, (state, node.target, str(device), *args), kwargs, node)

    def _saving(self, target: Any, device: str, args: Any) -> tuple[Any, Any]:
        if self.for_compiler:
            return rng_prims.run_and_save_rng_state, (target, *args)
        return run_and_save_rng, (target, device, *args)

    def _has_state(self, index: int) -> bool:
        return index in self.forward.states or index in self.backward.states

    def _state(self, index: int) -> fx.Node:
        if index not in self.half.states:
            self.half.states[index] = self._save(self.forward.states[index])
        return self.half.states[index]

    def _call(self, target: Any, args: Any, kwargs: Any, origin: fx.Node | None) -> fx.Node:
        callee = target if self.for_compiler else kernel_of(target)
        new = self.half.graph.call_function(callee, tuple(args), kwargs)
        if origin is not None:
            new.meta = dict(origin.meta)
        new.meta["remat_position"] = self.position
        return new

    def _result(self, node: Any) -> Any:
        """A result of a half. Two results may share memory, but are never the same tensor."""
        return self._fetch(node, exact=True) if isinstance(node, fx.Node) else node

    def _fetch(self, node: fx.Node, exact: bool = False) -> Any:
        """The node of the current half that holds the newest instance of `node` of the joint graph."""
        half, step = self.half, self.step
        if node.op == "get_attr":
            if node not in half.made:
                half.made[node] = half.graph.get_attr(str(node.target))
                half.made[node].meta = dict(node.meta)
            return half.made[node]
        if node.op == "placeholder" and isinstance(node.meta.get("val"), (int, float, bool)):
            return node.meta["val"]
        if node.op == "placeholder" or node in step.op_of:
            if node not in half.made:
                if half is self.forward:
                    raise AssertionError(f"{node.name} is read before any step made it")
                if isinstance(node.meta.get("val"), (tuple, list)):
                    raise UnsupportedModelError(f"the tuple {node.name} is read as a whole across the loss")
                half.made[node] = self._save(self.forward.made[node])
            return half.made[node]
        if not exact and shows_the_same(node):
            return self._fetch(node.all_input_nodes[0])
        return self._view(node, exact)

    def _view(self, node: fx.Node, exact: bool) -> fx.Node:
        """A view (or a getitem of a tuple of views), emitted again if its storage has a newer instance."""
        value = self.step.value_of.get(node)
        now = self.instance[value] if value is not None else sum(self.instance[v] for v in self._shown(node))
        known = self.half.views.get(node)
        if known is not None and known[0] == now and not exact:
            return known[1]
        args, kwargs = fx.map_arg(node.args, self._fetch), fx.map_arg(node.kwargs, self._fetch)
        key = repr((node.target, args, kwargs))
        new = self.half.same.get(key) if not exact else None
        if new is None:
            new = self._call(node.target, args, kwargs, node)
            self.half.root.update((new, base) for base in new.all_input_nodes[:1])
            self.half.same.setdefault(key, new)
        self.half.views[node] = (now, new)
        return new

    def _shown(self, node: fx.Node) -> set[int]:
        return {self.step.value_of[n] for n in node.all_input_nodes if n in self.step.value_of}

    def _save(self, made: fx.Node) -> fx.Node:
        """A tensor that the forward half hands to the backward half."""
        if made not in self.saved:
            graph = self.backward.graph
            head = next(iter(graph.nodes), None)
            with graph.inserting_before(head) if head is not None else nullcontext():
                # A unique name, by which generated code reads the argument.
                new = graph.placeholder(f"saved_{len(self.saved)}")
            new.meta = dict(made.meta)
            self.saved[made] = new
        return self.saved[made]

    def _finish(self, outputs: list[Any], gradients: list[Any], tangents: list[fx.Node]) -> Halves:
        """Outputs in the order the autograd runtime wants: checked saved tensors first, then those without
        check.
        """
        step = self.step
        shown = {made: step.value_of.get(node, -1) for node, made in self.forward.made.items()}
        unchecked = [n for n in self.saved if shown.get(n, -1) in self.no_check]
        checked = [n for n in self.saved if n not in set(unchecked)]
        for made in self.saved:
            mark_saved(made, self.forward.holder(made))
            made.meta["saved_tensor_with_no_vc_check"] = made in set(unchecked)
        saved = checked + unchecked
        # Placeholders of the backward: saved tensors, then tangents.
        _place_first(
            self.backward.graph, [self.saved[n] for n in saved] + [self.backward.inputs[n] for n in tangents]
        )
        output = output_node(step.gm)
        descriptions = (
            list(output.meta["desc"]) if "desc" in output.meta else [None] * (len(outputs) + len(gradients))
        )
        forward_out = self.forward.graph.output((*outputs, *saved))
        forward_out.meta["desc"] = [
            *descriptions[: step.num_forward_outputs],
            *(SavedForBackwardsAOTOutput(i) for i in range(len(checked))),
            *(SavedForBackwardsNoVcCheckAOTOutput(i) for i in range(len(checked), len(saved))),
        ]
        backward_out = self.backward.graph.output(tuple(gradients))
        backward_out.meta["desc"] = descriptions[step.num_forward_outputs :]
        for half in (self.forward, self.backward):
            half.check_overwrites()
            half.graph.lint()
        if self.places is not None:
            forward, backward = ((half.graph, half.holder) for half in (self.forward, self.backward))
            check_places(forward, backward, self.saved)
        final = not self.for_compiler
        graphs = (self.forward.graph, self.backward.graph)
        return Halves(*(module_of(step.gm, graph, final) for graph in graphs))


def _place_first(graph: fx.Graph, order: Sequence[fx.Node]) -> None:
    """Move placeholders to the head of a graph, in this order."""
    for node in reversed(order):
        head = next(iter(graph.nodes))
        if head is not node:
            head.prepend(node)
