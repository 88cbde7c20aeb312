"""Models whose calls run planned graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

import remat

from ..base.account import phase
from ..base.ends import when_gone
from ..base.errors import errors_stand_alone, log
from ..base.fitted_module import fitted_module
from ..base.generators import generator_states
from ..base.given import arguments_in
from ..base.private import (
    compiled_apart,
    eager_call,
    global_module_hooks,
    hooks_of_modules,
    is_transformed,
    packs_saved_tensors,
)
from ..plan.report import PlanReport
from .loss import is_real
from .proof import Step, copies, traced_alone
from .session import Session
from .unplanned import TRANSFORMED
from .untouched import Snapshot
from .varying import SymbolsDifferError


def compiled(model: torch.nn.Module, session: Session) -> torch.nn.Module:
    """A module with the model's state, whose calls go through the session's backend."""
    report = session.shared.report
    if session.sharding is not None:
        call = session.sharding.compiled(lambda call: _compiled_call(call, session))
        return session.sharding.shared_with(fitted_module(model, call, report))
    call = _compiled_call(eager_call(model), session)
    if session.shared.options.verify:
        call = _proved(call, model, session)
    fitted = fitted_module(model, call, report)
    # Dynamo keeps the session longer.
    when_gone(fitted, session.shared.pipeline.pool.release)
    return fitted


def _compiled_call(call: Callable[..., Any], session: Session) -> Callable[..., Any]:
    # A separate frame: Dynamo does not trace calls of PyTorch's own modules (nn.Sequential) otherwise.
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            session.note_uncompiled()
        return call(*args, **kwargs)

    options = session.shared.options
    varies = options.executor == "boxed" and options.group is None
    planned = compiled_apart(run, session, options.dynamic if varies else False)
    hooks_planned_for = _hooks_of_all_modules()
    left: _Left | None = None

    # A new shape may be traced in any call.
    @errors_stand_alone
    def traced(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return call(*args, **kwargs)  # nothing is saved, so there is nothing to plan
        if is_transformed():
            session.unplanned.say("transforms", TRANSFORMED)
            return call(*args, **kwargs)
        if _hooks_of_all_modules() != hooks_planned_for:
            session.say_other_hooks()
            return call(*args, **kwargs)  # Dynamo does not check them again
        nonlocal planned, left
        if left is not None and left.hooks != _hooks_of(session):
            if left.forget():
                planned = compiled_apart(run, session)
            left = None
        before, forget = session.graph_calls, session.before_call()
        with phase("dynamo"), session.shared.surroundings.called_with((args, kwargs)):
            try:
                results = planned(*args, **kwargs)
            except SymbolsDifferError as error:
                log.info("each shape is traced for itself: %s", error)
                planned = compiled_apart(run, session)
                results = planned(*args, **kwargs)
            except BaseException:  # of Ctrl-C too
                if forget():
                    log.warning("that call raised an error: the next one is traced again")
                    planned = compiled_apart(run, session)
                raise
        if session.graph_calls == before and session.graph_calls > 0:
            session.say_no_plan()
            left = left or _Left(_hooks_of(session), forget)
        return results

    return traced


class _Left(NamedTuple):
    """Notes that Dynamo skips the model, which had these hooks; `forget` resets that."""

    hooks: list[tuple[int, ...]]
    forget: Callable[[], bool]


def _hooks_of(session: Session) -> list[tuple[int, ...]]:
    model = session.shared.surroundings.model
    return [] if model is None else hooks_of_modules(model)


def _hooks_of_all_modules() -> list[Any]:
    return [list(hooks.values()) for hooks in global_module_hooks()]


def _proved(traced: Callable[..., Any], model: torch.nn.Module, session: Session) -> Callable[..., Any]:
    """Calls that compare a step with eager mode the first time that its plans run.

    traced: calls of the model through the session's backend.
    """
    shared, call = session.shared, eager_call(model)
    proved: list[PlanReport] = []

    @errors_stand_alone
    def run(*args: Any, **kwargs: Any) -> Any:
        busy = shared.is_preparing or session.in_flight() or packs_saved_tensors()
        if busy or not torch.is_grad_enabled():
            return traced(*args, **kwargs)
        arguments = copies((args, kwargs))
        snapshot, states = Snapshot(model, args, kwargs), generator_states()
        results = traced(*args, **kwargs)
        used = list(shared.watch.open.reports) if shared.watch.open is not None else []
        if all(any(report is known for known in proved) for report in used):
            return results
        del results
        step = Step(
            name=type(model).__name__,
            eager=lambda own: call(*own[0], **own[1]),
            planned=lambda own: traced(*own[0], **own[1]),
            traced=lambda: traced_alone(lambda args, kwargs: call(*args, **kwargs)),
            arguments=arguments,
            parameters=[(name, p) for name, p in model.named_parameters() if p.requires_grad],
            buffers=lambda: list(model.named_buffers()),
            restore=snapshot.restore,
            casts=shared.casts,
        )
        with shared.proving():
            step.prove(states)
        proved.extend(used)
        return traced(*args, **kwargs)

    return run


def call_with(model: Callable[..., Any], sample_inputs: Any) -> Any:
    """Call the model with a tensor, a tuple of positional or a mapping of keyword arguments."""
    args, kwargs = arguments_in(sample_inputs)
    return model(*args, **kwargs)


def loss_in(outputs: Any, caller: str) -> torch.Tensor:
    """The loss that a model returns. Raises UsageError if its outputs hold none."""
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", outputs)
    if isinstance(found, torch.Tensor) and found.numel() == 1 and found.requires_grad and is_real(found):
        return found
    raise remat.UsageError(
        f"{caller}: the model's outputs hold no loss (a dense tensor of one real number that needs a "
        "gradient, or an attribute or key `loss`); pass loss=, which computes it from them"
    )
