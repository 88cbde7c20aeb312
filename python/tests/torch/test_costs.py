"""Costs that are measured, computed from rates, or read from a file; models that have no memory."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Callable
from itertools import pairwise

import pytest
import remat
import remat.torch
import torch
from models import MLP, case
from remat.torch.base.storages import live_storages
from remat.torch.cost.files import read_costs
from remat.torch.cost.roofline import byte_count, flop_count
from remat.torch.cost.standins import indices, spread
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from training import fit, step_peak

UNIT_DEVICE = "flops=1e9,bandwidth=1e9,launch=0"


def traced(fn, *args):
    """The first op of a traced function."""
    graph = make_fx(fn, tracing_mode="fake")(*args).graph
    return next(node for node in graph.nodes if node.op == "call_function")


def test_a_product_takes_two_operations_for_each_multiply_and_add() -> None:
    node = traced(torch.mm, torch.zeros(3, 5), torch.zeros(5, 7))
    assert flop_count(node) == 2 * 3 * 5 * 7
    assert byte_count(node) == 4 * (3 * 5 + 5 * 7 + 3 * 7)


def test_the_bytes_of_an_expanded_tensor_are_those_it_has() -> None:
    node = traced(lambda x, y: torch.add(x, y.expand(8, 8)), torch.zeros(8, 8), torch.zeros(1, 1))
    (add,) = [n for n in node.graph.nodes if n.target is torch.ops.aten.add.Tensor]
    assert byte_count(add) == 4 * (64 + 64 + 1)


def test_a_lookup_reads_the_rows_it_returns() -> None:
    node = traced(lambda w, i: torch.embedding(w, i), torch.zeros(1000, 4), torch.zeros(6, dtype=torch.long))
    assert flop_count(node) == 0
    assert byte_count(node) == 6 * 4 * 4 + 6 * 4 * 4 + 6 * 8


def rows_read(fn, *args) -> int:
    """How many different rows the op picks where it is measured, of a traced function's first op."""
    node = traced(fn, *args)
    return sum(len(spread(index.meta["val"], rows).unique()) for index, rows in indices(node))


def test_an_op_that_looks_up_rows_is_measured_with_rows_from_everywhere() -> None:
    weight, index = torch.zeros(1000, 4), torch.zeros(6, 100, dtype=torch.long)
    assert rows_read(lambda w, i: torch.embedding(w, i), weight, index) > 400
    backward = torch.ops.aten.embedding_dense_backward
    assert rows_read(lambda g, i: backward(g, i, 1000, -1, False), torch.zeros(6, 100, 4), index) > 400
    assert rows_read(lambda w, i: w.index_select(0, i), weight, index[0]) == 100
    assert rows_read(lambda w, i: w.gather(1, i), weight, index[:, :4]) == 4
    assert rows_read(lambda w, i: torch.ops.aten.index(w, [None, i]), weight, index[0].int()) == 4
    # A mask, and one index that is seen many times.
    mask = torch.zeros(1000, dtype=torch.bool)
    assert rows_read(lambda w, m: torch.ops.aten.index_put(w, [m], torch.zeros(())), weight, mask) == 0
    assert (
        rows_read(lambda w, i: torch.embedding(w, i), weight, torch.zeros((), dtype=torch.long).expand(9))
        == 1
    )
    model, inputs = case("gpt").build()
    assert remat.torch.capture(model, inputs).durations.min() >= 0


def test_a_causal_attention_forms_half_of_the_weights() -> None:
    q = torch.zeros(2, 3, 16, 8)

    def attention(causal: bool):
        def run(x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x, 0.0, causal)[0]

        return flop_count(traced(run, q))

    assert attention(False) == 2 * 2 * q.numel() * 16
    assert attention(True) == attention(False) / 2


def test_a_transform_takes_n_log_n() -> None:
    assert flop_count(traced(lambda x: torch.fft.rfft(x), torch.zeros(4, 64))) == pytest.approx(
        2.5 * 4 * 64 * math.log2(64)
    )


