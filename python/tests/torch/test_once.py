"""What has effects besides its result, or talks to other ranks, runs exactly once in a step."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from ranks import run_on_two_ranks
from torch import nn
from training import fit, train

seen: list[float] = []


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library("remat_once", "FRAGMENT")
    seen.clear()
    yield made
    made._destroy()


class Chain(nn.Module):
    """Linear layers with something of the test's between them."""

    def __init__(self, between, depth: int = 6) -> None:
        super().__init__()
        self.between = between
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.between(layer(x).tanh().square())
        return x.square().mean()


def build(between) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Chain(between), (torch.randn(1024, 64),)


def runs_by_kind(model: nn.Module) -> Counter[str]:
    """The largest number of runs of an op of each kind."""
    report = model.remat.parts[0]
    ops = report.graph.to_dict()["ops"]
    most: Counter[str] = Counter()
    for index, count in Counter(report.plan.steps).items():
        most[ops[index]["kind"]] = max(most[ops[index]["kind"]], count)
    return most


def check_once(model: nn.Module, inputs: tuple[torch.Tensor, ...], part: str, budget: str = "70%") -> None:
    """Ops whose kind contains `part` run once, others again; training is that of eager mode."""
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, budget)
    runs = runs_by_kind(fitted)
    once = {kind: count for kind, count in runs.items() if part in kind}
    assert once
    assert set(once.values()) == {1}, runs
    assert max(runs.values()) > 1
    assert expected.differences(train(fitted, inputs)) == []


def test_an_op_that_tells_without_a_result_runs_once_and_in_place(library) -> None:
    @torch.library.custom_op("remat_once::tell", mutates_args=())
    def tell(x: torch.Tensor) -> None:
        seen.append(float(x.sum()))

    tell.register_fake(lambda x: None)
    tell.register_effect(torch.library.EffectType.ORDERED) if hasattr(tell, "register_effect") else None

    def between(x: torch.Tensor) -> torch.Tensor:
        torch.ops.remat_once.tell(x.detach())
        return x

    model, inputs = build(between)
    model(*inputs).backward()
    eager = list(seen)
    model.zero_grad()
    assert len(eager) == 6
    fitted = fit(model, inputs, "70%")
    assert max(runs_by_kind(fitted).values()) > 1
    seen.clear()
    fitted(*inputs).backward()
    assert seen == eager


def test_an_op_that_changes_a_buffer_runs_once(library) -> None:
    @torch.library.custom_op("remat_once::count", mutates_args=("total",))
    def count(total: torch.Tensor, x: torch.Tensor) -> None:
        total += x.detach().abs().mean()

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.ops.remat_once.count(self.total, x)
            return x

    model, inputs = build(Counting())
    expected = copy.deepcopy(model)
    trace = train(expected, inputs)
    fitted = fit(model, inputs, "70%")
    assert float(model.between.total) == 0.0
    assert trace.differences(train(fitted, inputs)) == []
    assert float(expected.between.total) > 0.0


@pytest.mark.parametrize("kind", ["add", "running", "assigned"])
def test_buffers_that_the_forward_changes_in_place_change_once(kind: str) -> None:
    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.ones(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.kept.clone()  # eager mode would refuse the buffer itself
            with torch.no_grad():
                if kind == "add":
                    self.kept.add_(x.detach().mean(0))
                elif kind == "running":
                    self.kept.mul_(0.9).add_(0.1 * x.detach().mean(0))
                else:
                    self.kept[:32] = x.detach().mean(0)[:32]
            return y

    model, inputs = build(Buffered())
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "75%")
    assert max(runs_by_kind(fitted).values()) > 1
    assert expected.differences(train(fitted, inputs)) == []


def test_batch_norm_counts_each_step_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(5) for m in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh())))
    loss = nn.Sequential(model, nn.Flatten())
    x = torch.randn(512, 64)
    expected = copy.deepcopy(loss)
    fitted = fit(loss, x, "75%", loss=lambda y: y.square().mean())
    for each in (expected, fitted):
        for _ in range(3):
            each(x).square().mean().backward()
    for mine, theirs in zip(fitted.buffers(), expected.buffers(), strict=True):
        assert mine.equal(theirs)
    assert int(model[1].num_batches_tracked) == 3


def test_printing_breaks_the_graph_and_prints_once(capsys) -> None:
    class Printing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x).tanh()
            print("here")
            return self.second(y).tanh()

    torch.manual_seed(0)
    model = Printing()
    x = torch.randn(512, 64)
    fitted = fit(model, x, "1GiB")
    expected = copy.deepcopy(model)
    capsys.readouterr()
    fitted(x).square().mean().backward()
    assert capsys.readouterr().out == "here\n"
    expected(x).square().mean().backward()
    pairs = zip(model.parameters(), expected.parameters(), strict=True)
    assert all(a.grad.equal(b.grad) for a, b in pairs)


def test_collectives_inside_a_graph_are_never_computed_again(tmp_path: Path) -> None:
    said = run_on_two_ranks(
        """
        import torch.distributed._functional_collectives as funcol
        from test_once import build, runs_by_kind, train

        def between(x):
            return x + funcol.all_reduce(x.mean(0, keepdim=True), "sum", dist.group.WORLD)

        class Mean(torch.nn.Module):
            def forward(self, x):
                return between(x)

        model, inputs = build(Mean())
        inputs = (inputs[0] + rank,)
        expected = train(copy.deepcopy(model), inputs)
        fitted = remat.torch.fit(model, inputs, "70%", group=dist.group.WORLD, work_limit=20_000)
        # All that were measured are over.
        assert torch._C._distributed_c10d._get_work_registry_size() == 0
        runs = runs_by_kind(fitted)
        collectives = {kind: count for kind, count in runs.items() if "c10d_functional" in kind}
        assert any("all_reduce" in kind for kind in collectives), runs
        assert set(collectives.values()) == {1}, runs
        assert max(runs.values()) > 1
        assert expected.differences(train(fitted, inputs)) == []
        print(sorted(collectives))
        """,
        tmp_path,
    )
    assert all("all_reduce" in each for each in said)


def test_custom_ops_with_a_result_run_once(library) -> None:
    @torch.library.custom_op("remat_once::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x.sum()))
        return x.cos()

    noted.register_fake(torch.empty_like)
    noted.register_autograd(
        lambda ctx, grad: -grad * ctx.saved_tensors[0].sin(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    model, inputs = build(lambda x: torch.ops.remat_once.noted(x))
    check_once(model, inputs, "remat_once.noted")
    seen.clear()
    model(*inputs).backward()
    assert len(seen) == 6
