"""One trace of AOTAutograd serves all steps of the same shapes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from remat.torch.base.private import graph_compile
from torch import nn
from training import fit


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A line for each joint graph that AOTAutograd traces."""
    found: list[Any] = []
    traced = graph_compile.aot_dispatch_autograd_graph

    def counted(*args: Any, **kwargs: Any) -> Any:
        found.append(args)
        return traced(*args, **kwargs)

    monkeypatch.setattr(graph_compile, "aot_dispatch_autograd_graph", counted)
    return found


def test_steps_with_and_without_existing_gradients_are_traced_once(traces: list[Any]) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)), torch.randn(32, 64)
    fitted = fit(copy.deepcopy(model), x, "100%")
    assert len(traces) == 1
    kinds = {bool(part.existing_gradients) for part in fitted.remat.parts}
    assert kinds == {False, True}
    for _ in range(3):
        for each in (model, fitted):
            each(x).square().mean().backward()
    for mine, theirs in zip(fitted.parameters(), model.parameters(), strict=True):
        assert mine.grad is not None
        assert mine.grad.equal(theirs.grad)
    # The first step shows that nobody holds the output: planned anew, not traced anew.
    assert len(traces) == 1
    fitted(x[:5]).square().mean().backward()
    assert len(traces) == 2
