"""`checkpoint`, `policy`, `capture` and `sweep`, and what they are given and return."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Number
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

import remat
from remat import Graph, Host, SweepResult
from remat.errors import BudgetError, RematError, UsageError
from remat.files import write_atomically
from remat.jax.aim import Report, Run, aim, empty_policy
from remat.jax.capture import Joint, place_of, refuse_effects
from remat.jax.costs import aval_of, bytes_of, is_float
from remat.jax.devices import Device, Target, figures_of, sharding_of, target_of
from remat.jax.plans import Program
from remat.jax.regions import Policy, Primal, is_array, primal_of, primal_of_jaxpr, run_regions
from remat.planning import refuse_share

EXECUTORS = {"auto": ("names", "full"), "names": ("names",), "full": ("full",)}
#: "auto" with a host: a plan that copies is kept if full order, which copies nothing, has no faster one.
WITH_HOST = ("names", "full", "names")
#: More bytes than any step takes.
MOST = 1 << 60
#: `host=`.
HostLike = Host | float | str | None


@dataclass(frozen=True)
class SavedName:
    """A result that is saved: in full order, that crosses from the forward to the backward half."""

    name: str
    """That `jax.checkpoint`'s policy knows it by: "remat.12"; in the body of scan 5: "5/remat.3"."""
    op: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    """Of one of them: of one iteration in a scan."""
    source: str
    """"file:line (function)" of the code that makes it."""
    host: bool = False
    """Is it on the host between the halves?"""


@dataclass(frozen=True)
class Entry:
    """A plan for one set of shapes."""

    primal: Primal
    policy: dict[str, Any]
    leaves: Run
    out_tree: Any
    report: Report

    def run(self, leaves: Sequence[Any]) -> Any:
        return jax.tree_util.tree_unflatten(self.out_tree, self.leaves(leaves))


@dataclass(frozen=True)
class Call:
    """Arguments in pieces: arrays, and all else, which counts as part of the function."""

    arrays: list[Any]
    owners: list[int | str]
    """The argument that each array is of: its number or its name."""
    rest: tuple[Any, ...]
    tree: Any

    @classmethod
    def of(cls, args: Sequence[Any], keywords: Mapping[str, Any] = MappingProxyType({})) -> Call:
        leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(keywords)))
        each: list[tuple[int | str, Any]] = [*enumerate(args), *sorted(keywords.items())]
        owners = [owner for owner, a in each for _ in jax.tree_util.tree_leaves(a)]
        held = [is_array(x) for x in leaves]
        rest = tuple(None if array else x for x, array in zip(leaves, held, strict=True))
        for i, x in enumerate(rest):
            if not isinstance(x, Hashable):
                raise UsageError(
                    f"argument {owners[i]} holds a {type(x).__name__}, neither an array nor hashable"
                )
        arrays = [x for x, array in zip(leaves, held, strict=True) if array]
        return cls(arrays, [o for o, array in zip(owners, held, strict=True) if array], rest, tree)

    def args(self, arrays: Sequence[Any]) -> Any:
        """The arguments, and those by name, with other arrays. None is no leaf, so it stands for an array in
        `rest`."""
        given = iter(arrays)
        return jax.tree_util.tree_unflatten(self.tree, [next(given) if x is None else x for x in self.rest])

    @property
    def count(self) -> int:
        """Of arguments that are not by name."""
        return len(self.tree.children()[0].children())

    def run(self, fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        args, keywords = self.args(arrays)
        return fn(*args, **keywords)

    @property
    def avals(self) -> list[Any]:
        found = []
        for x in self.arrays:
            aval = x if isinstance(x, jax.ShapeDtypeStruct) else aval_of(x)
            weak = bool(getattr(aval, "weak_type", False))
            spread = sharding_of(x)
            found.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak, sharding=spread))
        return found

    @property
    def shardings(self) -> tuple[Any, ...]:
        return tuple(map(sharding_of, self.arrays))

    @property
    def traced(self) -> bool:
        return any(isinstance(x, jax.core.Tracer) for x in self.arrays)

    @property
    def key(self) -> Any:
        """What a plan is for. To Python True and 1 are equal, and 0.0 and -0.0, and a NaN is not equal to
        itself; a trace takes each as it is."""
        shapes = tuple((a.shape, str(a.dtype), a.weak_type) for a in self.avals)
        config = jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        rest = tuple(repr(x) if isinstance(x, float | complex) else x for x in self.rest)
        return self.tree, rest, tuple(map(type, self.rest)), shapes, config


