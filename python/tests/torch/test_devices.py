"""What differs between devices: the seam, with PyTorch's module for an accelerator played by the tests.

What this cannot show: that kernels, streams and allocators of a real device do what their modules say.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import case
from remat.torch.base import devices
from remat.torch.base.devices import (
    AcceleratorRuntime,
    CpuRuntime,
    DeviceRuntime,
    block_bytes,
    device_of_tensors,
    runtime_of,
)
from remat.torch.base.generators import generators_kept
from remat.torch.base.nodes import may_run_twice, storage_bytes
from remat.torch.base.private import CUDNN_BATCH_NORM, DispatchKey, FakeTensor, FakeTensorMode
from remat.torch.cost import profile, standins
from remat.torch.cost.cost import signature
from remat.torch.plan.budget import auto_budget
from remat.torch.session.pipeline import device_of
from remat.torch.trace.kernels import _RECURRENT, _ops_of, _refused_kernels
from torch import fx, nn
from training import fit

aten: Any = torch.ops.aten
OTHER = torch.device("privateuseone", 1)


def on(device: str | torch.device, *shape: int) -> torch.Tensor:
    """A tensor that says that it is there."""
    return FakeTensor(FakeTensorMode(), torch.empty(shape, device="meta"), torch.device(device))


class Event:
    """Time goes by a millisecond for each event."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        Event.now += 1.0
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


class Module:
    """What PyTorch has for an accelerator: bytes that the tests set, and calls that they look at."""

    Event = Event

    def __init__(self, **more: Any) -> None:
        self.bytes, self.most, self.reserved, self.free, self.total = 100, 300, 400, 1000, 2000
        self.called: list[str] = []
        self.state = torch.zeros(16, dtype=torch.uint8)
        self.entered: list[torch.device] = []
        self.__dict__.update(more)

    def memory_allocated(self, device: torch.device) -> int:
        return self.bytes

    def max_memory_allocated(self, device: torch.device) -> int:
        return self.most

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        self.most = self.bytes

    def memory_reserved(self, device: torch.device) -> int:
        return self.reserved

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return self.free, self.total

    def empty_cache(self) -> None:
        self.called.append("empty_cache")

    def synchronize(self, device: torch.device) -> None:
        self.called.append("synchronize")

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        return self.state.clone()

    def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
        self.state = state.clone()

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.entered.append(device)
        yield


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    found = Module()
    monkeypatch.setattr(torch, "get_device_module", lambda device: found)
    runtime_of.cache_clear()
    yield found
    runtime_of.cache_clear()


def test_the_cpu_counts_nothing_and_an_accelerator_what_its_module_says(module: Module) -> None:
    cpu, other = runtime_of(torch.device("cpu")), runtime_of(OTHER)
    assert isinstance(cpu, CpuRuntime)
    assert not cpu.counts_memory
    for asked in (cpu.allocated, cpu.highest, cpu.reset_highest):
        with pytest.raises(NotImplementedError, match="cpu does not count memory"):
            asked()
    assert isinstance(other, AcceleratorRuntime)
    assert other.counts_memory
    assert (other.allocated(), other.highest()) == (100, 300)
    other.reset_highest()
    assert other.highest() == 100
    assert other is runtime_of(OTHER)


def test_counters_are_read_without_the_rest_of_the_statistics(module: Module) -> None:
    counted = {"current": 7, "peak": 9}
    statistics: dict[str, Any] = {}
    module.memory_stats_as_nested_dict = lambda device: statistics  # type: ignore[attr-defined]
    assert (runtime_of(OTHER).allocated(), runtime_of(OTHER).highest()) == (100, 300)  # not initialized
    statistics["allocated_bytes"] = {"all": counted, "small_pool": {"current": 1, "peak": 1}}
    assert (runtime_of(OTHER).allocated(), runtime_of(OTHER).highest()) == (7, 9)
    # PyTorch has it for these.
    for known in (torch.cuda, torch.xpu):
        assert known.memory_stats_as_nested_dict() == {}


