"""`verify` finds what differs from eager mode, and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import logging
import random
import re
import sys
from typing import Any

import numpy
import pytest
import remat
import remat.torch
import torch
from models import case
from remat.torch import doctor
from remat.torch.base.allocator import AllocatorTrace
from remat.torch.run import codegen
from remat.torch.session.prepare import Preparation
from torch import nn


@pytest.mark.parametrize("name", ["encoder", "mlp"])
def test_planned_steps_are_those_of_eager_mode_and_keep_the_budget(name: str) -> None:
    model, inputs = case(name).build()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = remat.torch.verify(model, inputs, "75%", steps=3, work_limit=20_000)
    assert found.equal
    assert not found.tracing_differences
    assert found.within
    assert found.measured_peak <= found.predicted_peak <= found.budget < found.eager_peak
    # Also the loss, the input and three generators.
    trained = sum(p.requires_grad for p in model.parameters())
    assert found.compared == 3 * (5 + trained + len([*model.parameters(), *model.buffers()]))
    assert re.search(r"equal bit for bit(.|\n)*budget .*, kept", str(found))
    assert found.eager_seconds > 0
    assert f"{1e3 * found.planned_seconds:.4g} ms planned" in str(found)
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


class TracedIsAnother(nn.Module):
    """Its compiled forward computes something else, as a defect of tracing would."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return (y * (1.001 if torch.compiler.is_compiling() else 1)).square().sum()


def test_what_differs_is_named_and_whether_tracing_alone_does_it() -> None:
    found = remat.torch.verify(TracedIsAnother(), torch.randn(4, 8), "100%", executor="boxed")
    assert not found.equal
    assert found.differences[:3] == (
        "step 1: loss",
        "step 1: gradient of linear.bias",
        "step 1: gradient of linear.weight",
    )
    assert found.tracing_differences == found.differences
    assert re.search(r"DIFFER \(step 1: loss.*\(aot_eager\) too", str(found))


def test_outputs_without_a_loss_ask_for_it_and_loss_is_used() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), torch.randn(4, 8)
    with pytest.raises(remat.UsageError, match="pass loss="):
        remat.torch.verify(model, x)
    assert remat.torch.verify(model, x, loss=lambda y: y.square().mean()).equal
    with pytest.raises(remat.UsageError, match="at least 1, not 0"):
        remat.torch.verify(model, x, steps=0)


def good() -> tuple[nn.Module, torch.Tensor]:
    model, inputs = case("mlp").build()
    return model, inputs


def bad() -> tuple[nn.Module, torch.Tensor]:
    return TracedIsAnother(), torch.randn(4, 8)


def test_the_doctor_ends_with_an_exit_code_and_one_line_for_what_is_wrong(capsys, monkeypatch) -> None:
    # Else `fit` would see it, and take eager mode.
    monkeypatch.setattr(Preparation, "_compare_with_eager_mode", lambda self: None)
    here = __name__
    assert doctor.main([f"{here}:good", "--budget", "90%"]) == 0
    assert "equal bit for bit" in capsys.readouterr().out
    assert doctor.main([f"{here}:bad", f"{here}:good", "--budget", "100%"]) == 1
    assert "DIFFER" in capsys.readouterr().out
    for name in ("nothing", "no_module_of_that_name:f", f"{here}:no_function"):
        assert doctor.main([name]) == 64
        assert capsys.readouterr().err.startswith("doctor: ")


def trained(model: nn.Module, x: torch.Tensor, steps: int = 2) -> None:
    for _ in range(steps):
        model(x).square().sum().backward()