def varies(x: Any) -> bool:
    """Does JAX keep in its type that an array is another on each device of a `shard_map` around?"""
    aval = aval_of(x) if isinstance(x, jax.core.Tracer) else None
    # Since JAX 0.10; `vma` before.
    of = getattr(aval, "manual_axis_type", aval)
    return bool(getattr(of, "varying", getattr(of, "vma", None)))


def host_of(host: HostLike, device: Device, executor: str) -> Host | None:
    """What `host=` means on a device. Raises UsageError."""
    if host is None or host is False:
        return None
    if device.platform == "cpu":
        raise UsageError("host= needs device= of a GPU or TPU: XLA copies nothing out of a CPU's memory")
    if executor == "full":
        raise UsageError('host= goes with executor "names" or "auto"')
    if host is True and not device.link:
        raise UsageError(f'the link of {device.name} to its host is not known: host="25GB/s" says it')
    if isinstance(host, Host):
        return host
    return Host(device.link, device.link) if host is True else Host(host, host)


class Planned:
    """A function with the arguments and results of the plain one; one plan per shapes of its arguments.

    What `checkpoint` and `policy` return. Plans are made when a call, or `plan`, first sees new shapes.
    """

    report: Report | None
    """Of the last call. None before the first."""

    def __init__(
        self,
        fn: Callable[..., Any],
        budget: int | str,
        limits: dict[str, Any],
        device: str | Target | None,
        executor: str,
        host: HostLike,
    ) -> None:
        if not callable(fn):
            raise UsageError(f"the loss is of type {type(fn).__name__}: it has to be a function")
        if budget is None:
            raise BudgetError('a budget is needed, for example "6GiB" or "60%"')
        refuse_share(budget)
        remat.parse_bytes(budget, MOST)  # raises for what is none, whatever it is a share of
        if not isinstance(executor, str) or executor not in EXECUTORS:
            raise UsageError(f"there is no executor {executor!r}: {', '.join(map(repr, EXECUTORS))}")
        self.fn, self.budget, self.limits, self.executors = fn, budget, limits, EXECUTORS[executor]
        self.device = None if device is None else target_of(device)
        self.host = host_of(host, (self.device or target_of(None)).device, executor)
        if self.host and executor == "auto":
            self.executors = WITH_HOST
        self.report = None
        self._entry: Entry | None = None
        self._entries: dict[Any, Entry] = {}
        self._latest: dict[Any, Entry] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        call = Call.of(args, keywords)
        return self.entry(call).run(call.arrays)

    def plan(self, *args: Any, **keywords: Any) -> Report:
        """Plans for these arguments, arrays or `jax.ShapeDtypeStruct`, without running anything."""
        return self.entry(Call.of(args, keywords)).report

    @property
    def names(self) -> list[SavedName]:
        """What the plan of the last call saves. In full order results that scans save for their backward half
        are not among them."""
        entry = self.last()
        found = names_of(entry.primal, entry.policy)
        for number, policy in entry.policy["scans"].items():
            body = primal_of_jaxpr(entry.primal.ops[int(number)].params["jaxpr"])
            found += names_of(body, policy, f"{number}/")
        return found

    def save(self, path: str | Path) -> None:
        """Writes the policy of the last call as a file for `remat.jax.apply`, which needs no Remat
        (docs/jax.md). Raises RematError where it cannot be written, UsageError for a plan in full order."""
        if "steps" in self.last().policy:
            raise UsageError('a plan in full order cannot be saved: executor="names" has plans that can')
        text = json.dumps(self.last().policy, separators=(",", ":"))
        try:
            write_atomically(Path(path), text + "\n")
        except OSError as error:
            raise RematError(f"{path}: {error.strerror}") from None

    def last(self) -> Entry:
        if self._entry is None:
            raise UsageError("there is no plan before the first call")
        return self._entry

    def entry(self, call: Call) -> Entry:
        if any(map(varies, call.arrays)):
            raise UsageError("inside jax.shard_map plans need its check_vma=False")
        key = call.key, call.shardings
        # A trace does not say how arrays are spread: it gets the last plan for its shapes.
        known = self._latest.get(call.key) if call.traced else self._entries.get(key)
        if known is None:
            known = self._entries[key] = self.make(call)
        self._entry = self._latest[call.key] = known
        self.report = self._entry.report
        return self._entry

    def make(self, call: Call) -> Entry:
        raise NotImplementedError


