"""Checkpoint policies: gradients of eager mode, the peak that is foretold, the best set, a file that needs no
Remat.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat.torch.cost import source
from remat.torch.cost.cost import Cost
from remat.torch.cost.source import Costs
from remat.torch.executors import tolls
from remat.torch.executors.checkpoint import _UNSEEN, _Trial
from remat.torch.executors.regions import Region
from torch import nn
from torch.nn import functional

DOCS = Path(__file__).resolve().parents[3] / "docs" / "executors.md"


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, layers: int = 4, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.head = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x).square().mean()


def made(model: type[nn.Module] = Net, **sizes: Any) -> nn.Module:
    torch.manual_seed(0)
    return model(**sizes)


def batch(rows: int = 512) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(1))


def state(model: nn.Module, x: torch.Tensor, called: Any = None) -> list[torch.Tensor]:
    """Loss, gradients and buffers after two steps from a fixed seed."""
    torch.manual_seed(3)
    model.zero_grad()
    losses = []
    for _ in range(2):
        loss = (model if called is None else called)(x)
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


def equal(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("budget", ["80%", "65%"])
def test_gradients_are_those_of_eager_mode_and_the_peak_is_foretold(budget: str) -> None:
    x, model = batch(), made()
    expected = state(copy.deepcopy(model), x)
    policies = remat.torch.checkpoint_policy(model, x, budget, compare=False)
    report = policies.report
    assert report.predicted_peak <= report.budget < report.eager_peak
    planned = policies.apply(copy.deepcopy(model))
    assert any(region is not None for region in policies.regions.values())
    assert equal(state(planned, x), expected)
    planned.zero_grad()
    step = lambda: planned(x).backward()  # noqa: E731
    step()
    planned.zero_grad()
    measured = remat.torch.measure_peak(step, resident=[planned, x])
    assert abs(report.predicted_peak - measured) <= 0.002 * measured


def test_costs_of_a_roofline_do() -> None:
    report = remat.torch.checkpoint_policy(made(), batch(64), "95%", costs="roofline", compare=False).report
    assert report.predicted_peak <= report.budget < report.eager_peak


def test_the_report_has_the_full_plan_beside() -> None:
    report = remat.torch.checkpoint_policy(made(), batch(), "70%").report
    assert report.full is not None
    assert report.full.peak is not None
    assert report.full.peak <= report.budget
    assert "a full plan" in str(report)


def test_planning_leaves_the_model_as_it_was() -> None:
    x, model = batch(), made()
    model(x).backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    torch.manual_seed(5)
    policies = remat.torch.checkpoint_policy(model, x, "70%", compare=False)
    drawn = torch.rand(4)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(4))
    assert equal([p.grad for p in model.parameters() if p.grad is not None], before)
    assert all("forward" not in vars(m) for m in model.modules())
    policies.apply()
    assert any("forward" in vars(m) for m in model.modules())
    with pytest.raises(remat.UsageError, match=r"apply: they are around this model already"):
        policies.apply()
    policies.remove()
    assert all("forward" not in vars(m) for m in model.modules())


def regions_of(saved: tuple[tuple[str, int], ...]) -> Region:
    save: dict[str, list[int]] = {}
    for name, number in saved:
        save.setdefault(name, []).append(number)
    return Region(save)


@pytest.fixture
def drawn_costs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Durations and tolls of another machine each time."""
    seed, measure = request.param, source.measure_ops

    def drawn(nodes: Any, *others: Any) -> dict[str, Cost]:
        return {
            key: replace(cost, duration=random.Random(f"{seed} {key}").choice([700, 9_000, 110_000]))
            for key, cost in measure(nodes, *others).items()
        }

    numbers = random.Random(seed)
    toll = tolls.Toll(numbers.randint(0, 30_000), numbers.randint(0, 20_000))
    monkeypatch.setattr(source, "measure_ops", drawn)
    monkeypatch.setattr(tolls, "measured_toll", lambda: toll)
    source.forget_measured()
    yield
    source.forget_measured()


