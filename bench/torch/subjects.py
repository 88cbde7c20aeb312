"""What the architectures' benchmark compares: a model in eager mode, planned, or under what PyTorch has."""

from __future__ import annotations

import copy
import gc
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat
import remat.torch
import torch
from remat.torch.base.private import unseen_by_hooks
from remat_models.zoo import Zoo
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

STATED = {"outputs": "dropped", "accumulate": False}


@dataclass(frozen=True)
class Setting:
    """Where and how large: `size` of the zoo, device, type of the parameters, steps that are timed."""

    size: str = "large"
    device: str = "cpu"
    dtype: str = "float32"
    steps: int = 5
    cache: str | None = None

    def build(self, z: Zoo) -> tuple[nn.Module, Any]:
        dtype = getattr(torch, self.dtype)
        model, inputs = z.build(self.size)

        def moved(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            return item.to(self.device, dtype if item.is_floating_point() else None)

        model.to(self.device)
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data = moved(tensor.data)  # complex ones as they are, which `Module.to` would make real
        return model, tree_map(moved, inputs)


@dataclass
class State:
    """What a step leaves."""

    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]

    def differs(self, other: State) -> str:
        """What is not equal bit for bit: "", "buffers" or "gradients" (the loss is one of them)."""
        if not _equal(self.gradients, other.gradients):
            return "gradients"
        return "" if _equal(self.buffers, other.buffers) else "buffers"


class Subject:
    """A model with its inputs and loss."""

    def __init__(self, z: Zoo, model: nn.Module, inputs: Any, run: Callable[..., Any] | None = None) -> None:
        self.z, self.model, self.inputs = z, model, inputs
        self.run = model if run is None else run
        self.device = next(model.parameters()).device
        self.loss = z.loss

    def step(self) -> torch.Tensor:
        inputs = self.inputs
        outputs = self.run(**inputs) if isinstance(inputs, dict) else self.run(*inputs)
        loss = self.loss(outputs)
        del outputs
        loss.backward()
        return loss.detach()

    def peak(self) -> int:
        """Bytes at the peak of a step without existing gradients; of other things on the device, nothing."""
        self.model.zero_grad()
        values = list(self.inputs.values()) if isinstance(self.inputs, dict) else list(self.inputs)
        if self.device.type != "cpu":
            self.step()  # libraries take their workspaces now
            self.model.zero_grad()
            gc.collect()
        return remat.torch.measure_peak(self.step, device=self.device, resident=[self.model, values])

    def state(self) -> State:
        """Loss, gradients and buffers after a step from a fixed seed, on the CPU."""
        torch.manual_seed(3)
        self.model.zero_grad()
        found = [self.step(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        return State(
            [t.detach().cpu().clone() for t in found],
            [t.detach().cpu().clone() for t in self.model.buffers()],
        )

    def seconds(self, elapsed: bool = False) -> float:
        """Of a step: processor time, as other load on the machine counts little there; on CUDA elapsed, and
        where that is asked for.
        """
        self.model.zero_grad()
        if self.device.type == "cpu" and elapsed:
            start = time.perf_counter()
            self.step()
            return time.perf_counter() - start
        if self.device.type == "cpu":
            start = time.process_time()
            self.step()
            return time.process_time() - start
        module: Any = torch.get_device_module(self.device)
        module.synchronize(self.device)
        start = time.perf_counter()
        self.step()
        module.synchronize(self.device)
        return time.perf_counter() - start


def _equal(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(mine) == len(theirs) and all(x.equal(y) for x, y in zip(mine, theirs, strict=True))


def distance(mine: State, theirs: State) -> float:
    """Largest relative distance of a gradient from that of the other."""
    if len(mine.gradients) != len(theirs.gradients):
        return float("inf")
    worst = 0.0
    for x, y in zip(mine.gradients, theirs.gradients, strict=True):
        norm = float(torch.linalg.vector_norm(y.flatten().to(torch.complex128)))
        gap = float(torch.linalg.vector_norm((x - y).flatten().to(torch.complex128)))
        worst = max(worst, gap / norm if norm else gap)
    return worst


def alternate(subjects: list[Subject], steps: int, elapsed: bool = False) -> list[float]:
    """Median seconds of a step of each, steps of all in turn, so that other load hits all."""
    times: list[list[float]] = [[] for _ in subjects]
    for _ in range(steps):
        for each, subject in zip(times, subjects, strict=True):
            each.append(subject.seconds(elapsed))
    return [statistics.median(each) for each in times]


def least_plan(z: Zoo, model: nn.Module, inputs: Any, setting: Setting, seconds: float = 10.0) -> remat.Plan:
    """The plan with the least peak found."""
    torch._dynamo.reset()
    graph = remat.torch.capture(model, inputs, loss=z.loss, cache_dir=setting.cache, **STATED)
    found = remat.plan(graph, objective="peak", time_limit=seconds).plan
    assert found is not None
    return found


def fitted(
    z: Zoo,
    model: nn.Module,
    inputs: Any,
    budget: int,
    setting: Setting,
    plan: Any = None,
    host: Any = None,
) -> Subject:
    torch._dynamo.reset()
    planned = remat.torch.fit(
        model, inputs, budget, loss=z.loss, plan=plan, host=host, cache_dir=setting.cache, **STATED
    )
    return Subject(z, planned, inputs)


def checkpointed(z: Zoo, model: nn.Module, inputs: Any) -> Subject:
    """The model with `torch.utils.checkpoint` around each layer; `transformers` has a switch for it."""
    if hasattr(model, "gradient_checkpointing_enable"):
        switch: Any = model.gradient_checkpointing_enable
        switch(gradient_checkpointing_kwargs={"use_reentrant": False})
        return Subject(z, model, inputs)
    pattern = re.compile(z.layers)
    wrapped = 0
    for name, module in model.named_modules():
        if pattern.fullmatch(name):
            forward = module.forward
            wrapped += 1

            def run(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
                return checkpoint(forward, *args, use_reentrant=False, **unseen_by_hooks(), **kwargs)

            module.forward = run
    assert wrapped, f"{z.name}: no module is named {z.layers}"
    return Subject(z, model, inputs)


def min_cut(z: Zoo, model: nn.Module, inputs: Any, share: float) -> Subject:
    """The model under PyTorch's `activation_memory_budget`: its min-cut partitioner, with the kernels of
    eager mode, and each tensor freed at its last read as by our own executor.
    """
    from functorch.compile import min_cut_rematerialization_partition
    from remat.torch.run.codegen import boxed
    from torch._dynamo.backends.common import aot_autograd

    def compile_boxed(gm: Any, example_inputs: Any) -> Any:
        return boxed(gm)

    torch._dynamo.reset()
    backend: Any = aot_autograd(
        fw_compiler=compile_boxed,
        bw_compiler=compile_boxed,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    compiler: Any = torch.compile
    subject = Subject(z, model, inputs, compiler(model, backend=backend, dynamic=False))
    config: Any = torch._functorch.config
    with config.patch(activation_memory_budget=share, donated_buffer=False):
        subject.step()
    return subject


def resident_bytes() -> int:
    """Of this process, and of its tensors on CUDA."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    cuda: Any = torch.cuda
    return pages * os.sysconf("SC_PAGE_SIZE") + (cuda.memory_allocated() if cuda.is_initialized() else 0)


def copied(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)
