"""Run a call of a graph again, for gradients of outputs that were cut off from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from ..base.nodes import cuda_devices
from .generators import generator_states, set_generator_states


class Replay:
    """A call of a graph that can be run again.

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
                set_generator_states(self.states)
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
