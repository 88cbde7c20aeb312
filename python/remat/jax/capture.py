"""The two halves of a step as one graph of what XLA stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Literal, Var

from remat import Graph
from remat.errors import UsageError

PREFIX = "remat."
#: XLA fuses these into whatever reads them: they take no memory of their own.
FUSED = frozenset(
    [
        "abs",
        "add",
        "add_any",
        "and",
        "acos",
        "asin",
        "atan",
        "atan2",
        "broadcast_in_dim",
        "cbrt",
        "ceil",
        "clamp",
        "convert_element_type",
        "copy",
        "copy_p",
        "cos",
        "cosh",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "exp",
        "exp2",
        "expand_dims",
        "expm1",
        "floor",
        "ge",
        "gt",
        "integer_pow",
        "iota",
        "is_finite",
        "le",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "name",
        "ne",
        "neg",
        "not",
        "or",
        "pow",
        "pvary",
        "rem",
        "reshape",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sin",
        "sinh",
        "slice",
        "sqrt",
        "square",
        "squeeze",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "transpose",
        "xor",
    ]
)
VIEWS = frozenset(["broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose"])
#: Their operands are in memory: what is fused ends before them.
LIBRARY = frozenset(["dot_general", "conv_general_dilated"])
FLOPS, BANDWIDTH = 50e9, 10e9  # per second, of a few cores


def bytes_of(var: Any) -> int:
    aval = var.aval
    size = getattr(aval.dtype, "itemsize", 4)
    return int(math.prod(aval.shape)) * int(size)


def flatten(jaxpr: Any, consts: Sequence[Any]) -> tuple[list[Any], dict[Any, Any], list[Any]]:
    """The ops of a jaxpr with the bodies of jit in place: (eqn, inputs, outputs), constants, results."""
    env: dict[Any, Any] = {}
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    ops: list[Any] = []

    def at(v: Any) -> Any:
        return v if isinstance(v, Literal) else env.get(v, v)

    def go(inner: Any) -> None:
        for eqn in inner.eqns:
            if eqn.effects:
                raise UsageError(f"{eqn.primitive.name} has effects: remat.jax cannot run it a second time")
            if eqn.primitive.name in ("jit", "pjit"):
                sub = eqn.params["jaxpr"]
                values.update(zip(sub.jaxpr.constvars, sub.consts, strict=True))
                ins = [at(v) for v in eqn.invars]
                fresh: dict[Any, Any] = dict(zip(sub.jaxpr.invars, ins, strict=True))
                saved = dict(env)
                env.update(fresh)
                go(sub.jaxpr)
                outs = [at(v) for v in sub.jaxpr.outvars]
                env.clear()
                env.update(saved)
                env.update(zip(eqn.outvars, outs, strict=True))
                continue
            outs = [Var(v.aval) for v in eqn.outvars]
            ops.append((eqn, [at(v) for v in eqn.invars], outs))
            env.update(zip(eqn.outvars, outs, strict=True))

    go(jaxpr)
    return ops, values, [at(v) for v in jaxpr.outvars]


@dataclass
class Primal:
    """The plain function: ops in order, with results named by their number."""

    ops: list[Any]
    values: dict[Any, Any]
    inputs: list[Any]
    outputs: list[Any]
    number: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for _, _, outs in self.ops:
            for v in outs:
                self.number[v] = len(self.number)

    def run(self, begin: int, end: int, env: dict[Any, Any], named: Callable[[Any], bool]) -> None:
        """Ops [begin, end); results that `named` picks carry their name."""
        for eqn, ins, outs in self.ops[begin:end]:
            args = [v.val if isinstance(v, Literal) else env[v] for v in ins]
            bound = eqn.primitive.get_bind_params(eqn.params)
            # a pair until JAX put the functions among the parameters
            subfuns, params = bound if isinstance(bound, tuple) else ((), bound)
            got = eqn.primitive.bind(*subfuns, *args, **params)
            got = got if eqn.primitive.multiple_results else [got]
            for v, x in zip(outs, got, strict=True):
                env[v] = checkpoint_name(x, f"{PREFIX}{self.number[v]}") if named(v) else x


def primal_of(flat_fn: Callable[..., Any], avals: Sequence[Any]) -> Primal:
    closed = jax.make_jaxpr(flat_fn)(*avals)
    ops, values, outs = flatten(closed.jaxpr, closed.consts)
    return Primal(ops, values, list(closed.jaxpr.invars), outs)


def flops_of(eqn: Any, outs: Sequence[Any]) -> float:
    size = float(sum(math.prod(v.aval.shape) for v in outs))
    if eqn.primitive.name == "dot_general":
        (contract, _), _ = eqn.params["dimension_numbers"]
        return 2 * size * math.prod(eqn.invars[0].aval.shape[i] for i in contract)
    if eqn.primitive.name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        out_features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * size * math.prod(kernel) / max(1, out_features)
    if eqn.primitive.name == "scan":
        body = eqn.params["jaxpr"].jaxpr
        return float(eqn.params["length"]) * sum(flops_of(e, e.outvars) for e in body.eqns)
    return size


def halves(primal: Primal, avals: Sequence[Any], diff: Sequence[int]) -> tuple[Any, Any]:
    """Closed jaxprs of the forward half (loss, aux, residuals) and of the backward half."""

    def plain(*diff_args: Any, rest: Sequence[Any]) -> tuple[Any, Any]:
        args = list(rest)
        for i, x in zip(diff, diff_args, strict=True):
            args[i] = x
        env = dict(primal.values) | dict(zip(primal.inputs, args, strict=True))
        primal.run(0, len(primal.ops), env, lambda v: True)
        out = [v.val if isinstance(v, Literal) else env[v] for v in primal.outputs]
        return out[0], out[1:]

    def forward(*args: Any) -> Any:
        return jax.vjp(lambda *d: plain(*d, rest=args), *[args[i] for i in diff], has_aux=True)

    fwd, shapes = jax.make_jaxpr(forward, return_shape=True)(*avals)
    loss, pull, _ = shapes
    leaves, tree = jax.tree_util.tree_flatten(pull)
    del loss

    def backward(ct: Any, *residuals: Any) -> Any:
        return jax.tree_util.tree_unflatten(tree, residuals)(ct)

    return fwd, jax.make_jaxpr(backward)(shapes[0], *leaves)


class Joint:
    """Both halves as a graph; what XLA fuses is read through to what it stores."""

    def __init__(self, primal: Primal, avals: Sequence[Any], diff: Sequence[int]) -> None:
        fwd, bwd = halves(primal, avals, diff)
        ops, _, outs = flatten(fwd.jaxpr, fwd.consts)
        back, _, grads = flatten(bwd.jaxpr, bwd.consts)
        num_aux = len(primal.outputs) - 1
        # (loss, residuals, aux) is the order in which jax.vjp's result flattens
        residuals = outs[1 : len(outs) - num_aux]
        self.results = [outs[0], *outs[len(outs) - num_aux :]]
        self.same: dict[Any, Any] = dict(zip(bwd.jaxpr.invars[1:], residuals, strict=True))
        self.names: dict[Any, int] = {}
        for eqn, ins, made in ops:
            if eqn.primitive.name == "name" and eqn.params["name"].startswith(PREFIX):
                self.same[made[0]] = ins[0]
                if not isinstance(ins[0], Literal):
                    self.names[self.at(ins[0])] = int(eqn.params["name"][len(PREFIX) :])
        self.grads = grads
        self.inputs = list(fwd.jaxpr.invars)
        self.order(ops, back)
        self.build()

    def at(self, v: Any) -> Any:
        while not isinstance(v, Literal) and v in self.same:
            v = self.same[v]
        return v

    def read(self, ins: Sequence[Any]) -> list[Any]:
        return [v for v in map(self.at, ins) if not isinstance(v, Literal)]

    def order(self, ops: list[Any], back: list[Any]) -> None:
        """Live ops; those that only make residuals move to the backward half."""
        needed = set(self.read(self.results))
        forward, moved = [], []
        for op in reversed(ops):
            if op[0].primitive.name == "name" and op[2][0] in self.same:
                continue
            if any(v in needed for v in op[2]):
                needed.update(self.read(op[1]))
                forward.append(op)
            else:
                moved.append(op)
        made = {v: op for op in moved for v in op[2]}
        needed = set(self.read(self.grads))
        live = []
        for op in reversed(back):
            if any(v in needed for v in op[2]):
                needed.update(self.read(op[1]))
                live.append(op)
        self.forward, self.backward = forward[::-1], []
        done: set[int] = set()

        def place(op: Any) -> None:
            if id(op) in done:
                return
            done.add(id(op))
            for v in self.read(op[1]):
                if v in made:
                    place(made[v])
            self.backward.append(op)

        for op in live[::-1]:
            place(op)

    def operands(self) -> set[Any]:
        """Values that dots and convolutions read, through views too."""
        found: set[Any] = set()
        for eqn, ins, outs in reversed([*self.forward, *self.backward]):
            kind = eqn.primitive.name
            if kind in LIBRARY or (kind in VIEWS and outs[0] in found):
                found.update(self.read(ins))
        return found

    def build(self) -> None:
        operands = self.operands()
        readers: dict[Any, int] = {}
        for _, ins, _ in [*self.forward, *self.backward]:
            for v in set(self.read(ins)):
                readers[v] = readers.get(v, 0) + 1
        kept = set(self.read(self.results)) | set(self.read(self.grads))
        given = set(self.inputs)
        leaves: dict[Any, set[Any]] = {}
        work: dict[Any, float] = {}
        index: dict[Any, int] = {v: i for i, v in enumerate(self.inputs)}
        values = [bytes_of(v) for v in self.inputs]
        nodes: list[dict[str, Any]] = []
        self.value_of: dict[int, Any] = {}
        for phase, ops in (("forward", self.forward), ("backward", self.backward)):
            for eqn, ins, outs in ops:
                reads: set[Any] = set()
                for v in self.read(ins):
                    reads |= leaves.get(v, {v} if v in index else set())
                flops = flops_of(eqn, outs) + sum(work.get(v, 0.0) for v in set(self.read(ins)))
                behind = sum(bytes_of(v) for v in reads if v not in given)
                dear = len(reads) > 4 or (readers.get(outs[0], 0) > 1 and behind > 2 * bytes_of(outs[0]))
                dear = dear or (outs[0] in operands and eqn.primitive.name not in VIEWS)
                if eqn.primitive.name in FUSED and outs[0] not in kept and not dear:
                    leaves[outs[0]], work[outs[0]] = reads, flops
                    continue
                for v in outs:
                    index[v] = len(values)
                    self.value_of[len(values)] = v
                    values.append(bytes_of(v))
                moved = sum(map(bytes_of, [*reads, *outs]))
                nodes.append({
                    "name": f"{eqn.primitive.name}.{len(nodes)}", "kind": eqn.primitive.name,
                    "duration": int(1e9 * max(flops / FLOPS, moved / BANDWIDTH)) + 1,
                    "inputs": sorted(index[v] for v in reads), "outputs": [index[v] for v in outs],
                    "phase": phase,
                })  # fmt: skip
        self.graph = Graph(
            values,
            nodes,
            list(range(len(self.inputs))),
            sorted({index[v] for v in kept if v in index}),
            "jax",
        )
