"""Runs a function in regions, each under `jax.checkpoint`. Needs JAX only: this file beside a policy file is
all that a training job needs to run a plan where Remat is not installed (docs/jax.md).

A policy is a dict, as JSON holds it: ``format``, ``ops`` (how many there are), ``saved`` (numbers of
results), ``offloaded`` (those of them that the host holds; may be left out), ``regions`` (each ``[end, [cheap
ops to run again at its head], checkpointed]``) and ``scans`` (policies of the bodies of scans, by the number
of the op). Ops and results are numbered in the order of the
traced function, calls of jit written out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Literal

FORMAT = "remat.jax.policy"
PREFIX = "remat."
INLINED = ("jit", "pjit", "closed_call", "core_call")
BRANCHES = ("cond", "while")
COMPARED = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
#: JAX's derivatives of these compare, by `eq`, what they read with what they make.
CHOOSERS = frozenset([
    "max", "min", "reduce_max", "reduce_min", "cummax", "cummin", "scatter_max", "scatter_min",
    "scatter-max", "scatter-min",
])  # fmt: skip
#: What these make is made of the bits that they read, and of nothing that is rounded.
EXACT = CHOOSERS | frozenset([
    "abs", "broadcast_in_dim", "clamp", "concatenate", "convert_element_type", "copy", "copy_p",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "neg", "pad", "reduce_window_max",
    "reduce_window_min", "reshape", "rev", "scatter", "select_n", "slice", "sort", "split", "squeeze",
    "stop_gradient", "top_k", "transpose",
])  # fmt: skip
#: Ops that are looked at for what a comparison reads, at most.
MOST_EXACT = 64
Policy = Mapping[str, Any]


class Name(str):
    """Of a result of a plan. Names of the user's and of plans within may read the same: it is told from them
    by its type and its plan."""

    plan: Primal
    number: int

    @classmethod
    def of(cls, plan: Primal, number: int) -> Name:
        name = cls(f"{PREFIX}{number}")
        name.plan, name.number = plan, number
        return name


class Chosen(str):
    """What `choose` makes has this name, by which a call of it is told from the user's own rules."""


CHOSEN = Chosen(f"{PREFIX}chosen")


@dataclass(eq=False)
class Value:
    """What an op makes. Variables of JAX do not do: a jaxpr that is called twice has the same ones twice."""

    aval: Any


@dataclass(eq=False)
class Op:
    """A primitive with its parameters, what it reads and what it makes."""

    primitive: Any
    params: dict[str, Any]
    ins: list[Any]
    outs: list[Any]
    source: Any = None
    written: Mapping[str, Any] | None = None
    """Parameters in the function as it is written, where the body of a scan got regions."""
    effects: Any = frozenset()

    @property
    def kind(self) -> str:
        return str(self.primitive.name)

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.kind in OP_BY_OP and jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return OP_BY_OP[self.kind](self.written or self.params, args)
        if self.kind in CHOOSERS and jnp.issubdtype(self.outs[0].aval.dtype, jnp.floating):
            return [choose(self, *args)]
        return self.bind(args)

    def bind(self, args: Sequence[Any]) -> list[Any]:
        if self.kind.startswith("custom_"):
            # A trace has constants as numpy arrays. The user's rules know what JAX makes of them.
            args = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in args]
        bound = self.primitive.get_bind_params(self.params)
        # A pair until JAX put the functions among the parameters.
        functions, params = bound if isinstance(bound, tuple) else ((), bound)
        made = self.primitive.bind(*functions, *args, **params)
        return list(made) if self.primitive.multiple_results else [made]


class Held(Op):
    """Puts what it reads into memory, where all that read its results find the same bits. Nothing is
    differentiated through it."""

    def run(self, args: Sequence[Any]) -> list[Any]:
        return held(args)


def held(arrays: Sequence[Any]) -> list[Any]:
    still = [jax.lax.stop_gradient(x) for x in arrays]
    # Barriers of older versions have no rules for vmap.
    return list(jax.lax.optimization_barrier(still)) if HOLDS else still


