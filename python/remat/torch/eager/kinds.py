"""Properties of ops from their schemas: arguments written to, randomness, repeatability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.devices import default_device
from ..base.nodes import BUILTIN_NAMESPACES
from ..base.private import (
    WITH_A_STATE,
    OpOverload,
    _disable_current_modes,
    is_transformed,
    is_zero_tensor,
    schema,
    with_autograd_in_dispatch,
    without_dispatch_modes,
    write_count,
)

# Ops that return uninitialized memory.
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
_READS_DATA = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
# Ops that replace the memory of their argument.
_OTHER_MEMORY = ("set_", "resize_", "resize_as_")
# Batch norms update these although their schemas do not say so.
_STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Kind:
    """Of an op.

    written: positions and names of the arguments that it writes to. statistics: of the running statistics
        among them, on which its results do not depend in training.
    training: position and name of that argument.
    random: does it draw random numbers?
    empty: does it make memory without content?
    repeatable: may it run again, as far as its kind tells?
    view: does it show what it is given, and writes nothing?
    reads_data: does it return a number to Python, or a result whose size depends on data?
    """

    written: tuple[tuple[int, str], ...]
    statistics: tuple[tuple[int, str], ...]
    training: tuple[int, str] | None
    random: bool
    empty: bool
    repeatable: bool
    view: bool
    reads_data: bool = False


_known: dict[Any, Kind] = {}


def kind_of(func: Any) -> Kind:
    kind = _known.get(func)
    if kind is None:
        kind = _known[func] = _kind_of(func)
    return kind


def _kind_of(func: Any) -> Kind:
    if not isinstance(func, OpOverload):
        return Kind((), (), None, False, False, False, False)
    arguments = list(enumerate(schema(func).arguments))
    named = {argument.name: (i, argument.name) for i, argument in arguments}
    statistics = tuple(named[name] for name in _STATISTICS if name in named)
    written = tuple(
        (i, argument.name)
        for i, argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    training = named.get("training", named.get("train"))
    builtin, name = func.namespace in BUILTIN_NAMESPACES, schema(func).name.partition("::")[2]
    return Kind(
        written=(*written, *(each for each in statistics if each not in written)),
        statistics=statistics,
        training=training,
        random=torch.Tag.nondeterministic_seeded in func.tags,
        empty=builtin and name in _EMPTY,
        repeatable=builtin and func not in WITH_A_STATE and name not in _OTHER_MEMORY,
        view=not written and any(each.alias_info is not None for each in schema(func).returns),
        reads_data=any(tag in func.tags for tag in _READS_DATA),
    )


def argument(at: tuple[int, str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An argument of a call; None if omitted."""
    position, name = at
    return args[position] if position < len(args) else kwargs.get(name)


def with_argument(
    at: tuple[int, str], args: Sequence[Any], kwargs: Mapping[str, Any], given: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with another one at that place."""
    position, name = at
    if position < len(args):
        return (*args[:position], given, *args[position + 1 :]), dict(kwargs)
    return tuple(args), {**kwargs, name: given}


def tensors_in(items: Any) -> Iterator[torch.Tensor]:
    """Of arguments or results: tensors, and those of lists and tuples of them."""
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from tensors_in(item)


def targets_of(kind: Kind, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Tensors that an op writes to, running statistics included."""
    return list(tensors_in(argument(at, args, kwargs) for at in kind.written))


def mapped(item: Any, change: Callable[[Any], Any]) -> Any:
    """An argument, or several, with each tensor and number replaced."""
    if isinstance(item, (list, tuple)):
        return type(item)([mapped(each, change) for each in item])
    return change(item)


def results_in(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return list(tensors_in(result)) if isinstance(result, (list, tuple)) else []


def trains(kind: Kind, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return kind.training is not None and argument(kind.training, args, kwargs)


def is_plain(given: list[torch.Tensor], results: list[torch.Tensor], kwargs: Mapping[str, Any]) -> bool:
    """True for dense tensors with memory on one device, and without a generator of the caller. Inside
    transforms (`torch.func.jvp`), tensors may have no memory of their own."""
    devices = {t.device for t in given if t.is_nested or t.dim()} | {t.device for t in results}
    tensors = (*given, *results)
    plain = all(map(_is_dense, tensors))
    return plain and len(devices) <= 1 and kwargs.get("generator") is None and not is_transformed()


def _is_dense(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_nested
    return strided and type(tensor) in _PLAIN and not is_zero_tensor(tensor)


def is_autocast_around() -> bool:
    """True if autocast was on at the call of the op that a dispatch mode sees now (inside the mode it is
    off)."""
    with with_autograd_in_dispatch():
        return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled(default_device().type)


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory and write count, without autograd history; no dispatch mode sees this."""
    # Tensors that wrap others need Python's dispatch.
    with without_dispatch_modes() if type(tensor) in _PLAIN else _disable_current_modes():
        return tensor.detach()


def changed_in_place(tensor: torch.Tensor, version: int) -> str:
    """Autograd's error for a saved tensor that was written to."""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {write_count(tensor)}; expected version "
        f"{version} instead"
    )
