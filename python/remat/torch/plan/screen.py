"""The output of `print(model.remat)`: one screen that answers four questions about a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import remat

from ..base.units import format_bytes
from .report import PlanReport

# Work of the search for the gain of more memory: some tenths of a second.
BRIEF_WORK = 1_000_000
_MORE = 0.10
# Smaller differences of overheads are ignored.
_SAME = 0.0005
_LABEL = 15


def answers(part: PlanReport, adding: Sequence[PlanReport], plans: int) -> list[str]:
    """The four questions and answers.

    part: the largest plan of steps that make their gradients. adding: that of steps that add to them, if any.
    plans: total number.
    """
    return [
        *_labelled("does it fit?", _fit(part)),
        *_labelled("what it costs", _cost(part)),
        *_labelled("how sure?", _certainty(part)),
        *_labelled("10 % more", _more(part)),
        *_labelled("also planned", _others(adding, plans - 1 - len(adding))),
    ]


def phases(seconds: Mapping[str, float]) -> list[str]:
    """Seconds of `fit` by phase, if known."""
    if not seconds:
        return []
    first, *further = _filled([f"{name} {value:.2f}" for name, value in seconds.items()])
    return _labelled("fit took", [f"{sum(seconds.values()):.2f} s: {first}", *further])


def without_plan(peak: int, budget: int) -> list[str]:
    """peak: measured, of a step in eager mode; 0 before any ran."""
    if not peak:
        return ["nothing planned yet: run a training step first"]
    fits = f"{'yes' if peak <= budget else 'NO'}: {format_bytes(peak)} measured"
    return [
        *_labelled("does it fit?", [f"{fits}, the budget is {format_bytes(budget)}"]),
        *_labelled("what it costs", ["nothing: nothing planned, the model runs as in eager mode"]),
    ]


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"{'' if at else label:<{_LABEL}}{line}" for at, line in enumerate(lines)]


def _filled(items: list[str], width: int = 62) -> list[str]:
    """Joined by commas, in lines of at most `width`."""
    lines = [""]
    for item in items:
        joined = f"{lines[-1]}, {item}" if lines[-1] else item
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines[-1] += ","
            lines.append(item)
    return lines


def _peak_of(part: PlanReport) -> tuple[int | None, bool]:
    """The measured peak, if any, and whether all known peaks are within the budget."""
    measured = part.measured_peak
    if part.exceeded:
        measured = max(measured or 0, part.predicted_peak + part.exceeded)
    return measured, max(part.predicted_peak, measured or 0) <= part.budget


def _fit(part: PlanReport) -> list[str]:
    measured, fits = _peak_of(part)
    lines = [
        f"{'yes' if fits else 'NO'}: {format_bytes(part.predicted_peak)} predicted, "
        f"the budget is {format_bytes(part.budget)}",
        f"{format_bytes(part.keep_all_peak)} without recomputation",
    ]
    if measured is not None:
        lines.append(f"{format_bytes(measured)} measured")
    else:
        lines.append("not measured: remat.torch.measure_peak does that for a step")
    if part.reserve:
        lines.append(f"{format_bytes(part.reserve)} of each of these is reserved")
    if part.reserved_peak is not None:
        lines.append(f"{format_bytes(part.reserved_peak)} taken from the device by its allocator")
    if part.arena is not None:
        lines.append(f"{format_bytes(part.arena.pool)} in one allocation (arena)")
    return lines


def _cost(part: PlanReport) -> list[str]:
    lines = [
        f"{_percent(part.overhead)} more time than {part.compared_with}",
        f"{part.recomputed_steps} ops run again, of {part.ops}"
        if part.recomputed_steps
        else f"none of {part.ops} ops runs again",
    ]
    if part.host is not None:
        lines.append(
            f"{format_bytes(part.copied_out)} copied out, {format_bytes(part.copied_in)} back, "
            f"{1e3 * part.stalled:.1f} ms waited for copies (predicted)"
        )
    return lines


def _certainty(part: PlanReport) -> list[str]:
    lines = [*_distance(part), f"no plan needs less than {format_bytes(part.peak_lower_bound)}"]
    if part.is_eager:
        lines.append("op times are those of a step that was recorded")
    elif part.costs == "measured":
        lines.append("op times: each op measured alone on this machine")
    else:
        lines.append(f"op times: {part.costs}, not measured here")
    if part.unmeasured_ops:
        lines.append(f"{part.unmeasured_ops} ops could not be measured and are estimated")
    if not part.followed:
        lines.append("this is one step: the ops of others depend on random numbers, they stay")
        lines.append("within the budget without this plan, and take longer")
    return lines


def _distance(part: PlanReport) -> list[str]:
    """The distance to the fastest plan."""
    if part.overhead <= 0:
        return ["no plan is faster: nothing is added"]
    if part.asked is None:
        return ["how much faster a plan can be is not known for these options"]
    least = part.duration_lower_bound / max(1, part.graph.base_duration) - 1
    where = "the budget" if part.asked >= min(part.budget, part.keep_all_peak) else format_bytes(part.asked)
    if part.overhead - least < 1e-6:
        text = f"no plan within {where} is faster"
    elif least < 1e-4:
        text = f"that a plan within {where} takes no more time is not ruled out"
    else:
        text = f"no plan within {where} takes less than {math.floor(10_000 * least) / 100:.2f} % more time"
    return [text, "(among plans that run each op again at most once)"] if part.is_eager else [text]


def _more(part: PlanReport) -> list[str]:
    if part.overhead <= 0:
        return ["nothing: the step is as fast as it can be"]
    if part.within is None:
        return ["not known for these options"]
    budget = part.budget + int(_MORE * part.budget)
    found = part.within(budget)
    if found is None or found > part.overhead - _SAME:
        return [f"{format_bytes(budget)}: no faster plan in a short search"]
    return [
        f"{format_bytes(budget)}: {_percent(found)} more time, or less, in place of {_percent(part.overhead)}"
    ]


def _others(adding: Sequence[PlanReport], further: int) -> list[str]:
    lines = []
    for part in adding:
        fits = "" if _peak_of(part)[1] else ", which it does NOT keep"
        amounts = f"{format_bytes(part.predicted_peak)} of a budget of {format_bytes(part.budget)}{fits}"
        lines += ["steps that add to gradients:", f"{amounts}, {_percent(part.overhead)} more time"]
    if further:
        lines.append(f"{further} more, all are in .parts")
    return lines


def _percent(share: float) -> str:
    return "no" if share <= 0 else f"{100 * share:.2f} %"


class Remembered:
    """`PlanReport.within` with cached results by budget."""

    def __init__(self, find: Callable[[int], float | None]) -> None:
        self._find = find
        self._known: dict[int, float | None] = {}

    def __call__(self, budget: int) -> float | None:
        if budget not in self._known:
            self._known[budget] = self._find(budget)
        return self._known[budget]


def overhead_within(graph: remat.Graph, order: Literal["fixed", "free"], target: int) -> float | None:
    """The overhead of a plan within this many bytes, by a short deterministic search."""
    if target >= graph.keep_all_peak:
        return 0.0
    found = remat.plan(graph, max(1, target), order=order, time_limit=None, work_limit=BRIEF_WORK)
    return None if found.plan is None else found.overhead
