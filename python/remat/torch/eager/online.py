"""Evicts saved tensors online, so that a step without a plan stays within the budget: while it is recorded,
and if it differs from all recorded steps.

Evictions follow DTR's heuristic: of the results that only autograd holds, those with the least recomputation
cost per byte and staleness. They are recomputed when autograd requests them (results.py).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.allocator import is_traced, most_bytes
from ..base.devices import runtime_of
from ..base.nodes import storage_bytes
from ..base.private import StorageWeakRef, storage_number, users_of_storage, without_dispatch_modes
from .book import Book, bytes_made, number_of
from .keeping import Kept
from .kinds import Kind, argument, detached, is_plain, results_in, targets_of, tensors_in, trains
from .meter import Meter
from .proofs import Trial, expected_bytes, is_proved, known_cost, note_cost, signature_of
from .results import Away, Cost, Result, Run, restore
from .unneeded import let_go_of_unneeded

# Evicted in addition to what is needed, as a share of the limit, so that not every op has to evict.
_SPARE = 0.01
# Most runs visited to find the cost of a result.
_MOST_RUNS = 32
# Share of the limit: below this size of inputs and results, an op's workspace is not measured.
_WORTH = 0.002
# Overhead of a run in Python, in ns.
_ONE_RUN = 20_000
# If the limit cannot be kept: the next limit relative to the bytes needed, and the most recomputations per op
# before giving up.
_LEEWAY, _MOST_REPEATED = 0.05, 2


@dataclass
class Begun:
    """An op that is about to run. given: tensors by the number of their storage. watched: its workspace is
    not known yet.
    """

    number: int
    func: Any
    kind: Kind
    args: Any
    kwargs: Any
    given: Mapping[int, torch.Tensor]
    signature: Any
    proof: Any
    run: Run | None
    trial: Trial | None
    written: dict[int, Result]
    watched: bool
    workspace: int | None = None

    def note_workspace(self, size: int) -> None:
        self.workspace = size


class Evictor:
    """Of one step.

    meter: of bytes in use. limit: on them. over: called with the bytes needed before the limit is exceeded.
    differs: called with an op whose recomputed bits differ.
    """

    def __init__(
        self,
        meter: Meter,
        limit: int,
        device: torch.device,
        over: Callable[[int], object],
        differs: Callable[[Any], object],
    ) -> None:
        self.book = Book(lasting=True)
        self._device = device
        self._meter, self._given, self._limit = meter, limit, limit
        self._over, self._differs = over, differs
        self._now = self._repeated = self._unseen = 0
        self._share = 0.0
        self._costs: Sequence[Cost] = ()
        self._stored: dict[int, weakref.ref[Result]] = {}
        self._away = Away()
        # Storages held only by runs, and candidates for that: references, and bytes.
        self._own: dict[int, tuple[StorageWeakRef, int]] = {}
        self._loose: dict[int, tuple[StorageWeakRef, int]] = {}
        self._looks = self._watches = True

    def adopt(self, book: Book) -> None:
        """Continue with the runs of this book."""
        self.book = book
        book.last()
        for run in book.runs():
            run.last(self._costs[run.number])
            run.note_reads()
            for source in run.sources():
                source.read_by(0)

    def go_on(self, costs: Sequence[Cost], unseen: int, share: float) -> None:
        """Continue from ops with these costs. unseen: bytes reserved for unseen memory, or this share of the
        largest result if that is more. For a user's step, in which the allocator is not traced.
        """
        self._costs, self._unseen, self._share = costs, unseen, share
        self._watches = False

    def before(
        self, number: int, func: Any, kind: Kind, args: Sequence[Any], kwargs: Mapping[str, Any], saves: bool
    ) -> Begun:
        """Called before an op runs. saves: autograd may save its results, and it may be recomputed."""
        self._now += 1
        signature = signature_of(func, args, kwargs)
        given = list(tensors_in((*args, *kwargs.values())))
        numbers = {storage: tensor for tensor in given if (storage := number_of(tensor))}
        for tensor in numbers.values():
            self._meter.note_old(tensor.untyped_storage())
        cost = known_cost(signature)
        watched = self._watches and not kind.view and (cost is None or not cost.measured)
        if cost is None:
            cost = Cost(0, 0 if kind.view else expected_bytes(func, args, kwargs), 0)
        if watched:
            # Its workspace may be as large as its inputs or results.
            largest = max(map(storage_bytes, numbers.values()), default=0)
            watched = max(cost.bytes, largest) > _WORTH * self._limit
            self._has_room(cost.bytes + max(cost.bytes, largest))
        proof, run, trial = signature, None, None
        if saves and not kind.view and self._may_repeat(kind, given, args, kwargs):
            if self._writes_to_blank(kind, args, kwargs):
                proof = (*signature, "blank")
            if self._is_to_be_written_down(kind, args, kwargs, proof, cost):
                run = self.book.written_down(number, func, kind, args, kwargs)
                if run.state is not None:
                    self._note_own(run.state)
            if run is not None and not kind.empty and is_proved(proof) is None:
                trial = Trial.prepare(proof, func, kind, args, kwargs, proof is not signature, run.state)
        self._make_room(cost.bytes + cost.workspace)
        written = self._note_writes(kind, args, kwargs) if kind.written else {}
        return Begun(
            number, func, kind, args, kwargs, numbers, signature, proof, run, trial, written, watched
        )

    def run(self, begun: Begun) -> Any:
        """Runs it. Traces the allocator if its workspace is not known."""
        if not begun.watched or is_traced():
            if not begun.watched and self._watches:
                begun.note_workspace(0)
            return begun.func(*begun.args, **begun.kwargs)
        result, most = most_bytes(lambda: begun.func(*begun.args, **begun.kwargs), self._device)
        begun.note_workspace(max(0, most - bytes_made(begun.args, begun.kwargs, result)))
        return result

    def after(self, begun: Begun, result: Any) -> None:
        """It ran."""
        results = results_in(result)
        given, made = begun.given, 0
        for tensor in results:
            if (number := number_of(tensor)) and number not in given:
                storage = tensor.untyped_storage()
                self._meter.note_new(storage)
                made += storage.nbytes()
                self._unseen = max(self._unseen, int(self._share * storage.nbytes()))
        duration = 0
        if begun.trial is not None:
            same, duration = begun.trial.run(results)
            begun.trial = None
            # A write to a part of uninitialized memory leaves the rest undefined.
            if not same and begun.proof is begun.signature:
                self._differs(begun.func)
        cost = self._cost(begun, made, duration)
        run, shown = begun.run, begun.kind.empty or is_proved(begun.proof)
        if run is not None and shown and is_plain([], results, {}):
            run.last(cost)
            self.book.note_results(run, results, begun.args, begun.kwargs, begun.written)
        for tensor in results:
            number = number_of(tensor)
            if number and number not in given and self.book.result_of(tensor) is None:
                self._note_loose(tensor.untyped_storage())
        self._follow_writes(begun.written, given)

    def _cost(self, begun: Begun, made: int, duration: int) -> Cost:
        """The cost of an op that ran. Known costs are kept."""
        old = known_cost(begun.signature) or Cost(0, made, 0, measured=False)
        measured = old.measured or begun.workspace is not None
        workspace = max(old.workspace, begun.workspace or 0)
        cost = Cost(duration or old.duration, old.bytes, workspace, measured)
        note_cost(begun.signature, cost)
        return cost

    def _may_repeat(self, kind: Kind, given: list[torch.Tensor], args: Any, kwargs: Any) -> bool:
        if not (kind.repeatable and is_plain(given, [], kwargs)):
            return False
        if kind.statistics and not trains(kind, args, kwargs):
            return False
        for at in kind.written:
            target = argument(at, args, kwargs)
            if target is None or at in kind.statistics:
                continue
            # Memory from before the step, or from an op that runs once, must not be written to again.
            if not isinstance(target, torch.Tensor) or self.book.result_of(target) is None:
                return False
        return True

    def _is_to_be_written_down(self, kind: Kind, args: Any, kwargs: Any, proof: Any, cost: Cost) -> bool:
        """True if the op is known to be repeatable, or there is room to test it, and a saved generator state
        is smaller than the numbers drawn.
        """
        proved = is_proved(proof)
        if (proved is not None or kind.empty) and not kind.random:
            return proved is not False
        written = sum(t.untyped_storage().nbytes() for t in targets_of(kind, args, kwargs))
        if kind.random and cost.bytes + written <= runtime_of(self._device).generator_state().nbytes:
            return False
        if proved is not None:
            return proved
        # What the backward will take is not in use yet.
        return self._has_room(2 * cost.bytes + written + cost.workspace, self._given)

    def _writes_to_blank(self, kind: Kind, args: Any, kwargs: Any) -> bool:
        """True if it writes to uninitialized memory. Readers of such memory may read writes that bypass
        PyTorch's dispatcher, which cannot be repeated.
        """
        targets = {number_of(t) for t in targets_of(kind, args, kwargs)}
        blank = False
        for tensor in tensors_in((*args, *kwargs.values())):
            result = self.book.result_of(tensor)
            if result is not None and result.run.kind.empty:
                if number_of(tensor) in targets:
                    blank = True
                else:
                    self.book.forget(number_of(tensor))
                    self._note_loose(tensor.untyped_storage())
        return blank

    def _note_writes(self, kind: Kind, args: Any, kwargs: Any) -> dict[int, Result]:
        """Notes results that are written over."""
        written = self.book.note_writes(kind, args, kwargs, self._note_own)
        for result in written.values():
            result.give_up_memory()
        return written

    def _follow_writes(self, written: Mapping[int, Result], given: Mapping[int, torch.Tensor]) -> None:
        """Tensors that autograd waits for in memory that was written to are kept as they are now."""
        for number, old in written.items():
            tensor = given[number] if number_of(given[number]) == number else None  # `set_`: other memory
            new = None if tensor is None else self.book.result_of(tensor)
            if tensor is not None and new is None:
                self._note_loose(tensor.untyped_storage())
            for handle in self.book.handles_of(number):
                if handle.shown.result is not old or handle.kept is None:
                    continue
                if tensor is None or new is None or handle.written:
                    handle.leave_result()
                else:
                    handle.move_to(new)
                    self._store(new, tensor.untyped_storage())

    def _note_own(self, tensor: torch.Tensor) -> None:
        """Notes a storage held only by runs."""
        storage = tensor.untyped_storage()
        self._meter.note_new(storage)
        self._own[storage_number(storage)] = StorageWeakRef(storage), storage.nbytes()

    def _note_loose(self, storage: torch.UntypedStorage) -> None:
        """Notes a storage that cannot be recomputed, which only runs may hold later."""
        self._loose[storage_number(storage)] = StorageWeakRef(storage), storage.nbytes()

    def pack(self, tensor: torch.Tensor) -> Any:
        """The object that autograd holds for a tensor."""
        result = self.book.result_of(tensor)
        if result is None or result.run.kind.empty:
            return Kept.saved(tensor)
        handle = self.book.handle(result, tensor)
        handle.keep(tensor)
        self._store(result, tensor.untyped_storage())
        return handle

    def _store(self, result: Result, memory: torch.UntypedStorage) -> None:
        result.lie_in(memory)
        result.use(self._now)
        self._stored[id(result)] = weakref.ref(result)

    def unpack(self, held: Any) -> torch.Tensor:
        """The tensor as autograd saved it. Raises RuntimeError if it was written to since."""
        self._now += 1
        if isinstance(held, Kept):
            self._make_room(0)
            return held.checked()
        shown = held.shown
        shown.result.use(self._now)
        if held.kept is not None:
            # A separate tensor, which shows that the backward holds it.
            tensor: torch.Tensor = detached(held.kept.checked())
            self._make_room(0)
            return tensor
        held.check()
        restore(shown.result, self.book.kernels, self._begin, self._end)
        with torch.no_grad(), without_dispatch_modes():
            tensor = shown.tensor()
        if self._looks:
            self.book.show(tensor, shown.result)
        self._make_room(0)
        return tensor

    def _begin(self, run: Run) -> None:
        """Called before a recomputation."""
        self._repeated += 1
        for source in run.sources():
            source.use(self._now)
            for handle in source.waiting_handles():
                if handle.kept is not None:
                    handle.kept.checked()
        if run.cost is not None:
            self._make_room(run.cost.bytes + run.cost.workspace)

    def _end(self, run: Run) -> None:
        for result in run.alive_results():
            if result.memory is not None:
                self._meter.note_new(result.memory)
                self._stored[id(result)] = weakref.ref(result)
                result.use(self._now)

    def end_forward(self) -> None:
        """Stops recording runs."""
        self._looks = False
        self.book.end()

    def users(self, number: int) -> int:
        """Number of tensors of a storage held here."""
        return self.book.users(number)

    def missing(self) -> int:
        """Evicted bytes that autograd waits for, less bytes held only by runs."""
        own = 0
        for number, (storage, size) in list(self._own.items()):
            if storage.expired():
                del self._own[number]
            else:
                own += size
        return self._away.bytes - own - self._loose_bytes()

    def _loose_bytes(self) -> int:
        """Bytes held only by runs in storages that cannot be recomputed."""
        found = 0
        for number in self.book.read_from(self._loose):
            storage, size = self._loose[number]
            users = users_of_storage(number)
            if not users and storage.expired():
                del self._loose[number]
            elif self.book.holds_alone(number, users):
                found += size
        return found

    def _make_room(self, need: int) -> None:
        if self._has_room(need):
            return
        needed = self._meter.exact() + need + self._unseen
        self._over(needed)
        # Continue with the memory needed, within a limit on recomputations.
        self._limit = needed + int(_LEEWAY * needed)
        if self._repeated > _MOST_REPEATED * self._now:
            self._limit = sys.maxsize

    def _has_room(self, need: int, limit: int | None = None) -> bool:
        """Makes room by evictions; True if these bytes fit. limit: on bytes in use, by default what is left
        beside those of the loss and the backward."""
        limit = self._limit - self._unseen if limit is None else limit
        if self._meter.bytes() + need <= limit:
            return True
        if self._meter.exact() + need <= limit:
            return True
        if self._looks:
            for memory in let_go_of_unneeded(self.book, {**self._loose, **self._own}):
                self._note_loose(memory)
        missing = self._meter.exact() + need - limit
        if missing > 0:
            self._evict(missing, int(_SPARE * self._limit))
        return self._meter.exact() + need <= limit

    def _evict(self, missing: int, spare: int) -> None:
        found = sorted((self._score(result), i, result) for i, result in enumerate(self._candidates()))
        if sum(result.bytes for _, _, result in found) < missing:
            spare = 0
        for _, _, result in found:
            if missing + spare <= 0:
                return
            result.evict(self._away)
            missing -= result.bytes
            self._stored.pop(id(result), None)

    def _candidates(self) -> list[Result]:
        """Results held only by handles that can be recomputed."""
        found = []
        for key, reference in list(self._stored.items()):
            result = reference()
            if result is None or result.memory is None:
                del self._stored[key]
            elif not result.readers and result.run.cost is not None and _is_held_by_handles_alone(result):
                found.append(result)
        return found

    def _score(self, result: Result) -> float:
        """The cost of recomputing it, with its missing inputs."""
        cost, seen, pending = 0, set[int](), [result.run]
        while pending and len(seen) < _MOST_RUNS:
            run = pending.pop()
            if id(run) in seen or run.cost is None:
                continue
            seen.add(id(run))
            cost += run.cost.duration + _ONE_RUN
            pending += [source.run for source in run.sources() if source.memory is None]
        return cost / (max(1, result.bytes) * (self._now - result.used + 1))


def _is_held_by_handles_alone(result: Result) -> bool:
    assert result.memory is not None
    kept = [handle.kept for handle in result.waiting_handles() if handle.kept is not None]
    return users_of_storage(storage_number(result.memory)) <= len(kept) and not any(
        each.is_changed() for each in kept
    )
