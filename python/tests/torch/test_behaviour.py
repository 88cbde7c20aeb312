"""What users meet besides numbers: other ways to call, other models, bad input."""

from __future__ import annotations

import collections
import copy
import gc
import importlib.metadata
import logging
import pickle
import random
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, Literal

import numpy
import pytest
import remat
import remat.torch
import torch
from models import Encoder, case
from remat.torch.base.storages import live_storages
from remat.torch.session.prepare import Preparation
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from training import fit, step_peak, train


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) > 0 and all(x.equal(y) for x, y in zip(a, b, strict=True))


class Outputs(nn.Module):
    """Returns its outputs, not a loss."""

    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(m for _ in range(depth) for m in (nn.Linear(64, 64), nn.Tanh())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Broken(nn.Module):
    """A chain with a graph break in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Outputs(), Outputs()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.second(y).square().mean()


class DataDependent(nn.Module):
    """Control flow that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Outputs(8), Outputs(8), Outputs(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y = self.second(y) if y.sum() > 0 else self.third(y)
        return y.square().mean()


def test_the_fitted_model_is_the_same_model() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "80%")
    assert isinstance(fitted, type(model))
    assert fitted.__dict__ is model.__dict__
    assert list(fitted.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(fitted.parameters(), model.parameters(), strict=True))
    assert not hasattr(model, "remat")
    fitted.load_state_dict(model.state_dict())


def test_the_report_says_what_was_planned() -> None:
    model, inputs = case("encoder").build()
    report = fit(model, inputs, "70%", reserve=1000).remat
    assert report.peak_lower_bound <= report.predicted_peak <= report.budget < report.keep_all_peak
    assert report.overhead > 0
    unreserved = fit(model, inputs, report.budget, plan=report.plan).remat
    assert unreserved.predicted_peak + 1000 == report.predicted_peak
    for key in ("predicted_peak = ", "budget = ", "overhead = ", "peak_lower_bound = ", "planner = "):
        assert key in str(report.parts[0])


def test_an_impossible_budget_names_the_floor_and_a_budget_that_works() -> None:
    model, inputs = case("encoder").build()
    with pytest.raises(remat.InfeasibleError, match="impossible for this step") as caught:
        fit(model, inputs, "2%")
    assert 0 < caught.value.floor < caught.value.smallest_known
    works = fit(model, inputs, caught.value.smallest_known)
    assert works.remat.predicted_peak <= caught.value.smallest_known


def test_reserve_is_taken_from_the_budget() -> None:
    model, inputs = case("mlp").build()
    keep_all = fit(model, inputs, "100%").remat.keep_all_peak
    fitted = fit(model, inputs, keep_all, reserve=keep_all // 10)
    assert fitted.remat.parts[0].recomputed_steps > 0
    assert step_peak(fitted, inputs) <= keep_all - keep_all // 10
    with pytest.raises(remat.InfeasibleError, match=r"2000 bytes\) of them reserved"):
        fit(model, inputs, 1000, reserve=2000)


@pytest.mark.parametrize("budget", ["abc", 0, -1, "-1GiB", "0%", None])
def test_a_budget_that_is_none_is_refused_before_any_work(budget) -> None:
    with pytest.raises(remat.BudgetError):
        fit(nn.Linear(2, 2), torch.zeros(1, 2), budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reserv": 1}, "did you mean 'reserve'"),
        ({"colour": 1}, "known options: budget"),
        ({"calls": 0}, "calls must be 1 or more"),
        ({"order": "any"}, 'order must be "fixed" or "free"'),
        ({"plan": 3}, "not int"),
    ],
)
def test_options_that_do_not_exist_or_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(remat.UsageError, match=message):
        fit(nn.Linear(2, 2), torch.zeros(1, 2), "1GiB", **options)


def test_a_plan_that_breaks_the_budget_or_the_rules_is_refused() -> None:
    model, inputs = case("mlp").build()
    graph = remat.torch.capture(model, inputs)
    every = list(range(graph.num_ops))
    with pytest.raises(remat.PlanError, match="the budget is 0.977 KiB .1000 bytes."):
        fit(model, inputs, 1000, plan=every)
    with pytest.raises(remat.PlanError):
        fit(model, inputs, "1GiB", plan=every[1:])


def test_a_loss_outside_the_model_is_counted_when_it_is_given() -> None:
    torch.manual_seed(0)
    model, x, target = Outputs(), torch.randn(1024, 64), torch.randn(1024, 64)

    def loss(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(y, target)

    expected = copy.deepcopy(model)
    loss(expected(x)).backward()
    fitted = fit(model, x, "80%", loss=loss)
    measured = remat.torch.measure_peak(lambda: loss(fitted(x)).backward(), resident=[model, x])
    assert equal(gradients(expected), gradients(fitted))
    assert measured <= fitted.remat.budget
    # The first backward has shown that nobody holds the output.
    model.zero_grad()
    measured = remat.torch.measure_peak(lambda: loss(fitted(x)).backward(), resident=[model, x])
    assert measured <= fitted.remat.budget
    assert measured == pytest.approx(fitted.remat.predicted_peak, rel=0.001)


def test_without_gradients_or_in_eval_mode_results_are_right_and_nothing_is_planned() -> None:
    model, inputs = case("conv_net").build()
    fitted = fit(model, inputs, "80%")
    planned = len(fitted.remat.parts)
    with torch.no_grad():
        assert fitted.eval()(*inputs).equal(model.eval()(*inputs))
    assert len(fitted.remat.parts) == planned
    assert fitted(*inputs).equal(model(*inputs))


def test_a_model_without_gradients_is_refused() -> None:
    model = Outputs().requires_grad_(False)
    for call in (fit, lambda m, x, b: remat.torch.capture(m, x)):
        with pytest.raises(
            remat.torch.UnsupportedModelError, match="nothing in this model requires a gradient"
        ):
            call(model, torch.zeros(1, 64), "80%")


def test_frozen_parameters_get_no_gradient_and_the_rest_the_right_one() -> None:
    model, inputs = case("encoder").build()
    for parameter in model.encoder.layers[0].parameters():
        parameter.requires_grad_(False)
    expected = train(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "80%")
    assert expected.differences(train(fitted, inputs)) == []
    assert model.encoder.layers[0].linear1.weight.grad is None


def test_a_smaller_batch_is_planned_for_itself_under_the_same_budget() -> None:
    torch.manual_seed(0)
    model, _ = case("encoder").build()
    large, small = (torch.randn(n, 64, 64) for n in (8, 4))
    expected = copy.deepcopy(model)
    a, b = train(expected, (large,), 1), train(expected, (small,), 1)
    budget = int(0.7 * fit(model, (large,), "100%").remat.keep_all_peak)
    fitted = fit(model, (large,), budget)
    assert a.differences(train(fitted, (large,), 1)) == []
    assert b.differences(train(fitted, (small,), 1)) == []
    assert fitted.remat.parts[0].overhead > 0
    assert fitted.remat.parts[-1].overhead == 0
    assert step_peak(fitted, (small,)) <= budget


def test_the_inputs_of_the_call_that_was_compiled_are_not_held() -> None:
    torch.manual_seed(0)
    model, (x,) = case("mlp").build()
    compiled = torch.compile(model, backend="remat", options={"budget": "80%", "work_limit": 20_000})
    dies = weakref.ref(x)
    compiled(x).sum().backward()
    del x
    gc.collect()
    assert dies() is None


def test_a_model_without_parameters_is_planned_for_its_inputs() -> None:
    class Bare(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.tanh() @ x.sin().T).exp().sum()

    x = torch.randn(64, 64).requires_grad_()
    mine = x.detach().clone().requires_grad_()
    fitted = fit(Bare(), mine, "100%")
    for model, each in ((Bare(), x), (fitted, mine)):
        model(each).backward()
    assert x.grad is not None
    assert mine.grad is not None
    assert x.grad.equal(mine.grad)


def test_two_calls_before_one_backward_are_noticed_and_fit_from_the_next_step_on(caplog) -> None:
    torch.manual_seed(0)
    model = Outputs()
    a, b = torch.randn(1024, 64), torch.randn(1024, 64)

    def step(m: nn.Module) -> None:
        (m(a).square().mean() + m(b).abs().mean()).backward()

    expected = copy.deepcopy(model)
    step(expected)
    budget = int(0.75 * remat.torch.measure_peak(lambda: step(copy.deepcopy(model)), resident=[model, a, b]))
    fitted = fit(model, a, budget)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        step(fitted)
    assert "called 2 times before the first backward" in caplog.text
    assert equal(gradients(expected), gradients(fitted))
    model.zero_grad()
    measured = remat.torch.measure_peak(lambda: step(fitted), resident=[model, a, b])
    assert equal(gradients(expected), gradients(fitted))
    assert measured <= budget


@pytest.mark.parametrize("make", [Broken, pytest.param(DataDependent, marks=pytest.mark.long)])
def test_a_graph_break_plans_each_part_within_the_budget_and_says_so(make, caplog) -> None:
    torch.manual_seed(0)
    model, x = make(), torch.randn(1024, 64)
    expected = train(copy.deepcopy(model), (x,))
    eager = step_peak(copy.deepcopy(model), (x,))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted = fit(model, x, int(0.85 * eager), executor="boxed")
    assert "a graph break" in caplog.text
    assert len(fitted.remat.parts) >= 2
    assert expected.differences(train(fitted, (x,))) == []
    model.zero_grad()
    assert step_peak(fitted, (x,)) <= int(0.85 * eager)
    with pytest.raises(remat.torch.UnsupportedModelError, match="broken into"):
        remat.torch.capture(model, x, executor="boxed")


class PartlyEager(nn.Module):
    """Dynamo does not compile a function that it is told to leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Outputs(), Outputs()

    @torch._dynamo.disable
    def left_alone(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left_alone(self.first(x)).square().mean()


def test_what_eager_code_saves_is_noticed_and_taken_from_the_budget(caplog) -> None:
    torch.manual_seed(0)
    model, x = PartlyEager(), torch.randn(1024, 64)
    expected = train(copy.deepcopy(model), (x,))
    eager = step_peak(copy.deepcopy(model), (x,))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted = fit(model, x, int(0.9 * eager), executor="boxed")
    assert "code outside the planned graphs leaves" in caplog.text
    assert expected.differences(train(fitted, (x,))) == []
    model.zero_grad()
    assert step_peak(fitted, (x,)) <= int(0.9 * eager)


def test_a_model_that_the_compiler_leaves_alone_is_refused() -> None:
    class Alone(Outputs):
        @torch._dynamo.disable
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    with pytest.raises(remat.NoPlanError, match="nothing of this model has a plan, it runs as in eager mode"):
        fit(Alone(), torch.zeros(2, 64), "80%", executor="boxed")


@pytest.mark.parametrize("before", [0, 1], ids=["first_step", "later_step"])
def test_backward_twice_with_retain_graph_adds_the_gradient_twice(before: int) -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "80%")
    expected = copy.deepcopy(model)
    for m in (expected, fitted):
        torch.manual_seed(3)
        for _ in range(before):
            m(*inputs).backward()
        loss = m(*inputs)
        loss.backward(retain_graph=True)
        loss.backward()
    assert equal(gradients(expected), gradients(fitted))


def test_hooks_on_parameters_see_every_gradient(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "85%")
    seen: list[str] = []
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda grad, name=name: seen.append(name))
    fitted(*inputs).backward()
    assert sorted(seen) == sorted(name for name, _ in model.named_parameters())
    assert "fit again with the hooks" in caplog.text


def add_noise(parameter: torch.Tensor) -> None:
    parameter.grad.add_(torch.randn_like(parameter))


def noisy(after: bool) -> nn.Module:
    """Hooks of its parameters draw numbers, as for differential privacy."""
    torch.manual_seed(0)
    model = Outputs()
    for parameter in model.parameters():
        if after:
            parameter.register_post_accumulate_grad_hook(add_noise)
        else:
            parameter.register_hook(lambda gradient: gradient + torch.randn_like(gradient))
    return model


@pytest.mark.parametrize("after", [False, True])
def test_numbers_that_hooks_of_parameters_draw_are_those_of_eager_mode(
    after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    x, found = torch.randn(256, 64), []
    for model in (noisy(after), fit(noisy(after), x, "80%", loss=torch.mean)):
        torch.manual_seed(1)
        model(x).mean().backward()
        found.append(gradients(model))
    assert equal(*found)
    assert "hooks of 24 parameters run at the end of a traced backward" in caplog.text
    caplog.clear()
    remat.torch.verify(noisy(after), x, "90%", loss=torch.mean, executor="boxed", steps=1, work_limit=20_000)
    assert "which have no hooks of its parameters" in caplog.text


def test_autocast_gives_the_bits_of_eager_autocast() -> None:
    model, inputs = Encoder(dropout=0.0), (torch.randn(8, 64, 64),)
    expected = copy.deepcopy(model)
    with torch.autocast("cpu", torch.bfloat16):
        fitted = fit(model, inputs, "80%")
    for m in (expected, fitted):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            loss = m(*inputs)
        loss.backward()
    assert equal(gradients(expected), gradients(fitted))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_runs_the_kernels_of_eager_mode(mode: str) -> None:
    class Upsample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.interpolate(self.first(x).tanh(), scale_factor=2, mode=mode)
            return self.second(y).square().mean()

    torch.manual_seed(0)
    model, x = Upsample(), torch.randn(4, 3, 16, 16)
    expected = train(copy.deepcopy(model), (x,))
    assert expected.differences(train(fit(model, x, "100%"), (x,))) == []


def test_keyword_arguments_and_dictionaries_of_outputs_work() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Outputs()

        def forward(self, *, x: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
            y = self.body(x)
            return {"y": y, "loss": scale * y.square().mean()}

    torch.manual_seed(0)
    model, x = Named(), torch.randn(1024, 64)
    expected = copy.deepcopy(model)
    expected(x=x, scale=0.5)["loss"].backward()
    fitted = fit(model, {"x": x, "scale": 0.5}, "85%")
    fitted(x=x, scale=0.5)["loss"].backward()
    assert equal(gradients(expected), gradients(fitted))


def installed_backends() -> set[str]:
    return {e.name for e in importlib.metadata.entry_points(group="torch_dynamo_backends")}


@pytest.mark.skipif(
    "remat" not in installed_backends(), reason="remat is not installed: no entry point to find"
)
def test_torch_compile_finds_the_backend_by_name_without_an_import() -> None:
    program = """
        import sys, torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
        x = torch.randn(512, 64)
        model(x).sum().backward()
        expected = [p.grad for p in model.parameters()]
        model.zero_grad()
        assert "remat" not in sys.modules
        compiled = torch.compile(model, backend="remat", options={"budget": "85%"})
        compiled(x).sum().backward()
        assert "remat.torch" in sys.modules
        assert all(p.grad.equal(e) for p, e in zip(model.parameters(), expected))
        try:
            torch.compile(model, backend="remat", options={"budgit": 1})(x)
        except Exception as error:
            print(error)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "did you mean 'budget'" in run.stdout


class Loop(nn.Module):
    """Calls its layers in a loop, which Dynamo does not break a graph in."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


def test_hooks_of_modules_that_come_after_fit_run_and_a_call_without_a_plan_is_said(caplog) -> None:
    torch.manual_seed(0)
    model, inputs = Loop(), (torch.randn(256, 32),)
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, "80%")
    handles = [m.layers[1].register_forward_hook(lambda *given: 1.5 * given[2]) for m in (eager, fitted)]
    before = len(fitted.remat.parts)
    assert train(eager, inputs, 2).differences(train(fitted, inputs, 2)) == []
    assert len(fitted.remat.parts) > before
    for handle, each in zip(handles, (eager, fitted), strict=True):
        handle.remove()
        each.zero_grad()
        each.layers[1].register_full_backward_hook(lambda _, down, up: (2 * down[0],))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        assert train(eager, inputs, 2).differences(train(fitted, inputs, 2)) == []
    said = [r.getMessage() for r in caplog.records if "without a plan" in r.getMessage()]
    assert len(said) == 1


def test_steps_leave_nothing_behind() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "70%")

    def left() -> tuple[int, int]:
        gc.collect()
        return len(gc.get_objects()), sum(live_storages().values())

    # Caches of Python's own fill once, at whatever step: what steps leave behind, every round leaves.
    objects, sizes = [], set()
    for _ in range(3):
        train(fitted, inputs, 20)
        count, size = left()
        objects.append(count)
        sizes.add(size)
    assert len(sizes) == 1
    assert min(after - before for before, after in pairwise(objects)) < 20


def test_calls_without_gradients_run_as_in_eager_mode_and_are_not_traced() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "70%").eval()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        for size in range(1, 6):
            part = inputs[0][:size]
            assert fitted(part).equal(model.eval()(part))
    with torch.inference_mode():
        fitted(inputs[0])
    assert not torch._dynamo.utils.counters["frames"]


def test_a_copy_of_a_fitted_model_shows_no_plan_and_says_so(caplog, tmp_path) -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "80%")

    def saved() -> nn.Module:
        torch.save(fitted, tmp_path / "model.pt")
        return torch.load(tmp_path / "model.pt", weights_only=False)

    for make in (lambda: copy.deepcopy(fitted), lambda: pickle.loads(pickle.dumps(fitted)), saved):
        caplog.clear()
        other = make()
        assert "a copy of a fitted model runs without a plan" in caplog.text
        assert other.remat is None
        again = fit(other, inputs, "80%")
        assert again.remat.parts[0].recomputed_steps > 0
        assert not train(again, inputs).differences(train(copy.deepcopy(model), inputs))
    assert fitted.remat.parts


def test_sparse_gradients_are_refused_in_one_line() -> None:
    model = nn.Sequential(nn.Embedding(100, 8, sparse=True), nn.Linear(8, 8))
    with pytest.raises(remat.torch.UnsupportedModelError, match="is a sparse_coo tensor.*sparse=False"):
        fit(model, torch.randint(100, (4, 8)), "100%", executor="boxed")


def test_saved_generator_states_are_within_the_budget_and_no_proof_that_none_works() -> None:
    # Tensors of 4 kB beside states of 5 kB: a plan may well draw no mask twice.
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.Tanh()) for _ in range(4)))
    options = {"loss": lambda y: y.square().sum(), "work_limit": 20_000}
    x = torch.randn(64, 16)
    whole = fit(model, x, "100%", **options).remat.keep_all_peak
    for budget in (whole + 30_000, whole + 10_000, whole, whole - 5_000, whole // 2, whole // 8):
        proved, floor, predicted = False, 0, 0
        try:
            predicted = fit(model, x, budget, **options).remat.predicted_peak
        except remat.NoPlanError as error:
            proved, floor = isinstance(error, remat.InfeasibleError), error.floor
        assert predicted <= budget
        assert proved == (floor > budget)


class Remembers(nn.Module):
    """What it keeps from call to call, in all the ways that modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.inner = nn.BatchNorm1d(16)
        self.register_buffer("ema", torch.ones(16))
        self.register_buffer("count", torch.zeros(()))
        self.n, self.last, self.seen = 0, None, {"mean": torch.zeros(16)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(torch.tanh(self.linear(x)))
        self.ema = 0.9 * self.ema + 0.1 * y.detach().mean(0)
        self.seen["mean"] = y.detach().mean(0)
        self.count += 1
        self.n += 1
        self.last = self.n
        return (y * self.ema).square().sum()


def test_fit_leaves_no_trace_in_the_model() -> None:
    model, x = Remembers(), torch.randn(32, 16)
    held = [dict(model.state_dict(keep_vars=True)), {k: v for k, v in vars(model).items() if k[0] != "_"}]
    values = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    fitted = fit(model, x, "100%")
    for each in (model, fitted):
        now = [dict(each.state_dict(keep_vars=True)), {k: v for k, v in vars(each).items() if k[0] != "_"}]
        for before, after in zip(held, now, strict=True):
            assert before.keys() == after.keys() - {"remat"}
            assert all(after[name] is value for name, value in before.items())
        assert all(each.state_dict()[name].equal(value) for name, value in values.items())
        assert list(each.seen) == ["mean"]
        assert each.seen["mean"].equal(torch.zeros(16))
    assert torch.get_rng_state().equal(generator)
    assert all(p.grad is None for p in model.parameters())
    twin = copy.deepcopy(model)
    assert not train(fitted, (x,)).differences(train(twin, (x,)))
    assert (fitted.n, fitted.ema.equal(twin.ema)) == (twin.n, True)


class Child(nn.Linear):
    """A layer that knows its model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(16, 16)
        self.model = weakref.ref(model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).tanh() * self.model().scale


class KnowsItself(nn.Module):
    """Hooks, attributes and children that refer to the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.feature = 2.0, None
        self.layers = nn.Sequential(*(Child(self) for _ in range(4)))
        self.layers[2].register_forward_hook(self.keep)
        self.drop = self.dropped

    def keep(self, _module: nn.Module, _args: Any, result: torch.Tensor) -> None:
        self.feature = result

    def dropped(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.3, self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.layers(x))
        return (y * torch.sigmoid(self.feature)).square().mean()


@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_what_refers_to_the_model_sees_what_is_set_on_the_fitted_one(executor: str) -> None:
    torch.manual_seed(0)
    model, x = KnowsItself(), torch.randn(64, 16)
    torch.manual_seed(0)
    twin = KnowsItself()
    fitted: Any = fit(model, x, "100%", executor=executor)
    del model
    gc.collect()
    for each in (fitted, twin):
        each.scale = 1.5
    assert not train(fitted, (x,)).differences(train(twin, (x,)))
    for each in (fitted, twin):
        each.eval()
    assert not train(fitted, (x,)).differences(train(twin, (x,)))


def test_a_fitted_model_is_of_the_models_class_and_its_copies_too() -> None:
    model, x = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4))), torch.randn(32, 16)
    fitted: Any = fit(model, x, "100%", loss=lambda y: y.square().sum())
    assert isinstance(fitted, nn.Sequential)
    assert repr(fitted) == repr(model)
    assert not hasattr(model, "remat")
    for copied in (copy.copy(fitted), copy.deepcopy(fitted)):
        assert type(copied) is nn.Sequential
        assert copied.remat is None
    first = fitted[:2]
    assert first(x).equal(model[1](model[0](x)))
    assert first.remat is None
    assert copy.deepcopy(first)(x).equal(first(x))
    assert len(pickle.loads(pickle.dumps(first))) == 2
    again: Any = fit(fitted, x, "100%", loss=lambda y: y.square().sum())
    assert type(again).__mro__[2] is nn.Sequential
    assert again(x).equal(fitted(x))


