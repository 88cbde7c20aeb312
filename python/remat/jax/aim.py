"""Finds a plan that XLA compiles within a budget: plan, compile, read XLA's sizes, plan for less."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

import remat
from remat import Graph, PlanResult
from remat.errors import InfeasibleError, NoPlanError, UsageError
from remat.jax.capture import place_of
from remat.jax.devices import Target
from remat.jax.plans import Candidate, FullProgram, Program, offloads
from remat.jax.regions import FORMAT, Primal, inner_kinds

#: Compiles of a planned step at most; where ends of regions or stretches cost time, and names and full order
#: are tried, two more.
COMPILES = 3
#: Where they cost time, of each executor with as few as can be, before all.
COARSE = 2
#: From arrays to arrays, all in lists.
Run = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class Report:
    """What was planned and what XLA made of it. Sizes are in bytes: temporary size + arguments + outputs of
    the step with its gradients, as XLA reports them."""

    budget: int
    plain: int
    """Of the step as it is written, without checkpoints."""
    predicted: int
    """Of the plan before it was compiled: by the model, and what the compile before it was off by, if any."""
    compiled: int
    """Of the step that runs."""
    host: int
    """Bytes of host memory that the step takes, as XLA reports them; 0: nothing is offloaded."""
    compiler_options: dict[str, Any]
    """What your own `jax.jit` of the step must be given, or its memory is another."""
    device: str
    """That was compiled for: "cpu", "h100", ..."""
    temporary: int
    """XLA's temporary size, of `compiled`."""
    executor: str
    """"none": the step as it is written keeps the budget; "names": saved names in regions; "full": full
    order."""
    overhead: float
    """Time of second runs, and of copies to the host and back, as a share of that of the plain step, by
    rooflines. Below 0 where bodies of scans save less: what they do not save is not written either."""
    gap: float | None
    """How far the planned step may be from the fastest one of its executor within the budget, as a share, by
    the model; None: nothing is proved, as with scans, whose bodies are planned one by one."""
    regions: int
    """0 in full order, which has none."""
    compiles: int
    """How often a planned step was compiled."""
    plan: PlanResult | None
    """What the core said, of a graph whose ops may have larger workspaces than those of `capture`: for what
    XLA leaves empty. None with executor "none"."""

    def __str__(self) -> str:
        sizes = [
            ("plain", self.plain),
            ("budget", self.budget),
            ("compiled", self.compiled),
            ("predicted", self.predicted),
        ]
        if self.host:
            sizes.append(("host", self.host))
        lines = [f"{name:<10}{remat.format_bytes(size):>12}" for name, size in sizes]
        gap = "nothing proved" if self.gap is None else f"at most {self.gap:.2%} above the least"
        lines.append(f"{'overhead':<10}{self.overhead:>12.2%}  {gap}")
        lines.append(f"{'device':<10}{self.device:>12}")
        lines.append(
            f"{'executor':<10}{self.executor:>12}  {self.regions} regions, compiled {self.compiles} times"
        )
        return "\n".join(lines)


class Reached(NamedTuple):
    """The least that was reached when a budget was refused."""

    executor: str
    graph: Graph
    result: PlanResult
    coarse: bool
    size: int


#: A budget of what a refusal names is to be kept.
REACHED: deque[Reached] = deque(maxlen=16)


class Sizes(NamedTuple):
    """What XLA says of a program, in bytes."""

    temporary: int
    held: int
    """Arguments and outputs; once what is written over donated arguments."""
    host: int
    """Temporary size in the host's memory."""

    @property
    def all(self) -> int:
        return self.temporary + self.held


def compiled_sizes(
    target: Target,
    step: Callable[..., Any],
    avals: Sequence[Any],
    donated: Sequence[int] = (),
    offload: bool = False,
) -> Sizes:
    with jax.disable_jit(False):
        sizes = target.compile(step, *avals, donate_argnums=donated, offload=offload).memory_analysis()
    held = int(sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes)
    return Sizes(int(sizes.temp_size_in_bytes), held, int(sizes.host_temp_size_in_bytes))


def empty_policy(primal: Primal) -> dict[str, Any]:
    return {
        "format": FORMAT, "ops": len(primal.ops), "saved": [], "offloaded": [], "regions": [], "scans": {},
    }  # fmt: skip


