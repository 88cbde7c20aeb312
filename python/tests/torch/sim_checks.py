"""`remat.torch` on a device that is not there (`sim.py`): what a CPU cannot show and needs no GPU.

Run by `test_sim.py`, in a process of its own.
"""

from __future__ import annotations

import copy
import gc
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import sim
import torch
from models import case
from remat.torch.base.devices import runtime_of
from remat.torch.eager import planning
from remat.torch.run import channels
from remat_models.example import GPT, Config
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

EFFORT: dict[str, Any] = {"work_limit": 50_000, "time_limit": None}
HERE, OTHER = torch.device("sim", 0), torch.device("sim", 1)
Inputs = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def memory() -> Iterator[sim.Memory]:
    """Of the first device, with what libraries take for themselves in it and nothing else."""
    runtime_of(HERE).taken_by_libraries()
    gc.collect()
    memory = sim.MEMORY[0]
    before = memory.allocated
    yield memory
    memory.capacity, memory.fraction = 1 << 34, 1.0
    torch._dynamo.reset()
    gc.collect()
    assert memory.allocated == before, "something stays on the device"


def beside() -> int:
    """Bytes of the device that are counted in predictions, and not the test's."""
    return sim.MEMORY[0].allocated - runtime_of(HERE).taken_by_libraries()


def on(device: torch.device, model: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    return model.to(device), tuple(x.to(device) for x in inputs)


def gpt(device: torch.device = HERE) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    model = GPT(Config(layers=2, width=64, heads=2, context=64, dropout=0.1))
    return on(device, model, tuple(torch.randint(128, (4, 64)) for _ in range(2)))


def conv_net() -> tuple[nn.Module, Inputs]:
    return on(HERE, *case("conv_net").build())


def fit(model: nn.Module, inputs: Any, budget: int | str, **options: Any) -> Any:
    return remat.torch.fit(model, inputs, budget, **{**EFFORT, **options})


def state_after(model: nn.Module, inputs: Inputs, steps: int = 1) -> list[torch.Tensor]:
    """Losses, gradients, buffers and the states of generators after steps that add up their gradients."""
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        loss = model(*inputs)
        loss.backward()
        losses.append(loss.detach())
        del loss
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    states = [torch.get_rng_state(), *(torch.get_device_module(HERE).get_rng_state(i) for i in range(2))]
    return [t.cpu().clone() for t in (*losses, *gradients, *model.buffers(), *states)]


def differences(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if not a.equal(b)]


def step_of(model: nn.Module, inputs: Inputs) -> Callable[[], None]:
    return lambda: model(*inputs).backward()


def least_budget(model: nn.Module, inputs: Inputs, **options: Any) -> int:
    """In bytes: what a short search finds."""
    with pytest.raises(remat.NoPlanError) as refused:
        fit(model, inputs, "1%", **options)
    assert refused.value.smallest_known is not None
    return refused.value.smallest_known


# --- the device itself. ---


def test_memory_is_counted_in_blocks_and_runs_out(memory: sim.Memory) -> None:
    start, retries = memory.allocated, memory.retries
    held = [torch.empty(129, device=HERE), torch.empty(0, device=HERE), torch.ones(3, 5, device=HERE).t()]
    assert memory.allocated - start == 1024 + 0 + 512
    view = held[0][100:]
    del held
    assert memory.allocated - start == 1024
    assert view.untyped_storage().nbytes() == 516
    memory.capacity = start + 4096
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 4096 bytes"):
        torch.empty(1024, device=HERE)
    assert memory.retries == retries + 1
    memory.fraction = 0.0
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1, device=HERE)


def test_backwards_run_in_a_thread_of_the_device() -> None:
    model, inputs = on(HERE, nn.Linear(8, 8), (torch.randn(4, 8),))
    with sim.ops_that_run() as ran:
        model(*inputs).sum().backward()
    forward = {thread for thread, op in ran if op == "addmm"}
    backward = {thread for thread, op in ran if op == "mm"}
    assert forward == {threading.current_thread().name}
    assert backward
    assert not backward & forward


def test_a_generator_is_a_seed_and_an_offset() -> None:
    module: Any = torch.get_device_module(HERE)
    torch.manual_seed(3)
    start = module.get_rng_state(HERE)
    assert start.tolist() == [3, *[0] * 15]
    first = torch.rand(5, device=HERE)
    assert module.get_rng_state(HERE).tolist() == [3, *[0] * 7, 8, *[0] * 7]
    module.set_rng_state(start, HERE)
    assert torch.rand(5, device=HERE).equal(first)
    assert not torch.rand(5, device=HERE).equal(first)


# --- steps on it. ---


