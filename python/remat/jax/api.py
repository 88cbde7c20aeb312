"""`checkpoint`: plan, carry out by names, compile, aim again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Literal

import remat
from remat.errors import BudgetError, NoPlanError, UsageError
from remat.jax.capture import PREFIX, Joint, Primal, bytes_of, primal_of

#: XLA on the CPU drops optimization barriers, and with them every checkpoint, unless it is told not to.
COMPILER_OPTIONS: dict[str, Any] = {"xla_disable_hlo_passes": "cse_barrier_expander"}
#: Values up to this many bytes may cross from one region to the next without being saved.
SMALL = 64 * 1024


@dataclass(frozen=True)
class Report:
    """All sizes in bytes: XLA's temporary size + arguments + outputs of the step with gradients."""

    budget: int
    plain: int
    predicted: int
    compiled: int
    overhead: float
    regions: int
    compiles: int


def options() -> dict[str, Any]:
    return COMPILER_OPTIONS if jax.default_backend() == "cpu" else {}


def compiled_bytes(step: Callable[..., Any], avals: Sequence[Any]) -> int:
    compiled = jax.jit(step).lower(*avals).compile(compiler_options=options())
    sizes = compiled.memory_analysis()
    return int(sizes.temp_size_in_bytes + sizes.argument_size_in_bytes + sizes.output_size_in_bytes)


class Regions:
    """The function in regions: each a `jax.checkpoint` that saves the chosen names."""

    def __init__(self, primal: Primal, saved: set[int]) -> None:
        self.primal, self.saved = primal, saved
        self.cuts = self.find_cuts()

    def find_cuts(self) -> list[int]:
        primal = self.primal
        last: dict[Any, int] = {}
        for i, (_, ins, _) in enumerate(primal.ops):
            last.update((v, i) for v in ins if not isinstance(v, Literal))
        self.last = last
        for v in primal.outputs:
            if not isinstance(v, Literal):
                last[v] = len(primal.ops)
        cuts, across = [0], set()
        for i, (_, _, outs) in enumerate(primal.ops):
            across = {v for v in across if last[v] > i}
            hit = any(primal.number[v] in self.saved for v in outs)
            across |= {
                v for v in outs
                if primal.number[v] not in self.saved and bytes_of(v) > SMALL and last.get(v, -1) > i
            }  # fmt: skip
            if hit and not across and i + 1 < len(primal.ops):
                cuts.append(i + 1)
        return [*cuts, len(primal.ops)]

    def __call__(self, *args: Any) -> list[Any]:
        primal = self.primal
        env = dict(primal.values) | dict(zip(primal.inputs, args, strict=True))
        policy = jax.checkpoint_policies.save_only_these_names(*(f"{PREFIX}{n}" for n in sorted(self.saved)))
        for begin, end in zip(self.cuts, self.cuts[1:], strict=False):
            ops = primal.ops[begin:end]
            reads = dict.fromkeys(
                v for _, ins, _ in ops for v in ins if not isinstance(v, Literal) and v in env
            )
            outs = [v for _, _, made in ops for v in made if self.last.get(v, -1) >= end]

            def region(
                xs: list[Any], b: int = begin, e: int = end, r: Any = tuple(reads), o: Any = tuple(outs)
            ) -> list[Any]:
                inner = dict(zip(r, xs, strict=True))
                primal.run(b, e, inner, lambda v: primal.number[v] in self.saved)
                return [inner[v] for v in o]

            got = jax.checkpoint(region, policy=policy)([env[v] for v in reads])
            env.update(zip(outs, got, strict=True))
        return [v.val if isinstance(v, Literal) else env[v] for v in primal.outputs]


