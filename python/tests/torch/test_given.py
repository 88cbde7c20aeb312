"""What is given that cannot be: one line of ours, or the error that the user's own code raises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
from torch import nn

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class OwnError(Exception):
    pass


class Blocks(nn.Module):
    def __init__(self, after: Callable[[torch.Tensor], Any] = lambda x: x.square().mean()) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))
        self.after = after

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.after(x)


class RaisesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise OwnError("mine")


EFFORT: dict[str, Any] = {"work_limit": 50_000, "time_limit": None}


def raises(_: Any) -> Any:
    raise OwnError("mine")


def frozen() -> nn.Module:
    return Blocks().requires_grad_(False)


def policy(model: Any, inputs: Any, budget: Any = "100%", **options: Any) -> Any:
    return remat.torch.checkpoint_policy(
        model, inputs, budget, compare=False, **{"work_limit": 5_000_000, **options}
    )


def largest(model: Any, inputs: Any, budget: Any = "1GiB", **options: Any) -> Any:
    return remat.torch.largest_batch(model, lambda _: inputs, budget, most=2, **EFFORT, **options)


def fit(model: Any, inputs: Any, budget: Any = "100%", **options: Any) -> Any:
    return remat.torch.fit(model, inputs, budget, **options)


def executor(name: str) -> Callable[..., Any]:
    return lambda model, inputs, budget="100%", **options: fit(
        model, inputs, budget, executor=name, **options
    )


def planned(model: Any, inputs: Any, budget: Any = "100%", **_: Any) -> Any:
    return remat.torch.planned(model, budget=budget)


def compiled(model: Any, inputs: Any, budget: Any = "100%", **_: Any) -> Any:
    torch.compile(model, backend="remat", options={"budget": budget})(inputs)


FITS: dict[str, Callable[..., Any]] = {"fit": fit, "boxed": executor("boxed"), "eager": executor("eager")}
RUNS = FITS | {"verify": remat.torch.verify, "checkpoint_policy": policy}
ASKS: dict[str, Callable[..., Any]] = {
    "capture": lambda model, inputs, _="", **options: remat.torch.capture(model, inputs, **options),
    "sweep": lambda model, inputs, _="", **options: remat.torch.sweep(
        model, inputs, points=2, **EFFORT, **options
    ),
    "report": remat.torch.report,
    "largest_batch": largest,
}
# Of entries that begin alike, one.
SOME = {name: call for name, call in {**RUNS, **ASKS}.items() if name not in ("boxed", "sweep", "report")}
BUDGETS = RUNS | {"planned": planned, "compile": compiled, "report": remat.torch.report, "largest": largest}
GIVEN = {
    "a function": (lambda x: x, X, "has to be a torch.nn.Module"),
    "a class": (Blocks, X, "the model is the class Blocks"),
    "nothing": (None, X, "of type NoneType"),
    "a list of modules": (Blocks().blocks, X, "has no forward"),
    "shapes to come": (nn.LazyLinear(4), X, "parameter weight has no shape yet"),
    "too many inputs": (Blocks(), (X, X), "too many positional arguments"),
    "other names": (Blocks(), {"y": X}, "missing a required argument: 'x'"),
}
# What nothing can be planned for.
EMPTY = {
    "frozen": frozen(),
    "nothing returned": Blocks(lambda x: None),
    "a number returned": Blocks(lambda x: float(x.detach().sum())),
    "detached": Blocks(torch.detach),
    "without parameters": nn.ReLU(),
}
LOSSES: dict[str, tuple[Any, str]] = {
    "no function": (3, "of type int"),
    "of two": (nn.MSELoss(), "alone: missing a required argument"),
    "nothing": (lambda x: None, "returned a NoneType"),
    "a number": (lambda x: float(x.detach().sum()), "returned a float"),
    "many": (lambda x: x, r"a tensor of shape \[4, 8\]"),
    "detached": (lambda x: x.detach().sum(), "needs no gradient"),
    "complex": (lambda x: torch.complex(x.sum(), x.sum()), "complex64"),
}


def one_line(call: Callable[[], Any], match: str, kind: type[remat.RematError] = remat.UsageError) -> None:
    with pytest.raises(kind, match=match) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    assert not text.endswith(":")
    assert " 0x" not in text


@pytest.mark.parametrize("entry", {**RUNS, **ASKS})
def test_what_is_no_model_or_cannot_be_called_is_refused_in_one_line(entry: str) -> None:
    call = {**RUNS, **ASKS}[entry]
    for model, inputs, match in GIVEN.values():
        one_line(lambda model=model, inputs=inputs: call(model, inputs), match)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_inputs_are_refused() -> None:
    one_line(lambda: fit(Blocks(), torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)), "quantized")


@pytest.mark.parametrize("entry", RUNS)
def test_what_has_no_memory_is_not_run(entry: str) -> None:
    one_line(lambda: RUNS[entry](Blocks(), X.to("meta")), "sample inputs have no memory")
    one_line(lambda: RUNS[entry](Blocks().to("meta"), X), "model's tensors have no memory")


def test_inputs_without_memory_are_enough_to_capture_a_step() -> None:
    described, real = (remat.torch.capture(Blocks(), x, costs="roofline") for x in (X.to("meta"), X))
    assert described.keep_all_peak == real.keep_all_peak


@pytest.mark.parametrize("entry", ["fit", "eager", "capture", "largest_batch"])
def test_where_nothing_needs_a_gradient_that_is_what_is_said(entry: str) -> None:
    call = SOME[entry]
    for model in EMPTY.values():
        one_line(lambda model=model: call(model, X), "requires a gradient", remat.torch.UnsupportedModelError)


@pytest.mark.parametrize("entry", SOME)
def test_what_the_loss_has_to_be_is_said(entry: str) -> None:
    call = SOME[entry]
    for loss, match in LOSSES.values():
        one_line(lambda loss=loss: call(Blocks(lambda x: x), X, loss=loss), match)


@pytest.mark.parametrize("entry", SOME)
def test_errors_of_the_users_code_come_out_as_they_are(entry: str) -> None:
    call = SOME[entry]
    for model, options in (
        (Blocks(raises), {}),
        (Blocks(lambda x: RaisesBackward.apply(x).square().mean()), {}),
        (Blocks(lambda x: x), {"loss": raises}),
    ):
        with pytest.raises(OwnError, match="^mine$"):
            call(model, X, **options)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        call(Blocks(), X[:, :3])


@pytest.mark.parametrize("entry", BUDGETS)
def test_budgets_that_are_none_are_refused_before_anything_runs(entry: str) -> None:
    for budget in ("0", 0, -1, "-1GiB", "abc", "", "nan%", "infGiB", float("nan"), True, [1], 10**30):
        one_line(lambda budget=budget: BUDGETS[entry](Blocks(raises), X, budget), "budget", remat.BudgetError)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"time_limit": "a"}, "time_limit must be a number"),
        ({"time_limit": float("nan")}, "time_limit must be a number"),
        ({"seed": "s"}, "seed must be a number"),
        ({"accumulate": "yes"}, "accumulate must be True, False or None"),
        ({"verify": 1}, "verify must be True or False"),
        ({"never_recompute": 3}, "never_recompute must be a pattern"),
        ({"group": 3}, "group must be a process group"),
        ({"reserve": "many"}, "reserve: 'many' is not an amount"),
        ({"planner": "greedy", "executor": "eager"}, "planner= does not go with"),
    ],
)
def test_options_of_another_kind_are_refused_before_anything_runs(options: Any, match: str) -> None:
    one_line(lambda: fit(Blocks(raises), X, **options), match, remat.RematError)


def test_memory_is_measured_beside_parameters_without_shapes() -> None:
    lazy = nn.LazyLinear(4)
    assert remat.torch.measure_peak(lambda: X.neg(), resident=[lazy, X]) == 2 * X.nbytes
    assert remat.torch.measure_peak(lambda: X.neg()) >= 2 * X.nbytes


def test_numbers_of_steps_and_points_and_functions_are_looked_at() -> None:
    model = Blocks()
    one_line(lambda: remat.torch.verify(model, X, steps=1.5), "steps must be a number")
    one_line(lambda: remat.torch.sweep(model, X, points="a"), "points must be from 2")
    one_line(lambda: remat.torch.largest_batch(model, X, "1GiB"), "make_inputs is of type Tensor")
    one_line(lambda: remat.torch.record(3), "step is of type int")
    one_line(lambda: remat.torch.planned(nn.LazyLinear(4), budget="1GiB"), "no shape yet")
    one_line(lambda: remat.torch.measure_peak(copy.copy(X)), "fn is of type Tensor")
