"""PyTorch's own databases of operators and modules, each planned and compared with eager mode.

`python databases.py --dtype float32 --out rows.jsonl` runs all of a type; what has a row is not run again.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import remat
import remat.torch
import torch
from database_cases import (
    DTYPES,
    Between,
    Case,
    all_cases,
    differences,
    drawn,
    fresh,
    generators,
    samples,
    seed_all,
    train,
)
from database_workers import run_all
from plans import random_plan
from torch import nn
from torch._dynamo.utils import counters

# What a case can come to, the worst first.
FAULTS = ["crash", "no end", "wrong bits", "above the budget", "exception", "refused", "fit changes"]
# Models in several graphs: refused, or above the budget, by what is known of one graph alone.
FAULTS += ["in pieces"]
NO_FAULTS = ["tracing differs", "tracing raises", "equal", "no plan"]
NO_FAULTS += ["eager mode differs", "not in eager mode"]

# Budgets, and a random plan.
WAYS = ["100%", "80%", "least", "random"]


@dataclass
class Found:
    """What a case came to; `outcomes` has a line for each fault or remark, by what it is."""

    case: Case
    compared: int = 0
    none: int = 0
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    def add(self, outcome: str, line: str) -> None:
        self.outcomes.append((outcome, line[:2000]))

    @property
    def outcome(self) -> str:
        ranks = [*FAULTS, *NO_FAULTS]
        none = "no plan" if self.none else "not in eager mode"
        return min((o for o, _ in self.outcomes), key=ranks.index, default=none)

    def row(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "outcome": self.outcome,
            "compared": self.compared,
            "no plan": self.none,
            "lines": [f"{o}: {line}" for o, line in self.outcomes if o != "equal"],
        }


def one_line(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, remat.RematError) and not re.search(r"\n|0x[0-9a-f]{6}|:$|^$", text)


class Comparison:
    """A model and its inputs, in eager mode and in every other way. executor: that `fit` is told to take;
    what runs in eager mode owes nothing to tracing.
    """

    def __init__(self, found: Found, model: Between, name: str, seed: int, executor: str) -> None:
        self.found, self.model, self.name, self.seed = found, model, name, seed
        self.executor = executor
        self.inputs = model.inputs
        model.inputs = ()
        self.expected = train(copy.deepcopy(model), self.inputs)
        measured = executor == "eager" or seed % 4 == 0
        self.options: Any = {"work_limit": 20000, "time_limit": 5.0, "executor": executor}
        self.options["costs"] = "measured" if measured else "roofline"
        self.aot: dict[str, torch.Tensor] | str | None = None
        self.least: int | None = None
        self.graphs = 0

    def deterministic(self) -> bool:
        return not differences(self.expected, train(copy.deepcopy(self.model), self.inputs))

    def run(self, ways: Sequence[str]) -> None:
        if "100%" in ways:
            self.within("100%", "100%")
        if "80%" in ways:
            self.within("80%", "80%", may_fail=True)
        if "least" in ways:
            if self.least is None:
                self.within("1B", "1B", may_fail=True)
            if self.least is not None:
                self.within(f"{self.least}B", f"least known, {self.least}")
        if "random" in ways and self.executor != "eager":
            self.plan_at_random()

    def plan_at_random(self) -> None:
        """Recomputation anywhere; where there are several graphs, a budget that is no matter."""
        torch._dynamo.reset()
        model, inputs = copy.deepcopy(self.model), fresh(self.inputs)
        options: Any = {}
        try:
            graph = remat.torch.capture(model, inputs, accumulate=False, costs="roofline")
            options = {"plan": list(random_plan(graph, self.seed, 2.0, 0.5).steps), "accumulate": False}
        except remat.torch.UnsupportedModelError as error:
            if "graph" not in str(error):
                return self.failed("capture", error)
        except Exception as error:
            return self.failed("capture", error)
        self.within(1 << 40, "random plan" if options else "several graphs", **options)

    def fit(self, budget: int | str, **options: Any) -> Any:
        torch._dynamo.reset()
        return remat.torch.fit(
            copy.deepcopy(self.model), fresh(self.inputs), budget, **self.options, **options
        )

    def within(self, budget: int | str, how: str, may_fail: bool = False, **options: Any) -> Any:
        """The fitted model, where there is one; its steps are compared."""
        before = len(self.found.outcomes)
        try:
            seed_all()
            states = generators()
            fitted = self.fit(budget, **options)
            if changed := differences(states, generators()):
                self.found.add("fit changes", f"{self.name}, {how}: {changed}")
            left = train(fitted, self.inputs)
            self.measure(fitted, how, "plan" in options)
            if found := differences(self.expected, left):
                self.differing(how, found)
        except Exception as error:
            self.least = getattr(error, "smallest_known", self.least)
            if may_fail and isinstance(error, remat.NoPlanError) and one_line(error):
                self.found.none += 1
            else:
                self.failed(how, error)
            return None
        self.found.compared += len(left)
        if len(self.found.outcomes) == before:
            self.found.add("equal", how)
        return fitted

    def measure(self, fitted: Any, how: str, planned: bool) -> None:
        """Do steps keep the budget, both that make gradients and that add to them?"""
        exceeded: list[str] = []
        # What the steps before have shown is planned for now, not while a peak is measured.
        for measuring in (False, False, True):
            fitted.zero_grad()
            inputs = fresh(self.inputs)
            for adding in (False,) if planned else (False, True):
                seed_all()
                step = partial(self.step, fitted, inputs)
                if measuring:
                    measured = remat.torch.measure_peak(step, resident=[fitted, inputs])
                    line = self.compare_peak(fitted.remat.parts, adding, how, measured, planned)
                    exceeded += [line] if line else []
                else:
                    step()
        for line in exceeded:
            self.found.add("in pieces" if self.is_in_pieces() else "above the budget", line)

    def step(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        model(*inputs).backward()

    def compare_peak(self, parts: Any, adding: bool, how: str, measured: int, planned: bool) -> str | None:
        """What is wrong. A random plan has no budget: its prediction is held."""
        found = [part for part in parts if (part.existing_gradients > 0) == adding]
        budget = max((part.predicted_peak if planned else part.budget for part in found), default=measured)
        kind = "adding" if adding else "making"
        return f"{self.name}, {how}, {kind}: {measured} > {budget}" if measured > budget else None

    def is_in_pieces(self) -> bool:
        if self.executor == "eager":
            return False
        self.by_tracing()
        return self.graphs > 1

    def by_tracing(self) -> dict[str, torch.Tensor] | str:
        """What PyTorch's own tracing leaves, or the error that it raises."""
        if self.aot is None:
            torch._dynamo.reset()
            traced = copy.deepcopy(self.model)
            traced.compile(backend="aot_eager")
            counters.clear()
            try:
                self.aot = train(traced, self.inputs)
            except Exception as error:
                self.aot = f"{type(error).__name__}: {error}"
            self.graphs = counters["stats"]["unique_graphs"]
        return self.aot

    def differing(self, how: str, found: list[str]) -> None:
        traced = "" if self.executor == "eager" else self.by_tracing()
        theirs = [] if isinstance(traced, str) else differences(self.expected, traced)
        outcome = "tracing differs" if set(found) <= set(theirs) else "wrong bits"
        self.found.add(outcome, f"{self.name}, {how}: {found[:4]}")

    def failed(self, how: str, error: Exception) -> None:
        line = f"{self.name}, {how}: {type(error).__name__}: {error}"
        if self.executor == "eager":
            self.found.add("refused" if one_line(error) else "exception", line)
        elif not one_line(error):
            if isinstance(traced := self.by_tracing(), str):
                line += f" [aot_eager: {traced[:200]}]"
            self.found.add("exception", line)
        elif isinstance(self.by_tracing(), str):
            self.found.add("tracing raises", line)
        else:
            self.found.add("in pieces" if self.is_in_pieces() else "refused", line)