@pytest.mark.parametrize(
    "drawn_costs",
    [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))],
    indirect=True,
)
@pytest.mark.usefixtures("drawn_costs")
def test_no_set_of_saved_results_is_faster() -> None:
    """Against all sets of one block, and the block left alone."""
    x, model = batch(256), made(layers=1, dropout=0.0)
    ops = [("aten.native_layer_norm.default", 0), ("aten.addmm.default", 0), ("aten.gelu.default", 0)]
    ops += [("aten.addmm.default", 1), ("aten.add.Tensor", 0)]
    trial = _Trial(model, x, None, True, Costs())
    steps = [trial.run({"blocks.0": None})]
    for count in range(len(ops) + 1):
        for saved in itertools.combinations(ops, count):
            steps.append(trial.run({"blocks.0": regions_of(saved)}))
    low, high = min(step.peak for step in steps), steps[0].peak
    for room in range(low, high, max(1, (high - low) // 4)):
        budget = room + _UNSEEN
        fastest = min(step.duration for step in steps if step.peak <= room)
        report = remat.torch.checkpoint_policy(model, x, budget, compare=False).report
        overhead = (fastest - steps[0].duration) / steps[0].duration
        assert report.overhead == pytest.approx(overhead, abs=1e-6), budget


class Draws(nn.Module):
    """A functional random op, which may be saved, before one in place, which always runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(32, 32), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x)
        return self.drop(torch.tanh(self.linear(x)) * noise).sin()


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Draws() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


@pytest.mark.parametrize("budget", ["90%", "80%", "70%"])
def test_numbers_are_not_shifted_by_random_ops_that_are_saved(budget: str) -> None:
    x, model = batch(), made(Noisy)
    expected = state(copy.deepcopy(model), x)
    policies = remat.torch.checkpoint_policy(model, x, budget, compare=False)
    for region in policies.regions.values():
        if region is not None:
            drawn = "aten.bernoulli_.float" not in region.save
            assert region.preserve_rng_state or not drawn
            assert not (drawn and "aten.rand_like.default" in region.save)
    assert equal(state(policies.apply(copy.deepcopy(model)), x), expected)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = lambda: nn.Sequential(  # noqa: E731
            nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(inplace=True), nn.Linear(64, 32)
        )
        self.blocks = nn.ModuleList(layer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x.square().mean()


def test_running_statistics_are_updated_once() -> None:
    x, model = batch(), made(Normed)
    expected = state(copy.deepcopy(model), x)
    policies = remat.torch.checkpoint_policy(model, x, "88%", compare=False)
    assert any(region is not None for region in policies.regions.values())
    planned = policies.apply(copy.deepcopy(model))
    assert equal(state(planned, x), expected)


def test_compiled_models_take_the_policies() -> None:
    x, model = batch(), made(dropout=0.0)
    expected = state(copy.deepcopy(model), x)
    policies = remat.torch.checkpoint_policy(model, x, "70%", compare=False)
    planned = policies.apply(copy.deepcopy(model))
    torch._dynamo.reset()
    compiled = torch.compile(planned, backend="aot_eager", fullgraph=True)
    assert equal(state(planned, x, compiled), expected)


def test_compiled_models_take_the_exported_file(tmp_path: Path) -> None:
    x, model = batch(), made(dropout=0.0)
    expected = state(copy.deepcopy(model), x)
    remat.torch.checkpoint_policy(model, x, "70%", compare=False).export(tmp_path / "policies.json")
    names: dict[str, Any] = {}
    exec(loader(), names)
    names["load_policies"](model, tmp_path / "policies.json")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert equal(state(model, x, compiled), expected)


def loader() -> str:
    """The lines that the documentation shows."""
    blocks = DOCS.read_text(encoding="utf-8").split("```python\n")
    (found,) = [block.split("```")[0] for block in blocks if "def load_policies" in block]
    return found


APPLY = """
import sys
sys.modules["remat"] = None  # importing it fails
{loader}
import torch
torch.set_num_threads({threads})  # sums of several threads have other last bits
{model}
torch.manual_seed(0)
model = Net()
load_policies(model, {path!r})
x = torch.randn(512, 32, generator=torch.Generator().manual_seed(1))
torch.manual_seed(3)
for _ in range(2):
    loss = model(x)
    loss.backward()
torch.save([loss.detach(), *(p.grad for p in model.parameters())], {out!r})
try:
    import remat
except ImportError:
    print("no remat")
"""


def sources_of_the_net() -> str:
    text = "from torch import nn\nfrom torch.nn import functional\n"
    return text + inspect.getsource(Block) + inspect.getsource(Net)


def test_the_exported_file_is_applied_without_remat(tmp_path: Path) -> None:
    x, model = batch(), made()
    policies = remat.torch.checkpoint_policy(model, x, "65%", compare=False)
    path, out = tmp_path / "policies.json", tmp_path / "state.pt"
    policies.export(path)
    assert json.loads(path.read_text())["blocks"]
    names = {"loader": loader(), "model": sources_of_the_net(), "path": str(path), "out": str(out)}
    script = APPLY.format(**names, threads=torch.get_num_threads())
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no remat\n"
    expected = state(model, x)
    assert equal(torch.load(out), expected[1:])
    lines = [line for line in loader().splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 15
    with pytest.raises(remat.RematError, match=r"nowhere/policies.json: No such file"):
        policies.export(tmp_path / "nowhere" / "policies.json")


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.cache = nn.Linear(32, 32), []  # type: ignore[var-annotated]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.append(x.detach())
        x = self.linear(x)
        return torch.tanh(torch.stack(self.cache).sum(0) + x if len(self.cache) > 1 else x)


def refused() -> Iterator[Any]:
    caches = nn.Sequential(nn.Sequential(Cached()), nn.Sequential(Cached()))
    yield caches, {}, "75%", remat.torch.UnsupportedModelError, "block '0' makes other ops when it runs again"
    yield nn.Linear(32, 8), {}, "75%", remat.UsageError, "the model has no list of blocks"
    yield made(), {"blocks": ["blocks.9"]}, "75%", remat.UsageError, "the model has no module 'blocks.9'"
    nested = {"blocks": ["blocks.0", "blocks.0.up"]}
    yield made(), nested, "75%", remat.UsageError, "block 'blocks.0.up' is inside block 'blocks.0'"
    yield made(), {"outputs": "gone"}, "75%", remat.UsageError, 'outputs must be "held" or "dropped"'
    yield made(), {}, "20KB", remat.InfeasibleError, "the budget of .* is impossible for this step"
    yield made(), {}, "30%", remat.NoPlanError, "no set of saved results within the budget of"


@pytest.mark.parametrize(("model", "options", "budget", "kind", "message"), list(refused()))
def test_what_is_impossible_is_said(
    model: nn.Module, options: Any, budget: str, kind: type[Exception], message: str
) -> None:
    loss = lambda outputs: outputs.square().mean()  # noqa: E731
    with pytest.raises(kind, match=message) as raised:
        remat.torch.checkpoint_policy(model, batch(), budget, loss=loss, compare=False, **options)
    assert type(raised.value) is kind


def test_the_smallest_budget_known_does_fit() -> None:
    x, model = batch(), made()
    with pytest.raises(remat.NoPlanError) as raised:
        remat.torch.checkpoint_policy(model, x, "30%", compare=False)
    known = raised.value.smallest_known
    report = remat.torch.checkpoint_policy(model, x, known, compare=False).report
    assert report.predicted_peak <= known


def test_what_is_reserved_counts() -> None:
    x, model = batch(), made()
    plain = remat.torch.checkpoint_policy(model, x, "100%", compare=False).report
    optimizer = torch.optim.AdamW(model.parameters())
    report = remat.torch.checkpoint_policy(
        model, x, "100%", compare=False, reserve=1000, optimizer=optimizer
    ).report
    taken = 1000 + 2 * sum(p.nbytes for p in model.parameters())
    assert report.eager_peak - plain.eager_peak == report.reserve
    assert taken <= report.reserve <= taken + 8 * len(list(model.parameters()))
    with pytest.raises(remat.NoPlanError) as raised:
        remat.torch.checkpoint_policy(model, x, "30%", compare=False, reserve="1MB")
    known = raised.value.smallest_known
    report = remat.torch.checkpoint_policy(model, x, known, compare=False, reserve="1MB").report
    assert report.predicted_peak <= known
