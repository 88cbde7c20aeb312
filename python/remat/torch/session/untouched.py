"""A model as it was before it was called."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..base.devices import generators_kept

_CONTAINERS = (list, dict, set, deque)


class Snapshot:
    """Every attribute of every module by identity, what its lists, dictionaries and sets hold, and the values
    of its buffers, tensors and generators.

    only_buffers: nothing but values of buffers, where attributes are the affair of a library that shards the
    model.
    """

    def __init__(self, model: torch.nn.Module, only_buffers: bool = False) -> None:
        self._held: list[tuple[Any, Any]] = []
        self._values: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self._seen: set[int] = set()
        if not only_buffers:
            for module in model.modules():
                self._add_container(vars(module))
        for buffer in model.buffers():
            self._add_tensor(buffer)

    def restore(self) -> None:
        """As it was, however often it was called since."""
        for container, content in self._held:
            if not _same(container, content):
                container.clear()
                container.extend(content) if isinstance(container, (list, deque)) else container.update(
                    content
                )
        with torch.no_grad():
            for tensor, before in self._values:
                tensor.copy_(before)
        for generator, state in self._generators:
            generator.set_state(state)

    def _add(self, item: Any) -> None:
        if type(item) in _CONTAINERS:
            self._add_container(item)
        elif isinstance(item, torch.Tensor) and not isinstance(item, torch.nn.Parameter):
            self._add_tensor(item)
        elif isinstance(item, torch.Generator):
            self._generators.append((item, item.get_state()))

    def _add_container(self, container: Any) -> None:
        if id(container) in self._seen:
            return
        self._seen.add(id(container))
        self._held.append((container, container.copy()))
        for item in container.values() if isinstance(container, dict) else container:
            self._add(item)

    def _add_tensor(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._seen or not _has_values(tensor):
            return
        self._seen.add(id(tensor))
        self._values.append((tensor, tensor.detach().clone()))


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type != "meta" and not tensor.is_inference()


def _same(container: Any, content: Any) -> bool:
    if len(container) != len(content):
        return False
    if isinstance(container, dict):
        # The sequence too: it is that of state_dict.
        return all(a is b and container[a] is content[b] for a, b in zip(container, content, strict=True))
    if isinstance(container, set):
        return bool(container == content)
    return all(a is b for a, b in zip(container, content, strict=True))


@contextmanager
def untouched(model: torch.nn.Module, only_buffers: bool = False) -> Iterator[Snapshot]:
    """The model and the default generators are afterwards what they were; `restore` is for between calls."""
    snapshot = Snapshot(model, only_buffers)
    with generators_kept():
        try:
            yield snapshot
        finally:
            snapshot.restore()
