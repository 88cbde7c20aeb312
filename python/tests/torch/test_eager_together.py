"""Loops that call several models, or one several times, before one backward: planned as one step."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 48
QUICK: dict[str, Any] = {"work_limit": 5_000, "time_limit": None}


def layers(count: int = 4) -> nn.Sequential:
    return nn.Sequential(*[m for _ in range(count) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())])


def inputs(size: int = 192) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(size, WIDTH)


def gradients(*models: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for model in models for p in model.parameters() if p.grad is not None]


def train(
    step: Any, models: list[nn.Module], run: Callable[..., None], steps: int, clear: bool = True
) -> tuple[list[list[torch.Tensor]], list[int]]:
    """Gradients and peaks; step: the context."""
    torch.manual_seed(5)
    found, peaks = [], []

    def whole() -> None:
        if step is None:
            run(*models)
        else:
            with step:
                run(*models)

    for _ in range(steps):
        for model in models if clear else ():
            model.zero_grad()
        peaks.append(remat.torch.measure_peak(whole, resident=[*models, inputs()]))
        found.append(gradients(*models))
    return found, peaks


def same(a: list[list[torch.Tensor]], b: list[list[torch.Tensor]]) -> bool:
    return all(
        torch.equal(p, q) for one, other in zip(a, b, strict=True) for p, q in zip(one, other, strict=True)
    )


def test_two_models_with_one_loss_and_one_called_twice(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    models, x = [layers(), layers()], inputs()

    def run(first: nn.Module, second: nn.Module) -> None:
        h = F.dropout(first(x), 0.1)
        loss = (second(h) + second(h * 2)).square().mean()
        del h
        loss.backward()

    expected, eager = train(None, copy.deepcopy(models), run, 5)
    step = remat.torch.planned(*models, budget="75%", **QUICK)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        found, peaks = train(step, models, run, 5)
    assert same(found, expected)
    (line,) = [r.message for r in caplog.records]
    assert line == "planned: the first steps run as in eager mode, with its memory"
    (part,) = step.remat.parts
    assert part.recomputed_steps > 0
    assert part.budget <= 0.76 * eager[0]
    assert part.predicted_peak == pytest.approx(peaks[-1], rel=0.001)
    assert max(peaks[2:]) <= part.budget


def test_a_generator_and_a_critic_take_turns() -> None:
    torch.manual_seed(0)
    models, x = [layers(3), layers(3)], inputs()

    def run(generator: nn.Module, critic: nn.Module) -> None:
        fake = generator(x)
        (critic(fake.detach()).mean() - critic(x).mean()).backward()
        critic.zero_grad()
        (-critic(fake).mean()).backward()

    expected, _ = train(None, copy.deepcopy(models), run, 5)
    with pytest.raises(remat.NoPlanError) as caught, remat.torch.planned(*models, budget=1200, **QUICK):
        run(*models)
    known = caught.value.smallest_known
    assert known is not None
    step = remat.torch.planned(*models, budget=known, **QUICK)
    found, peaks = train(step, models, run, 5)
    assert same(found, expected)
    assert max(peaks[2:]) <= known
    # One for each backward, both within the budget that is named.
    assert len(step.remat.parts) == 2


def test_gradients_accumulate_inside_and_outside() -> None:
    torch.manual_seed(0)
    model, x = layers(), inputs()

    def run(model: nn.Module) -> None:
        for part in x.chunk(3):
            model(part).square().mean().backward()

    for clear in (True, False):
        expected, _ = train(None, [copy.deepcopy(model)], run, 5, clear)
        step = remat.torch.planned(model, budget="90%", **QUICK)
        found, peaks = train(step, [model], run, 5, clear)
        assert same(found, expected)
        assert peaks[-1] <= max(part.budget for part in step.remat.parts)
        model.zero_grad()


def test_other_sizes_are_noticed_and_planned_for(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, other = layers(), copy.deepcopy(layers())
    other.load_state_dict(model.state_dict())
    step = remat.torch.planned(model, budget="80%", **QUICK)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for size in (64, 64, 64, 96, 96, 96, 96, 64):
            for each in (model, other):
                each.zero_grad()
            with step:
                model(inputs(size)).square().mean().backward()
            other(inputs(size)).square().mean().backward()
            assert same([gradients(model)], [gradients(other)])
    assert len([r for r in caplog.records if "other ops or sizes" in r.message]) == 1
    assert len(step.remat.parts) == 2


def test_an_op_that_differs_runs_once_and_results_are_right(caplog: pytest.LogCaptureFixture) -> None:
    class Counting(nn.Module):
        """Writes past the dispatcher."""

        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros_like(x)
            type(self).calls += 1
            y.detach().numpy()[:] = self.calls
            return torch.tanh(x * y)

    torch.manual_seed(0)
    model = nn.Sequential(layers(2), Counting(), layers(2), Counting())
    other, x = copy.deepcopy(model), inputs()
    step = remat.torch.planned(model, budget="90%", **QUICK)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for _ in range(4):
            found = []
            for each in (model, other):
                each.zero_grad()
                Counting.calls = 0
                if each is model:
                    with step:
                        each(x).square().mean().backward()
                else:
                    each(x).square().mean().backward()
                found.append(gradients(each))
            assert same([found[0]], [found[1]])


def test_what_stands_before_the_backward_raises_as_in_eager_mode() -> None:
    model, x = layers(), inputs()
    step = remat.torch.planned(model, budget="90%", **QUICK)
    for _ in range(4):
        with step:
            model(x).square().mean().backward()

    def write_first() -> None:
        with step:
            loss = model(x).square().mean()
            with torch.no_grad():
                model[2].weight.mul_(2)
            loss.backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        write_first()
    with step:
        model(x).square().mean().backward()


def test_a_fitted_model_is_planned_with_the_rest() -> None:
    torch.manual_seed(0)
    model, x = layers(), inputs()
    fitted = remat.torch.fit(model, x, "90%", loss=lambda y: y.mean(), executor="eager", **QUICK)
    step = remat.torch.planned(fitted, budget="90%", **QUICK)
    for _ in range(3):
        model.zero_grad()
        with step:
            (fitted(x) + fitted(x * 2)).mean().backward()
    found = gradients(model)
    model.zero_grad()
    (model(x) + model(x * 2)).mean().backward()
    assert same([found], [gradients(model)])


def test_misuse_is_one_line() -> None:
    model, x = layers(), inputs()
    with pytest.raises(remat.UsageError, match="^planned: the models come first"):
        remat.torch.planned(budget="90%")
    with pytest.raises(remat.UsageError, match="^remat: calls=2 does not go with"):
        remat.torch.planned(model, budget="90%", calls=2)
    step = remat.torch.planned(model, budget=1200, **QUICK)
    with pytest.raises(remat.NoPlanError, match="smallest budget known to work") as caught, step:
        model(x).mean().backward()
    known = caught.value.smallest_known
    assert known is not None
    assert len(gradients(model)) == 8
    again = remat.torch.planned(model, budget=known, **QUICK)
    for _ in range(4):
        model.zero_grad()
        with again:
            model(x).mean().backward()
    assert again.remat.predicted_peak <= known
    with pytest.raises(remat.UsageError, match="^planned: contexts do not nest$"), again, step:
        pass


def test_a_backward_outside_the_context_is_said(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, x = layers(), inputs()
    step = remat.torch.planned(model, budget="80%", **QUICK)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for _ in range(3):
            with step:
                loss = model(x).square().mean()
                with torch.no_grad():
                    model(x)
            loss.backward()
    assert [r.message.partition(":")[0] for r in caplog.records] == ["planned"] * 2
    assert "call backward() inside" in caplog.records[1].message
