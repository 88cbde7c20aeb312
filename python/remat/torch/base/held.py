"""Tensors that an object holds."""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .private import StorageWeakRef, storage_id, storage_number, users_of_storage, view_base

# Limit of objects visited.
_MOST = 10_000
_CONTAINERS = (list, tuple, set, frozenset, deque)
# Not searched: large, and without results of a call.
_NOT_LOOKED_INTO = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes)


def tensors_held(root: Any) -> list[torch.Tensor]:
    """In containers of Python, and in the attributes of other objects; each once."""
    found: list[torch.Tensor] = []
    # Keeps the objects alive, so that no id is reused.
    seen: dict[int, Any] = {}
    pending = [root]
    while pending and len(seen) < _MOST:
        item = pending.pop()
        if item is None or id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, torch.Tensor):
            found.append(item)
        else:
            pending += reversed(list(_inside(item)))
    return found


def _inside(item: Any) -> Iterator[Any]:
    if isinstance(item, _NOT_LOOKED_INTO):
        return
    if isinstance(item, Mapping):
        yield from item.values()
    elif isinstance(item, _CONTAINERS):
        yield from item
    yield from getattr(item, "__dict__", {}).values()
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if not name.startswith("__"):
                yield getattr(item, name, None)


class Holder:
    """Tells whether the user's program holds a result of a call, or a view of it, beside autograd's saved
    tensors."""

    def __init__(self, tensor: torch.Tensor, together: Sequence[torch.Tensor]) -> None:
        """Right after the call. together: all tensors that it returned."""
        storage = tensor.untyped_storage()
        self._tensor, self._storage = weakref.ref(tensor), StorageWeakRef(storage)
        number = storage_number(storage)
        del storage
        # A view that has a gradient holds what it is a view of.
        tensors = [*together, *map(view_base, together)]
        shown = {id(t) for t in tensors if t.layout is torch.strided and storage_id(t) == number}
        self._saved = users_of_storage(number) - len(shown)

    def has_gone(self) -> bool:
        """True if only as many tensors as autograd had saved show its memory."""
        if self._tensor() is not None:
            return False
        return self._storage.expired() or users_of_storage(self._storage.cdata) <= self._saved
