"""A device that is not there: "sim", with memory and kernels of the CPU and the behaviour of a GPU.

PyTorch lets one device be written in Python (`torch.utils.backend_registration`). This one has what differs
between a CPU and a GPU and matters to a budget: backwards run in a thread of its own; its allocator counts,
hands out whole blocks and runs out of memory; a generator is 16 bytes of seed and offset; products need
workspaces, and take more for good in each thread that computes its first one; what is not written in place is
copied from and to the host. Two of them are there, though PyTorch starts a thread for the first alone.

Registering is for the life of a process, so what imports this runs in one of its own (`test_sim.py`).
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import torch
from torch._C import DispatchKey
from torch.utils import dlpack
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME, COUNT = "sim", 2
BLOCK = 512
GENERATOR_BYTES = 16
# What a library takes for good in each thread that asks for a product, and what a product needs beside.
HANDLE_BYTES, PRODUCT_BYTES = 1 << 16, 1 << 14
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution_overrideable", "convolution_backward_overrideable"}

aten: Any = torch.ops.aten


# --- memory: an allocator that counts, and tensors whose memory it is. ---


@dataclass
class Memory:
    """Of one device, in bytes. allocated: in whole blocks; requested: as asked for."""

    index: int
    capacity: int = 1 << 34
    fraction: float = 1.0
    allocated: int = 0
    requested: int = 0
    reserved: int = 0
    peak: int = 0
    requested_peak: int = 0
    retries: int = 0
    failures: int = 0
    handles: dict[int, Any] = field(default_factory=dict)

    def take(self, nbytes: int) -> int:
        """What to give back. Raises torch.OutOfMemoryError."""
        block, most = _whole(nbytes), int(self.capacity * self.fraction)
        if self.allocated + block > most:
            self.retries += 1
            self.release()
            self.refuse(nbytes, most)
        self.allocated += block
        self.requested += nbytes
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)
        self.requested_peak = max(self.requested_peak, self.requested)
        return nbytes

    def refuse(self, nbytes: int, most: int) -> NoReturn:
        self.failures += 1
        raise torch.OutOfMemoryError(
            f"{NAME} out of memory. Tried to allocate {nbytes} bytes. {NAME}:{self.index} has a capacity "
            f"of {most} bytes, of which {most - self.allocated} are free."
        )

    def give(self, taken: int) -> None:
        self.allocated -= _whole(taken)
        self.requested -= taken

    def release(self) -> None:
        self.reserved = self.allocated


MEMORY = [Memory(index) for index in range(COUNT)]
_lock = threading.RLock()


def _whole(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """Without a deleter: one in Python could be called while an error is on its way."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_EXTENSION = 12  # kDLExtDev, which PyTorch reads as this device
_BFLOAT, _COMPLEX, _BOOL = 4, 5, 6
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


_DESCRIBED: list[_Managed] = []  # without owners: PyTorch looks into one after its block is gone


@dataclass
class _Block:
    """taken: of this memory. bytes: of the CPU, as many as the device's block has. dies: calls back with the
    storage.
    """

    memory: Memory
    taken: int
    bytes: torch.Tensor
    described: _Managed
    dies: weakref.ref[torch.UntypedStorage] | None = None


_by_address: dict[int, _Block] = {}


def _free(address: int) -> None:
    with _lock:
        block = _by_address.pop(address)
        block.memory.give(block.taken)
        _DESCRIBED.append(block.described)


def _type_of(dtype: torch.dtype) -> _Type:
    bits = dtype.itemsize * 8
    if dtype is torch.bool:
        return _Type(_BOOL, 8, 1)
    if dtype.is_complex:
        return _Type(_COMPLEX, bits, 1)
    if dtype.is_floating_point:
        return _Type(_BFLOAT if dtype is torch.bfloat16 else 2, bits, 1)
    return _Type(1 if dtype is torch.uint8 else 0, bits, 1)