def names_of(primal: Primal, policy: Policy, where: str = "") -> list[SavedName]:
    chosen, moved = set(policy["saved"]), set(policy.get("offloaded", ()))
    return [
        SavedName(
            f"{where}remat.{number}", primal.ops[primal.maker[v]].kind, tuple(v.aval.shape),
            str(v.aval.dtype), bytes_of(v), place_of(primal.ops[primal.maker[v]].source), number in moved,
        )
        for v, number in primal.number.items()
        if number in chosen
    ]  # fmt: skip


def traced(fn: Callable[..., Any], call: Call) -> tuple[Primal, Any]:
    """The function in ops, and the tree of its results. Raises UsageError for what cannot be planned."""
    found: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        outs, tree = jax.tree_util.tree_flatten(call.run(fn, arrays))
        for x in outs:
            if not is_array(x) and not isinstance(x, Number):
                raise UsageError(f"the function returns a {type(x).__name__}: results have to be arrays")
        found[:] = [tree]
        return outs

    primal = primal_of(flat, call.avals)
    if any(isinstance(x, jax.core.Tracer) for x in primal.values.values()):
        raise UsageError("the function holds a traced value of the code around it: pass it as an argument")
    refuse_effects(primal)
    return primal, found[0]


class Checkpointed(Planned):
    """What `checkpoint` returns."""

    def __init__(
        self,
        fn: Callable[..., Any],
        budget: int | str,
        argnums: tuple[int, ...],
        has_aux: bool,
        donate_argnums: tuple[int, ...],
        limits: dict[str, Any],
        device: str | Target | None,
        executor: str,
        host: HostLike,
    ) -> None:
        super().__init__(fn, budget, limits, device, executor, host)
        self.argnums, self.has_aux, self.donate_argnums = argnums, has_aux, donate_argnums

    def make(self, call: Call) -> Entry:
        primal, tree = traced(self.fn, call)
        diff = differentiated(call, self.argnums, call.count)
        refuse_no_loss(primal)
        if len(primal.outputs) > 1 and not self.has_aux:
            raise UsageError("the function returns more than a loss: has_aux=True is for (loss, aux)")
        target = self.device or target_of(None)
        donated = given_away(call, self.donate_argnums)
        program = Program(primal, call.avals, diff, [0], self.limits, target.device, self.host, donated)

        def plainly(leaves: Sequence[Any]) -> list[Any]:
            return jax.tree_util.tree_leaves(call.run(self.fn, leaves))

        policy, run, report = aim(
            program, self.budget, lambda run: gradient_step(run, diff), call.avals, target, self.executors,
            plainly,
        )  # fmt: skip
        return Entry(primal, policy, run, tree, report)


