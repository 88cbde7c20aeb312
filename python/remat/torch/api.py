"""Fit a model into a byte budget; capture a step as a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves, tree_map

import remat

from .base.allocator import trace_allocations
from .base.errors import UnsupportedModelError
from .base.nodes import cuda_devices, storage_bytes
from .base.progress import ProgressLine
from .base.step import StepGraph
from .plan.options import Options
from .session.measure import measure_peak
from .session.session import Session
from .trace.fake import has_no_memory, with_fake_tensors
from .trace.tracing import permissive_tracing

# New shapes are counted and warned about by the session, not by Dynamo.
_RECOMPILE_LIMIT = 1 << 16


def fit(
    model: torch.nn.Module,
    sample_inputs: Any,
    budget: int | str,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **options: Any,
) -> torch.nn.Module:
    """The model, trained within a byte budget: same class, same parameters, same `state_dict`, other memory.

    Args:
        model: what is to be trained; it stays as it was.
        sample_inputs: what the model is called with: a tensor, a tuple of positional arguments or a dict of
            keyword arguments. The step is captured, measured and planned for their shapes now; other shapes
            at their first call.
        budget: bytes for the whole step (parameters, buffers, inputs, gradients, activations, temporaries): a
            number, "6GiB", "60%" of what keeping everything needs, or "auto" (what the CUDA device has free).
        loss: computes the loss from the model's outputs where the caller does that: its memory is measured
            and counted. A model that returns its loss needs none.
        options: the fields of :class:`Options`; most users want `optimizer=`.

    The attribute `remat` of the result is a :class:`ModelReport`: predicted peak, overhead, bounds, the plan.

    Raises:
        InfeasibleError: it is proved that no plan fits; with the floor and the smallest budget known to work.
        NoPlanError: no plan was found, nothing is proved.
        UnsupportedModelError: the step cannot be planned.
    """
    if has_no_memory(model):
        raise remat.UsageError(
            "fit: the model's tensors have no memory (meta or fake): it can be captured or swept, not run"
        )
    session = Session(Options.from_mapping({"budget": budget, **options}), model)
    first = next(model.parameters(), None)
    if session.options.budget == "auto" and first is not None:
        # Now that nothing of a step is in memory.
        session.settle(tree_leaves(sample_inputs), first.device)
    fitted = _compiled(model, session)
    fitted.__dict__["remat"] = session.report
    _prepare(model, fitted, sample_inputs, session, loss)
    return fitted


def capture(
    model: torch.nn.Module,
    sample_inputs: Any,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **options: Any,
) -> remat.Graph:
    """One training step of the model as a graph, with times and workspaces measured on this machine.

    The graph can be saved and planned elsewhere; `fit(..., plan=path)` then carries the plan out. The
    arguments are those of :func:`fit`. Nothing is kept for a backward, so a step that does not fit the device
    can be captured.

    Raises:
        UnsupportedModelError: the step is broken into several graphs, or needs no gradients.
    """
    return captured_step(model, sample_inputs, loss, options).graph


@dataclass
class Captured:
    """A step that was captured and costed, not planned."""

    step: StepGraph
    graph: remat.Graph
    session: Session
    device: torch.device


def captured_step(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    options: Mapping[str, Any],
) -> Captured:
    """A training step of a model; of a model without memory, that of its fake copy."""
    captured: list[StepGraph] = []
    if has_no_memory(model):
        model, sample_inputs = with_fake_tensors(model, sample_inputs)
    session = Session(Options.from_mapping({"budget": "100%", **options}), model, captured)
    copied = _compiled(model, session)
    _prepare(model, copied, sample_inputs, session, loss)
    if not captured:
        _raise_nothing_planned(model)
    if len(captured) > 1:
        raise UnsupportedModelError(
            f"capture: the model is broken into {len(captured)} graphs (TORCH_LOGS=graph_breaks says where); "
            "only a model in one piece is one graph"
        )
    with ProgressLine() as progress:
        session.costs.fill(captured[0], progress.profiling)
    graph = remat.Graph.from_dict(captured[0].to_dict())
    return Captured(captured[0], graph, session, next(model.parameters()).device)


def _compiled(model: torch.nn.Module, session: Session) -> torch.nn.Module:
    """A copy of the module whose calls go through the session's backend, as with `Module.compile`."""
    if session.sharding is not None:
        return session.sharding.compiled(lambda call: _compile(call, session))
    compiled = copy.copy(model)
    compiled.__dict__["_compiled_call_impl"] = _compile(compiled._call_impl, session)
    return compiled


