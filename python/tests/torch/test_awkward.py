"""What tracing has trouble with trains as in eager mode, or is refused in one line."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
from awkward_models import AWKWARD
from torch import nn
from training import Trace

_PLENTY = 1 << 24


def _policy(model: nn.Module, inputs: Any) -> nn.Module:
    names = [
        n for n, _ in model.named_modules() if n in ("first", "second") or re.fullmatch(r"layers\.\d", n)
    ]
    remat.torch.checkpoint_policy(model, inputs, budget=_PLENTY, compare=False, blocks=names).apply()
    return model


TRAINED: dict[str, Callable[[nn.Module, Any], Any]] = {
    "fit": lambda model, inputs: remat.torch.fit(model, inputs, _PLENTY, work_limit=20_000),
    "eager": lambda model, inputs: remat.torch.fit(
        model, inputs, _PLENTY, executor="eager", work_limit=20_000
    ),
    "compile": lambda model, _: torch.compile(
        model, backend="remat", options={"budget": _PLENTY, "work_limit": 20_000}
    ),
    "checkpoint_policy": _policy,
}
ASKED: dict[str, Callable[[nn.Module, Any], Any]] = {
    "capture": remat.torch.capture,
    "sweep": lambda model, inputs: remat.torch.sweep(model, inputs, points=2, work_limit=20_000),
    "report": remat.torch.report,
    "verify": lambda model, inputs: remat.torch.verify(model, inputs, _PLENTY, work_limit=20_000),
}


def _steps(model: Any, inputs: Any) -> Trace:
    torch.manual_seed(1)
    losses = []
    for _ in range(2):
        loss = model(*inputs)
        loss.backward()
        losses.append(loss.detach())
    trace = Trace.of(model, losses)
    trace.gradients = {
        n: g.to_dense() if g is not None and g.is_sparse else g for n, g in trace.gradients.items()
    }
    return trace


def _is_one_line(error: Exception) -> None:
    text = str(error)
    assert isinstance(error, remat.RematError), repr(error)
    assert "\n" not in text
    assert not text.rstrip().endswith(":")
    assert not re.search("0x[0-9a-f]{6}", text)


def _made(name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model, inputs = AWKWARD[name]
    return model(), inputs()


TRAINING = [name for name in AWKWARD if name != "raises"]
# What is asked of a model is traced in the same way.
OF_EACH_KIND = [
    *("narrow", "mask assigned", "eigenvalues", "gradient inside", "module made inside"),
    *("set from the first batch", "sparse", "own function"),
]


# `fit` takes all of them; the others one of each kind, as each takes long.
_TRAINED = [
    (name, way) for name in TRAINING for way in TRAINED if way in ("fit", "eager") or name in OF_EACH_KIND
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), _TRAINED)
def test_it_trains_as_in_eager_mode_or_is_refused_in_one_line(name: str, way: str) -> None:
    model, inputs = _made(name)
    expected = _steps(_made(name)[0], inputs)
    try:
        trained = TRAINED[way](model, inputs)
        found = _steps(trained, inputs)
    except Exception as error:
        _is_one_line(error)
        return
    found.gradients = {n.removeprefix("_orig_mod."): g for n, g in found.gradients.items()}
    found.buffers = {n.removeprefix("_orig_mod."): b for n, b in found.buffers.items()}
    assert found.differences(expected) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ASKED)
@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_questions_are_answered_or_refused_in_one_line(name: str, way: str) -> None:
    model, inputs = _made(name)
    try:
        ASKED[way](model, inputs)
    except Exception as error:
        _is_one_line(error)


def test_errors_of_the_model_itself_come_out_as_in_eager_mode() -> None:
    model, inputs = _made("raises")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as eager:
        model(*inputs)
    for call in (*TRAINED.values(), *ASKED.values()):
        with pytest.raises(RuntimeError) as found:
            call(model, inputs)(*inputs)
        assert str(found.value) == str(eager.value)


@pytest.mark.parametrize("way", ["torch.compile", "Module.compile"])
def test_a_deep_copy_of_a_compiled_model_trains_itself(way: str) -> None:
    model, inputs = _made("own function")
    given = {"backend": "remat", "options": {"budget": _PLENTY, "work_limit": 20_000}}
    if way == "torch.compile":
        compiled: Any = torch.compile(model, **given)
    else:
        compiled = model
        compiled.compile(**given)
    compiled(*inputs).backward()
    twin, eager = copy.deepcopy(compiled), _made("own function")[0]
    twin.zero_grad()
    compiled.zero_grad()
    for each in (twin, eager):
        with torch.no_grad():
            for parameter in each.parameters():
                parameter.mul_(2)
        each(*inputs).backward()
    assert all(parameter.grad is None for parameter in compiled.parameters())
    for mine, theirs in zip(twin.parameters(), eager.parameters(), strict=True):
        assert mine.grad.equal(theirs.grad)


def test_a_graph_breaks_where_only_its_backward_depends_on_data(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = _made("mask assigned")
    fitted = remat.torch.fit(model, inputs, _PLENTY, work_limit=20_000, executor="boxed")
    numbers = {part.name for part in fitted.remat.parts}
    assert len(numbers) == 2
    (said,) = [r.getMessage() for r in caplog.records if "runs as 2 graphs" in r.getMessage()]
    assert re.search(
        r"_mask_assigned \(\S*awkward_models\.py:\d+\): what aten\.\S+ makes depends on data", said
    )


def test_jagged_tensors_run_in_eager_mode_or_without_a_plan() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    x = torch.nested.nested_tensor([torch.randn(n, 8) for n in (3, 7)], layout=torch.jagged)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return output.values().square().mean()

    expected = loss(model(x))
    assert loss(remat.torch.fit(model, x, _PLENTY, loss=loss)(x)).equal(expected)
    proved = remat.torch.verify(model, x, _PLENTY, loss=loss)
    assert proved.equal
    assert proved.within
    with pytest.raises(remat.torch.UnsupportedModelError, match="nested"):
        remat.torch.checkpoint_policy(model, x, budget=_PLENTY, loss=loss, blocks=["0", "2"], compare=False)
    compiled = torch.compile(model, backend="remat", options={"budget": _PLENTY})
    found = loss(compiled(x))
    found.backward()
    assert found.equal(expected)


def test_a_loss_outside_is_looked_at_where_the_model_needs_gradients_itself() -> None:
    model, inputs = _made("gradient inside")
    fitted = remat.torch.fit(model, inputs, _PLENTY, loss=lambda output: output * 2, work_limit=20_000)
    expected, found = model(*inputs), fitted(*inputs)
    assert found.equal(expected)
