"""Saved tensors are evicted while a step runs, so that it stays within the budget without a plan: while it is
recorded, and where it is none of those that were recorded.

What is evicted is what DTR's heuristic says: of the results that autograd waits for and nobody else holds,
those whose making again costs the least for their bytes and for how long they were not used. They are made
again when autograd asks (results.py).
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

# Evicted beside what has to be, as a share of the limit, so that it is not looked for before every op.
_SPARE = 0.01
# Runs that are looked at for what a result costs.
_MOST_RUNS = 32
# Of the limit: where less is read and made, what an op takes besides is not looked at.
_WORTH = 0.002
# What a run in Python takes besides, in ns.
_ONE_RUN = 20_000
# Where the limit does not hold: what the next one is above what was needed, and how many runs for each op
# there may be until there is none.
_LEEWAY, _MOST_REPEATED = 0.05, 2


@dataclass
class Begun:
    """An op that is about to run. given: tensors by the number of their storage. watched: what it takes in
    memory besides is not known yet.
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

    meter: of bytes in use. limit: of them. over: called with the bytes that are needed where that is more,
    before they are taken. differs: called with an op that made other bits in a second run.
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
        self._meter, self._limit = meter, limit
        self._over, self._differs = over, differs
        self._now = self._repeated = self._unseen = 0
        self._share = 0.0
        self._costs: Sequence[Cost] = ()
        self._stored: dict[int, weakref.ref[Result]] = {}
        self._away = Away()
        # Storages that are there for runs alone, and such that may be: references, and bytes.
        self._own: dict[int, tuple[StorageWeakRef, int]] = {}
        self._loose: dict[int, tuple[StorageWeakRef, int]] = {}
        self._looks = self._watches = True

    def adopt(self, book: Book) -> None:
        """Go on from what was written down."""
        self.book = book
        book.last()
        for run in book.runs():
            run.last(self._costs[run.number])
            run.note_reads()
            for source in run.sources():
                source.read_by(0)

    def go_on(self, costs: Sequence[Cost], unseen: int, share: float) -> None:
        """From ops with these costs. unseen: bytes that are left for what is not seen; such a share of the
        largest result if that is more. It is a step of the user's, where the allocator is let alone.
        """
        self._costs, self._unseen, self._share = costs, unseen, share
        self._watches = False

    def before(
        self, number: int, func: Any, kind: Kind, args: Sequence[Any], kwargs: Mapping[str, Any], saves: bool
    ) -> Begun:
        """An op is about to run. saves: what it makes may be asked for by autograd, and it may run again."""
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
            # It may need as much again as what it reads or makes.
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
        """Runs it. The allocator is watched where it is not known what it takes besides its results."""
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
            # What writes to a part of memory without content leaves the rest as it is: nothing to be told.
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
        """Of an op that ran. What is known already is not forgotten."""
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
            # What was there before, or came of an op that runs once, must not be written to again.
            if not isinstance(target, torch.Tensor) or self.book.result_of(target) is None:
                return False
        return True

    def _is_to_be_written_down(self, kind: Kind, args: Any, kwargs: Any, proof: Any, cost: Cost) -> bool:
        """Did it make the same bits twice, or is there room to see whether it does? And is the generator's
        state smaller than what is drawn?
        """
        proved = is_proved(proof)
        if (proved is not None or kind.empty) and not kind.random:
            return proved is not False
        written = sum(t.untyped_storage().nbytes() for t in targets_of(kind, args, kwargs))
        if kind.random and cost.bytes + written <= runtime_of(self._device).generator_state().nbytes:
            return False
        if proved is not None:
            return proved
        return self._has_room(2 * cost.bytes + written + cost.workspace)

    def _writes_to_blank(self, kind: Kind, args: Any, kwargs: Any) -> bool:
        """Does it write to memory without content? Who reads such memory reads what was written past
        PyTorch's dispatcher, which cannot be made again.
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
        """Results that are written over."""
        written = self.book.note_writes(kind, args, kwargs, self._note_own)
        for result in written.values():
            result.give_up_memory()
        return written

    def _follow_writes(self, written: Mapping[int, Result], given: Mapping[int, torch.Tensor]) -> None:
        """What autograd waits for in memory that was written to is there as it is now."""
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
        """It is there for the runs alone."""
        storage = tensor.untyped_storage()
        self._meter.note_new(storage)
        self._own[storage_number(storage)] = StorageWeakRef(storage), storage.nbytes()

    def _note_loose(self, storage: torch.UntypedStorage) -> None:
        """It cannot be made again, so it may be there for runs alone some time."""
        self._loose[storage_number(storage)] = StorageWeakRef(storage), storage.nbytes()

    def pack(self, tensor: torch.Tensor) -> Any:
        """What autograd is to hold for a tensor."""
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
        """The tensor, as it was when autograd saved it. Raises RuntimeError where it was written to since."""
        self._now += 1
        if isinstance(held, Kept):
            self._make_room(0)
            return held.checked()
        shown = held.shown
        shown.result.use(self._now)
        if held.kept is not None:
            # A tensor of its own, by which it is seen that the backward has it.
            tensor: torch.Tensor = detached(held.kept.checked())
            self._make_room(0)
            return tensor
        held.check()
        restore(shown.result, self._begin, self._end)
        with torch.no_grad(), without_dispatch_modes():
            tensor = shown.tensor()
        if self._looks:
            self.book.show(tensor, shown.result)
        self._make_room(0)
        return tensor

    def _begin(self, run: Run) -> None:
        """It is about to run again."""
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
        """Nothing is written down any longer."""
        self._looks = False
        self.book.end()

    def users(self, number: int) -> int:
        """How many tensors that show a storage are held here."""
        return self.book.users(number)

    def missing(self) -> int:
        """Bytes that autograd waits for and that are not there, less those that are there for runs alone."""
        own = 0
        for number, (storage, size) in list(self._own.items()):
            if storage.expired():
                del self._own[number]
            else:
                own += size
        return self._away.bytes - own - self._loose_bytes()

    def _loose_bytes(self) -> int:
        """Of what only runs hold of storages that cannot be made again."""
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
        # Go on with what it takes, but not at any price in time.
        self._limit = needed + int(_LEEWAY * needed)
        if self._repeated > _MOST_REPEATED * self._now:
            self._limit = sys.maxsize

    def _has_room(self, need: int) -> bool:
        """Is there room for so much, after what can go has gone?"""
        limit = self._limit - self._unseen
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
        """Results that only handles hold, and that can be made again."""
        found = []
        for key, reference in list(self._stored.items()):
            result = reference()
            if result is None or result.memory is None:
                del self._stored[key]
            elif not result.readers and result.run.cost is not None and _is_held_by_handles_alone(result):
                found.append(result)
        return found

    def _score(self, result: Result) -> float:
        """What it costs to make it again, with what else has to be made for that."""
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
