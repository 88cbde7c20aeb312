"""A session's knowledge of calls, by the shapes of their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..plan.report import PlanReport
from .calls import Call, Remembered
from .planning import EagerPlan
from .prepare import Recorded

# Variation of the allocator's bytes between equal calls: a constant for Python, and a part for each op.
_UNSEEN, _UNSEEN_BY_OP = 1 << 20, 1 << 12
# Share of the planning time that smaller calls must lose before they get their own plan.
_LOST = 0.25


class Key(NamedTuple):
    """A combination of shapes. leaves: shape, dtype and whether a gradient is wanted, of tensors; the type,
    of others. structure: of the arguments. modes: training, and autocast by device.
    """

    leaves: tuple[Any, ...]
    structure: Any
    modes: tuple[bool, ...]

    def numel(self) -> int:
        return sum(each[0].numel() for each in self.leaves if isinstance(each, tuple))

    def covers(self, other: Key) -> bool:
        """True if no tensor of the other is larger in any dimension."""
        return self[1:] == other[1:] and all(
            _covers(mine, its) for mine, its in zip(self.leaves, other.leaves, strict=True)
        )


def _covers(mine: Any, its: Any) -> bool:
    if not (isinstance(mine, tuple) and isinstance(its, tuple)):
        return bool(mine == its)
    shapes: tuple[torch.Size, torch.Size] = mine[0], its[0]
    return (
        mine[1:] == its[1:]
        and len(shapes[0]) == len(shapes[1])
        and all(size >= other for size, other in zip(*shapes, strict=True))
    )


@dataclass
class Shape:
    """The knowledge about one combination of shapes.

    recorded: the sequences of ops, the most recent first. pending: a call with other ops.
    dropped: positions of outputs never held in a backward; None: unknown. followed: True if each op of its
    calls is tracked, even without recomputation. lost: seconds of recomputation by its plans in smaller
    calls, since one of them got a plan. derived: its record is that of a larger call, with other bytes.
    is_complete: no more sequences are recorded, since one could not be.
    inputs: bytes of the storages of arguments, the most that plans were sought for.
    sized: the sizes that all ops of calls make are compared with those of the record.
    planless: calls stay within the budget without a plan, since their ops vary.
    """

    recorded: list[Recorded] = field(default_factory=list)
    pending: Remembered | None = None
    dropped: frozenset[int] | None = None
    dropped_bytes: int = 0
    followed: bool = False
    sized: bool = False
    lost: float = 0.0
    derived: bool = False
    is_complete: bool = False
    planless: bool = False
    inputs: int = 0

    def count_inputs(self, inputs: int) -> None:
        self.inputs = max(self.inputs, inputs)

    def has_room_for(self, inputs: int) -> bool:
        """True if its plans keep the budget with arguments that take this, or none was found that does."""
        return inputs <= self.inputs or all(each.has_room_for(inputs) for each in self.recorded)

    def complete(self) -> None:
        self.is_complete = True

    def drop_plans(self) -> None:
        """Further calls run without one."""
        self.planless = True

    def exchange(self, old: Recorded, new: Recorded) -> list[EagerPlan]:
        """Another record of the same ops in place of this one, whose plans are returned."""
        self.recorded[:] = [new if each is old else each for each in self.recorded]
        return list(old.plans.values())

    def note_followed(self, plan: EagerPlan | None) -> None:
        """A call had the ops of this plan."""
        for each in self.recorded:
            if any(plan is own for own in each.plans.values()):
                each.follow()

    def unfollowed(self) -> int:
        """Sequences whose ops no call had since they were recorded."""
        return sum(not each.followed for each in self.recorded)

    def follow_calls(self) -> None:
        self.followed = True

    def compare_sizes(self) -> None:
        self.followed = self.sized = True

    def record_next(self, call: Call) -> None:
        """Records the next call like this one, which had other ops."""
        self.pending = Remembered.of(call)

    def lose(self, seconds: float) -> None:
        """Adds the recomputation time of a smaller call that followed its plan."""
        self.lost += seconds

    def worth_planning(self, seconds: float) -> bool:
        """True if enough time was lost, compared with this planning time; resets the count."""
        if self.lost < _LOST * seconds:
            return False
        self.lost = 0.0
        return True

    def take_pending(self) -> Call | None:
        pending, self.pending = self.pending, None
        return None if pending is None else pending.unchanged()

    def needed(self, plan: EagerPlan, grown: int) -> int:
        """The peak of a step with this plan whose forward left this many bytes in use, by the allocator."""
        kind, recorded = next((k, each) for each in self.recorded for k, p in each.plans.items() if p is plan)
        expected = recorded.grows(kind, plan)
        more = 0 if expected is None else grown - expected
        unseen = _UNSEEN + _UNSEEN_BY_OP * len(plan.functions)
        return plan.report.predicted_peak + (more if more > unseen else 0)

    def looks(self, planned: PlanReport, runs_again: bool) -> bool:
        """True if it matters whether outputs are held."""
        if self.dropped is None or (self.dropped and runs_again):
            return True
        return planned.predicted_peak + self.dropped_bytes > planned.budget and bool(self.dropped)

    def drop(self, outputs: frozenset[int], size: int) -> list[PlanReport]:
        """Notes that these outputs are dropped before the backward. Returns the plans made for other
        steps."""
        changed = outputs != (self.dropped or frozenset())
        self.dropped, self.dropped_bytes = outputs, size
        return [plan.report for each in self.recorded for plan in each.plans.values()] if changed else []


@dataclass
class Borrowed:
    """A combination of shapes whose calls follow the plans of a larger one. A step of the same ops whose
    results are no larger needs no more memory.

    shown: a call had these ops and no larger results. made: bytes of new memory of each op in it. tried: True
    if its own plan was sought.
    """

    shape: Shape
    shown: bool = False
    made: list[int] = field(default_factory=list)
    tried: bool = False

    def try_to_plan(self) -> list[int]:
        """The bytes made by its ops, to derive a plan; only once."""
        made, self.tried = [] if self.tried else self.made, True
        return made

    def note_step(self, plan: EagerPlan, made: Sequence[int]) -> None:
        """Notes a call that followed this plan. made: bytes of new memory of its ops, if measured."""
        self.made = self.made if self.shown else list(made)
        self.shown = True
        share = sum(self.made) / max(1, sum(plan.made))
        self.shape.lose(share * plan.report.overhead * plan.report.graph.base_duration / 1e9)


class Shapes:
    """most: number of combinations recorded. borrows: whether smaller ones may follow the plans of larger
    ones."""

    def __init__(self, most: int, borrows: bool) -> None:
        self._most, self._borrows = most, borrows
        self._own: dict[Key, Shape] = {}
        self._borrowed: dict[Key, Borrowed] = {}
        self._apart: set[Key] = set()

    def own(self, key: Key) -> Shape:
        """Shapes with their own record, now or at the next call."""
        return self._own.setdefault(key, Shape())

    def is_known(self, key: Key) -> bool:
        """True if there is a record, or a call to make one from. A call without a plan leaves neither."""
        shape = self._own.get(key)
        return shape is not None and bool(shape.recorded or shape.pending)

    def forget_unrecorded(self, key: Key) -> bool:
        """False if there is a record."""
        shape = self._own.get(key)
        if shape is not None and shape.recorded:
            return False
        self._own.pop(key, None)
        return True

    def has_room(self) -> bool:
        return sum(not shape.derived for shape in self._own.values()) < self._most

    def derive(self, key: Key, recorded: Recorded) -> Shape | None:
        """Gives a record to calls that followed plans of larger ones. None if there are too many."""
        if sum(shape.derived for shape in self._own.values()) >= self._most:
            return None
        larger = self._borrowed.pop(key).shape
        shape = Shape(
            [recorded], None, larger.dropped, larger.dropped_bytes, derived=True, inputs=larger.inputs
        )
        self._own[key] = shape
        return shape

    def borrowed(self, key: Key) -> Borrowed | None:
        """The larger shape whose plans it follows; None if it has or will have its own record, or none is
        larger."""
        if not self._borrows or key in self._own or key in self._apart:
            return None
        if key not in self._borrowed:
            larger = [each for each, shape in self._own.items() if shape.recorded and each.covers(key)]
            if not larger:
                return None
            self._borrowed[key] = Borrowed(self._own[min(larger, key=Key.numel)])
        return self._borrowed[key]

    def set_apart(self, key: Key) -> None:
        """Excludes it from following the plans of others."""
        self._borrowed.pop(key, None)
        self._apart.add(key)

    def recorded(self) -> Iterator[Recorded]:
        return (each for shape in self._own.values() for each in shape.recorded)

    def plans(self) -> Iterator[EagerPlan]:
        return (plan for each in self.recorded() for plan in each.plans.values())
