"""Tests whether ops are repeatable bit for bit on this machine, by running them twice at their first use."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.utils._pytree import tree_map

from ..base.devices import runtime_of
from ..base.private import _DisableAutocast, without_dispatch_modes
from ..base.storages import same_bits
from .keeping import copy_of
from .kinds import Kind, argument, results_in, tensors_in, with_argument
from .results import Cost, called_with_state, device_of

Signature = tuple[Any, ...]

_T = TypeVar("_T")
# Most signatures stored: numbers that change from step to step make new ones in each.
_MOST = 1 << 15


class Latest(Generic[_T]):
    """Results by signature; keeps the most recently used ones."""

    def __init__(self, most: int) -> None:
        self._known: dict[Signature, _T] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._known)

    def get(self, signature: Signature) -> _T | None:
        if signature not in self._known:
            return None
        found = self._known[signature] = self._known.pop(signature)
        return found

    def note(self, signature: Signature, item: _T) -> None:
        self._known.pop(signature, None)
        self._known[signature] = item
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]


# Results of this process, by signature.
_costs, _proved = Latest[Cost](_MOST), Latest[bool](_MOST)
# Pattern for uninitialized memory, which reveals its readers.
_PATTERN = 0x5A


def signature_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
    """The signature of an op with these arguments: sizes, types and layouts of tensors, and other arguments
    unchanged."""
    return func, _described(args), tuple((name, _described(each)) for name, each in sorted(kwargs.items()))


def _described(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        try:
            size = item.untyped_storage().nbytes()
        except (RuntimeError, NotImplementedError):
            size = 0
        if item.is_nested:
            return type(item), item.numel(), item.dtype, item.device, size
        strides = item.stride() if item.layout is torch.strided else item.layout
        return item.shape, strides, item.storage_offset() if size else 0, item.dtype, item.device, size
    if isinstance(item, (list, tuple)):
        return tuple(map(_described, item))
    return type(item), item if type(item).__hash__ is not None else repr(item)


def known_cost(signature: Signature) -> Cost | None:
    return _costs.get(signature)


def note_cost(signature: Signature, cost: Cost) -> None:
    _costs.note(signature, cost)


def is_proved(signature: Signature) -> bool | None:
    """None: not tested yet."""
    return _proved.get(signature)


def expected_bytes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Bytes that a new op will make: by a run on fake tensors, else as much as it reads."""

    def apart(item: Any) -> Any:
        return item.to("meta") if isinstance(item, torch.Tensor) else item

    try:
        with torch.no_grad(), without_dispatch_modes():
            given = tree_map(apart, tuple(args)), tree_map(apart, _on_meta(kwargs))
            results = results_in(func(*given[0], **given[1]))
        made = {id(t.untyped_storage()): t.untyped_storage() for t in results}
        for tensor in tensors_in((*given[0], *given[1].values())):
            made.pop(id(tensor.untyped_storage()), None)
        return sum(storage.nbytes() for storage in made.values())
    except Exception:  # many ops cannot: results depend on data, or there is no fake implementation
        tensors = tensors_in((*args, *kwargs.values()))
        return max((t.numel() * t.element_size() for t in tensors), default=0)


def _on_meta(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: torch.device("meta") if name == "device" and each else each for name, each in kwargs.items()
    }


@dataclass
class Trial:
    """A second run of an op, prepared before the first one, with copies of the arguments that it writes to.

    blank: the memory written to is uninitialized, so the second run finds other contents.
    """

    signature: Signature
    func: Any
    kind: Kind
    args: Any
    kwargs: Any
    written: list[torch.Tensor]
    copies: list[torch.Tensor]
    state: torch.Tensor | None

    @classmethod
    def prepare(
        cls, signature: Signature, func: Any, kind: Kind, args: Any, kwargs: Any, blank: bool, state: Any
    ) -> Trial:
        written, copies = [], []
        with torch.no_grad(), without_dispatch_modes():
            for at in kind.written:
                given = argument(at, args, kwargs)
                if not isinstance(given, torch.Tensor):
                    continue
                copy = copy_of(given)
                if at not in kind.statistics:
                    written.append(given)
                    copies.append(copy)
                    if blank:
                        copy.untyped_storage().fill_(_PATTERN)
                args, kwargs = with_argument(at, args, kwargs, copy)
        return cls(signature, func, kind, args, kwargs, written, copies, state)

    def run(self, results: Sequence[torch.Tensor]) -> tuple[bool, int]:
        """Whether the results are equal, and the time in ns."""
        no_autocast: Any = _DisableAutocast
        runtime = runtime_of(device_of(self.args, self.kwargs))
        with torch.no_grad(), no_autocast(), without_dispatch_modes():
            runtime.synchronize()
            start = time.perf_counter_ns()
            again = results_in(called_with_state(self.func, self.args, self.kwargs, self.state))
            runtime.synchronize()
            duration = time.perf_counter_ns() - start
            same = len(results) == len(again) and all(map(same_bits, results, again))
            same = same and all(map(_same_memory, self.written, self.copies))
        _proved.note(self.signature, same)
        return same, duration


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compares whole storages, whichever part the tensors show."""
    mine, theirs = (
        torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage()) for t in (a, b)
    )
    return bool(torch.equal(mine, theirs))
