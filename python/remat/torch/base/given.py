"""Checks of users' arguments: is it a model, and can it be called with these inputs?"""

from __future__ import annotations

import inspect
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

import remat

from .private import FakeTensor, changes_arguments, is_traceable_wrapper_subclass
from .storages import has_data

_ORDINARY = (torch.Tensor, torch.nn.Parameter)


def check_step(model: Any, sample_inputs: Any, loss: Any, runs: bool = True) -> None:
    """Raises UsageError if these do not make a training step. runs: whether the step has to run, which needs
    memory."""
    check_model(model)
    if runs:
        _check_memory(model, sample_inputs)
    check_call(model, sample_inputs)
    check_loss(loss)


def check_model(model: Any) -> None:
    """Raises UsageError unless it is a model that can be called and whose parameters have shapes."""
    if not isinstance(model, torch.nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"of type {type(model).__name__}"
        raise remat.UsageError(f"the model is {kind}: it has to be a torch.nn.Module")
    forward = inspect.getattr_static(type(model), "forward", None)
    if forward is torch.nn.Module.forward and "forward" not in vars(model):
        raise remat.UsageError(f"the model, a {type(model).__name__}, has no forward")
    lazy = next((name for name, each in model.named_parameters() if is_lazy(each)), None)
    if lazy is not None:
        raise remat.UsageError(
            f"the model's parameter {lazy} has no shape yet: call the model once before (torch.nn.LazyLinear "
            "and its like learn theirs from the first inputs)"
        )


def arguments_in(sample_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call: a tuple or list is positional, a mapping is by keyword, anything else is a
    single argument."""
    if isinstance(sample_inputs, Mapping):
        return (), dict(sample_inputs)
    if isinstance(sample_inputs, (tuple, list)):
        return tuple(sample_inputs), {}
    return (sample_inputs,), {}


def as_traced(args: Sequence[Any]) -> tuple[Any, ...]:
    """Replaces tensors of subclasses that only override functions of torch by plain ones: PyTorch traced
    their effects, and would refuse them when the graph runs.
    """
    return tuple(a.as_subclass(torch.Tensor) if _is_only_named(a) else a for a in args)


def _is_only_named(item: Any) -> bool:
    if type(item) in _ORDINARY or not isinstance(item, torch.Tensor):
        return False
    return not (isinstance(item, (FakeTensor, torch.nn.Parameter)) or is_traceable_wrapper_subclass(item))


def check_call(model: torch.nn.Module, sample_inputs: Any) -> None:
    """Raises UsageError if the model cannot be called with such arguments: wrong number or names."""
    if any(t.is_quantized for t in tree_leaves(sample_inputs) if isinstance(t, torch.Tensor)):
        raise remat.UsageError("a sample input is a quantized tensor, which no training step takes")
    if changes_arguments(model) or type(model).__call__ is not torch.nn.Module.__call__:
        return  # pre-hooks may change them
    args, kwargs = arguments_in(sample_inputs)
    if why := _misfit(model.forward, *args, **kwargs):
        raise remat.UsageError(
            f"the sample inputs do not go with {type(model).__name__}.forward: {why} (a tuple or list is "
            "positional arguments, a mapping named ones, all else one argument)"
        )


def _misfit(function: Any, /, *args: Any, **kwargs: Any) -> str | None:
    """Why a function cannot be called with these arguments, as far as that is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # for callables not written in Python
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def check_callable(name: str, given: Any) -> None:
    if not callable(given):
        raise remat.UsageError(f"{name} is of type {type(given).__name__}: it has to be a function")


def check_loss(loss: Any) -> None:
    """Raises UsageError for what cannot be called with the model's outputs alone."""
    if loss is None:
        return
    check_callable("loss=", loss)
    called = loss.forward if isinstance(loss, torch.nn.Module) and not changes_arguments(loss) else loss
    if why := _misfit(called, None):
        raise remat.UsageError(
            f"loss= is called with the model's outputs alone: {why}; targets and the like go into it by a "
            "lambda, or functools.partial"
        )


def _check_memory(model: torch.nn.Module, sample_inputs: Any) -> None:
    if not can_run(model, sample_inputs):
        what = "sample inputs" if has_memory(model) else "model's tensors"
        raise remat.UsageError(
            f"the {what} have no memory (meta or fake): such a step can be captured or swept, not run"
        )


def mistraced_part(model: torch.nn.Module) -> str | None:
    """What a module holds that Dynamo traces with other values than it has: a `random.Random` draws the same
    number in every call, and a full `deque` with a largest length has other items. None if there is none.
    """
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, random.Random) or (isinstance(value, deque) and value.maxlen is not None):
                return f"{path}.{name}".lstrip(".") + f" (a {type(value).__name__})"
    return None


def can_run(model: torch.nn.Module, sample_inputs: Any) -> bool:
    """True if all tensors of the model and all inputs have memory."""
    inputs = (each for each in tree_leaves(sample_inputs) if isinstance(each, torch.Tensor))
    return has_memory(model) and all(map(has_data, inputs))


def has_memory(model: torch.nn.Module) -> bool:
    """True if no tensor of the model is fake or on the device "meta"."""
    return all(map(has_data, (*model.parameters(), *model.buffers())))
