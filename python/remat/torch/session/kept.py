"""Pieces of Python's state that can be restored."""

from __future__ import annotations

import pickle
import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from ..base.nodes import geometry
from ..base.private import storage_id, tensor_hooks
from ..base.storages import has_data, same_bits


class Kept(Protocol):
    """A saved state. It holds its object, so that no address is reused."""

    def restore(self) -> None: ...


class Container:
    """The items of a list, dictionary, set or deque, by identity. Subclasses are read and written by the
    methods of the base class.
    """

    kinds = (OrderedDict, dict, list, set, deque)

    def __init__(self, container: Any) -> None:
        self.container = container
        self.kind: Any = next(kind for kind in self.kinds if isinstance(container, kind))
        self.content = self._read()

    def items(self) -> Iterator[Any]:
        for item in self.content:
            if issubclass(self.kind, dict):
                yield from item
            else:
                yield item

    def restore(self) -> None:
        content = [item for item in self.content if not _is_gone(item)]
        if _are_same(self._read(), content, ordered=self.kind is not set):
            return
        self.kind.clear(self.container)
        if issubclass(self.kind, dict):
            for key, value in content:
                self.kind.__setitem__(self.container, key, value)
        elif self.kind is set:
            set.update(self.container, content)
        else:
            self.kind.extend(self.container, content)

    def _read(self) -> list[Any]:
        if issubclass(self.kind, dict):
            return list(self.kind.items(self.container))
        return list(self.kind.__iter__(self.container))


def _is_gone(item: Any) -> bool:
    """A weak reference whose object has died since."""
    key = item[0] if isinstance(item, tuple) and item else item
    return isinstance(key, weakref.ref) and key() is None


def _are_same(now: list[Any], before: list[Any], ordered: bool) -> bool:
    def identity(item: Any) -> Any:
        return tuple(map(id, item)) if type(item) is tuple else id(item)

    if len(now) != len(before):
        return False
    if ordered:
        return all(identity(a) == identity(b) for a, b in zip(now, before, strict=True))
    return set(map(identity, now)) == set(map(identity, before))


class Slot:
    """One attribute outside dictionaries: of an object with slots, or of a function's cell."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self.owner, self.name, self.value = owner, name, value

    def restore(self) -> None:
        try:
            same = object.__getattribute__(self.owner, self.name) is self.value
        except (AttributeError, ValueError):  # deleted; an empty cell
            same = False
        if not same:
            object.__setattr__(self.owner, self.name, self.value)


class ClassAttributes:
    """The attributes of a class, without those of Python itself."""

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self.content = self._read()

    def _read(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self.owner).items() if not k.startswith(("__", "_abc_"))}

    def items(self) -> Iterator[Any]:
        plain = (classmethod, staticmethod, property, type)
        yield from (value for value in self.content.values() if not isinstance(value, plain))

    def restore(self) -> None:
        now = self._read()
        for name in now.keys() - self.content.keys():
            type.__delattr__(self.owner, name)
        for name, value in self.content.items():
            if now.get(name, self) is not value:
                type.__setattr__(self.owner, name, value)


class TensorState:
    """A tensor's memory, its `requires_grad`, its gradient and its hooks."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.is_leaf = tensor, tensor.is_leaf
        self.alias = tensor.detach() if is_plain(tensor) and tensor.is_leaf else None
        self.needs_gradient, self.gradient = tensor.requires_grad, tensor.grad if tensor.is_leaf else None
        self.hooks = [(hooks, Container(hooks)) for hooks in tensor_hooks(tensor)]

    def restore(self) -> None:
        tensor = self.tensor
        before = {id(hooks) for hooks, _ in self.hooks}
        for hooks in tensor_hooks(tensor):
            if id(hooks) not in before:
                hooks.clear()
        for _, container in self.hooks:
            container.restore()
        if self.is_leaf and tensor.is_leaf:
            if self.alias is not None and not _show_the_same(tensor, self.alias):
                tensor.data = self.alias
            if tensor.requires_grad != self.needs_gradient:
                tensor.requires_grad_(self.needs_gradient)
            if tensor.grad is not self.gradient:
                tensor.grad = self.gradient


def _show_the_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not is_plain(a):
        return False
    return geometry(a) == geometry(b) and storage_id(a) == storage_id(b)


class Values:
    """The values of a tensor, with a copy on the CPU. Unchanged values are not written, and writes are not
    counted: autograd graphs that saved the tensor stay valid.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.before = tensor, tensor.detach().to("cpu", copy=True)

    def restore(self) -> None:
        if not same_bits(self.tensor.detach().cpu(), self.before):
            self.tensor.data.copy_(self.before)


def is_plain(tensor: torch.Tensor) -> bool:
    """True if it has its own values that can be copied."""
    own = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return own and tensor.layout is torch.strided and has_data(tensor) and not tensor.is_inference()


class Array:
    """The values of a numpy array."""

    def __init__(self, array: Any) -> None:
        self.array, self.before = array, array.copy()

    def restore(self) -> None:
        if self.array.tobytes() != self.before.tobytes():
            self.array[...] = self.before


# The attribute of numpy's older generators that holds the bit generator.
_LEGACY = "_bit_generator"


class Generator:
    """A generator of random numbers, of PyTorch, Python or numpy."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.state = self._state()

    def has_moved(self) -> bool:
        """Was it drawn from since?"""
        now = self._state()
        if isinstance(now, torch.Tensor):
            return not torch.equal(now, self.state)
        return pickle.dumps(now) != pickle.dumps(self.state)

    def draw(self) -> None:
        """Draws a number."""
        if isinstance(self.generator, torch.Generator):
            torch.rand((), generator=self.generator, device=self.generator.device)
        else:
            self.generator.random()

    def _state(self) -> Any:
        if isinstance(self.generator, torch.Generator):
            return self.generator.get_state()
        if isinstance(self.generator, random.Random):
            return self.generator.getstate()
        return self._bits().state

    def _bits(self) -> Any:
        return getattr(self.generator, "bit_generator", None) or getattr(self.generator, _LEGACY)

    def restore(self) -> None:
        if isinstance(self.generator, torch.Generator):
            self.generator.set_state(self.state)
        elif isinstance(self.generator, random.Random):
            self.generator.setstate(self.state)
        else:
            self._bits().state = self.state


def is_generator(item: Any) -> bool:
    numpy = sys.modules.get("numpy.random")
    if isinstance(item, (torch.Generator, random.Random)):
        return not isinstance(item, random.SystemRandom)
    return numpy is not None and isinstance(item, (numpy.Generator, numpy.RandomState))


def is_array(item: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(item, numpy.ndarray) and item.flags.writeable
