"""A progress line on a terminal during tracing, measuring and planning, and their result."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TextIO

from .units import format_bytes

_DELAY_S = 0.5
_TICK_S = 0.2
_BAR = 24


class ProgressLine:
    """Shows progress on stderr, if that is a terminal; at the end the line is replaced by the result, or
    cleared.

    A thread redraws it regularly, also while the planner runs.
    """

    def __init__(self, stream: TextIO | None = None, delay: float = _DELAY_S) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.delay = delay
        self._start = time.perf_counter()
        self._phase = self._start
        self._what, self._detail = "", ""
        self._result = ""
        self._share: float | None = None
        self._limit: float | None = None
        self._width = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressLine:
        if self.stream.isatty() and os.environ.get("TERM") != "dumb":
            self._thread = threading.Thread(target=self._draw_until_done, name="remat-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._width:
            result = f"remat: {self._result}, {time.perf_counter() - self._start:.1f} s"
            self._write(result if self._result and kind is None else "")
            if self._result and kind is None:
                self._end_line()

    def tracing(self) -> None:
        self._begin("tracing")
        self._share, self._limit, self._detail = None, None, ""

    def profiling(self, done: int, todo: int) -> None:
        self._begin("profiling")
        self._share, self._detail = done / todo, f"{done}/{todo} ops"

    def planning(self, limit: float | None) -> None:
        """limit: seconds that planning may take, or None."""
        self._begin("planning")
        self._limit, self._share, self._detail = limit, None, ""

    def better_plan(
        self, planner: str, seconds: float, peak: int | None, duration: int | None, within: bool
    ) -> None:
        """As `progress` of `remat.plan`."""
        if peak is not None:
            self._detail = f"{'within the budget' if within else f'at {format_bytes(peak)}'} by {planner}"

    def set_result(self, result: str) -> None:
        """Sets the line that stays on the terminal at the end, if anything was shown."""
        self._result = result

    def _begin(self, what: str) -> None:
        if what != self._what:
            self._what, self._phase = what, time.perf_counter()

    def line(self, now: float) -> str:
        """The line at a time of `time.perf_counter`."""
        seconds = now - self._phase
        share, left = self._share, ""
        if share is None and self._limit:
            share = min(1.0, seconds / self._limit)
            left = f", {max(0.0, self._limit - seconds):.0f} s left"
        elif share:
            left = f", about {seconds / share - seconds:.0f} s left"
        filled = 0 if share is None else round(_BAR * share)
        bar = "" if share is None else f" [{'#' * filled}{'.' * (_BAR - filled)}]"
        return f"remat: {self._what}{bar} {seconds:.0f} s{left}{', ' if self._detail else ''}{self._detail}"

    def _draw_until_done(self) -> None:
        while not self._done.wait(_TICK_S):
            now = time.perf_counter()
            if now - self._start > self.delay and self._what:
                self._write(self.line(now))

    def _end_line(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.write("\n")
            self.stream.flush()

    def _write(self, line: str) -> None:
        # A wrapped line could not be overwritten.
        line = line[: shutil.get_terminal_size().columns - 1]
        try:
            self.stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            self.stream.flush()
        except (OSError, ValueError):  # the terminal went away
            self._done.set()
        self._width = len(line)


_shown: ProgressLine | None = None


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    """The progress line of the process; reuses one that is shown already."""
    global _shown
    if _shown is not None:
        yield _shown
        return
    with ProgressLine() as line:
        _shown = line
        try:
            yield line
        finally:
            _shown = None
