#!/usr/bin/env python3
"""The first twenty minutes on a GPU: what was read in PyTorch's sources and never ran, each with a verdict.

    python bench/torch/gpu_check.py --out DIR              on the accelerator, or what a CPU can show
    python bench/torch/gpu_check.py --only steps,products  some of it
    python bench/torch/gpu_check.py --list                 what there is

Every check runs in a process of its own with a time limit, with the allocator as it is and, where that
matters, with expandable segments too. DIR/gpu_check.json holds what was found, DIR/gpu_check.md a table; exit
code 1 if a check failed. Nothing is counted that did not run: `skipped` says why.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.torch
import torch
from remat_models.example import GPT, Config
from remat_models.zoo import animal
from subjects import Setting, Subject, copied, distance
from torch import nn
from torch.nn import functional as F

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
TOTAL_S = 20 * 60


@dataclass
class Found:
    """expected, found: for people. verdict: "passed", "failed", "skipped", "timed out" or "crashed"."""

    expected: str
    found: str
    verdict: str = "passed"

    @classmethod
    def of(cls, expected: str, found: object, passed: bool) -> Found:
        return cls(expected, str(found), "passed" if passed else "failed")


@dataclass(frozen=True)
class Check:
    """What is looked at. gpu: not on a CPU. both: with expandable segments too. limit: seconds."""

    run: Callable[[torch.device], Found]
    gpu: bool = True
    both: bool = False
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


def equal_to_eager(model: nn.Module, inputs: tuple[Any, ...], budget: str) -> Found:
    eager = copy.deepcopy(model)
    expected = state_of(eager, inputs)
    try:
        fitted = remat.torch.fit(model, inputs, budget)
    except remat.NoPlanError as error:
        share = f"{error.smallest_known} bytes"
        fitted = remat.torch.fit(model, inputs, error.smallest_known)
    else:
        share = budget
    wrong = differences(expected, state_of(fitted, inputs))
    part = fitted.remat.largest()
    said = f"{wrong} of {len(expected)} differ at {share}, {part.recomputed_steps} steps run again"
    return Found.of("bits of eager mode", said, wrong == 0)


def attention(device: torch.device) -> Found:
    x = torch.randn(4, 128, 128, device=device)
    found = [equal_to_eager(Attention(dropout).to(device), (x,), "60%") for dropout in (0.1, 0.0)]
    passed = all(each.verdict == "passed" for each in found)
    return Found.of(found[0].expected, "; ".join(each.found for each in found), passed)


def recurrent(device: torch.device) -> Found:
    model, x = Recurrent().to(device), torch.randn(8, 32, 64, device=device)
    try:
        return equal_to_eager(model, (x,), "90%")
    except remat.torch.UnsupportedModelError as error:
        return Found("bits of eager mode, or refused", f"refused: {str(error).splitlines()[0]}")


def gpt(device: torch.device) -> Found:
    model = GPT(Config(layers=4, width=128, heads=4, context=128)).to(device)
    inputs = tuple(torch.randint(128, (4, 128), device=device) for _ in range(2))
    return equal_to_eager(model, inputs, "45%")


def blocks(device: torch.device) -> Found:
    held = torch.empty(12_058_624, dtype=torch.uint8, device=device)
    expandable = "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    expected = 12_058_624 if expandable else 12_582_912
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


def architectures(device: torch.device) -> Found:
    """Predicted against measured, and bits, within several budgets."""
    setting = Setting("small", device.type)
    expandable = "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    tolerance = 0.005 if expandable or device.type == "cpu" else 0.04
    worst, rows, wrong = 0.0, 0, 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name in ("gpt2", "resnet", "unet", "vit"):
            z = animal(name)
            model, inputs = setting.build(z)
            expected = Subject(z, copied(model), inputs).state()
            for budget in ("100%", "75%", "50%"):
                try:
                    fitted = remat.torch.fit(copied(model), inputs, budget, loss=z.loss, time_limit=1.0)
                except remat.NoPlanError:
                    continue
                subject = Subject(z, fitted, inputs)
                wrong += bool(expected.differs(subject.state()))
                predicted = fitted.remat.predicted_peak
                worst = max(worst, subject.peak() / predicted - 1)
                rows += 1
    found = f"{rows} rows, {wrong} differ from eager mode, at most {worst:+.2%}, {len(said)} warnings"
    good = wrong == 0 and worst < tolerance
    return Found.of(f"equal, within {tolerance:.1%} of the prediction", found, good)


def durations(device: torch.device) -> Found:
    """The sum of measured durations beside the eager step."""
    z, setting = animal("gpt2"), Setting("small", device.type)
    model, inputs = setting.build(z)
    subject = Subject(z, copied(model), inputs)
    subject.step()
    eager = sorted(subject.seconds(elapsed=True) for _ in range(7))[3]
    graph = remat.torch.capture(model, inputs, loss=z.loss)
    ratio = graph.base_duration / 1e9 / eager
    return Found.of("0.5 to 2 times the eager step", f"{ratio:.2f} times", 0.5 < ratio < 2)


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


def benchmark_mode(device: torch.device) -> Found:
    """The first step's peak where cuDNN tries its algorithms."""
    torch.backends.cudnn.benchmark = True
    z, setting = animal("resnet"), Setting("small", device.type)
    model, inputs = setting.build(z)
    fitted = remat.torch.fit(model, inputs, "75%", loss=z.loss)
    subject = Subject(z, fitted, inputs)
    first = remat.torch.measure_peak(subject.step, device=device)
    later = remat.torch.measure_peak(subject.step, device=device)
    return Found("documented", f"first step {first} bytes, later {later}")


