"""Fit a model into a byte budget; capture a step as a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils._pytree import tree_leaves

import remat

from .base.account import account
from .base.errors import NothingToPlanError, UnsupportedModelError, errors_stand_alone, log
from .base.fitted_module import model_behind, report_of
from .base.given import check_step, mistraced_part
from .base.private import compiled_part
from .base.progress import progress_line
from .base.reasons import in_a_line
from .base.turns import one_at_a_time
from .eager.session import eager_fitted
from .plan.model_report import ModelReport
from .plan.options import FitOptions, Options
from .session.fitted import compiled
from .session.loss import Loss
from .session.prepare import Preparation
from .session.session import NotOneGraphError, Session, compiled_inside
from .session.sharding import Sharding
from .session.stepping import hooks_out_of_order
from .steps import steps_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    # A base of type Any: `fit` returns an object of a subclass, accepted wherever the model is.
    class _SameClass(torch.nn.Module, Any): ...
else:
    _SameClass = torch.nn.Module


class FittedModel(_SameClass):
    """A model returned by :func:`fit`, for annotations: an instance of the model's class, with a report.

    Attributes:
        remat: the report: plans, predicted and measured peaks.
    """

    remat: ModelReport


@errors_stand_alone
def fit(
    model: torch.nn.Module,
    sample_inputs: Any,
    budget: int | str,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **options: Unpack[FitOptions],
) -> FittedModel:
    """Make a model train within a byte budget. The result is an instance of the model's class (of a subclass
    of the same name) and has the model's state: what is set on one of them (parameters, attributes, hooks,
    `eval()`) the other one has too.

    Args:
        model: the model to train; it is not changed.
        sample_inputs: arguments of the model: a tensor, a tuple of positional arguments or a dict of keyword
            arguments. The step is captured, measured and planned for their shapes now; for other shapes at
            their first call.
        budget: bytes for the whole step (parameters, buffers, inputs, gradients, activations, temporaries): a
            number, "6GiB", "60%" of the peak without recomputation, or "auto" (the free memory of the CUDA
            device).
        loss: computes the loss from the model's outputs, if the caller does that: its memory is measured and
            counted. Not needed for a model that returns its loss.

    Keyword Args:
        optimizer: its state counts towards the budget, whether it exists already or not. Most users want it.
        step: "backward": the optimizer steps inside the backward, and each gradient is freed after its step.
        reserve: bytes of the budget for other uses of the device.
        budget_on: "reserved": the budget bounds the memory that PyTorch's allocator reserves, including
            fragmentation, not only memory in use.
        arena: on the CPU, True: one allocation for the results of the step, which stays between steps.
        margin: share that budget="auto" leaves free, "5%" by default.
        accumulate: whether gradients exist when a step starts; by default each call is checked.
        outputs: "held" or "dropped" during the backward; by default the first step decides.
        calls: calls of the model before the first backward.
        loss_workspace: bytes for a loss outside the model, if `loss` is not given.
        planner: as in :func:`remat.plan`, like the next five.
        order: "fixed" or "free".
        time_limit: seconds for planning.
        work_limit: the same in deterministic units of work.
        gap: stop within this gap of the fastest plan, "0.1%" unless a limit is given.
        seed: of the planner.
        threads: of the planner.
        plan: use this plan instead.
        never_recompute: patterns of modules, or kinds of ops, that run once.
        always_keep: patterns of modules, or kinds of ops, whose results are kept.
        routing: whether ops that decide what runs (topk, sort, argmax, ...) run "once" or "recompute".
        costs: "measured", "roofline" or a file.
        device: of the roofline.
        executor: "auto", "boxed", "eager" or "inductor".
        host: memory to offload results to: its bandwidth ("25GB/s"), a :class:`remat.Host`, or "auto".
        host_dir: folder of the file that serves as host memory on the CPU.
        cache_dir: a folder that keeps costs and plans for later processes.
        max_shapes: combinations of input shapes that keep their plans.
        dynamic: whether varying shapes are traced once.
        strict: raise an error, not a warning, for code that would run without a plan.
        group: a process group that shares a plan.
        verify: compare the first step of each plan with eager mode, bit for bit.

    These are also the options of `torch.compile(model, backend="remat", options={...})`; :class:`Options` has
    defaults and details.

    The attribute `remat` of the result is a :class:`ModelReport`: predicted peak, overhead, bounds, the plan.
    Unlike :func:`remat.plan`, `fit` raises an error if there is no plan.

    Raises:
        InfeasibleError: it is proved that no plan fits; with the floor and the smallest budget known to work.
        NoPlanError: no plan was found, nothing is proved.
        UnsupportedModelError: the step cannot be planned.
        HostMemoryError: the host has no room for what the plan copies out.
        VerificationError: `verify` is set, and something differs.
    """
    check_step(model, sample_inputs, loss)
    asked = Options.from_mapping({"budget": budget, **options})
    with account() as spent, one_at_a_time(), progress_line() as progress:
        progress.tracing()
        fitted = _chosen(model_behind(model), asked, sample_inputs, loss)
        report: ModelReport = report_of(fitted)
        progress.set_result(report.outcome())
        report.set_seconds(spent.seconds())
    return cast(FittedModel, fitted)


def _chosen(model: torch.nn.Module, asked: Options, sample_inputs: Any, loss: Loss | None) -> torch.nn.Module:
    """Traces the step if it is one graph, tracing succeeds and the options allow it; else uses eager mode."""
    if asked.executor == "eager":
        if Sharding.of(model) is not None:
            raise UnsupportedModelError('executor="eager" does not know parameters that FSDP2 shards')
        return eager_fitted(model, asked, sample_inputs, loss)
    if asked.executor != "auto" or asked.needs_a_trace() or Sharding.of(model) is not None:
        return _traced(model, asked, sample_inputs, loss)
    try:
        return _traced(model, asked, sample_inputs, loss, one_graph=True)
    except UnsupportedModelError as error:
        # Its frames hold the step.
        why = error.with_traceback(None)
    except (remat.RematError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Of the model itself, or of tracing: eager mode shows which.
        log.debug("%s", error, exc_info=True)
        why = NotOneGraphError(f"tracing it failed ({in_a_line(error)})")
    try:
        fitted = eager_fitted(model, asked, sample_inputs, loss)
    except NothingToPlanError as error:
        raise why if isinstance(why, NothingToPlanError) else error from None
    except UnsupportedModelError as error:
        raise error if isinstance(why, NotOneGraphError) else why from None
    except remat.NoPlanError:
        log.warning("the step was planned for eager mode: %s", why)
        raise
    log.warning("the step runs in eager mode, with saved tensors that are made again: %s", why)
    return fitted


def _traced(
    model: torch.nn.Module,
    asked: Options,
    sample_inputs: Any,
    loss: Loss | None,
    one_graph: bool = False,
) -> torch.nn.Module:
    """one_graph: raise UnsupportedModelError if there would be several."""
    session = Session(asked, model, one_graph=one_graph)
    inside = compiled_part(model)
    if inside is not None and session.sharding is None:
        raise NotOneGraphError(compiled_inside(inside))
    mistraced = mistraced_part(model)
    if mistraced is not None:
        why = f"{mistraced} has other values in a trace than in eager mode, if the forward uses it"
        if one_graph:
            raise NotOneGraphError(why)
        log.warning("%s", why)
    unordered = None if session.sharding is not None else hooks_out_of_order(model.parameters())
    if one_graph and unordered is not None:
        raise NotOneGraphError(unordered)
    if asked.verify and session.sharding is not None:
        raise remat.UsageError("fit: verify=True cannot compare a model whose parameters are sharded")
    first = next(model.parameters(), None)
    if asked.budget == "auto" and first is not None:
        # Now that nothing of a step is in memory.
        session.shared.surroundings.settle(tree_leaves(sample_inputs), first.device)
    if asked.step is not None:
        session.step_inside(model)
    fitted = compiled(model, session)
    preparation = Preparation(session, model, fitted, sample_inputs, loss)
    preparation.plan()
    if asked.verify:
        preparation.prove()
    return fitted


@errors_stand_alone
def capture(
    model: torch.nn.Module,
    sample_inputs: Any,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **options: Unpack[FitOptions],
) -> remat.Graph:
    """One training step of the model as a graph, with times and workspaces measured on this machine.

    The graph can be saved and planned elsewhere; `fit(..., plan=path)` then uses the plan. The arguments are
    those of :func:`fit`. Nothing is kept for a backward, so steps that do not fit the device can be captured.
    If the step is not one graph, or with executor="eager", it is recorded in eager mode, which needs eager
    mode's memory; a warning says so.

    Raises:
        UnsupportedModelError: the step needs no gradients, or is broken into several graphs with
            executor="boxed".
    """
    return steps_of(model, sample_inputs, loss, options, both=False)[0].graph
