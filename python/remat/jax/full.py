"""Full order: any plan of a step, as one `custom_vjp` in which every op waits for the one before it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from remat.errors import UsageError
from remat.jax.capture import Joint, in_tiles
from remat.jax.costs import LIBRARY, bytes_of, stacked
from remat.jax.regions import Op, Primal, primal_of_jaxpr

#: Ops between which XLA is free, and those of their results that are read later.
Stretch = tuple[list[Op], list[Any]]


class FullOrder:
    """Both halves of a step in the order of a plan.

    Each step makes what one op of the graph makes, from values that are stored; fused ops run in the step
    that reads them. What a stretch of steps reads goes through an optimization barrier together with results
    of the stretch before, so that XLA has no other order and merges no second run with the first.

    Args:
        joint: as `Joint.in_full_order` returns it.
        steps: numbers of the graph's ops, as in a plan whose first runs are in the graph's order. Those whose
            results nobody reads are left out: XLA would drop them, and with them the order.
        coarse: stretches, in which XLA fuses and orders as it likes, end after dots and convolutions and
            where second runs begin; else after each step.
    """

    def __init__(self, joint: Joint, steps: Sequence[int], coarse: bool = False) -> None:
        self.joint = joint
        graph, backward, end = joint.graph, set(joint.backward), len(steps)
        split = next((i for i, n in enumerate(steps) if joint.stored.get(n) in backward), end)
        #: The step that reads a value last, by its number.
        needed = dict.fromkeys(joint.made_for(joint.grads), end)
        crossing: set[int] = set()
        uses: dict[int, dict[int, int]] = {}
        for i in reversed(range(end)):
            if i == split - 1:
                crossing = set(needed)
                needed.update(dict.fromkeys(joint.made_for(joint.results), end))
            used = {v: needed.pop(v) for v in graph.op_outputs(steps[i]) if v in needed}
            if used:
                uses[i] = used
                for v in graph.op_inputs(steps[i]):
                    needed.setdefault(v, i)
        live = sorted(uses)
        #: Numbers of the graph's ops that run.
        self.live = [steps[i] for i in live]
        self.before: list[Stretch] = []
        self.after: list[Stretch] = []
        library = {n for n, op in joint.stored.items() if op.kind in LIBRARY} if coarse else None
        running = [i for i in live if steps[i] in joint.stored]
        for part in stretches(steps, running, split, library):
            left = [joint.value_of[v] for i in part for v, last in uses[i].items() if last > part[-1]]
            half = self.before if part[0] < split else self.after
            half.append(([joint.stored[steps[i]] for i in part], left))
        crosses = set(map(joint.value_of.get, crossing))
        made = dict.fromkeys(v for ops, _ in self.before for op in ops for v in op.outs)
        self.crossing = [v for v in made if v in crosses]

    def run(self, parts: Sequence[Stretch], env: dict[Any, Any], last: list[Any]) -> None:
        """Runs stretches; `last` are results that the first waits for, and afterwards those of the last."""
        traced = any(isinstance(x, jax.core.Tracer) for x in env.values())
        for ops, left in parts:
            inner = {v: env[v] for v in self.read_by(ops)}
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
            for op, each in ((reader, each) for reader in ops for each in self.joint.cone(reader)):
                args = [self.joint.value(v, inner) for v in each.ins]
                if traced and in_tiles(each):
                    made = [unpooled(args[0], args[1], each.params["window_dimensions"])]
                elif traced and self.joint.is_looped(each):
                    made = looped(each, args, zero)
                elif traced and each is not op:
                    made = filled(each, args, zero)
                else:
                    made = each.run(args)
                inner.update(zip(each.outs, made, strict=True))
            env.update((v, inner[v]) for op in ops for v in op.outs)
            last += left if len(ops) > 1 else [min(left, key=bytes_of)]

    def read_by(self, ops: Sequence[Op]) -> dict[Any, None]:
        """What ops in a row read that none of them has made before."""
        found: dict[Any, None] = {}
        made: set[Any] = set()
        for op in ops:
            found.update((v, None) for v in self.joint.reads[op] if v not in made)
            made.update(op.outs)
        return found

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


def stretches(
    steps: Sequence[int], live: Sequence[int], split: int, library: set[int] | None
) -> Iterator[list[int]]:
    """Parts of the steps that run.

    library: ops that are dots and convolutions, after which parts end. They end also where second runs
    begin, before a second run of an op in them, and where the backward half does. None: each step is one.
    """
    part: dict[int, int] = {}
    seen: set[int] = set()
    again, before = False, 0
    for i in live:
        op = steps[i]
        was_again, again = again, op in seen
        ends = library is None or (steps[before] in library and op not in library)
        if part and (ends or (again and not was_again) or op in part or before < split <= i):
            yield list(part.values())
            part = {}
        part[op] = before = i
        seen.add(op)
    if part:
        yield list(part.values())


def filled(op: Op, args: Sequence[Any], zero: Any) -> list[Any]:
    """Runs a fused op, whose constants wait for `zero`: XLA would fill arrays with them when the program
    begins."""

    def later(v: Any, x: Any) -> Any:
        of = v.aval.dtype
        if isinstance(x, jax.core.Tracer) or v.aval.shape or not jnp.issubdtype(of, jnp.inexact):
            return x
        both = jnp.issubdtype(of, jnp.complexfloating)
        parts = [complex(x).real, complex(x).imag] if both else [float(x)]
        return zero.astype(of) + jnp.asarray(x, of) if all(keeps_in_sums(y, of) for y in parts) else x

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


def looped(op: Op, args: Sequence[Any], zero: Any) -> list[Any]:
    """Runs a scan as a loop whose buffers wait for `zero`: XLA would fill those of `lax.scan` when the
    program begins."""
    params = op.params
    consts, carried, length = params["num_consts"], params["num_carry"], params["length"]
    body = primal_of_jaxpr(params["jaxpr"])

    @jax.custom_jvp
    def run(zero: Any, *args: Any) -> list[Any]:
        fixed, first, xs = args[:consts], args[consts : consts + carried], args[consts + carried :]
        stacks = [jnp.broadcast_to(zero.astype(v.aval.dtype), v.aval.shape) for v in stacked(op)]

        def step(state: Any) -> Any:
            n, carry, stacks = state
            i = length - n - 1 if params["reverse"] else n
            of_step = [jax.lax.dynamic_index_in_dim(x, i, keepdims=False) for x in xs]
            made = body.evaluate([*fixed, *carry, *of_step])
            filled = [
                jax.lax.dynamic_update_index_in_dim(stack, y, i, 0)
                for stack, y in zip(stacks, made[carried:], strict=True)
            ]
            return n + 1, made[:carried], filled

        _, carry, stacks = jax.lax.while_loop(
            lambda state: state[0] < length, step, (jnp.int32(0), list(first), stacks)
        )
        return [*carry, *stacks]

    run.defjvp(lambda primals, tangents: jax.jvp(lambda _, *xs: op.run(xs), primals, tangents))
    return run(zero, *args)


def keeps_in_sums(x: float, of: Any) -> bool:
    """Is the sum of +0.0 and the number itself, bit for bit? Not of -0.0 and NaN, nor of subnormal numbers
    where the device takes them for 0."""
    return abs(x) >= float(jnp.finfo(of).tiny) or (x == 0 and math.copysign(1, x) > 0)


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