def refuse_no_loss(primal: Primal) -> None:
    aval = primal.outputs[0].aval if primal.outputs else None
    if aval is None or aval.shape or not is_float(aval) or jnp.issubdtype(aval.dtype, jnp.complexfloating):
        raise UsageError("the function must return a real scalar loss, or (loss, aux) with has_aux=True")


def gradient_step(run: Callable[..., list[Any]], diff: Sequence[int]) -> Callable[..., Any]:
    def loss(*leaves: Any) -> Any:
        out = run(*leaves)
        return out[0], out[1:]

    return jax.value_and_grad(loss, argnums=tuple(diff), has_aux=True)


def differentiated(call: Call, argnums: Sequence[int], count: int) -> list[int]:
    """Numbers of the arrays that gradients are taken of."""
    chosen = numbered("argnums", argnums, count)
    found = [i for i, a in enumerate(call.avals) if call.owners[i] in chosen and is_float(a)]
    if not found:
        raise UsageError(f"argnums {tuple(argnums)}: no array of floats is among these arguments")
    return found


def given_away(call: Call, argnums: Sequence[int]) -> list[int]:
    """Numbers of the arrays of donated arguments."""
    chosen = numbered("donate_argnums", argnums, call.count)
    return [i for i, owner in enumerate(call.owners) if owner in chosen]


def numbered(name: str, argnums: Sequence[int], count: int) -> list[int]:
    """Without negative numbers, which count from the last argument. Raises UsageError."""
    for n in argnums:
        if not -count <= n < count:
            raise UsageError(f"{name} names argument {n} of a call with {count} arguments")
    return [n % count for n in argnums]


class BlockPolicy(Planned):
    """What `policy` returns."""

    def __init__(
        self,
        fn: Callable[..., Any],
        budget: int | str,
        iterations: int,
        limits: dict[str, Any],
        device: str | Target | None,
        executor: str,
        host: HostLike,
    ) -> None:
        super().__init__(fn, budget, limits, device, executor, host)
        if not isinstance(iterations, int) or iterations < 1:
            raise UsageError(f"iterations must be a number of 1 or more, not {iterations!r}")
        if iterations > 1:
            if executor == "full":
                raise UsageError('the body of a scan has names only: executor "full" needs iterations=1')
            self.executors = EXECUTORS["names"]
        self.iterations = iterations

    def make(self, call: Call) -> Entry:
        body, tree = traced(self.fn, call)
        if self.iterations == 1:
            policy, run, report = self.aimed(body, call.avals)
            return Entry(body, policy, run, tree, report)
        whole, avals = scanned(self.fn, call, self.iterations)
        policy, _, report = self.aimed(whole, avals)
        own = policy["scans"].get(str(scan_of(whole)), empty_policy(body))
        return Entry(body, own, partial(run_regions, body, own), tree, report)

    def aimed(self, primal: Primal, avals: list[Any]) -> tuple[dict[str, Any], Run, Report]:
        diff = [i for i, a in enumerate(avals) if is_float(a)]
        losses = [i for i, v in enumerate(primal.outputs) if is_float(v.aval)]
        if not diff or not losses:
            raise UsageError("a block must have floats among its arguments and results")
        target = self.device or target_of(None)
        program = Program(primal, avals, diff, losses, self.limits, target.device, self.host)
        cotangents = [
            jax.ShapeDtypeStruct(primal.outputs[i].aval.shape, primal.outputs[i].aval.dtype) for i in losses
        ]
        count = len(avals)

        def step(run: Callable[..., list[Any]]) -> Callable[..., Any]:
            def both(*given: Any) -> Any:
                leaves = list(given[:count])

                def of_floats(*xs: Any) -> Any:
                    for i, x in zip(diff, xs, strict=True):
                        leaves[i] = x
                    out = run(*leaves)
                    return [out[i] for i in losses], [x for i, x in enumerate(out) if i not in losses]

                made, pull, rest = jax.vjp(of_floats, *[given[i] for i in diff], has_aux=True)
                return made, rest, pull(list(given[count:]))

            return both

        return aim(program, self.budget, step, [*avals, *cotangents], target, self.executors, primal.evaluate)


