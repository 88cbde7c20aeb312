"""Measures time and workspace of every op of a step on the user's device, with synthetic tensors.

Each op runs alone on tensors of the shapes, strides and types of the step, so that profiling never needs more
memory than the largest op, and a step that does not fit the device can still be profiled. Ops that are
identical (target, shapes, types, strides, other arguments) are measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx

import remat

from ..base.allocator import trace_allocations
from ..base.alone import undisturbed
from ..base.devices import DeviceRuntime, device_of_tensors, runtime_of
from ..base.errors import UnsupportedModelError, log
from ..base.nodes import finished, may_run_twice, storage_bytes, tensors_of
from ..trace.gradients import end_of, takes_gradient, touched
from ..trace.inplace import OVER, over
from ..trace.kernels import AS_TRACED, kernel_of
from .cost import Cost, Layout, Progress, storages_of
from .layouts import real_layouts
from .standins import Arguments
from .timing import LONG_NS, Stopwatch, clock_of_ops
from .values import RealValues

# More than the private caches of one core; less where this part of the room for measuring is.
_CACHE_BYTES, _PART = 8 << 20, 16


# Rounds in which ops are timed again, and their total time in ns or as a multiple of the first round.
_AGAIN, _AGAIN_NS = 3, 200_000_000


# Times an op, given a function that runs it once and returns the time, and the times of earlier runs.
_Timing = Callable[[Callable[[], int], Sequence[int]], int]


def measure_ops(
    nodes: Mapping[str, fx.Node],
    progress: Progress | None = None,
    values: RealValues | None = None,
    room: int | None = None,
) -> dict[str, Cost]:
    """Measure every op alone; the result has the keys of all ops that can be measured.

    progress: called with (measured so far, to measure). Warns if the machine is too busy for reliable
    durations.
    values: of a real run of the step, for ops that read values.
    room: bytes that measuring may take, as far as ops let it; None: any.
    """
    stopwatch, values = Stopwatch(), values or RealValues.none()
    other = min(_CACHE_BYTES, _bytes_made(nodes.values()) // 2)
    if room is not None:
        other = min(other, room // _PART)
    with _other_data(other):
        found = _measured(nodes, values, stopwatch, progress)
        found.update(_timed_again(nodes, found, values))
    stopwatch.warn_of_noise()
    return found


def measure_workspaces(nodes: Mapping[str, fx.Node], values: RealValues | None = None) -> dict[str, Cost]:
    """The same without durations, which are 0."""
    return _measured(nodes, values or RealValues.none())


def _measured(
    nodes: Mapping[str, fx.Node],
    values: RealValues,
    stopwatch: Stopwatch | None = None,
    progress: Progress | None = None,
) -> dict[str, Cost]:
    """Measures with synthetic tensors first; ops that refuse these, with their arguments of a real run."""
    found: dict[str, Cost] = {}
    refused: dict[fx.Node, str] = {}

    def measure(node: fx.Node, given: Mapping[fx.Node, Any]) -> None:
        found[refused[node]] = measure_op(node, stopwatch, given=given)

    with undisturbed():
        for key, node in nodes.items():
            try:
                found[key] = measure_op(node, stopwatch, given=values.numbers_read(node))
            except UnsupportedModelError as error:
                log.debug("%s; its real arguments are tried", error)
                refused[node] = key
            if progress is not None:
                progress(len(found), len(nodes))
        values.visit(refused, measure)
    return found


def _timed_again(
    nodes: Mapping[str, fx.Node], found: Mapping[str, Cost], values: RealValues
) -> dict[str, Cost]:
    """The costs that a second measurement, some time later, lowers: other work on the machine slows all
    consecutive runs of an op. Expensive ops come first, as long as there is time; long ones were measured for
    long enough.
    """
    shorter: dict[str, Cost] = {}
    left = _AGAIN_NS + sum(min(cost.duration, LONG_NS) for cost in found.values())
    clock = clock_of_ops()
    with undisturbed():
        for key in sorted(found, key=lambda key: -found[key].duration):
            node, cost = nodes[key], found[key]
            if cost.duration >= LONG_NS or left <= 0 or not may_run_twice(node):
                continue
            run, device = _call_alone(node, given=values.numbers_read(node))
            if runtime_of(device).counts_memory or not _runs(run):
                continue
            times = [_timed(run, clock) for _ in range(_AGAIN)]
            left -= sum(times)
            if min(times) < cost.duration:
                shorter[key] = replace(cost, duration=max(1, min(times)))
    return shorter


def _runs(run: Callable[[], Any]) -> bool:
    """The runs to time again, without ops measured with their arguments of a real step."""
    try:
        run()
    except Exception:
        return False
    return True


def _timed(run: Callable[[], Any], clock: Callable[[], int]) -> int:
    _leave_the_cache()
    start = clock()
    run()
    return clock() - start


def _call_alone(
    node: fx.Node, for_compiler: bool = False, given: Mapping[fx.Node, Any] | None = None
) -> tuple[Callable[[], Any], torch.device]:
    """A call of the node's op on tensors like those of the step, and the device it runs on."""
    arguments = Arguments(node, given)
    argument, made = arguments.of, arguments.made

    if takes_gradient(node):
        gradient, parameter = map(argument, touched(node))
        return end_of(node).alone(gradient, parameter), parameter.device
    target = over(node, node.meta[OVER]) if OVER in node.meta else node.target
    args, kwargs = fx.map_arg(node.args, argument), fx.map_arg(node.kwargs, argument)
    tensors = [t for value in made.values() for t in tensors_of(value)] or tensors_of(node.meta.get("val"))
    if not for_compiler and AS_TRACED not in node.meta:
        target = kernel_of(target)
    return lambda: finished(node, target(*args, **kwargs)), device_of_tensors(tensors)


