"""Graphs for tests."""

from __future__ import annotations

from typing import Any

import remat
from hypothesis import strategies as st

GraphDict = dict[str, Any]


def two_layers() -> GraphDict:
    """x(4096, input) -> mm -> relu -> kept."""
    return {
        "format": "remat.graph",
        "version": 1,
        "name": "two_layers",
        "time_unit": "ns",
        "values": [{"bytes": 4096, "name": "x"}, {"bytes": 1024}, {"bytes": 1024, "name": "y"}],
        "ops": [
            {"name": "mm", "kind": "aten.mm.default", "duration": 5200, "inputs": [0], "outputs": [1]},
            {"name": "relu", "duration": 900, "inputs": [1], "outputs": [2]},
        ],
        "inputs": [0],
        "outputs": [2],
    }


def chain(layers: int, size: int = 100, duration: int = 1) -> remat.Graph:
    """A training chain: forward ops f0..fn, then backward ops that read what their forward op read.

    f0 -> f1 -> ... -> fn -> bn -> ... -> b0, with fi also read by b(i+1).
    """
    ops = [remat.Op(f"f{i}", duration, [i - 1] if i else [], [i], phase="forward") for i in range(layers)]
    for back, i in enumerate(reversed(range(layers))):
        reads = [layers + back - 1] if back else [i]
        reads += [i - 1] if i else []
        ops.append(remat.Op(f"b{i}", duration, reads, [layers + back], phase="backward", forward_of=i))
    return remat.Graph([size] * (2 * layers), ops, outputs=[2 * layers - 1], name="chain")


@st.composite
def graph_dicts(draw: st.DrawFn, max_ops: int = 7) -> GraphDict:
    """Valid graphs with every feature of the format: several outputs, workspaces, kept values, soft
    dependencies, outputs over inputs.
    """
    values: list[dict[str, Any]] = []
    names = st.text(max_size=6)

    def add_value() -> int:
        value: dict[str, Any] = {"bytes": draw(st.integers(0, 1000))}
        if name := draw(names):
            value["name"] = name
        values.append(value)
        return len(values) - 1

    inputs = [add_value() for _ in range(draw(st.integers(0, 2)))]
    ops: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, max_ops))):
        reads = draw(st.sets(st.sampled_from(range(len(values))), max_size=3)) if values else set()
        writes = [add_value() for _ in range(draw(st.integers(0, 2)))]
        op: dict[str, Any] = {
            "name": draw(names),
            "duration": draw(st.integers(0, 1000)),
            "inputs": sorted(reads),
            "outputs": writes,
        }
        if draw(st.booleans()):
            op["workspace"] = draw(st.integers(1, 500))
        if draw(st.booleans()):
            op["recompute"] = "never"
        if index and draw(st.booleans()):
            op["after"] = sorted(draw(st.sets(st.integers(0, index - 1), min_size=1)))
        made = sorted(reads - set(inputs))
        if made and writes and draw(st.booleans()):
            op["over"] = [list(pair) for pair in zip(made, writes, strict=False)]
        if draw(st.booleans()):
            op["phase"] = draw(st.sampled_from(["forward", "loss", "backward", "update"]))
        if index and draw(st.booleans()):
            op["forward_of"] = draw(st.integers(0, index - 1))
        if draw(st.booleans()):
            op["kind"], op["module"] = "aten.mm", "layers.0"
        ops.append(op)
    outputs = sorted(draw(st.sets(st.sampled_from(range(len(values)))))) if values else []
    return {
        "format": "remat.graph",
        "version": 1,
        "name": draw(names),
        "time_unit": "ns",
        "values": values,
        "ops": ops,
        "inputs": inputs,
        "outputs": outputs,
    }