def test_a_roofline_plans_for_a_machine_one_does_not_have() -> None:
    model, inputs = case("mlp").build()
    slow = remat.torch.capture(model, inputs, costs="roofline", device=UNIT_DEVICE)
    fast = remat.torch.capture(model, inputs, costs="roofline", device="flops=1e12,bandwidth=1e12,launch=0")
    named = remat.torch.capture(model, inputs, costs="roofline", device="h100")
    assert slow.base_duration == pytest.approx(1000 * fast.base_duration, rel=0.05)
    assert named.base_duration >= 4000 * (named.num_ops - 1)  # every launch takes 4 us
    default = remat.torch.capture(model, inputs, costs="roofline")
    assert default == remat.torch.capture(model, inputs, costs="roofline", device="a100")


def test_a_plan_for_another_machine_that_runs_here_keeps_its_budget_here() -> None:
    model, inputs = case("encoder").build()
    options = {"costs": "roofline", "device": "h100"}
    fitted = fit(model, inputs, "75%", **options)
    assert fitted.remat.graph.workspaces.max() > 0
    assert remat.torch.capture(model, inputs, **options).workspaces.max() == 0
    assert step_peak(fitted, inputs) <= fitted.remat.budget


def test_costs_of_a_file_are_those_that_were_measured(tmp_path) -> None:
    model, inputs = case("mlp").build()
    path = tmp_path / "costs.json"
    count = remat.torch.measure_costs(model, inputs, path)
    content = json.loads(path.read_text())
    assert content["format"] == "remat.costs"
    assert len(content["costs"]) == count
    content["costs"] = {key: [7, 64] for key in content["costs"]}
    path.write_text(json.dumps(content))
    graph = remat.torch.capture(model, inputs, costs=path)
    durations = {graph.op(i).kind: graph.op(i).duration for i in range(graph.num_ops)}
    assert durations.pop("remat.loss") == 0
    assert set(durations.values()) == {7}
    fitted = fit(model, inputs, "85%", costs=str(path))
    assert fitted.remat.overhead > 0


def test_a_file_that_lacks_an_op_or_is_none_is_refused(tmp_path) -> None:
    model, inputs = case("mlp").build()
    path = tmp_path / "costs.json"
    path.write_text('{"format": "remat.costs", "version": 1, "environment": {}, "costs": {}}')
    with pytest.raises(remat.UsageError, match="of the step's ops have no cost there; the first is aten"):
        remat.torch.capture(model, inputs, costs=path)
    with pytest.raises(remat.UsageError, match="No such file"):
        remat.torch.capture(model, inputs, costs=tmp_path / "none.json")


def test_a_file_that_holds_no_costs_is_refused(tmp_path) -> None:
    path = tmp_path / "costs.json"
    for text, message in [
        ("[1", "Expecting"),
        ("{}", "no remat.costs file"),
        ('{"format": "remat.costs", "version": 9}', "version 9"),
        ('{"format": "remat.costs", "version": 1, "environment": {}, "costs": {"a": [1]}}', "costs of a"),
    ]:
        path.write_text(text)
        with pytest.raises(remat.UsageError, match=message):
            read_costs(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"costs": 3}, "costs must be a path"),
        ({"device": "a100"}, 'device belongs to costs="roofline"'),
        ({"costs": "roofline", "device": "a1000"}, "none of cpu, p100"),
    ],
)
def test_costs_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(remat.UsageError, match=message):
        remat.torch.capture(nn.Linear(2, 2), torch.zeros(1, 2), **options)


class WideMLP(MLP):
    """With 17 GB of parameters, and a mask of 4 GB that the step makes."""

    def __init__(self) -> None:
        super().__init__(width=16384, depth=16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * torch.ones(x.shape))


@pytest.mark.parametrize("how", ["meta", "fake"])
def test_a_model_of_many_gigabytes_is_captured_and_planned_without_them(how: str) -> None:
    if how == "meta":
        with torch.device("meta"):
            model, x = WideMLP(), torch.zeros(65536, 16384)
    else:
        with FakeTensorMode():
            model, x = WideMLP(), torch.zeros(65536, 16384)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = remat.torch.capture(model, x, costs="roofline", device="h100")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
    weights = 16 * (16384 * 16384 + 16384) * 4
    assert graph.resident == weights + 65536 * 16384 * 4
    assert graph.keep_all_peak > 2 * weights
    assert remat.plan(graph, budget="80%", time_limit=1.0).peak <= 0.8 * graph.keep_all_peak
    with pytest.raises(remat.UsageError, match="the model's tensors have no memory"):
        remat.torch.fit(model, x, "50%")


