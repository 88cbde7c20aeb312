"""Plans for a budget, from the core, with what carries them out; bodies of scans get saved sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import remat
from remat import Host, PlanResult
from remat.jax.capture import Joint
from remat.jax.costs import bytes_of, is_float
from remat.jax.cuts import SMALL, Cuts
from remat.jax.devices import CPU, Device
from remat.jax.full import FullOrder, ordered
from remat.jax.regions import FORMAT, Policy, Primal, primal_of_jaxpr, run_regions, shape_of, with_scans

#: Searches of the core until what XLA makes of a plan is within a budget by the model, at most.
ATTEMPTS = 4
#: Searches for the least bytes that there is a plan for, after that for the most.
HALVINGS = 5
#: What bodies of scans may save, of what they save when they save everything.
LEVELS = (None, 1.0, 0.75, 0.5, 0.35, 0.2, 0.1, 0.05, 0.0)
Limits = Mapping[str, Any]


@dataclass
class Candidate:
    """A plan of the core, and what carries it out; `peak` in bytes, with the step's results."""

    result: PlanResult
    peak: int
    duration: int
    overhead: float
    """Of the durations of the plain step, its scans as they are written."""
    policy: dict[str, Any]
    """In full order what is saved, and the policies of the bodies of scans."""
    run: Callable[[Sequence[Any]], list[Any]]
    """The planned function, of the list of its arrays."""
    fastest: int
    """No plan for the budget that was asked for has a smaller duration: proved, in the plain graph."""
    level: int = 0
    """Of what the bodies of scans may save: an index of `Program.levels`."""
    coarse: bool = False


class Within(NamedTuple):
    """What was found within a budget as XLA makes it, and what is proved by the plain graph."""

    result: PlanResult | None
    least: int
    """No plan takes fewer bytes."""
    fastest: int
    """No plan for the budget has a smaller duration."""


class Program:
    """A function whose step is planned: with the bodies of its scans as they are, or at a level.

    Plans of it are for saved names in regions.
    """

    def __init__(
        self,
        primal: Primal,
        avals: Sequence[Any],
        diff: Sequence[int],
        losses: Sequence[int],
        limits: Limits,
        device: Device = CPU,
        host: Host | None = None,
        donated: Sequence[int] = (),
    ) -> None:
        self.plain, self.avals, self.diff, self.losses, self.limits = primal, avals, diff, losses, limits
        self.device, self.host, self.donated = device, host, donated

    @cached_property
    def levels(self) -> list[tuple[Primal, Joint, dict[str, Policy]]]:
        found: list[tuple[Primal, Joint, dict[str, Policy]]] = []
        scans = {
            str(i): body
            for i, op in enumerate(self.plain.ops)
            if op.kind == "scan"
            and op.params["length"] > 1
            and (body := body_of(op.params["jaxpr"], self.device, self.host))
        }
        for level in LEVELS if scans else [None]:
            policies: dict[str, Policy] = {}
            if level is not None:
                for number, body in scans.items():
                    policy = body.policy(level, self.limits)
                    if policy is not None:
                        policies[number] = policy
            if found and (not policies or policies in [p for _, _, p in found]):
                continue
            primal = with_scans(self.plain, policies)
            joint = Joint(
                primal, self.avals, self.diff, self.losses,
                device=self.device, host=self.host is not None, donated=self.donated,
            )  # fmt: skip
            found.append((primal, joint, policies))
        return found

    def smallest(self, off: Mapping[int, int]) -> Candidate | None:
        """A candidate for about the least bytes that there is a plan for. It does not depend on a budget: a
        budget of what XLA makes of it finds it again.

        off: bytes that XLA takes above the prediction, by level.
        """
        found = min(self.small, key=lambda each: each[0] + off.get(each[1], 0), default=None)
        return None if found is None else self.candidate(found[1], found[2])

    @cached_property
    def small(self) -> list[tuple[int, int, PlanResult]]:
        """Plans with their sizes and levels, found on the way to the least bytes."""
        joints = [joint for _, joint, _ in self.levels]
        low = min(joint.ends for joint in joints)
        asked = high = max(joint.size(joint.graph.keep_all_peak) for joint in joints)
        found: list[tuple[int, int, PlanResult]] = []
        for _ in range(HALVINGS + 1):
            within = [
                (size_of(joint, result), level, result)
                for level, joint in enumerate(joints)
                if (result := self.searched(joint, asked)) is not None
            ]
            found += within
            low, high = (low, min(asked, *(size for size, _, _ in within))) if within else (asked, high)
            asked = (low + high) // 2
        return found

    def searched(self, joint: Joint, budget: int) -> PlanResult | None:
        """The core's plan for what is alive."""
        if budget <= 0:
            return None
        result = remat.plan(joint.graph, budget, executor="partitioner", host=self.host, **self.limits)
        return None if result.plan is None or result.saved is None else result

    def candidate(self, level: int, result: PlanResult, coarse: bool = False) -> Candidate:
        assert result.plan is not None
        primal, joint, policies = self.levels[level]
        policy = policy_of(primal, joint, result, coarse) | {"scans": policies}
        duration = result.plan.duration or 0
        overhead = duration / self.levels[0][1].graph.base_duration - 1
        run, fastest = partial(run_regions, primal, policy), int(joint.graph.base_duration)
        size = size_of(joint, result)
        return Candidate(result, size, duration, overhead, policy, run, fastest, level, coarse)

    def best(self, budgets: Sequence[int], coarse: bool = False) -> tuple[Candidate | None, int]:
        """The fastest candidate whose predicted bytes are within the budget of its level; bytes that the core
        proves none is below. coarse: no more regions than keep second runs apart, with 1 % to spare, since
        XLA orders what is in a region as it likes."""
        best: Candidate | None = None
        bounds: list[int] = []
        for level, (_, joint, _) in enumerate(self.levels):
            budget = budgets[level]
            result, least, fastest = plan_within(
                joint, budget, self.limits, partial(size_of, joint), budget // 100 if coarse else 0,
                executor="partitioner", host=self.host,
            )  # fmt: skip
            bounds.append(least)
            if result is None or result.plan is None or result.saved is None:
                continue
            duration = result.plan.duration or 0
            if best is None or duration < best.duration:
                best = replace(self.candidate(level, result, coarse), fastest=fastest)
        return best, min(bounds)