def refuse_leaks(primal: Primal, step: Callable[..., Any], avals: Sequence[Any]) -> None:
    """Raises UsageError for rules of the user's that read values of the trace which no other run has: XLA's
    sizes are those of another step, and a call fails."""
    if not any(
        kind.startswith("custom_vjp") for op in primal.ops for kind in (op.kind, *inner_kinds(op.params))
    ):
        return
    try:
        with jax.disable_jit(False):
            consts = jax.make_jaxpr(step)(*avals).consts
    except jax.errors.UnexpectedTracerError:  # as older versions find out
        consts = [None]
    if any(x is None or isinstance(x, jax.core.Tracer) for x in consts):
        raise UsageError(
            "the backward function of a custom_vjp reads a traced value that is none of its residuals: "
            "its forward function has to return it among them"
        )


@dataclass
class Aim:
    """Candidates of one step, compiled one after the other.

    size: of the budget, bytes. step: from a function of arrays to the step with its gradients. avals: what
    the step is compiled for.
    """

    program: Program
    device: Target
    size: int
    plain: Sizes
    step: Callable[[Callable[..., list[Any]]], Callable[..., Any]]
    avals: Sequence[Any]
    kept: Candidate | None = None
    report: Report | None = None
    compiles: int = 0
    nearest: tuple[str, Candidate] | None = None
    """The plan that reached the least, and its executor."""
    least: int = field(init=False)
    """The least that XLA reached."""
    bound: int = field(init=False)
    """By the model no plan takes less."""
    fastest: int | None = None
    """By the model no plan of the executor that is tried is faster; None: nothing is proved."""
    tried: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Policies that were compiled, by executor."""

    def __post_init__(self) -> None:
        self.least, self.bound = self.plain.all, self.plain.held
        self.searches: dict[str, Program | FullProgram] = {
            "names": self.program,
            "full": FullProgram(self.program),
        }

    def run(self, executor: str, last: bool, most: int, coarse: bool = False) -> None:
        """Compiles plans of an executor until one keeps the budget, or there are no more.

        last: nothing else is tried after it. most: compiles at most, with those before. coarse: see
        `Program.best`.
        """
        search, off = self.searches[executor], dict[int, int]()
        tried = self.tried.setdefault(executor, [])
        start = self.size - self.compiles * self.size // 100
        targets = [start] * len(search.levels)
        for _ in range(most - self.compiles):
            candidate, proved = search.best(targets, coarse)
            if not tried:
                self.bound = max(self.plain.held, proved)
                self.fastest = self.proved_fastest(search, candidate, start)
            if self.kept and (candidate is None or candidate.duration >= self.kept.duration):
                return
            if candidate is None or candidate.policy in tried:
                break
            level, peak = candidate.level, candidate.peak
            got = self.compiled(candidate, executor, off.get(level, 0))
            if self.kept is candidate:
                return
            off[level] = got.all - peak
            # What the model lacks is the same bytes again, or the same share; 1 % more for each compile.
            target = min(targets[level], peak - (got.all - self.size), peak * self.size // got.all)
            targets[level] = max(1, target - self.compiles * target // 100)
        if last and not self.kept:
            self.run_reached()
            self.run_smallest(executor)

    def run_reached(self) -> None:
        """The plan that reached the least, where a smaller budget for the step was refused before: the search
        finds others within this one, of which XLA may make more."""
        for executor, graph, result, coarse, size in reversed(REACHED):
            if size > self.size or executor not in self.tried:
                continue
            search = self.searches[executor]
            level = next((i for i, (_, joint, _) in enumerate(search.levels) if joint.graph == graph), None)
            if level is not None:
                self.compiled(search.candidate(level, result, coarse), executor, 0)
                return

    def run_smallest(self, executor: str) -> None:
        """Nothing more is predicted to fit. The model may be wrong: XLA says what the smallest plan takes. Of
        levels, which the model may be wrong about by different amounts, the next one follows."""
        search, off = self.searches[executor], dict[int, int]()
        for _ in range(min(2, len(search.levels))):
            candidate = None if self.kept else search.smallest(off)
            if candidate is None or candidate.policy in self.tried[executor]:
                return
            off[candidate.level] = self.compiled(candidate, executor, 0).all - candidate.peak

    def refused(self) -> NoPlanError:
        if self.nearest:
            executor, candidate = self.nearest
            graph = self.searches[executor].levels[candidate.level][1].graph
            REACHED.append(Reached(executor, graph, candidate.result, candidate.coarse, self.least))
        what = "saved names take" if list(self.tried) == ["names"] else "plan takes"
        line = f"no plan that XLA compiles to {self.size} bytes was found: the least was {self.least}"
        if self.bound <= self.least:  # else the model is wrong about the step
            line += f", and by the model no {what} less than {self.bound}"
        ops = self.program.plain.ops
        mapped = next((op for op in ops if "shard_map" in (op.kind, *inner_kinds(op.params))), None)
        if mapped:
            line += f"; what is saved inside shard_map at {place_of(mapped.source)} is not planned"
        return NoPlanError(line, floor=self.plain.held, smallest_known=self.least)

    def proved_fastest(
        self, search: Program | FullProgram, candidate: Candidate | None, asked: int
    ) -> int | None:
        """The duration that no plan of a search for the budget is below; None: nothing is proved."""
        if len(search.levels) > 1:
            return None
        # What is proved for fewer bytes does not hold for the budget.
        if candidate is not None and asked == self.size:
            return candidate.fastest
        return int(search.levels[0][1].graph.base_duration)

    def compiled(self, candidate: Candidate, executor: str, off: int) -> Sizes:
        """What XLA makes of a candidate, which is kept if it is within the budget. off: what the compile
        before, of the same level, was above its prediction."""
        self.compiles += 1
        self.tried[executor].append(candidate.policy)
        moves = offloads(candidate.policy)
        step = self.step(lambda *leaves: candidate.run(leaves))
        got = compiled_sizes(self.device, step, self.avals, self.program.donated, moves)
        if got.all < self.least:
            self.least, self.nearest = got.all, (executor, candidate)
        host = self.program.host
        if got.all <= self.size and (host is None or host.budget is None or got.host <= host.budget):
            gap = candidate.duration / self.fastest - 1 if self.fastest else None
            self.kept = candidate
            self.report = Report(
                self.size, self.plain.all, candidate.peak + off, got.all, got.host,
                self.device.device.options(moves), self.device.name, got.temporary, executor,
                candidate.overhead, gap, len(candidate.policy["regions"]), self.compiles, candidate.result,
            )  # fmt: skip
        return got


def aim(
    program: Program, budget: int | str, step: Callable[[Callable[..., list[Any]]], Callable[..., Any]],
    avals: Sequence[Any], device: Target, executors: Sequence[str], plainly: Run,
) -> tuple[dict[str, Any], Run, Report]:  # fmt: skip
    """A policy that XLA compiles within the budget, and the function as it is carried out.

    Args:
        plainly: the function as it is written. JAX differentiates its calls of jit as one, which XLA may make
            something else of than of their ops.
        step: from a function of arrays to the step with its gradients.
        avals: what the step is compiled for.
        executors: "names" or "full", in the order in which they are tried.
    """
    primal = program.plain
    refuse_leaks(primal, step(lambda *leaves: primal.evaluate(leaves)), avals)
    plain = compiled_sizes(device, step(lambda *leaves: plainly(leaves)), avals, program.donated)
    size = remat.parse_bytes(budget, plain.all)
    if plain.all <= size:
        report = Report(
            size, plain.all, plain.all, plain.all, plain.host, device.device.options(), device.name,
            plain.temporary, "none", 0.0, 0.0, 0, 0, None,
        )  # fmt: skip
        return empty_policy(primal), plainly, report
    if size < plain.held:
        raise InfeasibleError(
            f"no step fits into {size} bytes: its arguments and outputs alone take {plain.held}",
            floor=plain.held, smallest_known=plain.all,
        )  # fmt: skip
    found = Aim(program, device, size, plain, step, avals)
    costly = device.device.habits.costly_cuts
    most = COMPILES + (COARSE if costly and len(executors) > 1 else 0)
    for executor in executors:
        last, before = executor == executors[-1], found.kept
        if costly:
            # Of all regions or stretches XLA makes something else: nothing of these is carried over.
            found.run(executor, False, min(most, found.compiles + COARSE), coarse=True)
        # A coarse full order costs less than all regions.
        fine = executor == "full" or (last if costly else not found.kept)
        if fine and found.kept is before:
            found.run(executor, last, most if last else most - 1)
        # Copies are slow: full order may be faster without any.
        if found.kept and (executor == "full" or not offloads(found.kept.policy)):
            break
    if found.kept and found.report:
        return found.kept.policy, found.kept.run, found.report
    raise found.refused()