def residual(device: torch.device) -> Found:
    """A ResNet in fp32 beside eager mode, with cuDNN's batch norm there and without."""
    z, setting = animal("resnet"), Setting("small", device.type)
    model, inputs = setting.build(z)
    found = {}
    for enabled in (True, False):
        with torch.backends.cudnn.flags(enabled=enabled):
            expected = Subject(z, copied(model), inputs).state()
            fitted = remat.torch.fit(copied(model), inputs, "75%", loss=z.loss, time_limit=1.0)
            state = Subject(z, fitted, inputs).state()
        found[enabled] = (state.differs(expected), distance(state, expected))
        torch._dynamo.reset()
    said = "; ".join(
        f"{'with' if enabled else 'without'} cuDNN {differs or 'equal'}, at most {far:.1e}"
        for enabled, (differs, far) in found.items()
    )
    good = not found[False][0] and found[True][1] < 1e-4
    return Found.of("bits of eager mode without cuDNN, last bits with it", said, good)


def whole_step(device: torch.device) -> Found:
    """A step with its recomputation in one CUDA graph: the masks are drawn again as they were."""
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


def half(device: torch.device) -> Found:
    found = []
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        backend: Any = getattr(torch.nn.attention.SDPBackend, name)
        with torch.nn.attention.sdpa_kernel(backend):
            x = torch.randn(4, 128, 128, device=device, dtype=torch.bfloat16)
            each = equal_to_eager(Attention(0.0).to(device, torch.bfloat16), (x,), "60%")
        found.append((name, each))
    said = "; ".join(f"{name}: {each.found}" for name, each in found)
    return Found.of("bits of eager mode", said, all(each.verdict == "passed" for _, each in found))


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
    """Recorded allocations for the simulator of the allocator."""
    module: Any = torch.get_device_module(device)
    folder = Path(os.environ.get("REMAT_GPU_CHECK_OUT", tempfile.gettempdir()))
    names = []
    for name in ("gpt2", "resnet", "unet"):
        for budget in ("100%", "60%"):
            z = animal(name)
            model, inputs = Setting("small", device.type).build(z)
            fitted = remat.torch.fit(copied(model), inputs, budget, loss=z.loss, time_limit=1.0)
            module.memory._record_memory_history()
            Subject(z, fitted, inputs).step()
            path = folder / f"history_{name}_{budget[:-1]}.pickle"
            module.memory._dump_snapshot(str(path))
            module.memory._record_memory_history(enabled=None)
            names.append(path.name)
    return Found("6 files", ", ".join(names))


CHECKS = {
    "attention": Check(attention, gpu=False),
    "recurrent": Check(recurrent, gpu=False),
    "gpt": Check(gpt, gpu=False, both=True),
    "blocks": Check(blocks, both=True),
    "products": Check(products),
    "architectures": Check(architectures, gpu=False, both=True, limit=240),
    "durations": Check(durations, gpu=False, limit=120),
    "automatic": Check(automatic, both=True, limit=120),
    "cudnn.benchmark": Check(benchmark_mode),
    "resnet": Check(residual),
    "bfloat16": Check(half),
    "cuda graph": Check(whole_step),
    "costs": Check(costs_of_another, gpu=False),
    "histories": Check(histories, limit=120),
}


def run_apart(name: str, device: str, extra: dict[str, str], out: Path, limit: float) -> Found:
    """A check in a process of its own."""
    environment = {**os.environ, **extra, "REMAT_GPU_CHECK_OUT": str(out)}
    command = [sys.executable, __file__, "--child", name, "--device", device]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Found("", f"not done after {limit:.0f} s", "timed out")
    if done.returncode == 0:
        return Found(**json.loads(done.stdout.splitlines()[-1]))
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return Found("", f"exit code {done.returncode}: {lines[-1] if lines else ''}", "crashed")


def write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="a folder for what is found")
    parser.add_argument("--only", default=",".join(CHECKS), help="checks by name, with commas")
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
    start, rows = time.monotonic(), []
    for name in given.only.split(","):
        check = CHECKS[name]
        ways: dict[str, dict[str, str]] = {"": {}}
        if check.both and device != "cpu":
            ways = {"native": {}, "expandable segments": EXPANDABLE}
        for way, extra in ways.items():
            left = TOTAL_S - (time.monotonic() - start)
            if check.gpu and device == "cpu":
                found = Found("", "there is no accelerator", "skipped")
            elif left < 1:
                found = Found("", f"{TOTAL_S // 60} minutes are over", "skipped")
            else:
                found = run_apart(name, device, extra, given.out, min(check.limit, left))
            rows.append({"check": name, "allocator": way, **asdict(found)})
            print(f"{name}{f' ({way})' if way else ''}: {found.verdict}: {found.found}", flush=True)
    what = {"device": device, "pytorch": torch.__version__, "remat": remat.__version__}
    if device != "cpu":
        what["name"] = torch.get_device_module(device).get_device_name(0)
    write(given.out / "gpu_check.json", json.dumps({**what, "checks": rows}, indent=1) + "\n")
    lines = [", ".join(f"{key} {value}" for key, value in what.items()), ""]
    lines += ["| check | allocator | expected | found | verdict |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    write(given.out / "gpu_check.md", "\n".join(lines) + "\n")
    return int(any(row["verdict"] not in ("passed", "skipped") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
