"""The forward of a planned step in eager mode: ops that may run again are written down, and what autograd
saves of their results is dropped.

The plan is advice: whatever a step does, its results are those of eager mode; only bytes can differ.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch.utils._pytree import tree_map

from ..base.devices import runtime_of
from ..base.private import StorageWeakRef, TorchDispatchMode, storage_id, without_dispatch_modes
from ..base.storages import same_bits
from .kinds import Kind, argument, kind_of, results_in, tensors_in
from .results import Handle, Kept, Result, Run, device_of, restore


class Followed(Protocol):
    """What a ledger follows. functions: the ops of a forward; again: the numbers of those that may run
    again.
    """

    @property
    def functions(self) -> Sequence[Any]: ...

    @property
    def again(self) -> Collection[int]: ...


class Ledger(TorchDispatchMode):
    """Of one step.

    plan: the one that is followed. left_at: the number of the op that is in none of the plans; what comes
    from there on is kept.
    """

    def __init__(
        self,
        plans: Sequence[Followed],
        verify: bool = False,
        told: Callable[[int], object] | None = None,
    ) -> None:
        """plans: for the sequences of ops that are known, the likeliest first. verify: compare what runs
        again with copies of what was dropped. told: called with the number of an op whose second run made
        other bits.
        """
        super().__init__()
        self.plan = plans[0]
        self._plans = plans
        self._functions, self._again = self.plan.functions, self.plan.again
        self._position = 0
        self.left_at: int | None = None
        self._at_backward: Callable[[], object] | None = None
        self._verify, self._told = verify, told
        # By number of a storage: its result, and references to tensors that runs read, and to handles.
        self._results: dict[int, tuple[Any, Result]] = {}
        self._kept: dict[int, list[weakref.ref[Kept]]] = {}
        self._handles: dict[int, list[weakref.ref[Handle]]] = {}

    def call_at_backward(self, look: Callable[[], object]) -> None:
        """Once, when autograd asks for the first tensor."""
        self._at_backward = look

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        position = self._position
        self._position = position + 1
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
            known = self._results.get(storage_id(item))
            if known is not None:
                return known[1].shown_by(item)
            kept = Kept.read(item, id(item) not in statistics)
            self._kept.setdefault(storage_id(item), []).append(weakref.ref(kept))
            return kept

        state = runtime_of(device_of(args, kwargs)).generator_state() if kind.random else None
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
                    handle.note_write(tensor)
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
            number = storage_id(tensor)
            if number in read:
                continue
            result = run.add_result(place)
            if number in before:
                before[number].become(result)
            # The reference keeps the number from being given to another storage.
            self._results[number] = StorageWeakRef(tensor.untyped_storage()), result

    def pack(self, tensor: torch.Tensor) -> Any:
        """What autograd is to hold for a tensor."""
        known = self._results.get(_number(tensor))
        if known is None:
            return Kept.saved(tensor)
        expected = None
        if self._verify:
            with torch.no_grad(), without_dispatch_modes():
                expected = tensor.detach().clone()
        handle = Handle(known[1], tensor, expected)
        self._handles.setdefault(_number(tensor), []).append(weakref.ref(handle))
        return handle

    def unpack(self, held: Any) -> torch.Tensor:
        """The tensor, as it was when autograd saved it. Raises RuntimeError where it was written to since."""
        if self._at_backward is not None:
            look, self._at_backward = self._at_backward, None
            look()
        if isinstance(held, Kept):
            return held.checked()
        shown, run = held.shown, held.shown.result.run
        if held.written:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: the result of {run.func}"
            )
        restore(shown.result)
        with torch.no_grad(), without_dispatch_modes():
            tensor: torch.Tensor = shown.tensor()
            if held.expected is not None and not same_bits(tensor, held.expected):
                if self._told is not None:
                    self._told(run.number)
                return held.expected
        return tensor

    def end(self) -> None:
        """The forward is over: nothing is looked up any longer."""
        if self.left_at is None and self._position < len(self._functions):
            self.left_at = self._position
        self._results.clear()
        self._kept.clear()
        self._handles.clear()


def _number(tensor: torch.Tensor) -> int:
    try:
        return storage_id(tensor)
    except (RuntimeError, NotImplementedError):  # sparse
        return 0


_T = TypeVar("_T")


def _alive(references: Iterable[weakref.ref[_T]]) -> Iterator[_T]:
    for reference in references:
        item = reference()
        if item is not None:
            yield item
