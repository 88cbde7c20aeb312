"""Models that Dynamo breaks into many graphs, and modules that keep the graph of their last call."""

from __future__ import annotations

import copy
import logging
import re
import warnings

import pytest
import remat.torch
import torch
from torch import nn
from training import fit, step_peak, train


class Break(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        rows = torch.nonzero(x.detach().sum(1) > 0).squeeze(-1)
        return x.index_add(0, rows, self.second(x[rows]))


class Layers(nn.Module):
    """The same code in several layers, each broken."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Break() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](x).tanh()
        x = self.layers[1](x).tanh()
        return self.layers[2](x).square().mean()


class Often(nn.Module):
    """Breaks its graph in every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](x).tanh()
        torch._dynamo.graph_break()
        x = self.layers[1](x).tanh()
        torch._dynamo.graph_break()
        x = self.layers[2](x).tanh()
        torch._dynamo.graph_break()
        x = self.layers[3](x).tanh()
        if x.sum() > 1e9:
            return x.mean()
        return self.layers[5](self.layers[4](x).tanh()).square().mean()


def summaries(caplog) -> list[str]:
    return [
        r.getMessage()
        for r in caplog.records
        if "nothing is recomputed across a graph break" in r.getMessage()
    ]


@pytest.fixture(autouse=True)
def fresh(caplog):
    torch._dynamo.reset()
    torch.manual_seed(0)
    caplog.set_level(logging.WARNING, "remat.torch")


def test_many_breaks_are_one_line_with_places_bytes_and_advice(caplog) -> None:
    model, x = Often(), torch.randn(256, 32)
    expected = train(copy.deepcopy(model), (x,))
    fitted = fit(model, x, "64MiB", executor="boxed", work_limit=10_000, time_limit=None)
    (line,) = summaries(caplog)
    assert "the model runs as 5 graphs" in line
    assert set(re.findall(r"test_breaks\.py:(\d+)", line)) == set(break_lines())
    # Four results of 256 x 32 floats, and the loss.
    assert remat.format_bytes(4 * 256 * 32 * 4 + 4) in line
    assert "do not depend on data" in line
    assert expected.differences(train(fitted, (x,))) == []
    assert len(summaries(caplog)) == 1


def break_lines() -> list[str]:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    marks = ("torch._dynamo.graph_break()", "if x.sum() > 1e9:")
    return [str(i) for i, line in enumerate(lines, 1) if line.strip() in marks]


def test_torch_compile_says_it_when_the_first_backward_starts(caplog) -> None:
    model, x = Often(), torch.randn(256, 32)
    options = {"budget": "64MiB", "work_limit": 10_000, "time_limit": None}
    planned = torch.compile(model, backend="remat", options=options)
    for _ in range(3):
        planned(x).backward()
    (line,) = summaries(caplog)
    assert "the model runs as 5 graphs" in line


@pytest.mark.long
def test_layers_of_the_same_code_are_counted_where_they_are_not_for_all_graphs(caplog) -> None:
    model, x = Layers(), torch.randn(256, 32)
    expected = train(copy.deepcopy(model), (x,), 2)
    fitted = fit(model, x, "64MiB", executor="boxed", work_limit=10_000, time_limit=None)
    assert expected.differences(train(fitted, (x,), 2)) == []
    said = [r.getMessage() for r in caplog.records if r.name == "remat.torch"]
    assert not [line for line in said if "before the first backward" in line]
    assert [line for line in said if "machine is busy" not in line] == summaries(caplog)
    assert len(summaries(caplog)) == 1


class Normed(nn.Module):
    """Weights that hooks compute before each call, and keep as plain attributes."""

    def __init__(self, norm) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(each for _ in range(4) for each in (norm(nn.Linear(32, 32)), nn.Tanh()))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


class Remembering(nn.Module):
    """Keeps a result, and with it the graph of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(each for _ in range(4) for each in (nn.Linear(32, 32), nn.Tanh())))
        self.last: torch.Tensor | None = None
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.layers(x)
        self.seen[:] = [self.last.abs()]
        return self.last.square().mean()


def weight_norm() -> nn.Module:
    return Normed(nn.utils.weight_norm)


def spectral_norm() -> nn.Module:
    return Normed(nn.utils.spectral_norm)


@pytest.mark.parametrize("make", [weight_norm, spectral_norm, Remembering])
def test_modules_that_keep_the_graph_of_their_last_call_train_within_the_budget(make) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model, other = make(), make()
    other.load_state_dict(model.state_dict())
    x = torch.randn(512, 32)
    expected = train(other, (x,))
    peak = step_peak(other, (x,))
    fitted = fit(model, (x,), int(0.95 * peak))
    assert expected.differences(train(fitted, (x,))) == []
    assert step_peak(fitted, (x,)) <= int(0.95 * peak)
    # A call whose graph nobody but the module holds, then steps again.
    fitted(x)
    other(x)
    for each in (model, other):
        each.zero_grad()
    assert train(other, (x,)).differences(train(fitted, (x,))) == []
    assert step_peak(fitted, (x,)) <= int(0.95 * peak)