def allocate(size: Any, stride: Any, dtype: torch.dtype, index: int) -> torch.Tensor:
    """A tensor on a device. Raises torch.OutOfMemoryError."""
    size, stride = tuple(size), tuple(stride)
    length = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    nbytes = length * dtype.itemsize
    memory = torch.empty(max(_whole(nbytes), BLOCK), dtype=torch.uint8)
    shape, strides = ((ctypes.c_int64 * max(1, len(size)))(*each) for each in (size, stride))
    described = _Tensor(
        memory.data_ptr(), _Device(_EXTENSION, index), len(size), _type_of(dtype), shape, strides, 0
    )
    address = memory.data_ptr()
    with _lock:
        taken = MEMORY[index].take(nbytes)
        managed = _DESCRIBED.pop() if _DESCRIBED else _Managed()
        managed.tensor = described
        block = _by_address[address] = _Block(MEMORY[index], taken, memory, managed)
    made = dlpack.from_dlpack(_new_capsule(ctypes.addressof(managed), b"dltensor", None))
    # PyTorch keeps the Python object of a storage as long as the storage lives.
    block.dies = weakref.ref(made.untyped_storage(), lambda _: _free(address))
    return made


def on_the_host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor that shows the memory of one on the device."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = _by_address[storage.data_ptr()].bytes.view(tensor.dtype)
    shown = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    if tensor.is_conj():
        shown = shown.conj()
    return torch._neg_view(shown) if tensor.is_neg() else shown