@pytest.mark.parametrize(
    "budget",
    ["100%", *(pytest.param(share, marks=pytest.mark.long) for share in ("75%", "50%")), "least"],
)
def test_steps_are_those_of_eager_mode_within_the_budget(budget: str) -> None:
    before = beside()
    model, inputs = gpt()
    eager = state_after(copy.deepcopy(model), inputs, steps=3)
    gc.collect()
    bytes_or_share = least_budget(model, inputs) if budget == "least" else budget
    fitted = fit(model, inputs, bytes_or_share)
    with sim.ops_that_run() as ran:
        assert differences(state_after(fitted, inputs, steps=3), eager) == []
    assert len({thread for thread, _ in ran}) == 2
    assert len(fitted.remat.parts) == 2
    for part, grad in zip(fitted.remat.largest_of_each(), ("makes", "adds"), strict=True):
        if grad == "makes":
            fitted.zero_grad()
        assert bool(part.existing_gradients) == (grad == "adds")
        measured = remat.torch.measure_peak(step_of(fitted, inputs), device=HERE) - before
        assert part.predicted_peak <= part.budget
        assert part.predicted_peak == measured
        assert part.recomputed_steps > 0 or budget == "100%"
        assert part.exceeded == 0


@pytest.fixture
def seen_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is written in Python has no kernels where PyTorch leaves Python out of an op."""
    for name, module in list(sys.modules.items()):
        if name.startswith("remat.torch.") and hasattr(module, "without_dispatch_modes"):
            monkeypatch.setattr(module, "without_dispatch_modes", _disable_current_modes)


@pytest.mark.parametrize("budget", ["100%", pytest.param("80%", marks=pytest.mark.long), "least"])
@pytest.mark.usefixtures("seen_by_python")
def test_steps_without_a_trace_are_those_of_eager_mode_within_the_budget(budget: str) -> None:
    before = beside()
    model, inputs = gpt()
    eager = state_after(copy.deepcopy(model), inputs, steps=3)
    gc.collect()
    options: dict[str, Any] = {"executor": "eager", "outputs": "held"}
    bytes_or_share = least_budget(model, inputs, **options) if budget == "least" else budget
    fitted = fit(model, inputs, bytes_or_share, **options)
    with sim.ops_that_run() as ran:
        assert differences(state_after(fitted, inputs, steps=3), eager) == []
    assert len({thread for thread, _ in ran}) == 2
    fitted.zero_grad()
    gc.collect()
    part = fitted.remat.parts[0]
    measured = remat.torch.measure_peak(step_of(fitted, inputs), device=HERE) - before
    assert measured == pytest.approx(part.predicted_peak, rel=0.002)
    assert measured <= part.budget
    assert part.recomputed_steps > 0 or budget == "100%"


@pytest.mark.usefixtures("seen_by_python")
def test_loops_that_call_several_models_are_planned_within_the_budget() -> None:
    (first, batch), (second, _) = gpt(), gpt()
    models = nn.ModuleList([first, second])
    eager = copy.deepcopy(models)
    step = remat.torch.planned(first, second, budget="75%", work_limit=20_000, time_limit=None)

    def run(pair: nn.ModuleList) -> None:
        (pair[0](*batch) * pair[1](*batch)).backward()

    for _ in range(4):
        models.zero_grad()
        eager.zero_grad()
        torch.manual_seed(1)
        run(eager)
        torch.manual_seed(1)
        with step:
            run(models)
        pairs = zip(models.parameters(), eager.parameters(), strict=True)
        assert all(p.grad is not None and p.grad.cpu().equal(q.grad.cpu()) for p, q in pairs)
    (part,) = step.remat.parts
    assert part.recomputed_steps > 0
    assert part.measured_peak == pytest.approx(part.predicted_peak, rel=0.002)
    assert part.measured_peak <= part.budget


def test_what_a_trace_would_replace_by_others_is_refused() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 16, num_layers=2, dropout=0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0].sum()  # type: ignore[no-any-return]

    model, inputs = on(HERE, Recurrent(), (torch.randn(4, 2, 16),))
    with pytest.raises(remat.torch.UnsupportedModelError, match=r'^aten.lstm.*executor="eager"[^\n]*$'):
        fit(model, inputs, "100%", executor="boxed")


def test_statistics_of_batch_norm_change_once() -> None:
    model, inputs = conv_net()
    eager = state_after(copy.deepcopy(model), inputs, steps=2)
    fitted = fit(model, inputs, "70%")
    assert differences(state_after(fitted, inputs, steps=2), eager) == []
    assert fitted.remat.largest().recomputed_steps > 0


def test_a_step_that_does_not_fit_the_device_trains_on_it(memory: sim.Memory) -> None:
    model, inputs = gpt()
    expected = state_after(copy.deepcopy(model), inputs)
    gc.collect()
    keeps_all = remat.torch.measure_peak(step_of(copy.deepcopy(model), inputs), device=HERE)
    gc.collect()
    memory.capacity = memory.allocated + int(0.6 * (keeps_all - memory.allocated))
    with pytest.raises(torch.OutOfMemoryError):
        state_after(copy.deepcopy(model), inputs)
    gc.collect()
    retries, failures = memory.retries, memory.failures
    fitted = fit(model, inputs, "auto")
    optimizer = torch.optim.SGD(fitted.parameters(), lr=1e-3)
    assert differences(state_after(fitted, inputs), expected) == []
    for _ in range(3):
        optimizer.zero_grad()
        fitted(*inputs).backward()
        optimizer.step()
    assert fitted.remat.budget <= memory.capacity
    assert (memory.retries, memory.failures) == (retries, failures)


def test_an_automatic_budget_with_an_optimizer(memory: sim.Memory) -> None:
    model, inputs = gpt()
    memory.capacity, memory.fraction = 1 << 24, 0.5
    taken = torch.empty(1 << 20, dtype=torch.uint8, device=HERE)
    optimizer = torch.optim.AdamW(model.parameters())
    fitted = fit(model, inputs, "auto", optimizer=optimizer)
    assert fitted.remat.budget <= (1 << 23) - taken.numel()
    for _ in range(3):
        fitted(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert memory.failures == 0 or memory.peak <= 1 << 23
    state = sum(t.numel() * 4 for s in optimizer.state.values() for t in s.values() if t.device == HERE)
    assert fitted.remat.largest().reserve >= state
    del optimizer, taken


def test_an_op_that_does_not_fit_while_it_is_measured(memory: sim.Memory) -> None:
    model, inputs = gpt()
    memory.capacity = memory.allocated + (1 << 16)
    expected = (
        r"\(aten\.\w+\.\w+\) does not fit on sim:0 while its cost is measured: sim out of memory.*costs=FILE"
    )
    with pytest.raises(remat.UsageError, match=expected):
        fit(model, inputs, "100%")


def test_a_step_on_two_devices_is_refused() -> None:
    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8).to(HERE), nn.Linear(8, 8).to(OTHER)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).to(OTHER)).sum()

    with pytest.raises(
        remat.torch.UnsupportedModelError, match="a step on sim:0, sim:1: a budget is for one"
    ):
        fit(Spread(), (torch.ones(4, 8, device=HERE),), "100%")


def test_recorded_memory_is_the_prediction_step_by_step() -> None:
    model, inputs = gpt()
    fitted = fit(model, inputs, "70%")
    recording = remat.torch.record(step_of(fitted, inputs), device=HERE)
    assert recording.excess <= 0
    assert recording.measured_peak == remat.torch.measure_peak(step_of(fitted, inputs), device=HERE)


def test_checkpoints_around_a_fitted_model() -> None:
    model, inputs = gpt()
    expected = state_after(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "70%")

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = fitted

        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, *args, use_reentrant=False)

    assert differences(state_after(Checkpointed(), inputs), expected) == []


def test_verification_counts_the_copies_that_it_trains_and_nothing_else() -> None:
    model, inputs = gpt()
    held = torch.empty(1 << 20, device=HERE)
    found = remat.torch.verify(model, inputs, "70%", **EFFORT)
    assert found.equal
    assert found.within
    assert found.measured_peak == found.predicted_peak
    del held


def test_peaks_of_what_is_resident_are_those_of_the_prediction() -> None:
    model, inputs = gpt()
    held = torch.empty(1 << 20, device=HERE)
    optimizer = torch.optim.AdamW(model.parameters())
    fitted = fit(model, inputs, "70%", optimizer=optimizer)
    step_of(fitted, inputs)()
    optimizer.step()
    optimizer.zero_grad()
    resident = [fitted, inputs, optimizer]
    measured = remat.torch.measure_peak(step_of(fitted, inputs), resident=resident)
    assert fitted.remat.predicted_peak == measured
    assert remat.torch.measure_peak(step_of(fitted, inputs)) > measured + held.nbytes
    fitted.zero_grad()
    recorded = remat.torch.record(step_of(fitted, inputs), resident=resident, warmup=0)
    assert recorded.measured_peak == measured
    del held


def test_what_is_beside_a_graph_is_counted_in_blocks() -> None:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)
            self.unused = nn.ParameterList(nn.Parameter(torch.ones(3)) for _ in range(9))
            self.on_the_host = torch.ones(1000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).tanh().square().mean()

    before = beside()
    model, inputs = on(HERE, Beside(), (torch.randn(64, 64),))
    fitted = fit(model, inputs, "100%")
    assert fitted.remat.predicted_peak == remat.torch.measure_peak(step_of(fitted, inputs)) - before


def test_a_step_of_several_graphs_and_a_loss_outside(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.dropout(self.first(x))
            torch._dynamo.graph_break()
            return self.dropout(self.second(x))

    torch.manual_seed(0)
    model, inputs = on(HERE, Broken(), (torch.randn(128, 64),))
    twin = copy.deepcopy(model)

    def losses(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(7)
        for _ in range(2):
            model(*inputs).square().mean().backward()
        return [p.grad.cpu() for p in model.parameters() if p.grad is not None]

    loss: Callable[[Any], torch.Tensor] = lambda y: y.square().mean()  # noqa: E731
    fitted = fit(model, inputs, 1 << 20, loss=loss)
    assert differences(losses(fitted), losses(twin)) == []
    fitted.zero_grad()
    with caplog.at_level(logging.WARNING, "remat.torch"):
        measured = remat.torch.measure_peak(
            lambda: fitted(*inputs).square().mean().backward(), resident=[fitted, inputs]
        )
    assert measured <= fitted.remat.budget
    assert "measured peak" not in caplog.text
    fitted.zero_grad()
    model.cpu()  # what was compiled for the part behind the break stays, and holds the model


def test_the_optimizer_steps_inside_the_backward() -> None:
    model, inputs = gpt()
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, twin))
    fitted = fit(model, inputs, "70%", optimizer=optimizer, step="backward")
    torch.manual_seed(7)
    for _ in range(3):
        fitted(*inputs).backward()
    torch.manual_seed(7)
    for _ in range(3):
        twin(*inputs).backward()
        other.step()
        other.zero_grad()
    assert all(a.equal(b) for a, b in zip(fitted.parameters(), twin.parameters(), strict=True))
    measured = remat.torch.measure_peak(step_of(fitted, inputs), resident=[fitted, inputs, optimizer])
    assert measured <= fitted.remat.predicted_peak <= fitted.remat.budget


def test_the_backend_of_torch_compile() -> None:
    model, inputs = gpt()
    expected = state_after(copy.deepcopy(model), inputs, steps=2)
    compiled: Any = torch.compile(model, backend="remat", options={"budget": "60%", **EFFORT})
    assert differences(state_after(compiled, inputs, steps=2), expected) == []


@pytest.mark.parametrize(
    ("executor", "host"),
    [
        ("boxed", "2GB/s"),
        ("eager", "auto"),
        pytest.param("boxed", "auto", marks=pytest.mark.long),
        pytest.param("eager", "2GB/s", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("seen_by_python")
def test_results_leave_for_memory_of_the_host(executor: str, host: str) -> None:
    empty = torch.empty

    def unpinned(*size: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return empty(*size, **kwargs)  # a device in Python has no allocator of pinned memory

    model, inputs = gpt()
    expected = state_after(copy.deepcopy(model), inputs, steps=3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "_LITTLE", math.inf)  # it copies whatever that costs
        patched.setattr(channels.torch, "empty", unpinned)
        fitted = fit(model, inputs, "50%" if executor == "boxed" else "70%", host=host, executor=executor)
    assert differences(state_after(fitted, inputs, steps=3), expected) == []
    assert fitted.remat.largest().copied_out > 0
    fitted.zero_grad()
    measured = remat.torch.measure_peak(step_of(fitted, inputs), resident=[fitted, inputs])
    assert measured <= (fitted.remat.predicted_peak if executor == "boxed" else fitted.remat.largest().budget)


def test_costs_of_one_device_hold_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "costs.json"
    remat.torch.measure_costs(*gpt(), path)
    # PyTorch has no thread for backwards on the second one: nothing may run there but what is planned.
    monkeypatch.setattr(runtime_of(OTHER), "_by_libraries", 0)
    model, inputs = gpt(OTHER)
    fitted = fit(model, inputs, "70%", costs=str(path))
    assert fitted.remat.largest().distinct_ops == 0
    assert fitted(*inputs).device == OTHER
    assert sim.MEMORY[1].allocated > 0


def test_what_libraries_take_is_counted_though_the_loss_is_looked_at_first(memory: sim.Memory) -> None:
    runtime_of.cache_clear()
    memory.handles.clear()  # as in a process that has computed nothing yet
    gc.collect()
    before = memory.allocated
    model, inputs = on(HERE, nn.Sequential(nn.Linear(64, 64), nn.Tanh()), (torch.randn(64, 64),))
    loss: Callable[[Any], torch.Tensor] = lambda y: (y @ y).square().mean()  # noqa: E731
    fitted = fit(model, inputs, "100%", loss=loss)
    measured = remat.torch.measure_peak(lambda: loss(fitted(*inputs)).backward())
    assert len(memory.handles) == 2
    assert fitted.remat.predicted_peak == measured - before