HOLDS = jax.__version_info__ >= (0, 5)
BARRIER = jax.make_jaxpr(jax.lax.optimization_barrier)(0.0).eqns[0].primitive


def choose(op: Op, *args: Any) -> Any:
    """Runs a maximum or minimum. Its derivative is JAX's, with its decisions made from one array.

    JAX compares what the op read with what it made. Where one of the two is made again by another kernel its
    last bits may be others: then no element is equal, and gradients are 0 or infinite.
    """

    @jax.custom_jvp
    def run(*args: Any) -> Any:
        return checkpoint_name(op.bind(args)[0], CHOSEN)

    def by_order(primals: Any, tangents: Any) -> Any:
        made, (x, y) = run(*primals), primals
        wins = jnp.greater_equal if op.kind == "max" else jnp.less_equal
        one, two = jnp.ones_like(made), jnp.full_like(made, 2)
        found = [
            t * (jnp.where(wins(a, b), one, 0) / jnp.where(wins(b, a), two, one))
            for t, a, b in ((tangents[0], x, y), (tangents[1], y, x))
            if not isinstance(t, jax.custom_derivatives.SymbolicZero)
        ]
        return made, sum(found[1:], found[0])

    def of_held(primals: Any, tangents: Any) -> Any:
        _, tangent = jax.jvp(lambda *xs: op.bind(xs)[0], held(primals), list(tangents))
        return run(*primals), tangent

    if op.kind in ("max", "min"):
        run.defjvp(by_order, symbolic_zeros=True)
    else:
        run.defjvp(of_held)
    return run(*args)


