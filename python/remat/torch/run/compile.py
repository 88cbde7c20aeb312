"""Executor "boxed": both halves run the ops of the plan one by one, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from torch import fx

from ..base.account import phase
from ..base.nodes import copied, outputs_of
from ..base.private import JointTrace, aot_module_simplified, tangents_as_they_come, traced_once, unprinted
from ..plan.report import PlanReport
from ..trace.tangents import TangentStrides, names_of_tangents
from .backward import Tangents, watch_tangents
from .codegen import boxed
from .inductor import Partition
from .pool import PoolUser
from .record import recordable
from .replay import PreparedGradients


class _TracedError(Exception):
    """Raised to leave AOTAutograd if only a trace is needed."""


def traced_alone(gm: fx.GraphModule, args: Sequence[Any], strides: TangentStrides) -> JointTrace | None:
    """The trace of a graph of Dynamo, without compiling it; None if it has no gradients."""

    def stop(*_: Any, **__: Any) -> Any:
        raise _TracedError

    with tangents_as_they_come(strides.of), traced_once(None, copied) as trace:
        with suppress(_TracedError):
            aot_module_simplified(
                gm,
                list(args),
                fw_compiler=stop,
                bw_compiler=stop,
                inference_compiler=stop,
                partition_fn=stop,
                keep_inference_input_mutations=True,
            )
        return trace()


def joint_alone(gm: fx.GraphModule, args: Sequence[Any], strides: TangentStrides) -> fx.GraphModule | None:
    """The joint graph as `compile_in_order` hands it to its partition; None if there are no gradients."""
    found: list[fx.GraphModule] = []

    def stop(joint: Any, *_: Any, **__: Any) -> Any:
        found.append(copied(joint))
        raise _TracedError

    def skip(*_: Any, **__: Any) -> Any:
        raise _TracedError

    with tangents_as_they_come(strides.of), suppress(_TracedError):
        aot_module_simplified(
            gm,
            list(args),
            fw_compiler=skip,
            bw_compiler=skip,
            inference_compiler=skip,
            partition_fn=stop,
            keep_inference_input_mutations=True,
        )
    return found[0] if found else None


def compile_in_order(
    gm: fx.GraphModule,
    args: Sequence[Any],
    partition: Partition,
    strides: TangentStrides,
    tangents: Tangents,
    prepared: PreparedGradients,
    plan: Callable[[], PlanReport | None],
    pool_user: Callable[[], PoolUser | None] = lambda: None,
    verify: bool = False,
    known: JointTrace | None = None,
    keep: bool = True,
    traced: Callable[[JointTrace], None] = lambda _: None,
) -> tuple[Callable[..., Any], JointTrace | None]:
    """A graph of Dynamo compiled for these inputs, and its trace (which may be passed in as `known`); None if
    it is not kept.

    partition: from the joint graph and the number of its forward outputs to the two halves. strides: of the
    gradients that the backward takes; tangents: receives the real ones. prepared: gradients that a backward
    returns in place of its own. plan: the plan of the halves, for observers; none without gradients.
    pool_user: of the pool with places for results, if any. verify: results of ops may be recorded. traced:
    called with a new trace before anything is planned.
    """
    write_out = recordable if verify else boxed
    num_inputs = len(args)

    # Up to PyTorch 2.12 these functions outlive the first forward, so they must not hold its arguments.
    def compile_forward(half: fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        with phase("code"):
            return write_out(half, plan, pool_user)

    def compile_backward(half: fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        with phase("code"):
            return watch_tangents(write_out(half, plan, pool_user), half, tangents, prepared.take)

    def split(joint: fx.GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any) -> Any:
        tangents.note_names(names_of_tangents(joint))
        found = trace()
        if found is not None and found is not known:
            traced(found)
        halves = partition(joint, num_fwd_outputs)
        prepared.note_results(len(outputs_of(halves[1])), num_inputs)
        return halves

    with unprinted(), tangents_as_they_come(strides.of), traced_once(known, copied, keep) as trace:
        run: Callable[..., Any] = aot_module_simplified(
            gm,
            list(args),
            fw_compiler=compile_forward,
            bw_compiler=compile_backward,
            inference_compiler=compile_forward,
            partition_fn=split,
            keep_inference_input_mutations=True,
        )
        return run, trace()