class WritesItsWeights(nn.Module):
    """Prototypes that are scaled in each forward, as those of SwaV."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
        self.prototypes = nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.prototypes.weight.mul_(0.9)
        return self.prototypes(self.body(x)).square().mean()


@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_parameters_that_a_forward_writes_to_are_restored(executor: str) -> None:
    model, x = WritesItsWeights(), torch.randn(32, 16)
    twin = copy.deepcopy(model)
    fitted = fit(model, x, "100%", executor=executor)
    assert model.prototypes.weight.equal(twin.prototypes.weight)
    assert not train(fitted, (x,)).differences(train(twin, (x,)))


@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_a_loss_may_write_to_outputs_and_a_model_to_activations(executor: str) -> None:
    def loss(y: torch.Tensor) -> torch.Tensor:
        return y.div_(0.7).log_softmax(-1)[:, 0].mean()

    stem = nn.Linear(16, 16)
    layers = (m for _ in range(3) for m in (nn.Linear(16, 16), nn.GELU()))
    model, x = nn.Sequential(nn.ReLU(inplace=True), *layers, nn.Linear(16, 16)), torch.randn(32, 16)
    twins = copy.deepcopy([stem, model])
    fitted = fit(model, stem(x), "100%", loss=loss, executor=executor)
    loss(fitted(stem(x))).backward()
    loss(twins[1](twins[0](x))).backward()
    for own, other in ((stem, twins[0]), (model, twins[1])):
        assert all(a.grad.equal(b.grad) for a, b in zip(own.parameters(), other.parameters(), strict=True))


class Criterion(nn.Module):
    """A loss with state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm1d(16), 0

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.norm(y).square().sum()