def test_calls_are_timed_by_events_of_their_own_device(module: Module) -> None:
    ran = []
    assert runtime_of(OTHER).time(lambda: ran.append(1)) == 1_000_000
    assert ran == [1]
    assert module.entered == [OTHER]
    assert runtime_of(torch.device("cpu")).time(lambda: ran.append(2)) > 0


def test_calls_are_timed_behind_work_that_fills_the_caches(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Any] = []

    def empty(size: int, *, dtype: torch.dtype, device: torch.device) -> Any:
        if device is OTHER and size > 4000:
            raise torch.OutOfMemoryError("full")
        return SimpleNamespace(zero_=lambda: order.append(size * dtype.itemsize))

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(Event, "record", lambda self: order.append("event"))
    cache = SimpleNamespace(L2_cache_size=1000)
    module.get_device_properties = lambda device: cache  # type: ignore[attr-defined]
    runtime_of(OTHER).time(lambda: order.append("call"))
    assert order == [4000, "event", "call", "event"]
    cache.L2_cache_size = 2000  # for which there is no room
    runtime_of(OTHER).time(lambda: order.append("call"))
    assert order == [4000, *(2 * ["event", "call", "event"])]


def test_a_device_without_streams_has_no_host(module: Module) -> None:
    with pytest.raises(NotImplementedError, match="privateuseone:1 has no streams"):
        runtime_of(OTHER).streams(2)


@pytest.mark.parametrize(
    ("fraction", "budget"),
    [(1.0, 1000 + 400 - 100), (0.5, 600 + 400 - 100), (0.1, 400 - 100)],
    ids=["all", "half", "less_than_it_has"],
)
def test_an_automatic_budget_knows_what_the_process_may_have(
    module: Module, fraction: float, budget: int
) -> None:
    module.get_per_process_memory_fraction = lambda device: fraction  # type: ignore[attr-defined]
    assert auto_budget(OTHER, resident=0, reserve=0, margin=0) == budget
    # What the step itself has there is its own.
    assert auto_budget(OTHER, resident=100, reserve=0, margin=0) == budget + 100


def test_a_device_that_does_not_say_what_it_has_gets_no_automatic_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace())
    runtime_of.cache_clear()
    with pytest.raises(remat.BudgetError, match="needs a device that says how much memory it has"):
        auto_budget(OTHER, 0, 0, 0)
    with pytest.raises(remat.UsageError, match="privateuseone:1 does not count the memory"):
        remat.torch.measure_peak(lambda: None, device=OTHER)
    runtime_of.cache_clear()


def test_what_libraries_take_is_measured_once(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = torch.ones

    def first_product(*shape: int, device: torch.device, requires_grad: bool) -> torch.Tensor:
        module.bytes += 8_519_680
        return ones(*shape, requires_grad=requires_grad)

    monkeypatch.setattr(devices, "accelerators_in_use", lambda: [OTHER])
    monkeypatch.setattr(torch, "ones", first_product)
    assert [runtime_of(OTHER).taken_by_libraries() for _ in range(2)] == [8_519_680] * 2
    assert module.bytes == 100 + 8_519_680
    assert runtime_of(torch.device("cpu")).taken_by_libraries() == 0


def test_generators_of_all_devices_are_kept(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "accelerators_in_use", lambda: [OTHER])
    before = torch.get_rng_state()
    with generators_kept():
        torch.rand(3)
        module.state = torch.ones(16, dtype=torch.uint8)
    assert torch.equal(torch.get_rng_state(), before)
    assert not module.state.any()


def test_sizes_on_accelerators_are_whole_blocks() -> None:
    assert [block_bytes(kind) for kind in ("cpu", "meta", "cuda", "xpu")] == [1, 1, 512, 512]
    assert storage_bytes(on(OTHER, 129)) == 1024
    assert storage_bytes(torch.empty(129)) == 516


def test_nothing_else_asks_for_cuda() -> None:
    folder = Path(remat.torch.__file__).parent
    words = ('"cuda"', "cuda: Any", "= torch.cuda", " torch.cuda.")
    asking = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        if any(word in file.read_text() for word in words)
    }
    # Costs hold for a version of CUDA.
    assert asking == {"base/devices.py", "cost/environment.py"}


