#!/usr/bin/env python3
"""Check a plan independently of the library: verify_plan.py GRAPH PLAN prints one JSON object, or INVALID and
why.

Written from docs/model.md alone, to be compared with the library; reads `remat.graph` files. A plan with
copies is timed on a machine: verify_plan.py GRAPH PLAN OUT IN [LATENCY_SECONDS [shared]], in bytes a second.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

UNITS = {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1}


@dataclass
class Instance:
    """One run of an op or a copy in made it: in memory from step `first` to step `last`."""

    value: int
    first: int
    last: int
    is_kept: bool = False
    last_read: int = -1
    usable: int = 0
    is_copied: bool = False


@dataclass
class Copy:
    """A copy of a plan's file."""

    value: int
    way: str
    issue: int
    wait: int


class Invalid(Exception):
    """The plan breaks a rule."""


def check_copies(graph: dict[str, Any], steps: list[int], copies: list[Copy]) -> None:
    """Raises Invalid if a rule about copies alone is broken."""
    made = {value for op in graph["ops"] for value in op["outputs"]}
    end = len(steps)
    outs: dict[int, Copy] = {}
    latest = {"out": 0, "in": 0}
    for one in copies:
        if one.value not in made:
            raise Invalid(f"no op makes value {one.value}, which is copied")
        first_wait = one.issue + 1 if one.way == "out" else one.issue
        if not 0 <= one.issue <= end or not first_wait <= one.wait <= end:
            raise Invalid(f"{one}: these are not steps in this order")
        if one.issue < latest[one.way]:
            raise Invalid(f"{one} is listed too late")
        latest[one.way] = one.issue
        if one.way == "out" and one.value in outs:
            raise Invalid(f"value {one.value} is copied out twice")
        if one.way == "out":
            outs[one.value] = one
    for one in copies:
        if one.way == "in" and (one.value not in outs or outs[one.value].wait > one.issue):
            raise Invalid(f"{one}: the value is not on the host")


def instances_of(graph: dict[str, Any], steps: list[int], copies: list[Copy]) -> list[Instance]:
    """Every instance that steps and copies make. Raises Invalid if a rule about a step is broken."""
    resident = set(graph.get("inputs", []))
    newest: dict[int, Instance] = {}
    copied: dict[int, Instance] = {}
    made: list[Instance] = []
    ran: set[int] = set()
    for step, index in enumerate([*steps, -1]):
        for one in copies:
            if one.way == "out" and one.wait == step:
                gone = copied[one.value]
                gone.last = max(gone.last, step - 1)
                if newest.get(one.value) is gone:
                    del newest[one.value]
        for one in copies:
            if one.way == "in" and one.issue == step:
                newest[one.value] = Instance(one.value, step, max(step, one.wait - 1), usable=one.wait)
                made.append(newest[one.value])
        if step == len(steps):
            break
        if not 0 <= index < len(graph["ops"]):
            raise Invalid(f"step {step}: op index {index} out of range")
        op = graph["ops"][index]
        if index in ran and op.get("recompute") == "never":
            raise Invalid(f"step {step}: recomputes {op['name']}")
        if missing := [before for before in op.get("after", []) if before not in ran]:
            raise Invalid(f"step {step}: ops {missing} have not run")
        for value in op["inputs"]:
            if value in resident:
                continue
            if value not in newest:
                raise Invalid(f"step {step}: value {value} has no instance")
            if newest[value].usable > step:
                raise Invalid(f"step {step}: value {value} is still on its way in")
            newest[value].last = max(newest[value].last, step)
            newest[value].last_read = step
        for value in op["outputs"]:
            newest[value] = Instance(value, step, step)
            made.append(newest[value])
        ran.add(index)
        for one in copies:
            if one.way == "out" and one.issue == step:
                if one.value not in newest:
                    raise Invalid(f"step {step}: value {one.value} has no instance to copy")
                copied[one.value] = newest[one.value]
                copied[one.value].is_copied = True
    for value in set(graph.get("outputs", [])) - resident:
        if value in newest:
            newest[value].last, newest[value].is_kept = len(steps) - 1, True
        elif value in copied:
            raise Invalid(f"output {value} is not on the device at the end")
    return [one for one in made if one.first < len(steps)]


def memory_of(graph: dict[str, Any], steps: list[int], copies: list[Copy]) -> list[int]:
    """Bytes in memory at each step."""
    size = [value["bytes"] for value in graph["values"]]
    resident = sum(size[value] for value in set(graph.get("inputs", [])))
    instances = instances_of(graph, steps, copies)
    memory = [resident + graph["ops"][index].get("workspace", 0) for index in steps]
    for index in set(steps):
        runs = [step for step, each in enumerate(steps) if each == index]
        state = graph["ops"][index].get("generator_state", 0) if len(runs) > 1 else 0
        for step in range(runs[0], runs[-1] + 1):
            memory[step] += state
        for step in runs[1:]:
            memory[step] += state
    for one in instances:
        for step in range(one.first, one.last + 1):
            memory[step] += size[one.value]
        if one.is_kept or one.is_copied or one.last_read < 0:
            continue
        # The step of its last read may write an output in its place.
        for read, written in graph["ops"][steps[one.last_read]].get("over", []):
            if read == one.value:
                memory[one.last_read] -= min(size[read], size[written])
    return memory


