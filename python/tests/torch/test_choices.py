"""What the user wants kept is kept, and what may not run twice runs once."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Iterator

import pytest
import remat
import remat.torch
import torch
from models import Encoder
from torch import nn
from training import fit, step_peak, train


def build() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Encoder(), (torch.randn(8, 64, 64),)


def runs_again(model: nn.Module) -> list[dict]:
    """The ops that the plan runs more than once."""
    report = model.remat.parts[0]
    ops = report.graph.to_dict()["ops"]
    return [ops[i] for i, count in Counter(report.plan.steps).items() if count > 1]


def test_without_a_choice_ops_of_all_modules_run_again() -> None:
    again = runs_again(fit(*build(), "50%"))
    assert {op.get("module", "").split(".")[2] for op in again if op.get("module", "").count(".") > 1} == {
        "0",
        "1",
        "2",
    }
    assert "aten.native_layer_norm.default" in {op["kind"] for op in again}


@pytest.mark.parametrize(
    "pattern", ["encoder.layers.1", "encoder.*.1", "**.1", ["nothing", "encoder.layers.1"]]
)
def test_ops_inside_a_module_that_is_named_never_run_again(pattern) -> None:
    fitted = fit(*build(), "60%", never_recompute=pattern)
    again = runs_again(fitted)
    assert again
    assert not [op for op in again if op.get("module", "").startswith("encoder.layers.1")]


@pytest.mark.parametrize(
    "pattern", ["native_layer_norm", "aten.native_layer_norm", "aten.native_layer_*.default"]
)
def test_ops_of_a_kind_that_is_named_never_run_again(pattern: str) -> None:
    again = runs_again(fit(*build(), "50%", never_recompute=pattern))
    assert again
    assert "aten.native_layer_norm.default" not in {op["kind"] for op in again}


def test_what_leaves_a_module_that_is_kept_is_computed_once_but_what_is_inside_may_run_again() -> None:
    model, inputs = build()
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "50%", always_keep="encoder.layers.*", accumulate=False)
    ops = fitted.remat.graph.to_dict()["ops"]
    inside = {"encoder.layers.0", "encoder.layers.1", "encoder.layers.2"}
    leaving = set()
    for index, op in enumerate(ops):
        path = ".".join(op.get("module", "").split(".")[:3])
        readers = [o for o in ops if set(o["inputs"]) & set(op["outputs"]) and o["phase"] != "backward"]
        if (
            op["phase"] == "forward"
            and path in inside
            and any(not r.get("module", "").startswith(path) for r in readers)
        ):
            leaving.add(index)
    assert len(leaving) == 3
    counts = Counter(fitted.remat.plan.steps)
    assert {counts[i] for i in leaving} == {1}
    assert any(op.get("module", "").startswith("encoder.layers.1") for op in runs_again(fitted))
    assert expected.differences(train(fitted, inputs)) == []


def test_a_choice_that_leaves_no_room_is_infeasible() -> None:
    model, inputs = build()
    peak = fit(copy.deepcopy(model), inputs, "45%").remat.predicted_peak
    with pytest.raises(remat.NoPlanError):
        fit(model, inputs, peak, never_recompute="**")


def test_a_pattern_that_names_nothing_is_said_and_one_that_is_none_refused(caplog) -> None:
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fit(*build(), "100%", never_recompute="encoder.layer.1", always_keep="mm")
    assert "never_recompute: 'encoder.layer.1' names no module and no kind of op" in caplog.text
    assert "always_keep" not in caplog.text
    with pytest.raises(remat.UsageError, match="always_keep must be a pattern or a list of patterns"):
        fit(*build(), "100%", always_keep=[3])


@pytest.mark.parametrize("pattern", ["encoder.layers.1", "native_layer_norm"])
def test_what_is_named_runs_once_in_eager_mode_too(pattern: str) -> None:
    model, inputs = build()
    expected = train(copy.deepcopy(model), inputs)
    options = {"executor": "eager", "accumulate": False}
    fitted = fit(model, inputs, "60%", never_recompute=pattern, **options)
    again = runs_again(fitted)
    assert again
    assert not [o for o in again if pattern in o["kind"] or o["module"].startswith(pattern)]
    assert expected.differences(train(fitted, inputs)) == []


def test_what_leaves_a_module_is_kept_in_eager_mode_too() -> None:
    model, inputs = build()
    plain = runs_again(fit(copy.deepcopy(model), inputs, "55%", executor="eager", accumulate=False))
    kept = fit(model, inputs, "55%", executor="eager", accumulate=False, always_keep="encoder.layers.*.norm2")
    inside = [op for op in runs_again(kept) if op["module"].endswith("norm2")]
    assert runs_again(kept)
    assert not inside
    assert any(op["module"].endswith("norm2") for op in plain)


calls: list[str] = []


@pytest.fixture
def counted() -> Iterator[torch.library.CustomOpDef]:
    """A custom op that notes its calls, and its gradient."""
    calls.clear()
    library = torch.library.Library("remat_test", "FRAGMENT")

    @torch.library.custom_op("remat_test::counted", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        calls.append("forward")
        return x.sin()

    op.register_fake(torch.empty_like)
    op.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    yield op
    library._destroy()


def test_a_custom_op_runs_once_in_a_step_however_small_the_budget(counted) -> None:
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = counted(layer(x).tanh().square())
            return x.square().mean()

    torch.manual_seed(0)
    model, inputs = Custom(), (torch.randn(2048, 64),)
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "70%")
    again = runs_again(fitted)
    assert again
    assert "remat_test.counted.default" not in {op["kind"] for op in again}
    assert expected.differences(train(fitted, inputs)) == []
    calls.clear()
    model.zero_grad()
    assert step_peak(fitted, inputs) <= fitted.remat.parts[0].budget
    assert len(calls) == 6