def size_of(joint: Joint, result: PlanResult) -> int:
    """What XLA reports for a plan by the model, in bytes."""
    return 0 if result.plan is None else joint.size_of(result.plan.steps, result.plan.copies)


def plan_within(
    joint: Joint, budget: int, limits: Limits, measure: Callable[[PlanResult], int], spare: int = 0,
    **options: Any,
) -> Within:  # fmt: skip
    """The first plan, of a few, whose size as XLA makes it is within the budget.

    The core counts what is alive. XLA takes more where buffers of results hold nothing: ops are given these
    bytes as workspaces, and the core is asked again. Where that is not enough, it is asked for less by all
    that its first plan was over.
    measure: bytes that XLA takes for a plan. spare: bytes of the budget that are not to be used.
    """
    graph = joint.graph
    asked = less = budget
    least, fastest = budget, int(graph.base_duration)
    for attempt in range(ATTEMPTS):
        if asked <= 0:
            break
        result = remat.plan(graph, asked, **options, **limits)
        if attempt == 0:
            least, fastest = joint.size(result.peak_lower_bound), result.duration_lower_bound
        is_plain, size = graph is joint.graph, 0
        if result.plan is not None and result.peak is not None:
            size = measure(result)
            if size + spare <= budget:
                return Within(result, least, fastest)
            if is_plain:
                less = min(asked, result.peak) - (size + spare - budget)
        elif is_plain:
            break
        if size and attempt < ATTEMPTS - 2:
            graph, asked = joint.with_empty(graph, result), budget - attempt * budget // 200
        else:
            graph, asked = joint.graph, less
    return Within(None, least, fastest)


