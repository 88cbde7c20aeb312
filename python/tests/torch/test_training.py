"""What training loops do around a step: scaled and several losses, frozen and shared parameters, files."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from models import MLP, case
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import fit, step_peak, train

Step = Callable[[nn.Module], None]


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def same(mine: nn.Module, theirs: nn.Module) -> bool:
    pairs = zip(gradients(mine), gradients(theirs), strict=True)
    return any(p.grad is not None for p in mine.parameters()) and all(
        (a is None and b is None) or (a is not None and b is not None and a.equal(b)) for a, b in pairs
    )


def recomputes(model: nn.Module) -> bool:
    return any(part.recomputed_steps > 0 for part in model.remat.parts)


class Layers(nn.Module):
    def __init__(self, depth: int = 10, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def layers() -> tuple[Layers, torch.Tensor]:
    torch.manual_seed(0)
    return Layers(), torch.randn(1024, 64)


def test_gradient_scaling_with_autocast_trains_as_in_eager_mode() -> None:
    model, x = layers()
    expected = copy.deepcopy(model)

    def steps(m: nn.Module) -> tuple[list[torch.Tensor], float]:
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = m(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return [p.detach().clone() for p in m.parameters()], scaler.get_scale()

    theirs, scale = steps(expected)
    with torch.autocast("cpu", torch.bfloat16):
        fitted = fit(model, x, "80%", loss=lambda y: y.float().square().mean())
    assert recomputes(fitted)
    mine, my_scale = steps(fitted)
    assert my_scale == scale == 2.0**13
    assert all(a.equal(b) for a, b in zip(mine, theirs, strict=True))


def test_a_scaled_loss_that_overflows_skips_the_step() -> None:
    model, x = layers()
    fitted = fit(model, x, "80%", loss=lambda y: y.square().mean())
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(fitted.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(fitted(x).square().mean() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**9
    assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))


def test_what_was_trained_is_saved_and_loaded_into_a_plain_model() -> None:
    model, inputs = case("conv_net").build()
    plain = copy.deepcopy(model)
    fitted = fit(model, inputs, "80%")
    optimizer = torch.optim.AdamW(fitted.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        fitted(*inputs).backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save({"model": fitted.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    plain.load_state_dict(loaded["model"])
    again = torch.optim.AdamW(plain.parameters())
    again.load_state_dict(loaded["optimizer"])
    for m, o in ((fitted, optimizer), (plain, again)):
        o.zero_grad()
        m(*inputs).backward()
        o.step()
    state = plain.state_dict()
    assert all(value.equal(state[name]) for name, value in fitted.state_dict().items())


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = Layers(), nn.Linear(64, 3), nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.body(x)
        return self.left(y), self.right(y)


@pytest.mark.parametrize("way", ["sum", "two backwards", "one at a time", "autograd.grad"])
def test_several_losses_of_one_forward_give_the_gradients_of_eager_mode(way: str) -> None:
    torch.manual_seed(0)
    model, x = TwoHeads(), torch.randn(1024, 64)
    expected = copy.deepcopy(model)

    def step(m: nn.Module) -> None:
        left, right = m(x)
        first, second = left.square().mean(), right.abs().mean()
        if way == "sum":
            (first + 0.5 * second).backward()
        elif way == "two backwards":
            first.backward(retain_graph=True)
            second.backward()
        elif way == "one at a time":
            torch.autograd.backward([first, second])
        else:
            found = torch.autograd.grad(first + second, list(m.parameters()))
            for parameter, gradient in zip(m.parameters(), found, strict=True):
                parameter.grad = gradient

    step(expected)
    fitted = fit(model, x, "80%")
    assert recomputes(fitted)
    step(fitted)
    assert same(fitted, expected)
    # What was learnt of the outputs does not change the result.
    for m in (fitted, expected):
        m.zero_grad()
        step(m)
    assert same(fitted, expected)


@pytest.mark.parametrize("clear_every", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_accumulated_gradients_are_those_of_eager_mode_and_keep_the_budget(clear_every: int) -> None:
    model, inputs = case("encoder").build()
    expected = copy.deepcopy(model)
    fitted = fit(model, inputs, int(0.8 * step_peak(copy.deepcopy(model), inputs)))
    for m in (expected, fitted):
        torch.manual_seed(2)
        for i in range(6):
            if i % clear_every == 0:
                m.zero_grad()
            (m(*inputs) / clear_every).backward()
    assert same(fitted, expected)
    assert recomputes(fitted)
    measured = step_peak(fitted, inputs)  # on top of gradients
    assert measured <= max(part.predicted_peak for part in fitted.remat.parts) <= fitted.remat.budget


def test_hooks_that_change_gradients_and_hooks_after_accumulation_work() -> None:
    model, x = layers()
    expected = copy.deepcopy(model)
    fitted = fit(model, x, "80%", loss=lambda y: y.square().mean())
    seen: dict[int, list[str]] = {0: [], 1: []}
    for key, m in enumerate((expected, fitted)):
        for name, parameter in m.named_parameters():
            parameter.register_hook(lambda grad: grad.clamp(-1e-4, 1e-4))
            parameter.register_post_accumulate_grad_hook(lambda p, n=name, k=key: seen[k].append(n))
        m(x).square().mean().backward()
    assert same(fitted, expected)
    assert sorted(seen[0]) == sorted(seen[1]) == sorted(name for name, _ in model.named_parameters())


@pytest.mark.parametrize("frozen", ["first", "last", "biases"])
def test_frozen_parameters_cost_no_gradient(frozen: str) -> None:
    model, x = layers()
    for name, parameter in model.named_parameters():
        index = int(name.split(".")[1])
        if (frozen == "first" and index < 5) or (frozen == "last" and index >= 5):
            parameter.requires_grad_(False)
        if frozen == "biases" and name.endswith("bias"):
            parameter.requires_grad_(False)
    expected = copy.deepcopy(model)
    expected(x).square().mean().backward()
    fitted = fit(model, x, "85%", loss=lambda y: y.square().mean())
    fitted(x).square().mean().backward()
    assert same(fitted, expected)
    assert any(p.grad is None for p in model.parameters())


def test_unfreezing_between_steps_is_planned_anew() -> None:
    model, x = layers()
    model.layers[0].requires_grad_(False)
    fitted = fit(model, x, "85%", loss=lambda y: y.square().mean())
    fitted(x).square().mean().backward()
    model.layers[0].requires_grad_(True)
    model.zero_grad()
    expected = copy.deepcopy(model)
    for m in (expected, fitted):
        m(x).square().mean().backward()
    assert same(fitted, expected)
    assert model.layers[0].weight.grad is not None


class Tied(nn.Module):
    """The head's weight is the embedding's, and one block is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = nn.Embedding(97, 64), Layers(4)
        self.head = nn.Linear(64, 97, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.block(self.block(self.embed(tokens)))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def test_tied_weights_and_a_block_used_twice_add_up_their_gradients() -> None:
    torch.manual_seed(0)
    model, inputs = Tied(), (torch.randint(97, (16, 64)),)
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "75%")
    assert recomputes(fitted)
    assert fitted.head.weight is fitted.embed.weight
    assert expected.differences(train(fitted, inputs)) == []


