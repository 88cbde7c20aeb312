"""Records a real step: every op of forward, loss and backward, tensors saved by autograd, and when memory is
released.

A *value* is a storage between two writes to it. Views make no values. Weak references to the tensors of a
storage show when Python releases it. Tensors saved by autograd are held by our own cells, which are counted
separately, so that it is known how long a storage would live if it were not saved.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base.nodes import storage_bytes
from ..base.private import (
    OpsMode,
    StorageWeakRef,
    is_made_before,
    storage_id,
    storage_number,
    users_of_storage,
)
from .keeping import Kept
from .kinds import (
    Kind,
    argument,
    is_autocast_around,
    is_plain,
    kind_of,
    results_in,
    targets_of,
    tensors_in,
    trains,
)
from .modules import Modules
from .online import Evictor
from .results import Handle

FORWARD, LOSS, BACKWARD = "forward", "loss", "backward"


@dataclass(eq=False)
class Value:
    """made_by: the op; None if it existed before. released: number of ops run when Python released it; None:
    never. destroyed: the op that wrote over it. reads: by ops; saved: by cells, as [unpacked at ..., released
    at]. All are numbers of ops.
    """

    number: int
    bytes: int
    made_by: int | None
    released: int | None = None
    destroyed: int | None = None
    reads: list[int] = field(default_factory=list)
    unpacked: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    def stays(self) -> None:
        self.released = None


@dataclass(eq=False)
class Ran:
    """One op that ran.

    wrote: pairs of a value and the value that took its place. made: values of new memory. duration in ns;
    workspace in bytes; top: peak memory while it ran, relative to the start of the step. read: the number or
    truth value that it returned, if it returned one.
    """

    number: int
    func: Any
    phase: str
    reads: tuple[int, ...]
    made: tuple[int, ...]
    wrote: tuple[tuple[int, int], ...]
    may_repeat: bool
    random: bool
    module: str = ""
    duration: int = 0
    workspace: int = 0
    top: int = 0
    read: Any = None

    def runs_once(self) -> None:
        """Marks it as running once: a recomputation would not make what its readers need."""
        self.may_repeat = False

    def returned(self, number: Any) -> None:
        self.read = number

    def add_cost(self, workspace: int, top: int) -> None:
        """Adds its memory cost."""
        self.workspace, self.top = workspace, top

    def add_hidden(self, size: int) -> None:
        """Adds memory that existed while it ran."""
        self.workspace += size

    def timed_again(self, duration: int) -> None:
        """Takes the lesser time."""
        self.duration = min(self.duration, duration)

    @property
    def kind(self) -> str:
        return str(self.func)

    @property
    def inputs(self) -> Sequence[int]:
        return self.reads

    @property
    def outputs(self) -> Sequence[int]:
        """Its output values."""
        return (*self.made, *(new for _, new in self.wrote))

    @property
    def is_plain(self) -> bool:
        """True if it makes and writes nothing: views, and ops that inspect data."""
        return not self.made and not self.wrote


class _Storage:
    """A storage seen so far.

    watched: its tensors in Python. cells: those that autograd holds. ref keeps its number from being reused.
    """

    __slots__ = ("cells", "external", "number", "ref", "value", "watched")

    def __init__(self, storage: Any, value: Value, external: bool) -> None:
        self.ref, self.number = StorageWeakRef(storage), storage_number(storage)
        self.value, self.external = value, external
        self.watched = self.cells = 0

    def lose_cell(self) -> None:
        self.cells -= 1

    def is_free(self, users: int) -> bool:
        """True if only cells, and this many other tensors of ours, show it."""
        return users_of_storage(self.number) <= self.cells + users


class _Cell:
    """Held by autograd in place of a tensor while a step is recorded. storage: that of `held`, unless the
    evictor manages it. saved_at: number of ops of the forward run before; None: the forward is over.
    """

    __slots__ = ("held", "recorder", "saved_at", "storage", "value")

    def __init__(
        self, recorder: Recorder, held: Kept | Handle, value: Value | None, storage: _Storage | None
    ) -> None:
        self.recorder, self.held, self.value, self.storage = recorder, held, value, storage
        self.saved_at = len(recorder.ops) if recorder.phase == FORWARD else None

    def __del__(self) -> None:
        if self.value is not None:
            self.value.given_up.append(len(self.recorder.ops))
        if self.storage is not None:
            self.storage.lose_cell()


class Recorder(OpsMode):
    """Records a step.

    phase: of the current ops. modules: their modules. in_autocast: True if an op was inside autocast.
    external: bytes of existing memory by address; addresses: of its values. outputs, gradients: values of the
    model's results and of the final gradients. digests: of the outputs, if requested. asked_for: numbers of
    ops run when the forward saved a tensor and when a backward requested it.
    """

    def __init__(
        self,
        modules: Modules | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        mark: Callable[[int | None, int], object] | None = None,
        evictor: Evictor | None = None,
        before_write: Callable[[torch.Tensor], object] | None = None,
        begin: int = 0,
    ) -> None:
        """clock: of durations, in ns. mark: called at the begin of an op with its number (None: the following
        is not part of the step), to attribute the allocator's events, and with the evicted bytes that
        autograd waits for. evictor: evicts and restores tensors saved by autograd. before_write: called with
        the tensors that an op is about to write to. begin: of the graph (`begin_of_graph`), to notice what is
        read of others.
        """
        super().__init__()
        self.ops: list[Ran] = []
        self.values: list[Value] = []
        self.phase = FORWARD
        self.external: dict[int, int] = {}
        self.addresses: dict[int, int] = {}
        self.outputs: list[int | None] = []
        self.gradients: set[int] = set()
        self.modules = modules or Modules()
        self.in_autocast = self.reads_other_graphs = False
        self.digests: list[bytes] = []
        self.asked_for: list[tuple[int, int]] = []
        self.products = False
        self._clock, self._mark, self._evictor = clock, mark, evictor
        self._begin = begin
        self._before_write = before_write
        self._storages: dict[int, _Storage] = {}
        self._watched: dict[int, Any] = {}
        # Storages that Python seems to have released: PyTorch may still hold them.
        self._let_go: list[_Storage] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._look_at_let_go()
        self.in_autocast = self.in_autocast or (self.phase == FORWARD and is_autocast_around())
        kind = kind_of(func)
        given = list(tensors_in((*args, *kwargs.values())))
        self.reads_other_graphs = self.reads_other_graphs or any(
            is_made_before(tensor, self._begin) for tensor in given
        )
        reads = tuple(dict.fromkeys(each.number for t in given if (each := self._value_of(t)) is not None))
        evictor, number = self._evictor, len(self.ops)
        if kind.written and self._before_write is not None:
            for tensor in targets_of(kind, args, kwargs):
                self._before_write(tensor)
        if evictor is not None:
            self._pause()
            begun = evictor.before(number, func, kind, args, kwargs, saves=self.phase != BACKWARD)
        self._mark_op(number)
        start = self._clock()
        result = func(*args, **kwargs) if evictor is None else evictor.run(begun)
        duration = self._clock() - start
        self._add(func, kind, args, kwargs, given, reads, results_in(result), duration)
        if isinstance(result, (bool, int, float, complex)):
            self.ops[-1].returned(result)
        if evictor is not None:
            self._pause()
            evictor.after(begun, result)
            self._resume()
        return result

    def _add(
        self,
        func: Any,
        kind: Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: list[torch.Tensor],
        reads: tuple[int, ...],
        results: list[torch.Tensor],
        duration: int,
    ) -> None:
        number = len(self.ops)
        for value in reads:
            self.values[value].reads.append(number)
        wrote, statistics = self._writes(kind, args, kwargs, number)
        made = []
        for tensor in results:
            storage = self._known(tensor)
            if storage is None and (new := self._new(tensor, number)) is not None:
                made.append(new.value.number)
            self._watch(tensor)
        may = kind.repeatable and self.phase == FORWARD and is_plain(given, results, kwargs)
        # Running statistics are left out of a recomputation; other existing memory must not be written to.
        external = [old for old, _ in wrote if self.values[old].made_by is None]
        may = may and not external and (not statistics or bool(trains(kind, args, kwargs)))
        # Lists that are written to are not copied.
        may = may and not any(isinstance(argument(at, args, kwargs), (list, tuple)) for at in kind.written)
        self.ops.append(
            Ran(
                number,
                func,
                self.phase,
                reads,
                tuple(made),
                tuple(wrote),
                may,
                kind.random,
                self.modules.in_backward() if self.phase == BACKWARD else self.modules.in_forward(),
                duration,
            )
        )

    def _writes(
        self, kind: Kind, args: Sequence[Any], kwargs: Mapping[str, Any], number: int
    ) -> tuple[list[tuple[int, int]], bool]:
        """Storages that an op writes to, with running statistics separate."""
        wrote: list[tuple[int, int]] = []
        statistics = False
        for at in kind.written:
            tensor = argument(at, args, kwargs)
            for each in tensors_in([tensor]):
                storage = self._known(each)
                if storage is None:
                    continue
                if at in kind.statistics:
                    statistics = True
                    continue
                old = storage.value
                old.destroyed = number
                # Existing memory stays in place.
                storage.value = self._add_value(0 if storage.external else old.bytes, number)
                wrote.append((old.number, storage.value.number))
        return wrote, statistics

    def _add_value(self, size: int, made_by: int | None) -> Value:
        value = Value(len(self.values), size, made_by)
        self.values.append(value)
        return value

    def _known(self, tensor: torch.Tensor) -> _Storage | None:
        try:
            return self._storages.get(storage_id(tensor))
        except (RuntimeError, NotImplementedError):  # sparse: it has none
            return None

    def _new(self, tensor: torch.Tensor, made_by: int | None) -> _Storage | None:
        try:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # sparse tensors and wrappers have none
            return None
        known = _Storage(storage, self._add_value(storage_bytes(tensor), made_by), external=made_by is None)
        self._storages[known.number] = known
        if made_by is None and storage.device.type != "meta":
            self.external[address] = storage_bytes(tensor)
            self.addresses[known.value.number] = address
        return known

    def _storage_of(self, tensor: torch.Tensor) -> _Storage | None:
        return self._known(tensor) or self._new(tensor, None)

    def _value_of(self, tensor: torch.Tensor) -> Value | None:
        storage = self._storage_of(tensor)
        return None if storage is None else storage.value

    def _watch(self, tensor: torch.Tensor) -> None:
        """Watch for the time when Python has no tensor of this storage left."""
        storage, key = self._known(tensor), id(tensor)
        if storage is None or storage.external or key in self._watched:
            return
        if storage.value.released is not None:
            return  # autograd shows what it saved
        storage.watched += 1

        def gone(_: Any) -> None:
            self._watched.pop(key, None)
            storage.watched -= 1
            if not storage.watched:
                self._let_go.append(storage)

        self._watched[key] = weakref.ref(tensor, gone)

    def _look_at_let_go(self) -> None:
        """Note the storages released since the last op."""
        if self._let_go:
            storages, self._let_go = self._let_go, []
            for storage in storages:
                if storage.watched:
                    continue
                if storage.is_free(0 if self._evictor is None else self._evictor.users(storage.number)):
                    storage.value.released = len(self.ops)
                else:
                    self._let_go.append(storage)

    def pack(self, tensor: torch.Tensor) -> Any:
        """The object that autograd holds for a tensor."""
        storage = self._storage_of(tensor)
        held = Kept.saved(tensor) if self._evictor is None else self._evictor.pack(tensor)
        if storage is None or storage.external:
            return _Cell(self, held, None, None)
        made_by = storage.value.made_by
        if made_by is not None and kind_of(self.ops[made_by].func).empty:
            self.ops[made_by].runs_once()  # the op that saves it fills it without counting a write
        if isinstance(held, Handle):
            return _Cell(self, held, storage.value, None)
        storage.cells += 1
        return _Cell(self, Kept.apart(tensor), storage.value, storage)

    def unpack(self, cell: _Cell) -> torch.Tensor:
        if self._evictor is None:
            assert isinstance(cell.held, Kept)
            tensor = cell.held.checked()
        else:
            self._pause()
            tensor = self._evictor.unpack(cell.held)
            self._resume()
        if cell.saved_at is not None and self.phase != FORWARD:
            self.asked_for.append((cell.saved_at, len(self.ops)))
        if cell.value is not None:
            cell.value.unpacked.append(len(self.ops))
            number = storage_id(tensor)
            if number not in self._storages:  # it was recomputed
                self._storages[number] = _Storage(tensor.untyped_storage(), cell.value, external=False)
        return tensor

    def _pause(self) -> None:
        """The following is not part of the step."""
        if self._mark is not None:
            self._mark(None, 0)

    def _resume(self) -> None:
        if self.ops:
            self._mark_op(self.ops[-1].number)

    def _mark_op(self, number: int) -> None:
        """Marks the begin of this op."""
        if self._mark is not None:
            self._mark(number, 0 if self._evictor is None else self._evictor.missing())

    def begin_loss(self, outputs: Iterable[torch.Tensor]) -> None:
        """The model returned these."""
        self.phase = LOSS
        known = map(self._known, outputs)
        self.outputs = [None if each is None or each.external else each.value.number for each in known]

    def note_products(self, met: bool) -> None:
        """Were there products that need `EagerProducts`?"""
        self.products = met

    def note_digests(self, digests: list[bytes]) -> None:
        """Of what the model returned."""
        self.digests = digests

    def begin_backward(self) -> None:
        self.phase = BACKWARD

    def end_backward(self, gradients: Iterable[int]) -> None:
        """Ends the backward, which made these gradients (numbers of storages)."""
        known = map(self._storages.get, gradients)
        self.gradients = {each.value.number for each in known if each is not None and not each.external}

    def still_saved(self) -> list[Value]:
        """Values that autograd holds for a later backward."""
        return [storage.value for storage in self._storages.values() if storage.cells > 0]

    def end(self) -> None:
        """Ends the step and all watching."""
        self._look_at_let_go()
        self._let_go.clear()
        self._watched.clear()
        self._storages.clear()
        if self._evictor is not None:
            self._evictor.end_forward()
