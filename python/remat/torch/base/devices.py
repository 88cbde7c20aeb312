"""One interface to devices: the CPU, and accelerators by PyTorch's module for each.

These modules (`torch.get_device_module`) have the same functions for CUDA, ROCm (called CUDA there), XPU and
registered devices; `torch.accelerator` has fewer and needs an allocator written in C++.
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
# An upper bound on what rounding to blocks adds for an op or a loss.
_LEFT_OVER = 1 << 16
# Data written before a call is timed, in sizes of the device's last cache.
_CACHES = 4
# Environment variables of the accelerators' allocators, the newest name first.
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Bytes of one saved generator state, by type of device.
_GENERATOR_BYTES = {"cpu": 5056, "cuda": 16}


@dataclass(frozen=True)
class FreeMemory:
    """Bytes of a device. free: available to this process; reserved: held by it, in use or not."""

    free: int
    total: int
    reserved: int


class DeviceRuntime(ABC):
    """A device that PyTorch computes on.

    counts_memory: True if its allocator counts allocated bytes and their peak. Otherwise memory is measured
        by the allocator's events (base/allocator.py).
    """

    counts_memory = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def allocated(self) -> int:
        """Bytes in use. Raises NotImplementedError if they are not counted, as the next two do."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def highest(self) -> int:
        """Peak of bytes in use since `reset_highest`."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def requested(self) -> int:
        """Bytes in use as requested: blocks may be larger by up to 1 MiB each (CUDA, without expandable
        segments). Plans are compared with these.
        """
        return self.allocated()

    def highest_requested(self) -> int:
        """Peak of requested bytes since `reset_highest`."""
        return self.highest()

    def in_blocks(self, allocated: int, requested: int) -> int:
        """Memory measured both ways. A large block may exceed its request by up to 1 MiB, by chance; that is
        not counted.
        """
        if allocated - requested < _LEFT_OVER:
            return allocated
        return -(-requested // _BLOCK) * _BLOCK

    def reset_highest(self) -> None:
        """Reset the peaks to the bytes in use now."""
        raise NotImplementedError(f"{self.device} does not count memory")

    def memory(self) -> FreeMemory | None:
        """Free and reserved memory; None if the device does not tell."""
        return None

    def taken_by_libraries(self) -> int:
        """Bytes that libraries take for themselves when they are first used, in this thread and in that of
        backwards, and keep (cuBLAS up to PyTorch 2.13: 8 MiB and more for each).
        """
        return 0

    def caching_allocator(self) -> str | None:
        """The simulated allocator (`remat.CachingAllocator`) that matches the device's in this process. None
        if freed memory is returned at once.
        """
        return None

    @abstractmethod
    def release_cached(self) -> None:
        """Release the allocator's cached memory."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all queued work."""

    @abstractmethod
    def synchronize_stream(self) -> None:
        """Wait for the work in this thread's stream."""

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
    """Runs a product, and one with a bias (by another library, cuBLASLt), in the threads of forward and
    backward.
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
        """The allocator's byte counters, read directly: the module's other calls flatten and sort all
        statistics, three times a step. Empty if there are none yet.
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
            # Called while a step is traced, without gradients.
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
        """Write enough data that a call reads its inputs from memory, as in a step, and that its kernels are
        queued meanwhile: on an idle device, a small op takes as long as calling it.
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
        """The stream of this thread's ops."""
        return self.module.current_stream(self.device)

    def in_stream(self, stream: Any) -> Any:
        """A context in which ops run in this stream."""
        return self.module.stream(stream)


@cache
def runtime_of(device: torch.device) -> DeviceRuntime:
    """The runtime of a device that holds tensors."""
    return CpuRuntime(device) if device.type == "cpu" else AcceleratorRuntime(device)


def block_bytes(device_type: str) -> int:
    """Sizes of allocations on devices of this type are multiples of it."""
    return 1 if device_type in ("cpu", "meta") else _BLOCK


def generator_bytes(device_type: str) -> int:
    """Of one saved generator state; they are held on the CPU."""
    return _GENERATOR_BYTES.get(device_type, _GENERATOR_BYTES["cuda"])


def generator_bytes_held(device_type: str) -> int:
    """Bytes of device memory of one saved generator state."""
    return generator_bytes(device_type) if device_type == "cpu" else 0


def accelerators_in_use() -> list[torch.device]:
    """Accelerators of this process whose generators may be used; none before the first tensor exists."""
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
    """The device with its index, by default the current one."""
    if device.index is not None or device.type in ("cpu", "meta"):
        return device
    module: Any = torch.get_device_module(device)
    return torch.device(device.type, int(module.current_device()))


def devices_in_use() -> list[torch.device]:
    """The CPU and the accelerators."""
    return [torch.device("cpu"), *accelerators_in_use()]


def device_of_tensors(tensors: list[torch.Tensor]) -> torch.device:
    """The device of an op that reads or makes these: an accelerator if any tensor is there; scalars often
    stay on the CPU.
    """
    devices = [tensor.device for tensor in tensors]
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
