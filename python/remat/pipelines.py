"""Cuts models into pipelines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from remat import _core
from remat._core import Graph, PipelineResult
from remat.errors import InfeasibleError, NoPlanError

_NO_LIMIT = (1 << 62) - 1


def pipeline(
    graphs: Graph | Iterable[Graph | tuple[Graph, int]],
    stages: int,
    schedule: Literal["1f1b", "interleaved"] = "1f1b",
    *,
    microbatches: int,
    budget: int | str | None = None,
    chunks: int | None = None,
    executor: Literal["saved", "checkpoint"] = "saved",
    cuts: Literal["layers", "all"] = "layers",
    data: Iterable[str] = (),
    state: int = 0,
    time_limit: float | str | None = 10.0,
    work_limit: int | None = None,
    check: bool = False,
) -> PipelineResult:
    """Cut a training step into pipeline stages and plan recomputation within each stage's budget, such that
    the slowest stage is as fast as possible (docs/pipeline.md).

    Args:
        graphs: the training step of one micro-batch of a model; or those of its parts in sequence, each with
            its number of consecutive repetitions.
        stages: devices.
        schedule: "1f1b", or "interleaved" with several chunks of the model on each device.
        microbatches: of a step; interleaved: a multiple of the stages.
        budget: of each device, in bytes or as ``"40GiB"``; None: no budget.
        chunks: of each device, interleaved: 2 by default.
        executor: "saved": a block saves any set of results and recomputes other needed ones once;
            "checkpoint": the whole block is recomputed except ops whose results it saves, as by
            `torch.utils.checkpoint`.
        cuts: "layers": between numbered modules (``layers.3``, ``layers.4``) where there are any; "all":
            wherever one value passes forward and one gradient back.
        data: names of graph inputs that come with each micro-batch; by default those that no update reads if
            the graph has updates, else none.
        state: bytes of optimizer state per byte of gradients, in addition to state that updates in the graph
            read.
        time_limit, work_limit: as for :func:`plan`.
        check: raise an error if no pipeline fits.

    Raises:
        UsageError: fewer blocks than stages, or a schedule that does not exist.
        GraphError: a graph that is no training step.
        InfeasibleError: only with `check`: proved that no cuts and choices fit.
        NoPlanError: only with `check`: none found within the limits.
    """
    given = [graphs] if isinstance(graphs, Graph) else list(graphs)
    parts = [part if isinstance(part, tuple) else (part, 1) for part in given]
    result = _core.plan_pipeline(
        parts,
        stages,
        microbatches,
        _NO_LIMIT if budget is None else _core.parse_bytes(budget),
        schedule,
        (2 if schedule == "interleaved" else 1) if chunks is None else chunks,
        executor,
        cuts == "layers",
        list(data),
        state,
        _core.Effort(time_limit, work_limit, None, 0, 1, {}),
    )
    if check and not result.stages:
        known = result.least_budget or 0
        kind = InfeasibleError if result.status == "infeasible" else NoPlanError
        raise kind(f"pipeline: no cuts and choices fit: {result.reason}", smallest_known=known)
    return result


def checkpoint_file(stage: _core.PipelineStage) -> dict[str, object]:
    """The blocks of a stage as `remat.torch.checkpoint_policy` exports them (docs/executors.md)."""
    blocks = {
        name: {
            "save": saved,
            "allow_cache_entry_mutation": False,
            "checkpoint": {"use_reentrant": False, "preserve_rng_state": True},
        }
        for name, runs_again, saved in stage.policies
        if runs_again
    }
    return {"format": "remat.checkpoint", "version": 1, "blocks": blocks}