def test_an_op_runs_where_its_large_tensors_are() -> None:
    assert device_of_tensors([torch.ones(()), on(OTHER, 8)]) == OTHER
    assert device_of_tensors([torch.ones(())]) == torch.device("cpu")
    assert device_of_tensors([]) == torch.device("cpu")


def test_a_step_on_two_accelerators_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert device_of([torch.ones(1), parameter]) == torch.device("cpu")
    assert device_of([on(OTHER, 2), on(OTHER, 3)]) == OTHER
    expected = "a step on privateuseone:0, privateuseone:1: a budget is for one device"
    with pytest.raises(remat.torch.UnsupportedModelError, match=expected):
        device_of([on(OTHER, 2), on("privateuseone:0", 3)])


def node_of(op: Any, args: tuple[Any, ...], result: Any, **kwargs: Any) -> fx.Node:
    """A call of an op on placeholders for tensors, as tracing leaves it."""
    graph = fx.Graph()
    given = []
    for i, arg in enumerate(args):
        if isinstance(arg, torch.Tensor):
            placeholder = graph.placeholder(f"x{i}")
            placeholder.meta["val"] = arg
            given.append(placeholder)
        else:
            given.append(arg)
    node = graph.call_function(op, tuple(given), kwargs)
    node.meta["val"] = result
    return node


def test_costs_hold_for_all_devices_of_a_type() -> None:
    def described(index: int) -> str:
        where = torch.device("privateuseone", index)
        return signature(node_of(aten.sum.default, (on(where, 8),), on(where), device=where))

    assert described(0) == described(1)
    assert "privateuseone" in described(0)
    assert described(0) != signature(node_of(aten.sum.default, (on("cpu", 8),), on("cpu"), device=None))


def test_copies_from_another_device_and_layers_with_a_state_never_run_again() -> None:
    there, here = on(OTHER, 4), torch.empty(4)
    assert not may_run_twice(node_of(aten._to_copy.default, (here,), there, device=OTHER))
    assert may_run_twice(node_of(aten._to_copy.default, (here,), torch.empty(4, dtype=torch.bfloat16)))
    assert not may_run_twice(node_of(aten._cudnn_rnn.default, (there,), (there, there, there)))
    assert may_run_twice(node_of(aten.relu.default, (there,), there))


def test_seeds_of_attention_are_on_the_host_whatever_the_trace_says() -> None:
    x, scalar = torch.ones(2), torch.ones((), dtype=torch.int64)
    op = aten._scaled_dot_product_efficient_attention_backward.default
    args = (x, x, x, x, None, x, x, scalar, scalar, 0.1, [True, True, True, False])
    node = node_of(op, args, (x, x, x, x))
    assert [n.name for n in standins.on_the_host(node)] == ["x7", "x8"]
    assert standins.on_the_host(node_of(aten.relu.default, (x,), x)) == []


class Full(DeviceRuntime):
    """A CPU that has no room left so many times."""

    def __init__(self, times: int) -> None:
        super().__init__(torch.device("cpu"))
        self.times, self.released = times, 0

    def release_cached(self) -> None:
        self.released += 1

    def time(self, run: Any) -> int:
        return 0

    def synchronize(self) -> None: ...
    def synchronize_stream(self) -> None: ...
    def generator_state(self) -> torch.Tensor:
        return torch.get_rng_state()

    def set_generator_state(self, state: torch.Tensor) -> None: ...


