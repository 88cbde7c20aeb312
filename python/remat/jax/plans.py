"""Saved sets for a budget, from the core; bodies of scans get one each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import remat
from remat import PlanResult
from remat.jax.capture import Joint
from remat.jax.cuts import Cuts
from remat.jax.devices import CPU, Device
from remat.jax.regions import Policy, Primal, primal_of_jaxpr, shape_of, with_scans

#: Searches of the core for one budget.
ATTEMPTS = 4
#: What bodies of scans may save, of what they save when they save everything.
LEVELS = (None, 1.0, 0.75, 0.5, 0.35, 0.2, 0.1, 0.0)
Limits = Mapping[str, Any]


@dataclass
class Candidate:
    """A plan of the core, and the policy that carries it out; `peak` in bytes, with the step's results."""

    result: PlanResult
    peak: int
    duration: int
    overhead: float
    """Of the durations of the plain step, its scans as they are written."""
    policy: dict[str, Any]


class Program:
    """A function whose step is planned: with the bodies of its scans as they are, or at a level."""

    def __init__(
        self,
        primal: Primal,
        avals: Sequence[Any],
        diff: Sequence[int],
        losses: Sequence[int],
        limits: Limits,
        device: Device = CPU,
    ) -> None:
        self.plain, self.avals, self.diff, self.losses, self.limits = primal, avals, diff, losses, limits
        self.device = device

    @cached_property
    def levels(self) -> list[tuple[Primal, Joint, dict[str, Policy]]]:
        found: list[tuple[Primal, Joint, dict[str, Policy]]] = []
        scans = {
            str(i): body
            for i, op in enumerate(self.plain.ops)
            if op.kind == "scan"
            and op.params["length"] > 1
            and (body := body_of(op.params["jaxpr"], self.device))
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
            joint = Joint(primal, self.avals, self.diff, self.losses, device=self.device)
            found.append((primal, joint, policies))
        return found

    def smallest(self, budget: int) -> Candidate | None:
        """A candidate for about the least bytes that there is a plan for, above a budget without one."""
        low, high = budget, max(joint.size(joint.graph.keep_all_peak) for _, joint, _ in self.levels)
        found = self.best(high)[0]
        for _ in range(5):
            middle = (low + high) // 2
            candidate = self.best(middle)[0]
            low, high = (middle, high) if candidate is None else (low, candidate.peak)
            found = candidate or found
        return found

    def best(self, budget: int) -> tuple[Candidate | None, int]:
        """The fastest candidate whose predicted bytes are within the budget; bytes that the core proves none
        is below."""
        best: Candidate | None = None
        bounds: list[int] = []
        for primal, joint, policies in self.levels:
            found = self.within(joint, budget, bounds)
            if found is None:
                continue
            result, peak = found
            if result.plan is None or result.saved is None:
                continue
            duration = result.plan.duration or 0
            if best is None or duration < best.duration:
                policy = policy_of(primal, joint, result.saved) | {"scans": policies}
                once = self.levels[0][1].graph.base_duration
                best = Candidate(result, peak, duration, duration / once - 1, policy)
        return best, min(bounds, default=budget)

    def within(self, joint: Joint, budget: int, bounds: list[int]) -> tuple[PlanResult, int] | None:
        """A plan whose bytes are within the budget, and these. The core counts what is alive; what XLA takes
        for it may be more, so it is asked for that much less."""
        asked = budget - joint.copied
        for attempt in range(ATTEMPTS):
            if asked <= 0:
                break
            result = remat.plan(joint.graph, asked, executor="partitioner", **self.limits)
            if attempt == 0:
                bounds.append(joint.size(result.peak_lower_bound))
            if result.plan is None or result.peak is None or result.saved is None:
                break
            size = joint.size_of(result.plan)
            if size <= budget:
                return result, size
            asked = min(asked, result.peak) - (size - budget)
        return None


@dataclass(frozen=True)
class Body:
    """Of a scan. given: bytes that its step takes whatever it saves."""

    primal: Primal
    joint: Joint
    given: int

    def policy(self, share: float, limits: Limits) -> dict[str, Any] | None:
        """Saves at most a share of what it can save; None: there is no such plan.

        What is saved counts once for each iteration, what is made again once: so the budget is on what is
        saved.
        """
        graph = self.joint.graph
        budget = self.given + int(share * (graph.keep_all_peak - self.given))
        result = remat.plan(graph, budget, executor="partitioner", **limits)
        if result.plan is None or result.saved is None:
            return None
        return policy_of(self.primal, self.joint, result.saved)


def body_of(jaxpr: Any, device: Device) -> Body | None:
    """None: nothing in it can be differentiated."""
    primal = primal_of_jaxpr(jaxpr)
    avals = [shape_of(v) for v in jaxpr.jaxpr.invars]
    diff = [i for i, a in enumerate(avals) if is_float(a)]
    losses = [i for i, v in enumerate(primal.outputs) if is_float(v.aval)]
    if not diff or not losses:
        return None
    between = 4 * Joint(primal, avals, diff, losses, device=device).graph.keep_all_peak
    joint = Joint(primal, avals, diff, losses, between, device)
    return Body(primal, joint, between + int(joint.graph.resident))


def policy_of(primal: Primal, joint: Joint, saved: Sequence[int]) -> dict[str, Any]:
    return Cuts(primal, joint.numbers(saved), joint.once(primal, saved)).policy()


def is_float(aval: Any) -> bool:
    kind = getattr(aval.dtype, "kind", "")
    return kind in "fc" or "float" in str(aval.dtype)
