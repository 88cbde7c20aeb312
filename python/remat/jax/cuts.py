"""Where regions may begin, for a saved set."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, groupby
from typing import Any

from jax.extend.core import Literal

from remat.jax.costs import LIBRARY, VIEWS, bytes_of, is_cheap, is_float
from remat.jax.regions import FORMAT, Op, Primal, decisions

#: Values up to this many bytes may cross from one region to the next without being saved.
SMALL = 64 * 1024
#: The ops at a region's head may make this many times the bytes that they are for.
HEAD = 64
#: Backward ops of these read no operand.
LINEAR = VIEWS | {"add", "sub", "add_any", "neg", "convert_element_type", "concatenate", "pad", "slice",
                  "reduce_sum", "name", "copy_p", "stop_gradient", "rev"}  # fmt: skip


class Cuts:
    """Regions for a set of results by number.

    A region may begin after a saved result wherever all large values that cross, and that a later region's
    recomputation reads, can be made again at its head by cheap ops from what is saved. With `again`, the
    results that are stored a second time, one begins in each stretch between two of these, where that splits
    least; None: wherever it may. Ops in `once` (scans whose results for the backward half are saved, which
    have no names) are regions without a checkpoint. Results in `offloaded` are saved on the host.
    """

    def __init__(
        self, primal: Primal, saved: Iterable[int], once: Iterable[int] = (), offloaded: Iterable[int] = (),
        again: Iterable[int] | None = None,
    ) -> None:  # fmt: skip
        self.primal, self.saved, self.once, self.offloaded = primal, set(saved), set(once), set(offloaded)
        self.saved |= self.offloaded
        self.saved |= {primal.number[v] for op in decisions(primal.ops)[1] for v in op.outs}
        self.saved |= {primal.number[v] for i in self.once for v in primal.ops[i].outs}
        self.again = None if again is None else set(again) - self.saved
        self.heads: dict[Any, frozenset[int] | None] = {}
        self.needed = self.last_needed()

    def is_there(self, v: Any) -> bool:
        """Saved, given, or so small that crossing saves it."""
        number = self.primal.number.get(v)
        return number is None or number in self.saved or bytes_of(v) <= SMALL

    def last_needed(self) -> dict[Any, int]:
        """The last op whose backward op or recomputation reads a value."""
        needed: dict[Any, int] = {}
        for i in reversed(range(len(self.primal.ops))):
            op = self.primal.ops[i]
            runs_again = any(not self.is_saved(v) and v in needed for v in op.outs)
            for position, v in enumerate(op.ins):
                if not isinstance(v, Literal) and (runs_again or reads_operand(op, position)):
                    needed.setdefault(v, i)
        return needed

    def is_saved(self, v: Any) -> bool:
        return self.primal.number[v] in self.saved

    def head(self, v: Any) -> frozenset[int] | None:
        """Ops that make a value again from what is there, or None where one of them is dear."""
        if v in self.heads:
            return self.heads[v]
        found: set[int] | None = set()
        pending, seen = [v], set()
        while pending and found is not None:
            top = pending.pop()
            if isinstance(top, Literal) or top in seen or (self.is_there(top)):
                continue
            seen.add(top)
            number = self.primal.maker[top]
            op = self.primal.ops[number]
            if is_cheap(op.kind, op.params):
                found.add(number)
                pending += op.ins
            else:
                found = None
        if found and sum(bytes_of(o) for n in found for o in self.primal.ops[n].outs) > HEAD * bytes_of(v):
            found = None
        self.heads[v] = None if found is None else frozenset(found)
        return self.heads[v]

    def places(self) -> list[int]:
        """Where regions end."""
        allowed = self.allowed()
        ends = list(allowed) if self.again is None else self.fewest(allowed)
        return [*ends, len(self.primal.ops)]

    def allowed(self) -> dict[int, bool]:
        """Where regions may end, and whether they must: beside ops in `once`."""
        ops = self.primal.ops
        found: dict[int, bool] = {}
        across: set[Any] = set()
        for i, op in enumerate(ops[:-1]):
            across = {v for v in across if self.needed.get(v, -1) > i}
            across |= {v for v in op.outs if not self.is_there(v) and self.needed.get(v, -1) > i}
            hit = any(self.is_saved(v) for v in op.outs)
            if {i, i + 1} & self.once:
                found[i + 1] = True
            elif hit and all(self.head(v) is not None for v in across):
                found[i + 1] = False
        return found

    def fewest(self, allowed: dict[int, bool]) -> list[int]:
        """Of these, the one that splits least in each stretch between two results of `again`."""
        split = self.split()
        again = self.again or set()
        marks = sorted({self.primal.maker[v] for v, number in self.primal.number.items() if number in again})
        ends: list[int] = []
        for before, stretch in groupby(allowed, key=lambda place: bisect_left(marks, place)):
            places = list(stretch)
            least = [min(places, key=split.__getitem__)] if before else []
            ends += [place for place in places if allowed[place]] or least
        return ends

    def split(self) -> list[int]:
        """By place, the bytes of what ops on both sides read: its cotangent is a sum that XLA makes in one
        kernel, or in two where a region ends between."""
        primal = self.primal
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        root: dict[Any, Any] = {}
        for i, op in enumerate(primal.ops):
            for v in op.ins:
                if not isinstance(v, Literal):
                    top = root.get(v, v)
                    if op.kind in VIEWS:
                        root[op.outs[0]] = top
                    elif top in primal.maker and is_float(top.aval):
                        first.setdefault(top, i)
                        last[top] = i
        change = [0] * (len(primal.ops) + 1)
        for v, i in first.items():
            change[i + 1] += bytes_of(v)
            change[last[v] + 1] -= bytes_of(v)
        return list(accumulate(change))

    def policy(self) -> dict[str, Any]:
        """As `remat.jax.regions` runs it, without scans."""
        regions: list[Any] = []
        begin = 0
        for end in self.places():
            again: set[int] = set()
            for i in range(begin, end):
                op = self.primal.ops[i]
                for v in op.ins:
                    if isinstance(v, Literal) or self.is_there(v) or self.primal.maker[v] >= begin:
                        continue
                    if self.needed.get(v, -1) >= begin:
                        again |= self.head(v) or frozenset()
            regions.append([end, sorted(again), begin not in self.once])
            begin = end
        return {
            "format": FORMAT, "ops": len(self.primal.ops), "saved": sorted(self.saved),
            "offloaded": sorted(self.offloaded), "regions": regions, "scans": {},
        }  # fmt: skip


def reads_operand(op: Op, position: int) -> bool:
    """Does the backward op of `op` read this operand?"""
    if op.kind in LINEAR:
        return False
    if op.kind in ("mul", "dot_general", "div") and position < 2:
        # The derivative by the other one reads it.
        return op.kind in LIBRARY or not isinstance(op.ins[1 - position], Literal)
    return True
