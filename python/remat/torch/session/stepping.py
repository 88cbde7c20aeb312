"""Optimizers that step inside the backward: of a parameter as soon as its gradient is there, which then ends.

Either `fit(..., optimizer=..., step="backward")` asks for it, or
`torch.distributed.optim._apply_optimizer_in_backward` has set it up. Both are hooks that autograd calls after
it has accumulated; where a planned backward steps by itself they find no gradient, and do nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

import remat

from ..base.optimizers import step_alone
from ..base.private import accumulate_hooks, has_tensor_hooks, optimizers_in_backward, refuse_clipping
from ..trace.gradients import STEPPED_KIND, End

_Group = Mapping[str, Any]
# Settings that say where an optimizer is, not what it does.
_NOT_LIKE = ("params", "lr", "initial_lr")


class StepHook:
    """Called after a gradient was accumulated: the parameter steps, and the gradient is dropped."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._groups: Any = None
        self._count = 0
        self._number: dict[int, int] = {}

    def __call__(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.step(parameter)

    def step(self, parameter: torch.Tensor) -> None:
        group = self.group(parameter)
        assert group is not None
        step_alone(self.optimizer, group, parameter, self.optimizer.state)
        parameter.grad = None

    def group(self, parameter: torch.Tensor) -> _Group | None:
        """That the parameter is in, as it is now: schedulers and `load_state_dict` change it."""
        groups: Any = self.optimizer.param_groups
        if groups is not self._groups or len(groups) != self._count:
            self._groups, self._count = groups, len(groups)
            self._number = {id(p): i for i, group in enumerate(groups) for p in group["params"]}
        number = self._number.get(id(parameter))
        return None if number is None else groups[number]

    def install(self) -> None:
        """On all parameters of the optimizer. Raises UsageError where another one steps there already."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                others = [h for h in accumulate_hooks(parameter) if isinstance(h, StepHook)]
                if not others:
                    parameter.register_post_accumulate_grad_hook(self)
                elif others[0].optimizer is not self.optimizer:
                    raise remat.UsageError(
                        'fit: step="backward": another optimizer steps in the backward for these parameters'
                    )
        refuse_clipping(_refuse_if_stepped)


def _refuse_if_stepped(parameters: Iterable[torch.Tensor]) -> None:
    if any(isinstance(hook, StepHook) for p in parameters for hook in accumulate_hooks(p)):
        raise remat.UsageError(
            'clipping by the norm of all gradients is impossible with step="backward": every parameter has '
            "stepped, and its gradient is gone, before the last gradient is known (leave out step=, or clip "
            "each gradient by itself in a hook: parameter.register_hook)"
        )


class Stepping:
    """Which parameters step in the backward, and how."""

    def __init__(self, optimizer: torch.optim.Optimizer | None) -> None:
        """optimizer: of step="backward"."""
        self.hook = StepHook(optimizer) if optimizer is not None else None

    def step_of(self, leaf: torch.Tensor) -> Callable[[torch.Tensor], None] | None:
        """What lets a parameter step and drops its gradient, where nothing else is to be done with it."""
        hooks = [hook for hook in accumulate_hooks(leaf) if not isinstance(hook, StepHook)]
        if has_tensor_hooks(leaf) or hooks or leaf.untyped_storage().nbytes() != leaf.nbytes:
            return None
        if self.hook is not None and self.hook.group(leaf) is not None:
            return self.hook.step
        optimizers = optimizers_in_backward(leaf)
        return partial(_step_with, optimizers) if optimizers else None

    def optimizers(self, parameters: Iterable[torch.Tensor]) -> list[torch.optim.Optimizer]:
        """Those that step inside the backward for some of these."""
        own = [self.hook.optimizer] if self.hook is not None else []
        return own + [each for p in parameters for each in optimizers_in_backward(p)]

    def end_of(self, leaf: torch.Tensor) -> End:
        """Of a parameter that steps."""
        pairs = self._pairs(leaf)
        like = "; ".join(
            f"{type(optimizer).__name__} {[(k, v) for k, v in sorted(group.items()) if k not in _NOT_LIKE]}"
            for optimizer, group in pairs
        )
        return End(STEPPED_KIND, like, True, partial(_step_alone_with, pairs, leaf))

    def _pairs(self, leaf: torch.Tensor) -> list[tuple[torch.optim.Optimizer, _Group]]:
        group = self.hook.group(leaf) if self.hook is not None else None
        if self.hook is not None and group is not None:
            return [(self.hook.optimizer, group)]
        return [(each, each.param_groups[0]) for each in optimizers_in_backward(leaf)]


def _step_with(optimizers: Iterable[torch.optim.Optimizer], leaf: torch.Tensor) -> None:
    for optimizer in optimizers:
        optimizer.step()
    leaf.grad = None


def _step_alone_with(
    pairs: Sequence[tuple[torch.optim.Optimizer, _Group]],
    leaf: torch.Tensor,
    gradient: torch.Tensor,
    parameter: torch.Tensor,
) -> Callable[[], None]:
    """The step of a leaf, on others of its kind. Some optimizers make their states when they are made."""
    stepped = torch.nn.Parameter(parameter)
    states: list[Any] = [defaultdict(dict) for _ in pairs]
    for (optimizer, _), state in zip(pairs, states, strict=True):
        for name, item in optimizer.state.get(leaf, {}).items():
            state[stepped][name] = item.clone() if isinstance(item, torch.Tensor) else item

    def step() -> None:
        stepped.grad = gradient
        for (optimizer, group), state in zip(pairs, states, strict=True):
            step_alone(optimizer, group, stepped, state)
        stepped.grad = None

    return step
