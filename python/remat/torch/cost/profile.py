"""Time and workspace of every op of a step, measured on the user's device with tensors made for the purpose.

Each op runs alone on tensors of the shapes, strides and types of the step, so that profiling never needs more
memory than the largest op, and a step that does not fit the device can still be profiled. Ops that are
identical (target, shapes, types, strides, other arguments) are measured once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

import remat

from ..base.allocator import trace_allocations
from ..base.devices import DeviceRuntime, device_of_tensors, generators_kept, runtime_of
from ..base.errors import UnsupportedModelError
from ..base.nodes import may_run_twice, tensors_of
from ..base.private import OpOverload, _DisableAutocast, schema
from ..trace.gradients import end_of, takes_gradient, touched
from ..trace.inplace import OVER, over_argument
from ..trace.kernels import kernel_of
from .cost import Cost, Progress, storages_of
from .timing import Stopwatch

# More than the caches that one core has to itself.
_CACHE_BYTES = 8 << 20


# Values of a tensor that is made for measuring; they are repeated.
_DIFFERENT = 1 << 16


# Multiplied with its number this spreads an index over all rows, and neighbours far apart.
_SPREAD = 2_654_435_761


# Times an op, given what runs it once and says how long that took, and how long runs before took.
_Timing = Callable[[Callable[[], int], Sequence[int]], int]


def measure_ops(nodes: Mapping[str, fx.Node], progress: Progress | None = None) -> dict[str, Cost]:
    """Run every op alone; its key goes into the result.

    progress: called with (measured so far, to measure). A warning says so where the machine is too busy for
    durations that mean much.
    """
    found: dict[str, Cost] = {}
    stopwatch = Stopwatch()
    try:
        with undisturbed():
            for key, node in nodes.items():
                found[key] = measure_op(node, stopwatch)
                if progress is not None:
                    progress(len(found), len(nodes))
    finally:
        _other_data.cache_clear()
    stopwatch.warn_of_noise()
    return found


def measure_workspaces(nodes: Mapping[str, fx.Node]) -> dict[str, Cost]:
    """The same without durations, which are 0."""
    with undisturbed():
        return {key: measure_op(node) for key, node in nodes.items()}


@contextmanager
def undisturbed() -> Iterator[None]:
    """No gradients, no autocast, and the generators as they were afterwards."""
    no_autocast: Any = _DisableAutocast
    with torch.no_grad(), no_autocast(), generators_kept():
        yield


class _Arguments:
    """Tensors like those that a node reads. made: by what they are made like."""

    def __init__(self, node: fx.Node) -> None:
        self.made: dict[fx.Node, Any] = {}
        for seed in _on_the_host(node):
            self.made[seed] = torch.zeros((), dtype=torch.int64)
        for index, rows in _indices(node):
            self.made[index] = _spread(index.meta["val"], rows)

    def of(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            if arg not in self.made:
                self.made[arg] = tree_map(_stand_in, arg.meta.get("val"))
            return self.made[arg]
        return arg


def arguments_alone(node: fx.Node) -> tuple[Any, Any]:
    """Positional arguments and keywords for the node's op, on tensors like those of the step."""
    arguments = _Arguments(node)
    return fx.map_arg(node.args, arguments.of), fx.map_arg(node.kwargs, arguments.of)


def _call_alone(node: fx.Node, for_compiler: bool = False) -> tuple[Callable[[], Any], torch.device]:
    """A call of the node's op on tensors like those of the step, and the device it runs on."""
    arguments = _Arguments(node)
    argument, made = arguments.of, arguments.made

    if takes_gradient(node):
        gradient, parameter = map(argument, touched(node))
        return end_of(node).alone(gradient, parameter), parameter.device
    target, given = over_argument(node) if OVER in node.meta else (node.target, node.args)
    args, kwargs = fx.map_arg(given, argument), fx.map_arg(node.kwargs, argument)
    tensors = [t for value in made.values() for t in tensors_of(value)] or tensors_of(node.meta.get("val"))
    if not for_compiler:
        target = kernel_of(target)
    return lambda: target(*args, **kwargs), device_of_tensors(tensors)


def _on_the_host(node: fx.Node) -> list[fx.Node]:
    """Arguments that are traced on an accelerator and really are numbers on the CPU, which the kernel reads
    there ("Note [Seed and Offset Device]" in PyTorch's attention.cu).
    """
    if not isinstance(node.target, OpOverload) or "efficient_attention_backward" not in str(node.target):
        return []
    named = zip(schema(node.target).arguments, node.args, strict=False)
    found = [given for described, given in named if described.name in ("philox_seed", "philox_offset")]
    return [given for given in found if isinstance(given, fx.Node)]


def _indices(node: fx.Node) -> list[tuple[fx.Node, int]]:
    """Arguments that pick rows, each with the number of rows to pick from. An op that picks one row over and
    over takes another time than in a step, on a GPU much more where it adds to rows.
    """
    if not isinstance(node.target, OpOverload):
        return []
    described = schema(node.target)
    given = dict(zip((a.name for a in described.arguments), node.args, strict=False)) | dict(node.kwargs)
    name, found = described.name, []
    if name == "aten::embedding":
        found = [(given["indices"], _shape(given["weight"])[0])]
    elif name == "aten::embedding_dense_backward":
        found = [(given["indices"], given["num_weights"])]
    elif name in ("aten::index_select", "aten::gather", "aten::scatter_add"):
        shape = _shape(given["self"])
        found = [(given["index"], shape[given["dim"]] if shape else 1)]
    elif name in ("aten::index", "aten::index_put", "aten::_unsafe_index", "aten::_unsafe_index_put"):
        found = list(zip(given["indices"], _shape(given["self"]), strict=False))
    integers = [(index, rows) for index, rows in found if isinstance(index, fx.Node) and _is_integer(index)]
    # A mask stands for several dimensions.
    return integers if len(integers) == sum(index is not None for index, _ in found) else []


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape


