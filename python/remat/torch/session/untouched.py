"""Restores a model to its state before a call."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..base.generators import draw_from_all, generator_states, set_generator_states
from ..base.nodes import storage_bytes
from ..base.private import OpOverload, TorchDispatchMode, global_module_hooks, schema, storage_id
from .kept import (
    Array,
    ClassAttributes,
    Container,
    Generator,
    Kept,
    Slot,
    TensorState,
    Values,
    is_array,
    is_generator,
    is_plain,
)

# Objects of these packages are not state of a model: a process group, a logger, our own objects.
_NOT_WALKED = {"torch", "remat", "numpy", "builtins"}
# Of the standard library, only containers of attributes or items.
_HOLDERS = {"types", "argparse", "collections", "weakref", "_weakrefset", "functools"}
# Training objects that a model may refer to.
_NO_STATE = (
    torch.optim.Optimizer,
    torch.utils.data.Dataset,
    torch.utils.data.DataLoader,
    type,
    types.ModuleType,
)


class Snapshot:
    """All state that a call of a model may change, by identity: attributes of its modules, of their classes
    and of objects that they hold; what lists, dictionaries, sets and hooks hold; closures; gradients; the
    hooks of all modules; and the values of buffers, tensors and generators. Of global variables that
    functions and methods name, modules and generators only.

    roots: the model, what it is called with, what computes its loss.
    only_buffers: nothing but values of buffers and generators, where attributes are the affair of a library
        that shards the model.
    runs: code of the model is carried out, not only graphs: values of parameters are kept, too. `keep_values`
        is for who finds that out later, `keep_before_write` for graphs that write to parameters.
    """

    def __init__(self, *roots: Any, only_buffers: bool = False, runs: bool = True) -> None:
        self._kept: list[Kept] = []
        # Parameters whose values were not saved, by the number of their storage.
        self._waiting: dict[int, list[torch.Tensor]] = {}
        self._seen: dict[int, Any] = {}
        self._runs, self._states = runs, generator_states()
        if not only_buffers:
            self._walk([*roots, *global_module_hooks()])
            return
        for module in (root for root in roots if isinstance(root, torch.nn.Module)):
            for buffer in module.buffers():
                self._keep_values_of(buffer)

    def keep_values(self) -> None:
        """From now on code of the model runs: saves values of parameters too."""
        self._runs = True
        waiting, self._waiting = self._waiting, {}
        for tensors in waiting.values():
            for tensor in tensors:
                self._keep_values_of(tensor)

    def keep_before_write(self, tensor: torch.Tensor) -> bool:
        """Saves unsaved values in memory that is about to be written to; True if there were any."""
        found = self._waiting.pop(storage_id(tensor), [])
        for each in found:
            self._keep_values_of(each)
        return bool(found)

    def bytes_on(self, device_type: str) -> int:
        """Of the copies that it holds, which are on the CPU."""
        values = (kept.before for kept in self._kept if isinstance(kept, Values))
        return sum(storage_bytes(each) for each in values) if device_type == "cpu" else 0

    def drew_in_python(self) -> bool:
        """Were numbers drawn since, by Python's or numpy's generators or those of the model?"""
        own = any(each.has_moved() for each in self._generators())
        return own or self._states.drew_outside_torch(generator_states())

    def draw_from_all(self) -> None:
        """Draws a number from each generator."""
        draw_from_all()
        for each in self._generators():
            each.draw()

    def _generators(self) -> list[Generator]:
        return [each for each in self._kept if isinstance(each, Generator)]

    def restore(self) -> None:
        """Restore the state, after any number of calls."""
        for kept in self._kept:
            kept.restore()
        set_generator_states(self._states)

    def _walk(self, stack: list[Any]) -> None:
        while stack:
            item = stack.pop()
            if id(item) not in self._seen and not isinstance(item, (str, bytes, int, float, type(None))):
                self._seen[id(item)] = item
                stack.extend(self._look_into(item))

    def _look_into(self, item: Any) -> list[Any]:
        """Saves the mutable state of an object; returns further objects to visit."""
        if isinstance(item, torch.Tensor):
            return self._look_into_tensor(item)
        if is_generator(item):
            self._kept.append(Generator(item))
            return []
        if is_array(item):
            self._kept.append(Array(item))
            return []
        if isinstance(item, (tuple, frozenset)):
            return list(tuple.__iter__(item) if isinstance(item, tuple) else item)
        if isinstance(item, Container.kinds):
            container = Container(item)
            self._kept.append(container)
            return [*container.items(), *self._attributes(item)]
        if isinstance(item, types.MethodType):
            return [item.__self__, item.__func__]
        if isinstance(item, types.FunctionType):
            return self._look_into_function(item)
        if isinstance(item, functools.partial):
            return [item.func, item.args, item.keywords, vars(item)]
        return self._attributes(item)

    def _look_into_tensor(self, tensor: torch.Tensor) -> list[Any]:
        self._kept.append(TensorState(tensor))
        if is_plain(tensor) and tensor.grad_fn is None:
            if self._runs or not isinstance(tensor, torch.nn.Parameter):
                self._keep_values_of(tensor)
            else:
                self._waiting.setdefault(storage_id(tensor), []).append(tensor)
        return [vars(tensor)] if getattr(tensor, "__dict__", None) else []

    def _keep_values_of(self, tensor: torch.Tensor) -> None:
        if is_plain(tensor):
            self._kept.append(Values(tensor))

    def _look_into_function(self, function: types.FunctionType) -> list[Any]:
        if _is_of_others(function.__module__):
            return []
        inside: list[Any] = [function.__dict__, function.__defaults__, function.__kwdefaults__]
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._kept.append(Slot(cell, "cell_contents", value))
            inside.append(value)
        named = (function.__globals__.get(name) for name in function.__code__.co_names)
        return inside + [
            value for value in named if isinstance(value, torch.nn.Module) or is_generator(value)
        ]

    def _attributes(self, item: Any) -> list[Any]:
        kind = type(item)
        is_module = isinstance(item, torch.nn.Module)
        if isinstance(item, _NO_STATE) or not (is_module or _is_walked(kind)):
            return []
        inside: list[Any] = [item.__dict__] if hasattr(item, "__dict__") else []
        for base in kind.__mro__:
            inside += self._slots(item, base)
            if id(base) not in self._seen and not _is_of_others(base.__module__):
                self._seen[id(base)] = base
                attributes = ClassAttributes(base)
                self._kept.append(attributes)
                inside += attributes.items()
        return inside

    def _slots(self, item: Any, base: type) -> list[Any]:
        names = vars(base).get("__slots__", ())
        inside = []
        for name in (names,) if isinstance(names, str) else tuple(names):
            if not name.startswith("__") and hasattr(item, name):
                inside.append(object.__getattribute__(item, name))
                self._kept.append(Slot(item, name, inside[-1]))
        return inside


def _package(module: Any) -> str:
    return str(module or "builtins").partition(".")[0]


def _is_of_others(module: Any) -> bool:
    """True for modules of Python, PyTorch or ourselves."""
    package = _package(module)
    return package in _NOT_WALKED or package in sys.stdlib_module_names


def _is_walked(kind: type) -> bool:
    """True if an object of this class (not a PyTorch module) is state of its holder."""
    return _package(kind.__module__) in _HOLDERS or not _is_of_others(kind.__module__)


class WritesNoted(TorchDispatchMode):
    """Inside the block, `note` is called with each tensor that an op is about to write to."""

    supports_higher_order_operators = True

    def __init__(self, note: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self._note = note

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload) and schema(func).is_mutable:
            for i, argument in enumerate(schema(func).arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    given = args[i] if i < len(args) else kwargs.get(argument.name)
                    for tensor in tree_leaves(given):
                        if isinstance(tensor, torch.Tensor):
                            self._note(tensor)
        return func(*args, **kwargs)


@contextmanager
def untouched(*roots: Any, only_buffers: bool = False, runs: bool = True) -> Iterator[Snapshot]:
    """Restores all state reached from the roots, and the default generators, afterwards; `restore` does so
    between calls.
    """
    snapshot = Snapshot(*roots, only_buffers=only_buffers, runs=runs)
    try:
        yield snapshot
    finally:
        snapshot.restore()
