"""Optimizers that step inside the backward: each parameter as soon as its gradient is ready, which is then
freed.

Set up by `fit(..., optimizer=..., step="backward")` or by
`torch.distributed.optim._apply_optimizer_in_backward`. Both install hooks that autograd calls after
accumulation; if a planned backward itself steps, they find no gradient and do nothing.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import torch

import remat

from ..base.optimizers import step_alone
from ..base.private import (
    accumulate_hooks,
    has_tensor_hooks,
    optimizers_in_backward,
    refuse_clipping,
    tensor_hooks,
)
from ..trace.gradients import STEPPED_KIND, End

_Group = Mapping[str, Any]
# Settings that are state, not hyperparameters.
_NOT_LIKE = ("params", "lr", "initial_lr")


class StepHook:
    """Called after a gradient was accumulated: the parameter steps, and the gradient is dropped.

    Parameters hold their hooks out of the garbage collector's reach, so a hook that held its optimizer would
    leak it. The fitted model holds the optimizer; without it the hook does nothing.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._seen: tuple[int, int] | None = None
        self._number: dict[int, int] = {}

    def __call__(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.step(parameter)

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer; None once it was garbage collected."""
        return self._optimizer()

    def step(self, parameter: torch.Tensor) -> None:
        optimizer, group = self.optimizer, self.group(parameter)
        if optimizer is None:
            return
        assert group is not None
        step_alone(optimizer, group, parameter, optimizer.state)
        parameter.grad = None

    def group(self, parameter: torch.Tensor) -> _Group | None:
        """The parameter's current group: schedulers and `load_state_dict` change it."""
        optimizer = self.optimizer
        if optimizer is None:
            return None
        groups: Any = optimizer.param_groups
        if self._seen != (id(groups), len(groups)):
            self._seen = id(groups), len(groups)
            self._number = {id(p): i for i, group in enumerate(groups) for p in group["params"]}
        number = self._number.get(id(parameter))
        return None if number is None else groups[number]

    def install(self) -> None:
        """Installs hooks on all parameters of the optimizer. Raises UsageError if another optimizer steps
        there already."""
        optimizer = self.optimizer
        for group in optimizer.param_groups if optimizer is not None else ():
            for parameter in group["params"]:
                others = [h for h in accumulate_hooks(parameter) if _may_step(h)]
                if not others:
                    parameter.register_post_accumulate_grad_hook(self)
                elif others[0].optimizer is not optimizer:
                    raise remat.UsageError(
                        'fit: step="backward": another optimizer steps in the backward for these parameters'
                    )
        refuse_clipping(_refuse_if_stepped)


def hooks_out_of_order(parameters: Iterable[torch.Tensor]) -> str | None:
    """Why what hooks of parameters do may differ from eager mode in a traced step; None if it does not.

    Its backward returns all gradients at its end, and autograd calls the hooks in an order of its own. That
    of one hook, and of optimizers that step in the backward, does not matter.
    """
    count = sum(p.requires_grad and any(tensor_hooks(p)) and _have_an_order(p) for p in parameters)
    if count < 2:
        return None
    return (
        f"hooks of {count} parameters run at the end of a traced backward, in another order than in eager "
        "mode: what they draw or count can differ"
    )


def _have_an_order(parameter: torch.Tensor) -> bool:
    """Of its hooks."""
    others = any(not isinstance(hook, StepHook) for hook in accumulate_hooks(parameter))
    return has_tensor_hooks(parameter) or (others and not optimizers_in_backward(parameter))


def _may_step(hook: object) -> TypeGuard[StepHook]:
    return isinstance(hook, StepHook) and hook.optimizer is not None


def _refuse_if_stepped(parameters: Iterable[torch.Tensor]) -> None:
    if any(_may_step(hook) for p in parameters for hook in accumulate_hooks(p)):
        raise remat.UsageError(
            'clipping by the norm of all gradients is impossible with step="backward": every parameter has '
            "stepped, and its gradient is gone, before the last gradient is known (leave out step=, or clip "
            "each gradient by itself in a hook: parameter.register_hook)"
        )


class Stepping:
    """Which parameters step in the backward, and how."""

    def __init__(self, optimizer: torch.optim.Optimizer | None) -> None:
        """optimizer: of step="backward"."""
        self._optimizer = optimizer
        self.hook = StepHook(optimizer) if optimizer is not None else None

    def step_of(self, leaf: torch.Tensor) -> Callable[[torch.Tensor], None] | None:
        """The function that steps a parameter and drops its gradient, if the gradient has no other use."""
        hooks = [hook for hook in accumulate_hooks(leaf) if not isinstance(hook, StepHook)]
        if has_tensor_hooks(leaf) or hooks or leaf.untyped_storage().nbytes() != leaf.nbytes:
            return None
        if self.hook is not None and self.hook.group(leaf) is not None:
            return self.hook.step
        optimizers = optimizers_in_backward(leaf)
        return partial(_step_with, optimizers) if optimizers else None

    def optimizers(self, parameters: Iterable[torch.Tensor]) -> list[torch.optim.Optimizer]:
        """Optimizers that step inside the backward for some of these."""
        own = [self._optimizer] if self._optimizer is not None else []
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
        if self._optimizer is not None and group is not None:
            return [(self._optimizer, group)]
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
    """The step of a leaf, for others of its kind. Some optimizers make their states at construction."""
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
