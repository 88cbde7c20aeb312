"""Fit a model into a byte budget; capture a step as a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import remat

from .plan.options import Options
from .session.captured import captured_step
from .session.fitted import compiled
from .session.prepare import Preparation
from .session.session import Session
from .trace.fake import has_no_memory


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
    if budget == "auto" and first is not None:
        # Now that nothing of a step is in memory.
        session.shared.surroundings.settle(tree_leaves(sample_inputs), first.device)
    fitted = compiled(model, session)
    fitted.__dict__["remat"] = session.shared.report
    Preparation(session, model, fitted, sample_inputs, loss).plan()
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