def scan_op_by_op(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    body, split = primal_of_jaxpr(params["jaxpr"]), params["num_consts"]
    consts, init, xs = args[:split], args[split:][: params["num_carry"]], args[split + params["num_carry"] :]

    def step(carry: Any, x: Any) -> Any:
        outs = body.evaluate([*consts, *carry, *x])
        return outs[: len(init)], outs[len(init) :]

    carry, ys = jax.lax.scan(step, list(init), list(xs), params["length"], params["reverse"])
    return [*carry, *ys]


def while_op_by_op(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    test, body = primal_of_jaxpr(params["cond_jaxpr"]), primal_of_jaxpr(params["body_jaxpr"])
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    made = jax.lax.while_loop(
        lambda carry: test.evaluate([*args[:first], *carry])[0],
        lambda carry: body.evaluate([*args[first:second], *carry]),
        list(args[second:]),
    )
    return list(made)


def cond_op_by_op(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    branches = [primal_of_jaxpr(branch) for branch in params["branches"]]
    return list(jax.lax.switch(args[0], [lambda *xs, b=b: b.evaluate(xs) for b in branches], *args[1:]))


def checkpoint_op_by_op(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    body = primal_of_jaxpr(ClosedJaxpr(params["jaxpr"], ()), named=True)
    run = jax.checkpoint(lambda *xs: body.evaluate(xs), policy=params["policy"])
    return list(run(*args))


#: `jax.disable_jit()` runs these op by op where a function calls them, and JAX compiles them where they are
#: bound. Bodies of scans run without regions: a region adds the gradients of what it reads before those of
#: other iterations are added.
OP_BY_OP: dict[str, Callable[[Mapping[str, Any], Sequence[Any]], list[Any]]] = {
    "scan": scan_op_by_op, "while": while_op_by_op, "cond": cond_op_by_op, "checkpoint": checkpoint_op_by_op,
    "remat2": checkpoint_op_by_op,
}  # fmt: skip


def inner_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """The jaxprs that an op calls, without their constants."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else [value]:
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def inner_kinds(params: Mapping[str, Any]) -> Iterator[str]:
    """Of all ops in what an op calls, calls within calls too."""
    for inner in inner_jaxprs(params):
        for eqn in inner.eqns:
            yield str(eqn.primitive.name)
            yield from inner_kinds(eqn.params)


def of_jit(eqn: Any) -> Any:
    """The jaxpr of a call of jit, with its constants, or of `choose`, whose op is chosen anew where it runs;
    None: it is no such call."""
    if eqn.primitive.name == "custom_jvp_call":
        called = eqn.params["call_jaxpr"]
        return called if any(isinstance(e.params.get("name"), Chosen) for e in called.jaxpr.eqns) else None
    return eqn.params.get("jaxpr") or eqn.params["call_jaxpr"] if eqn.primitive.name in INLINED else None


def flatten(
    jaxpr: Any, consts: Sequence[Any], called: Callable[[Any], Any] = of_jit, named: bool = True
) -> tuple[list[Op], dict[Any, Any], list[Any]]:
    """Ops with calls written out, values of constants, results. called: the jaxpr of an equation that is a
    call. named: with ops that only give a name."""
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    ops: list[Op] = []

    def go(inner: Any, env: dict[Any, Any]) -> None:
        def at(v: Any) -> Any:
            return v if isinstance(v, Literal) else env.get(v, v)

        for eqn in inner.eqns:
            ins = [at(v) for v in eqn.invars]
            sub = called(eqn)
            if sub is not None:
                body = getattr(sub, "jaxpr", sub)
                within = dict(zip(body.invars, ins, strict=True))
                for var, value in zip(body.constvars, getattr(sub, "consts", ()), strict=True):
                    within[var] = Value(var.aval)
                    values[within[var]] = value
                go(body, within)
                made = [v if isinstance(v, Literal) else within.get(v, v) for v in body.outvars]
                env.update(zip(eqn.outvars, made, strict=True))
                continue
            if eqn.primitive.name == "name" and not named:
                env[eqn.outvars[0]] = ins[0]
                continue
            outs = [Value(v.aval) for v in eqn.outvars]
            ops.append(Op(eqn.primitive, dict(eqn.params), ins, outs, eqn.source_info, effects=eqn.effects))
            env.update(zip(eqn.outvars, outs, strict=True))

    top: dict[Any, Any] = {}
    go(jaxpr, top)
    return ops, values, [v if isinstance(v, Literal) else top.get(v, v) for v in jaxpr.outvars]


@dataclass(eq=False)
class Primal:
    """A traced function: ops in order; `number` and `maker` are the numbers of a result and of its op."""

    ops: list[Op]
    values: dict[Any, Any]
    inputs: list[Any]
    outputs: list[Any]
    number: dict[Any, int] = field(default_factory=dict)
    maker: dict[Any, int] = field(default_factory=dict)
    last: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, op in enumerate(self.ops):
            self.last.update((v, i) for v in op.ins if not isinstance(v, Literal))
            for v in op.outs:
                self.maker[v] = i
                self.number[v] = len(self.number)
        self.last.update((v, len(self.ops)) for v in self.outputs if not isinstance(v, Literal))

    def run(
        self, ops: Sequence[Op], env: dict[Any, Any], named: Callable[[Any], bool],
        name: Callable[[Any, Name], Any] = checkpoint_name,
    ) -> None:  # fmt: skip
        """Runs ops; results that `named` picks carry the name of their number, as `name` gives it."""
        for op in ops:
            made = op.run([v.val if isinstance(v, Literal) else env[v] for v in op.ins])
            for v, x in zip(op.outs, made, strict=True):
                env[v] = name(x, Name.of(self, self.number[v])) if named(v) else x

    def evaluate(self, args: Sequence[Any]) -> list[Any]:
        env = dict(self.values) | dict(zip(self.inputs, args, strict=True))
        self.run(self.ops, env, lambda v: False)
        return self.out(env)

    def out(self, env: Mapping[Any, Any]) -> list[Any]:
        return [v.val if isinstance(v, Literal) else env[v] for v in self.outputs]


def decided(ops: Sequence[Op]) -> list[Op]:
    """The ops, with what comparisons read made anew from one array in memory where it is made of the same
    values: what is equal there by its making, as an element and the largest, would not be equal where one of
    them is made again by another kernel with other last bits."""
    makers = {v: op for op in ops for v in op.outs} if HOLDS else {}
    made: list[Op] = []
    for op in ops:
        between, sources = common(op, makers) if op.kind in COMPARED else ([], {})
        if not between:
            made.append(op)
            continue
        new = {v: Value(v.aval) for v in sources}
        made.append(Held(BARRIER, {}, list(sources), list(new.values()), op.source))
        for each in between:
            new.update((v, Value(v.aval)) for v in each.outs)
        for each in [*between, op]:
            ins = [v if isinstance(v, Literal) else new.get(v, v) for v in each.ins]
            outs = each.outs if each is op else [new[v] for v in each.outs]
            made.append(Op(each.primitive, each.params, ins, outs, each.source, effects=each.effects))
    return made


def common(op: Op, makers: Mapping[Any, Op]) -> tuple[list[Op], dict[Any, None]]:
    """Floats that both sides of a comparison are made of by exact ops, and these ops in order."""
    sides = [v for v in op.ins if not isinstance(v, Literal)]
    if len(sides) == 1 and sides[0] in makers and makers[sides[0]].kind == "sub":  # x - y == 0
        sides = [v for v in makers[sides[0]].ins if not isinstance(v, Literal)]
    if len(set(sides)) < 2:
        return [], {}

    def exact(v: Any) -> Op | None:
        maker = makers.get(v)
        return maker if maker is not None and maker.kind in EXACT else None

    def closure(v: Any) -> dict[Any, None]:
        found, pending = {v: None}, [v]
        while pending and len(found) <= MOST_EXACT:
            maker = exact(pending.pop())
            for x in maker.ins if maker else []:
                if not isinstance(x, Literal) and x not in found:
                    found[x] = None
                    pending.append(x)
        return found

    first, second = map(closure, sides)
    shared = first.keys() & second.keys()
    sources: dict[Any, None] = {}
    between: dict[Op, None] = {}

    def go(v: Any) -> None:
        maker = None if v in shared else makers.get(v)
        if v in shared:
            sources.setdefault(v)
        elif maker is not None and maker not in between and (maker.kind in EXACT or v in op.ins):
            for x in maker.ins:
                if not isinstance(x, Literal):
                    go(x)
            between[maker] = None

    for v in op.ins:
        if not isinstance(v, Literal):
            go(v)
    if not any(v in makers and jnp.issubdtype(v.aval.dtype, jnp.floating) for v in sources):
        return [], {}
    return list(between), sources


def shape_of(v: Any) -> Any:
    return jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=getattr(v.aval, "weak_type", False))


def primal_of(flat_fn: Callable[..., Any], avals: Sequence[Any]) -> Primal:
    with jax.disable_jit(False):
        closed = jax.make_jaxpr(flat_fn)(*avals)
    return primal_of_jaxpr(closed)


def primal_of_jaxpr(closed: Any, named: bool = False) -> Primal:
    """named: with the names that are in the function. A plan has its own: both would be in memory."""
    ops, values, outs = flatten(closed.jaxpr, closed.consts, named=named)
    ops = decided(ops)
    return Primal(ops, values, list(closed.jaxpr.invars), outs)


def with_scans(primal: Primal, scans: Mapping[str, Policy]) -> Primal:
    """The function with the bodies of its scans in regions."""
    if not scans:
        return primal
    ops = list(primal.ops)
    for number, policy in scans.items():
        op = ops[int(number)]
        body = op.params["jaxpr"]
        inner = primal_of_jaxpr(body)
        avals = [shape_of(v) for v in body.jaxpr.invars]
        with jax.disable_jit(False):
            planned = jax.make_jaxpr(lambda *args, p=inner, q=policy: run_regions(p, q, args))(*avals)
        params = {**op.params, "jaxpr": planned}
        ops[int(number)] = Op(op.primitive, params, op.ins, op.outs, op.source, op.params)
    return Primal(ops, primal.values, primal.inputs, primal.outputs)


def decisions(ops: Sequence[Op], at: Callable[[Any], Any] = lambda v: v) -> tuple[set[Op], set[Op]]:
    """Ops that hold values for comparisons, and these comparisons. at: what an operand stands for."""
    origin: dict[Any, frozenset[Op]] = {}
    holders: set[Op] = set()
    found: set[Op] = set()
    for op in ops:
        of = [origin[v] for v in map(at, op.ins) if not isinstance(v, Literal) and v in origin]
        if op.primitive is BARRIER:
            origin.update((v, frozenset([op])) for v in op.outs)
        elif of and op.kind in COMPARED:
            found.add(op)
            holders = holders.union(*of)
        elif of and (op.kind in EXACT or op.kind == "sub"):
            origin.update((v, frozenset().union(*of)) for v in op.outs)
    return holders, found


def saves(primal: Primal, saved: set[int], offloaded: set[int]) -> Callable[..., Any]:
    """The policy of `jax.checkpoint` that saves these results by name, some of them on the host."""
    of_name = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["saved"], names_which_can_be_offloaded=["offloaded"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip

    # JAX's policy has arguments of its own, which parameters of other primitives are named like.
    def keeps(primitive: Any, /, *_: Any, **params: Any) -> Any:
        name = params.get("name")
        if not isinstance(name, Name) or name.plan is not primal or name.number not in saved:
            return False
        return of_name(primitive, name="offloaded" if name.number in offloaded else "saved")

    return keeps


@jax.custom_jvp
def repeated(again: Any, first: Any) -> Any:
    """The value made again; its derivative is that of the first one, so that sums keep their order."""
    del first
    return again


@repeated.defjvp
def _repeated_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


def savable(x: Any, name: Name) -> Any:
    """The value with its name. A complex one is saved in two parts: `jax.checkpoint` fails to save it whole
    (JAX 0.10)."""
    if not jnp.iscomplexobj(x):
        return checkpoint_name(x, name)
    return repeated(jax.lax.complex(checkpoint_name(x.real, name), checkpoint_name(x.imag, name)), x)


def run_regions(primal: Primal, policy: Policy, args: Sequence[Any]) -> list[Any]:
    """The results of the function, run in the regions of a policy; without regions, as it is. Bodies of scans
    are those of `primal`."""
    if not policy["regions"]:
        return primal.evaluate(args)
    saved, offloaded = set(policy["saved"]), set(policy.get("offloaded", ()))
    env = dict(primal.values) | dict(zip(primal.inputs, args, strict=True))
    names = saves(primal, saved, offloaded)

    def renamed(v: Any, x: Any) -> Any:
        # What a region is given stays on the device, unless it has its name in the region too.
        moved = primal.number.get(v) in offloaded
        return savable(x, Name.of(primal, primal.number[v])) if moved else x

    regions = []
    begin = 0
    for end, again, checkpointed in policy["regions"]:
        heads = [primal.ops[n] for n in again]
        made = {v for op in heads for v in op.outs}
        leaves = dict.fromkeys(
            v for op in heads for v in op.ins if not isinstance(v, Literal) and v not in made
        )
        regions.append((begin, end, heads, made, leaves, checkpointed))
        begin = end
    last = dict(primal.last)
    for begin, _, _, _, leaves, _ in regions:
        last.update((v, max(last[v], begin)) for v in leaves)
    for begin, end, heads, made, leaves, checkpointed in regions:
        ops = primal.ops[begin:end]
        reads = dict.fromkeys(v for op in ops for v in op.ins if not isinstance(v, Literal) and v in env)
        outs = [v for op in ops for v in op.outs if last.get(v, -1) >= end]
        # What later regions read too goes through this one: cotangents are then summed in the plain order.
        outs += [v for v in reads if primal.last[v] >= end]
        ghosts = [v for v in reads if v in made]

        def region(
            xs: Sequence[Any],
            seeds: Sequence[Any],
            ops: Any = ops,
            reads: Any = tuple(reads),
            outs: Any = tuple(outs),
            heads: Any = tuple(heads),
            leaves: Any = tuple(leaves),
            ghosts: Any = tuple(ghosts),
        ) -> list[Any]:
            inner = {v: renamed(v, x) for v, x in zip(reads, xs, strict=True)}
            head = {v: renamed(v, jax.lax.stop_gradient(x)) for v, x in zip(leaves, seeds, strict=True)}
            primal.run(heads, head, lambda v: False)
            inner.update((v, repeated(head[v], inner[v])) for v in ghosts)
            primal.run(ops, inner, lambda v: primal.number[v] in saved, savable)
            return [inner[v] for v in outs]

        # A checkpoint is traced, and a trace cannot choose branches: JAX would compile them.
        branches = jax.config.jax_disable_jit and any(  # type: ignore[attr-defined]
            kind in BRANCHES for op in ops for kind in [op.kind, *inner_kinds(op.params)]
        )
        run = jax.checkpoint(region, policy=names) if checkpointed and not branches else region
        got = run([env[v] for v in reads], [env[v] for v in leaves])
        env.update(zip(outs, got, strict=True))
    return primal.out(env)


def load(path: str | Path) -> dict[str, Any]:
    """A policy from the file that `save` wrote. Raises ValueError for any other file."""
    try:
        policy = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(policy, dict) or policy.get("format") != FORMAT:
        raise ValueError(f'{path}: no policy: "format" is not "{FORMAT}"')
    if not is_whole(policy):
        raise ValueError(f"{path}: a policy of which a part is missing or is something else")
    return policy


def is_whole(policy: Any) -> bool:
    """Has it all parts of a policy, the last region at its end?"""

    def numbers(x: Any) -> bool:
        return isinstance(x, list) and all(type(n) is int and n >= 0 for n in x)

    try:
        ends = [end for end, again, kept in policy["regions"] if numbers(again) and type(kept) is bool]
        return (
            type(policy["ops"]) is int and numbers(policy["saved"]) and numbers(policy.get("offloaded", []))
            and numbers(ends) and ends == sorted(ends) and ends[-1:] in ([], [policy["ops"]])
            and len(ends) == len(policy["regions"]) and all(map(is_whole, policy["scans"].values()))
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def is_array(x: Any) -> bool:
    """Numbers of Python are none: code may branch on them, as layers of equinox do on their rates."""
    return hasattr(x, "dtype") and hasattr(x, "shape")


def apply(fn: Callable[..., Any], policy: Policy | str | Path) -> Callable[..., Any]:
    """`fn` with the checkpoints of a policy, given as a dict or as a file. It holds for one program: calls of
    `fn` with other shapes are run in the same regions, and calls that trace to another number of ops raise
    ValueError."""
    chosen = policy if isinstance(policy, Mapping) else load(policy)

    def with_checkpoints(*args: Any, **keywords: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten((args, keywords))
        arrays = [x for x in leaves if is_array(x)]
        found: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            given = iter(xs)
            filled = [next(given) if is_array(x) else x for x in leaves]
            inner, named = jax.tree_util.tree_unflatten(tree, filled)
            outs, out_tree = jax.tree_util.tree_flatten(fn(*inner, **named))
            found[:] = [out_tree]
            return outs

        primal = primal_of(flat, arrays)
        if len(primal.ops) != chosen["ops"]:
            raise ValueError(
                f"the policy is for a function of {chosen['ops']} ops, not of {len(primal.ops)}: "
                "another model, or another version of JAX"
            )
        if not set(chosen["saved"]) <= set(primal.number.values()):
            raise ValueError(
                f"the policy saves results that the function, which has {len(primal.number)}, has not"
            )
        outs = run_regions(with_scans(primal, chosen["scans"]), chosen, arrays)
        return jax.tree_util.tree_unflatten(found[0], outs)

    return with_checkpoints
