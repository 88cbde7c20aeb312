"""`fit` leaves no trace, in a model, what it holds, or generators; hooks of all modules are noticed."""

from __future__ import annotations

import copy
import random
import weakref
from collections import Counter, OrderedDict, defaultdict
from typing import Any, ClassVar

import numpy
import remat.torch
import torch
from remat.torch.session.untouched import Snapshot, untouched
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

OPTIONS: Any = {"work_limit": 10_000, "costs": "roofline"}


class Capturing(nn.Module):
    """Its first call installs hooks, as transformers does to capture outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.installed = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), False
        self.seen: list[torch.Tensor] = []

    @torch.compiler.disable
    def install(self) -> None:
        if not self.installed:
            for layer in self.layers:
                layer.register_forward_hook(lambda m, a, out: self.seen.append(out))
            self.installed = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.install()
        self.seen = []
        for layer in self.layers:
            x = layer(x)
        return self.seen[1].pow(2).mean()


def test_hooks_of_the_first_call_are_there_once_after_fit() -> None:
    torch.manual_seed(0)
    eager, x = Capturing(), torch.randn(64, 8)
    model = copy.deepcopy(eager)
    fitted = remat.torch.fit(model, (x,), "20MB", **OPTIONS)
    assert not any(layer._forward_hooks for layer in model.layers)
    for _ in range(2):
        expected, found = eager(x), fitted(x)
        expected.backward()
        found.backward()
        assert torch.equal(expected, found)
        assert [len(layer._forward_hooks) for layer in model.layers] == [1, 1, 1]
    for a, b in zip(eager.parameters(), model.parameters(), strict=True):
        # PyTorch's tracing may make zeros of gradients that are None.
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in (a, b)]
        assert torch.equal(*gradients)


class Statistics:
    """State of a model that is no module."""

    def __init__(self) -> None:
        self.calls, self.sizes = 0, defaultdict(list)
        self.array, self.draws = numpy.zeros(3), random.Random(7)


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Writing(nn.Module):
    """A call changes all that it can reach."""

    shared: ClassVar[dict[str, int]] = {"calls": 0}
    times = 0

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
        self.register_buffer("done", torch.tensor(0.0))
        self.order, self.counts = OrderedDict(a=1, b=2), Counter("aab")
        self.statistics, self.slotted = Statistics(), Slotted()
        self.weak: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        count = 0

        def counted(*_: Any) -> None:
            nonlocal count
            count += 1
            self.statistics.calls = count

        self.lin.register_forward_hook(counted)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write()
        return (self.lin(x) * self.scale).square().mean() * (2 if random.random() > 0.5 else 3)

    @torch.compiler.disable
    def write(self) -> None:
        self.order.move_to_end("a")
        self.counts["c"] += 1
        self.statistics.sizes["x"].append(1)
        self.statistics.array[0] += self.statistics.draws.random() + numpy.random.rand()
        self.slotted.count += 1
        self.weak.add(self.lin)
        Writing.shared["calls"] += 1
        Writing.times += 1
        self.scale.data = self.scale.data * 2
        self.lin.weight.data.mul_(2)
        self.lin.bias.register_hook(lambda gradient: gradient * 2)
        self.lin.bias.requires_grad_(False)
        self.done.fill_(1.0)


def state(model: Writing) -> list[Any]:
    statistics = model.statistics
    tensors = [model.lin.weight, model.lin.bias, model.scale, model.done]
    hook: Any = next(iter(model.lin._forward_hooks.values()))
    return [
        *(t.detach().tolist() for t in tensors),
        *(t.requires_grad for t in tensors),
        bool(model.lin.bias._backward_hooks),
        list(model.order.items()),
        dict(model.counts),
        statistics.calls,
        dict(statistics.sizes),
        statistics.array.tolist(),
        statistics.draws.getstate(),
        model.slotted.count,
        len(model.weak),
        dict(Writing.shared),
        Writing.times,
        hook.__closure__[0].cell_contents,
        random.getstate(),
        numpy.random.get_state()[1].tolist(),
        numpy.random.get_state()[2],
        torch.get_rng_state().tolist(),
    ]


def test_fit_leaves_everything_that_a_call_changes_as_it_was() -> None:
    torch.manual_seed(0)
    model, x = Writing(), torch.randn(8, 4)
    before = state(model)
    remat.torch.fit(model, (x,), "20MB", **OPTIONS)
    assert state(model) == before
    model(x)
    after = state(model)
    # The test would notice: an eager call changes all but these.
    same = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a == b]
    assert len(same) <= 5, same


def test_inputs_that_a_call_writes_to_are_as_they_were() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
            torch._dynamo.graph_break()
            y = more.pop("y")
            y.mul_(2)
            return self.lin(x + y).square().mean()

    model, x, y = Model(), torch.randn(8, 4), torch.randn(8, 4)
    more, before = {"y": y}, y.clone()
    remat.torch.fit(model, (x, more), "20MB", **OPTIONS)
    assert more == {"y": y}
    assert torch.equal(y, before)


def test_what_did_not_change_is_not_written() -> None:
    model = nn.BatchNorm1d(4)
    version = model.running_mean._version
    with untouched(model):
        pass
    assert model.running_mean._version == version


def test_optimizers_and_data_that_a_model_knows_are_not_its_state() -> None:
    class Data(torch.utils.data.Dataset[Any]):
        rows = torch.zeros(3)

    model: Any = nn.Linear(2, 2)
    model.data, model.optimizer = Data(), torch.optim.SGD(model.parameters(), 0.1)
    with untouched(model):
        Data.rows.add_(1)
        model.optimizer.param_groups[0]["lr"] = 0.2
    assert model.optimizer.param_groups[0]["lr"] == 0.2
    assert Data.rows.sum() == 3


def test_hooks_of_all_modules_that_come_after_fit_are_called() -> None:
    torch.manual_seed(0)
    eager, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), torch.randn(4, 8)
    fitted = remat.torch.fit(copy.deepcopy(eager), (x,), "20MB", **OPTIONS)
    assert torch.equal(eager(x), fitted(x))
    handle = register_module_forward_hook(
        lambda module, given, out: out * 2 if isinstance(module, nn.Linear) else None
    )
    try:
        assert torch.equal(eager(x), fitted(x))
    finally:
        handle.remove()
    assert torch.equal(eager(x), fitted(x))


def test_a_snapshot_is_put_back_between_calls() -> None:
    model: Any = nn.Linear(2, 2)
    model.calls = []
    snapshot = Snapshot(model)
    for _ in range(2):
        model.calls.append(1)
        snapshot.restore()
        assert model.calls == []
