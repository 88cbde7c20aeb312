"""Results that a region may or must save, and the fastest set of saved results within a budget.

A whole region is recomputed, up to the last result that its backward reads. So a saved result gains the time
of its own op only, and takes memory from its release in the first run to its recomputation: gains and bytes
of all candidates add up. The best set is then a knapsack over time, which the core solves; its result is
recorded and simulated again, so nothing relies on the sums.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import torch

from remat import _core

from ..base.nodes import BUILTIN_NAMESPACES, WHOLE, decides, is_inexact
from ..base.private import OpOverload, schema
from .recording import Recorded, RecordedOp, RegionCall, tensors_like
from .regions import Region
from .steps import ExecutorStep
from .tolls import checkpoint_toll, selective_toll

_aten: Any = torch.ops.aten
# Applying these again to their own result changes nothing.
_IDEMPOTENT = {_aten.relu_.default, _aten.clamp_.default, _aten.clamp_min_.default, _aten.hardtanh_.default}
_Key = tuple[str, int]  # name of an op, and which of its calls
_SELECTIVE: _Key = ("", 0)


@dataclass
class Rules:
    """The rules of a region, independent of the choice.

    must: calls that run once. never: calls whose results cannot be saved. mutation: see `Region`. random:
    random calls, in order. reason: why it must not be recomputed at all, or "". written: by call whose result
    other calls write to before it is read, these calls: they are saved together, for their last result
    (dropout on the CPU draws its mask so).
    """

    must: set[_Key] = field(default_factory=set)
    never: set[_Key] = field(default_factory=set)
    random: list[_Key] = field(default_factory=list)
    written: dict[_Key, tuple[_Key, ...]] = field(default_factory=dict)
    mutation: bool = False
    reason: str = ""

    def refuse(self, reason: str) -> None:
        """Forbids its recomputation; the first reason is kept."""
        self.reason = self.reason or reason

    def calls_of(self, key: _Key) -> tuple[_Key, ...]:
        """All that are saved with it, and it."""
        return (key, *self.written.get(key, ()))

    def region(self, chosen: set[_Key]) -> Region:
        keys = {each for key in chosen for each in self.calls_of(key)} | self.must
        saved: defaultdict[str, list[int]] = defaultdict(list)
        for name, number in sorted(keys):
            saved[name].append(number)
        again = [key for key in self.random if key not in keys]
        mutation = self.mutation or any(key in self.written for key in chosen)
        return Region(dict(saved), bool(again), mutation)


def rules_of(recorded: Recorded, random: Sequence[bool], routing: str) -> dict[str, Rules]:
    """By block, from a recording; of all calls of it.

    routing: "once" if ops that decide what runs must not be recomputed.
    """
    once = deciding(recorded) if routing == "once" else set()
    found: dict[str, Rules] = {}
    writes: defaultdict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(recorded.ops):
        if not op.backward:
            for storage in op.written:
                writes[storage].append(position)
    for call in recorded.calls:
        rules = found.setdefault(call.name, Rules())
        if call.backward:
            rules.refuse("it is called while the backward runs: the model checkpoints it by itself")
            continue
        _add_rules(rules, recorded, call, random, once)
        _add_changes(rules, recorded, call, writes)
    for rules in found.values():
        rules.never -= rules.must
        for key in rules.never & rules.written.keys():
            del rules.written[key]
    return found


def deciding(recorded: Recorded) -> set[int]:
    """The ops that decide where, which or how many, as in `trace.routing`."""
    inexact: set[int] = set()
    by_number: dict[int, int] = {}
    found = set()
    for position, op in enumerate(recorded.ops):
        given, made = tensors_like((op.args, op.kwargs)), tensors_like(op.result)
        if decides(op.func):
            found.add(position)
        if not op.backward:
            found.update(by_number[storage] for storage in op.reads if storage in by_number)
        if not any(is_inexact(each.dtype) or each.storage in inexact for each in given):
            continue
        new = [each for each in made if each.storage in op.made]
        inexact.update(each.storage for each in new if each.dtype is torch.bool)
        by_number.update({each.storage: position for each in new if each.dtype in WHOLE})
    return found


def _add_rules(
    rules: Rules, recorded: Recorded, call: RegionCall, random: Sequence[bool], once: Set[int]
) -> None:
    own: set[int] = set()
    owner: dict[int, _Key] = {}
    changed: defaultdict[int, list[_Key]] = defaultdict(list)
    functions: defaultdict[int, set[Any]] = defaultdict(set)
    read: set[int] = set()
    again: list[_Key] = []
    for name, number, position in call.ops:
        op, key = recorded.ops[position], (name, number)
        own.update(op.made)
        owner.update(dict.fromkeys(op.made, key))
        for storage in op.written:
            changed[storage].append(key)
            functions[storage].add(op.func)
            if storage in read or len(op.written) > 1:
                rules.never.add(owner.get(storage, key))
        read.update(set(op.reads) - set(op.written))
        if random[position]:
            again.append(key)
        outside = [storage for storage in op.written if storage not in own]
        if outside and not set(outside) <= recorded.buffers:
            rules.refuse(f"{name} changes a tensor in place that comes from outside")
        if outside or position in once or _updates_statistics(op) or not _is_plain(op.func):
            rules.must.add(key)
            # The version of the written tensor rises after the result was saved.
            rules.mutation |= bool(outside)
        if not op.made or op.written:
            rules.never.add(key)
    for storage, key in owner.items():
        if storage in changed:
            if key not in rules.must:
                rules.written[key] = tuple(changed[storage])
            elif functions[storage] <= _IDEMPOTENT:
                rules.mutation = True
            else:
                rules.refuse(f"what {key[0]}, which must run once, made is changed in place")
    rules.random += [key for key in again if key not in rules.random]
    if any(key in rules.must for key in again):
        rules.refuse("an op that must run once draws random numbers")


def _add_changes(
    rules: Rules, recorded: Recorded, call: RegionCall, writes: Mapping[int, Sequence[int]]
) -> None:
    """Finds changes between a block's first run and its recomputation: its inputs and saved results must not
    change.

    writes: by storage, the forward ops that write to it.
    """
    owner: dict[int, _Key] = {}
    for name, number, position in call.ops:
        op, key = recorded.ops[position], (name, number)
        owner.update(dict.fromkeys(op.made, key))
        for storage in op.reads:
            if storage in owner or key in rules.must or op.is_view:
                continue
            if any(write > position for write in writes.get(storage, ())):
                rules.refuse(f"{name} reads a tensor that is changed in place afterwards")
    for storage, key in owner.items():
        if any(write >= call.end for write in writes.get(storage, ())):
            rules.never.add(key)
            if key in rules.must:
                rules.refuse(f"what {key[0]}, which must run once, made is changed in place")


def _is_plain(func: Any) -> bool:
    """True for ops of PyTorch without side effects."""
    return isinstance(func, OpOverload) and func.namespace in (*BUILTIN_NAMESPACES, "prim")


def _updates_statistics(op: RecordedOp) -> bool:
    """True for a batch norm in training."""
    if not isinstance(op.func, OpOverload) or "batch_norm" not in op.func.name() or op.backward:
        return False
    given = dict(zip((a.name for a in schema(op.func).arguments), op.args, strict=False)) | op.kwargs
    running = bool(tensors_like([given.get("running_mean")]))
    return running and bool(given.get("training", given.get("train", True)))


@dataclass
class Candidate:
    """A result to save, or (key None) a block to leave out of checkpointing, or (_SELECTIVE) the overhead of
    saving anything in a block. gain: ns; lives: (first step, end, bytes).
    """

    block: str
    key: _Key | None
    gain: int = 0
    lives: list[tuple[int, int, int]] = field(default_factory=list)


def candidates(step: ExecutorStep, rules: Mapping[str, Rules], eager: ExecutorStep) -> list[Candidate]:
    """The candidates of a step with all regions recomputed. eager: the same step without checkpoints."""
    found: dict[tuple[str, _Key | None], Candidate] = {}
    until = _Backward(step, eager)
    for call, plain in zip(step.recorded.calls, eager.recorded.calls, strict=True):
        if rules[call.name].reason:
            continue
        for key, gain, lives in _of_call(step, call, rules[call.name], plain, until):
            candidate = found.setdefault((call.name, key), Candidate(call.name, key))
            candidate.gain += gain
            candidate.lives += lives
    return [each for each in found.values() if each.gain > 0 or each.key == _SELECTIVE]


class _Backward:
    """Matches the backward ops of two recordings. Autograd releases its own saved tensors at the end of the
    whole function, but those from a checkpoint already at the last reader.
    """

    def __init__(self, step: ExecutorStep, eager: ExecutorStep) -> None:
        self.step, self.eager = step, eager
        self.ours, self.theirs = _backward_ops(step.recorded), _backward_ops(eager.recorded)
        ours, theirs = step.recorded.ops, eager.recorded.ops
        self.alike = [ours[i].func for i in self.ours] == [theirs[i].func for i in self.theirs]

    def gone(self, storage: int) -> int:
        """Our first step at which a storage of the other recording would be released; 0 if unknown."""
        last = self.eager.recorded.last[storage]
        if last is None:
            return self.step.graph.num_ops
        through = bisect_right(self.theirs, last)
        return self.step.at[self.ours[through - 1]] + 1 if self.alike and through > 0 else 0


def _backward_ops(recorded: Recorded) -> list[int]:
    """The backward ops, without recomputations and views."""
    again = {i for call in recorded.calls for i in range(call.again_begin, call.again_end)}
    return [i for i, op in enumerate(recorded.ops) if op.backward and i not in again and not op.is_view]


def _of_call(
    step: ExecutorStep, call: RegionCall, rules: Rules, plain: RegionCall, until: _Backward
) -> Iterator[tuple[_Key | None, int, list[tuple[int, int, int]]]]:
    recorded = step.recorded
    whole: list[tuple[int, int, int]] = []
    gain = 0
    end = call.again_end
    unchecked = {(name, number): position for name, number, position in plain.ops}
    for name, number, position in call.ops:
        again = call.again.get((name, number))
        if again is None:
            continue
        made = zip(recorded.ops[position].made, recorded.ops[again].made, strict=False)
        held = until.eager.recorded.ops[unchecked[name, number]].made if (name, number) in unchecked else ()
        for storage, second in zip(held, recorded.ops[again].made, strict=False):
            longer = (step.gone(second), until.gone(storage), step.size(second))
            if longer[0] < longer[1]:
                whole.append(longer)
        lives = []
        for first, second in made:
            last = recorded.last.get(second)
            away = (step.gone(first), step.at[again], step.size(first))
            if away[0] < away[1]:
                lives.append(away)
                if last is None or last >= end:
                    whole.append(away)
        gain += step.durations[again]
        if (name, number) not in rules.must | rules.never:
            runs = [call.again[key] for key in rules.calls_of((name, number)) if key in call.again]
            yield (name, number), sum(step.durations[run] for run in runs), lives
    toll = checkpoint_toll(call) + (selective_toll(call) if rules.must else 0)
    yield None, gain + toll, whole
    if not rules.must:
        yield _SELECTIVE, -selective_toll(call), []


@dataclass(frozen=True)
class Choice:
    """regions: by block; None where it is not checkpointed. bound: no set saves more time, ns. work: units
    that the selection took."""

    regions: dict[str, Region | None]
    gain: int
    bound: int
    work: int


def choose(
    step: ExecutorStep,
    eager: ExecutorStep,
    rules: Mapping[str, Rules],
    budget: int,
    skipped: set[str],
    *,
    time_limit: float | None = None,
    work_limit: int | None = None,
) -> Choice:
    """The set of saved results with the least recomputation within the budget.

    step: with all regions except the skipped ones recomputed; eager: without checkpoints. time_limit in
    seconds, work_limit in units of work.
    """
    items = candidates(step, rules, eager)
    index = {(each.block, each.key): i for i, each in enumerate(items)}
    wholes = {each.block: i for i, each in enumerate(items) if each.key is None}
    asked: list[tuple[int, list[tuple[int, int, int]], list[int], list[int]]] = []
    for each in items:
        single = each.key is not None and each.key != _SELECTIVE
        excluded = [wholes[each.block]] if single and each.block in wholes else []
        needed = _needed(each, rules[each.block], index)
        if needed is None:
            asked.append((0, [(0, step.graph.num_ops, 1 << 60)], [], []))
        else:
            selective = index.get((each.block, _SELECTIVE)) if single else None
            asked.append(
                (each.gain, each.lives, excluded, needed if selective is None else [*needed, selective])
            )
    room = [budget - used for used in step.memory]
    chosen, gain, bound, work = _core.select_within(room, asked, time_limit, work_limit)
    keys: defaultdict[str, set[_Key]] = defaultdict(set)
    left_out = set(skipped)
    for i in chosen:
        key = items[i].key
        if key is None:
            left_out.add(items[i].block)
        elif key != _SELECTIVE:
            keys[items[i].block].add(key)
    regions = {
        name: None if name in left_out or each.reason else each.region(keys[name])
        for name, each in rules.items()
    }
    return Choice(regions, gain, bound, work)


def _needed(each: Candidate, rules: Rules, index: Mapping[tuple[str, _Key | None], int]) -> list[int] | None:
    """Candidates that must be saved as well: numbers not drawn again would shift those of all later random
    ops. None if one cannot be saved.
    """
    if each.key is None:
        return []
    keys = rules.calls_of(each.key)
    drawing = [i for i, key in enumerate(rules.random) if key in keys]
    after = [key for key in rules.random[drawing[0] :] if key not in keys] if drawing else []
    if not after:
        return []
    units = [first for first in {*rules.written, after[0]} if after[0] in rules.calls_of(first)]
    found = [index[each.block, unit] for unit in units if (each.block, unit) in index]
    return found[:1] or None