class Reentrant(nn.Module):
    """A checkpoint adds up the three gradients of its input before that of the sum around it."""

    def __init__(self, options: dict[str, bool]) -> None:
        super().__init__()
        self.options = options
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c, _ = self.layers
        result: torch.Tensor = a(x).tanh() * b(x) + c(x)
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[3](x).sin()
        for _ in range(3):
            x = x + checkpoint(self.inner, x, **self.options)
        return x.square().mean()


@pytest.mark.filterwarnings("ignore:torch.utils.checkpoint")
@pytest.mark.parametrize("options", [{"use_reentrant": True}, {}, {"use_reentrant": False}], ids=str)
def test_checkpoints_whose_backward_is_one_of_its_own_run_in_eager_mode(
    options: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, x = Reentrant(options), torch.randn(8, 16, 32)
    fitted = fit(copy.deepcopy(model), x, "100%")
    reentrant = options.get("use_reentrant", True)
    assert fitted.remat.parts[0].is_eager == reentrant
    assert ("is reentrant" in caplog.text) == reentrant
    assert train(fitted, (x,)).differences(train(copy.deepcopy(model), (x,))) == []
    caplog.clear()
    fit(copy.deepcopy(model), x, "100%", executor="boxed")
    assert ("last bits of gradients can differ" in caplog.text) == reentrant


def test_a_model_used_twice_in_a_step_with_other_shapes_too() -> None:
    model, x = layers()
    expected = copy.deepcopy(model)
    fitted = fit(model, x, "1GiB", calls=2)
    for m in (expected, fitted):
        (m(x).square().mean() + m(x[:100]).abs().mean() + m(m(x)).mean()).backward()
    assert same(fitted, expected)


def test_steps_without_gradients_between_steps_with_them_change_nothing() -> None:
    torch.manual_seed(0)
    model, inputs = MLP(), (torch.randn(1024, 128),)
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "85%")
    planned = len(fitted.remat.parts)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert fitted(*inputs).equal(model(*inputs))
    fitted.eval()
    assert fitted(*inputs).equal(model(*inputs))
    fitted.train()
    assert expected.differences(train(fitted, inputs)) == []
    assert len(fitted.remat.parts) <= planned + 2
