"""Checkpoint policies of all kinds of models: right, left alone with a reason, or refused in one line."""

from __future__ import annotations

import copy
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat.torch.base.private import unseen_by_hooks
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


class Stack(nn.Module):
    def __init__(self, block: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class Residual(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.tanh(self.up(x)[:, :WIDTH])
        return x + super().forward(torch.tanh(x))


class SumsItself(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * x + grad * 2


class OwnFunction(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(SumsItself.apply(torch.tanh(self.up(x))))


class Twice(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.layers, *self.layers):
            x = layer(x)
        return x.square().mean()


class Drops(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(super().forward(functional.dropout(x, 0.1)), 0.2)


class Empty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.identity = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class WithEmpty(Stack):
    def __init__(self) -> None:
        super().__init__(Drops)
        self.layers.append(Empty())
        self.layers.insert(1, Empty())


class Inner(Block):
    """A checkpoint of its own inside."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = lambda y: functional.dropout(torch.tanh(self.up(y)), 0.1)  # noqa: E731
        return self.down(checkpoint(inner, x, use_reentrant=False))


class Hooked(Stack):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.register_forward_hook(lambda module, args, output: output * 2)
            layer.up.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


class InTheInput(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.clamp_(-1, 1)
        for layer in self.layers:
            y = layer(x)
            y += x
            x = y
        return x.square().mean()


class KeywordBlock(Block):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, more: dict[str, Any]) -> Any:
        return super().forward(x) * scale + more["shift"], {"h": torch.sin(x), "n": 3}


class Keywords(Stack):
    def __init__(self) -> None:
        super().__init__(KeywordBlock)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.detach().cos()
        for layer in self.layers:
            x, more = layer(x, scale=scale, more={"shift": scale})
            scale = scale + more["h"]
        return (x * scale).mean()


class NotDifferentiated(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            mean = torch.tanh(self.up(x)).mean(-1, keepdim=True)
        return super().forward(x) * mean


class Autocast(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x)


class Routed(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.up(x))
        values, chosen = hidden.topk(8, -1)
        return self.down(torch.zeros_like(hidden).scatter(1, chosen, values.softmax(-1)))


class Mean(Block):
    """A buffer that it reads, then writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(torch.tanh(x - self.mean))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y


class ChangedInput(Stack):
    """What a block was called with is changed in place afterwards, which its own gradient does not need."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 1
        for layer in self.layers:
            x.add_(layer(x))
        return x.square().mean()


class TanhFirst(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.tanh(x))


class Normed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(x))


class ChangedOutput(Stack):
    def __init__(self) -> None:
        super().__init__(Normed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = functional.leaky_relu_(layer(x), 0.1)
        return x.square().mean()


class CheckpointsItself(Stack):
    def __init__(self) -> None:
        super().__init__(Drops)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False, **unseen_by_hooks())
        return x.square().mean()


def batch() -> torch.Tensor:
    return torch.randn(128, WIDTH, generator=torch.Generator().manual_seed(1))


def made(model: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return model()


def state(model: nn.Module, steps: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(3)
    random.seed(3)
    results = []
    for _ in range(steps):
        x = batch().requires_grad_() if not isinstance(model, (InTheInput, ChangedInput)) else batch()
        loss = model(x)
        loss.backward()
        results += [loss.detach(), x.detach(), *([] if x.grad is None else [x.grad])]
    return [*results, *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


def planned(model: nn.Module, budget: str = "80%") -> remat.torch.CheckpointPolicies:
    """Within the budget, or within what is known to work."""
    find = lambda limit: remat.torch.checkpoint_policy(  # noqa: E731
        model, batch(), limit, costs="measured", work_limit=5_000_000, compare=False
    )
    try:
        return find(budget)
    except remat.NoPlanError as error:
        return find(error.smallest_known)


MODELS: list[Callable[[], nn.Module]] = [
    *(
        lambda block=block: Stack(block)
        for block in (Residual, OwnFunction, Inner, NotDifferentiated, Routed)
    ),
    *(Twice, WithEmpty, Hooked, InTheInput, Keywords, Autocast),
]


@pytest.mark.parametrize("build", MODELS)
def test_a_step_leaves_behind_what_it_leaves_without_checkpoints(build: Callable[[], nn.Module]) -> None:
    model = made(build)
    policies = planned(model)
    expected, found = state(copy.deepcopy(model)), state(policies.apply(copy.deepcopy(model)))
    assert any(region is not None for region in policies.regions.values())
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))
    assert policies.report.predicted_peak <= policies.report.budget


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Stack(Mean), "reads a tensor that is changed in place afterwards"),
        (CheckpointsItself, "the model checkpoints it by itself"),
        (ChangedOutput, "which must run once, made is changed in place"),
    ],
)
def test_what_must_not_run_again_is_left_alone(build: Callable[[], nn.Module], reason: str) -> None:
    model = made(build)
    policies = planned(model)
    assert reason in str(policies.report)
    assert reason in policies.report.left_alone["layers.0"]
    assert all(map(torch.equal, state(policies.apply(copy.deepcopy(model))), state(model)))
    with pytest.raises(remat.NoPlanError, match=rf"3 of 3 blocks must not run again \(layers.0: .*{reason}"):
        remat.torch.checkpoint_policy(model, batch(), policies.report.eager_peak // 2, compare=False)


def test_an_input_that_is_changed_afterwards() -> None:
    model = made(lambda: ChangedInput(TanhFirst))
    policies = planned(model)
    assert "changed in place afterwards" in policies.report.left_alone["layers.0"]
    assert all(map(torch.equal, state(policies.apply(copy.deepcopy(model))), state(model)))


class Counts(Block):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


class OwnGenerator(Block):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * torch.rand(1, generator=self.generator))


class SkippedAtTimes(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() if random.random() < 0.5 else super().forward(x)


class TwiceUnderAutocast(Twice):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x)


class Sparse(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, WIDTH, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + self.embedding(torch.arange(128) % 8))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Stack(Counts),
            r"block 'layers.0' cannot run again without changing attribute layers.0.calls",
        ),
        (
            lambda: Stack(OwnGenerator),
            r"block 'layers.0' cannot run again without changing the gradient of lay",
        ),
        (lambda: Stack(SkippedAtTimes), "makes other ops when it runs again: .* random numbers of Python's"),
        (TwiceUnderAutocast, "block 'layers.0' makes other ops when it runs again: .* autocast"),
        (Sparse, "the step makes a sparse_coo tensor"),
    ],
)
def test_models_that_are_refused(build: Callable[[], nn.Module], message: str) -> None:
    random.seed(7)
    with pytest.raises(remat.torch.UnsupportedModelError, match=message) as raised:
        planned(made(build), "75%")
    assert "\n" not in str(raised.value)


def _through_a_file(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        _through_a_file,
        lambda model: torch.optim.swa_utils.AveragedModel(model).module,
    ],
)
def test_copies_run_their_own_weights(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = made(Stack)
    policies = planned(model)
    policies.apply()
    own = copied(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    expected = made(Stack)
    assert torch.equal(own(batch()), expected(batch()))
    own(batch()).backward()
    assert all(p.grad is not None for p in own.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert any("forward" in vars(module) for module in own.modules())
    policies.remove(own)
    assert not any("forward" in vars(module) for module in own.modules())
    assert any("forward" in vars(module) for module in model.modules())
    policies.remove()
    assert not any("forward" in vars(module) for module in model.modules())


def test_what_was_put_around_a_block_stays() -> None:
    model = made(Stack)
    policies = planned(model)
    name = next(name for name, region in policies.regions.items() if region is not None)
    block = model.get_submodule(name)
    replaced = block.__dict__["forward"] = lambda x: Block.forward(block, x) * 2
    policies.apply()
    with pytest.raises(remat.UsageError, match="they are around this model already"):
        policies.apply()
    with pytest.raises(remat.UsageError, match="policies are around this model"):
        planned(model)
    around = vars(block)["forward"]
    vars(block)["forward"] = lambda x: around(x)
    with pytest.raises(remat.UsageError, match="the forward of a Block was replaced since"):
        policies.remove()
    vars(block)["forward"] = around
    policies.remove()
    assert vars(block)["forward"] is replaced