@dataclass
class Machine:
    """Both channels, in the graph's time unit."""

    units: int
    bandwidth: dict[str, int]
    latency: int
    is_shared: bool

    def time(self, way: str, size: int) -> int:
        """Transfer time of one copy."""
        return self.latency + math.ceil(Fraction(size * self.units, self.bandwidth[way]))


def timed(graph: dict[str, Any], steps: list[int], copies: list[Copy], machine: Machine) -> dict[str, int]:
    """Duration and stall of a valid plan: every start and end, by their definitions."""
    size = [value["bytes"] for value in graph["values"]]
    now, stalled = 0, 0
    free: dict[str, int] = defaultdict(int)
    out_finish: dict[int, int] = {}
    waits: dict[int, int] = defaultdict(int)

    def issue(one: Copy) -> None:
        channel = "link" if machine.is_shared else one.way
        ready = now if one.way == "out" else max(now, out_finish[one.value])
        free[channel] = max(ready, free[channel]) + machine.time(one.way, size[one.value])
        if one.way == "out":
            out_finish[one.value] = free[channel]
        waits[one.wait] = max(waits[one.wait], free[channel])

    for step in range(len(steps) + 1):
        for one in copies:
            if one.way == "in" and one.issue == step:
                issue(one)
        start = max(now, waits[step])
        stalled += start - now
        now = start
        if step < len(steps):
            now += graph["ops"][steps[step]]["duration"]
            for one in copies:
                if one.way == "out" and one.issue == step:
                    issue(one)
    return {"duration": now, "stalled": stalled}


def host_peak_of(graph: dict[str, Any], copies: list[Copy]) -> int:
    """Peak of the bytes on the host: each value counts from the issue of its copy out to its last wait."""
    size = [value["bytes"] for value in graph["values"]]
    held: dict[int, int] = defaultdict(int)
    for out in copies:
        if out.way == "out":
            last = max(one.wait for one in copies if one.value == out.value)
            for step in range(out.issue, last + 1):
                held[step] += size[out.value]
    return max(held.values(), default=0)


def floor_of(graph: dict[str, Any]) -> int:
    """The largest need of one op, or of what is kept."""
    size = [value["bytes"] for value in graph["values"]]
    inputs, kept = set(graph.get("inputs", [])), set(graph.get("outputs", []))
    resident = sum(size[value] for value in inputs)
    once = {v for op in graph["ops"] if op.get("recompute") == "never" for v in op["outputs"]}
    needs = [resident + sum(size[value] for value in kept - inputs)]
    for op in graph["ops"]:
        need = resident + op.get("workspace", 0)
        need += sum(size[value] for value in {*op["inputs"], *op["outputs"]} - inputs)
        for read, written in op.get("over", []):
            if read not in kept & once:
                need -= min(size[read], size[written])
        needs.append(need)
    return max(needs)


def verified(
    graph: dict[str, Any], steps: list[int], copies: list[Copy], machine: Machine | None
) -> dict[str, Any]:
    """The cost of the plan. Raises Invalid."""
    durations = [op["duration"] for op in graph["ops"]]
    check_copies(graph, steps, copies)
    cost = {
        "valid": True,
        "peak": max(memory_of(graph, steps, copies), default=0),
        "duration": sum(durations[index] for index in steps),
        "keep_all_peak": max(memory_of(graph, list(range(len(durations))), [])),
        "base_duration": sum(durations),
        "floor": floor_of(graph),
        "all_ops": set(steps) == set(range(len(durations))),
    }
    if copies:
        cost |= {"host_peak": host_peak_of(graph, copies), "duration": None}
        if machine is not None:
            cost |= timed(graph, steps, copies, machine)
    return cost


def machine_of(graph: dict[str, Any], words: list[str]) -> Machine | None:
    """The machine of OUT IN [LATENCY_SECONDS [shared]], or None."""
    if not words:
        return None
    units = UNITS[graph["time_unit"]]
    latency = math.ceil(Fraction(words[2]) * units) if len(words) > 2 else 0
    return Machine(units, {"out": int(words[0]), "in": int(words[1])}, latency, "shared" in words[3:])


def read(path: str) -> dict[str, Any]:
    """Reads a JSON object. Exits with one line if the file is not readable JSON."""
    try:
        with open(path) as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"INVALID {path}: {error}")
    return found if isinstance(found, dict) else {}


def main(graph_path: str, plan_path: str, *words: str) -> str:
    """The answer as one line."""
    graph, plan = (read(path) for path in (graph_path, plan_path))
    if graph.get("format") != "remat.graph":
        return f"INVALID {graph_path} is no remat.graph file: `remat convert {graph_path} -o FILE` makes one"
    if plan.get("format") != "remat.plan":
        return f"INVALID {plan_path} is no remat.plan file"
    copies = [Copy(one["value"], one["way"], one["issue"], one["wait"]) for one in plan.get("copies", [])]
    try:
        return json.dumps(verified(graph, plan["steps"], copies, machine_of(graph, list(words))))
    except Invalid as why:
        return f"INVALID {why}"


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5, 6, 7):
        sys.exit(__doc__)
    answer = main(*sys.argv[1:])
    print(answer)
    sys.exit(0 if answer.startswith("{") else 1)
