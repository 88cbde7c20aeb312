"""Converts a recorded step to a graph for the planner, and a plan back to recomputed ops.

The order of both halves is the program's. A plan only chooses the forward ops to recompute, each once, before
the first backward op that needs it: the executor "partitioner" (docs/executors.md). If Python holds a value
beyond its last reader, an op of duration 0 reads it there, so that the graph's memory is the program's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import remat

from ..base.origins import OTHER_CALLS, OUTSIDE
from .graph_op import GraphOp, name_of, phase_of, to_dict
from .kinds import kind_of
from .recorder import BACKWARD, FORWARD, Ran, Value

# A generator's state is a separate value, saved if its op may be recomputed.
_STATE = "remat.generator_state"
# Overhead of a recomputation beside its kernel, in ns: Python records the run, looks it up and calls it. The
# second number is for accelerators, where the host does part of that while the device is busy.
ONE_RUN = 300_000, 100_000
# Overhead of each op of a forward with any recomputation, in ns.
ONE_FOLLOWED = 10_000, 3_000
_LET_GO = "remat.let_go"
# Least share of all offloadable bytes: smaller copies are not worth Python's overhead.
_WORTH = 0.001


@dataclass(frozen=True)
class Record:
    """The record of a step. Amounts are bytes.

    state_bytes: of a generator. beside: what ops read and is no part of the model. gradients: values that the
    step left as such. outputs: values that the model returned, None where one is none of these. names: of
    values that were there before. sparse: gradients that are no values. adding: others went at once.
    made_in_autocast: digests of what the model returned, where it was inside autocast. runs_ahead: does the
    host call ops before the device is through with former ones? asked_for: what the forward saved and a
    backward asked for: how many ops had run at both times. products: needs the forward `EagerProducts`?
    """

    ops: Sequence[Ran]
    values: Sequence[Value]
    state_bytes: int
    beside: int
    gradients: Collection[int]
    outputs: Sequence[int | None]
    names: Mapping[int, str]
    sparse: int
    adding: bool = False
    made_in_autocast: Sequence[bytes] = ()
    runs_ahead: bool = False
    asked_for: Sequence[tuple[int, int]] = ()
    products: bool = False

    @property
    def one_run(self) -> int:
        """Overhead of a recomputation, in ns."""
        return ONE_RUN[self.runs_ahead]

    @property
    def one_followed(self) -> int:
        """Overhead of each op of a forward with any recomputation, in ns."""
        return ONE_FOLLOWED[self.runs_ahead]

    @cached_property
    def forward(self) -> list[Ran]:
        """The ops of the forward, in order."""
        return [op for op in self.ops if op.phase == FORWARD]

    @cached_property
    def made(self) -> list[int]:
        """Bytes of new memory of each op of the forward."""
        return [sum(self.values[value].bytes for value in op.made) for op in self.forward]

    @cached_property
    def readings(self) -> dict[int, Any]:
        """Ops of the forward whose results depend on data in number or size: the number that Python read, or
        None."""
        return {op.number: op.read for op in self.forward if kind_of(op.func).reads_data}

    @property
    def modules(self) -> list[str]:
        """Of the ops of the forward."""
        return [op.module for op in self.forward]

    def has_ops_of(self, other: Record) -> bool:
        """Are the forwards the same ops, which make as much?"""
        return self.functions == other.functions and self.made == other.made

    def keep_gradients(self) -> None:
        """Marks the gradients of a step that makes them as kept."""
        for value in self.gradients:
            self.values[value].stays()

    def time_again(self, other: Record) -> None:
        """Takes the lesser times of two records of a step, if their ops are the same."""
        if other.functions == self.functions and len(other.ops) == len(self.ops):
            for op, again in zip(self.ops, other.ops, strict=True):
                op.timed_again(again.duration)

    def smaller(self, made: Sequence[int]) -> Record:
        """The record of a step with the same ops, which make these bytes of new memory in the forward. Memory
        of loss and backward is taken from here, as an upper bound.
        """
        sizes = [value.bytes for value in self.values]
        for op, size in zip(self.ops, made, strict=False):
            whole = max(1, sum(self.values[number].bytes for number in op.made))
            for number in op.made:
                sizes[number] = -(-self.values[number].bytes * size // whole)
            for old, new in op.wrote:
                sizes[new] = min(sizes[new], sizes[old])
        values = [replace(value, bytes=size) for value, size in zip(self.values, sizes, strict=True)]
        return replace(self, values=values, ops=[replace(op) for op in self.ops])

    def dropped(self, outputs: Collection[int]) -> frozenset[int]:
        """Values of these outputs that no other output shows."""
        held = {value for place, value in enumerate(self.outputs) if place not in outputs}
        return frozenset(each for each in self.outputs if each is not None and each not in held)

    @property
    def functions(self) -> list[Any]:
        """Of the forward, in order."""
        return [op.func for op in self.forward]


def count_hidden(record: Record) -> None:
    """Counts memory of its ops that belongs to no value."""
    for number, size in StepGraph(record, Around({}, record.adding)).hidden().items():
        record.ops[number].add_hidden(size)


def count_unseen(record: Record, around: Around, size: int) -> None:
    """Counts bytes that such a step was measured to need in addition: formulas of some backwards differ under
    a dispatch mode.
    """
    graph = StepGraph(record, around)
    memory = remat.simulate(graph.graph, range(graph.graph.num_ops)).memory
    highest = max((i for i, members in enumerate(graph.ops_of) if members), key=lambda i: memory[i])
    record.ops[max(graph.ops_of[highest], key=lambda n: record.ops[n].workspace)].add_hidden(size)


@dataclass(frozen=True)
class Around:
    """Surroundings of a step. Amounts are bytes.

    resident: what is there all the time, by name. adds: gradients exist when it starts (in `resident`), and
    its own are added to them. dropped: values of outputs that nobody holds when the backward starts.
    """

    resident: Mapping[str, int]
    adds: bool = False
    dropped: Collection[int] = ()

    def with_more(self, size: int) -> Around:
        """More memory is there all the time."""
        return replace(self, resident={**self.resident, OUTSIDE: self.resident.get(OUTSIDE, 0) + size})

    def beside(self, size: int) -> Around:
        """The same where other calls of the model keep this for their backwards."""
        return replace(self, resident={**self.resident, OTHER_CALLS: size})


class StepGraph:
    """The graph of a record.

    graph: of what the step is. ops_of: by op of the graph, those of the record; op_of: the other way. phases:
    by op of the graph. value_of: by value of the graph, that of the record. first_backward: the first op of
    the record's backward.
    """

    def __init__(
        self,
        record: Record,
        around: Around,
        forbidden: Collection[int] = (),
        timed: bool = True,
        leaves: bool = False,
    ) -> None:
        """forbidden: ops of the record that must not run again, and whose results stay. timed: with
        durations; else bytes replace them. leaves: values may go to a host.
        """
        self.record, self.around, self._timed = record, around, timed
        self._forbidden = set(forbidden)
        self._ops: list[GraphOp] = []
        self.op_of: dict[int, int] = {}
        self.first_backward = next((op.number for op in record.ops if op.phase == BACKWARD), len(record.ops))
        self._sizes = [value.bytes for value in record.values]
        self._after = dict(pair for op in record.ops for pair in op.wrote)
        self._build()
        self.ops_of = [op.members for op in self._ops]
        self.phases = [op.phase for op in self._ops]
        used = sorted({value for op in self._ops for value in (*op.outputs, *op.inputs)})
        self._place = {value: i for i, value in enumerate(used)}
        self.value_of = {i: value for value, i in self._place.items() if value < len(record.values)}
        self._may_leave = self._leaving() if leaves else None
        self.graph = remat.Graph.from_dict(self._to_dict())

    @cached_property
    def charged(self) -> remat.Graph:
        """The graph for the planner: durations of recomputable ops include the overhead of a recomputation,
        so that plans are compared by their real times.
        """
        return remat.Graph.from_dict(self._to_dict(charged=True)) if self._timed else self.graph

    def charge(self, again: Collection[int], copied: int = 0) -> int:
        """Overhead in ns of recomputing these ops of the record and of copying this many values to a host and
        back, beside kernels and copies.
        """
        record, runs = self.record, len(again) + copied
        return record.one_run * runs + (record.one_followed * len(record.functions) if runs else 0)

    def charges(self) -> int:
        """Total overhead in ns in the planner's graph."""
        return self.charged.base_duration - self.graph.base_duration

    def hidden(self) -> dict[int, int]:
        """By op of the record, what was in memory while it ran and is no value: states of generators that
        checkpoints save, buffers of libraries. Of a step without circumstances.
        """
        memory = remat.simulate(self.graph, range(self.graph.num_ops)).memory
        found: dict[int, int] = {}
        for op, needs in zip(self._ops, memory, strict=True):
            if op.members:
                highest = max(op.members, key=lambda number: self.record.ops[number].top)
                excess = self.record.ops[highest].top - int(needs)
                if excess > 0:
                    found[highest] = excess + op.workspace - self.record.ops[highest].workspace
        return found

    def _build(self) -> None:
        ends, unpacked = self._let_go(), self._unpacked()
        last: GraphOp | None = None
        for op in self.record.ops:
            if op.is_plain:
                if last is not None:
                    last.take_time(op)
            elif last is not None and self._continues(last, op):
                self._join(last, op)
                self.op_of[op.number] = len(self._ops) - 1
            else:
                last = self._new(op)
                self._ops.append(last)
                self.op_of[op.number] = len(self._ops) - 1
            before_next = op.number + 1
            for read, phase in ((ends.get(before_next), phase_of(op)), (unpacked.get(before_next), BACKWARD)):
                if read:
                    name = f"let_go_{op.number}" if phase == phase_of(op) else f"unpack_{before_next}"
                    self._ops.append(GraphOp(name, _LET_GO, phase, dict.fromkeys(read)))
                    last = None
        self._forbid_what_cannot()

    def _continues(self, last: GraphOp, op: Ran) -> bool:
        """True if it writes over the result of the op before, which nothing else has read."""
        if last.phase != phase_of(op) or not op.wrote or op.made:
            return False
        values = self.record.values
        return all(
            old in last.outputs and all(reader in (*last.members, op.number) for reader in values[old].reads)
            for old, _ in op.wrote
        )

    def _join(self, last: GraphOp, op: Ran) -> None:
        last.join(op)
        if op.random:
            self._add_state(last, op)

    def _new(self, op: Ran) -> GraphOp:
        new = GraphOp(
            f"{name_of(op)}_{op.number}",
            op.kind,
            phase_of(op),
            dict.fromkeys(op.inputs),
            dict.fromkeys(op.outputs),
            {old: new for old, new in op.wrote if self.record.values[old].made_by is not None},
            op.duration,
            op.workspace,
            op.may_repeat,
            op.module,
            [op.number],
        )
        if op.random:
            self._add_state(new, op)
        return new

    def _add_state(self, reader: GraphOp, op: Ran) -> None:
        if not op.may_repeat:
            return
        self._sizes.append(self.record.state_bytes)
        state = len(self._sizes) - 1
        self._ops.append(GraphOp(f"state_{op.number}", _STATE, FORWARD, {}, {state: None}))
        if reader.members[0] != op.number:  # exists already: the state's op comes before it
            self._ops[-2], self._ops[-1] = self._ops[-1], self._ops[-2]
            for member in reader.members:
                self.op_of[member] = len(self._ops) - 1
        reader.read(state)

    def _forbid_what_cannot(self) -> None:
        """A reader of a value that is written over later may only be recomputed together with its maker;
        values that the forward itself unpacks, or Python holds, stay anyway.
        """
        values = self.record.values
        for op in self._ops:
            if any(member in self._forbidden for member in op.members):
                op.runs_once()
        for value in values:
            maker = self._maker(value.number)
            unpacked = any(at < self.first_backward for at in value.unpacked)
            if maker is not None and (unpacked or self._is_held(value)):
                self._ops[maker].runs_once()
        changed = True
        while changed:
            changed = False
            for op in self._ops:
                if op.recompute and any(self._is_lost(value, op) for value in op.inputs):
                    op.runs_once()
                    changed = True

    def _leaving(self) -> frozenset[int]:
        """Values of the record that may go to a host: autograd alone holds them when the forward ends."""
        forward = len(self.record.functions)
        # Where autograd saved a part of the memory before another part was written, that stays.
        partly: set[int] = set()
        for old, new in (pair for op in self.record.ops for pair in op.wrote):
            if old in partly or self.record.values[old].given_up:
                partly.add(new)
        found = [
            value
            for value in self.record.values
            if value.made_by is not None
            and value.made_by < forward
            and value.made_by not in self._forbidden
            and value.bytes
            and value.destroyed is None
            and value.released is not None
            and value.released <= forward
            # What saves such memory fills it, and does not count that as a write.
            and not kind_of(self.record.ops[value.made_by].func).empty
            and not any(forward <= at < self.first_backward for at in value.reads)
            and value.unpacked
            and min(value.unpacked) >= self.first_backward
            and value.number not in partly
        ]
        least = _WORTH * sum(value.bytes for value in found)
        return frozenset(value.number for value in found if value.bytes >= least)

    def _is_held(self, value: Value) -> bool:
        """True if Python holds it in the backward, whatever autograd saves."""
        released = self._released(value)
        return value.destroyed is None and (released is None or released > self.first_backward)

    def _is_lost(self, value: int, reader: GraphOp) -> bool:
        """True if another op writes over it and it cannot be recomputed."""
        if value >= len(self.record.values):
            return False
        known = self.record.values[value]
        if known.destroyed is None:
            return False
        maker = self._maker(value)
        return maker is None or not self._ops[maker].recompute

    def _maker(self, value: int) -> int | None:
        made_by = self.record.values[value].made_by if value < len(self.record.values) else None
        return None if made_by is None else self.op_of.get(made_by)

    def _let_go(self) -> dict[int, list[int]]:
        """By the number of ops that had run, values that end there although their last reader ran before."""
        found: dict[int, list[int]] = defaultdict(list)
        for value in self.record.values:
            if value.made_by is None:
                continue
            # Views are no ops of the graph.
            reads = [at for at in value.reads if not self.record.ops[at].is_plain]
            last = max(reads, default=value.made_by)
            for end in dict.fromkeys(value.given_up):
                if end - 1 > last:
                    found[end].append(self._there_at(value.number, end))
            released = self._released(value)
            if released is not None and value.destroyed is None:
                # Readers in the backward get it from autograd, or from a recomputation.
                before = max((at for at in reads if at < released), default=value.made_by)
                if released - 1 > before:
                    found[released].append(value.number)
        return found

    def _there_at(self, value: int, number: int) -> int:
        """The value in its memory after this many ops: autograd may save several parts of one storage that
        are written in turn.
        """
        while (end := self.record.values[value].destroyed) is not None and end < number:
            value = self._after[value]
        return value

    def _released(self, value: Value) -> int | None:
        """Number of ops that have run when Python releases it."""
        held = value.released is None or value.released > self.first_backward
        if held and value.number in self.around.dropped:
            return self.first_backward
        if self.around.adds and value.number in self.record.gradients:
            # It is added to the one that exists where a step that makes them takes it as it is.
            return max(value.reads, default=value.made_by or 0) + 1
        return value.released

    def _unpacked(self) -> dict[int, list[int]]:
        """By number of ops run, the values that a backward requests there."""
        found: dict[int, list[int]] = defaultdict(list)
        for value in self.record.values:
            for at in dict.fromkeys(value.unpacked):
                if value.made_by is not None and self.first_backward <= at < len(self.record.ops):
                    found[at].append(self._there_at(value.number, at))
        return found

    def _to_dict(self, charged: bool = False) -> dict[str, Any]:
        made = {value for op in self._ops for value in op.outputs}
        used, place = list(self._place), self._place
        values: list[dict[str, Any]] = [{"bytes": self._sizes[v] if v in made else 0} for v in used]
        if self._may_leave is not None:
            for value in used:
                if value not in self._may_leave:
                    values[place[value]]["copy"] = "never"
        # Existing memory counts whether it is read or not.
        resident = dict(self.around.resident)
        for value in used:
            name = self.record.names.get(value, "") if value not in made else ""
            if name in resident:
                values[place[value]] = {"bytes": resident.pop(name), "name": name}
        values += [{"bytes": size, "name": name} for name, size in resident.items() if size]
        kept = [
            value.number
            for value in self.record.values
            if value.number in made
            and value.destroyed is None
            and self._released(value) is None
            and not (self.around.adds and value.number in self.record.gradients)
        ]
        return {
            "format": "remat.graph",
            "version": 1,
            "name": "step",
            "time_unit": "ns",
            "values": values,
            "ops": [
                to_dict(op, place, made) | {"duration": self._duration(i, charged)}
                for i, op in enumerate(self._ops)
            ],
            "inputs": [
                *(place[value] for value in used if value not in made),
                *range(len(used), len(values)),
            ],
            "outputs": [place[value] for value in kept],
        }

    def _duration(self, index: int, charged: bool) -> int:
        op = self._ops[index]
        if not self._timed:
            return 1 + sum(self._sizes[value] for value in op.outputs)
        return op.duration + (self.record.one_run * len(op.members) if charged and op.recompute else 0)

    def again(self, steps: Iterable[int]) -> set[int]:
        """Ops of the record that run again in a plan."""
        seen: set[int] = set()
        found: set[int] = set()
        for step in steps:
            if step in seen:
                found.update(self.ops_of[step])
            seen.add(step)
        return found

    def closed(self, again: set[int]) -> set[int]:
        """These ops and those that must also be recomputed, because their results are written over in the
        forward."""
        found = set(again)
        pending = list(again)
        while pending:
            op = self.record.ops[pending.pop()]
            for value in op.reads:
                known = self.record.values[value]
                if known.destroyed is None or known.made_by is None:
                    continue
                for member in self._together(known.made_by):
                    if member not in found:
                        found.add(member)
                        pending.append(member)
        return found

    def _together(self, op: int) -> Sequence[int]:
        return self.ops_of[self.op_of[op]]

    def plan_of(self, again: set[int]) -> list[int]:
        """The steps of a plan that recomputes these, each as late as possible."""
        graph = self.graph
        away = {self.op_of[op] for op in again}
        steps: list[int] = []
        makers: Mapping[int, int] = {value: i for i, op in enumerate(self._ops) for value in op.outputs}
        for index, op in enumerate(self._ops):
            if op.phase == BACKWARD:
                for needed in self._needed(index, away, makers):
                    steps.append(needed)
                    away.discard(needed)
            steps.append(index)
        assert graph.num_ops == len(self._ops)
        return steps

    def _needed(self, index: int, away: set[int], makers: Mapping[int, int]) -> list[int]:
        found: set[int] = set()
        pending = [index]
        while pending:
            for value in self._ops[pending.pop()].inputs:
                maker = makers.get(value)
                if maker is not None and maker in away and maker not in found:
                    found.add(maker)
                    pending.append(maker)
        return sorted(found)
