"""A random module beside eager mode, in one of three ways, within a random budget."""

from __future__ import annotations

import copy
import logging
import math
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import remat
import remat.torch
import torch
from remat.torch.eager import planning

from .control import Installs
from .module import Loss, RandomModule
from .training import close, differences, fresh, generators, seed_all, state, train

OUTCOMES = ("equal", "no plan", "refused", "PyTorch", "wrong")


@dataclass(frozen=True)
class Outcome:
    """What came of a module, one of `OUTCOMES`, and in what words. "PyTorch": wrong by PyTorch alone, in
    eager mode, or in its own tracing as the backend "aot_eager" shows.
    """

    kind: str
    line: str = ""


@dataclass
class Case:
    """A random module, and how it is tried.

    way: "fit", "compile" or "policies"; limit: bytes that a step may take, once it is planned, where known.
    executor: that `fit` is told to take. host: where values may go, with the executor "eager".
    """

    number: int
    executor: str = "auto"
    host: str | None = None
    model: RandomModule = field(init=False)
    inputs: tuple[Any, ...] = field(init=False)
    limit: Callable[[], int | None] | None = None

    def __post_init__(self) -> None:
        draw = random.Random(self.number)
        torch.manual_seed(self.number)
        self.model = RandomModule(draw)
        self.inputs = self.model.inputs(draw)
        self.budget: int | str = f"{draw.choice([100, 100, 95, 95, 90, 80])}%"
        self.accumulate = draw.random() < 0.2
        # Workspaces, without which a budget is not kept, are known where costs are measured.
        self.costs = draw.choice(["measured", "roofline", "roofline", "roofline"])
        # An output that the caller drops makes the measured peak lower than the prediction.
        self.outputs = "held" if self.costs == "measured" else draw.choice(["held", None])
        self.way = draw.choices(["fit", "compile", "policies"], [0.65, 0.25, 0.1])[0]
        self.model.outside = draw.random() < 0.3
        self.loss = Loss.of(self.model)
        self.once = self.model.once
        if self.executor == "eager":
            self.way, self.costs, self.outputs, self.once = "fit", "measured", "held", True
        # What hooks hold is not copied.
        self.copied = draw.random() < 0.1 and not any(isinstance(m, Installs) for m in self.model.layers)

    def __str__(self) -> str:
        layers = [
            f"{type(each).__name__}{'' if not hasattr(each, 'kind') else f' {each.kind}'}"
            for each in self.model.layers
        ]
        kind = "" if self.model.type == torch.float32 else f" {self.model.type}"
        return f"module {self.number}, {self.way} {self.budget}{kind}, {layers}"

    def is_steady(self) -> bool:
        """Does no layer run other ops from some step on?"""
        return all(layer.since is None for layer in self.model.layers)

    def planned(self, model: RandomModule) -> Callable[..., Any]:
        """What is to be called in its place."""
        if self.way == "policies":
            policies = remat.torch.checkpoint_policy(
                *(model, fresh(self.inputs), self.budget),
                loss=self.loss,
                blocks=[f"layers.{i}" for i in range(len(self.model.layers))],
                outputs="held",
                costs=self.costs,
                work_limit=20_000_000,
                compare=False,
            )
            self.limit = lambda: policies.report.budget
            return policies.apply()
        options: Any = {"costs": self.costs, "work_limit": 20000, "time_limit": 5.0, "outputs": self.outputs}
        if self.way == "fit":
            options |= {"loss": self.loss, "executor": self.executor, "host": self.host}
            if self.host is not None:
                planning._LITTLE = math.inf  # else so small steps seldom copy
            fitted = remat.torch.fit(model, fresh(self.inputs), self.budget, **options)
            self.limit = lambda: least_promise(fitted, self.is_steady())
            return fitted
        return torch.compile(model, backend="remat", options={"budget": self.budget, **options})

    def planned_at_last(self, model: RandomModule) -> Callable[..., Any]:
        """Within the least budget that is known to work, where that asked for does not."""
        try:
            return self.planned(model)
        except remat.NoPlanError as error:
            if self.way == "compile" or self.budget == "100%" or not error.smallest_known or not self.once:
                raise
            self.budget = error.smallest_known
            torch._dynamo.reset()
            return self.planned(model)

    def trained(self, model: RandomModule, call: Callable[..., Any]) -> dict[str, Any]:
        return train(model, call, self.inputs, self.loss, self.accumulate, self.copied)


@contextmanager
def warnings_of_strides() -> Iterator[list[str]]:
    """That gradients of outputs come with other strides than were traced; nothing else is shown."""
    said: list[str] = []
    log, handler = logging.getLogger("remat.torch"), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: "come with other strides" in record.getMessage())
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [handler], False
    try:
        yield said
    finally:
        log.handlers, log.propagate = before