def _on_device(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """What a kernel of the CPU made, in memory of the device."""
    # The kernel's own result was there before, as far as anybody can tell.
    found = allocate(tensor.shape, tensor.stride(), tensor.dtype, index)
    on_the_host(found).copy_(tensor)
    return found


# --- generators: a seed and an offset, as those of CUDA. ---


@dataclass
class Generator:
    seed: int = 0
    offset: int = 0

    def draw(self, count: int) -> torch.Generator:
        """For as many numbers: what it gives depends on the state alone."""
        with _lock:
            now = torch.Generator().manual_seed((self.seed * 1_000_003 + self.offset) % (1 << 63))
            self.offset += -(-max(1, count) // 4) * 4
        return now


GENERATORS = [Generator() for _ in range(COUNT)]


# --- kernels: those of the CPU, on the device's memory. ---


def _is_here(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.device.type == NAME


def _index_of(items: list[Any]) -> int:
    found = {item.device.index for item in items if _is_here(item)}
    if len(found) > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found {sorted(found)} of {NAME}"
        )
    return found.pop() if found else 0


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]


def _resize(tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Give a tensor the shape and the values that a kernel gave to what showed its memory."""
    made = _on_device(like, tensor.device.index)
    set_ = aten.set_.source_Storage_storage_offset
    set_._op_dk(DispatchKey.CPU, tensor, made.untyped_storage(), 0, made.shape, made.stride())


@contextmanager
def _workspace(name: str, index: int) -> Iterator[None]:
    if name not in PRODUCTS:
        yield
        return
    thread, memory = threading.get_ident(), MEMORY[index]
    if thread not in memory.handles:
        memory.handles[thread] = allocate((HANDLE_BYTES,), (1,), torch.uint8, index)
    scratch = allocate((PRODUCT_BYTES,), (1,), torch.uint8, index)
    yield
    del scratch


# PyTorch would make these of others, or refuse them, on a device without such a kernel.
_AS_ON_THE_HOST = (
    "native_layer_norm",
    "native_group_norm",
    "convolution_overrideable",
    "convolution_backward_overrideable",
)
RAN: list[tuple[str, str]] = []  # threads and ops, while somebody looks
_look = False


@contextmanager
def ops_that_run() -> Iterator[list[tuple[str, str]]]:
    """Names of threads and of the ops that ran in them."""
    global _look
    RAN.clear()
    _look = True
    try:
        yield RAN
    finally:
        _look = False


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any op that has no kernel for the device below."""
    name = op._schema.name.partition("::")[2]
    if _look:
        RAN.append((threading.current_thread().name, name))
    aliases = [r.alias_info for r in op._schema.returns]
    if name == "set_" or (aliases and all(a is not None and not a.is_write for a in aliases)):
        return op._op_dk(DispatchKey.CPU, *args, **kwargs)  # a view: nothing is computed
    given = _tensors(args, kwargs)
    index = _index_of(given)
    here = [(t, on_the_host(t)) for t in given if _is_here(t)]
    hosts = {id(t): host for t, host in here}
    args, kwargs = tree_map(lambda t: hosts.get(id(t), t) if _is_here(t) else t, (args, kwargs))
    args = [_as_described(a, given) for a, given in zip(op._schema.arguments, args, strict=False)]
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    if "generator" in {a.name for a in op._schema.arguments} and kwargs.get("generator") is None:
        kwargs["generator"] = GENERATORS[index].draw(max((t.numel() for t, _ in here), default=1))
    with _workspace(name, index):
        result = _run(op, name, args, kwargs)
        back = {id(host): t for t, host in here}
        made = tree_map(lambda r: _returned(r, back, index), result)
    for tensor, host in here:
        if host.shape != tensor.shape:
            _resize(tensor, host)
    return made


def _as_described(argument: Any, given: Any) -> Any:
    """A number that PyTorch wrapped in a tensor comes here without it."""
    is_number = isinstance(given, (int, float))
    return torch.tensor(given) if is_number and str(argument.type) == "Tensor" else given


def _returned(result: Any, back: dict[int, torch.Tensor], index: int) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
    return back[id(result)] if id(result) in back else _on_device(result, index)


def _run(op: Any, name: str, args: Any, kwargs: Any) -> Any:
    if name == "convolution_overrideable":
        return aten.convolution.default(*args, **kwargs)
    if name == "convolution_backward_overrideable":
        gradient, x, weight, stride, padding, dilation, transposed, output_padding, groups, mask = args
        bias = [weight.shape[1] * groups if transposed else weight.shape[0]]
        settings = (stride, padding, dilation, transposed, output_padding, groups, mask)
        return aten.convolution_backward.default(gradient, x, weight, bias, *settings, **kwargs)
    return op(*args, **kwargs)


def _empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    like = torch.empty(
        size, dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format
    )
    return allocate(size, like.stride(), dtype, _index(device))


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    return allocate(size, stride, dtype or torch.get_default_dtype(), _index(device))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    hosts = (on_the_host(t) if _is_here(t) else t for t in (target, source))
    next(hosts).copy_(next(hosts))
    return target


def _resize_(tensor: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    host = on_the_host(tensor).clone()
    _resize(tensor, host.resize_(size))
    return tensor


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    index, host = x.device.index, on_the_host(x)
    mask = torch.empty_like(host, dtype=torch.bool)
    if train is False:
        mask.fill_(True)
        return _on_device(host, index), _on_device(mask, index)
    mask.bernoulli_(1 - p, generator=GENERATORS[index].draw(host.numel()))
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return _on_device(host * mask * scale, index), _on_device(mask, index)


def _fused_sdp_choice(*args: Any, **kwargs: Any) -> int:
    return 0  # the math of it: nothing here is fused


def _index(device: Any) -> int:
    index = None if device is None else torch.device(device).index
    return MODULE.current_device() if index is None else index


# --- what PyTorch asks of a device beside its kernels. ---


class Event:
    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        """In ms."""
        return (other.at - self.at) * 1e3


class Stream:
    """Nothing here is asynchronous."""

    def __init__(self, device: Any = None, **_: Any) -> None:
        self.device = torch.device(NAME, _index(device))

    def synchronize(self) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event


class Module:
    """`torch.sim`: the names that `torch.cuda`, `torch.xpu` and others have in common."""

    Event, Stream = Event, Stream
    _initialized = True

    def __init__(self) -> None:
        self._current = threading.local()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return COUNT

    def current_device(self) -> int:
        return int(getattr(self._current, "index", 0))

    def set_device(self, device: Any) -> None:
        self._current.index = device if isinstance(device, int) else _index(device)

    def get_device_name(self, device: Any = None) -> str:
        return "a device that is not there"

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self.set_device(device)
        try:
            yield
        finally:
            self.set_device(before)

    def synchronize(self, device: Any = None) -> None:
        pass

    def current_stream(self, device: Any = None) -> Stream:
        return getattr(self._current, "stream", None) or Stream(device)

    def stream(self, stream: Stream | None) -> Any:
        return self._in_stream(stream)

    @contextmanager
    def _in_stream(self, stream: Stream | None) -> Iterator[None]:
        before = getattr(self._current, "stream", None)
        self._current.stream = stream
        try:
            yield
        finally:
            self._current.stream = before

    def memory(self, device: Any = None) -> Memory:
        """Not one of the common names: for tests, that set capacities."""
        return MEMORY[device if isinstance(device, int) else _index(device)]

    def memory_allocated(self, device: Any = None) -> int:
        return self.memory(device).allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        return self.memory(device).peak

    def memory_reserved(self, device: Any = None) -> int:
        return self.memory(device).reserved

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = self.memory(device)
        return memory.capacity - memory.reserved, memory.capacity

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        return self.memory(device).fraction

    def memory_stats_as_nested_dict(self, device: Any = None) -> dict[str, Any]:
        memory = self.memory(device)
        return {
            "allocated_bytes": {"all": {"current": memory.allocated, "peak": memory.peak}},
            "requested_bytes": {"all": {"current": memory.requested, "peak": memory.requested_peak}},
        }

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        memory = self.memory(device)
        return {
            "allocated_bytes.all.current": memory.allocated,
            "allocated_bytes.all.peak": memory.peak,
            "requested_bytes.all.current": memory.requested,
            "requested_bytes.all.peak": memory.requested_peak,
            "reserved_bytes.all.current": memory.reserved,
            "num_alloc_retries": memory.retries,
            "num_ooms": memory.failures,
        }

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        memory = self.memory(device)
        memory.peak, memory.requested_peak = memory.allocated, memory.requested

    def empty_cache(self) -> None:
        for memory in MEMORY:
            memory.release()

    def manual_seed_all(self, seed: int) -> None:
        for generator in GENERATORS:
            generator.seed, generator.offset = seed, 0

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        generator = GENERATORS[_index(device)]
        return torch.tensor([generator.seed, generator.offset]).view(torch.uint8).clone()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        assert state.device.type == "cpu"
        assert state.numel() == GENERATOR_BYTES
        generator = GENERATORS[_index(device)]
        generator.seed, generator.offset = state.clone().view(torch.int64).tolist()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


_clone = torch.UntypedStorage.clone


def _clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """PyTorch would ask for an allocator written in C++."""
    if storage.device.type != NAME:
        return _clone(storage)
    made = allocate((storage.nbytes(),), (1,), torch.uint8, storage.device.index)
    address = storage.data_ptr()
    if address:
        on_the_host(made).copy_(_by_address[address].bytes[: storage.nbytes()])
    return made.untyped_storage()


MODULE = Module()
_libraries: list[torch.library.Library] = []


def _register() -> None:
    torch.UntypedStorage.clone = _clone_storage  # type: ignore[method-assign]
    _setup_privateuseone_for_python_backend(NAME, backend_module=MODULE)
    every = torch.library.Library("_", "IMPL")
    # Dynamo would look into them where a model runs between its graphs.
    every.fallback(torch.compiler.disable(_kernel), "PrivateUse1")
    own = torch.library.Library("aten", "IMPL")
    kernels: dict[str, Callable[..., Any]] = {
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "_copy_from": _copy_from,
        "resize_": _resize_,
        "native_dropout": _native_dropout,
        "_fused_sdp_choice": _fused_sdp_choice,
    }
    kernels |= {name: partial(_kernel, getattr(aten, name).default) for name in _AS_ON_THE_HOST}
    for name, kernel in kernels.items():
        own.impl(name, torch.compiler.disable(kernel), "PrivateUse1")
    _libraries.extend([every, own])


_register()
