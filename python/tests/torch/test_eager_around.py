"""What people do around a model that is fitted in eager mode: DDP, copies, checkpoints of it, optimizers
in the backward, modules that are compiled, gradients of gradients, threads.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import remat.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from remat.torch.base.private import compiled_part
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

WIDTH = 48
QUICK: dict[str, Any] = {"executor": "eager", "work_limit": 5_000, "time_limit": None}


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.dropout(F.gelu(layer(x)))
        return x.square().mean()


class Compiled(Noisy):
    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.compile(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), backend="aot_eager")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.inside(x))


def inputs() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(128, WIDTH)


def pair(model: nn.Module) -> tuple[nn.Module, Any]:
    """The model as it is, and one that is fitted."""
    fitted = remat.torch.fit(copy.deepcopy(model), inputs(), "85%", **QUICK)
    assert any(part.recomputed_steps for part in fitted.remat.parts)
    return model, fitted


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model.zero_grad()
    model(x).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) > 0 and all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_a_page_says_what_python_takes_too(tmp_path: Path) -> None:
    _, fitted = pair(Noisy())
    part = fitted.remat.parts[0]
    part.save(tmp_path / "page.json", format="json", points=0)
    written = (tmp_path / "page.json").read_text()
    assert f"planned ({100 * part.overhead:.1f} % more time with what Python takes for it)" in written
    of_kernels = (part.plan.duration or 0) / part.graph.base_duration - 1
    assert part.overhead > of_kernels


def saved_and_loaded(model: nn.Module) -> Any:
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded])
def test_a_copy_has_no_plan_and_the_same_gradients(way: Callable[[Any], Any]) -> None:
    model, fitted = pair(Noisy())
    copied = way(fitted)
    assert copied.remat is None
    expected = gradients(model, inputs())
    assert same(gradients(copied, inputs()), expected)
    assert same(gradients(fitted, inputs()), expected)


def test_a_state_dict_goes_into_a_fitted_model_and_out_of_it() -> None:
    model, fitted = pair(Noisy())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    fitted.load_state_dict(torch.load(stream))
    assert list(fitted.state_dict()) == list(model.state_dict())
    assert same(gradients(fitted, inputs()), gradients(model, inputs()))


@pytest.mark.parametrize("first", [True, False])
def test_an_optimizer_of_the_user_steps_inside_the_backward(first: bool) -> None:
    """first: it is there when the model is fitted."""

    def install(model: nn.Module) -> None:
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def step(p: torch.Tensor) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)

    model = Noisy()
    own = copy.deepcopy(model)
    if first:
        install(own)
    fitted = remat.torch.fit(own, inputs(), "85%", **QUICK)
    assert same(list(own.parameters()), list(model.parameters()))
    install(model)
    if not first:
        install(fitted)
    for each in (model, fitted):
        torch.manual_seed(3)
        for _ in range(3):
            each(inputs()).backward()
    assert same(list(fitted.parameters()), list(model.parameters()))
    assert all(p.grad is None for p in fitted.parameters())


@pytest.mark.parametrize("way", ["fit", "auto", "planned"])
def test_code_that_is_compiled_inside_runs_compiled(way: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()

    def other_bits(graph: Any, examples: Any) -> Any:
        """As a compiler that rounds otherwise."""
        return lambda *inputs: [each * 1.5 if each.is_floating_point() else each for each in graph(*inputs)]

    inner = torch.compile(lambda x: (x.sin() * x.exp()).tanh(), backend=other_bits)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = inner(torch.nn.functional.gelu(layer(x)))
            return x.square().mean()

    torch.manual_seed(0)
    model, x = Net(), torch.randn(64, WIDTH)
    plain = copy.deepcopy(model)

    def trained(net: nn.Module, call: Any) -> list[torch.Tensor]:
        loss = call(x)
        loss.backward()
        return [loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]

    expected = trained(plain, plain)
    if way != "planned":
        executor = "eager" if way == "fit" else "auto"
        found = remat.torch.fit(model, x, "80%", executor=executor, work_limit=5000, time_limit=None)
        assert ("torch.compile" in caplog.text) is (executor == "auto")
        assert found.remat.parts[0].recomputed_steps
        assert all(map(torch.equal, trained(model, found), expected))
    else:
        steps = remat.torch.planned(model, budget="80%", work_limit=5000, time_limit=None)
        for _ in range(4):
            model.zero_grad(set_to_none=True)
            with steps:
                assert all(map(torch.equal, trained(model, model), expected))
        assert steps.remat.parts[0].recomputed_steps


def test_what_is_compiled_inside_is_not_traced() -> None:
    torch._dynamo.reset()
    by_method = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
    by_method[1].compile(backend="aot_eager")

    class ByFunction(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)

        @torch.compile(backend="aot_eager")
        def inner(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).square().mean()

    for model, name in ((Compiled(), "inside"), (by_method, "1"), (ByFunction(), "ByFunction.inner")):
        with pytest.raises(
            remat.torch.UnsupportedModelError, match=f"{name} is compiled by torch.compile, and"
        ):
            remat.torch.fit(model, inputs(), "90%", executor="boxed")


def test_what_takes_long_to_trace_is_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remat.torch.session.session._MOST_OPS", 8)
    model, plain, x = Noisy(), Noisy(), torch.randn(4, WIDTH)
    plain.load_state_dict(model.state_dict())
    fitted = remat.torch.fit(model, x, "100%", work_limit=5_000, time_limit=None)
    said = [record.getMessage() for record in caplog.records]
    chosen = next(each for each in said if "runs in eager mode" in each)
    assert chosen.endswith("tracing its more than 8 ops may take more than a minute")
    for run in (fitted, plain):
        torch.manual_seed(1)
        run(x).backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert mine.grad.equal(theirs.grad)
    caplog.clear()
    remat.torch.fit(Noisy(), x, "100%", executor="boxed", work_limit=5_000, time_limit=None)
    assert not any("eager mode" in record.getMessage() for record in caplog.records)


def test_what_is_kept_from_compilation_is_not_compiled() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.compiler.disable(nn.Linear(WIDTH, WIDTH))

        @torch.compiler.disable
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).square().mean()

    assert compiled_part(Kept()) is None


def test_a_module_that_is_compiled_inside_runs_as_it_is() -> None:
    torch._dynamo.reset()
    model, x = Compiled(), inputs()
    expected = gradients(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = remat.torch.fit(model, x, "90%", **QUICK)
        assert same(gradients(fitted, x), expected)


def test_gradients_of_gradients_outside() -> None:
    found = []
    for each in pair(Noisy()):
        torch.manual_seed(3)
        own = inputs().requires_grad_()
        (gradient,) = torch.autograd.grad(each(own), own, create_graph=True)
        gradient.square().sum().backward()
        found.append([own.grad, *(p.grad for p in each.parameters() if p.grad is not None)])
    assert same(*found)


def test_models_train_in_threads_at_once() -> None:
    """Each thread fits, and trains, a model of its own."""
    models = [Noisy().eval() for _ in range(2)]
    expected = [gradients(model, inputs()) for model in models]
    found: dict[int, list[torch.Tensor]] = {}

    def run(number: int) -> None:
        fitted = remat.torch.fit(models[number], x, "85%", **QUICK)
        for _ in range(3):
            fitted.zero_grad()
            fitted(x).backward()
        found[number] = [p.grad.clone() for p in fitted.parameters()]

    x = inputs()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[number], expected[number]) for number in range(2))


def reduced(model: nn.Module) -> list[torch.Tensor]:
    """Gradients of four steps under data parallel training."""
    wrapped = DistributedDataParallel(model)
    torch.manual_seed(3)
    gradients: list[torch.Tensor] = []
    for number in range(4):
        # Every second step adds to the gradients of the one before, and reduces them.
        with nullcontext() if number % 2 else wrapped.no_sync():
            wrapped(inputs() * number).backward()
        gradients += [p.grad.clone() for p in wrapped.parameters() if p.grad is not None]
        if number % 2:
            wrapped.zero_grad()
    return gradients


def test_ddp_around_a_fitted_model(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        found = [reduced(each) for each in pair(Noisy())]
    finally:
        # A wrapper that outlives the group ends it while it holds Python's lock, which may never end.
        gc.collect()
        dist.destroy_process_group()
    assert same(*found)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_optimizer_in_hooks_of_the_users_own_steps_once_a_step(when: str) -> None:
    def trained(fits: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, optimizers = Noisy(), {}

        def step(p: torch.Tensor) -> None:
            optimizers[p].step()
            p.grad = None

        def hook() -> None:
            for p in model.parameters():
                optimizers[p] = torch.optim.Adam([p], 0.01)
                p.register_post_accumulate_grad_hook(step)

        if when == "before":
            hook()
        run = remat.torch.fit(model, inputs(), "85%", **QUICK) if fits else model
        if when == "after":
            hook()
        for size in (128, 32, 32):
            torch.manual_seed(size)
            run(inputs()[:size]).backward()
        steps = [optimizers[p].state[p]["step"] for p in model.parameters()]
        return [*steps, *(p.detach() for p in model.parameters())]

    assert same(trained(True), trained(False))


def test_a_call_whose_step_cannot_be_recorded_runs_without_a_plan(caplog: pytest.LogCaptureFixture) -> None:
    class Logits(Noisy):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = F.gelu(layer(x))
            return x

    labels, x = torch.arange(128) % WIDTH, inputs()
    model = Logits()
    twin = copy.deepcopy(model)
    fitted = remat.torch.fit(model, x, "85%", loss=lambda y: F.cross_entropy(y, labels), **QUICK)
    for size in (128, 32, 200):
        rows = torch.cat((x, x))[:size]
        for each in (fitted, twin):
            each.zero_grad()
            each(rows).square().mean().backward()
        assert all(p.grad.equal(q.grad) for p, q in zip(fitted.parameters(), twin.parameters(), strict=True))
    assert (
        caplog.text.count("could not be recorded or planned (ValueError: Expected input batch_size (32)") == 1
    )
    fitted.requires_grad_(False)
    assert fitted(x[:48]).equal(twin(x[:48]))


def test_a_recorded_backward_ends_at_the_model(caplog: pytest.LogCaptureFixture) -> None:
    class Hyper(Noisy):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x @ self.made)

    outside = nn.Linear(WIDTH, WIDTH)
    model, x = Hyper(), inputs()
    model.made = torch.eye(WIDTH)
    fitted = remat.torch.fit(model, x, "85%", **QUICK)
    fitted.made = outside(torch.eye(WIDTH)).tanh()
    fitted(x[:32]).backward()
    found = outside.weight.grad
    outside.weight.grad = None
    assert "reads tensors with a graph of their own" in caplog.text
    torch.manual_seed(0)
    model.made = outside(torch.eye(WIDTH)).tanh()
    assert found is not None
    with pytest.raises(remat.torch.UnsupportedModelError, match="with a graph of their own"):
        remat.torch.fit(model, x, "85%", **QUICK)
    assert outside.weight.grad is None


class Rounded(TorchDispatchMode):
    """Products as if in 16 bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found.bfloat16().float() if func is torch.ops.aten.addmm.default else found


