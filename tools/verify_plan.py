#!/usr/bin/env python3
"""Check a plan apart from the library: verify_plan.py GRAPH PLAN prints one JSON object, or INVALID and why.

Written from docs/model.md alone, to be held against the library; knows `remat.graph` files and plans without
copies.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class Instance:
    """One run of an op made it: in memory from step `first` to step `last`."""

    value: int
    first: int
    last: int
    is_kept: bool = False


class Invalid(Exception):
    """The plan breaks a rule."""


def instances_of(graph: dict[str, Any], steps: list[int]) -> list[Instance]:
    """Every instance that the steps make. Raises Invalid where a rule about a step is broken."""
    resident = set(graph.get("inputs", []))
    newest: dict[int, Instance] = {}
    made: list[Instance] = []
    ran: set[int] = set()
    for step, index in enumerate(steps):
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
            newest[value].last = step
        for value in op["outputs"]:
            newest[value] = Instance(value, step, step)
            made.append(newest[value])
        ran.add(index)
    for value in graph.get("outputs", []):
        if value in newest:
            newest[value].last, newest[value].is_kept = len(steps) - 1, True
    return made


def memory_of(graph: dict[str, Any], steps: list[int]) -> list[int]:
    """Bytes in memory at each step."""
    size = [value["bytes"] for value in graph["values"]]
    resident = sum(size[value] for value in set(graph.get("inputs", [])))
    instances = instances_of(graph, steps)
    memory = [resident + graph["ops"][index].get("workspace", 0) for index in steps]
    for one in instances:
        for step in range(one.first, one.last + 1):
            memory[step] += size[one.value]
        if one.is_kept or one.last == one.first:
            continue
        # The step that reads it last may put an output in its place.
        for read, written in graph["ops"][steps[one.last]].get("over", []):
            if read == one.value:
                memory[one.last] -= min(size[read], size[written])
    return memory


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


def verified(graph: dict[str, Any], steps: list[int]) -> dict[str, Any]:
    """What the plan costs. Raises Invalid."""
    durations = [op["duration"] for op in graph["ops"]]
    return {
        "valid": True,
        "peak": max(memory_of(graph, steps), default=0),
        "duration": sum(durations[index] for index in steps),
        "keep_all_peak": max(memory_of(graph, list(range(len(durations))))),
        "base_duration": sum(durations),
        "floor": floor_of(graph),
        "all_ops": set(steps) == set(range(len(durations))),
    }


def main(graph_path: str, plan_path: str) -> str:
    """The answer as one line."""
    with open(graph_path) as graph_file, open(plan_path) as plan_file:
        graph, plan = json.load(graph_file), json.load(plan_file)
    try:
        return json.dumps(verified(graph, plan["steps"]))
    except Invalid as why:
        return f"INVALID {why}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    answer = main(sys.argv[1], sys.argv[2])
    print(answer)
    sys.exit(0 if answer.startswith("{") else 1)
