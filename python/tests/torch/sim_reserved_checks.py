"""Budgets on reserved bytes, on a device that is not there whose memory the simulated allocator hands out.

Run by `test_sim.py`, in a process of its own.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator

import pytest
import remat
import remat.torch
import sim
import torch
from remat.torch.base.devices import runtime_of
from remat_models.example import GPT, Config
from torch import nn

HERE = torch.device("sim", 0)
Inputs = tuple[torch.Tensor, ...]


class Caching(sim.Memory):
    """Memory that PyTorch's allocator for CUDA keeps for itself, as `remat.CachingAllocator` says."""

    def __init__(self, settings: str, capacity: int | None = None) -> None:
        super().__init__(0)
        self.allocator = remat.CachingAllocator(settings, capacity=capacity)
        self.capacity = capacity or self.capacity

    def take(self, nbytes: int) -> int:
        if nbytes == 0:
            return -1
        try:
            taken = self.allocator.allocate(nbytes)
        except MemoryError:
            self.refuse(nbytes, self.capacity)
        self._count()
        return int(taken)

    def give(self, taken: int) -> None:
        if taken >= 0:
            self.allocator.free(taken)
            self._count()

    def release(self) -> None:
        self.allocator.empty_cache()
        self._count()

    def _count(self) -> None:
        counted = self.allocator
        self.allocated, self.requested = counted.allocated, counted.requested
        self.reserved = counted.reserved
        self.peak = max(self.peak, self.allocated)
        self.requested_peak = max(self.requested_peak, self.requested)


@pytest.fixture
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caching]:
    settings, capacity = request.param if isinstance(request.param, tuple) else (request.param, None)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", settings.partition(":")[2])
    memory = Caching(settings, capacity)
    before, sim.MEMORY[0] = sim.MEMORY[0], memory
    runtime_of.cache_clear()  # what libraries take is new
    yield memory
    torch._dynamo.reset()
    gc.collect()
    sim.MEMORY[0] = before
    runtime_of.cache_clear()


def gpt() -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    model = GPT(Config(layers=4, width=192, heads=4, context=128, dropout=0.1))
    return model.to(HERE), tuple(torch.randint(128, (6, 128)).to(HERE) for _ in range(2))


def trained(model: nn.Module, inputs: Inputs, steps: int = 3) -> None:
    for _ in range(steps):
        model.zero_grad()
        model(*inputs).backward()


@pytest.mark.parametrize(
    ("memory", "share"),
    [
        pytest.param("cuda", 0.7, marks=pytest.mark.long),
        ("cuda:expandable_segments:True", 0.9),
        pytest.param("cuda", 0.9, marks=pytest.mark.long),
        pytest.param("cuda:expandable_segments:True", 0.7, marks=pytest.mark.long),
    ],
    indirect=["memory"],
)
def test_a_budget_on_reserved_bytes_is_kept(memory: Caching, share: float) -> None:
    model, inputs = gpt()
    eager = copy.deepcopy(model)
    trained(eager, inputs)
    eager_needs = memory.reserved
    del eager
    gc.collect()
    fitted = remat.torch.fit(
        model, inputs, int(share * eager_needs), budget_on="reserved", accumulate=False, work_limit=10_000_000
    )
    (report,) = fitted.remat.parts
    memory.release()
    trained(fitted, inputs)
    assert memory.reserved <= report.reserved_peak <= report.budget
    assert memory.reserved > 0.9 * report.reserved_peak, "and it is no more than that by much"


@pytest.mark.parametrize("memory", [("cuda", 64 << 20)], indirect=True)
def test_what_runs_out_of_memory_trains_within_what_the_device_has(memory: Caching) -> None:
    model, inputs = gpt()
    with pytest.raises(torch.OutOfMemoryError):
        trained(model, inputs)
    model.zero_grad()
    gc.collect()
    memory.release()
    # Plans for measured costs are others on a busy machine, and there is little room.
    options = {"margin": 0, "budget_on": "reserved", "accumulate": False, "costs": "roofline"}
    fitted = remat.torch.fit(model, inputs, "auto", work_limit=10_000_000, **options)
    trained(fitted, inputs, steps=5)
    (report,) = fitted.remat.parts
    assert memory.reserved <= report.budget <= memory.capacity
    assert f"reserved_peak = {report.reserved_peak / 2**20:.1f}" in str(report)


@pytest.mark.parametrize("memory", ["cuda"], indirect=True)
def test_a_budget_that_nothing_keeps_is_refused_with_both_numbers(memory: Caching) -> None:
    model, inputs = gpt()
    with pytest.raises(remat.InfeasibleError, match=r"impossible for this step: none goes below .* bytes"):
        remat.torch.fit(
            model, inputs, "12MiB", budget_on="reserved", accumulate=False, work_limit=50_000, time_limit=None
        )


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        torch._dynamo.graph_break()
        return self.second(x).tanh()


@pytest.mark.parametrize("memory", ["cuda"], indirect=True)
def test_graphs_that_share_a_budget_are_refused(memory: Caching) -> None:
    model, x = Broken().to(HERE), torch.randn(4, 8).to(HERE)
    with pytest.raises(remat.UsageError, match="for one graph and one call in flight"):
        remat.torch.fit(
            model, x, "64MiB", loss=torch.sum, budget_on="reserved", work_limit=50_000, time_limit=None
        )