def check(number: int, executor: str = "auto", host: str | None = None) -> Outcome:
    """What comes of a random module; a budget for which no plan is found is nothing wrong, but of 100 %.
    executor: that `fit` is told to take; with "eager" no module goes another way. host: as in `Case`.
    """
    torch._dynamo.reset()
    case = Case(number, executor, host)
    model = case.model
    eager = copy.deepcopy(model)
    pristine = copy.deepcopy(eager)
    try:
        expected = case.trained(eager, eager)
    except Exception as error:
        return Outcome("PyTorch", f"{case}: in eager mode: {error}")
    try:
        with warnings_of_strides() as said:
            seed_all()
            before = {**state(model), **generators()}
            call = case.planned_at_last(model)
            if found := differences(before, {**state(model), **generators()}):
                return Outcome("wrong", f"{case}: planning changed {found}")
            trained = case.trained(model, call)
    except remat.RematError as error:
        return refused(case, error) or by_tracing(case, pristine, expected, [], str(error))
    except Exception as error:
        return by_tracing(case, pristine, expected, [], in_a_line(error))
    found = differences(expected, trained)
    if said and (not case.once or case.way == "compile"):
        # What comes from other graphs, or a loss that is not given, is not known in the first step.
        rounded = [n for n in found if case.accumulate or n.startswith("step 0")]
        found = [n for n in found if n not in rounded or not close(expected[n], trained[n])]
    if found:
        return by_tracing(case, pristine, expected, found, f"{len(found)} differ: {found[:4]}")
    if case.costs != "measured" or not case.once or case.copied:
        return Outcome("equal")
    try:
        over = within(case, model, call)
    except remat.NoPlanError:
        # Where the last step needed a gradient of another output, the steps after it are planned for that.
        return Outcome("no plan" if case.model.late is not None else "wrong", f"{case}: in a later step")
    return Outcome("wrong", f"{case}: {over}") if over else Outcome("equal")


def in_a_line(error: Exception) -> str:
    """What was raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {said} ({Path(last.filename).name}:{last.lineno})"


def refused(case: Case, error: remat.RematError) -> Outcome | None:
    """What an error is that stands for itself; None where the module should train."""
    text = str(error)
    if "\n" in text:
        return Outcome("wrong", f"{case}: more than a line: {text!r}")
    if isinstance(error, remat.NoPlanError) and isinstance(case.budget, str) and case.budget != "100%":
        return Outcome("no plan")
    allowed = case.model.refusals()
    if not case.once and case.way != "policies":
        allowed.append("compiled nothing")
    if case.way == "policies":
        allowed += ["makes other ops"]
    return Outcome("refused", f"{case}: {text}") if any(each in text for each in allowed) else None


def by_tracing(
    case: Case, pristine: RandomModule, expected: dict[str, Any], found: list[str], text: str
) -> Outcome:
    """Wrong, unless PyTorch's tracing is: it differs in the same, or raises too."""
    if case.executor == "eager":
        return Outcome("wrong", f"{case}: {text}")
    torch._dynamo.reset()
    traced = copy.deepcopy(pristine)
    try:
        left = case.trained(traced, torch.compile(traced, backend="aot_eager"))
    except Exception:
        return Outcome("PyTorch", f"{case}: {text}")
    same = bool(found) and set(found) <= set(differences(expected, left))
    return Outcome("PyTorch" if same else "wrong", f"{case}: {text}")


def within(case: Case, model: RandomModule, call: Callable[..., Any]) -> str | None:
    """Does a step keep what it is promised to?"""
    if case.limit is None:
        return None
    last: list[Any] = []
    inputs = fresh(case.inputs)

    def step() -> None:
        last.append(case.loss(call(*inputs)))
        last.pop().backward()

    def clear() -> None:
        model.zero_grad()
        inputs[0].grad = None

    for _ in range(2):
        # What the steps before have shown is planned for now, not while the peak is measured.
        clear()
        step()
    clear()
    measured = remat.torch.measure_peak(step, resident=[call, inputs])
    limit = case.limit()
    exceeds = limit is not None and measured > limit
    return f"{measured} bytes measured, {limit} allowed" if exceeds else None


def least_promise(fitted: Any, steady: bool) -> int | None:
    """The budget, or the prediction that is below it. None: the step is another one than was planned, and
    where nothing runs again that is not noticed below what the allocator of the process tells.
    """
    part = [part for part in fitted.remat.parts if not part.existing_gradients][-1]
    if part.planner == "eager" and not steady and not part.recomputed_steps:
        return None
    return min(part.budget, part.predicted_peak)