class FullProgram:
    """Plans of the same function in full order: values may be kept, dropped and made again at any place."""

    def __init__(self, names: Program) -> None:
        self.names = names

    @cached_property
    def levels(self) -> list[tuple[Primal, Joint, dict[str, Policy]]]:
        return [(primal, joint.in_full_order(), policies) for primal, joint, policies in self.names.levels]

    def best(self, budgets: Sequence[int], coarse: bool = False) -> tuple[Candidate | None, int]:
        """As `Program.best`. coarse: see `FullOrder`."""
        found = [self.at(level, budgets[level], coarse) for level in range(len(self.levels))]
        plans = [candidate for candidate, _ in found if candidate is not None]
        return min(plans, key=lambda c: c.duration, default=None), min(bound for _, bound in found)

    def at(self, level: int, budget: int, coarse: bool) -> tuple[Candidate | None, int]:
        seen: list[Candidate] = []

        def measure(result: PlanResult) -> int:
            seen.append(self.candidate(level, result, coarse))
            return seen[-1].peak

        found = plan_within(self.levels[level][1], budget, self.names.limits, measure)
        return replace(seen[-1], fastest=found.fastest) if found.result else None, found.least

    def smallest(self, off: Mapping[int, int]) -> Candidate | None:
        """As `Program.smallest`."""
        return min(self.small, key=lambda c: c.peak + off.get(c.level, 0), default=None)

    @cached_property
    def small(self) -> list[Candidate]:
        """As `Program.small`."""
        found = []
        for level, (_, joint, _) in enumerate(self.levels):
            result = remat.plan(joint.graph, objective="peak", **self.names.limits)
            if result.plan is not None and result.peak is not None:
                found.append(self.candidate(level, result))
                if found[-1].peak > joint.size(result.peak):
                    graph = joint.with_empty(joint.graph, result)
                    again = remat.plan(graph, objective="peak", **self.names.limits)
                    found += [self.candidate(level, again)] if again.plan is not None else []
        return found

    def candidate(self, level: int, result: PlanResult, coarse: bool = False) -> Candidate:
        assert result.plan is not None
        primal, joint, policies = self.levels[level]
        full = FullOrder(joint, list(result.plan.steps), coarse)
        saved = sorted({joint.names[v] for v in full.crossing if v in joint.names})
        policy = {
            "format": FORMAT, "ops": len(primal.ops), "saved": saved, "regions": [], "scans": policies,
            "steps": full.live, "coarse": coarse,
        }  # fmt: skip
        duration = sum(int(joint.graph.durations[n]) for n in full.live)
        overhead = duration / self.levels[0][1].graph.base_duration - 1
        peak = joint.size_of(full.live)
        run = ordered(primal, full, self.names.diff, self.names.losses)
        fastest = int(joint.graph.base_duration)
        return Candidate(result, peak, duration, overhead, policy, run, fastest, level, coarse)


@dataclass(frozen=True)
class Body:
    """Of a scan. given: bytes that its step takes whatever it saves."""

    primal: Primal
    joint: Joint
    given: int
    host: Host | None

    def policy(self, share: float, limits: Limits) -> dict[str, Any] | None:
        """Saves at most a share of what it can save; None: there is no such plan.

        What is saved counts once for each iteration, what is made again once: so the budget is on what is
        saved.
        """
        graph = self.joint.graph
        budget = self.given + int(share * (graph.keep_all_peak - self.given))
        result = remat.plan(graph, budget, executor="partitioner", host=self.host, **limits)
        if result.plan is None or result.saved is None:
            return None
        return policy_of(self.primal, self.joint, result)


def body_of(jaxpr: Any, device: Device, host: Host | None = None) -> Body | None:
    """None: nothing in it can be differentiated."""
    primal = primal_of_jaxpr(jaxpr)
    avals = [shape_of(v) for v in jaxpr.jaxpr.invars]
    diff = [i for i, a in enumerate(avals) if is_float(a)]
    losses = [i for i, v in enumerate(primal.outputs) if is_float(v.aval)]
    if not diff or not losses:
        return None
    between = 4 * Joint(primal, avals, diff, losses, device=device).graph.keep_all_peak
    joint = Joint(primal, avals, diff, losses, between, device, host is not None)
    # Results of the body are there to the end, whatever is saved.
    results = sum(map(bytes_of, {v for v in primal.outputs if v in primal.number}))
    return Body(primal, joint, between + int(joint.graph.resident) + results, host)


def policy_of(primal: Primal, joint: Joint, result: PlanResult, coarse: bool = False) -> dict[str, Any]:
    """Of a plan for the partitioner. coarse: with no more regions than keep second runs apart."""
    assert result.plan is not None
    saved = result.saved or []
    offloaded = [v for v, way, _, _ in result.plan.copies if way == "out"]
    again = None
    if coarse:
        runs = Counter(result.plan.steps)
        made = (v for op, count in runs.items() if count > 1 for v in joint.graph.op_outputs(op))
        again = joint.numbers([v for v in made if joint.graph.bytes[v] > SMALL])
    return Cuts(
        primal, joint.numbers(saved), joint.once(primal, saved), joint.numbers(offloaded), again
    ).policy()  # fmt: skip


def offloads(policy: Policy) -> bool:
    """Does it save anything on the host, in bodies of scans too?"""
    return bool(policy.get("offloaded")) or any(map(offloads, policy["scans"].values()))
