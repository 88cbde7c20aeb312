"""Categories of a step graph's inputs, by their names: "parameter layers.0.weight", "input tokens"."""

from __future__ import annotations

EXISTING_GRADIENTS = "existing gradients"
OUTSIDE = "outside the graph"
OTHER_CALLS = "other calls of the model"


def category_of_input(name: str) -> tuple[str, str]:
    """Category and module of a graph input by its name."""
    kind, _, path = name.partition(" ")
    if kind in ("parameter", "buffer"):
        return f"{kind}s", path.rpartition(".")[0]
    if name in (EXISTING_GRADIENTS, OUTSIDE, OTHER_CALLS):
        return name, ""
    return "inputs", ""
