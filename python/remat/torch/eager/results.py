"""What a planned step writes down of its ops, and how a result is made again from that.

Nobody frees anything: a handle of autograd's holds a result, a result the run of an op that makes it, a run
its arguments. When Python's references die, the memory is free.

Runs of a plan run again once, and what they make then stays for all that reads it. Where results are evicted
online (online.py) runs *last*: they may run again as often as they are asked for, and what is made on the way
and held by no handle goes at once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.devices import runtime_of
from ..base.private import (
    StorageWeakRef,
    _DisableAutocast,
    conjugated_view,
    negated_view,
    view_base,
    without_dispatch_modes,
)
from .keeping import Kept, copy_of
from .kinds import Kind, argument, detached, mapped, results_in, tensors_in, with_argument

# A run may be asked for by several threads of autograd.
turn = threading.RLock()


@dataclass(frozen=True)
class Cost:
    """Of a run. duration in ns; bytes: of what it makes; workspace: bytes that it takes besides, where that
    was measured.
    """

    duration: int
    bytes: int
    workspace: int
    measured: bool = True


class Away:
    """What was evicted and autograd waits for. bytes: of all of it."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, result: Result) -> None:
        self.bytes += result.bytes

    def remove(self, result: Result) -> None:
        self.bytes -= result.bytes


class Result:
    """One new storage that a run of an op made, or one that it wrote to.

    away: who counts it while it is evicted. memory: where it is; None: it has to be made. seen: the memory in
    which Python had it last. readers: runs to come that read it; read_in: all that were written down and
    last. handles: of autograd's that wait for it; waiting: those. written: what a run that is to write over
    it makes of it, which holds that run and so this; after: the same, once the run wrote over it. bytes: of
    its memory, where that was ever known. used: when it was, as a number that grows.
    """

    __slots__ = (
        "__weakref__",
        "after",
        "away",
        "bytes",
        "handles",
        "memory",
        "place",
        "read_in",
        "readers",
        "run",
        "seen",
        "used",
        "waiting",
        "written",
    )

    def __init__(self, run: Run, place: int) -> None:
        self.run, self.place = run, place
        self.memory: torch.UntypedStorage | None = None
        self.readers = self.handles = self.bytes = self.used = 0
        self.waiting: list[weakref.ref[Handle]] = []
        self.read_in: list[weakref.ref[Run]] = []
        self.seen: StorageWeakRef | None = None
        self.written: weakref.ref[Result] | None = None
        self.after: Result | None = None
        self.away: Away | None = None

    def see_in(self, memory: StorageWeakRef | None) -> None:
        """Python has it there. None: something wrote over it."""
        self.seen = memory

    def is_seen(self) -> bool:
        """May Python have it?"""
        return self.seen is not None and not self.seen.expired()

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

    def read_by(self, runs: int) -> None:
        """So many are about to."""
        self.readers = runs

    def is_wanted(self) -> bool:
        return bool(self.readers or self.handles)

    def was_read(self) -> None:
        self.readers -= 1
        if self.run.lasts and not self.is_wanted():
            self.memory = None

    def give_up_memory(self) -> None:
        """A run wrote over it."""
        self.memory = None

    def pass_memory_on(self) -> None:
        """A run that was written down wrote over it in its second run."""
        self.after = None if self.written is None else self.written()
        if self.after is not None:  # else nobody asks for what came of it, and this is as good
            self.memory = None

    def lie_in(self, memory: torch.UntypedStorage) -> None:
        self._come_back()
        self.memory, self.bytes = memory, memory.nbytes()

    def use(self, now: int) -> None:
        self.used = now

    def gain_handle(self, handle: Handle) -> None:
        self.handles += 1
        self.waiting.append(weakref.ref(handle))

    def lose_handle(self) -> None:
        self.handles -= 1
        if not self.handles:
            self._come_back()
        if self.run.lasts and not self.is_wanted():
            self.memory = None

    def waiting_handles(self) -> list[Handle]:
        return [handle for reference in self.waiting if (handle := reference()) is not None]

    def evict(self, away: Away) -> None:
        """away: counts it as long as it is."""
        self.memory, self.away = None, away
        away.add(self)
        for handle in self.waiting_handles():
            handle.evict()

    def _come_back(self) -> None:
        """It is there, or nobody waits for it."""
        if self.away is not None:
            self.away.remove(self)
            self.away = None

    def become(self, result: Result | None) -> None:
        """A run wrote over it, and this came of it, which is there in its place after that has run again."""
        self.written = None if result is None else weakref.ref(result)


