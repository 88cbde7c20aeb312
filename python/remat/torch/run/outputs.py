"""What the caller does with the outputs of a graph, as far as memory depends on it.

Before the first backward it is not known which outputs the loss depends on and which the caller still holds
when the backward starts, so a plan counts a gradient for each, and each as held to the end. What the first
backward shows is planned for from the next step on: an output without a gradient is cut off from the graph,
an output that is not held is freed after the loss. If a later step does otherwise its gradients are right all
the same (`late_gradients`), and it is planned for from the next step on, for good.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ..base.nodes import SMALL, cuda_devices, is_tangent, output_node


@dataclass
class Usage:
    """What was seen of the outputs of a graph, by index.

    graded, held: outputs that got a gradient, and that were alive when a backward started; None before the
        first backward. tangents_held: was a gradient of an output alive after the backward?
    """

    graded: set[int] | None = None
    held: set[int] | None = None
    tangents_held: bool | None = None

    @classmethod
    def stated(cls, outputs: str | None, count: int) -> Usage:
        """What the option `outputs` says of a graph with `count` outputs."""
        if outputs is None:
            return cls()
        return cls(None, set(range(count)) if outputs == "held" else set(), outputs == "held")

    def without_gradient(self, differentiable: set[int]) -> frozenset[int]:
        return frozenset(differentiable - self.graded) if self.graded is not None else frozenset()

    def dropped(self, outputs: int) -> frozenset[int]:
        return frozenset(set(range(outputs)) - self.held) if self.held is not None else frozenset()

    def note(self, graded: set[int], held: set[int]) -> tuple[set[int], set[int]]:
        """Add what a backward shows; returns what is new: all, at first."""
        new = graded - (self.graded or set()), held - (self.held or set())
        self.graded = (self.graded or set()) | graded
        self.held = (self.held or set()) | held
        return new


def differentiable_outputs(gm: fx.GraphModule) -> set[int]:
    """Which outputs of a graph of Dynamo require a gradient."""
    outputs: Any = output_node(gm).args[0]
    vals = [n.meta.get("example_value") if isinstance(n, fx.Node) else None for n in outputs]
    return {i for i, val in enumerate(vals) if isinstance(val, torch.Tensor) and val.requires_grad}


def cut_off(gm: fx.GraphModule, outputs: frozenset[int]) -> fx.GraphModule:
    """The graph with these outputs detached, so that its backward has no gradient for them."""
    if not outputs:
        return gm
    graph = fx.Graph()
    node = output_node(gm)
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    returned: Any = node.args[0]
    values: list[Any] = []
    for i, item in enumerate(returned):
        value = copies[item] if isinstance(item, fx.Node) else item
        if i in outputs:
            value = graph.call_method("detach", (value,))
            with torch.no_grad():
                value.meta = {**item.meta, "example_value": item.meta["example_value"].detach()}
        values.append(value)
    graph.output(type(returned)(values)).meta = dict(node.meta)
    result = fx.GraphModule(gm, graph)
    result.meta = dict(gm.meta)
    return result


class Watch:
    """The outputs of one call, watched until its backward. Holds nothing alive."""

    def __init__(
        self, context: Any, results: Sequence[Any], note: Callable[[set[int], set[int]], None]
    ) -> None:
        self._note = note
        self._direct: dict[int, int] = {}
        self._reached: set[int] = set()
        self._refs: dict[int, tuple[Any, StorageWeakRef]] = {}
        self._context = weakref.ref(context)
        for i, item in enumerate(results):
            if not isinstance(item, torch.Tensor):
                continue
            self._refs[i] = weakref.ref(item), StorageWeakRef(item.untyped_storage())
            if item.grad_fn is context:
                self._direct[i] = item.output_nr
            elif item.grad_fn is not None:  # a view of an output
                item.grad_fn.register_prehook(_adding(self._reached, i))
        context.register_prehook(self._started)

    def _started(self, gradients: Sequence[Any]) -> None:
        graded = {i for i, position in self._direct.items() if gradients[position] is not None}
        self._note(graded | self._reached, {i for i in self._refs if self._is_held(i)})

    def _is_held(self, index: int) -> bool:
        tensor, storage = self._refs[index]
        if tensor() is not None:
            return True
        if storage.expired():
            return False
        context = self._context()
        # The backward's own saved tensors hold no output for the caller.
        return context is None or all(
            saved.untyped_storage()._cdata != storage.cdata
            for saved in context.saved_tensors
            if isinstance(saved, torch.Tensor)
        )


def _adding(target: set[int], index: int) -> Callable[[Any], None]:
    def add(gradients: Any) -> None:
        target.add(index)

    return add


def watch_tangents(
    run: Callable[[list[Any]], Any], gm: fx.GraphModule, note: Callable[[bool], None]
) -> Callable[[list[Any]], Any]:
    """The backward half, which tells at its end whether somebody still holds a gradient of an output."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    positions = [i for i, node in enumerate(placeholders) if is_tangent(node)]

    def watched(args: list[Any]) -> Any:
        storages = [args[i].untyped_storage() for i in positions]
        refs = [StorageWeakRef(storage) for storage in storages if storage.nbytes() > SMALL]
        del storages
        results = run(args)
        own = {t.untyped_storage()._cdata for t in results if isinstance(t, torch.Tensor)}
        note(any(not ref.expired() and ref.cdata not in own for ref in refs))
        return results

    watched._boxed_call = True  # type: ignore[attr-defined]
    return watched