criterion = Criterion()


@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_the_state_of_a_global_criterion_is_restored(executor: str) -> None:
    before = copy.deepcopy(criterion.state_dict())
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
    fit(model, torch.randn(32, 16), "100%", loss=lambda y: criterion(y), executor=executor)
    assert criterion.calls == 0
    assert all(p.grad is None for p in criterion.parameters())
    assert all(value.equal(before[name]) for name, value in criterion.state_dict().items())


drawn_from, teacher = numpy.random.default_rng(3), nn.BatchNorm1d(16)


class ReadsGlobals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layers(x) - teacher(x).detach()).square().mean() * drawn_from.random()


@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_modules_and_generators_that_a_forward_names_are_restored(executor: str) -> None:
    before = drawn_from.bit_generator.state, copy.deepcopy(teacher.state_dict())
    fit(ReadsGlobals(), torch.randn(32, 16), "100%", executor=executor)
    assert drawn_from.bit_generator.state == before[0]
    assert all(value.equal(before[1][name]) for name, value in teacher.state_dict().items())


class DrawsByItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.random, self.last = random.Random(4), collections.deque(maxlen=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh() * self.random.random()
        self.last.append(x.detach().mean())
        return x.square().mean() + sum(self.last)


def test_draws_of_a_modules_own_generator_are_those_of_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    model, x = DrawsByItself(), torch.randn(32, 16)
    twin = copy.deepcopy(model)
    fitted = fit(model, x, "100%")
    assert "random (a Random) has other values in a trace" in caplog.text
    assert not train(fitted, (x,)).differences(train(twin, (x,)))


def wrapped_in(how: str) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """What users put around a model's call, all of which decide what becomes of saved tensors."""

    def checkpointed(model: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(model, x, use_reentrant=how == "reentrant")

    def hooked(model: Any, x: torch.Tensor) -> torch.Tensor:
        away = torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone())
        with torch.autograd.graph.save_on_cpu() if how == "save_on_cpu" else away:
            return model(x)

    return hooked if how in ("save_on_cpu", "hooks") else checkpointed


@pytest.mark.parametrize("options", [{}, {"verify": True}, {"executor": "eager"}], ids=str)
@pytest.mark.parametrize("how", ["checkpoint", "reentrant", "save_on_cpu", "hooks"])
def test_hooks_of_saved_tensors_are_called_by_backwards_alone(
    how: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)))
    x = torch.randn(128, 64, requires_grad=True)
    eager, call = copy.deepcopy(model), wrapped_in(how)
    fitted = fit(model, x, "80%", loss=lambda y: y.square().mean(), **options)

    def steps(called: nn.Module) -> list[torch.Tensor]:
        found = []
        for step in range(4):
            called.zero_grad(set_to_none=step != 2)
            x.grad = None
            if step == 3:  # other ops, which are planned for in the call that follows
                twice = called[0].register_forward_hook(lambda module, given, y: y + y)
                called(x).mean().backward()
                twice.remove()
            loss = call(called, x).square().mean() + call(called, x).mean()
            loss.backward()
            found += [loss.detach(), *(p.grad.clone() for p in [*called.parameters(), x])]
        return found

    expected = steps(eager)
    caplog.clear()
    assert [a.equal(b) for a, b in zip(expected, steps(fitted), strict=True)] == [True] * len(expected)
    if how != "reentrant":
        assert "before the first backward" not in caplog.text


