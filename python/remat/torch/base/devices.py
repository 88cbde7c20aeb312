"""What differs between devices, behind one interface: the CPU, and accelerators by PyTorch's module for each.

Those modules (`torch.get_device_module`) say the same by the same names for CUDA, ROCm (which is CUDA there),
XPU and what others register; `torch.accelerator` has fewer of them and asks for an allocator written in C++.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

# Blocks of the allocators of accelerators are multiples of this.
_BLOCK = 512
# More than rounding to them adds to what an op or a loss takes.
_LEFT_OVER = 1 << 16
# What is written before a call is timed, in sizes of the device's last cache.
_CACHES = 4
# Where the settings of the allocators of accelerators stand, the newest name first.
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Bytes of one saved generator state, by type of device.
_GENERATOR_BYTES = {"cpu": 5056, "cuda": 16}


@dataclass(frozen=True)
class FreeMemory:
    """Bytes of a device. free: what this process may still take; reserved: what it has, in use or not."""

    free: int
    total: int
    reserved: int


class DeviceRuntime(ABC):
    """A device that PyTorch computes on.

    counts_memory: does its allocator count what is allocated, and keep the most that was? What is asked about
        memory of a device that does not goes through the events of its allocator (base/allocator.py).
    """

    counts_memory = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def allocated(self) -> int:
        """Bytes in use. Raises NotImplementedError where they are not counted, as the next two do."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def highest(self) -> int:
        """The most bytes that were in use since the mark was set back."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def requested(self) -> int:
        """Bytes in use as they were asked for: blocks can be larger than that, by up to 1 MiB each (CUDA,
        without expandable segments). What was planned is compared with these.
        """
        return self.allocated()

    def highest_requested(self) -> int:
        """The most of them since the mark was set back."""
        return self.highest()

    def in_blocks(self, allocated: int, requested: int) -> int:
        """What something takes, measured both ways. A large block can be up to 1 MiB larger than what was
        asked for: that is chance, and not counted.
        """
        if allocated - requested < _LEFT_OVER:
            return allocated
        return -(-requested // _BLOCK) * _BLOCK

    def reset_highest(self) -> None:
        """Set the marks back to what is in use now."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def memory(self) -> FreeMemory | None:
        """None where the device does not say."""
        return None

    def taken_by_libraries(self) -> int:
        """Bytes that libraries take for themselves when they are first used, in this thread and in that of
        backwards, and keep (cuBLAS up to PyTorch 2.13: 8 MiB and more for each).
        """
        return 0

    def caching_allocator(self) -> str | None:
        """Which simulated allocator (`remat.CachingAllocator`) hands out memory as the device's does in this
        process. None where freed memory goes back at once.
        """
        return None

    @abstractmethod
    def release_cached(self) -> None:
        """Give back what the allocator keeps without using it."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all that was called."""

    @abstractmethod
    def synchronize_stream(self) -> None:
        """Wait for what was called in the stream of this thread."""

    @abstractmethod
    def generator_state(self) -> torch.Tensor:
        """Of the default generator."""

    @abstractmethod
    def set_generator_state(self, state: torch.Tensor) -> None:
        """Set that of the default generator."""

    @abstractmethod
    def time(self, run: Callable[[], Any]) -> int:
        """Nanoseconds that a call takes on the device."""

    def streams(self, count: int) -> list[Any]:
        """New streams of the device. Raises NotImplementedError where it has none."""
        raise NotImplementedError(f"{self.device} has no streams")


