"""`largest_batch`: the largest size within a budget, its proof, and what lies between traced sizes."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import case
from remat import _core
from remat.torch.session.captured import captured_steps
from torch import nn

ROOFLINE = {"costs": "roofline", "device": "cpu"}
EFFORT: dict[str, Any] = {"work_limit": 50_000, "time_limit": None}
QUICK: dict[str, Any] = {"accumulate": False, **EFFORT, **ROOFLINE}


class Blocks(nn.Module):
    """Attention over the tokens and an MLP, twice; returns its loss."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for project, wide, narrow in zip(self.projections, self.wide, self.narrow, strict=True):
            query, key, value = project(x).chunk(3, -1)
            x = x + torch.softmax(query @ key.transpose(-1, -2), -1) @ value
            x = x + narrow(nn.functional.gelu(wide(x)))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def blocks() -> nn.Module:
    with torch.device("meta"):
        return Blocks()


def batches(size: int) -> torch.Tensor:
    return torch.zeros(size, 16, dtype=torch.long, device="meta")


def lengths(size: int) -> torch.Tensor:
    return torch.zeros(2, size, dtype=torch.long, device="meta")


@functools.cache
def largest_of_blocks() -> Any:
    return remat.torch.largest_batch(blocks(), batches, "2MiB", **QUICK)


def graphs_at(make: Any, size: int, **options: Any) -> list[remat.Graph]:
    steps = captured_steps(blocks(), make(size), None, {"costs": "roofline", **options})
    return [step.graph for step in steps]


def test_the_largest_batch_has_a_plan_and_the_next_a_proof() -> None:
    found = largest_of_blocks()
    assert found.impossible is not None
    assert found.largest < found.impossible
    assert found.proved == (found.impossible == found.largest + 1)
    row = found.row(found.largest)
    assert row.traced
    assert row.plan is not None
    assert row.peak is not None
    # Of a trace of its own.
    (graph,) = graphs_at(batches, found.largest, **QUICK)
    assert remat.simulate(graph, row.plan.steps).peak == row.peak <= 2 << 20
    assert row.keep_all_peak == graph.keep_all_peak > 2 << 20
    (after,) = graphs_at(batches, found.impossible, **QUICK)
    with pytest.raises(remat.InfeasibleError):
        remat.plan(after, 2 << 20, check=True, **EFFORT)


def test_both_kinds_of_steps_have_to_fit() -> None:
    making = largest_of_blocks()
    options = {**QUICK, "accumulate": None}
    both = remat.torch.largest_batch(blocks(), batches, "2MiB", **options)
    assert both.impossible is not None
    assert making.impossible is not None
    assert both.largest < both.impossible < making.impossible
    makes, adds = graphs_at(batches, both.largest)
    assert makes.num_ops < adds.num_ops
    assert both.row(both.largest).keep_all_peak == adds.keep_all_peak


def test_the_table_rises_and_marks_the_best_throughput() -> None:
    found = largest_of_blocks()
    sizes = [row.size for row in found.rows]
    assert sizes == sorted(set(sizes))
    assert found.row(found.best).throughput == max(row.throughput or 0.0 for row in found.rows)
    assert all(found.row(size).traced for size in (found.best, found.largest))
    fitting = [row for row in found.rows if row.status == "fits"]
    assert [row.size for row in fitting] == [size for size in sizes if size <= found.largest]
    keep_all = [row.keep_all_peak for row in found.rows]
    assert keep_all == sorted(keep_all)
    for row in fitting:
        assert row.seconds is not None
        assert row.throughput == pytest.approx(row.size / row.seconds)
        assert row.peak is not None
        assert row.floor <= row.peak <= 2 << 20
    lines = str(found).splitlines()
    assert lines[0] == found.summary()
    assert len(lines) == 2 + len(found.rows)
    assert sum("<- best" in line for line in lines) == 1
    data = json.loads(json.dumps(found.to_dict()))
    assert data["largest"] == found.largest
    assert [row["size"] for row in data["rows"]] == sizes
    with pytest.raises(KeyError):
        found.row(found.largest + 1000)
    page = found._repr_html_()
    assert page.count("<circle") == len(fitting)
    assert f'fill="currentColor" stroke="currentColor"><title>{found.best}</title>' in page


@pytest.mark.long
@pytest.mark.parametrize("make", [batches, pytest.param(lengths, marks=pytest.mark.long)])
def test_what_lies_between_traced_sizes_is_what_tracing_gives(make: Any) -> None:
    families = [_core.GraphFamily() for _ in range(2)]
    for size in (2, 5, 16):
        for family, graph in zip(families, graphs_at(make, size), strict=True):
            family.add(size, graph)
    for size in (3, 9, 24):
        for family, traced in zip(families, graphs_at(make, size), strict=True):
            assert not family.knows(size)
            guessed = family.at(size)
            assert guessed is not None
            assert (guessed.bytes == traced.bytes).all()
            assert (guessed.workspaces == traced.workspaces).all()
            assert guessed.resident == traced.resident
            assert guessed.keep_all_peak == traced.keep_all_peak
            assert (
                guessed.structure_hash == traced.structure_hash if hasattr(traced, "structure_hash") else True
            )


