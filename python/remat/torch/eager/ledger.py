"""The forward of a planned step in eager mode: ops that may be recomputed are recorded, and their saved
results are dropped.

The plan is advice: whatever a step does, its results are those of eager mode; only bytes can differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch

from ..base.private import OpsMode, graph_task, keeps_graph, without_dispatch_modes
from ..base.products import EagerProducts
from ..base.saved import watched_saves
from ..base.storages import digest
from .book import Book, bytes_made
from .fetching import Away, Copying, SavedAt
from .keeping import Kept
from .kinds import Kind, kind_of, results_in, tensors_in
from .online import Evictor
from .passing import Passing, kept
from .results import Handle, Run, restore


class Followed(Protocol):
    """The plan of a ledger. functions: the ops of a forward; again: numbers of those that may be recomputed;
    passing: ops that need not be seen (passing.py); made: bytes of new memory of each op; copying: values
    offloaded to a host, if any; readings: ops whose results depend on data in number or size, with the
    numbers that Python read; products: needs the forward `EagerProducts`?
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

    @property
    def readings(self) -> Mapping[int, Any]: ...

    @property
    def products(self) -> bool: ...


class Ledger(OpsMode):
    """Of one step.

    plan: the one followed. left_at: number of the first op that is in no plan; results from there on are
    evicted online, or kept if `leave` is not given. made: bytes of new memory of each op, if `smaller`.
    makes_more: True if an op before made more than in the plan.
    """

    def __init__(
        self,
        plans: Sequence[Followed],
        verify: bool = False,
        told: Callable[[int], object] | None = None,
        leave: Callable[[Any, int, int], Evictor] | None = None,
        smaller: bool = False,
        turn: Callable[[Any, Any, int], Evictor | None] | None = None,
        backwards: Callable[[str], object] | None = None,
        causes: bool = False,
    ) -> None:
        """plans: for the known sequences of ops, the likeliest first. verify: compare recomputed results with
        digests of the dropped ones, which take no memory. told: called with the number of an op whose
        recomputed bits differ. leave: makes the evictor that continues from an op in no plan; called with the
        plan, the number of the op, and bytes that the op before it made above the plan. smaller: leave the
        plan if any op makes more than planned, not only once Python read other numbers. turn: makes the
        evictor to use after a change of plan, if the new plan does not suffice. backwards: called with "kept"
        if recomputed results stay because the backward keeps its saved tensors, with "several" if another
        backward follows it. causes: compare what recomputed ops read too, so that `told` gets no op that
        only reads what differs.
        """
        super().__init__()
        self.plan = plans[0]
        self._plans = plans
        self._functions, self._again = self.plan.functions, self.plan.again
        self._smaller = self._sees_sizes = smaller
        self._passing = Passing(self, None if smaller else self.plan.passing)
        self.left_at: int | None = None
        self.makes_more = False
        self.made: list[int] = []
        self._at_backward: Callable[[], object] | None = None
        self._before_second: Callable[[int], object] | None = None
        self._verify, self._told = verify, told
        self._causes = causes
        # By op, digests of the dropped results that it reads; and ops that read other bits.
        self._read: dict[int, list[bytes]] = {}
        self._misled: set[int] = set()
        self._book = Book()
        self._leave, self._turn = leave, turn
        # A backward inside the forward is part of the plan.
        self._tells_backwards: Callable[[str], object] | None = None
        self._after_forward = backwards
        self._task: int | None = None
        self._evictor: Evictor | None = None
        # Of each followed plan with copies; and of the current one, while values may leave.
        self._away: list[Away] = []
        self._now_away: Away | None = None
        self._copies(self.plan)

    def _copies(self, plan: Followed) -> None:
        """Uses the copies of this plan from now on. Raises HostMemoryError."""
        self._settle()
        if plan.copying is not None:
            self._now_away = Away(plan.copying)
            self._away.append(self._now_away)
            self._passing.mark(plan.copying.asked)

    def _settle(self) -> None:
        """Ends all copies out, and waits for running ones."""
        self._now_away = None
        for away in self._away:
            away.settle()

    def call_at_backward(self, look: Callable[[], object]) -> None:
        """Calls this once, when autograd requests the first tensor."""
        self._at_backward = look
        self._passing.keep(True, False)

    def call_before_second_runs(self, look: Callable[[int], object]) -> None:
        """Calls this with the number of each op before its recomputation."""
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
            if self._causes:
                given = tensors_in((*args, *kwargs.values()))
                self._read[position] = [digest(t) for t in given if self._book.result_of(t) is not None]
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
        if self.left_at is None and (self._sees_sizes or position in self.plan.readings):
            self._compare(position, _size(kind, args, kwargs, result), result)
        return result

    def _compare(self, position: int, made: int, result: Any) -> None:
        """Leaves the plan if the op made more; looks at all sizes if Python reads another number."""
        if self._smaller:
            self.made.append(made)
        more = made - self.plan.made[position]
        if more > 0:
            self.makes_more = True
            self._leave_at(position + 1, more)
        elif not isinstance(result, torch.Tensor) and result != self.plan.readings.get(position, result):
            self._sees_sizes = True
            self._passing.follow(None)

    def _turn_to_another(self, position: int, func: Any) -> None:
        """The op is not in the plan: follows another plan with the same ops so far, or leaves all plans."""
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
        """Follows a plan whose ops so far are the same."""
        if plan is not self.plan:
            self._copies(plan)
        self.plan, self._functions, self._again = plan, plan.functions, plan.again
        every = self._sees_sizes or self._evictor is not None
        self._passing.follow(None if every else plan.passing)

    def leave(self) -> None:
        """Leaves all plans: the next op is in none of them."""
        self._leave_at(self._passing.seen())

    def _leave_at(self, position: int, more: int = 0) -> None:
        self.left_at, self._again = position, frozenset()
        self._settle()
        self._passing.follow(None)
        if self._evictor is None and self._leave is not None:
            self._evict_by(self._leave(self.plan, position, more))

    def _evict_by(self, evictor: Evictor | None) -> None:
        """From now on, if there is one."""
        if evictor is not None:
            self._evictor = evictor
            evictor.adopt(self._book)
            self._passing.keep(False, False)

    def pack(self, tensor: torch.Tensor) -> Any:
        """The object that autograd holds for a tensor."""
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
        """The tensor as autograd saved it. Raises RuntimeError if it was written to since."""
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
        looks = self._before_second is not None or self._causes
        restore(shown.result, self._book.kernels, self._before_run if looks else None)
        if self._tells_backwards is not None:
            self._look_at_backward(self._tells_backwards)
        with torch.no_grad(), without_dispatch_modes():
            tensor: torch.Tensor = shown.tensor()
        if held.expected is not None and digest(tensor) != held.expected:
            self._tell(run.number)
        return tensor

    def _look_at_backward(self, tells: Callable[[str], object]) -> None:
        """A plan is for one backward, which keeps nothing."""
        task = graph_task()
        self._task = task if self._task is None else self._task
        if keeps_graph() or task != self._task:
            self._tells_backwards = None
            tells("kept" if keeps_graph() else "several")

    def _before_run(self, run: Run) -> None:
        """A run is about to be repeated, with its arguments in memory."""
        if self._before_second is not None:
            self._before_second(run.number)
        read = zip(run.shown(), self._read[run.number], strict=True) if self._causes else ()
        for shown, expected in read:
            if digest(shown.tensor()) != expected:
                self._misled.add(run.number)
                self._tell(shown.result.run.number)

    def _tell(self, number: int) -> None:
        if self._told is not None and number not in self._misled:
            self._told(number)

    def through(self, call: Callable[[], Any]) -> Any:
        """Runs a forward to its end."""
        products = EagerProducts() if any(plan.products for plan in self._plans) else nullcontext()
        hooks = watched_saves(*self._passing.hooks(self.pack, self.unpack))
        with products, self, self._passing, hooks:
            outputs = call()
        self.end()
        return outputs

    def end(self) -> None:
        """The forward is over: ends all lookups."""
        if self.left_at is None and self._passing.seen() < len(self._functions):
            self.left_at = self._passing.seen()
        self._settle()
        self._book.end()
        self._tells_backwards = self._after_forward
        if self._evictor is not None:
            self._evictor.end_forward()


def _size(kind: Kind, args: Any, kwargs: Any, result: Any) -> int:
    """Bytes that an op made; 0 where results show what there was, and of nested tensors."""
    tensors = (*tensors_in((*args, *kwargs.values())), *results_in(result))
    if kind.view or any(each.is_nested for each in tensors):
        return 0
    return bytes_made(args, kwargs, result)
