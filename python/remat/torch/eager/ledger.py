"""A planned step in eager mode: ops that may run again are written down, and run again when autograd asks.

Nobody frees anything: what autograd holds in place of a tensor is a handle, a handle holds a result, a result
the run of an op that makes it, a run its arguments. When Python's references die, the memory is free. So the
plan is advice: whatever a step does, its results are those of eager mode; only bytes can differ.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch.utils._pytree import tree_map

from ..base.devices import runtime_of
from ..base.private import (
    StorageWeakRef,
    TorchDispatchMode,
    _DisableAutocast,
    with_autograd_in_dispatch,
    without_dispatch_modes,
)
from ..base.storages import same_bits
from .kinds import Kind, argument, kind_of, results_in, tensors_in
from .recorder import changed_in_place, detached

# A run again may be asked for by several threads of autograd.
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
        if self.conj:
            made = torch._conj(made)
        return torch._neg_view(made) if self.neg else made


class Kept:
    """A tensor that a run reads, or autograd saves, and that stays; with its count of writes.

    checked: is it an error if it was written to since?
    """

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor, checked: bool = True) -> None:
        self.tensor = tensor
        self.version = tensor._version if checked else None

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
        if self.version is not None and self.tensor._version != self.version:
            raise RuntimeError(changed_in_place(self.tensor, self.version))
        return self.tensor

    def copy_first(self) -> None:
        """It is about to be written to."""
        with torch.no_grad(), without_dispatch_modes():
            self.tensor = copy_of(self.tensor)
        self.version = None


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

    def sources(self) -> list[Result]:
        return [shown.result for shown in _shown_in((*self.args, *self.kwargs.values()))]


def _shown_in(items: Any) -> list[Shown]:
    found: list[Shown] = []
    for item in items:
        if isinstance(item, Shown):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            found += _shown_in(item)
    return found


class Handle:
    """What autograd holds in place of a tensor that is dropped.

    base: the tensor whose count of writes is this one's. written: it was written to since.
    expected: a copy to compare with.
    """

    __slots__ = ("__weakref__", "base", "expected", "shown", "written")

    def __init__(self, shown: Shown, base: torch.Tensor, expected: torch.Tensor | None) -> None:
        self.shown, self.base, self.expected = shown, weakref.ref(base), expected
        self.written = False


def restore(wanted: Result) -> None:
    """Make a result again, and what it is made from."""
    with _turn:
        if wanted.newest().memory is not None:
            return
        found: dict[int, Run] = {}
        pending = [wanted.run]
        while pending:
            run = pending.pop()
            if id(run) not in found:
                found[id(run)] = run
                pending += [source.run for source in run.sources() if source.newest().memory is None]
        no_autocast: Any = _DisableAutocast
        with torch.no_grad(), no_autocast(), without_dispatch_modes():
            for run in sorted(found.values(), key=lambda each: each.number):
                _repeat(run)
        if wanted.newest().memory is None:
            raise RuntimeError(f"remat: {wanted.run.func} did not make its result again")


def _repeat(run: Run) -> None:
    sources = run.sources()
    args = tree_map(_given, run.args, is_leaf=_is_leaf)
    kwargs = tree_map(_given, run.kwargs, is_leaf=_is_leaf)
    for source in sources:
        source.readers -= 1
    args, kwargs, used_up = _with_own(run, args, kwargs)
    results = results_in(_called(run, args, kwargs))
    for source in used_up:
        source.memory = None
    run.args, run.kwargs, run.state, run.is_over = (), {}, None, True
    for result in run.results:
        result.memory = results[result.place].untyped_storage()
    run.results = []


def _is_leaf(item: Any) -> bool:
    return isinstance(item, (Shown, Kept))


def _given(item: Any) -> Any:
    if isinstance(item, Shown):
        return item.tensor()
    return item.checked() if isinstance(item, Kept) else item


def _with_own(run: Run, args: Any, kwargs: Any) -> tuple[Any, Any, list[Result]]:
    """The arguments, with copies of what the op writes to where something else needs that as it is; and what
    is written over.
    """
    used_up: list[Result] = []
    for at in run.kind.written:
        given, recorded = argument(at, args, kwargs), argument(at, run.args, run.kwargs)
        if not isinstance(given, torch.Tensor):
            continue
        if isinstance(recorded, Shown) and recorded.result.readers == 0:
            used_up.append(recorded.result)
        elif at[0] < len(args):
            args = (*args[: at[0]], copy_of(given), *args[at[0] + 1 :])
        else:
            kwargs = {**kwargs, at[1]: copy_of(given)}
    return args, kwargs, used_up


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as the tensor does."""
    base = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    own = base.set_(tensor.untyped_storage().clone(), tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
    return torch._conj(own) if tensor.is_conj() else torch._neg_view(own) if tensor.is_neg() else own


def _called(run: Run, args: Any, kwargs: Any) -> Any:
    if run.state is None:
        return run.func(*args, **kwargs)
    device = next(iter(tensors_in((*args, *kwargs.values()))), None)
    runtime = runtime_of(torch.device("cpu") if device is None else device.device)
    now = runtime.generator_state()
    runtime.set_generator_state(run.state)
    try:
        return run.func(*args, **kwargs)
    finally:
        runtime.set_generator_state(now)


class Followed(Protocol):
    """What a ledger follows. functions: the ops of a forward; again: the numbers of those that may run
    again.
    """

    @property
    def functions(self) -> Sequence[Any]: ...

    @property
    def again(self) -> Collection[int]: ...


class Ledger(TorchDispatchMode):
    """The forward of a planned step.

    plans: for the sequences of ops that are known, the likeliest first; plan: the one that is followed.
    left_at: the number of the op that is none of theirs; what comes from there on is kept.
    at_backward: called when the backward begins.
    """

    def __init__(
        self,
        plans: Sequence[Followed],
        verify: bool = False,
        told: Callable[[int], object] | None = None,
    ) -> None:
        """verify: compare what runs again with copies of what was dropped. told: called with the number of
        an op whose second run made other bits.
        """
        super().__init__()
        self.plan = plans[0]
        self._plans = plans
        self._functions, self._again = self.plan.functions, self.plan.again
        self.position = 0
        self.left_at: int | None = None
        self.at_backward: Callable[[], object] | None = None
        self._verify, self._told = verify, told
        self._results: dict[int, tuple[Any, Result]] = {}
        self._kept: dict[int, list[weakref.ref[Kept]]] = {}
        self._handles: dict[int, list[weakref.ref[Handle]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        position = self.position
        self.position = position + 1
        functions = self._functions
        if position >= len(functions) or functions[position] is not func:
            self._turn_to_another(position, func)
        kind = kind_of(func)
        run = None
        if position in self._again:
            run = self._written_down(position, func, kind, args, kwargs)
        before = self._note_writes(kind, args, kwargs) if kind.written else {}
        result = func(*args, **kwargs)
        if run is not None:
            self._note_results(run, results_in(result), args, kwargs, before)
        return result

    def _turn_to_another(self, position: int, func: Any) -> None:
        """The op is not the plan's: follow one that has been the same so far, or keep what follows."""
        if self.left_at is not None:
            return
        done = self._functions[:position]
        for plan in self._plans:
            functions = plan.functions
            if len(functions) > position and functions[position] is func and functions[:position] == done:
                self.plan, self._functions, self._again = plan, functions, plan.again
                return
        self.left_at, self._again = position, frozenset()

    def _written_down(self, number: int, func: Any, kind: Kind, args: Any, kwargs: Any) -> Run:
        statistics = {id(argument(at, args, kwargs)) for at in kind.statistics}

        def noted(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            known = self._results.get(item.untyped_storage()._cdata)
            if known is not None:
                known[1].readers += 1
                return Shown(known[1], item)
            kept = Kept.read(item, id(item) not in statistics)
            self._kept.setdefault(item.untyped_storage()._cdata, []).append(weakref.ref(kept))
            return kept

        state = None
        if kind.random:
            device = next((t.device for t in tensors_in((*args, *kwargs.values()))), torch.device("cpu"))
            state = runtime_of(device).generator_state()
        return Run(number, func, kind, tree_map(noted, tuple(args)), tree_map(noted, dict(kwargs)), state)

    def _note_writes(self, kind: Kind, args: Any, kwargs: Any) -> dict[int, Result]:
        """Results that are written over, by the number of their storage, are not what they were; what runs
        read is copied first.
        """
        before: dict[int, Result] = {}
        for at in kind.written:
            if at in kind.statistics:
                continue
            for tensor in tensors_in([argument(at, args, kwargs)]):
                number = _number(tensor)
                known = self._results.pop(number, None)
                if known is not None:
                    before[number] = known[1]
                for handle in _alive(self._handles.get(number, ())):
                    if handle.base() is _base_of(tensor):
                        handle.written = True
                for kept in _alive(self._kept.pop(number, ())):
                    kept.copy_first()
        return before

    def _note_results(
        self,
        run: Run,
        results: Sequence[torch.Tensor],
        args: Any,
        kwargs: Any,
        before: Mapping[int, Result],
    ) -> None:
        """before: by storage, the results that the op wrote over."""
        read = {_number(t) for t in tensors_in((*args, *kwargs.values()))} - before.keys()
        for place, tensor in enumerate(results):
            storage = tensor.untyped_storage()
            if storage._cdata in read:
                continue
            result = Result(run, place)
            run.results.append(result)
            if storage._cdata in before:
                before[storage._cdata].after = result
            # The reference keeps the number from being given to another storage.
            self._results[storage._cdata] = StorageWeakRef(storage), result

    def pack(self, tensor: torch.Tensor) -> Any:
        """What autograd is to hold for a tensor."""
        known = self._results.get(_number(tensor))
        if known is None:
            return Kept.saved(tensor)
        expected = None
        if self._verify:
            with torch.no_grad(), without_dispatch_modes():
                expected = tensor.detach().clone()
        handle = Handle(Shown(known[1], tensor), _base_of(tensor), expected)
        self._handles.setdefault(_number(tensor), []).append(weakref.ref(handle))
        return handle

    def unpack(self, held: Any) -> torch.Tensor:
        if self.at_backward is not None:
            look, self.at_backward = self.at_backward, None
            look()
        if isinstance(held, Kept):
            return held.checked()
        shown = held.shown
        if held.written:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: the result of {shown.result.run.func}"
            )
        number = shown.result.run.number
        restore(shown.result)
        with torch.no_grad(), without_dispatch_modes():
            tensor: torch.Tensor = shown.tensor()
            if held.expected is not None and not same_bits(tensor, held.expected):
                if self._told is not None:
                    self._told(number)
                return held.expected
        return tensor

    def end(self) -> None:
        """The forward is over: nothing is looked up any longer."""
        if self.left_at is None and self.position < len(self._functions):
            self.left_at = self.position
        self._results.clear()
        self._kept.clear()
        self._handles.clear()


def _number(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse
        return 0


def _base_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


_T = TypeVar("_T")


def _alive(references: Iterable[weakref.ref[_T]]) -> Iterator[_T]:
    for reference in references:
        item = reference()
        if item is not None:
            yield item
