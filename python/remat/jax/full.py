"""Full order: any plan of a step, as one `custom_vjp` in which every op waits for the one before it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from remat.errors import UsageError
from remat.jax.capture import Joint, in_tiles
from remat.jax.costs import bytes_of
from remat.jax.regions import Op, Primal, primal_of_jaxpr

#: An op, the fused ones that it reads with itself, and those of its results that are read later.
Step = tuple[Op, list[Op], list[Any]]


class FullOrder:
    """Both halves of a step in the order of a plan.

    Each step makes what one op of the graph makes, from values that are stored; fused ops run in the step
    that reads them. What a step reads goes through an optimization barrier together with a result of the step
    before, so that XLA has no other order and merges no second run with the first.

    Args:
        joint: as `Joint.in_full_order` returns it.
        steps: numbers of the graph's ops, as in a plan whose first runs are in the graph's order. Those whose
            results nobody reads are left out: XLA would drop them, and with them the order.
    """

    def __init__(self, joint: Joint, steps: Sequence[int]) -> None:
        self.joint = joint
        graph, backward = joint.graph, set(joint.backward)
        split = next((i for i, n in enumerate(steps) if joint.stored.get(n) in backward), len(steps))
        needed: set[int] = joint.made_for(joint.grads)
        crossing: set[int] = set()
        found: list[tuple[int, set[int]]] = []
        for i in reversed(range(len(steps))):
            if i == split - 1:
                crossing = set(needed)
                needed |= joint.made_for(joint.results)
            outs = set(graph.op_outputs(steps[i]))
            if outs & needed:
                found.append((i, outs & needed))
                needed = (needed - outs) | set(graph.op_inputs(steps[i]))
        #: Numbers of the graph's ops that run.
        self.live = [steps[i] for i, _ in reversed(found)]
        self.before: list[Step] = []
        self.after: list[Step] = []
        for i, used in reversed(found):
            op = joint.stored.get(steps[i])
            if op is not None:
                half = self.before if i < split else self.after
                half.append((op, joint.cone(op), [joint.value_of[v] for v in used]))
        crosses = set(map(joint.value_of.get, crossing))
        made = dict.fromkeys(v for op, _, _ in self.before for v in op.outs)
        self.crossing = [v for v in made if v in crosses]

    def run(self, steps: Sequence[Step], env: dict[Any, Any], last: list[Any]) -> None:
        """Runs steps; `last` are results that the first one waits for, and afterwards those of the last."""
        traced = any(isinstance(x, jax.core.Tracer) for x in env.values())
        for op, cone, used in steps:
            inner = {v: env[v] for v in self.joint.reads[op]}
            zero = jnp.zeros(())
            if traced:  # else they run one by one anyway
                before = [v for v in last if v not in inner]
                waiting = [*inner.values(), *(env[v] for v in before), zero]
                *held, zero = jax.lax.optimization_barrier(waiting)
                if inner:
                    last.clear()
                # XLA for GPUs drops what comes out of a barrier and is not used, and with it the order.
                env.update(zip(before, held[len(inner) :], strict=True))
                inner = dict(zip(inner, held, strict=False))
            for each in cone:
                args = [self.joint.value(v, inner) for v in each.ins]
                if traced and in_tiles(each):
                    made = [unpooled(args[0], args[1], each.params["window_dimensions"])]
                elif traced and each is not op:
                    made = filled(each, args, zero)
                else:
                    made = each.run(args)
                inner.update(zip(each.outs, made, strict=True))
            env.update((v, inner[v]) for v in op.outs)
            last.append(min(used, key=bytes_of))

    def forward(self, args: Sequence[Any]) -> tuple[list[Any], Any]:
        """Results of the function, and what crosses to the backward half."""
        env = dict(zip(self.joint.inputs, args, strict=False))
        last: list[Any] = []
        self.run(self.before, env, last)
        outs = [self.joint.value(v, env) for v in self.joint.results]
        return outs, (list(args), [env[v] for v in self.crossing], [env[v] for v in last])

    def backward(self, residuals: Any, cotangents: Sequence[Any]) -> list[Any]:
        """Gradients for the cotangents of the losses."""
        args, crossed, last = residuals
        env = dict(zip(self.joint.inputs, [*args, *cotangents], strict=True))
        env.update(zip(self.crossing, crossed, strict=True))
        env.update(enumerate(last))
        self.run(self.after, env, list(range(len(last))))
        return [self.joint.value(v, env) for v in self.joint.grads]


def filled(op: Op, args: Sequence[Any], zero: Any) -> list[Any]:
    """Runs a fused op, whose constants wait for `zero`: XLA would fill arrays with them when the program
    begins."""

    def later(v: Any, x: Any) -> Any:
        of = v.aval.dtype
        if isinstance(x, jax.core.Tracer) or v.aval.shape or not jnp.issubdtype(of, jnp.floating):
            return x
        return zero.astype(of) + jnp.asarray(x, of)

    if op.kind == "pow":  # XLA knows some exponents
        return op.run(args)
    if not op.kind.startswith("custom_jvp"):
        return op.run(list(map(later, op.ins, args)))
    body = primal_of_jaxpr(op.params["call_jaxpr"])

    @jax.custom_jvp
    def run(*args: Any) -> list[Any]:
        env = dict(zip(body.inputs, args, strict=True)) | body.values
        for each in body.ops:
            made = filled(each, [v.val if isinstance(v, Literal) else env[v] for v in each.ins], zero)
            env.update(zip(each.outs, made, strict=True))
        return body.out(env)

    run.defjvp(lambda primals, tangents: jax.jvp(lambda *xs: op.run(xs), primals, tangents))
    return run(*args)


def unpooled(cotangent: Any, x: Any, window: Sequence[int]) -> Any:
    """The gradient of max-pooling by windows that cover every element once: the first largest element of a
    window gets the cotangent. XLA fuses it, where it would make indices of all elements of a scatter."""
    best = chosen = None
    for number, offset in enumerate(itertools.product(*map(range, window))):
        part = jax.lax.slice(x, offset, x.shape, window)
        if best is None:
            best, chosen = part, jnp.zeros(part.shape, jnp.int32)
            continue
        larger = part > best
        best, chosen = jnp.where(larger, part, best), jnp.where(larger, number, chosen)
    split = [n for pair in zip(cotangent.shape, window, strict=True) for n in pair]
    even = tuple(range(0, len(split), 2))
    own = jnp.arange(math.prod(window), dtype=jnp.int32).reshape([n for w in window for n in (1, w)])
    at = jax.lax.broadcast_in_dim(chosen, split, even) == own
    return jnp.where(at, jax.lax.broadcast_in_dim(cotangent, split, even), 0).reshape(x.shape)


def ordered(
    primal: Primal, full: FullOrder, diff: Sequence[int], losses: Sequence[int]
) -> Callable[..., Any]:
    """The function of a list of arrays, to be differentiated by those in `diff` through the results in
    `losses`. Where it is not differentiated it runs as it is written."""
    places = {i: n for n, i in enumerate(diff)}
    rest = [i for i in range(len(primal.outputs)) if i not in losses]

    @jax.custom_vjp
    def run(*args: Any) -> list[Any]:
        return primal.evaluate(args)

    def forward(*args: Any) -> Any:
        for i, a in enumerate(args):
            if a.perturbed and i not in places:
                raise UsageError(
                    "a plan in full order has gradients of argnums only, "
                    f"not of an array of shape {a.value.shape}"
                )
        made, residuals = full.forward([a.value for a in args])
        outs = dict(zip([*losses, *rest], made, strict=True))
        return [outs[i] for i in range(len(outs))], residuals

    def backward(residuals: Any, cotangents: Sequence[Any]) -> Any:
        zero = jax.custom_derivatives.SymbolicZero
        if any(not isinstance(cotangents[i], zero) for i in rest):
            raise UsageError("a plan in full order has no gradients of aux: add what counts to the loss")
        given = [cotangents[i] for i in losses]
        given = [jnp.zeros(c.shape, c.dtype) if isinstance(c, zero) else c for c in given]
        grads = full.backward(residuals, given)
        return tuple(grads[places[i]] if i in places else None for i in range(len(primal.inputs)))

    run.defvjp(forward, backward, symbolic_zeros=True)
    return lambda leaves: run(*leaves)