def test_tied_parameters_stay_tied_without_memory() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(100, 32), nn.Linear(32, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(tokens)).square().mean()

    tokens = torch.zeros(4, 8, dtype=torch.long)
    with torch.device("meta"):
        model = Tied()
    real = remat.torch.capture(Tied(), tokens, costs="roofline")
    assert remat.torch.capture(model, tokens, costs="roofline") == real


def test_measuring_leaves_no_memory_behind() -> None:
    model, inputs = case("mlp").build()
    before = sum(live_storages().values())
    remat.torch.capture(model, inputs)
    assert sum(live_storages().values()) == before


def test_calls_that_measure_ops_in_training_stay_within_a_small_budget() -> None:
    """Other shapes, and then a frozen layer: their ops are measured beside the step."""
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.Tanh())))
    whole = torch.randn(1024, 64)

    def peak(run: nn.Module, x: torch.Tensor) -> int:
        model.zero_grad()
        return remat.torch.measure_peak(lambda: run(x).square().mean().backward(), resident=[model, x])

    budget = int(0.85 * peak(model, whole))
    fitted = remat.torch.fit(
        model, (whole,), budget, loss=lambda out: out.square().mean(), executor="boxed", costs="measured"
    )
    peaks = [peak(fitted, whole), peak(fitted, whole[:512].clone())]
    model[0].requires_grad_(False)
    peaks.append(peak(fitted, whole))
    assert max(peaks) <= budget, (peaks, budget)


def test_ops_of_a_recurrent_layer_are_measured_within_the_budget_in_training() -> None:
    """Nearly all its bytes are of few ops, each measured once."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.LSTM(64, 64, 2, batch_first=True, bidirectional=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)[0].square().mean()

    def peak(run: nn.Module, n: int) -> int:
        x = torch.randn(n, 20, 64)
        run.zero_grad()
        return remat.torch.measure_peak(lambda: run(x).backward(), resident=[run, x])

    model = Layers()
    peak(model, 16)
    budget = peak(model, 16) * 7 // 10
    fitted = remat.torch.fit(model, torch.randn(16, 20, 64), budget, executor="boxed", costs="measured")
    for n in (16, 9, 12):
        assert peak(fitted, n) <= budget


class Widths(nn.Module):
    """Each of its layers has another width, so each of its ops is measured."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = range(64, 129, 8)
        self.layers = nn.Sequential(*[y for a, b in pairwise(widths) for y in (nn.Linear(a, b), nn.GELU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


@pytest.mark.parametrize("budget_as", [int, "{} B".format])
def test_the_first_step_of_torch_compile_measures_ops_within_the_budget(
    budget_as: Callable[[int], int | str],
) -> None:
    plain, model, x = Widths(), Widths(), torch.randn(2048, 64)

    def peak(run: nn.Module) -> int:
        run.zero_grad()
        return remat.torch.measure_peak(lambda: run(x).backward(), resident=[run, x])

    budget = peak(plain) * 7 // 10
    options = {"budget": budget_as(budget), "costs": "measured"}
    compiled = torch.compile(model, backend="remat", options=options)
    for _ in range(2):
        assert peak(compiled) <= budget
        assert all(
            torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)
        )


def test_ops_with_large_workspaces_are_measured_within_the_budget_in_training() -> None:
    """A convolution of float64 unfolds its input, which takes several times as much."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Conv2d(3, 16, 3, padding=1)
            self.layers = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))
            self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = x + norm(layer(x)).relu()
            return x.square().mean()

    def peak(run: nn.Module, x: torch.Tensor) -> int:
        run.zero_grad()
        return remat.torch.measure_peak(lambda: run(x).backward(), resident=[run, x])

    model, x = Layers(), torch.randn(4, 3, 48, 48)
    model.double()
    budget = peak(model, x.double()) * 6 // 10
    model.float()
    fitted = remat.torch.fit(model, x, budget, executor="boxed", costs="measured")
    model.double()
    assert peak(fitted, x.double()) <= budget