class Shown:
    """How a tensor shows a result."""

    __slots__ = ("conj", "dtype", "neg", "offset", "result", "shape", "strides")

    def __init__(self, result: Result, tensor: torch.Tensor) -> None:
        self.result, self.dtype = result, tensor.dtype
        self.shape, self.strides, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        self.conj, self.neg = tensor.is_conj(), tensor.is_neg()

    def move_to(self, result: Result) -> None:
        self.result = result

    def tensor(self) -> torch.Tensor:
        memory = self.result.newest().memory
        assert memory is not None
        made = torch.empty(0, dtype=self.dtype, device=memory.device)
        made.set_(memory, self.offset, self.shape, self.strides)  # type: ignore[call-overload]
        made = conjugated_view(made) if self.conj else made
        return negated_view(made) if self.neg else made


class Handle:
    """What autograd holds in place of a tensor that is dropped.

    base: the tensor whose count of writes is this one's. written: it was written to since.
    expected: a digest to compare with. kept: the tensor itself, as long as it is not evicted.
    """

    __slots__ = ("__weakref__", "_waits", "base", "expected", "kept", "shown", "written")

    def __init__(self, result: Result, tensor: torch.Tensor, expected: bytes | None) -> None:
        self.shown, self.base, self.expected = Shown(result, tensor), weakref.ref(view_base(tensor)), expected
        self.written = False
        self.kept: Kept | None = None
        self._waits = True
        result.gain_handle(self)

    def __del__(self) -> None:
        self.leave_result()

    def keep(self, tensor: torch.Tensor) -> None:
        self.kept = Kept(detached(tensor))

    def evict(self) -> None:
        self.kept = None

    def check(self) -> None:
        """Raises RuntimeError where it was written to."""
        if self.written:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: the result of {self.shown.result.run.func}"
            )

    def move_to(self, result: Result) -> None:
        """Another part of its memory was written to, of which this came."""
        self.leave_result()
        self._waits = True
        self.shown.move_to(result)
        result.gain_handle(self)

    def leave_result(self) -> None:
        """What it keeps is no longer a result that can be made again, or it is asked for no more."""
        if self._waits:
            self._waits = False
            self.shown.result.lose_handle()

    def note_write(self, tensor: torch.Tensor) -> None:
        """Something wrote to this tensor, which shows the same storage."""
        if self.base() is view_base(tensor):
            self.written = True


