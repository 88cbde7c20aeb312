"""The recorded runs of a planned step, and the recomputation of results from them.

Nothing is freed explicitly: autograd's handle holds a result, a result the run of the op that makes it, a run
its arguments. When the last Python reference dies, the memory is free.

Runs of a plan are repeated once, and their results then stay for all readers. With online eviction
(online.py) runs *last*: they may be repeated as often as needed, and intermediate results that no handle
holds are freed at once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.devices import runtime_of
from ..base.modes import with_kernels_of
from ..base.private import (
    KernelSettings,
    StorageWeakRef,
    _DisableAutocast,
    conjugated_view,
    negated_view,
    view_base,
    without_dispatch_modes,
    without_function_modes,
)
from .keeping import Kept, copy_of
from .kinds import Kind, argument, detached, mapped, results_in, tensors_in, with_argument

# Several threads of autograd may need the same run.
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
    """The evicted results that autograd waits for. bytes: their total."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, result: Result) -> None:
        self.bytes += result.bytes

    def remove(self, result: Result) -> None:
        self.bytes -= result.bytes


class Result:
    """A storage that a run of an op made or wrote to.

    away: counts it while it is evicted. memory: its memory; None: to be recomputed. seen: the memory in which
    Python had it last. readers: later runs that read it; read_in: all recorded lasting ones. handles: number
    of autograd's handles that wait for it; waiting: these handles. written: the result of a later run that
    writes over it, which holds that run and so this; after: the same, once the run has written. bytes: of its
    memory, if known. used: time of the last use, as a growing number.
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
        """Notes the memory in which Python has it. None: it was written over."""
        self.seen = memory

    def is_seen(self) -> bool:
        """True if Python may have it."""
        return self.seen is not None and not self.seen.expired()

    def newest(self) -> Result:
        """This result, or the one that a run made of its memory by writing to it. Requests are only allowed
        for tensors that were not written to since.
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
        """Adds this many readers."""
        self.readers = runs

    def is_wanted(self) -> bool:
        return bool(self.readers or self.handles)

    def was_read(self) -> None:
        self.readers -= 1
        if self.run.lasts and not self.is_wanted():
            self.memory = None

    def give_up_memory(self) -> None:
        """Releases its memory, which a run wrote over."""
        self.memory = None

    def pass_memory_on(self) -> None:
        """Passes on its memory, which a repeated run wrote over."""
        self.after = None if self.written is None else self.written()
        if self.after is not None:  # else the new result is not needed, and its memory is not used
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
        """away: counts it while it is evicted."""
        self.memory, self.away = None, away
        away.add(self)
        for handle in self.waiting_handles():
            handle.evict()

    def _come_back(self) -> None:
        """It is in memory again, or not needed."""
        if self.away is not None:
            self.away.remove(self)
            self.away = None

    def become(self, result: Result | None) -> None:
        """A run wrote over it and made this result, which replaces it when the run is repeated."""
        self.written = None if result is None else weakref.ref(result)


class Shown:
    """How a tensor views the memory of a result."""

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
    """Held by autograd in place of a dropped tensor.

    base: the tensor that shares its write count. written: True if it was written to since. expected: a digest
    to compare with. kept: the tensor itself, until it is evicted.
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
        """Raises RuntimeError if it was written to."""
        if self.written:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: the result of {self.shown.result.run.func}"
            )

    def move_to(self, result: Result) -> None:
        """Moves it to this result, made by a write to another part of its memory."""
        self.leave_result()
        self._waits = True
        self.shown.move_to(result)
        result.gain_handle(self)

    def leave_result(self) -> None:
        """Detaches it from its result, which cannot be recomputed any more or is not needed."""
        if self._waits:
            self._waits = False
            self.shown.result.lose_handle()

    def note_write(self, tensor: torch.Tensor) -> None:
        """Something wrote to this tensor, which shows the same storage."""
        if self.base() is view_base(tensor):
            self.written = True


class NotMadeAgainError(RuntimeError):
    """A recomputation made different tensors. number: of the op in its step."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"remat: {run.func} did not make its result again")
        self.number = run.number


class Argument(Kept):
    """A kept tensor that a run reads. run: set if that may be repeated more than once."""

    __slots__ = ("run",)

    def __init__(self, tensor: torch.Tensor, checked: bool = True) -> None:
        super().__init__(tensor, checked)
        self.run: weakref.ref[Run] | None = None

    def note_run(self, run: Run) -> None:
        self.run = weakref.ref(run)


class Run:
    """One recorded run of an op. number: of the op in its step. is_over: it was repeated. lasts: it may be
    repeated more than once. cost: known time and memory. makes: number of tensors returned.
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
        """Sets the number of returned tensors."""
        self.makes = count

    def add_result(self, place: int) -> Result:
        """place: index among the tensors that the op returns."""
        result = Result(self, place)
        self.results.append(weakref.ref(result))
        return result

    def last(self, cost: Cost) -> None:
        """Allows any number of repetitions."""
        self.lasts, self.cost = True, cost
        for result in self.alive_results():
            result.become(None)

    def note_reads(self) -> None:
        """Registers it as a reader of its arguments."""
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
        """It will not be repeated: its results are kept, or not needed."""
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
        """Repeat it, with its arguments in memory."""
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
        """The arguments, with copies of those that the op writes to if they are needed unchanged; and the
        results written over.
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
        """True if handles wait for it unchanged, although a run is to write over it."""
        return self.lasts and bool(shown.result.handles)


def called_with_state(func: Any, args: Any, kwargs: Any, state: torch.Tensor | None) -> Any:
    """Calls an op, with its own generator state if it draws random numbers."""
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
    kernels: KernelSettings,
    before: Callable[[Run], object] | None = None,
    after: Callable[[Run], object] | None = None,
) -> None:
    """Recompute a result and its missing inputs. kernels: of the forward. before, after: called with each
    run."""
    with turn:
        if wanted.is_there():
            return
        runs = _needed_for(wanted)
        _count_readers(runs)
        no_autocast: Any = _DisableAutocast
        try:
            with (
                torch.no_grad(),
                no_autocast(),
                without_dispatch_modes(),
                without_function_modes(),
                with_kernels_of(kernels),
            ):
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
    """The runs that recompute it from memory, in order."""
    found: dict[int, Run] = {}
    pending = [wanted.run]
    while pending:
        run = pending.pop()
        if id(run) not in found:
            found[id(run)] = run
            pending += [source.run for source in run.sources() if not source.is_there()]
    return sorted(found.values(), key=lambda each: each.number)


def _count_readers(runs: Sequence[Run], none: bool = False) -> None:
    """Counts the inputs of lasting runs that will be repeated. none: they will not."""
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