def scanned(fn: Callable[..., Any], call: Call, iterations: int) -> tuple[Primal, list[Any]]:
    """`fn(carry, x)` in a scan of so many iterations."""
    count = sum(len(part.children()) for part in call.tree.children())
    if (call.count, count) != (2, 2):
        raise UsageError(f"the body of a scan takes (carry, x), not {count} arguments")
    carried = call.owners.count(0)
    avals = [
        a if i < carried else jax.ShapeDtypeStruct((iterations, *a.shape), a.dtype)
        for i, a in enumerate(call.avals)
    ]

    def whole(*arrays: Any) -> list[Any]:
        def body(carry: Any, x: Any) -> Any:
            return call.run(fn, [*carry, *x])

        carry, x = list(arrays[:carried]), list(arrays[carried:])

        def on_leaves(carry: Any, x: Any) -> Any:
            out, made = body(carry, x)
            return jax.tree_util.tree_leaves(out), made

        return jax.tree_util.tree_leaves(jax.lax.scan(on_leaves, carry, x, length=iterations))

    return primal_of(whole, avals), avals


def scan_of(primal: Primal) -> int:
    return next(i for i, op in enumerate(primal.ops) if op.kind == "scan")


def limits_of(time_limit: float, work_limit: int | None) -> dict[str, Any]:
    return (
        {"time_limit": time_limit} if work_limit is None else {"time_limit": None, "work_limit": work_limit}
    )


