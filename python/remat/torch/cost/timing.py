"""Durations on a busy machine: runs are repeated until the least of them agree.

Other work only adds time, so the least runs are the most reliable. One alone could be an outlier, so three
have to be close to each other, and their median counts: on an idle machine, the median of the first three.
For very long ops, which take most of the time, two are enough, and the lesser counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

log = logging.getLogger("remat.torch")

_AGREEING = 3
# In nanoseconds: for ops longer than this, overheads of untimed earlier runs are negligible.
LONG_NS = 20_000_000
# Ops longer than this need only two runs that agree.
_VERY_LONG_NS = 100_000_000
_MOST_RUNS = 9
# Tolerance as a fraction of the least run, or in nanoseconds: short ops vary more, and matter less.
_CLOSE, _CLOSE_NS = 0.1, 3_000
# Repeats of all ops together may take as long as their first runs plus one second.
_GRACE_NS = 1_000_000_000
# Share of uncertain time that causes a warning.
_WORTH_SAYING = 0.1
# Ops, of a whole step.
_MANY = 20


def clock_of_ops() -> Callable[[], int]:
    """The clock for ops on the CPU, in ns: the CPU time of this thread if it does all the work, which
    excludes time of other processes; else wall clock.
    """
    return time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns


@dataclass(frozen=True)
class Timing:
    """Of one op. duration: in ns. spread: from the least run to the one in the middle, as a fraction of the
    least. agreed: enough runs agreed.
    """

    duration: int
    spread: float
    agreed: bool


@dataclass
class Stopwatch:
    """Times the ops of a step, and records the spread of their runs."""

    timings: list[Timing] = field(default_factory=list)
    _first_ns: int = 0
    _repeated_ns: int = 0

    def time(self, run: Callable[[], int], before: Sequence[int] = (), repeats: bool = True) -> int:
        """Duration of an op in ns; `run` runs it once and returns how long that took.

        before: times of earlier runs, which count if the op is long.
        repeats: False for collectives, which other processes would have to repeat as often.
        """
        times = list(before) if repeats and before and min(before) >= LONG_NS else []
        agreeing = len(times) if times and min(times) >= _VERY_LONG_NS else _AGREEING
        first = [run() for _ in range(agreeing - len(times))]
        self._first_ns += sum(first)
        times += first
        while repeats and not _agree(times, agreeing) and len(times) < _MOST_RUNS and self._may_repeat():
            times.append(run())
            self._repeated_ns += times[-1]
        least = sorted(times)[:agreeing]
        spread = (sorted(times)[len(times) // 2] - least[0]) / max(1, least[0])
        timing = Timing(least[(agreeing - 1) // 2], spread, _agree(times, agreeing))
        self.timings.append(timing)
        return timing.duration

    def _may_repeat(self) -> bool:
        return self._repeated_ns < self._first_ns + _GRACE_NS

    def warn_of_noise(self) -> None:
        """Warn if much of the time belongs to ops whose runs did not agree, unless they are few, as those
        added by a new length of a step.
        """
        uncertain = [timing for timing in self.timings if not timing.agreed]
        total = sum(timing.duration for timing in self.timings)
        share = sum(timing.duration for timing in uncertain) / max(1, total)
        if share <= _WORTH_SAYING or len(self.timings) < _MANY:
            return
        log.warning(
            "the machine is busy: the durations of %d of %d ops, %.0f %% of the step's time, moved by up to "
            "%.0f %% between runs, so predicted overheads are uncertain; measure on an idle machine "
            "(remat.torch.measure_costs) and pass costs=",
            len(uncertain),
            len(self.timings),
            100 * share,
            100 * max(timing.spread for timing in uncertain),
        )


def _agree(times: Sequence[int], agreeing: int) -> bool:
    least = sorted(times)[:agreeing]
    return least[-1] - least[0] <= max(_CLOSE_NS, _CLOSE * least[0])
