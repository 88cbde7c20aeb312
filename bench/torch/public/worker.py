"""One model of a public package: compares the default `fit` with eager mode, in a separate process.

python worker.py PACKAGE NAME ACCUMULATES(0|1)    prints a row as JSON
python worker.py --draw PACKAGE SEED              prints names as JSON
"""

from __future__ import annotations

import copy
import json
import logging
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import packages
import remat.torch
import torch

Row = dict[str, Any]
STEPS = 3
SHARE = 0.6


class Side:
    """A model in eager mode or fitted, with its own inputs; its steps and their results."""

    def __init__(self, subject: packages.Subject, adds: bool, run: Callable[..., Any] | None = None) -> None:
        self.subject, self.adds = subject, adds
        self.run = subject.model if run is None else run
        self.left: list[dict[str, torch.Tensor]] = []
        self.peaks: list[int] = []
        # CPU seconds of a step.
        self.seconds = 0.0

    def step(self) -> torch.Tensor:
        inputs = self.subject.inputs
        outputs = self.run(**inputs) if isinstance(inputs, dict) else self.run(*inputs)
        loss = self.subject.loss(outputs)
        del outputs
        loss.backward()
        return loss.detach()

    def steps(self) -> None:
        """Runs and measures the steps; parameters change after the second."""
        start = time.process_time()
        for number in range(STEPS):
            seed(number)
            if not self.adds:
                self.subject.model.zero_grad()
            losses: list[torch.Tensor] = []
            resident = [self.subject.model, *packages.tensors(self.subject.inputs)]
            peak = remat.torch.measure_peak(lambda: losses.append(self.step()), resident=resident)  # noqa: B023
            self.peaks.append(peak)
            self.left.append(self.state(losses[0]))
            if number == 1:
                with torch.no_grad():
                    for parameter in self.subject.model.parameters():
                        if parameter.grad is not None and not parameter.grad.is_sparse:
                            parameter -= 1e-3 * parameter.grad.nan_to_num()
        self.seconds = (time.process_time() - start) / STEPS

    def adding_peak(self) -> int:
        """The peak of a step that adds to existing gradients: `fit` plans for such steps too."""
        resident = [self.subject.model, *packages.tensors(self.subject.inputs)]
        seed(STEPS)
        return remat.torch.measure_peak(self.step, resident=resident)

    def state(self, loss: torch.Tensor) -> dict[str, torch.Tensor]:
        from remat.torch.base.generators import generator_states

        model = self.subject.model
        found = {"loss": loss}
        found |= {f"gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
        found |= {f"buffer {n}": b for n, b in model.named_buffers()}
        found |= {f"input {n}": t for n, t in enumerate(packages.tensors(self.subject.inputs))}
        found |= dict(generator_states().named())
        return {name: tensor.detach().clone() for name, tensor in found.items()}

    def differs(self, other: Side) -> str:
        """The first thing that is not equal bit for bit, and how many."""
        from remat.torch.session.proof import differences

        for number, (mine, theirs) in enumerate(zip(self.left, other.left, strict=True)):
            found = differences(mine, theirs)
            if found:
                return f"step {number + 1}: {found[0]} and {len(found) - 1} others of {len(mine)}"
        return ""


def seed(number: int) -> None:
    torch.manual_seed(100 + number)
    random.seed(100 + number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(100 + number)


class Words(logging.Handler):
    """Collects remat's messages."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def compared(package: packages.Package, name: str, adds: bool) -> Row:
    """The row of a model."""
    row: Row = {}
    subject = package.build(name)
    row["parameters"] = sum(p.numel() for p in subject.model.parameters())
    stage("eager mode")
    try:
        eager = Side(subject, adds)
        eager.steps()
        row["eager_s"] = eager.seconds
        again = Side(package.build(name), adds)
        again.steps()
    except Exception as error:
        return row | {"outcome": "eager mode fails", "why": one_line(error)}
    if eager.differs(again):
        return row | {"outcome": "eager mode fails", "why": f"not deterministic: {eager.differs(again)}"}
    del again
    row["eager_peak"], row["eager_adding_peak"] = eager.peaks[1], eager.adding_peak()
    words = Words()
    logging.getLogger("remat.torch").addHandler(words)
    try:
        row |= _tried(package, name, eager, row["eager_peak"])
    finally:
        row["said"] = words.said[:6]
    return row


def _tried(package: packages.Package, name: str, eager: Side, peak: int) -> Row:
    """Fits at the share of eager mode's peak, or at the least budget that the error names."""
    row: Row = {"budget": int(SHARE * peak), "least": False, "fit_s": 0.0}
    for _ in range(3):
        try:
            return row | _trained(package, name, eager, row)
        except remat.RematError as error:
            known = getattr(error, "smallest_known", 0)
            if not known or known <= row["budget"] or "\n" in str(error):
                return row | {"outcome": _kind(error), "why": one_line(error)}
            row |= {"budget": known, "least": True, "refusal": one_line(error)}
        except Exception as error:
            import traceback

            row["traceback"] = traceback.format_exc()[-4000:]
            return row | {"outcome": "exception", "why": one_line(error)}
    return row | {"outcome": "refused", "why": f"smallest known budgets are refused: {row['refusal']}"}


def _kind(error: Exception) -> str:
    return "exception" if "\n" in str(error) else "refused"


def _trained(package: packages.Package, name: str, eager: Side, row: Row) -> Row:
    subject = package.build(name)
    before = copy.deepcopy([t.detach() for t in (*subject.model.parameters(), *subject.model.buffers())])
    seed(99)
    stage(f"fit, where a step in eager mode takes {eager.seconds:.1f} s")
    start = time.process_time()
    try:
        fitted = remat.torch.fit(subject.model, subject.inputs, row["budget"], loss=subject.loss)
    finally:
        row["fit_s"] = round(row["fit_s"] + time.process_time() - start, 2)
    found: Row = {"ops": sum(part.ops for part in fitted.remat.parts)}
    after = [t.detach() for t in (*subject.model.parameters(), *subject.model.buffers())]
    if not all(torch.equal(a, b) or bool((a != a).any()) for a, b in zip(before, after, strict=True)):
        return found | {"outcome": "wrong", "why": "fit changed the model"}
    side = Side(subject, eager.adds, fitted)
    stage(f"planned steps, where one in eager mode takes {eager.seconds:.1f} s")
    side.steps()
    found["steps_s"] = round(STEPS * side.seconds, 2)
    found["peak"] = max(side.peaks)
    found["overhead"] = fitted.remat.overhead
    different = eager.differs(side)
    if different:
        return found | {"outcome": "wrong", "why": different}
    if found["peak"] > row["budget"]:
        over = 100 * (found["peak"] / row["budget"] - 1)
        peaks = ", ".join(str(peak) for peak in side.peaks)
        return found | {"outcome": "above", "why": f"{over:.2f} % above the budget {row['budget']}: {peaks}"}
    return found | {"outcome": "equal"}


def stage(name: str) -> None:
    """Prints the current stage, for timeouts."""
    print(name, flush=True)


def one_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return f"{type(error).__name__}: {lines[0][:400]}{more}"


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    packages.prepare_imports()
    if arguments[0] == "--draw":
        package = packages.packages()[arguments[1]]
        names = packages.draw(package, int(arguments[2]), lambda line: print(line, file=sys.stderr))
        print(json.dumps(names))
        return
    name, model, adds = arguments
    print(json.dumps(compared(packages.packages()[name], model, adds == "1")))


if __name__ == "__main__":
    main(sys.argv[1:])
