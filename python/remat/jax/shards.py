"""What one device holds of the values of a step whose arguments are spread over several devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
from jax.extend.core import Literal
from jax.sharding import NamedSharding, PartitionSpec

from remat.jax.regions import Op, Value, flatten

#: XLA is asked where values are, not for fast code.
QUICK = {"xla_backend_optimization_level": 0}
#: Ops whose bodies are looked into.
CALLS = frozenset(["scan", "checkpoint", "remat2"])
#: Ops that say or change where a value is, and no more.
RESHARDS = frozenset(["sharding_constraint", "reshard", "mesh_cast"])


def at_home(aval: Any, sharding: Any) -> Any:
    """The part of an array that one device holds."""
    return jax.ShapeDtypeStruct(sharding.shard_shape(tuple(aval.shape)), aval.dtype)


class Shards:
    """Gives the values of a step the shapes that one device holds.

    How values inside are spread is XLA's decision. So a program with all of them as results is compiled once
    and asked for the shardings of its results.

    Args:
        ops: those of the step, in order. Their values get new `aval`s, in place.
        value: from an operand and the values known so far to an array.
        inputs: the step's arguments, with avals that hold shardings.
    """

    def __init__(
        self, ops: Sequence[Op], inputs: dict[Any, Any], value: Callable[[Any, dict[Any, Any]], Any]
    ) -> None:
        #: Shapes of the whole values.
        self.whole: dict[Any, tuple[int, ...]] = {}
        #: Parameters of scans and checkpoints, with the shapes of one device in their bodies.
        self.params: dict[Op, dict[str, Any]] = {}
        made = [v for op in ops for v in op.outs]

        def every(args: Sequence[Any]) -> list[Any]:
            env = dict(zip(inputs, args, strict=True))
            for op in ops:
                env.update(zip(op.outs, op.run([value(v, env) for v in op.ins]), strict=True))
            return [env[v] for v in made]

        with jax.disable_jit(False):
            compiled = jax.jit(every).lower(list(inputs.values())).compile(compiler_options=QUICK)
        given = [getattr(aval, "sharding", None) for aval in inputs.values()]
        placed = dict(zip([*inputs, *made], [*given, *compiled.output_shardings], strict=True))
        for v, sharding in placed.items():
            self.whole[v] = tuple(v.aval.shape)
            if sharding is not None:
                v.aval = at_home(v.aval, sharding)
        for op in ops:
            if op.kind in CALLS:
                own = [None if isinstance(v, Literal) else placed.get(v) for v in op.ins]
                self.params[op] = self.of_call(op, own)

    def of_call(self, op: Op, shardings: Sequence[Any]) -> dict[str, Any]:
        body = op.params["jaxpr"]
        jaxpr = getattr(body, "jaxpr", body)
        of_all = len(shardings)
        if op.kind == "scan":
            of_all = op.params["num_consts"] + op.params["num_carry"]
        ops, consts, outs = flatten(jaxpr, getattr(body, "consts", ()))
        inputs: dict[Any, Any] = {}
        inner: dict[Any, Any] = {}
        for i, (v, sharding) in enumerate(zip(jaxpr.invars, shardings, strict=True)):
            inner[v] = Value(v.aval)
            inputs[inner[v]] = jax.ShapeDtypeStruct(
                v.aval.shape, v.aval.dtype, sharding=sharding if i < of_all else of_iteration(sharding)
            )

        def at(v: Any) -> Any:
            return v if isinstance(v, Literal) else inner.get(v, v)

        for each in ops:
            each.ins = [at(v) for v in each.ins]

        def value(v: Any, env: dict[Any, Any]) -> Any:
            return v.val if isinstance(v, Literal) else env[v] if v in env else consts[v]

        within = Shards(ops, inputs, value)
        eqns = [
            SimpleNamespace(
                primitive=e.primitive,
                params=within.params.get(e, e.params),
                invars=e.ins,
                outvars=e.outs,
                source_info=e.source,
                effects=e.effects,
            )
            for e in ops
        ]
        local = SimpleNamespace(constvars=[], eqns=eqns, invars=list(inputs), outvars=[at(v) for v in outs])
        return {**op.params, "jaxpr": SimpleNamespace(jaxpr=local, eqns=eqns)}

    def is_partial(self, op: Op) -> bool:
        """Is the result a sum over devices, of which each makes a part with a dot or a convolution?"""
        if op.kind == "dot_general":
            (summed, _), _ = op.params["dimension_numbers"]
        elif op.kind == "conv_general_dilated":
            # Features, or the batch in gradients of kernels: the second dimension of what is read.
            summed = (op.params["dimension_numbers"].lhs_spec[1],)
        else:
            return False
        local = op.ins[0].aval.shape
        whole = self.whole.get(op.ins[0], local)
        return any(local[i] < whole[i] for i in summed)

    def gathered(self, op: Op) -> int:
        """Bytes of the operands of a dot that its device needs more of than it holds."""
        if op.kind != "dot_general" or any(v not in self.whole for v in op.ins):
            return 0
        contract, batch = op.params["dimension_numbers"]
        total = 0
        out = op.outs[0]
        position = len(batch[0])
        for side, v in enumerate(op.ins):
            local, whole = v.aval.shape, self.whole[v]
            needed = list(local)
            free = [i for i in range(len(local)) if i not in contract[side] and i not in batch[side]]
            pairs = [(i, out, n) for n, i in enumerate(batch[side])]
            pairs += [(i, out, position + n) for n, i in enumerate(free)]
            other = op.ins[1 - side]
            pairs += [(i, other, j) for i, j in zip(contract[side], contract[1 - side], strict=True)]
            position += len(free)
            for i, partner, j in pairs:
                if local[i] < whole[i] and partner.aval.shape[j] == self.whole[partner][j]:
                    needed[i] = whole[i]
            if needed != list(local):
                total += math.prod(needed) * int(getattr(v.aval.dtype, "itemsize", 4))
        return total


def of_iteration(sharding: Any) -> Any:
    """The sharding of a slice along the first dimension."""
    if not isinstance(sharding, NamedSharding):
        return None
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