def test_the_option_compares_each_plan_once_and_leaves_the_training_as_it_is(caplog) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.3), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4))
    eager, x = copy.deepcopy(model), torch.randn(64, 32)
    compiled = torch.compile(
        copy.deepcopy(model), backend="remat", options={"budget": "100%", "verify": True, "outputs": "held"}
    )
    fitted = remat.torch.fit(model, x, "100%", verify=True, outputs="held")
    with caplog.at_level(logging.INFO, "remat.torch"):
        for one in (eager, fitted, compiled):
            torch.manual_seed(1)
            trained(one, x)
    said = [record.message for record in caplog.records if "bit for bit" in record.message]
    # `fit` has compared the first plan already: left is that for steps with gradients.
    assert [text.partition(":")[2].partition(":")[0].strip() for text in said] == [
        "Sequential",
        "step_0",
        "step_0",
    ]
    for (name, a), b, c in zip(
        eager.named_parameters(), fitted.parameters(), compiled.parameters(), strict=True
    ):
        assert torch.equal(a.grad, b.grad), name
        assert torch.equal(a.grad, c.grad), name
    for a, b, c in zip(eager.buffers(), fitted.buffers(), compiled.buffers(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


class Scored(nn.Module):
    """Returns what the loss was made of, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 256))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(x)
        return {"loss": nn.functional.cross_entropy(scores, torch.arange(len(x))), "scores": scores}


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_the_option_holds_outputs_that_training_does_not(executor: str) -> None:
    torch.manual_seed(0)
    model, x = Scored(), torch.randn(64, 16)
    plain = copy.deepcopy(model)
    fitted = remat.torch.fit(model, x, "100%", verify=True, executor=executor)
    for _ in range(3):
        for one in (plain, fitted):
            torch.manual_seed(1)
            one(x)["loss"].backward()
        assert all(a.grad.equal(b.grad) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


def test_the_option_names_the_first_op_that_differs(monkeypatch) -> None:
    with pytest.raises(remat.torch.VerificationError, match=r"aten\.mul.*\(aot_eager\) differs in the same"):
        remat.torch.fit(TracedIsAnother(), torch.randn(4, 8), "100%", verify=True)
    monkeypatch.setitem(codegen._BINDINGS, torch.ops.aten.tanh.default, torch.sin)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    wrong = (
        r"step_0: \d of \d+ tensors differ .*output 0.*result differs is aten.tanh.default in .*1.*is equal"
    )
    compiled = torch.compile(model, backend="remat", options={"budget": "100%", "verify": True})
    with pytest.raises(remat.torch.VerificationError, match=wrong):
        compiled(torch.randn(4, 8))


def test_a_peak_above_the_budget_is_an_error_of_the_option(monkeypatch) -> None:
    measured = AllocatorTrace.rise

    def more(trace: AllocatorTrace, *args: object) -> tuple[int, int]:
        top, level = measured(trace, *args)
        return top + 100_000 * (len(args) == 3), level  # of a step, that is part of a window

    monkeypatch.setattr(AllocatorTrace, "rise", more)
    with pytest.raises(remat.torch.VerificationError, match=r"measured peak of .* is above the budget of"):
        trained(
            torch.compile(nn.Linear(64, 64), backend="remat", options={"budget": "100%", "verify": True}),
            torch.randn(64, 64),
        )


def test_the_option_is_refused_where_bits_are_not_kept() -> None:
    with pytest.raises(remat.UsageError, match="fuses ops"):
        remat.torch.fit(nn.Linear(4, 4), torch.randn(4, 4), "100%", verify=True, executor="inductor")


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x).tanh().square().sum()


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("gradient of input 0", lambda model, x: x.register_hook(lambda gradient: gradient * 2)),
        ("input 0", lambda model, x: x.data.mul_(2)),
        ("parameter lin.bias", lambda model, x: model.lin.bias.data.add_(1)),
        ("state of Python's generator", lambda model, x: random.random()),
        ("state of numpy's generator", lambda model, x: numpy.random.rand()),
    ],
)
def test_everything_that_a_step_can_change_is_compared(monkeypatch, named: str, change: Any) -> None:
    def fit_wrongly(model: nn.Module, inputs: Any, budget: Any, **options: Any) -> Any:
        fitted = fit(model, inputs, budget, **options)
        call = fitted.forward
        fitted._compiled_call_impl = lambda x: (change(fitted, x), call(x))[1]
        return fitted

    fit = remat.torch.fit
    model, x = Scaled(), torch.randn(8, 4, requires_grad=True)
    assert remat.torch.verify(model, x, "100%", costs="roofline").equal
    monkeypatch.setattr(sys.modules["remat.torch.verify"], "fit", fit_wrongly)
    found = remat.torch.verify(model, x, "100%", costs="roofline")
    assert any(difference.endswith(f": {named}") for difference in found.differences), found.differences
    assert x.grad is None


def test_a_step_that_plans_anew_is_measured_once_more(monkeypatch) -> None:
    module = sys.modules["remat.torch.verify"]
    measure, model = module.measure_peak, Scaled()
    measured: list[int] = []

    def planning_at_first(step: Any, resident: Any) -> int:
        report = resident[0].__dict__.get("remat")
        if report is not None and not measured:
            measured.append(1)
            report.add(dataclasses.replace(report.parts[0]))
            return 1 << 60
        return measure(step, resident=resident)

    monkeypatch.setattr(module, "measure_peak", planning_at_first)
    assert remat.torch.verify(model, torch.randn(8, 4), "100%", costs="roofline").within
