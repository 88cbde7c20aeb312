"""Records a real step op by op: inputs and outputs of each op, and the release of each storage.

Plans for our own executor come from AOTAutograd's trace, in which values live until their last reader. A step
run by PyTorch itself keeps more: values in Python's variables, autograd's saved tensors, and the arguments of
every region until its backward is done. So the step runs once, and storages are watched.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_iter, tree_leaves
from torch.utils.checkpoint import SAC_IGNORED_OPS

from ..base.errors import UnsupportedModelError
from ..base.private import OpOverload, TorchDispatchMode, autograd_node_number, schema
from .regions import Around, Region


@dataclass(frozen=True)
class TensorLike:
    """Properties of a tensor that may have been freed."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    storage_bytes: int
    storage: int  # its number


@dataclass
class RecordedOp:
    """func: what ran, on args and kwargs with tensors replaced by TensorLike; result: likewise.

    made: numbers of new storages; reads: of its other arguments; written: of those that it wrote to, by its
    schema. by: number of the autograd node that ran it.
    """

    func: Any
    args: Any
    kwargs: Any
    result: Any
    reads: tuple[int, ...]
    made: tuple[int, ...]
    written: tuple[int, ...]
    backward: bool
    by: int = -1

    @property
    def is_view(self) -> bool:
        return not self.made and bool(tensors_like(self.result)) and not self.written


@dataclass
class RegionCall:
    """One call of a block. ops: of its first run, as the policy counts them; again: of its recomputation."""

    name: str
    region: Region | None
    ops: list[tuple[str, int, int]] = field(default_factory=list)
    again: dict[tuple[str, int], int] = field(default_factory=dict)
    begin: int = 0
    end: int = 0
    again_begin: int = -1
    again_end: int = -1
    freed: int | None = None  # the op after which nothing of it is needed any more
    backward: bool = False  # it was called while the backward ran
    on_cpu: bool = True

    def saves(self, name: str, number: int) -> bool:
        return self.region is not None and number in self.region.save.get(name, ())

    @property
    def is_repeated(self) -> bool:
        """True if the recomputed ops are, in order, the first run's ops that were not saved."""
        first = [(name, number) for name, number, _ in self.ops if not self.saves(name, number)]
        return list(self.again) == first[: len(self.again)]


@dataclass
class Recorded:
    """ops, in order. last: by storage, the last op before its release; None: never released. bytes, device:
    by storage. resident: existing storages with their names; buffers: those of buffers.
    """

    ops: list[RecordedOp] = field(default_factory=list)
    calls: list[RegionCall] = field(default_factory=list)
    bytes: dict[int, int] = field(default_factory=dict)
    device: dict[int, torch.device] = field(default_factory=dict)
    last: dict[int, int | None] = field(default_factory=dict)
    resident: set[int] = field(default_factory=set)
    buffers: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)


def tensors_like(item: Any) -> list[TensorLike]:
    return [leaf for leaf in tree_leaves(item) if isinstance(leaf, TensorLike)]