@pytest.mark.long
def test_a_length_is_looked_for_as_well() -> None:
    found = remat.torch.largest_batch(blocks(), lengths, "2MiB", multiple=8, **QUICK)
    assert found.largest % 8 == 0
    assert found.multiple == 8
    assert (
        found.row(found.largest).keep_all_peak == graphs_at(lengths, found.largest, **QUICK)[0].keep_all_peak
    )
    assert all(row.size % 8 == 0 for row in found.rows)


class Switching(nn.Module):
    """From 6 samples on it does more: no size tells of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3 if len(x) >= 6 else 1):
            x = self.second(torch.relu(self.first(x)))
        return x.square().mean()


@pytest.mark.long
def test_sizes_of_another_structure_are_traced_themselves() -> None:
    with torch.device("meta"):
        model = Switching()
    found = remat.torch.largest_batch(
        model, lambda size: torch.zeros(size, 32, 64, device="meta"), "3MiB", **QUICK
    )
    assert found.largest > 6
    row = found.row(found.largest)
    assert row.traced
    assert row.graph.num_ops > found.rows[0].graph.num_ops
    inputs = torch.zeros(found.largest, 32, 64, device="meta")
    (step,) = captured_steps(model, inputs, None, QUICK)
    assert row.plan is not None
    assert remat.simulate(step.graph, row.plan.steps).peak == row.peak


@pytest.mark.long
def test_a_model_with_memory_takes_what_fit_takes() -> None:
    model, inputs = case("mlp").build()
    budget = remat.torch.capture(model, inputs, **ROOFLINE).keep_all_peak

    def make(size: int) -> torch.Tensor:
        return torch.randn(size, 128)

    found = remat.torch.largest_batch(model, make, budget, reserve=1000, multiple=64, least=512, **QUICK)
    assert found.budget == budget
    assert found.largest >= 1024 - 64
    row = found.row(found.largest)
    assert row.peak is not None
    assert row.peak <= budget
    # The workspaces, which a roofline does not know, are looked at here.
    fitted = remat.torch.fit(model, make(found.largest), budget + 5000, accumulate=False, **EFFORT)
    assert fitted.remat.predicted_peak <= budget + 5000


@pytest.mark.long
def test_meta_inputs_are_enough_for_a_model_with_memory() -> None:
    torch.manual_seed(0)
    model = Blocks()
    before = {name: p.clone() for name, p in model.named_parameters()}
    found = remat.torch.largest_batch(model, batches, "2MiB", accumulate=False, **EFFORT)
    same = remat.torch.largest_batch(blocks(), batches, "2MiB", accumulate=False, **EFFORT)
    assert found.row(1).keep_all_peak == same.row(1).keep_all_peak
    assert all(p.equal(before[name]) for name, p in model.named_parameters())


def test_the_most_that_was_asked_for_ends_the_search() -> None:
    found = remat.torch.largest_batch(blocks(), batches, "1GiB", most=7, **QUICK)
    assert (found.largest, found.impossible, found.proved) == (7, None, False)
    assert found.summary().endswith("no larger one was asked for")


@pytest.mark.long
def test_nothing_fits() -> None:
    with pytest.raises(
        remat.InfeasibleError, match=r"impossible at the least size, 1: none goes below"
    ) as caught:
        remat.torch.largest_batch(blocks(), batches, "100KiB", **QUICK)
    error = caught.value
    assert 100 * 1024 < error.floor <= error.smallest_known
    found = remat.torch.largest_batch(blocks(), batches, error.smallest_known, **QUICK)
    assert found.largest >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "60%"}, "give bytes"),
        ({"host": "1GB/s"}, "host= is not taken here"),
        ({"plan": [0]}, "plan= is not taken here"),
        ({"budget_on": "reserved"}, 'budget_on="reserved" is not taken here'),
        ({"least": 0}, r"integers in \[1, "),
        ({"least": 9, "most": 8}, r"no multiple of 1 is in \[9, 8\]"),
        ({"least": 1.5}, "least must be an integer, not 1.5"),
        ({"nothing": 1}, "unknown option 'nothing'"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"budget": "2MiB", **QUICK, **options}
    with pytest.raises(remat.UsageError, match=message):
        remat.torch.largest_batch(blocks(), batches, **given)


@pytest.mark.long
def test_a_step_that_does_not_grow_has_no_largest_size() -> None:
    with pytest.raises(remat.UsageError, match="do the inputs grow with the size"):
        remat.torch.largest_batch(blocks(), lambda _: batches(2), "1GiB", **QUICK)