@pytest.mark.parametrize("times", [1, 2])
def test_an_op_that_does_not_fit_while_it_is_measured(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    full, measured = Full(times), profile._measure_traced

    def measure(*args: Any) -> Any:
        full.times -= 1
        if full.times >= 0:
            raise torch.OutOfMemoryError("tried to allocate 2 GiB\nmore")
        return measured(*args)

    model, inputs = case("mlp").build()
    monkeypatch.setattr(profile, "runtime_of", lambda device: full)
    monkeypatch.setattr(profile, "_measure_traced", measure)
    expected = r"does not fit on cpu while its cost is measured: tried to allocate 2 GiB; free memory"
    with pytest.raises(remat.UsageError, match=expected) if times == 2 else nullcontext():
        remat.torch.capture(model, inputs)
    assert full.released == 1
    if times == 1:
        assert fit(model, inputs, "100%").remat.predicted_peak > 0


def test_pytorch_traces_others_for_what_is_refused_on_accelerators() -> None:
    """Where a release traces such an op as itself, the refusal would not act."""
    key = DispatchKey.Autograd
    refused = [op for op in (*_ops_of(_RECURRENT), CUDNN_BATCH_NORM) if key in op.py_kernels]
    assert {op._overloadpacket.__name__ for op in refused} == {*_RECURRENT, "cudnn_batch_norm"}
    before = [op.py_kernels[key] for op in refused]
    with _refused_kernels(bits=True):
        within = [op.py_kernels[key] for op in refused]
    for op, kernel in zip(refused, within, strict=True):
        with pytest.raises(remat.torch.UnsupportedModelError, match=rf"^{re.escape(str(op))}: .*$"):
            kernel()
    assert [op.py_kernels[key] for op in refused] == before
    with _refused_kernels(bits=False):
        assert CUDNN_BATCH_NORM.py_kernels[key] in before


def gpu_check(folder: Path, checks: str) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parents[3] / "bench" / "torch" / "gpu_check.py"
    command = [sys.executable, str(script), "--out", str(folder), "--device", "cpu", "--only", checks]
    return subprocess.run(command, capture_output=True, text=True)


# Each check is a process of its own, beside that of the script.
@pytest.mark.parametrize(
    ("checks", "verdicts"),
    [
        ("blocks", ["skipped"]),
        pytest.param("blocks,costs", ["skipped", "passed"], marks=pytest.mark.long),
    ],
)
def test_the_first_twenty_minutes_on_a_gpu_say_on_a_cpu_what_they_leave_out(
    tmp_path: Path, checks: str, verdicts: list[str]
) -> None:
    done = gpu_check(tmp_path, checks)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    assert [row["check"] for row in found["checks"]] == checks.split(",")
    assert [row["verdict"] for row in found["checks"]] == verdicts
    assert "| blocks |  |  | there is no accelerator | skipped |" in (tmp_path / "gpu_check.md").read_text()


@pytest.mark.long
def test_an_unknown_check_on_a_gpu_is_refused(tmp_path: Path) -> None:
    refused = gpu_check(tmp_path, "all")
    assert refused.returncode == 2
    assert "unknown check all; there are attention, " in refused.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget_on": "reserved"}, 'here it is the same as budget_on="peak"'),
        ({"budget_on": "live"}, 'must be "peak" or "reserved", not \'live\''),
        ({"budget_on": "reserved", "host": "25GB/s"}, "do not go together"),
        ({"budget_on": "reserved", "executor": "inductor"}, 'needs executor="boxed"'),
    ],
)
def test_budgets_on_reserved_bytes_are_for_allocators_that_keep_memory(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(remat.RematError, match=re.escape(says)):
        remat.torch.fit(nn.Linear(4, 4), torch.randn(2, 4), "100%", loss=torch.sum, **options)


def test_an_accelerators_allocator_has_the_settings_of_the_process(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime_of(torch.device("cpu")).caching_allocator() is None
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert AcceleratorRuntime(torch.device("cuda", 0)).caching_allocator() == "cuda:expandable_segments:True"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:200")
    assert AcceleratorRuntime(torch.device("cuda", 0)).caching_allocator() == "cuda:max_split_size_mb:200"
