#!/usr/bin/env python3
"""The first twenty minutes on a GPU: checks of behaviour known only from PyTorch's sources, each with a
verdict.

    python bench/torch/gpu_check.py --out DIR              on the accelerator, or what a CPU can show
    python bench/torch/gpu_check.py --only steps,products  some of it
    python bench/torch/gpu_check.py --list                 what there is

Every check runs in a process of its own with a time limit, with the allocator as it is and, where that
matters, with expandable segments too. --jobs: so many at once, but for those that measure time or fill the
memory, which come last. DIR/gpu_check.json holds what was found, DIR/gpu_check.md a table, DIR/NAME.log what
a check wrote; exit code 1 if a check failed. Nothing is counted that did not run: `skipped` says why.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.replay
import remat.torch
import torch
from remat_models.example import GPT, Config
from remat_models.zoo import animal
from rows import table
from subjects import STATED, Setting, Subject, alternate, checkpointed, copied, distance
from torch import nn
from torch.nn import functional as F

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
TOTAL_S = 20 * 60
# The GPT of the examples returns its loss.
EXAMPLE = replace(animal("gpt2"), name="gpt", loss=lambda loss: loss, layers=r"blocks\.\d+")


@dataclass
class Found:
    """expected, found: texts. verdict: "passed", "failed", "skipped", "timed out" or "crashed"."""

    expected: str
    found: str
    verdict: str = "passed"

    @classmethod
    def of(cls, expected: str, found: object, passed: bool) -> Found:
        return cls(expected, str(found), "passed" if passed else "failed")


@dataclass(frozen=True)
class Check:
    """A check. gpu: not on a CPU. both: also with expandable segments. alone: runs alone. limit: seconds."""

    run: Callable[[torch.device], Found]
    gpu: bool = True
    both: bool = False
    alone: bool = False
    limit: int = 60


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers, self.dropout = nn.ModuleList(nn.Linear(128, 384) for _ in range(4)), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            q, k, v = layer(x).view(*x.shape[:2], 3, 4, 32).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
            x = x + y.transpose(1, 2).reshape(x.shape)
        return x.square().mean()


class Branching(nn.Module):
    """Takes another branch if its input has a negative sum."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16 if i == 0 else 256, 256) for i in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = bool(x.sum() < 0)
        for layer in self.layers:
            x = torch.tanh(layer(x))
            x = F.softplus(x) if turn else F.dropout(x, 0.1)
        return x.square().mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 64, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0].square().mean()


