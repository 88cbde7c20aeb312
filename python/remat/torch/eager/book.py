"""The recorded runs of a step's ops, and the result that each storage holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from ..base.devices import runtime_of
from ..base.nodes import storage_bytes
from ..base.private import KernelSettings, StorageWeakRef, storage_id, storage_number
from .kinds import Kind, argument, mapped, results_in, tensors_in
from .results import Argument, Handle, Result, Run, Shown, device_of


class Book:
    """The book of one forward. lasting: whether runs recorded from now on may run repeatedly; their inputs
    are kept separate from the tensors that Python has.

    kernels: settings in the forward.
    """

    def __init__(self, lasting: bool = False) -> None:
        self._lasting, self.kernels = lasting, KernelSettings.now()
        # By number of a storage: its result, and references to handles and to tensors that runs read.
        self._results: dict[int, tuple[Any, Result]] = {}
        self._kept: dict[int, list[weakref.ref[Argument]]] = {}
        self._handles: dict[int, list[weakref.ref[Handle]]] = {}

    def last(self) -> None:
        """Runs recorded from now on may run repeatedly."""
        self._lasting = True

    def result_of(self, tensor: torch.Tensor) -> Result | None:
        """The result that this tensor shows. A nested one has no shape by which it could be shown again."""
        if tensor.is_nested:
            return None
        known = self._results.get(number_of(tensor))
        return None if known is None else known[1]

    def handle(self, result: Result, tensor: torch.Tensor, expected: bytes | None = None) -> Handle:
        """A handle for autograd, of a tensor that shows this result."""
        handle = Handle(result, tensor, expected)
        self._handles.setdefault(number_of(tensor), []).append(weakref.ref(handle))
        return handle

    def written_down(self, number: int, func: Any, kind: Kind, args: Any, kwargs: Any) -> Run:
        statistics = {id(argument(at, args, kwargs)) for at in kind.statistics}

        def noted(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            known = self._results.get(storage_id(item))
            if known is not None:
                return Shown(known[1], item) if self._lasting else known[1].shown_by(item)
            kept = Argument.read(item, id(item) not in statistics, self._lasting)
            self._kept.setdefault(storage_id(item), []).append(weakref.ref(kept))
            return kept

        state = runtime_of(device_of(args, kwargs)).generator_state() if kind.random else None
        named = {name: mapped(each, noted) for name, each in kwargs.items()}
        run = Run(number, func, kind, mapped(tuple(args), noted), named, state)
        if self._lasting:
            run.note_reads()
        return run

    def note_writes(
        self, kind: Kind, args: Any, kwargs: Any, copied: Callable[[torch.Tensor], object] | None = None
    ) -> dict[int, Result]:
        """Marks results that are written over, by the number of their storage; tensors that runs read are
        copied first. copied: called with these copies.
        """
        before: dict[int, Result] = {}
        for at in kind.written:
            if at in kind.statistics:
                continue
            for tensor in tensors_in([argument(at, args, kwargs)]):
                number = number_of(tensor)
                known = self._results.pop(number, None)
                if known is not None:
                    before[number] = known[1]
                    known[1].see_in(None)
                for handle in _alive(self._handles.get(number, ())):
                    handle.note_write(tensor)
                for kept in _alive(self._kept.pop(number, ())):
                    kept.copy_first()
                    self._kept[number_of(kept.tensor)] = [weakref.ref(kept)]
                    if copied is not None:
                        copied(kept.tensor)
        return before

    def note_results(
        self,
        run: Run,
        results: Sequence[torch.Tensor],
        args: Any,
        kwargs: Any,
        before: Mapping[int, Result],
    ) -> None:
        """before: by storage, the results that the op wrote over."""
        read = {number_of(t) for t in tensors_in((*args, *kwargs.values()))} - before.keys()
        run.returned(len(results))
        for place, tensor in enumerate(results):
            number = storage_id(tensor)
            if number in read:
                continue
            result = run.add_result(place)
            if number in before and not self._lasting:
                before[number].become(result)
            self._note_result(number, tensor, result)

    def handles_of(self, number: int) -> list[Handle]:
        """Handles that wait for the former result of this storage."""
        return list(_alive(self._handles.get(number, ())))

    def users(self, number: int) -> int:
        """Number of tensors of a storage held here."""
        kept = sum(1 for _ in _alive(self._kept.get(number, ())))
        return kept + sum(handle.kept is not None for handle in _alive(self._handles.get(number, ())))

    def holds_alone(self, number: int, users: int) -> bool:
        """True if only runs hold a storage with this many tensors."""
        kept = self._kept.get(number, ())
        return 0 < users <= len(kept) and users <= sum(1 for _ in _alive(kept))

    def read_from(self, numbers: Mapping[int, Any]) -> set[int]:
        """Those of storages that runs read as they are."""
        return self._kept.keys() & numbers.keys()

    def kept(self, number: int) -> list[Argument]:
        """Tensors that show a storage, as runs read them."""
        return list(_alive(self._kept.get(number, ())))

    def forget_dead(self) -> None:
        """Forgets unreachable results, and so the runs that would make them."""
        self._results = {n: known for n, known in self._results.items() if not known[0].expired()}

    def fix(self, result: Result, memory: torch.UntypedStorage, tensors: Mapping[int, torch.Tensor]) -> None:
        """Keeps a result in its memory and forgets its run. tensors: show that memory; by the ids of `Shown`
        that runs read.
        """
        number = storage_number(memory)

        def kept(item: Any) -> Any:
            if id(item) not in tensors:
                return item
            found = Argument(tensors[id(item)])
            self._kept.setdefault(number, []).append(weakref.ref(found))
            found.note_run(run)
            return found

        for run in _alive(result.read_in):
            run.change_arguments(kept)
        for handle in result.waiting_handles():
            handle.leave_result()
        self.forget(number)

    def forget(self, number: int) -> None:
        """Marks this storage as no longer holding the result of a run."""
        self._results.pop(number, None)

    def show(self, tensor: torch.Tensor, result: Result) -> None:
        """Records that a result is in this tensor's storage again."""
        self._note_result(number_of(tensor), tensor, result)

    def _note_result(self, number: int, tensor: torch.Tensor, result: Result) -> None:
        # The reference keeps the number from being given to another storage.
        memory = StorageWeakRef(tensor.untyped_storage())
        self._results[number] = memory, result
        result.see_in(memory)

    def runs(self) -> list[Run]:
        """All recorded runs that may still be needed."""
        pending = [result.run for _, result in self._results.values()]
        pending += [h.shown.result.run for each in self._handles.values() for h in _alive(each)]
        found: dict[int, Run] = {}
        while pending:
            run = pending.pop()
            if id(run) not in found:
                found[id(run)] = run
                pending += [source.run for source in run.sources()]
        return list(found.values())

    def end(self) -> None:
        """Ends all lookups."""
        self._results.clear()
        self._kept.clear()
        self._handles.clear()


def new_memory(args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """A tensor for each new storage that an op with these arguments made, in sequence."""
    given = {number_of(t) for t in tensors_in((*args, *kwargs.values()))}
    made: dict[int, torch.Tensor] = {}
    for tensor in results_in(result):
        if (number := number_of(tensor)) and number not in given:
            made.setdefault(number, tensor)
    return list(made.values())


def bytes_made(args: Any, kwargs: Any, result: Any) -> int:
    """Bytes of new memory made by an op with these arguments."""
    return sum(map(storage_bytes, new_memory(args, kwargs, result)))


def number_of(tensor: torch.Tensor) -> int:
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
