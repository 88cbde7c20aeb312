"""Run a call of a graph again, for gradients of outputs that were cut off from it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from ..base.devices import devices_in_use
from ..base.edges import positions_of, takers_of
from ..base.generators import generator_states, generators_kept, set_generator_states
from ..base.private import will_execute


class PreparedGradients:
    """Gradients to return in place of a planned backward.

    fits: True if it returns one gradient for each argument of the graph. taken: did the last backward return
    them?
    """

    def __init__(self) -> None:
        self.fits = self.taken = False
        self._gradients: list[Any] | None = None

    def note_results(self, results: int, arguments: int) -> None:
        self.fits = results == arguments

    def put(self, gradients: list[Any]) -> None:
        self._gradients = gradients

    def take(self) -> list[Any] | None:
        gradients, self._gradients = self._gradients, None
        self.taken = gradients is not None
        return gradients


class Replay:
    """A repeatable call of a graph.

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
        self.states = generator_states() if random else None
        self.autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in sorted({device.type for device in devices_in_use()})
        ]

    def wrap(
        self, results: Sequence[Any], cut: frozenset[int], planned: Any, prepared: PreparedGradients
    ) -> list[Any]:
        """The results; cut-off ones run the graph again if they get a gradient.

        planned: the node of the autograd graph that the call made, if any.
        """
        sources = [self.args[i] for i in self.sources]
        # The autograd graph holds the parameters, and notices if they change.
        self.args = [None if i in set(self.sources) else a for i, a in enumerate(self.args)]
        direct = {}
        for i, item in enumerate(results):
            if isinstance(item, torch.Tensor) and item.requires_grad:
                if item.grad_fn is not planned:
                    planned = None  # a view: its gradient reaches the planned backward as part of another
                else:
                    direct[item.output_nr] = i
        reached = positions_of(planned, takers_of(sources)).keys() if planned is not None else set()
        unreached = [i for i in range(len(sources)) if i not in reached]
        self.joined = _Joined(planned, direct, prepared, len(self.args), unreached)
        wrapped = [
            _LateGradient.apply(self, i, item, *sources) if i in cut else item
            for i, item in enumerate(results)
        ]
        self.joined.follow(wrapped[i].grad_fn for i in sorted(cut))
        return wrapped

    def gradients(
        self,
        given: Mapping[int, torch.Tensor],
        sources: Sequence[torch.Tensor],
        of: Sequence[int] | None = None,
    ) -> list[Any]:
        """Gradients of the sources, from those of outputs by index. of: of these alone, others are None."""
        args = list(self.args)
        leaves = [source.detach().requires_grad_() for source in sources]
        for i, leaf in zip(self.sources, leaves, strict=True):
            args[i] = leaf
        with ExitStack() as stack:
            stack.enter_context(generators_kept())
            stack.enter_context(torch.enable_grad())
            for kind, dtype, enabled in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, enabled))
            if self.states is not None:
                set_generator_states(self.states)
            outputs = self.gm(*args)
        graded, wanted = [outputs[i] for i in given], range(len(leaves)) if of is None else of
        found = torch.autograd.grad(
            graded, [leaves[i] for i in wanted], list(given.values()), allow_unused=True
        )
        by_index = dict(zip(wanted, found, strict=True))
        return [by_index.get(i) for i in range(len(leaves))]


class _Joined:
    """Joins the gradients of all outputs of a call, as eager mode sums them in one backward.

    Autograd visits the readers of outputs before the call itself, so late gradients are known when the
    planned backward runs. Then the graph runs again for all outputs, and the planned backward returns those
    gradients. Without a plan, the last late gradient runs the graph.

    unreached: sources that only outputs need which were cut off. AOTAutograd takes those that are no leaves
    off the planned backward, so the last late gradient runs the graph for them.
    """

    def __init__(
        self,
        planned: Any,
        direct: Mapping[int, int],
        prepared: PreparedGradients,
        arguments: int,
        unreached: Sequence[int],
    ) -> None:
        self._unreached = unreached
        self._planned = None if planned is None else weakref.ref(planned)
        self._direct, self._prepared, self._arguments = direct, prepared, arguments
        self._late: list[Any] = []
        self._arrived: dict[int, torch.Tensor] = {}
        self._seen: set[Any] = set()
        self._known: tuple[Replay, Sequence[torch.Tensor]] | None = None
        if planned is not None:
            planned.register_prehook(self._planned_is_due)

    def follow(self, late: Any) -> None:
        """late: the nodes of the outputs that were cut off."""
        self._late = [weakref.ref(node) for node in late]

    def arrived(
        self, replay: Replay, node: Any, index: int, gradient: Any, sources: Sequence[torch.Tensor]
    ) -> list[Any]:
        """Note a gradient; returns those of the sources if it is the last."""
        self._seen.add(id(node))
        if gradient is not None:
            self._arrived[index] = gradient
            self._known = replay, sources
        planned = None if self._planned is None else self._planned()
        joined = planned is not None and self._prepared.fits and will_execute(planned)
        nothing = [None] * len(sources)
        if joined and not self._unreached:
            return nothing
        late = (ref() for ref in self._late)
        if any(n is not None and id(n) not in self._seen and will_execute(n) for n in late):
            return nothing
        if not joined:
            return self._all({}) or nothing
        if self._known is None:
            return nothing
        given = dict(sorted(self._arrived.items()))
        return self._known[0].gradients(given, self._known[1], self._unreached)

    def _planned_is_due(self, gradients: Sequence[Any]) -> None:
        if self._known is None:
            self._seen.clear()
            return
        replay, _ = self._known
        direct = {i: gradients[nr] for nr, i in self._direct.items() if gradients[nr] is not None}
        found = self._all(direct)
        result: list[Any] = [None] * self._arguments
        for i, gradient in zip(replay.sources, found, strict=True):
            result[i] = gradient
        self._prepared.put(result)

    def _all(self, direct: Mapping[int, torch.Tensor]) -> list[Any]:
        """Run the graph again for all gradients that arrived, if any."""
        known, given = self._known, dict(sorted({**self._arrived, **direct}.items()))
        self._known, self._arrived, self._seen = None, {}, set()
        return [] if known is None else known[0].gradients(given, known[1])


class _LateGradient(torch.autograd.Function):
    """An output that never had a gradient; if it gets one, the graph runs again for it."""

    @staticmethod
    def forward(ctx: Any, replay: Replay, index: int, output: torch.Tensor, *sources: torch.Tensor) -> Any:
        ctx.replay, ctx.index = replay, index
        ctx.save_for_backward(*sources)
        ctx.set_materialize_grads(False)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if gradient is not None:
            ctx.replay.late(ctx.index)
        found = ctx.replay.joined.arrived(ctx.replay, ctx, ctx.index, gradient, ctx.saved_tensors)
        return None, None, None, *found