class _Recorder(TorchDispatchMode):
    """State: what is recorded; the storages that are watched; the regions that run now."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = Recorded()
        self.backward = False
        self.running: list[tuple[RegionCall, bool, Counter[str]]] = []
        self._number: dict[int, int] = {}
        self._alive: dict[int, StorageWeakRef] = {}
        self._refs: list[StorageWeakRef] = []

    def number_of(self, tensor: torch.Tensor) -> int:
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            raise UnsupportedModelError(
                f"checkpoint_policy: the step makes a {kind} tensor; the memory of dense ones alone is known"
            )
        storage = tensor.untyped_storage()
        ref = StorageWeakRef(storage)
        number = self._number.get(ref.cdata)
        if number is None:
            number = len(self._number)
            self._number[ref.cdata] = number
            self._alive[number] = ref
            self._refs.append(ref)  # while it is referenced, its address is not reused
            self.recorded.bytes[number] = storage.nbytes()
            self.recorded.device[number] = tensor.device
        return number

    def add_resident(self, name: str, tensor: torch.Tensor, buffer: bool = False) -> None:
        number = self.number_of(tensor)
        self._alive.pop(number, None)
        self.recorded.resident.add(number)
        self.recorded.names.setdefault(number, name)
        if buffer:
            self.recorded.buffers.add(number)

    def describe(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            number = self.number_of(item)
            return TensorLike(
                tuple(item.shape),
                tuple(item.stride()),
                item.storage_offset(),
                item.dtype,
                item.device,
                self.recorded.bytes[number],
                number,
            )
        if isinstance(item, (list, tuple)):
            made = [self.describe(each) for each in item]
            return tuple(made) if isinstance(item, tuple) else made
        if isinstance(item, dict):
            return {key: self.describe(value) for key, value in item.items()}
        return item

    def look(self) -> None:
        """Finds the storages released since the op before."""
        gone = [number for number, ref in self._alive.items() if ref.expired()]
        for number in gone:
            del self._alive[number]
            self.recorded.last[number] = len(self.recorded.ops) - 1

    def finish(self) -> Recorded:
        self.look()
        for number in self._alive:
            self.recorded.last[number] = None
        return self.recorded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.look()
        recorded = self.recorded
        position = len(recorded.ops)
        given = self.describe((args, kwargs))
        before = len(self._number)
        result = func(*args, **kwargs)
        told = self.describe(result)
        read = dict.fromkeys(each.storage for each in tensors_like(given))
        made = tuple(range(before, len(self._number)))
        written = tuple(
            leaf.storage
            for described, argument in _arguments(func, given[0], given[1])
            if described.alias_info is not None and described.alias_info.is_write
            for leaf in tensors_like(argument)
        )
        recorded.ops.append(
            RecordedOp(
                func,
                given[0],
                given[1],
                told,
                tuple(read),
                made,
                written,
                self.backward,
                autograd_node_number(),
            )
        )
        if self.running and func not in SAC_IGNORED_OPS:
            call, again, counted = self.running[-1]
            name = str(func)
            if again:
                while call.saves(name, counted[name]):  # which does not run, and does not show here
                    counted[name] += 1
                call.again[name, counted[name]] = position
            else:
                call.ops.append((name, counted[name], position))
                call.on_cpu &= all(each.device.type == "cpu" for each in tensors_like(told))
            counted[name] += 1
        return result


def _arguments(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """The arguments of an op with their schemas."""
    if not isinstance(func, OpOverload):
        return
    described = schema(func).arguments
    yield from zip(described, args, strict=False)
    by_name = {each.name: each for each in described}
    yield from ((by_name[name], value) for name, value in kwargs.items() if name in by_name)


@contextmanager
def regions_around(
    model: torch.nn.Module, regions: Mapping[str, Region | None], recorder: _Recorder | None = None
) -> Iterator[None]:
    """Wraps the blocks into their regions while the step runs.

    recorder: records all of them; blocks without a region run unchanged, and their ops are counted too.
    """
    before: list[tuple[torch.nn.Module, Any]] = []
    try:
        for name, region in regions.items():
            block = model.get_submodule(name)
            before.append((block, vars(block).get("forward")))
            if recorder is not None:
                vars(block)["forward"] = _watched(block.forward, name, region, recorder)
            elif region is not None:
                vars(block)["forward"] = Around(block, region)
        yield
    finally:
        for block, forward in reversed(before):
            vars(block).pop("forward", None)
            if forward is not None:
                vars(block)["forward"] = forward


def _watched(forward: Any, name: str, region: Region | None, recorder: _Recorder) -> Callable[..., Any]:
    recorded = recorder.recorded

    def called(*args: Any, **kwargs: Any) -> Any:
        call = RegionCall(name, region, begin=len(recorded.ops), backward=recorder.backward)
        recorded.calls.append(call)
        run = _Run(forward, call, recorder)
        if region is None:
            return run(*args, **kwargs)
        weakref.finalize(run, _freed, call, recorded)
        around = region.around(run)
        del run
        return around(*args, **kwargs)

    return called


def _freed(call: RegionCall, recorded: Recorded) -> None:
    call.freed = len(recorded.ops) - 1


class _Run:
    """A region's function: the first call is the forward, the second its recomputation."""

    def __init__(self, forward: Any, call: RegionCall, recorder: _Recorder) -> None:
        self.forward, self.call, self.recorder = forward, call, recorder
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder, call = self.recorder, self.call
        again = self.calls > 0
        self.calls += 1
        if again:
            call.again_begin = len(recorder.recorded.ops)
        recorder.running.append((call, again, Counter()))
        try:
            return self.forward(*args, **kwargs)
        finally:
            recorder.running.pop()
            position = len(recorder.recorded.ops)
            if again:
                call.again_end = position
            else:
                call.end = position


def record_step(
    model: torch.nn.Module,
    sample_inputs: Any,
    run: Callable[[Callable[[], None]], None],
    regions: Mapping[str, Region | None],
) -> Recorded:
    """One step of the model with these regions.

    run: the step; it calls its argument between the forward and the backward.
    """
    recorder = _Recorder()
    for name, parameter in model.named_parameters():
        recorder.add_resident(f"parameter {name}", parameter)
        if parameter.grad is not None:
            recorder.add_resident(f"gradient {name}", parameter.grad)
    for name, buffer in model.named_buffers():
        recorder.add_resident(f"buffer {name}", buffer, buffer=True)
    for leaf in tree_iter(sample_inputs):
        if isinstance(leaf, torch.Tensor):
            recorder.add_resident("input", leaf)

    def begin_backward() -> None:
        recorder.backward = True

    with regions_around(model, regions, recorder), recorder:
        run(begin_backward)
        recorder.look()
    return recorder.finish()