def test_hooks_that_are_gone_leave_later_calls_their_plans() -> None:
    """With hooks of a backward Dynamo leaves a loop alone, and what is around it."""
    torch.manual_seed(0)
    model, x = Loop(), torch.randn(256, 32)
    model(x).backward()
    budget = int(0.8 * remat.torch.measure_peak(lambda: model(x).backward(), resident=[model, x]))
    model.zero_grad()
    fitted = fit(model, x, budget, executor="boxed")
    seen: list[torch.Tensor] = []
    hook = fitted.layers[2].register_full_backward_hook(lambda module, inner, outer: seen.append(outer[0]))
    fitted(x).backward()
    hook.remove()
    model.zero_grad()
    fitted(x).backward()  # traced again
    model.zero_grad()
    assert remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[model, x]) <= budget
    assert len(seen) == 1


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_call_that_raises_leaves_later_ones_their_plans(executor: str) -> None:
    """Dynamo leaves alone what raised an error while it traced."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)))
    plain, x = copy.deepcopy(model), torch.randn(128, 64)
    step = {m: (lambda m=m: m(x).square().mean().backward()) for m in (plain, model)}
    step[plain]()
    budget = int(0.8 * remat.torch.measure_peak(step[plain], resident=[plain, x]))
    fitted = fit(model, x, budget, loss=lambda y: y.square().mean(), executor=executor)

    def fails(*_: Any) -> None:
        raise ValueError("of the user's own")

    for wrong in (lambda: fitted(torch.randn(3, 5)), lambda: fitted(x)):
        hook = fitted[2].register_forward_hook(fails)
        with pytest.raises((RuntimeError, ValueError)):
            wrong()
        hook.remove()
    plain.zero_grad()
    for frozen in (True, False, True):
        for m in (fitted, plain):
            m[1][0].weight.requires_grad_(not frozen)
            m.zero_grad()
        step[plain]()
        measured = remat.torch.measure_peak(lambda: fitted(x).square().mean().backward(), resident=[model, x])
        assert measured <= budget
        for a, b in zip(model.parameters(), plain.parameters(), strict=True):
            assert (a.grad is None and b.grad is None) or a.grad.equal(b.grad)


class Named(torch.Tensor):
    """Changes nothing but the name of its type, as torchvision's images do."""


