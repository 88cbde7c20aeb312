"""Ops that decide what runs do so once: which they are, ties, and the option that lets them run again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import pytest
import remat
import remat.torch
import torch
from torch import nn
from torch.nn import functional

EXPERTS, WIDTH = 4, 16


class Mixture(nn.Module):
    """Two experts for each token, tokens sorted by expert, as many for each as fit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 4 * WIDTH) / 4)
        self.down = nn.Parameter(torch.randn(EXPERTS, 4 * WIDTH, WIDTH) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.gate(x).softmax(-1).topk(2, -1)
        order = experts.flatten().argsort(stable=True)
        counts = functional.one_hot(experts.flatten(), EXPERTS).sum(0)
        expert = experts.flatten()[order]
        place = torch.arange(order.numel()) - (counts.cumsum(0) - counts)[expert]
        room = order.numel() // 2
        slot = torch.where(place < room, expert * room + place, EXPERTS * room)
        taken = x.new_zeros(EXPERTS * room + 1, WIDTH).index_copy(0, slot, x[order // 2])
        hidden = functional.gelu(torch.bmm(taken[:-1].view(EXPERTS, room, WIDTH), self.up))
        made = torch.cat([torch.bmm(hidden, self.down).flatten(0, 1), x.new_zeros(1, WIDTH)])
        return x.index_add(0, order // 2, made[slot] * weights.flatten()[order, None])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mixture() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(functional.layer_norm(x, (WIDTH,)))
        return x.square().mean()


def batch() -> torch.Tensor:
    return torch.randn(96, WIDTH, generator=torch.Generator().manual_seed(1))


def net(ties: bool = False) -> nn.Module:
    torch.manual_seed(0)
    made = Net()
    if ties:
        with torch.no_grad():
            for layer in made.layers:
                layer.gate.weight.zero_()  # all experts are as good
                layer.gate.bias.zero_()
    return made


def once(model: nn.Module, inputs: Any, **options: Any) -> set[str]:
    """Kinds of forward ops that must not run again."""
    loss = lambda output: output.square().mean()  # noqa: E731
    graph = remat.torch.capture(model, inputs, loss=loss, costs="roofline", **options).to_dict()
    return {op["kind"] for op in graph["ops"] if op.get("recompute") == "never" and op["phase"] == "forward"}


def test_what_chooses_experts_runs_once_unless_the_option_says_otherwise() -> None:
    kept = once(net(), batch())
    assert {"aten.topk.default", "aten.sort.stable"} <= kept
    assert not once(net(), batch(), routing="recompute") & {"aten.topk.default", "aten.sort.stable"}
    with pytest.raises(remat.UsageError, match='routing must be "once" or "recompute", not \'never\''):
        once(net(), batch(), routing="never")


class Op(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(WIDTH, WIDTH), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # What is returned is held, and runs once anyway.
        return self.linear(self.function(torch.tanh(self.linear(x)))).sin()


DECIDE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten.argmax.default": lambda x: x.gather(1, x.argmax(1, keepdim=True)).expand(-1, WIDTH) + x,
    "aten.sort.default": lambda x: x.sort(1).values,
    "aten.max.dim": lambda x: x[x.max(0).indices],
    "aten.kthvalue.default": lambda x: x.kthvalue(2, 1, keepdim=True).values * x,
    "aten.bucketize.Tensor": lambda x: x[torch.bucketize(x[:, 0].contiguous(), torch.linspace(-1, 1, 30))],
    "aten.searchsorted.Tensor": lambda x: x[
        torch.searchsorted(torch.linspace(-1, 1, 30), x[:, 0].contiguous())
    ],
    "aten.multinomial.default": lambda x: x[torch.multinomial(x[0].exp(), WIDTH)],
    "aten.histc.default": lambda x: x * torch.histc(x.detach(), WIDTH),
    "aten._to_copy.default": lambda x: x[(x[:, 0].detach().abs() * 90).long()],
    # Where a truth about numbers becomes a place.
    "aten.cumsum.default": lambda x: x[(x[:, 0] > 0).cumsum(0) - 1],
}


@pytest.mark.parametrize("kind", DECIDE)
def test_ops_that_decide(kind: str) -> None:
    assert kind in once(Op(DECIDE[kind]), batch())
    assert kind not in once(Op(DECIDE[kind]), batch(), routing="recompute")


REPEAT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten.max_pool2d_with_indices.default": lambda x: functional.max_pool2d(x[None, None], 3, 1, 1)[0, 0] + x,
    "aten.max.dim": lambda x: x.max(1, keepdim=True).values * x,
    "aten.amax.default": lambda x: x.amax(1, keepdim=True) * x,
    "aten._softmax.default": lambda x: x.softmax(1) * x,
    "aten.gt.Scalar": lambda x: torch.where(x > 0.1, x, x.sin()),
    "aten.index.Tensor": lambda x: x[torch.arange(96).flip(0)],
    "aten.cumsum.default": lambda x: x[(torch.arange(96) % 2).cumsum(0)],
}


@pytest.mark.parametrize("kind", REPEAT)
def test_other_ops_may_run_again(kind: str) -> None:
    graph = remat.torch.capture(
        Op(REPEAT[kind]), batch(), loss=lambda output: output.square().mean(), costs="roofline"
    ).to_dict()
    found = [op for op in graph["ops"] if op["kind"] == kind and op["phase"] == "forward"]
    assert found
    assert all(op.get("recompute") != "never" for op in found)


def state(model: Any, x: torch.Tensor) -> list[torch.Tensor]:
    losses = []
    for _ in range(2):
        loss = model(x)
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("routing", ["once", "recompute"])
def test_ties_are_broken_alike(routing: Literal["once", "recompute"]) -> None:
    x, model = batch(), net(ties=True)
    experts = model.layers[0].gate(x).topk(2, -1).values
    assert torch.equal(experts[:, 0], experts[:, 1])
    expected = state(copy.deepcopy(model), x)
    fitted = remat.torch.fit(model, x, "55%", costs="roofline", routing=routing)
    found = state(fitted, x)
    assert all(map(torch.equal, found, expected))
    graph = fitted.remat.parts[0].graph.to_dict()
    runs = fitted.remat.parts[0].plan.steps
    again = [graph["ops"][op]["kind"] for op in set(runs) if list(runs).count(op) > 1]
    assert again
    assert routing == "recompute" or not {"aten.topk.default", "aten.sort.stable"} & set(again)


@pytest.mark.parametrize("routing", ["once", "recompute"])
def test_checkpoints_save_what_decides(routing: Literal["once", "recompute"]) -> None:
    x, model = batch(), net(ties=True)
    peak = remat.torch.checkpoint_policy(model, x, "100%", compare=False).report.eager_peak
    policies = remat.torch.checkpoint_policy(
        model, x, int(0.75 * peak), routing=routing, work_limit=5_000_000, compare=False
    )
    wrapped = [region for region in policies.regions.values() if region is not None]
    assert wrapped
    if routing == "once":
        assert all({"aten.topk.default", "aten.sort.stable"} <= set(region.save) for region in wrapped)
    expected = state(copy.deepcopy(model), x)
    assert all(map(torch.equal, state(policies.apply(), x), expected))
