"""What a planned step writes down of its ops, and how a result is made again from that.

Nobody frees anything: a handle of autograd's holds a result, a result the run of an op that makes it, a run
its arguments. When Python's references die, the memory is free.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..base.devices import runtime_of
from ..base.private import (
    _DisableAutocast,
    conjugated_view,
    negated_view,
    view_base,
    with_autograd_in_dispatch,
    without_dispatch_modes,
    write_count,
)
from .kinds import Kind, argument, results_in, tensors_in
from .recorder import changed_in_place, detached

# A run may be asked for by several threads of autograd.
_turn = threading.RLock()


class Result:
    """One new storage that a run of an op made, or one that it wrote to.

    memory: where it is there again; None: it has to be made. readers: runs to come that read it.
    after: what a run that wrote over it made of it.
    """

    __slots__ = ("after", "memory", "place", "readers", "run")

    def __init__(self, run: Run, place: int) -> None:
        self.run, self.place = run, place
        self.memory: torch.UntypedStorage | None = None
        self.readers = 0
        self.after: Result | None = None

    def newest(self) -> Result:
        """This one, or where its memory went when a run wrote to it. What is asked for there is as it was:
        of a tensor that was written to since nobody may ask.
        """
        result = self
        while result.memory is None and result.run.is_over and result.after is not None:
            result = result.after
        return result

    def is_there(self) -> bool:
        return self.newest().memory is not None

    def shown_by(self, tensor: torch.Tensor) -> Shown:
        """A run will read it."""
        self.readers += 1
        return Shown(self, tensor)

    def was_read(self) -> None:
        self.readers -= 1

    def give_up_memory(self) -> None:
        """A run wrote over it."""
        self.memory = None

    def lie_in(self, memory: torch.UntypedStorage) -> None:
        self.memory = memory

    def become(self, result: Result) -> None:
        """A run wrote over it, and this came of it."""
        self.after = result


class Shown:
    """How a tensor shows a result."""

    __slots__ = ("conj", "dtype", "neg", "offset", "result", "shape", "strides")

    def __init__(self, result: Result, tensor: torch.Tensor) -> None:
        self.result, self.dtype = result, tensor.dtype
        self.shape, self.strides, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        self.conj, self.neg = tensor.is_conj(), tensor.is_neg()

    def tensor(self) -> torch.Tensor:
        memory = self.result.newest().memory
        assert memory is not None
        made = torch.empty(0, dtype=self.dtype, device=memory.device)
        made.set_(memory, self.offset, self.shape, self.strides)  # type: ignore[call-overload]
        made = conjugated_view(made) if self.conj else made
        return negated_view(made) if self.neg else made


class Kept:
    """A tensor that a run reads, or autograd saves, and that stays; with its count of writes.

    version: None where it may be written to.
    """

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor, checked: bool = True) -> None:
        self.tensor = tensor
        self.version = write_count(tensor) if checked else None

    @classmethod
    def read(cls, tensor: torch.Tensor, checked: bool) -> Kept:
        """By an op, as its dispatch mode sees it: there a detached tensor would count writes by itself."""
        if tensor.grad_fn is not None:
            with with_autograd_in_dispatch():
                tensor = tensor.detach()
        return cls(tensor, checked)

    @classmethod
    def saved(cls, tensor: torch.Tensor) -> Kept:
        """By autograd, whose node an output would hold."""
        return cls(tensor if tensor.grad_fn is None else detached(tensor))

    def checked(self) -> torch.Tensor:
        """Raises RuntimeError where it was written to."""
        if self.version is not None and write_count(self.tensor) != self.version:
            raise RuntimeError(changed_in_place(self.tensor, self.version))
        return self.tensor

    def copy_first(self) -> None:
        """It is about to be written to."""
        with torch.no_grad(), without_dispatch_modes():
            self.tensor = _copy_of(self.tensor)
        self.version = None


class Handle:
    """What autograd holds in place of a tensor that is dropped.

    base: the tensor whose count of writes is this one's. written: it was written to since.
    expected: a copy to compare with.
    """

    __slots__ = ("__weakref__", "base", "expected", "shown", "written")

    def __init__(self, result: Result, tensor: torch.Tensor, expected: torch.Tensor | None) -> None:
        self.shown, self.base, self.expected = Shown(result, tensor), weakref.ref(view_base(tensor)), expected
        self.written = False

    def note_write(self, tensor: torch.Tensor) -> None:
        """Something wrote to this tensor, which shows the same storage."""
        if self.base() is view_base(tensor):
            self.written = True


class Run:
    """One run of an op, as it was written down. number: of the op in its step. is_over: it ran again."""

    __slots__ = ("args", "func", "is_over", "kind", "kwargs", "number", "results", "state")

    def __init__(
        self, number: int, func: Any, kind: Kind, args: Any, kwargs: Any, state: torch.Tensor | None
    ) -> None:
        self.number, self.func, self.kind = number, func, kind
        self.args, self.kwargs, self.state = args, kwargs, state
        self.results: list[Result] = []
        self.is_over = False

    def add_result(self, place: int) -> Result:
        """place: among the tensors that the op returns."""
        result = Result(self, place)
        self.results.append(result)
        return result

    def sources(self) -> list[Result]:
        return [shown.result for shown in _shown_in((*self.args, *self.kwargs.values()))]

    def repeat(self) -> None:
        """Run again, from what is there."""
        args = tree_map(_given, self.args, is_leaf=_is_leaf)
        kwargs = tree_map(_given, self.kwargs, is_leaf=_is_leaf)
        for source in self.sources():
            source.was_read()
        args, kwargs, used_up = self._with_own(args, kwargs)
        results = results_in(self._called(args, kwargs))
        for source in used_up:
            source.give_up_memory()
        made, self.results = self.results, []
        self.args, self.kwargs, self.state, self.is_over = (), {}, None, True
        for result in made:
            result.lie_in(results[result.place].untyped_storage())

    def _with_own(self, args: Any, kwargs: Any) -> tuple[Any, Any, list[Result]]:
        """The arguments, with copies of what the op writes to where something else needs that as it is; and
        what is written over.
        """
        used_up: list[Result] = []
        for at in self.kind.written:
            given, recorded = argument(at, args, kwargs), argument(at, self.args, self.kwargs)
            if not isinstance(given, torch.Tensor):
                continue
            if isinstance(recorded, Shown) and recorded.result.readers == 0:
                used_up.append(recorded.result.newest())
            elif at[0] < len(args):
                args = (*args[: at[0]], _copy_of(given), *args[at[0] + 1 :])
            else:
                kwargs = {**kwargs, at[1]: _copy_of(given)}
        return args, kwargs, used_up

    def _called(self, args: Any, kwargs: Any) -> Any:
        if self.state is None:
            return self.func(*args, **kwargs)
        runtime = runtime_of(device_of(args, kwargs))
        now = runtime.generator_state()
        runtime.set_generator_state(self.state)
        try:
            return self.func(*args, **kwargs)
        finally:
            runtime.set_generator_state(now)


def device_of(args: Any, kwargs: Any) -> torch.device:
    """Where an op runs."""
    first = next(iter(tensors_in((*args, *kwargs.values()))), None)
    return torch.device(kwargs.get("device") or "cpu") if first is None else first.device


def restore(wanted: Result) -> None:
    """Make a result again, and what it is made from."""
    with _turn:
        if wanted.is_there():
            return
        found: dict[int, Run] = {}
        pending = [wanted.run]
        while pending:
            run = pending.pop()
            if id(run) not in found:
                found[id(run)] = run
                pending += [source.run for source in run.sources() if not source.is_there()]
        no_autocast: Any = _DisableAutocast
        with torch.no_grad(), no_autocast(), without_dispatch_modes():
            for run in sorted(found.values(), key=lambda each: each.number):
                run.repeat()
        if not wanted.is_there():
            raise RuntimeError(f"remat: {wanted.run.func} did not make its result again")


def _shown_in(items: Any) -> Iterator[Shown]:
    for item in items:
        if isinstance(item, Shown):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _shown_in(item)


def _is_leaf(item: Any) -> bool:
    return isinstance(item, (Shown, Kept))


def _given(item: Any) -> Any:
    if isinstance(item, Shown):
        return item.tensor()
    return item.checked() if isinstance(item, Kept) else item


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as the tensor does."""
    own = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    memory = tensor.untyped_storage().clone()
    own.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
    own = conjugated_view(own) if tensor.is_conj() else own
    return negated_view(own) if tensor.is_neg() else own
