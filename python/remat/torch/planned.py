"""Plans for training loops that call several models, or one model several times, before one backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import remat

from .base.errors import UnsupportedModelError, errors_stand_alone
from .base.given import check_model
from .eager.together import PlannedSteps
from .plan.options import FitOptions, Options
from .session.sharding import Sharding

if TYPE_CHECKING:
    from typing_extensions import Unpack


@errors_stand_alone
def planned(*models: torch.nn.Module, budget: int | str, **options: Unpack[FitOptions]) -> PlannedSteps:
    """A context for steps that call several models, or one model several times, before one backward: all that
    runs from the first op to the end of the backward is planned as one step.

    ::

        step = remat.torch.planned(generator, critic, budget="6GiB")
        for noise in batches:
            with step:
                loss = critic(generator(noise)).mean()
                loss.backward()
            optimizer.step()

    Nothing is traced, and results are those of eager mode. The first step is recorded, the second one
    compared with the results that the plan would recompute, both with eager mode's memory; the third one
    follows the plan and is measured. A context may hold several steps, one after the other: each backward
    ends one. Each place in the context has its own plans, as have other sequences of ops, other sizes, and
    steps that add to existing gradients.

    Args:
        models: their parameters, buffers and gradients count as resident.
        budget: as for :func:`fit`; a percentage refers to each step's peak.
        options: of :func:`fit`, those that executor="eager" takes.

    Raises:
        InfeasibleError, NoPlanError: when the context is left, if the step has no plan within the budget.
        UsageError: no model, or an option that needs a traced step.
        UnsupportedModelError: parameters on several accelerators, or sharded.
    """
    if not models or not all(isinstance(model, torch.nn.Module) for model in models):
        raise remat.UsageError("planned: the models come first, at least one, the budget by its name")
    if options.get("executor", "eager") not in ("auto", "eager"):
        raise remat.UsageError(f"planned: executor={options['executor']!r}: nothing is traced, leave it out")
    asked = Options.from_mapping({"budget": budget, **options, "executor": "eager"})
    if budget == "auto":
        raise remat.BudgetError("planned: a budget is bytes or a share, not 'auto'")
    for model in models:
        check_model(model)
        if Sharding.of(model) is not None:
            raise UnsupportedModelError("planned: parameters that FSDP2 shards are not known to it")
    return PlannedSteps(models, asked)