def _is_integer(node: fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.int64, torch.int32)


def _spread(val: torch.Tensor, rows: int) -> torch.Tensor:
    """Indices like a traced tensor: all over the rows, the same each time."""
    indices = _stand_in(val)
    numbers = torch.arange(indices.numel(), device=val.device).mul_(_SPREAD).remainder_(max(1, rows))
    return indices.copy_(numbers.view(val.shape)) if _is_dense(val) else indices


def _is_dense(val: torch.Tensor) -> bool:
    """Does each element have a place to itself?"""
    return val.numel() * val.element_size() <= val.untyped_storage().nbytes() and 0 not in val.stride()


def run_alone(node: fx.Node) -> Any:
    """The op's results on tensors like those of the step."""
    with undisturbed():
        return _call_alone(node)[0]()


def measure_op(node: fx.Node, stopwatch: Stopwatch | None = None, for_compiler: bool = False) -> Cost:
    """Time of runs after a first one, and the exact workspace of that first one; without a stopwatch no
    time.

    for_compiler: by PyTorch's kernel, which Inductor calls; else as our executor runs it (`kernel_of`).
    """
    run, device = _call_alone(node, for_compiler)
    # Collectives run as often on every rank.
    repeats = may_run_twice(node)
    timing = _untimed if stopwatch is None else partial(stopwatch.time, repeats=repeats)
    runtime = runtime_of(device)

    def measure() -> Cost:
        if runtime.counts_memory:
            return _measure_counted(run, runtime, timing)
        return _measure_traced(run, timing)

    try:
        try:
            return measure()
        except torch.OutOfMemoryError:
            runtime.release_cached()  # blocks of other sizes may be in the way
            return measure()
    except torch.OutOfMemoryError as error:
        raise remat.UsageError(
            f"{node.name} ({node.target}) does not fit on {device} while its cost is measured: "
            f"{str(error).splitlines()[0]}; free memory there first, or give costs that were measured where "
            "there is more of it (costs=FILE, from remat.torch.measure_costs)"
        ) from error
    except Exception as error:
        raise UnsupportedModelError(
            f"{node.name} ({node.target}) could not be measured alone: {error}"
        ) from error


def _untimed(*_: Any) -> int:
    return 0


def _stand_in(val: Any) -> Any:
    """A real tensor like a traced one: small positive numbers, zeros for integers (valid as any index, but
    see `_indices`), all true.
    """
    if not isinstance(val, torch.Tensor):
        return val
    # All of the storage, as some ops copy the whole of it.
    flat = torch.empty(
        val.untyped_storage().nbytes() // val.dtype.itemsize, dtype=val.dtype, device=val.device
    )
    if val.dtype is torch.bool:
        flat.fill_(True)
    elif val.dtype.is_floating_point and val.dtype.itemsize > 1:
        _fill(flat)
    elif val.dtype.is_complex:
        _fill(torch.view_as_real(flat).view(-1))
    else:
        flat.zero_()
    return flat.as_strided(val.shape, val.stride(), val.storage_offset())


def _fill(flat: torch.Tensor) -> None:
    """Small positive numbers. Drawing each of them takes as long as many an op."""
    drawn = flat[:_DIFFERENT].uniform_(0.25, 0.75)
    whole = flat.numel() // _DIFFERENT * _DIFFERENT
    if whole > 0:
        flat[:whole].view(-1, _DIFFERENT)[1:] = drawn
        flat[whole:] = drawn[: flat.numel() - whole]


@cache
def _other_data() -> torch.Tensor:
    return torch.zeros(_CACHE_BYTES // 4)


def _leave_the_cache() -> None:
    """Read and write other data, as the ops do that come between two runs of one in a real step."""
    _other_data().add_(1.0)


def _measure_traced(run: Callable[[], Any], timing: _Timing) -> Cost:
    def timed() -> int:
        _leave_the_cache()
        start = time.perf_counter_ns()
        run()
        return time.perf_counter_ns() - start

    first = timed()  # the first call creates primitives and caches
    with trace_allocations() as trace:
        start = time.perf_counter_ns()
        result = run()
        second = time.perf_counter_ns() - start
    top, level = trace.rise()
    outputs = storages_of(result)
    del result
    return Cost(timing(timed, (first, second)), top - level, outputs)


def _measure_counted(run: Callable[[], Any], runtime: DeviceRuntime, timing: _Timing) -> Cost:
    run()  # the first call loads kernels and creates library handles
    runtime.synchronize()
    runtime.reset_highest()
    result = run()
    runtime.synchronize()
    workspace = runtime.in_blocks(
        runtime.highest() - runtime.allocated(), runtime.highest_requested() - runtime.requested()
    )
    outputs = storages_of(result)
    del result
    return Cost(timing(partial(runtime.time, run), ()), workspace, outputs)