def state_of(model: nn.Module, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """Loss, gradients and the generator's state after a step from a fixed seed."""
    torch.manual_seed(7)
    model.zero_grad()
    loss = model(*inputs)
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    device = next(model.parameters()).device
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return [loss.detach().clone(), *gradients, *states]


def differences(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> int:
    return sum(not a.equal(b) for a, b in zip(mine, theirs, strict=True)) + abs(len(mine) - len(theirs))


def equal_to_eager(model: nn.Module, inputs: tuple[Any, ...], budget: str, executor: str = "boxed") -> Found:
    eager = copy.deepcopy(model)
    expected = state_of(eager, inputs)
    try:
        fitted = remat.torch.fit(model, inputs, budget, executor=executor)
    except remat.NoPlanError as error:
        share = f"{error.smallest_known} bytes"
        fitted = remat.torch.fit(model, inputs, error.smallest_known, executor=executor)
    else:
        share = budget
    wrong = differences(expected, state_of(fitted, inputs))
    part = fitted.remat.largest()
    said = f"{wrong} of {len(expected)} differ at {share}, {part.recomputed_steps} steps run again"
    return Found.of("bits of eager mode", said, wrong == 0)


def all_of(found: dict[str, Found]) -> Found:
    """One result for several of a kind."""
    said = "; ".join(f"{name}: {each.found}" for name, each in found.items())
    good = all(each.verdict == "passed" for each in found.values())
    return Found.of(next(iter(found.values())).expected, said, good)


def attention(device: torch.device, executor: str = "boxed") -> Found:
    x = torch.randn(4, 128, 128, device=device)
    return all_of(
        {
            f"dropout {share}": equal_to_eager(Attention(share).to(device), (x,), "60%", executor)
            for share in (0.1, 0.0)
        }
    )


def recurrent(device: torch.device, executor: str = "boxed") -> Found:
    model, x = Recurrent().to(device), torch.randn(8, 32, 64, device=device)
    try:
        return equal_to_eager(model, (x,), "90%", executor)
    except remat.torch.UnsupportedModelError as error:
        return Found("bits of eager mode, or refused", f"refused: {str(error).splitlines()[0]}")


def gpt(device: torch.device, executor: str = "boxed") -> Found:
    model = GPT(Config(layers=4, width=128, heads=4, context=128)).to(device)
    inputs = tuple(torch.randint(128, (4, 128), device=device) for _ in range(2))
    return equal_to_eager(model, inputs, "45%", executor)


def is_expandable() -> bool:
    """True if segments of the allocator can grow."""
    return "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def blocks(device: torch.device) -> Found:
    held = torch.empty(12_058_624, dtype=torch.uint8, device=device)
    expected = 12_058_624 if is_expandable() else 12_582_912
    found = torch.get_device_module(device).memory_allocated(device)
    del held
    return Found.of(f"{expected} bytes", f"{found} bytes", found == expected)


def products(device: torch.device) -> Found:
    module: Any = torch.get_device_module(device)
    x = torch.ones(256, 256, device=device, requires_grad=True)
    before = module.memory_allocated(device)
    (x @ x).sum().backward()
    x.grad = None
    module.synchronize(device)
    kept = module.memory_allocated(device) - before
    expected = "8519680 bytes for each thread (32 MiB on Hopper) up to 2.13, 0 from 2.15 on"
    return Found.of(expected, f"{kept} bytes stay", kept < 80 << 20)


def architectures(device: torch.device, executor: str = "boxed") -> Found:
    """Predicted against measured, and bits, within several budgets."""
    setting = Setting("small", device.type)
    tolerance = 0.005 if is_expandable() or device.type == "cpu" else 0.04
    off: dict[str, float] = {}
    wrong: list[str] = []
    refused: list[str] = []
    random: list[str] = []
    for name in ("gpt2", "resnet", "unet", "vit"):
        z = animal(name)
        model, inputs = setting.build(z)
        torch.backends.cudnn.deterministic = False
        if not is_deterministic(z, model, inputs):
            random.append(name)
            torch.backends.cudnn.deterministic = True
        expected = Subject(z, copied(model), inputs).state()
        for budget in ("100%", "75%", "50%"):
            options: Any = {"loss": z.loss, "time_limit": 1.0, "executor": executor, **STATED}
            row = f"{name} {budget}"
            try:
                fitted = remat.torch.fit(copied(model), inputs, budget, **options)
            except remat.NoPlanError:
                continue
            except remat.torch.UnsupportedModelError:
                refused.append(row)
                continue
            subject = Subject(z, fitted, inputs)
            if differs := expected.differs(subject.state()):
                wrong.append(f"{row} {differs} ({distance(subject.state(), expected):.1e})")
            measured, predicted = subject.peak(), fitted.remat.predicted_peak
            off[row] = measured / predicted - 1
            print(row, measured, predicted, fitted.remat.largest().summary(), file=sys.stderr)
    least, most = (choose(off, key=lambda each: off[each]) for choose in (min, max))
    found = f"{len(off)} rows, {len(wrong)} differ ({', '.join(wrong)}), {len(refused)} refused "
    found += f"({', '.join(refused)}); from {off[least]:+.2%} ({least}) to {off[most]:+.2%} ({most}); "
    found += f"eager mode differs from itself without cudnn.deterministic: {', '.join(random) or 'none'}"
    good = not wrong and off[most] < tolerance
    return Found.of(f"equal or refused, within {tolerance:.1%} of the prediction", found, good)


def is_deterministic(z: Any, model: nn.Module, inputs: Any) -> bool:
    """True if two steps of eager mode give equal results."""
    first, second = (Subject(z, copied(model), inputs).state() for _ in range(2))
    return not first.differs(second)


def durations(device: torch.device) -> Found:
    """The sum of measured durations beside an eager step that keeps the device busy."""
    large = device.type != "cpu"
    config = Config(50304, 512, 6, 8, 512) if large else Config(128, 64, 2, 2, 64)
    model = GPT(config).to(device)
    inputs = tuple(torch.randint(128, (32, config.context), device=device) for _ in range(2))
    subject = Subject(EXAMPLE, copied(model), inputs)
    subject.step()
    (eager,) = alternate([subject], 7, elapsed=True)
    graph = remat.torch.capture(model, inputs)
    ratio = graph.base_duration / 1e9 / eager
    return Found.of("0.5 to 2 times the eager step", f"{ratio:.2f} of {eager * 1e3:.1f} ms", 0.5 < ratio < 2)


def automatic(device: torch.device) -> Found:
    """Twenty steps within budget="auto" while 90 % of the memory is taken."""
    module: Any = torch.get_device_module(device)
    free, _ = module.mem_get_info(device)
    taken = torch.empty(int(0.9 * free), dtype=torch.uint8, device=device)
    model = GPT(Config(layers=8, width=512, heads=8, context=256)).to(device)
    inputs = tuple(torch.randint(128, (16, 256), device=device) for _ in range(2))
    fitted = remat.torch.fit(model, inputs, "auto")
    for _ in range(20):
        fitted.zero_grad()
        fitted(*inputs).backward()
    retries = module.memory_stats(device).get("num_alloc_retries", 0)
    del taken
    return Found.of("no failure, 0 retries", f"{retries} retries", retries == 0)


def take_workspaces(device: torch.device) -> None:
    """Allocates library workspaces first, which would dominate small steps."""
    x = torch.ones(16, 16, device=device, requires_grad=True)
    (x @ x).sum().backward()


def benchmark_mode(device: torch.device) -> Found:
    """The first step's peak where cuDNN tries its algorithms."""
    torch.backends.cudnn.benchmark = True
    z, setting = animal("resnet"), Setting("small", device.type)
    model, inputs = setting.build(z)
    take_workspaces(device)
    fitted = remat.torch.fit(model, inputs, "90%", loss=z.loss)
    subject = Subject(z, fitted, inputs)
    first = remat.torch.measure_peak(subject.step, device=device)
    later = remat.torch.measure_peak(subject.step, device=device)
    return Found("documented", f"first step {first} bytes, later {later}")


def residual(device: torch.device) -> Found:
    """A ResNet in fp32, traced and not, beside eager mode, with cuDNN's batch norm there and without."""
    z, setting = animal("resnet"), Setting("small", device.type)
    model, inputs = setting.build(z)
    found = {}
    for enabled in (True, False):
        for executor in ("boxed", "eager"):
            name = f"{executor} {'with' if enabled else 'without'} cuDNN"
            options: Any = {"loss": z.loss, "time_limit": 1.0, "executor": executor}
            with torch.backends.cudnn.flags(enabled=enabled, deterministic=True):
                expected = Subject(z, copied(model), inputs).state()
                try:
                    fitted = remat.torch.fit(copied(model), inputs, "90%", **options)
                except remat.torch.UnsupportedModelError as error:
                    found[name] = Found("", f"refused: {str(error).partition(':')[0]}")
                    continue
                state = Subject(z, fitted, inputs).state()
            differs, far = state.differs(expected) or "equal", distance(state, expected)
            found[name] = Found.of("", f"{differs}, at most {far:.1e}", differs == "equal")
        torch._dynamo.reset()
    one = all_of(found)
    return Found("bits of eager mode, or refused", one.found, one.verdict)


def whole_step(device: torch.device) -> Found:
    """A step with its recomputation in one CUDA graph: masks are redrawn equal."""
    cuda: Any = torch.cuda
    model = GPT(Config(layers=2, width=128, heads=4, context=128)).to(device)
    inputs = tuple(torch.randint(128, (4, 128), device=device) for _ in range(2))
    expected = state_of(copy.deepcopy(model), inputs)
    fitted = remat.torch.fit(model, inputs, "60%")
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(3):
            fitted.zero_grad()
            fitted(*inputs).backward()
    cuda.current_stream().wait_stream(side)
    fitted.zero_grad()
    graph = cuda.CUDAGraph()
    wanted = "masks of eager mode, or an error"
    try:
        with cuda.graph(graph):
            loss = fitted(*inputs)
            loss.backward()
    except RuntimeError as error:
        return Found(wanted, f"refused: {str(error).splitlines()[0]}")
    torch.manual_seed(7)
    graph.replay()
    cuda.synchronize()
    found = [loss.detach(), *(p.grad for p in fitted.parameters() if p.grad is not None)]
    wrong = differences(found, expected[: len(found)])
    again = fitted.remat.largest().recomputed_steps
    return Found.of(wanted, f"{wrong} of {len(found)} differ, {again} steps run again", wrong == 0)


def half(device: torch.device, executor: str = "boxed") -> Found:
    found = {}
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        backend: Any = getattr(torch.nn.attention.SDPBackend, name)
        with torch.nn.attention.sdpa_kernel(backend):
            x = torch.randn(4, 128, 128, device=device, dtype=torch.bfloat16)
            found[name] = equal_to_eager(Attention(0.0).to(device, torch.bfloat16), (x,), "60%", executor)
    return all_of(found)


def branches(device: torch.device) -> Found:
    """A model that cannot be traced, by default: each way once recorded, once planned, within the budget."""
    torch.manual_seed(1)
    model, x = Branching().to(device), torch.rand(4096, 16, device=device)
    eager = copy.deepcopy(model)
    there = remat.torch.measure_peak(lambda: eager(x).backward(), device=device, resident=[eager, x])
    eager.zero_grad()
    budget = int(0.85 * there)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fitted = remat.torch.fit(model, (x,), budget)
        wrong, most = 0, 0
        for inputs in (x, -x, -x, x, -x):
            wrong += differences(state_of(eager, (inputs,)), state_of(fitted, (inputs,)))
            eager.zero_grad()
            fitted.zero_grad()

            def step(inputs: torch.Tensor = inputs) -> None:
                fitted(inputs).backward()

            most = max(most, remat.torch.measure_peak(step, device=device, resident=[fitted, inputs]))
    found = f"{wrong} differ, {most} bytes at most of {budget}, {len(said)} warnings"
    tolerance = 1.005 if device.type == "cpu" else 1.04
    return Found.of("bits of eager mode, within the budget", found, wrong == 0 and most < tolerance * budget)


def step_times(device: torch.device, executors: tuple[str, ...] = ("boxed", "eager")) -> Found:
    """A GPT as large as is usual, in bfloat16: time and bytes of each executor beside eager mode."""
    large = device.type != "cpu"
    config = Config(50304, 1024, 12, 12, 768) if large else Config(128, 64, 2, 2, 64)
    torch.manual_seed(0)
    batch = (16 if large else 4, config.context)
    inputs = tuple(torch.randint(config.vocabulary, batch, device=device) for _ in range(2))
    model = GPT(config).to(device, torch.bfloat16)
    options: Any = {"time_limit": 2.0, **STATED}
    rows = {"eager mode": Subject(EXAMPLE, copied(model), inputs)}
    peak, said = rows["eager mode"].peak(), []
    for executor, share in product(executors, (0.7, 0.5)):
        start = time.perf_counter()
        name = f"{executor} {share:.0%}"
        try:
            fitted = remat.torch.fit(copied(model), inputs, f"{share:.0%}", **options, executor=executor)
        except (remat.RematError, RuntimeError) as error:
            said.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            print(said[-1], file=sys.stderr, flush=True)
            continue
        rows[name] = Subject(EXAMPLE, fitted, inputs)
        predicted = fitted.remat.predicted_peak
        off = rows[name].peak() / predicted - 1
        said.append(
            f"{name}: plan {1 + fitted.remat.overhead:.3f} with {fitted.remat.largest().recomputed_steps} "
            f"steps again, predicted {predicted / peak:.1%} of "
            f"eager mode's peak, measured {off:+.2%}, fit {time.perf_counter() - start:.0f} s"
        )
        print(said[-1], file=sys.stderr, flush=True)
    torch._dynamo.reset()
    rows["checkpoints"] = checkpointed(EXAMPLE, copied(model), inputs)
    said.append(f"checkpoints around blocks: {rows['checkpoints'].peak() / peak:.1%} of eager mode's peak")
    for subject in rows.values():
        subject.seconds(elapsed=True)
    times = dict(zip(rows, alternate(list(rows.values()), 9, elapsed=True), strict=True))
    first = times["eager mode"]
    said += [f"{name} takes {took / first:.3f}" for name, took in times.items() if name != "eager mode"]
    return Found("documented", f"eager mode {first * 1e3:.1f} ms, {peak} bytes; " + "; ".join(said))


def too_large(device: torch.device) -> Found:
    """A GPT whose step runs out of memory in eager mode, with budget="auto" beside a batch that fits. On what
    is reserved, where segments cannot grow: they fragment.
    """
    options: Any = STATED if is_expandable() else {**STATED, "budget_on": "reserved"}
    take_workspaces(device)  # later they would lie in a segment of gigabytes, and keep it
    module: Any = torch.get_device_module(device)
    config = Config(50304, 1024, 12, 12, 768)
    model = GPT(config).to(device, torch.bfloat16)

    def subject(model: nn.Module, batch: int) -> Subject:
        inputs = tuple(torch.randint(config.vocabulary, (batch, config.context), device=device) for _ in "ab")
        return Subject(EXAMPLE, model, inputs)

    def rate(subject: Subject, batch: int) -> float:
        subject.step()
        (seconds,) = alternate([subject], 5)
        return batch / seconds

    each = subject(model, 16).peak() // 16
    batch = int(1.25 * module.mem_get_info(device)[1] / each)
    within = int(0.6 * batch)
    before = rate(subject(model, within), within)
    model.zero_grad()
    try:
        subject(model, batch).step()
        return Found("runs out of memory in eager mode", f"batch {batch} does not", "failed")
    except torch.OutOfMemoryError:
        model.zero_grad()
        module.empty_cache()
    found = subject(model, batch)
    start = time.perf_counter()
    found.run = remat.torch.fit(model, found.inputs, "auto", **options)
    took = time.perf_counter() - start
    report = found.run.remat
    after, peak = rate(found, batch), found.peak()
    retries = module.memory_stats(device).get("num_alloc_retries", 0)
    said = f"batch {within} in eager mode: {before:.0f} sequences/s; batch {batch}: out of memory; planned: "
    said += (
        f"{after:.0f} sequences/s, {peak} bytes of {report.budget}, {peak / report.predicted_peak - 1:+.2%} "
    )
    said += f"of the prediction, plan {1 + report.overhead:.3f}, fit {took:.0f} s, {retries} retries in all"
    return Found.of("trains within the budget", said, peak <= report.budget)


def costs_of_another(device: torch.device) -> Found:
    """Costs that were measured on the first device hold for the last one."""
    count = torch.get_device_module(device).device_count() if device.type != "cpu" else 1
    model, x = Attention(0.0), torch.randn(4, 128, 128)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.json"
        first = torch.device(device.type, 0) if device.type != "cpu" else device
        last = torch.device(device.type, count - 1) if device.type != "cpu" else device
        remat.torch.measure_costs(copy.deepcopy(model).to(first), (x.to(first),), path)
        fitted = remat.torch.fit(model.to(last), (x.to(last),), "100%", costs=str(path))
    measured = fitted.remat.largest().distinct_ops
    return Found.of("0 ops measured again", f"{measured} on device {count - 1} of {count}", measured == 0)


def histories(device: torch.device) -> Found:
    """All allocations of a process, replayed in the simulated allocator."""
    module: Any = torch.get_device_module(device)
    module.memory._record_memory_history(max_entries=1_000_000)
    take_workspaces(device)
    config = Config(512, 512, 4, 8, 512)
    inputs = tuple(torch.randint(128, (16, config.context), device=device) for _ in range(2))
    for budget in ("100%", "60%"):
        fitted = remat.torch.fit(GPT(config).to(device), inputs, budget)
        for _ in range(3):
            fitted.zero_grad()
            fitted(*inputs).backward()
    folder = Path(os.environ.get("REMAT_GPU_CHECK_OUT", tempfile.gettempdir()))
    path = folder / f"history_{'expandable' if is_expandable() else 'native'}.pickle"
    module.memory._dump_snapshot(str(path))
    module.memory._record_memory_history(enabled=None)
    (found,) = remat.replay.replay(remat.replay.load_history(path))
    said = ", ".join(f"{key} {value}" for key, value in found.report().items())
    same = found.reserved_peak == found.recorded_reserved_peak
    return Found.of("the simulation reserves what the device did", said, same)


CHECKS = {
    "attention": Check(attention, gpu=False),
    "recurrent": Check(recurrent, gpu=False),
    "gpt": Check(gpt, gpu=False, both=True),
    "blocks": Check(blocks, both=True),
    "products": Check(products),
    "architectures": Check(architectures, gpu=False, both=True, limit=240),
    "durations": Check(durations, gpu=False, alone=True, limit=120),
    "automatic": Check(automatic, both=True, alone=True, limit=120),
    "cudnn.benchmark": Check(benchmark_mode),
    "resnet": Check(residual),
    "bfloat16": Check(half),
    "cuda graph": Check(whole_step),
    "costs": Check(costs_of_another, gpu=False),
    "histories": Check(histories, both=True),
    "eager attention": Check(partial(attention, executor="eager"), gpu=False),
    "eager recurrent": Check(partial(recurrent, executor="eager"), gpu=False),
    "eager gpt": Check(partial(gpt, executor="eager"), gpu=False, both=True),
    "eager bfloat16": Check(partial(half, executor="eager")),
    "eager architectures": Check(partial(architectures, executor="eager"), gpu=False, both=True, limit=240),
    "eager branches": Check(branches, gpu=False, both=True),
    "step times": Check(step_times, alone=True, limit=240),
    "too large": Check(too_large, both=True, alone=True, limit=120),
    "inductor times": Check(partial(step_times, executors=("inductor",)), alone=True, limit=240),
}


@dataclass(frozen=True, eq=False)
class Run:
    """A check with one setting of the allocator."""

    name: str
    way: str
    extra: dict[str, str]

    @property
    def check(self) -> Check:
        return CHECKS[self.name]

    @property
    def called(self) -> str:
        return f"{self.name} ({self.way})" if self.way else self.name


def run_apart(run: Run, device: str, out: Path, limit: float) -> Found:
    """A check in a process of its own."""
    environment = {**os.environ, **run.extra, "REMAT_GPU_CHECK_OUT": str(out)}
    command = [sys.executable, __file__, "--child", run.name, "--device", device]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as late:
        found = Found("", f"not done after {limit:.0f} s", "timed out")
        wrote = late.stderr or b""
        errors = wrote.decode(errors="replace") if isinstance(wrote, bytes) else wrote
    else:
        errors = done.stderr
        if done.returncode == 0:
            found = Found(**json.loads(done.stdout.splitlines()[-1]))
        else:
            lines = [line for line in errors.splitlines() if line.strip()]
            found = Found("", f"exit code {done.returncode}: {lines[-1] if lines else ''}", "crashed")
    if errors.strip():
        write(out / (re.sub(r"\W+", "_", run.called).strip("_") + ".log"), errors)
    return found


def runs(names: list[str], device: str) -> list[Run]:
    """In the order of the table."""
    found = []
    for name in names:
        ways: dict[str, dict[str, str]] = {"": {}}
        if CHECKS[name].both and device != "cpu":
            ways = {"native": {}, "expandable segments": EXPANDABLE}
        found += [Run(name, way, extra) for way, extra in ways.items()]
    return found


def found_by(run: Run, device: str, out: Path, start: float) -> Found:
    """start: of all, as time.monotonic() had it."""
    left = TOTAL_S - (time.monotonic() - start)
    if run.check.gpu and device == "cpu":
        found = Found("", "there is no accelerator", "skipped")
    elif left < 1:
        found = Found("", f"{TOTAL_S // 60} minutes are over", "skipped")
    else:
        found = run_apart(run, device, out, min(run.check.limit, left))
    print(f"{run.called}: {found.verdict}: {found.found}", flush=True)
    return found


def all_found(wanted: list[Run], device: str, out: Path, jobs: int) -> dict[Run, Found]:
    """jobs: number in parallel, if allowed."""
    start = time.monotonic()
    found: dict[Run, Found] = {}
    beside = [run for run in wanted if not run.check.alone]
    with ThreadPoolExecutor(jobs) as pool:
        found.update(
            zip(beside, pool.map(lambda run: found_by(run, device, out, start), beside), strict=True)
        )
    for run in wanted:
        if run.check.alone:
            found[run] = found_by(run, device, out, start)
    return found


def write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="a folder for what is found")
    parser.add_argument("--only", default=",".join(CHECKS), help="checks by name, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="so many checks at once")
    parser.add_argument("--device", default="", help="by default the accelerator, or the CPU")
    parser.add_argument("--list", action="store_true", help="the names of the checks")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = [name for name in given.only.split(",") if name not in CHECKS]
    if unknown:
        parser.error(f"unknown check {unknown[0]}; there are {', '.join(CHECKS)}")
    return given


def main() -> int:
    given = parse()
    accelerator = torch.accelerator.is_available() and torch.accelerator.current_accelerator()
    device = given.device or (accelerator.type if accelerator else "cpu")
    if given.child:
        torch.set_num_threads(1)
        print(json.dumps(asdict(CHECKS[given.child].run(torch.device(device)))))
        return 0
    if given.list:
        print("\n".join(CHECKS))
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = runs(given.only.split(","), device)
    found = all_found(wanted, device, given.out, given.jobs)
    rows = [{"check": run.name, "allocator": run.way, **asdict(found[run])} for run in wanted]
    what = {"device": device, "pytorch": torch.__version__, "remat": remat.__version__}
    if device != "cpu":
        what["name"] = torch.get_device_module(device).get_device_name(0)
    write(given.out / "gpu_check.json", json.dumps({**what, "checks": rows}, indent=1) + "\n")
    lines = [", ".join(f"{key} {value}" for key, value in what.items()), ""]
    lines += table("check|allocator|expected|found|verdict", [list(map(str, row.values())) for row in rows])
    write(given.out / "gpu_check.md", "\n".join(lines) + "\n")
    return int(any(row["verdict"] not in ("passed", "skipped") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
