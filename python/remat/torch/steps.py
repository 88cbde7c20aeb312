"""A training step of any model as a graph: traced if it is one graph, else recorded in eager mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import remat

from .base.errors import NothingToPlanError, UnsupportedModelError, log
from .base.given import can_run, check_step
from .eager.captured import RecordedStep, recorded_steps
from .plan.options import Options
from .session.captured import CapturedStep, captured_steps
from .session.loss import Loss
from .session.sharding import Sharding

Steps = list[CapturedStep] | list[RecordedStep]


def steps_of(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss: Loss | None,
    options: Mapping[str, Any],
    both: bool = True,
) -> Steps:
    """A training step of a model.

    both: also one that adds to existing gradients, where the options leave open which it is.

    Raises UnsupportedModelError if it needs no gradient, or must be traced and is not one graph.
    """
    check_step(model, sample_inputs, loss, runs=False)
    asked = Options.from_mapping({"budget": "100%", **options})
    if must_be_recorded(model, asked, sample_inputs):
        return recorded_steps(model, sample_inputs, loss, options, both)
    if not may_be_recorded(model, asked, sample_inputs):
        return captured_steps(model, sample_inputs, loss, options, both)
    try:
        return captured_steps(model, sample_inputs, loss, options, both, one_graph=True)
    except UnsupportedModelError as error:
        # Its frames hold the step.
        why = error.with_traceback(None)
    try:
        found = recorded_steps(model, sample_inputs, loss, options, both)
    except NothingToPlanError as error:
        raise why if isinstance(why, NothingToPlanError) else error from None
    except UnsupportedModelError:
        raise why from None
    say_recorded(why)
    return found


def must_be_recorded(model: torch.nn.Module, asked: Options, sample_inputs: Any) -> bool:
    """True if the step must be recorded. Raises UsageError if that is requested and impossible."""
    if asked.executor != "eager":
        return False
    if not can_run(model, sample_inputs):
        raise remat.UsageError('executor="eager" records a real step: meta and fake tensors have none')
    return True


def may_be_recorded(model: torch.nn.Module, asked: Options, sample_inputs: Any) -> bool:
    """Where it cannot be traced."""
    is_open = asked.executor == "auto" and not asked.needs_a_trace() and Sharding.of(model) is None
    return is_open and can_run(model, sample_inputs)


def say_recorded(why: UnsupportedModelError) -> None:
    log.warning("the step is recorded in eager mode, not traced: %s", why)
