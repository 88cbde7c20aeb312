"""What `fit` and further shapes leave out: steps that nobody looks at, searches for garbage, durations."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from remat.torch.base.garbage import collected_later
from remat.torch.base.private import symbolic_convert, without_names
from remat.torch.cost.alike import Alike
from remat.torch.cost.cost import Cost, signature
from remat.torch.session.region import Region
from torch import fx, nn
from training import fit


class Broken(nn.Module):
    """Its second half depends on a value of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).relu()
        if y.sum().item() < 0:
            raise AssertionError("what it looks at is not its own")
        return self.second(y).square().mean()


class Uncompiled(nn.Module):
    """Dynamo has nothing to do with its own forward, only with what that calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)

    @torch.compiler.disable(recursive=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).square().mean()


@pytest.fixture
def planned_calls(monkeypatch) -> list[Any]:
    """Grows by each call with gradients that is run."""
    found: list[Any] = []
    train = Region._train

    def noting(self: Region, variant: Any, args: Any) -> Any:
        found.append(variant)
        return train(self, variant, args)

    monkeypatch.setattr(Region, "_train", noting)
    return found


def test_a_model_in_one_graph_runs_one_forward_in_fit(planned_calls) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    x = torch.randn(32, 64)
    fitted = fit(model, x, "100%")
    assert len(planned_calls) == 1
    assert len(fitted.remat.parts) == 2
    for each in (model, fitted):
        each.zero_grad()
        each(x).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        if each is model:
            expected = gradients
    assert all(a.equal(b) for a, b in zip(gradients, expected, strict=True))
    assert len(planned_calls) == 2


@pytest.mark.parametrize("make", [Broken, Uncompiled])
def test_a_model_with_code_beside_its_graphs_is_run_by_fit(planned_calls, make) -> None:
    torch.manual_seed(0)
    fit(make(), torch.randn(32, 64), "400%", accumulate=False, executor="boxed")
    assert len(planned_calls) > 1


def test_garbage_is_searched_for_again_after_a_trace() -> None:
    assert gc.isenabled()
    with pytest.raises(RuntimeError):
        fail_while_collecting_later()
    assert gc.isenabled()
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def fail_while_collecting_later() -> None:
    with collected_later():
        assert not gc.isenabled()
        raise RuntimeError


def test_names_of_functions_are_looked_up_again_after_a_trace() -> None:
    original = symbolic_convert.get_funcname
    with without_names():
        assert symbolic_convert.get_funcname(__file__, 1) is None
    assert symbolic_convert.get_funcname is original


def product(rows: int) -> fx.Node:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    a.meta["val"], b.meta["val"] = torch.empty(rows, 256, device="meta"), torch.empty(256, 256, device="meta")
    node = graph.call_function(torch.ops.aten.mm.default, (a, b))
    node.meta["val"] = torch.empty(rows, 256, device="meta")
    return node


def test_durations_between_sizes_lie_on_a_line_and_near_them_in_proportion() -> None:
    alike = Alike()

    def told(rows: int, position: int = 0) -> int | None:
        return alike.duration(position, signature(product(rows)), product(rows))

    for rows, duration in ((1000, 100_000), (2000, 300_000)):
        assert told(rows) is None
        node = product(rows)
        alike.add({0: signature(node)}, {0: node}, {signature(node): Cost(duration, 0)})
    assert told(1000) == 100_000
    assert told(1500) == pytest.approx(200_000, rel=0.01)
    assert told(2200) == pytest.approx(330_000, rel=0.01)
    assert told(900) == pytest.approx(90_000, rel=0.02)
    assert told(4000) is None, "too far from what was measured"
    assert told(1500, position=1) is None, "another op of the step"
