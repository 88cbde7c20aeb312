"""The forward of a planned step in eager mode: ops that may run again are written down, and what autograd
saves of their results is dropped.

The plan is advice: whatever a step does, its results are those of eager mode; only bytes can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.autograd.graph import saved_tensors_hooks

from ..base.private import OpsMode, keeps_graph, without_dispatch_modes
from ..base.storages import digest
from .book import Book, bytes_made
from .fetching import Away, Copying, SavedAt
from .keeping import Kept
from .kinds import kind_of, results_in
from .online import Evictor
from .passing import Passing, kept
from .results import Handle, restore


class Followed(Protocol):
    """What a ledger follows. functions: the ops of a forward; again: the numbers of those that may run
    again; passing: what need not be seen (passing.py); made: bytes of new memory that each op makes; copying:
    what leaves for a host, if anything does.
    """

    @property
    def functions(self) -> Sequence[Any]: ...

    @property
    def again(self) -> Collection[int]: ...

    @property
    def passing(self) -> Any: ...

    @property
    def made(self) -> Sequence[int]: ...

    @property
    def copying(self) -> Copying | None: ...


class Ledger(OpsMode):
    """Of one step.

    plan: the one that is followed. left_at: the number of the op that is in none of the plans; what comes
    from there on is evicted online, or kept where nobody says how. made: bytes of new memory that each op
    made, where that is looked at.
    """

    def __init__(
        self,
        plans: Sequence[Followed],
        verify: bool = False,
        told: Callable[[int], object] | None = None,
        leave: Callable[[Any, int], Evictor] | None = None,
        smaller: bool = False,
        turn: Callable[[Any, Any, int], Evictor | None] | None = None,
        keeps: Callable[[], object] | None = None,
    ) -> None:
        """plans: for the sequences of ops that are known, the likeliest first. verify: compare what runs
        again with digests of what was dropped, which take no memory. told: called with the number of an op
        whose second run made other bits. leave: what is to go on from an op that is in no plan. smaller: the
        step is left too where an op makes more than the plan's. turn: what is to go on where a step turns
        from one plan to another, if that one is not enough. keeps: called where what is made again stays, as
        the backward leaves what is saved.
        """
        super().__init__()
        self.plan = plans[0]
        self._plans = plans
        self._functions, self._again = self.plan.functions, self.plan.again
        self._smaller = smaller
        self._passing = Passing(self, None if smaller else self.plan.passing)
        self.left_at: int | None = None
        self.makes_more = False
        self.made: list[int] = []
        self._at_backward: Callable[[], object] | None = None
        self._before_second: Callable[[int], object] | None = None
        self._verify, self._told = verify, told
        self._book = Book()
        self._leave, self._turn = leave, turn
        # Of a backward inside the forward the plan knows.
        self._keeps: Callable[[], object] | None = None
        self._after_forward = keeps
        self._evictor: Evictor | None = None
        # Of each plan that was followed and copies something; and of that of now, while something may leave.
        self._away: list[Away] = []
        self._now_away: Away | None = None
        self._copies(self.plan)

    def _copies(self, plan: Followed) -> None:
        """From now on, what this plan says. Raises HostMemoryError."""
        self._settle()
        if plan.copying is not None:
            self._now_away = Away(plan.copying)
            self._away.append(self._now_away)
            self._passing.mark(plan.copying.asked)

    def _settle(self) -> None:
        """Nothing more leaves, and what was about to has left."""
        self._now_away = None
        for away in self._away:
            away.settle()

    def call_at_backward(self, look: Callable[[], object]) -> None:
        """Once, when autograd asks for the first tensor."""
        self._at_backward = look
        self._passing.keep(True, False)

    def call_before_second_runs(self, look: Callable[[int], object]) -> None:
        """With the number of the op that runs again."""
        self._before_second = look

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        position = self._passing.take()
        functions = self._functions
        if position >= len(functions) or functions[position] is not func:
            self._turn_to_another(position, func)
        kind = kind_of(func)
        if self._evictor is not None:
            begun = self._evictor.before(position, func, kind, args, kwargs, saves=True)
            result = func(*args, **kwargs)
            self._evictor.after(begun, result)
            return result
        away, run = self._now_away, None
        if away is not None:
            away.before(position)
        if position in self._again:
            run = self._book.written_down(position, func, kind, args, kwargs)
        before = self._book.note_writes(kind, args, kwargs) if kind.written else {}
        result = func(*args, **kwargs)
        if run is not None:
            results = results_in(result)
            self._book.note_results(run, results, args, kwargs, before)
            self._passing.note_results(results)
        if away is not None:
            left = away.after(position, func, kind, args, kwargs, result, self._book)
            self._passing.note_results(left)
        if self._smaller and self.left_at is None:
            self.made.append(bytes_made(args, kwargs, result))
            if self.made[position] > self.plan.made[position]:
                self.makes_more = True
                self._leave_at(position + 1)
        return result

    def _turn_to_another(self, position: int, func: Any) -> None:
        """The op is not the plan's: follow one that has been the same so far, or keep what follows."""
        if self.left_at is not None:
            return
        done = self._functions[:position]
        for plan in self._plans:
            functions = plan.functions
            if len(functions) > position and functions[position] is func and functions[:position] == done:
                if self._evictor is None and self._turn is not None:
                    self._evict_by(self._turn(self.plan, plan, position))
                self.follow(plan)
                return
        self._leave_at(position)

    def follow(self, plan: Followed) -> None:
        """It has been the same so far."""
        if plan is not self.plan:
            self._copies(plan)
        self.plan, self._functions, self._again = plan, plan.functions, plan.again
        every = self._smaller or self._evictor is not None
        self._passing.follow(None if every else plan.passing)

    def leave(self) -> None:
        """The op that comes is in none of the plans."""
        self._leave_at(self._passing.seen())

    def _leave_at(self, position: int) -> None:
        self.left_at, self._again = position, frozenset()
        self._settle()
        self._passing.follow(None)
        if self._evictor is None and self._leave is not None:
            self._evict_by(self._leave(self.plan, position))

    def _evict_by(self, evictor: Evictor | None) -> None:
        """From now on, if there is one."""
        if evictor is not None:
            self._evictor = evictor
            evictor.adopt(self._book)
            self._passing.keep(False, False)

    def pack(self, tensor: torch.Tensor) -> Any:
        """What autograd is to hold for a tensor."""
        if self._evictor is not None:
            return self._evictor.pack(tensor)
        held = self._held(tensor)
        return SavedAt(held, self._passing.seen()) if self._away else held

    def _held(self, tensor: torch.Tensor) -> Kept | Handle:
        result = self._book.result_of(tensor)
        if result is None:
            return Kept.saved(tensor)
        return self._book.handle(result, tensor, digest(tensor) if self._verify else None)

    def unpack(self, held: Any) -> torch.Tensor:
        """The tensor, as it was when autograd saved it. Raises RuntimeError where it was written to since."""
        if self._at_backward is not None:
            look, self._at_backward = self._at_backward, None
            look()
            self._passing.keep(True, self._evictor is None)
        if isinstance(held, SavedAt):
            for away in self._away:
                away.come_to(held.saved_at)
            held = held.held
        held = kept(held)
        if self._evictor is not None:
            return self._evictor.unpack(held)
        if isinstance(held, Kept):
            return held.checked()
        shown, run = held.shown, held.shown.result.run
        held.check()
        before = self._before_second
        restore(shown.result, None if before is None else lambda again: before(again.number))
        if self._keeps is not None:
            keeps, self._keeps = self._keeps, None
            if keeps_graph():
                keeps()
        with torch.no_grad(), without_dispatch_modes():
            tensor: torch.Tensor = shown.tensor()
        if held.expected is not None and digest(tensor) != held.expected and self._told is not None:
            self._told(run.number)
        return tensor

    def through(self, call: Callable[[], Any]) -> Any:
        """A forward, to its end."""
        with self, self._passing, saved_tensors_hooks(*self._passing.hooks(self.pack, self.unpack)):
            outputs = call()
        self.end()
        return outputs

    def end(self) -> None:
        """The forward is over: nothing is looked up any longer."""
        if self.left_at is None and self._passing.seen() < len(self._functions):
            self.left_at = self._passing.seen()
        self._settle()
        self._book.end()
        self._keeps = self._after_forward
        if self._evictor is not None:
            self._evictor.end_forward()