def run_alone(node: fx.Node) -> Any:
    """The op's results on tensors like those of the step."""
    with undisturbed():
        return _call_alone(node)[0]()


def measure_op(
    node: fx.Node,
    stopwatch: Stopwatch | None = None,
    for_compiler: bool = False,
    given: Mapping[fx.Node, Any] | None = None,
) -> Cost:
    """Time of runs after a first one, and the exact workspace of the first; without a stopwatch only the
    workspace.

    for_compiler: with PyTorch's kernel, which Inductor calls; else with the one of our executor
    (`kernel_of`).
    given: values of some of its arguments, which may be overwritten. Raises UnsupportedModelError if it does
    not run.
    """
    run, device = _call_alone(node, for_compiler, given)
    # Collectives run as often on every rank.
    repeats = may_run_twice(node)
    timing = _untimed if stopwatch is None else partial(stopwatch.time, repeats=repeats)
    runtime, layouts = runtime_of(device), partial(real_layouts, node)

    def measure() -> Cost:
        if runtime.counts_memory:
            return _measure_counted(run, runtime, timing, layouts)
        return _measure_traced(run, timing, layouts)

    try:
        try:
            return measure()
        except torch.OutOfMemoryError:
            runtime.release_cached()  # cached blocks of other sizes may be in the way
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


# While ops are timed.
_others: list[torch.Tensor] = []


@contextmanager
def _other_data(size: int) -> Iterator[None]:
    """Limited to these bytes: a small step has no more, and a call during training may have no room for
    more."""
    _others.append(torch.zeros(max(1, size // 4)))
    try:
        yield
    finally:
        _others.pop()


def _bytes_made(nodes: Iterable[fx.Node]) -> int:
    made = (tensor for node in nodes for tensor in tensors_of(node.meta.get("val")))
    return sum(storage_bytes(tensor) for tensor in made)


def _leave_the_cache() -> None:
    """Read and write other data, like the ops between two runs of an op in a real step."""
    for data in _others:
        data.add_(1.0)


def _no_layouts(_: Any) -> tuple[Layout, ...]:
    return ()


def _measure_traced(
    run: Callable[[], Any], timing: _Timing, layouts: Callable[[Any], tuple[Layout, ...]] = _no_layouts
) -> Cost:
    clock = clock_of_ops()
    timed = partial(_timed, run, clock)
    first = timed()  # the first call creates primitives and caches
    with trace_allocations() as trace:
        start = clock()
        result = run()
        second = clock() - start
    top, level = trace.rise()
    outputs, found = storages_of(result), layouts(result)
    del result
    return Cost(timing(timed, (first, second)), top - level, outputs, found)


def _measure_counted(
    run: Callable[[], Any],
    runtime: DeviceRuntime,
    timing: _Timing,
    layouts: Callable[[Any], tuple[Layout, ...]] = _no_layouts,
) -> Cost:
    run()  # the first call loads kernels and creates library handles
    runtime.synchronize()
    runtime.reset_highest()
    result = run()
    runtime.synchronize()
    workspace = runtime.in_blocks(
        runtime.highest() - runtime.allocated(), runtime.highest_requested() - runtime.requested()
    )
    outputs, found = storages_of(result), layouts(result)
    del result
    return Cost(timing(partial(runtime.time, run), ()), workspace, outputs, found)