class Replay:
    """A call of a graph that can be run again, for gradients of outputs that were cut off from it.

    Taken before the call: the state of the generators, autocast, and clones of the inputs that the graph
    overwrites.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        args: Sequence[Any],
        overwritten: set[int],
        random: bool,
        late: Callable[[int], None],
    ) -> None:
        self.gm, self.late = gm, late
        self.args = [a.detach().clone() if i in overwritten else a for i, a in enumerate(args)]
        self.sources = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]
        self.states = _generator_states() if random else None
        self.autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in ("cpu", "cuda")
        ]

    def wrap(self, results: Sequence[Any], cut: frozenset[int]) -> tuple[Any, ...]:
        sources = [self.args[i] for i in self.sources]
        # Parameters are held by the autograd graph, which notices if they change.
        self.args = [None if i in set(self.sources) else a for i, a in enumerate(self.args)]
        return tuple(
            _LateGradient.apply(self, i, item, *sources) if i in cut else item
            for i, item in enumerate(results)
        )

    def gradients(self, index: int, gradient: torch.Tensor, sources: Sequence[torch.Tensor]) -> list[Any]:
        args = list(self.args)
        leaves = [source.detach().requires_grad_() for source in sources]
        for i, leaf in zip(self.sources, leaves, strict=True):
            args[i] = leaf
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=cuda_devices()))
            stack.enter_context(torch.enable_grad())
            for kind, dtype, enabled in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            if self.states is not None:
                _set_generator_states(self.states)
            output = self.gm(*args)[index]
        return list(torch.autograd.grad(output, leaves, gradient, allow_unused=True))


class _LateGradient(torch.autograd.Function):
    """An output that never had a gradient; if it gets one after all, the graph is run again for it."""

    @staticmethod
    def forward(ctx: Any, replay: Replay, index: int, output: torch.Tensor, *sources: torch.Tensor) -> Any:
        ctx.replay, ctx.index = replay, index
        ctx.save_for_backward(*sources)
        ctx.set_materialize_grads(False)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        sources = ctx.saved_tensors
        if gradient is None:
            return (None,) * (3 + len(sources))
        ctx.replay.late(ctx.index)
        return None, None, None, *ctx.replay.gradients(ctx.index, gradient, sources)


def _generator_states() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in cuda_devices()]


def _set_generator_states(states: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(cuda_devices(), states[1], strict=False):
        torch.cuda.set_rng_state(state, device)