def _compile(call: Callable[..., Any], session: Session) -> Callable[..., Any]:
    # A frame of our own: Dynamo does not look into calls of PyTorch's own modules (nn.Sequential) otherwise.
    def run(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    # Isolated from other models of the same class: past their common limit Dynamo would silently run eagerly.
    compiler: Any = torch.compile
    compiled: Any = compiler(
        run, backend=session, dynamic=False, isolate_recompiles=True, recompile_limit=_RECOMPILE_LIMIT
    )

    # A new shape may be traced in any call.
    def traced(*args: Any, **kwargs: Any) -> Any:
        before = session.graph_calls
        with permissive_tracing():
            results = compiled(*args, **kwargs)
        if session.graph_calls == before and session.graph_calls > 0:
            session.warn_of_no_plan()
        return results

    return traced


def call_with(model: Callable[..., Any], sample_inputs: Any) -> Any:
    """Call the model with a tensor, a tuple of positional or a mapping of keyword arguments."""
    if isinstance(sample_inputs, Mapping):
        return model(**sample_inputs)
    if isinstance(sample_inputs, (tuple, list)):
        return model(*sample_inputs)
    return model(sample_inputs)


@contextmanager
def _untouched(model: torch.nn.Module) -> Iterator[None]:
    """Buffers and generators as they were before."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=cuda_devices()):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _prepare(
    model: torch.nn.Module,
    fitted: torch.nn.Module,
    sample_inputs: Any,
    session: Session,
    loss: Callable[[Any], torch.Tensor] | None,
) -> None:
    """Compile the model for these inputs without a trace of having run."""
    session.preparing = True
    try:
        _prepare_untouched(model, fitted, sample_inputs, session, loss)
    finally:
        session.preparing = False


def _prepare_untouched(
    model: torch.nn.Module,
    fitted: torch.nn.Module,
    sample_inputs: Any,
    session: Session,
    loss: Callable[[Any], torch.Tensor] | None,
) -> None:
    if loss is not None:
        with _untouched(model):
            _look_at_loss(fitted, sample_inputs, session, loss)

    def forward() -> Any:
        try:
            return call_with(fitted, sample_inputs)
        finally:
            if session.sharding is not None:
                session.sharding.end_unfinished_step()

    with _untouched(model):
        forward()
        if session.captured is not None:
            return
        session.agree()
        if session.stale:
            # There are several graphs: now that all are known, plan them together.
            forward()
        if not session.report.parts:
            _raise_nothing_planned(model)
        if session.options.executor == "inductor":
            return  # what its halves hand over is its own affair; the first step is measured as a whole
        session.count_unplanned(forward, next(model.parameters()).device)
        session.agree()
        if session.stale:
            forward()


def _raise_nothing_planned(model: torch.nn.Module) -> NoReturn:
    if any(p.requires_grad for p in model.parameters()):
        raise UnsupportedModelError(
            "Dynamo compiled nothing of this model that needs a gradient (TORCH_LOGS=graph_breaks says why); "
            "it would run without a plan"
        )
    raise UnsupportedModelError("nothing in this model requires a gradient, so there is nothing to plan")


def _look_at_loss(
    fitted: torch.nn.Module, sample_inputs: Any, session: Session, loss: Callable[[Any], torch.Tensor]
) -> None:
    """Tell the session which outputs the loss depends on, and how much memory it takes.

    Its workspace is what it and its backward need at their peak, on top of the outputs and their gradients.
    """
    session.probing = True
    try:
        outputs = call_with(fitted, sample_inputs)
    finally:
        session.probing = False
    leaf_of: dict[int, Any] = {}

    def as_leaf(item: Any) -> Any:
        leaf_of[id(item)] = _as_leaf(item)
        return leaf_of[id(item)]

    leaves_only = tree_map(as_leaf, outputs)
    leaves = [t for t in leaf_of.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    values: list[torch.Tensor] = []

    def run() -> None:
        value: Any = loss(leaves_only)
        value.backward()
        values.append(value.detach())

    if any(t.device.type != "cpu" for t in leaves):
        device = leaves[0].device
        before = torch.cuda.memory_allocated(device)
        top = measure_peak(run, device=device) - before
    else:
        with trace_allocations() as trace:
            run()
        top = trace.rise()[0]
    # The caller holds the loss (whose storage can be larger than it), and autograd its gradient.
    session.loss_bytes = storage_bytes(values[0]) + values[0].nbytes
    gradients = sum(storage_bytes(t.grad) for t in leaves if t.grad is not None)
    session.loss_workspace = max(0, top - gradients - session.loss_bytes)
    for region in session.regions:
        region.note_loss({key: leaf for key, leaf in leaf_of.items() if isinstance(leaf, torch.Tensor)})


def _as_leaf(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.detach().requires_grad_(item.is_floating_point() or item.is_complex())
    return item