def test_a_call_inside_another_dispatch_mode_runs_as_it_is_written(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Noisy(), inputs()
    twin = copy.deepcopy(model)
    fitted = remat.torch.fit(model, x, "85%", **QUICK)
    for mode in (Rounded(), FlopCounterMode(display=False), Rounded()):
        for each in (fitted, twin):
            each.zero_grad()
            torch.manual_seed(0)
            with mode:
                loss = each(x)
            loss.backward()
        assert all(p.grad.equal(q.grad) for p, q in zip(fitted.parameters(), twin.parameters(), strict=True))
    assert [r.message for r in caplog.records if "dispatch modes (Rounded)" in r.message]
    assert len(caplog.records) == 1


def test_derivatives_by_transforms_are_refused_in_a_line() -> None:
    class Energy(Noisy):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            forward = super().forward
            return torch.func.grad(lambda z: forward(z).square().sum())(x).sum()

    with pytest.raises(remat.torch.UnsupportedModelError, match="torch.func.grad, vjp, jacrev or hessian"):
        remat.torch.fit(Energy(), inputs(), "85%", **QUICK)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_layer_that_is_compiled_inside_runs_compiled(backend: str) -> None:
    class Inside(Noisy):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(WIDTH, WIDTH)
            self.inside.compile(backend=backend)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(F.gelu(self.inside(x)))

    torch.manual_seed(0)
    model = Inside()
    torch.manual_seed(0)
    fitted = remat.torch.fit(Inside(), inputs(), "85%", **QUICK)
    assert same(gradients(fitted, inputs()), gradients(model, inputs()))