def numbers(argnums: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(map(index, argnums)) if isinstance(argnums, Iterable) else (index(argnums),)


def checkpoint(
    loss_fn: Callable[..., Any],
    budget: int | str,
    *,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    donate_argnums: int | Sequence[int] = (),
    device: str | Target | None = None,
    executor: str = "auto",
    host: HostLike = None,
    time_limit: float = 2.0,
    work_limit: int | None = None,
) -> Checkpointed:
    """`loss_fn` with checkpoints that keep its step with gradients within a budget.

    What is saved is named, and the function runs in regions, each under `jax.checkpoint` with a policy that
    saves these names. Where no names keep the budget, the step is one `custom_vjp` in the order of a plan.
    Gradients are those of `loss_fn`; `jit`, `grad`, `value_and_grad`, `vmap` and, with names, `jvp` work. The
    first call with new shapes plans and compiles, also under a trace; later ones do neither.

    Args:
        loss_fn: returns a scalar, or (scalar, aux) with `has_aux`. Its arguments are pytrees of arrays;
            whatever else is in them, numbers of Python too, counts as part of the function: it must be
            hashable, and gets a plan for each value.
        budget: bytes, ``"6GiB"`` or ``"50%"`` of the plain step: XLA's temporary size + arguments + outputs
            of `value_and_grad`, for one call of the function (under `vmap`: for one example).
        argnums: the arguments that gradients are taken of, which the plan is for; negative numbers count from
            the last one. Arguments by name have none.
        donate_argnums: the arguments that the step around donates to its jit. Results of their shapes, first
            of all their gradients, are written over them and count once, as when the step updates weights in
            place. Each gradient must then be used as soon as it is made, as optimizers do unless they need
            a norm of all of them (docs/jax.md).
        device: what is planned and compiled for: "h100" or another that `compile_for` takes, which need not
            be there, or what it returns. None: the device that JAX runs on.
        executor: "names", "full", or "auto": names, and full order where two compiles of names are over the
            budget or none is predicted to fit (docs/jax.md).
        host: memory that saved results may be offloaded to, as `remat.plan` takes it (a `remat.Host`, or
            bytes per second both ways, ``"25GB/s"``), or True: with the device's link. For GPUs and TPUs,
            with names; XLA waits for every copy. The caller's jit must be given `report.compiler_options`.
        time_limit: seconds of each search of the core, of which there are up to six per compile, and for
            functions with scans up to eight times as many.
        work_limit: deterministic units of work in place of seconds: the same plan on every machine.

    On the CPU the caller's jit must be given `COMPILER_OPTIONS`, or XLA drops all checkpoints.

    Raises:
        BudgetError: no positive amount of bytes.
        NoPlanError: no plan was found that XLA compiles within the budget; `smallest_known` is the least that
            was reached, `floor` what is proved. InfeasibleError: proved that there is none.
        UsageError: callbacks, no scalar loss, arguments that cannot be planned for, no such executor; in full
            order gradients of other arguments than `argnums`, or of aux; no such device, or wheels that it is
            compiled for with are missing; a host that the device or the executor cannot have.
    """
    limits = limits_of(time_limit, work_limit)
    donated = numbers(donate_argnums)
    return Checkpointed(loss_fn, budget, numbers(argnums), has_aux, donated, limits, device, executor, host)


def policy(
    block: Callable[..., Any],
    budget: int | str,
    *,
    iterations: int = 1,
    device: str | Target | None = None,
    executor: str = "auto",
    host: HostLike = None,
    time_limit: float = 2.0,
    work_limit: int | None = None,
) -> BlockPolicy:
    """The same for a block of a model, or for the body of a `jax.lax.scan`.

    Args:
        block: any function of pytrees. With `iterations`: a body, ``(carry, x) -> (carry, y)``.
        budget: as for `checkpoint`, of the block with the gradients of all its floats, its arguments and
            cotangents included; with `iterations` of the whole scan: what one iteration leaves for the
            backward counts that often.
        iterations: the length of the scan. All iterations have one policy.

    The others, and errors, are those of `checkpoint`.
    """
    return BlockPolicy(block, budget, iterations, limits_of(time_limit, work_limit), device, executor, host)


def joint_of(
    loss_fn: Callable[..., Any], args: Sequence[Any], argnums: int | Sequence[int],
    device: str | Target | None, donate_argnums: int | Sequence[int] = (),
) -> Joint:  # fmt: skip
    call = Call.of(args)
    primal, _ = traced(loss_fn, call)
    refuse_no_loss(primal)
    diff = differentiated(call, numbers(argnums), call.count)
    donated = given_away(call, numbers(donate_argnums))
    return Joint(primal, call.avals, diff, device=figures_of(device), donated=donated)


def capture(
    loss_fn: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    donate_argnums: int | Sequence[int] = (),
    device: str | Target | None = None,
) -> Graph:
    """The step of `loss_fn` with its gradients as a graph for `remat.plan`, reports and the command line.

    Args:
        loss_fn: returns a scalar loss, or a tuple that begins with one.
        args: arrays or `jax.ShapeDtypeStruct`; nothing runs.
        argnums, donate_argnums, device: as for `checkpoint`; no wheels are needed.

    Values are what XLA stores: results of elementwise ops belong to the ops that read them. Durations are
    nanoseconds, by a roofline of the device.

    Raises:
        UsageError: as `checkpoint`.
    """
    return joint_of(loss_fn, args, argnums, device, donate_argnums).graph


def sweep(
    loss_fn: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    donate_argnums: int | Sequence[int] = (),
    device: str | Target | None = None,
    points: int = 20,
    time_limit: float = 10.0,
    work_limit: int | None = None,
) -> SweepResult:
    """Overhead against memory for the step of `loss_fn`: `remat.sweep` of what `capture` returns.

    Nothing is compiled, so sizes are predicted, and plans are free of what checkpoints can carry out.
    """
    graph = capture(loss_fn, *args, argnums=argnums, donate_argnums=donate_argnums, device=device)
    return remat.sweep(graph, points, **limits_of(time_limit, work_limit))
