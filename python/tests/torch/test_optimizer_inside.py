"""Optimizers that step inside the backward: parameters of a plain loop, and no gradient outlives its step."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import case
from ranks import run_on_two_ranks
from test_accumulation import Broken, wide
from torch import nn
from training import fit

STEP = "remat.optimizer_step"
Make = Callable[[Any], torch.optim.Optimizer]


def same_parameters(mine: nn.Module, theirs: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))


def loop(model: nn.Module, inputs: Any, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """A plain loop, with a schedule of the learning rate."""
    torch.manual_seed(3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*inputs)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def steps_in(fitted: nn.Module) -> int:
    return sum(fitted.remat.graph.op(i).kind == STEP for i in range(fitted.remat.graph.num_ops))


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, 1e-2, foreach=True, weight_decay=0.1),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True, momentum=0.5),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, 1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, 1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, 1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps_in_the_backward_are_those_of_a_plain_loop(name: str) -> None:
    model, x = wide()
    expected = copy.deepcopy(model)
    groups = [
        {"params": model.layers[:3].parameters()},
        {"params": model.layers[3:].parameters(), "lr": 3e-3},
    ]
    twins = [
        {"params": expected.layers[:3].parameters()},
        {"params": expected.layers[3:].parameters(), "lr": 3e-3},
    ]
    optimizer = OPTIMIZERS[name](groups)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward", outputs="dropped")
    losses = loop(expected, (x,), OPTIMIZERS[name](twins), 10)
    assert loop(fitted, (x,), optimizer, 10) == losses
    assert losses[0] != losses[-1]
    assert same_parameters(model, expected)
    assert all(p.grad is None for p in model.parameters())
    assert steps_in(fitted) == len(list(model.parameters()))
    measured = remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[model, optimizer, x])
    assert measured == pytest.approx(fitted.remat.predicted_peak, rel=1e-4)


@pytest.mark.parametrize("name", ["gpt", "encoder", "conv_net"])
def test_a_step_that_recomputes_reads_no_parameter_that_has_stepped(name: str) -> None:
    model, inputs = case(name).build()
    expected = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    fitted = fit(model, inputs, "70%", optimizer=optimizer, step="backward", outputs="dropped")
    assert fitted.remat.parts[0].recomputed_steps > 0
    losses = loop(expected, inputs, torch.optim.SGD(expected.parameters(), 0.01, momentum=0.9), 4)
    assert loop(fitted, inputs, optimizer, 4) == losses
    assert same_parameters(model, expected)


def test_the_floor_falls_by_the_gradients() -> None:
    model, x = wide()
    gradients = sum(p.nbytes for p in model.parameters())
    options: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), 0.1), "outputs": "dropped"}
    without = fit(copy.deepcopy(model), x, 1 << 30, accumulate=False, **options).remat.parts[0]
    inside = fit(model, x, 1 << 30, step="backward", **options).remat.parts[0]
    assert inside.least_known() <= without.least_known() - 0.6 * gradients
    expected = copy.deepcopy(model)
    fitted = fit(model, x, inside.least_known(), step="backward", **options)
    assert fitted.remat.predicted_peak <= inside.least_known()
    losses = loop(expected, (x,), torch.optim.SGD(expected.parameters(), 0.1), 3)
    assert loop(fitted, (x,), options["optimizer"], 3) == losses
    assert same_parameters(model, expected)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="built without torch.distributed")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_hooks_of_pytorch_that_step_are_recognised() -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward

    model, x = wide()
    expected = copy.deepcopy(model)
    settings = {"lr": 0.1, "momentum": 0.9}
    for each in (model, expected):
        _apply_optimizer_in_backward(torch.optim.SGD, each.parameters(), settings)
    fitted = fit(model, x, 1 << 30, outputs="dropped")
    for _ in range(4):
        for each in (expected, fitted):
            each(x).backward()
    assert same_parameters(model, expected)
    assert steps_in(fitted) == len(list(model.parameters()))
    optimizers = [p._in_backward_optimizers for p in model.parameters()]
    measured = remat.torch.measure_peak(
        lambda: fitted(x).backward(), resident=[model, x, *[each for (each,) in optimizers]]
    )
    assert measured == pytest.approx(fitted.remat.predicted_peak, rel=1e-4)


def test_a_parameter_of_two_graphs_steps_when_its_gradient_is_whole() -> None:
    torch.manual_seed(0)
    model, x = Broken(), torch.randn(16, 32)
    expected = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward")
    losses = loop(expected, (x,), torch.optim.SGD(expected.parameters(), 0.1), 5)
    assert loop(fitted, (x,), optimizer, 5) == losses
    assert same_parameters(model, expected)


def test_parameters_of_no_optimizer_keep_their_gradients_and_those_that_are_frozen_stay() -> None:
    model, x = wide()
    expected = copy.deepcopy(model)
    for each in (model, expected):
        each.layers[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.layers[3:].parameters(), 0.1)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward", outputs="dropped")
    twin = torch.optim.SGD(expected.layers[3:].parameters(), 0.1)
    for _ in range(3):
        fitted(x).backward()
        expected(x).backward()
        twin.step()
        twin.zero_grad()
    assert same_parameters(model, expected)
    for mine, theirs in zip(model.layers[1:3].parameters(), expected.layers[1:3].parameters(), strict=True):
        assert mine.grad.equal(theirs.grad)


def test_gradients_that_are_asked_for_step_nothing() -> None:
    model, x = wide()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward", outputs="dropped")
    found = torch.autograd.grad(fitted(x), list(model.parameters()))
    expected = torch.autograd.grad(before(x), list(before.parameters()))
    assert all(a.equal(b) for a, b in zip(found, expected, strict=True))
    assert same_parameters(model, before)


def test_an_optimizer_that_is_loaded_goes_on_as_it_would() -> None:
    model, x = wide()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward", outputs="dropped")
    fitted(x).backward()
    expected = copy.deepcopy(model)
    twin = torch.optim.Adam(expected.parameters(), 1e-2)
    for each in (optimizer, twin):
        each.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        each.param_groups[0]["lr"] = 3e-3
    assert loop(fitted, (x,), optimizer, 3) == loop(expected, (x,), twin, 3)
    assert same_parameters(model, expected)


def test_clipping_by_the_norm_of_all_gradients_is_refused() -> None:
    model, x = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    fitted = fit(model, x, 1 << 30, optimizer=optimizer, step="backward", outputs="dropped")
    fitted(x).backward()
    with pytest.raises(remat.UsageError, match="before the last gradient is known"):
        torch.nn.utils.clip_grad_norm_(fitted.parameters(), 1.0)
    other, _ = wide()
    other(x).backward()
    assert torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0) > 0


class Own(torch.optim.SGD):
    pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": "forward"}, "must be"),
        ({"optimizer": None}, "needs optimizer="),
        ({"optimizer": lambda p: torch.optim.LBFGS(p)}, "all parameters at once"),
        ({"optimizer": lambda p: torch.optim.SparseAdam(p)}, "sparse"),
        ({"optimizer": lambda p: Own(p, 0.1)}, "not of torch.optim"),
        ({"optimizer": lambda p: torch.optim.SGD(p, 0.1, differentiable=True)}, "differentiable"),
        ({"executor": "inductor"}, "boxed"),
        ({"optimizer": lambda _: torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)}, "no parameter"),
    ],
)
def test_what_cannot_step_inside_is_refused(options: dict[str, Any], message: str) -> None:
    model, x = wide()
    make: Any = options.get("optimizer", lambda p: torch.optim.SGD(p, 0.1))
    optimizer = None if make is None else make(list(model.parameters()))
    with pytest.raises(remat.UsageError, match=message):
        fit(model, x, 1 << 30, **{"step": "backward", **options, "optimizer": optimizer})


def test_hooks_hold_neither_the_parameters_nor_the_optimizer() -> None:
    def train() -> weakref.ref[torch.Tensor]:
        model, x = wide()
        fitted = fit(model, x, 1 << 30, optimizer=torch.optim.AdamW(model.parameters()), step="backward")
        parameter = next(model.parameters())
        before = parameter.detach().clone()
        fitted(x).backward()
        assert not parameter.equal(before)  # the optimizer that nobody else holds has stepped
        # The model alone trains as ever, and may be fitted with another optimizer.
        del fitted
        torch._dynamo.reset()
        gc.collect()
        model(x).backward()
        assert parameter.grad is not None
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        other = torch.optim.SGD(model.parameters(), 0.1)
        fit(model, x, 1 << 30, optimizer=other, step="backward")(x).backward()
        return weakref.ref(parameter)

    parameter = train()
    torch._dynamo.reset()
    gc.collect()
    assert parameter() is None


def test_two_optimizers_for_the_same_parameters_are_refused() -> None:
    model, x = wide()
    first, second = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    for _ in range(2):  # the same one may come again, and steps once
        fitted = fit(model, x, 1 << 30, optimizer=first, step="backward", outputs="dropped")
    expected = copy.deepcopy(model)
    twin = torch.optim.SGD(expected.parameters(), 0.1)
    assert loop(fitted, (x,), first, 2) == loop(expected, (x,), twin, 2)
    assert same_parameters(model, expected)
    with pytest.raises(remat.UsageError, match="another optimizer"):
        fit(model, x, 1 << 30, optimizer=second, step="backward", outputs="dropped")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="built without torch.distributed")
def test_data_parallel_training_is_refused(tmp_path: Path) -> None:
    said = run_on_two_ranks(
        """
        from test_accumulation import wide
        from torch.nn.parallel import DistributedDataParallel

        model, x = wide()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        fitted = remat.torch.fit(model, x, 1 << 30, optimizer=optimizer, step="backward", work_limit=20_000)
        try:
            DistributedDataParallel(fitted)(x)
        except remat.torch.UnsupportedModelError as error:
            print("refused", error)
        """,
        tmp_path,
    )
    assert all("averages gradients" in each for each in said)
