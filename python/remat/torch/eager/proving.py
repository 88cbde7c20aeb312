"""Compares a planned step with the same step in eager mode, bit for bit (`verify=True`)."""

from __future__ import annotations

from typing import Any

import torch

from ..base.errors import VerificationError
from ..base.generators import generator_states
from ..base.private import eager_call
from ..session.proof import Step, copies
from ..session.untouched import Snapshot
from .ledger import Ledger
from .planning import EagerPlan


def prove(model: torch.nn.Module, plan: EagerPlan, call: Any) -> None:
    """Raises VerificationError where outputs, gradients, buffers or generators differ."""
    run = eager_call(model)
    snapshot = Snapshot(model, call)

    def eager(own: Any) -> Any:
        return run(*own[0], **own[1])

    def planned(own: Any) -> Any:
        return Ledger([plan]).through(lambda: eager(own))

    step = Step(
        name=type(model).__name__,
        eager=eager,
        planned=planned,
        traced=lambda: eager,
        arguments=copies(call),
        parameters=[(name, p) for name, p in model.named_parameters() if p.requires_grad],
        buffers=lambda: list(model.named_buffers()),
        restore=snapshot.restore,
    )
    try:
        with torch.enable_grad():
            step.prove(generator_states())
    except VerificationError as error:
        # Its messages about tracing do not apply to this executor.
        raise VerificationError(str(error).partition("; ")[0]) from None