@pytest.mark.parametrize("sample", [False, True])
def test_a_tensor_of_a_plain_subclass_is_an_input_like_others(sample: bool) -> None:
    model, (x,) = case("mlp").build()
    given = x.detach().as_subclass(Named)
    expected = copy.deepcopy(model)
    fitted = fit(model, (given,) if sample else (x,), "90%")
    own, theirs = given.clone().requires_grad_(), given.clone().requires_grad_()
    loss = fitted(own)
    other = expected(theirs)
    loss.backward()
    other.backward()
    assert torch.equal(loss, other)
    assert type(loss) is type(other)
    assert torch.equal(own.grad, theirs.grad)
    pairs = zip(model.parameters(), expected.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own rules for tangents
@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_calls_inside_transforms_run_as_they_are_written(executor: str, caplog) -> None:
    model, (x,) = case("mlp").build()
    fitted = fit(model, (x,), "90%", executor=executor, accumulate=False)
    with caplog.at_level(logging.WARNING, "remat.torch"), forward_ad.dual_level():
        dual = fitted(forward_ad.make_dual(x, torch.ones_like(x)))
        expected = model(forward_ad.make_dual(x, torch.ones_like(x)))
        tangents = [forward_ad.unpack_dual(each).tangent for each in (dual, expected)]
    assert torch.equal(*tangents)
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(model: nn.Module) -> Any:
        return torch.func.grad(lambda given: torch.func.functional_call(model, given, (x,)))(values)

    found, wanted = loss(fitted), loss(model)
    assert all(torch.equal(found[name], wanted[name]) for name in values)
    (line,) = [r.message for r in caplog.records if "transform of torch.func" in r.message]
    assert line.endswith("runs as it is written, without a plan")


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_steps_that_need_less_may_have_what_others_have_of_a_share(executor: str) -> None:
    """85 % of what a small batch needs, or a step with frozen layers, can be too little for any plan."""
    model, (x,) = case("mlp").build()
    expected = copy.deepcopy(model)
    fitted = fit(model, (x,), "85%", executor=executor, accumulate=False)
    budget = fitted.remat.budget

    def step(x: torch.Tensor) -> None:
        for each in (fitted, expected):
            each(x).backward()
        pairs = zip(model.parameters(), expected.parameters(), strict=True)
        assert all(a.grad is b.grad is None or torch.equal(a.grad, b.grad) for a, b in pairs)
        for each in (model, expected):
            each.zero_grad()

    step(x)
    step(x[:4])
    for each in (model, expected):
        each.layers[:-2].requires_grad_(False)
    step(x)
    assert all(part.budget <= budget for part in fitted.remat.parts)
    assert any(part.keep_all_peak < 0.8 * budget for part in fitted.remat.parts)


class Distilled(nn.Module):
    """A teacher in inference mode, whose result is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = nn.Linear(64, 64), Outputs()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.inference_mode():
            taught = self.teacher(x)
        own = self.student(x.clone())
        return {"loss": (own - taught.clone()).square().mean(), "taught": taught}


@pytest.mark.parametrize(
    ("executor", "budget", "inside"),
    [("auto", "80%", True), ("boxed", "100%", True), ("boxed", "80%", False), ("eager", "80%", True)],
)
def test_inference_tensors_go_in_and_out(executor: str, budget: str, inside: bool) -> None:
    """Autograd cannot save such an argument, so that a traced step runs without a plan."""
    model = Distilled()
    with torch.inference_mode(inside):
        x = torch.randn(256, 64)
    twin = copy.deepcopy(model)
    fitted = fit(model, x, budget, loss=lambda found: found["loss"], executor=executor)
    for each in (fitted, twin):
        each(x)["loss"].backward()
    assert equal(gradients(fitted), gradients(twin))


@pytest.mark.trace_fails
def test_a_model_that_pytorch_fails_to_trace_trains_in_eager_mode(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("an internal assert of a compiler\nits details")

    model, x = Outputs(), torch.randn(256, 64)
    model.register_buffer("seen", torch.zeros(()))
    twin, generator = copy.deepcopy(model), torch.get_rng_state()
    with monkeypatch.context() as patched:
        patched.setattr(Preparation, "_plan_steps", fail)
        fitted = fit(model, x, "70%", loss=torch.mean)
    assert "tracing it failed (RuntimeError: an internal assert of a compiler)" in caplog.text
    assert "its details" not in caplog.text
    assert generator.equal(torch.get_rng_state())
    used = remat.torch.measure_peak(lambda: fitted(x).mean().backward(), resident=[fitted, x])
    assert used <= fitted.remat.budget
    for each in (fitted, twin):
        each.zero_grad()
        each(x).mean().backward()
    assert equal(gradients(fitted), gradients(twin))


def test_an_error_of_the_loss_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError, match="labels"):
        fit(Outputs(), torch.randn(8, 64), "70%", loss=lambda y: {"y": y}["labels"])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.into(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(-2)).sin()


@pytest.mark.parametrize("executor", ["boxed", "eager"])
@pytest.mark.parametrize("around_fit", [False, True])
def test_attention_by_the_kernel_that_is_set_around_a_call(executor: str, around_fit: bool) -> None:
    """Dynamo has no guard on it, and a trace has the kernel that was chosen then."""

    def step(model: nn.Module, math: bool) -> list[torch.Tensor]:
        model.zero_grad()
        with sdpa_kernel(SDPBackend.MATH) if math else nullcontext():
            loss = model(x).square().mean()
        loss.backward()
        return [loss.detach(), *gradients(model)]

    torch.manual_seed(0)
    model, x = nn.Sequential(*(Attention() for _ in range(3))), torch.randn(4, 64, 64)
    twin = copy.deepcopy(model)
    assert not equal(step(twin, False), step(twin, True))
    with sdpa_kernel(SDPBackend.MATH) if around_fit else nullcontext():
        fitted = fit(model, x, "80%", executor=executor, loss=lambda y: y.square().mean())
    for math in (False, True, False, True):
        assert equal(step(fitted, math), step(twin, math))


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_what_runs_again_does_so_by_the_kernels_of_the_forward(executor: str) -> None:
    def forward(model: nn.Module) -> torch.Tensor:
        with torch.backends.mkldnn.flags(enabled=False):
            return model(x).square().mean()

    torch.manual_seed(0)
    layers = (m for _ in range(8) for m in (nn.Conv2d(8, 8, 3, padding=1), nn.GELU()))
    model, x = nn.Sequential(*layers), torch.randn(2, 8, 24, 24)
    twin = copy.deepcopy(model)
    fitted = fit(model, x, "70%", executor=executor, loss=lambda y: y.square().mean())
    assert fitted.remat.overhead > 0
    if executor == "boxed":
        with pytest.raises(remat.UsageError, match="call the backward inside the same context"):
            forward(fitted).backward()
        with torch.backends.mkldnn.flags(enabled=False):
            fitted(x).square().mean().backward()
            twin(x).square().mean().backward()
    else:
        forward(fitted).backward()
        forward(twin).backward()
    assert torch.backends.mkldnn.enabled
    assert equal(gradients(fitted), gradients(twin))


class Louder(TorchFunctionMode):
    """Changes what a function of torch returns."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return 1.01 * found if func in (torch.tanh, torch.Tensor.tanh) else found


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_mode_around_a_step_has_its_effects_once(executor: str) -> None:
    model, x = Outputs(), torch.randn(256, 64)
    twin = copy.deepcopy(model)
    fitted = fit(model, x, "80%", executor=executor, loss=torch.mean)
    for mode in (nullcontext(), Louder(), Louder()):
        for each in (fitted, twin):
            each.zero_grad()
            with mode:
                each(x).mean().backward()
        assert equal(gradients(fitted), gradients(twin))


class Numpy(Outputs):
    """Draws and computes by numpy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        noise = torch.as_tensor(numpy.random.randn(64), dtype=torch.float32)
        return y * float(numpy.sqrt(64)) + noise * torch.as_tensor(numpy.exp(y.detach().numpy()).mean(axis=0))


def test_numpy_in_a_forward_is_that_of_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    model, x, found = Numpy(), torch.randn(256, 64), []
    for each in (copy.deepcopy(model), fit(model, x, "85%", loss=torch.mean)):
        numpy.random.seed(3)
        each(x).mean().backward()
        found.append([*gradients(each), torch.tensor(numpy.random.rand())])
    assert equal(*found)
    assert "numpy inside the model is traced as functions of torch" in caplog.text


class Compiling(Outputs):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1.1 if torch.compiler.is_compiling() else 1.2)


def test_a_model_that_asks_whether_it_is_compiled_is_not(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Compiling(), torch.randn(256, 64)
    fitted = fit(copy.deepcopy(model), x, "85%", loss=torch.mean)
    for each in (model, fitted):
        each(x).mean().backward()
    assert equal(gradients(model), gradients(fitted))
    assert "its trace has other outputs than eager mode" in caplog.text
    caplog.clear()
    fit(model, x, "85%", loss=torch.mean, executor="boxed")
    assert 'its trace has other outputs than eager mode: executor="eager" has the same' in caplog.text


class Doubled(nn.Module):
    """Calls a fitted model."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = 2 * self.inner(x)
        return y


@pytest.mark.parametrize("way", ["itself", "a module around it", "a function"])
@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_compiled_code_leaves_a_fitted_model_to_its_plan(
    executor: Literal["boxed", "eager"], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    layers = [each for _ in range(6) for each in (nn.Linear(64, 64), nn.GELU())]
    model, x = nn.Sequential(*layers), torch.randn(1024, 64)

    def loss(y: torch.Tensor) -> torch.Tensor:
        return y.square().mean()

    fitted: Any = remat.torch.fit(model, x, "70%", loss=loss, executor=executor, accumulate=False)
    around = {"itself": fitted, "a module around it": Doubled(fitted), "a function": lambda x: fitted(x)}[way]
    compiled: Any = torch.compile(around, backend="eager")

    def step() -> None:
        loss(compiled(x)).backward()

    for _ in range(2):
        model.zero_grad()
        peak = remat.torch.measure_peak(step, resident=[model, x])
    # Twice the output and its gradient come on top where the model is called inside.
    beside = 0 if way != "a module around it" else 2 * x.nbytes
    assert peak <= fitted.remat.parts[0].budget + beside
    assert not caplog.records