class CpuRuntime(DeviceRuntime):
    def release_cached(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def synchronize_stream(self) -> None:
        pass

    def generator_state(self) -> torch.Tensor:
        return torch.get_rng_state()

    def set_generator_state(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)

    def time(self, run: Callable[[], Any]) -> int:
        start = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - start


class _Products(torch.autograd.Function):
    """A product and one with a bias, which is another library's (cuBLASLt), in the thread of the forward and
    in that of the backward.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return _product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return _product(x) + gradients[0]


def _product(x: torch.Tensor) -> torch.Tensor:
    return torch.addmm(x[0], x, x @ x)


class AcceleratorRuntime(DeviceRuntime):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.module: Any = torch.get_device_module(device)
        self.counts_memory = hasattr(self.module, "max_memory_allocated")
        self._by_libraries: int | None = None

    def allocated(self) -> int:
        counted = self._counters("allocated_bytes")
        return int(counted["current"]) if counted else int(self.module.memory_allocated(self.device))

    def highest(self) -> int:
        counted = self._counters("allocated_bytes")
        return int(counted["peak"]) if counted else int(self.module.max_memory_allocated(self.device))

    def requested(self) -> int:
        counted = self._counters("requested_bytes")
        return int(counted["current"]) if counted else self.allocated()

    def highest_requested(self) -> int:
        counted = self._counters("requested_bytes")
        return int(counted["peak"]) if counted else self.highest()

    def _counters(self, name: str) -> Mapping[str, int]:
        """Of bytes, as the allocator gives them: the module's other calls flatten and sort all of its
        statistics first, three times a step. Empty where there are none, or not yet.
        """
        nested = getattr(self.module, "memory_stats_as_nested_dict", None)
        found: Mapping[str, int] = nested(self.device).get(name, {}).get("all", {}) if nested else {}
        return found

    def reset_highest(self) -> None:
        self.module.reset_peak_memory_stats(self.device)

    def memory(self) -> FreeMemory | None:
        if not hasattr(self.module, "mem_get_info"):
            return None
        free, total = self.module.mem_get_info(self.device)
        reserved = int(self.module.memory_reserved(self.device))
        if hasattr(self.module, "get_per_process_memory_fraction"):
            allowed = int(self.module.get_per_process_memory_fraction(self.device) * total)
            free = max(0, min(free, allowed - reserved))
        return FreeMemory(int(free), int(total), reserved)

    def taken_by_libraries(self) -> int:
        if self._by_libraries is None and self.counts_memory and self.device in accelerators_in_use():
            before = self.allocated()
            # It is asked for while a step is traced, without gradients.
            with torch.inference_mode(False), torch.enable_grad():
                x = torch.ones(16, 16, device=self.device, requires_grad=True)
                _Products.apply(x).sum().backward()
            self.synchronize()
            del x
            self._by_libraries = max(0, self.allocated() - before)
        return self._by_libraries or 0

    def caching_allocator(self) -> str | None:
        if not self.counts_memory:
            return None
        set_to = [os.environ.get(name) for name in _ALLOCATOR_SETTINGS]
        return ":".join(["cuda", *[settings for settings in set_to if settings][:1]])

    def release_cached(self) -> None:
        if hasattr(self.module, "empty_cache"):
            self.module.empty_cache()

    def synchronize(self) -> None:
        self.module.synchronize(self.device)

    def synchronize_stream(self) -> None:
        self.current_stream().synchronize()

    def generator_state(self) -> torch.Tensor:
        state: torch.Tensor = self.module.get_rng_state(self.device)
        return state

    def set_generator_state(self, state: torch.Tensor) -> None:
        self.module.set_rng_state(state, self.device)

    def time(self, run: Callable[[], Any]) -> int:
        # Events go to the stream of the current device.
        with self.module.device(self.device):
            start, end = (self.module.Event(enable_timing=True) for _ in range(2))
            self._fill_caches()
            start.record()
            run()
            end.record()
            end.synchronize()
            return int(start.elapsed_time(end) * 1e6)

    def _fill_caches(self) -> None:
        """Write so much that a call reads its inputs from memory, as it does in a step, and that its kernels
        are queued meanwhile: on an idle device the time of a small op is that of calling it.
        """
        properties = getattr(self.module, "get_device_properties", None)
        size = getattr(properties(self.device), "L2_cache_size", 0) if properties else 0
        if size:
            with suppress(torch.OutOfMemoryError):
                torch.empty(_CACHES * size, dtype=torch.uint8, device=self.device).zero_()

    def streams(self, count: int) -> list[Any]:
        if not hasattr(self.module, "Stream"):
            return super().streams(count)
        return [self.module.Stream(self.device) for _ in range(count)]

    def current_stream(self) -> Any:
        """In which this thread's ops run."""
        return self.module.current_stream(self.device)

    def in_stream(self, stream: Any) -> Any:
        """A context in which they run in this one."""
        return self.module.stream(stream)


@cache
def runtime_of(device: torch.device) -> DeviceRuntime:
    """Of a device that tensors are on."""
    return CpuRuntime(device) if device.type == "cpu" else AcceleratorRuntime(device)


def block_bytes(device_type: str) -> int:
    """Sizes of allocations on devices of this type are multiples of it."""
    return 1 if device_type in ("cpu", "meta") else _BLOCK


def generator_bytes(device_type: str) -> int:
    """Of one saved generator state; they are held on the CPU."""
    return _GENERATOR_BYTES.get(device_type, _GENERATOR_BYTES["cuda"])


def generator_bytes_held(device_type: str) -> int:
    """What one saved generator state takes of the device's own memory."""
    return generator_bytes(device_type) if device_type == "cpu" else 0


def accelerators_in_use() -> list[torch.device]:
    """Those of this process whose generators may draw; none before the first tensor is there."""
    found = torch.accelerator.current_accelerator()
    if found is None:
        return []
    module: Any = torch.get_device_module(found)
    if hasattr(module, "is_initialized") and not module.is_initialized():
        return []
    return [torch.device(found.type, index) for index in range(module.device_count())]


def default_device() -> torch.device:
    """The accelerator that is in use, or the CPU."""
    devices = accelerators_in_use()
    return with_index(torch.device(devices[0].type)) if devices else torch.device("cpu")


def with_index(device: torch.device) -> torch.device:
    """Which of its type it is: the current one where nothing is said."""
    if device.index is not None or device.type in ("cpu", "meta"):
        return device
    module: Any = torch.get_device_module(device)
    return torch.device(device.type, int(module.current_device()))


def devices_in_use() -> list[torch.device]:
    """The CPU and the accelerators."""
    return [torch.device("cpu"), *accelerators_in_use()]


def device_of_tensors(tensors: list[torch.Tensor]) -> torch.device:
    """Where an op that reads or makes these runs: on an accelerator, if one of them is there; numbers often
    stay on the CPU.
    """
    devices = [tensor.device for tensor in tensors]
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
