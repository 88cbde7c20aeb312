"""Modes of a step in a `planned` context, from its first op to the end of its backward: recording, comparing
recomputed results, or following plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..base.allocator import trace_allocations
from ..base.devices import runtime_of
from ..base.origins import OUTSIDE
from ..base.storages import same_bits, tensor_storages
from .durations import clock_of, take_off_calls
from .fetching import SavedAt
from .keeping import Kept
from .ledger import Ledger
from .marks import levels_on
from .modules import Modules, named_storages
from .planning import EagerPlan
from .recorded import Around, Record, count_hidden
from .recorder import Recorder

Token = tuple[Any, Any]


def token_of(func: Any, args: Sequence[Any]) -> Token:
    """The key of an op in a step: the op, and the shapes of its arguments."""
    first = args[0] if args else None
    if isinstance(first, (list, tuple)):
        first = first[0] if first else None
    return func, first.shape if isinstance(first, torch.Tensor) else None


class Entry:
    """One step as it runs. tokens: of its forward. saves: results for a backward. is_over: its backward
    began."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.saves = self.is_over = False

    def forward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an op of the forward."""
        self.tokens.append(token_of(func, args))
        return func(*args, **kwargs)

    def backward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return func(*args, **kwargs)

    def begin_backward(self) -> None:
        self.is_over = True

    def note_saved(self) -> None:
        self.saves = True

    def pack(self, tensor: torch.Tensor) -> Any:
        return Kept.saved(tensor)

    def unpack(self, held: Any) -> torch.Tensor:
        tensor: torch.Tensor = held.checked()
        return tensor

    def end(self) -> None:
        """After its backward, or where it has none."""


class Recording(Entry):
    """Records a step, with the memory of eager mode."""

    def __init__(self, models: Sequence[torch.nn.Module], device: torch.device) -> None:
        super().__init__()
        modules = Modules(*models)
        self._device = device
        self._resident = named_storages(models, device)
        self._levels = levels_on(device)
        self._recorder = Recorder(modules, clock=clock_of(device), mark=self._levels.mark)
        self._watched = modules.watched()
        self._watched.__enter__()
        self._levels.__enter__()

    def forward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.tokens.append(token_of(func, args))
        return self._recorder.__torch_dispatch__(func, types, args, kwargs)

    def backward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._recorder.__torch_dispatch__(func, types, args, kwargs)

    def begin_backward(self) -> None:
        super().begin_backward()
        self._recorder.begin_backward()

    def pack(self, tensor: torch.Tensor) -> Any:
        return self._recorder.pack(tensor)

    def unpack(self, held: Any) -> torch.Tensor:
        return self._recorder.unpack(held)

    def end(self) -> None:
        self._levels.__exit__()
        self._watched.__exit__(None, None, None)

    def record(self) -> tuple[Record, Around, set[int]]:
        """The record after the end, and the ops whose results are saved for a later step."""
        recorder, known, runtime = self._recorder, self._resident, runtime_of(self._device)
        self._levels.tell(recorder)
        take_off_calls(recorder.ops, self._device)
        beside = runtime.taken_by_libraries() + sum(
            size for address, size in recorder.external.items() if address not in known
        )
        names = {v: known[a][0] for v, a in recorder.addresses.items() if a in known}
        record = Record(
            recorder.ops,
            recorder.values,
            runtime.generator_state().nbytes,
            beside,
            (),
            (),
            names,
            0,
            runs_ahead=self._device.type != "cpu",
            asked_for=recorder.asked_for,
        )
        count_hidden(record)
        later = {value.made_by for value in recorder.still_saved() if not value.unpacked}
        recorder.end()
        resident = {OUTSIDE: beside}
        for name, size in known.values():
            resident[name] = resident.get(name, 0) + size
        return record, Around(resident), {op for op in later if op is not None}


class Following(Entry):
    """Follows plans. peak: the measured peak, if it is measured."""

    def __init__(
        self,
        plans: Sequence[tuple[list[Token], EagerPlan]],
        device: torch.device,
        models: Sequence[torch.nn.Module] = (),
    ) -> None:
        """models: their memory counts as resident if the step is measured."""
        super().__init__()
        self._plans, self._at = plans, 0
        self.ledger = Ledger([plan for _, plan in plans])
        self.peak = 0
        self._measured = _peak_beside(models, device) if models else None

    @property
    def plan(self) -> EagerPlan | None:
        """The plan that was followed to the end."""
        return self._plans[self._at][1] if self.ledger.left_at is None else None

    def forward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._see(token_of(func, args))
        return self.ledger.__torch_dispatch__(func, types, args, kwargs)

    def _see(self, token: Token) -> None:
        number = len(self.tokens)
        self.tokens.append(token)
        if self.ledger.left_at is not None:
            return
        mine = self._plans[self._at][0]
        if number < len(mine) and mine[number] == token:
            return
        for at, (tokens, plan) in enumerate(self._plans):
            if tokens[: number + 1] == self.tokens:
                self._at = at
                self.ledger.follow(plan)
                return
        self.ledger.leave()

    def begin_backward(self) -> None:
        super().begin_backward()
        self.ledger.end()

    def pack(self, tensor: torch.Tensor) -> Any:
        return Kept.saved(tensor) if self.is_over else self.ledger.pack(tensor)

    def unpack(self, held: Any) -> torch.Tensor:
        return self.ledger.unpack(held)

    def end(self) -> None:
        if self._measured is not None:
            self.peak, self._measured = self._measured(), None


class Comparing(Following):
    """Follows plans, but keeps the dropped results to compare them with recomputed ones.

    differing: numbers of ops whose recomputed bits differ. durations: of ops, in ns.
    """

    def __init__(self, plans: Sequence[tuple[list[Token], EagerPlan]], device: torch.device) -> None:
        super().__init__(plans, device)
        self.differing: set[int] = set()
        self.durations: list[int] = []
        self._clock = clock_of(device)

    def forward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        start = self._clock()
        result = super().forward(func, types, args, kwargs)
        self.durations.append(self._clock() - start)
        return result

    def backward(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        start = self._clock()
        result = func(*args, **kwargs)
        self.durations.append(self._clock() - start)
        return result

    def pack(self, tensor: torch.Tensor) -> Any:
        held = super().pack(tensor)
        return held if isinstance(_within(held), Kept) else (Kept.saved(tensor), held)

    def unpack(self, held: Any) -> torch.Tensor:
        if not isinstance(held, tuple):
            return super().unpack(held)
        kept, handle = held
        tensor: torch.Tensor = kept.checked()
        number = _within(handle).shown.result.run.number
        if not same_bits(tensor.detach(), super().unpack(handle).detach()):
            self.differing.add(number)
        return tensor


def _within(held: Any) -> Any:
    """What a ledger made of a tensor that autograd saves."""
    return held.held if isinstance(held, SavedAt) else held


def _peak_beside(models: Sequence[torch.nn.Module], device: torch.device) -> Callable[[], int]:
    """Begins to measure. The returned function ends the measurement and returns the peak in bytes, of the
    models and of all memory since.
    """
    known = tensor_storages(list(models), device.type)
    own = sum(known.values())
    if device.type == "cpu":
        tracing = trace_allocations()
        trace = tracing.__enter__()

        def traced() -> int:
            tracing.__exit__(None, None, None)
            return own + trace.rise(known)[0]

        return traced
    runtime = runtime_of(device)
    start = runtime.allocated()
    runtime.reset_highest()
    return lambda: own + runtime.highest() - start
