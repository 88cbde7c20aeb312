"""Device memory available to a step: budget="auto", and the state of optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import remat

from ..base.devices import runtime_of
from ..base.nodes import storage_bytes
from ..base.optimizers import is_of_pytorch, step_of, without_parameters
from ..base.private import FakeTensorMode
from ..base.units import format_bytes

# Rounds budgets: free memory varies a little between runs, but stored plans should be found again.
_STEPS_PER_DEVICE = 200


def auto_budget(device: torch.device, resident: int, reserve: int, margin: int | str) -> int:
    """Bytes for a step on an accelerator: all memory that this process has or could get there, less the
    margin and its memory outside the step.

    resident: bytes of the step that are allocated already.
    reserve: bytes of the budget for other uses, which may be allocated already: existing memory beside the
        step counts as these.
    Raises BudgetError if the device's memory is unknown, or too little is left.
    """
    runtime = runtime_of(device)
    memory = runtime.memory() if runtime.counts_memory else None
    if memory is None:
        raise remat.BudgetError(
            f'budget="auto" needs a device that says how much memory it has, such as CUDA; the model is on '
            f'{device}: give bytes, for example "6GiB"'
        )
    total, ours = memory.total, memory.free + memory.reserved
    beside = max(0, runtime.allocated() - resident)
    kept_free = 0 if margin == 0 else remat.parse_bytes(margin, keep_all_peak=total)
    budget = ours - max(0, beside - reserve) - kept_free
    unit = max(1, total // _STEPS_PER_DEVICE)
    budget = budget // unit * unit
    if budget <= 0:
        raise remat.BudgetError(
            f'budget="auto": of the {format_bytes(total)} of {device} this process can have '
            f"{format_bytes(ours)}, {format_bytes(beside)} of them are in use beside the step, and "
            f"{format_bytes(kept_free)} are to stay free: nothing is left"
        )
    return int(budget)


def optimizer_state_bytes(optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Bytes of the optimizer's state on a device type: existing state, and state that the first step will
    make.

    The latter is found by a step of a copy on fake tensors. Raises UsageError if that does not work.
    """
    state: Any = optimizer.state
    # By parameter: some optimizers keep state of their own beside it.
    present = {id(t): t for t in tree_leaves(dict(state)) if isinstance(t, torch.Tensor)}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    new = {p for p in parameters if p.requires_grad and not state.get(p)}
    made = _state_to_come(optimizer, new) if new else []
    tensors = [*present.values(), *made]
    return sum(storage_bytes(t) for t in tensors if t.device.type == device.type)


def _state_to_come(optimizer: torch.optim.Optimizer, new: set[torch.Tensor]) -> list[torch.Tensor]:
    try:
        return _fake_step(optimizer, new, {})
    except Exception:
        pass  # fused kernels may not run on fake tensors; the state is the same for others
    try:
        return _fake_step(optimizer, new, {"fused": False, "foreach": False})
    except Exception as error:
        raise remat.UsageError(
            f"the state that {type(optimizer).__name__} will have cannot be foreseen ({error}): "
            "give its bytes as reserve="
        ) from error


def _fake_step(
    optimizer: torch.optim.Optimizer, new: set[torch.Tensor], settings: dict[str, Any]
) -> list[torch.Tensor]:
    """The state that one step makes for some parameters."""
    made: list[torch.Tensor] = []
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    for group in optimizer.param_groups:
        parameters = [p for p in group["params"] if p in new]
        if not parameters:
            continue
        with mode:
            fakes = [_fake_parameter(p) for p in parameters]
        double = without_parameters(optimizer)
        double.param_groups = [{**{k: settings.get(k, v) for k, v in group.items()}, "params": fakes}]
        try:
            with mode:
                step_of(type(optimizer))(double)
        except Exception:
            # PyTorch's optimizers make all state before they compute, which some cannot do on fake tensors.
            if not is_of_pytorch(optimizer) or not all(double.state.get(p) for p in fakes):
                raise
        made += [t for t in tree_leaves(dict(double.state)) if isinstance(t, torch.Tensor)]
    return made


def _fake_parameter(parameter: torch.Tensor) -> torch.nn.Parameter:
    fake = torch.nn.Parameter(torch.empty_like(parameter, device=parameter.device))
    fake.grad = torch.empty_like(fake)
    return fake


def amount_of(budget: int | str) -> int | None:
    """The bytes of an absolute budget; None for a share of each step's need, and for "auto"."""
    try:
        return int(remat.parse_bytes(budget))
    except remat.BudgetError:
        return None


def is_amount(budget: int | str) -> bool:
    """True for an absolute budget, not a share of each step's need."""
    return budget == "auto" or amount_of(budget) is not None