def check(case: Case, count: int = 1, ways: Sequence[str] = WAYS, executor: str = "auto") -> Found:
    """What some inputs of a case come to."""
    found = Found(case)
    seed = case.draw(0)
    with quiet():
        for one in islice(in_eager_mode(found, seed, executor), count):
            if one.deterministic():
                one.run(ways)
            else:
                found.add("eager mode differs", one.name)
    torch._dynamo.reset()
    return found


def row_of(case: Case, count: int, ways: Sequence[str], executor: str) -> dict[str, Any]:
    return check(case, count, ways, executor).row()


def in_eager_mode(found: Found, seed: int, executor: str) -> Iterator[Comparison]:
    """Samples that eager mode trains, bent or else as they come."""
    raised, trained, given = "no sample input has a gradient", False, []
    try:
        given = list(samples(found.case, seed))
    except Exception as error:
        raised = f"no samples: {type(error).__name__}: {error}"
    for number, make in enumerate(given):
        for bent in (True, False):
            torch.manual_seed(seed + number)
            try:
                one = Comparison(found, make(bent=bent), f"sample {number}", seed + number, executor)
            except Exception as error:
                raised = f"sample {number}: {type(error).__name__}: {error}"
            else:
                trained = True
                yield one
                break
    if not trained:
        found.add("not in eager mode", raised)


@contextmanager
def quiet() -> Iterator[None]:
    """No words of Dynamo or of Remat."""
    logs = [logging.getLogger(name) for name in ("remat.torch", "torch")]
    before = [(log.level, log.propagate) for log in logs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for log in logs:
            log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for log, (level, _) in zip(logs, before, strict=True):
                log.setLevel(level)


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by case; of several for one case the last."""
    if not out.exists():
        return {}
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return {" ".join(row["case"]): row for row in rows}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Outcomes counted by kind of case and dtype, in Markdown."""
    columns = [*NO_FAULTS, *FAULTS]
    counted: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counted.setdefault(Case(*row["case"]).grouped, Counter())[row["outcome"]] += 1
    lines = ["| | dtype | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for (kind, dtype), of in sorted(counted.items()):
        lines.append(f"| {kind} | {dtype} | " + " | ".join(str(of[c]) for c in columns) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="several times for several; all")
    parser.add_argument("--ops", default="", metavar="REGEX", help="part of `op NAME DTYPE WAY`")
    parser.add_argument("--sample", type=int, help="so many cases, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=1, help="sample inputs of each case")
    parser.add_argument("--way", action="append", choices=WAYS, help="several times for several; all")
    parser.add_argument(
        "--executor", choices=("auto", "eager"), default="auto", help="eager: no random plans"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a case is ended")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cases = [c for c in all_cases(asked.dtype or list(DTYPES)) if re.search(asked.ops, c.key)]
    if asked.sample is not None:
        cases = drawn(cases, asked.sample, asked.seed)
    there = rows_of(asked.out)
    waiting = [case for case in cases if case.key not in there]
    checked = partial(row_of, count=asked.inputs, ways=asked.way or WAYS, executor=asked.executor)
    for row in run_all(waiting, checked, asked.jobs, asked.limit, asked.out):
        if row["outcome"] in FAULTS:
            print(f"{' '.join(row['case'])}: {row['lines'][0][:160]}", flush=True)
    rows = [row for key, row in rows_of(asked.out).items() if key in {c.key for c in cases}]
    print(table(rows))
    return int(any(row["outcome"] in FAULTS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