class Checkpointed:
    """A function with the arguments and results of the plain one; one plan per shapes of its arguments."""

    def __init__(
        self, fn: Callable[..., Any], budget: int | str, argnums: tuple[int, ...], has_aux: bool, limit: float
    ) -> None:
        self.fn, self.budget, self.argnums, self.has_aux, self.limit = fn, budget, argnums, has_aux, limit
        self.report: Report | None = None
        self.plans: dict[Any, tuple[Regions, Any, Report]] = {}

    def __call__(self, *args: Any) -> Any:
        leaves, tree = jax.tree_util.tree_flatten(args)
        for leaf in leaves:
            if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
                raise UsageError(f"remat.jax takes arrays and numbers, not {type(leaf).__name__}")
        shapes = [jax.typeof(x) for x in leaves]
        key = (tree, tuple((s.shape, str(s.dtype), s.weak_type) for s in shapes))
        if key not in self.plans:
            avals = [jax.ShapeDtypeStruct(s.shape, s.dtype, weak_type=s.weak_type) for s in shapes]
            diff = self.differentiated(args)
            self.plans[key] = self.make(tree, avals, diff)
        regions, out_tree, self.report = self.plans[key]
        return jax.tree_util.tree_unflatten(out_tree, regions(*leaves))

    def differentiated(self, args: Sequence[Any]) -> list[int]:
        if any(not 0 <= n < len(args) for n in self.argnums):
            raise UsageError(f"argnums {self.argnums} of a call with {len(args)} arguments")
        owners = [i for i, a in enumerate(args) for _ in jax.tree_util.tree_leaves(a)]
        return [leaf for leaf, owner in enumerate(owners) if owner in self.argnums]

    def make(self, tree: Any, avals: list[Any], diff: list[int]) -> tuple[Regions, Any, Report]:
        out_tree: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            out = self.fn(*jax.tree_util.tree_unflatten(tree, leaves))
            outs, found = jax.tree_util.tree_flatten(out)
            first = out[0] if self.has_aux and isinstance(out, tuple) and out else out
            if getattr(first, "shape", None) != ():
                raise UsageError("the function must return a scalar loss, or (loss, aux) with has_aux=True")
            out_tree[:] = [found]
            return outs

        primal = primal_of(flat, avals)
        joint = Joint(primal, avals, diff)

        def step(run: Callable[..., list[Any]]) -> Callable[..., Any]:
            def loss(*leaves: Any) -> Any:
                out = run(*leaves)
                return out[0], out[1:]

            return jax.value_and_grad(loss, argnums=tuple(diff), has_aux=True)

        plain = compiled_bytes(step(flat), avals)
        regions, report = self.aim(primal, joint, plain, lambda r: compiled_bytes(step(r), avals))
        return regions, out_tree[0], report

    def aim(
        self, primal: Primal, joint: Joint, plain: int, compiled: Callable[[Regions], int]
    ) -> tuple[Regions, Report]:
        budget = budget_in_bytes(self.budget, plain)
        target, least = budget, plain
        for attempt in range(1, 4):
            result = remat.plan(joint.graph, target, door="inductor", time_limit=self.limit)
            if result.plan is None or result.peak is None or result.saved is None:
                break
            saved = {joint.names[v] for v in map(joint.value_of.get, result.saved) if v in joint.names}
            regions = Regions(primal, saved)
            got = compiled(regions)
            least = min(least, got)
            if got <= budget:
                overhead = result.plan.overhead
                count = len(regions.cuts) - 1
                return regions, Report(budget, plain, result.peak, got, overhead, count, attempt)
            target -= got - budget
            if target <= 0:
                break
        raise NoPlanError(
            f"no plan that XLA compiles to {budget} bytes was found; the least was {least}",
            smallest_known=least,
        )


def budget_in_bytes(budget: int | str, plain: int) -> int:
    if isinstance(budget, str) and budget.strip().endswith("%"):
        try:
            share = float(budget.strip()[:-1]) / 100
        except ValueError:
            share = 0.0
        if not share > 0:
            raise BudgetError(f"a budget must be a positive amount of bytes, not {budget!r}")
        return int(plain * share)
    return remat.parse_bytes(budget) if isinstance(budget, str) else int(budget)


def checkpoint(
    loss_fn: Callable[..., Any],
    budget: int | str,
    *,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    time_limit: float = 10.0,
) -> Checkpointed:
    """`loss_fn` with checkpoints that keep the step with its gradients within a budget.

    Args:
        loss_fn: returns a scalar, or (scalar, aux) with `has_aux`; its arguments are pytrees of arrays.
        budget: bytes, ``"6GiB"`` or ``"50%"`` of the plain step: XLA's temporary + arguments + outputs.
        argnums: the arguments that gradients are taken of; what is planned for.
        time_limit: seconds of the search, for each of at most three plans.

    The first call with new shapes plans and compiles. On the CPU the caller's own jit must be given
    `COMPILER_OPTIONS`, or XLA drops the checkpoints.

    Raises:
        NoPlanError: no plan was found that XLA compiles within the budget; `smallest_known` is the least.
        UsageError: effects, no scalar loss, or arguments that are no arrays.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    return Checkpointed(loss_fn, budget, numbers, has_aux, time_limit)