class NotMadeAgainError(RuntimeError):
    """A second run of an op made other tensors than the first. number: of the op in its step."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"remat: {run.func} did not make its result again")
        self.number = run.number


class Argument(Kept):
    """A tensor that a run reads and that stays. run: where that may run again more than once."""

    __slots__ = ("run",)

    def __init__(self, tensor: torch.Tensor, checked: bool = True) -> None:
        super().__init__(tensor, checked)
        self.run: weakref.ref[Run] | None = None

    def note_run(self, run: Run) -> None:
        self.run = weakref.ref(run)


class Run:
    """One run of an op, as it was written down. number: of the op in its step. is_over: it ran again.
    lasts: it may run again more than once. cost: what is known of its time and memory. makes: how many
    tensors it returned.
    """

    __slots__ = (
        *("__weakref__", "_shown", "args", "cost", "func", "is_over", "kind", "kwargs", "lasts", "makes"),
        *("number", "results", "state"),
    )

    def __init__(
        self, number: int, func: Any, kind: Kind, args: Any, kwargs: Any, state: torch.Tensor | None
    ) -> None:
        self.number, self.func, self.kind, self.state = number, func, kind, state
        self._take(args, kwargs)
        # Results hold their run.
        self.results: list[weakref.ref[Result]] = []
        self.is_over = self.lasts = False
        self.cost: Cost | None = None
        self.makes = 0

    def _take(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self._shown = list(_shown_in((*args, *kwargs.values())))

    def returned(self, count: int) -> None:
        """So many tensors."""
        self.makes = count

    def add_result(self, place: int) -> Result:
        """place: among the tensors that the op returns."""
        result = Result(self, place)
        self.results.append(weakref.ref(result))
        return result

    def last(self, cost: Cost) -> None:
        """It may run again as often as it is asked for."""
        self.lasts, self.cost = True, cost
        for result in self.alive_results():
            result.become(None)

    def note_reads(self) -> None:
        """With what it reads."""
        for item in _leaves_of((*self.args, *self.kwargs.values())):
            if isinstance(item, Argument):
                item.note_run(self)
            elif isinstance(item, Shown):
                item.result.read_in.append(weakref.ref(self))

    def change_arguments(self, change: Callable[[Any], Any]) -> None:
        self._take(
            mapped(self.args, change), {name: mapped(each, change) for name, each in self.kwargs.items()}
        )

    def give_up(self) -> None:
        """It will not run again: what it makes is kept, or nobody asks for it."""
        self._take((), {})
        self.state = None

    def alive_results(self) -> list[Result]:
        return [result for reference in self.results if (result := reference()) is not None]

    def shown(self) -> Sequence[Shown]:
        """That it reads."""
        return self._shown

    def sources(self) -> list[Result]:
        return [shown.result for shown in self._shown]

    def repeat(self) -> None:
        """Run again, from what is there."""
        args = mapped(self.args, _given)
        kwargs = {name: mapped(each, _given) for name, each in self.kwargs.items()}
        for source in self.sources():
            source.was_read()
        args, kwargs, used_up = self._with_own(args, kwargs)
        results = results_in(called_with_state(self.func, args, kwargs, self.state))
        if len(results) != self.makes:  # some keep a workspace for autograd where that is on
            raise NotMadeAgainError(self)
        for source in used_up:
            source.pass_memory_on()
        made = self.alive_results()
        if not self.lasts:
            self.results.clear()
            self.give_up()
            self.is_over = True
        for result in made:
            if not self.lasts or (result.memory is None and result.is_wanted()):
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
            if isinstance(recorded, Shown) and not (recorded.result.readers or self._is_held(recorded)):
                used_up.append(recorded.result.newest())
            else:
                args, kwargs = with_argument(at, args, kwargs, copy_of(given))
        return args, kwargs, used_up

    def _is_held(self, shown: Shown) -> bool:
        """By handles that wait for it as it is, although a run is to write over it."""
        return self.lasts and bool(shown.result.handles)


def called_with_state(func: Any, args: Any, kwargs: Any, state: torch.Tensor | None) -> Any:
    """An op, with a state of the generator of its own, if it draws random numbers."""
    if state is None:
        return func(*args, **kwargs)
    runtime = runtime_of(device_of(args, kwargs))
    now = runtime.generator_state()
    runtime.set_generator_state(state)
    try:
        return func(*args, **kwargs)
    finally:
        runtime.set_generator_state(now)


def device_of(args: Any, kwargs: Any) -> torch.device:
    """Where an op runs."""
    first = next(iter(tensors_in((*args, *kwargs.values()))), None)
    return torch.device(kwargs.get("device") or "cpu") if first is None else first.device


def restore(
    wanted: Result,
    before: Callable[[Run], object] | None = None,
    after: Callable[[Run], object] | None = None,
) -> None:
    """Make a result again, and what it is made from. before, after: called with each run."""
    with turn:
        if wanted.is_there():
            return
        runs = _needed_for(wanted)
        _count_readers(runs)
        no_autocast: Any = _DisableAutocast
        try:
            with torch.no_grad(), no_autocast(), without_dispatch_modes():
                for run in runs:
                    if before is not None:
                        before(run)
                    run.repeat()
                    if after is not None:
                        after(run)
        except BaseException:
            _count_readers(runs, none=True)
            raise
        if not wanted.is_there():
            raise NotMadeAgainError(wanted.run)


def _needed_for(wanted: Result) -> list[Run]:
    """The runs that make it from what is there, in their order."""
    found: dict[int, Run] = {}
    pending = [wanted.run]
    while pending:
        run = pending.pop()
        if id(run) not in found:
            found[id(run)] = run
            pending += [source.run for source in run.sources() if not source.is_there()]
    return sorted(found.values(), key=lambda each: each.number)


def _count_readers(runs: Sequence[Run], none: bool = False) -> None:
    """What runs that last are about to read. none: they will not."""
    counts: dict[int, tuple[Result, int]] = {}
    for source in (source for run in runs if run.lasts for source in run.sources()):
        counts[id(source)] = source, 0 if none else counts.get(id(source), (source, 0))[1] + 1
    for source, count in counts.values():
        source.read_by(count)


def _shown_in(items: Any) -> Iterator[Shown]:
    return (item for item in _leaves_of(items) if isinstance(item, Shown))


def _leaves_of(items: Any) -> Iterator[Any]:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _leaves_of(item)
        else:
            yield item


def _given(item: Any) -> Any:
    if isinstance(item, Shown):
        return item.tensor()
    return item.checked() if isinstance(item, Kept) else item
