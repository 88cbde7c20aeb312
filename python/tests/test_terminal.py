"""What `remat plan` shows to people at a terminal, in a terminal of the test's own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest
from graphs import chain

BLOCKS = " ▁▂▃▄▅▆▇█"


def said_by(command: list[str], columns: int | None, errors: bool = False, **environment: str) -> str:
    """What `remat` writes to a terminal of so many columns, or to a pipe. errors: to the terminal too."""
    known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "REMAT_COLUMNS")}
    given: dict[str, Any] = {"env": {**known, "TERM": "xterm", **environment}, "stderr": subprocess.PIPE}
    whole = [sys.executable, "-m", "remat", *command]
    if columns is None:
        return subprocess.run(
            whole, stdout=subprocess.PIPE, text=True, check=True, timeout=60, **given
        ).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    if errors:
        given["stderr"] = theirs
    running = subprocess.Popen(whole, stdout=theirs, **given)

    def end() -> None:
        # The test holds the terminal open, and marks the end itself: a system may drop what waits in one
        # that the last writer closes.
        running.wait()
        os.write(theirs, b"\0")

    ending = threading.Thread(target=end)
    ending.start()
    said = b""
    while not said.endswith(b"\0"):
        said += os.read(ours, 1 << 16)
    ending.join()
    os.close(theirs)
    os.close(ours)
    said = said[:-1]
    assert running.returncode == 0
    if running.stderr is not None:
        running.stderr.close()
    return said.decode().replace("\r\n", "\n")


def planned(folder: Path, columns: int | None, *options: str, **environment: str) -> str:
    """What `remat plan` writes."""
    chain(12, size=1000).save(folder / "graph.json")
    return said_by(["plan", str(folder / "graph.json"), "-b", "50%", *options], columns, **environment)


def chart_of(said: str) -> list[str]:
    """Its rows, down to the one that counts steps."""
    rows = said.partition("keep-all peak:\n")[2].splitlines()
    return rows[: next((i + 1 for i, row in enumerate(rows) if "step" in row), 0)]


# A row of the table of budgets: its mark, the share of the keep-all peak, overhead and bound in percent.
ROW = re.compile(
    r"([> ]) +[\d.]+ \S?i?B +([\d.]+) % +(?:([\d.]+) % +([\d.]+) %|none found|impossible)$", re.M
)


def test_a_terminal_that_is_wide_enough_gets_a_chart(tmp_path: Path) -> None:
    rows = chart_of(planned(tmp_path, 100, "--budget-on", "arena", NO_COLOR="1"))
    assert len(rows) == 7
    assert rows[0].strip().startswith("12.7 KiB")
    assert all(set(row[11:]) <= set(BLOCKS) for row in rows[:6])
    assert max(map(len, rows)) <= 100
    # Half of the keep-all peak is half of the height.
    assert all(not row[11:].strip() for row in rows[:2])
    assert "█" in rows[5]
    assert rows[6].split()[-2] == "step"


@pytest.mark.parametrize("columns", [None, 40])
def test_a_pipe_or_a_narrow_terminal_gets_none(tmp_path: Path, columns: int | None) -> None:
    said = planned(tmp_path, columns)
    assert "status = " in said
    assert not chart_of(said)
    assert not any(block in said for block in BLOCKS[1:])


def test_colours_are_for_who_wants_them(tmp_path: Path) -> None:
    assert "\033[31m" in planned(tmp_path, 80)
    assert "\033" not in planned(tmp_path, 80, NO_COLOR="1")
    assert "\033" not in planned(tmp_path, 80, TERM="dumb")
    assert "\033[31m" in planned(tmp_path, 80, NO_COLOR="")


@pytest.mark.parametrize("columns", [160, 80])
def test_a_plan_stands_among_other_budgets(tmp_path: Path, columns: int) -> None:
    said = planned(tmp_path, columns, NO_COLOR="1")
    beside = any(BLOCKS[-1] in line and "%" in line for line in said.splitlines())
    assert beside == (columns == 160), "beside the chart where there is room, else below it"
    assert len(chart_of(said)) == 7
    rows = ROW.findall(said)
    assert [share for _, share, *_ in rows] == ["40", "45", "50", "55", "60"]
    assert [mark for mark, *_ in rows] == [" ", " ", ">", " ", " "]
    overhead = re.search(r"^overhead = ([\d.]+) %$", said, re.M)
    assert overhead is not None
    assert rows[2][2] == overhead[1]
    found = [(float(took), float(bound)) for *_, took, bound in rows if took]
    assert all(took >= bound for took, bound in found)
    # More memory is never slower.
    assert [took for took, _ in found] == sorted((took for took, _ in found), reverse=True)
    assert max(map(len, said.splitlines())) <= columns


@pytest.mark.parametrize("columns", [None, 40])
def test_a_pipe_or_a_narrow_terminal_gets_no_other_budgets(tmp_path: Path, columns: int | None) -> None:
    assert not ROW.findall(planned(tmp_path, columns))
    assert "at least" not in planned(tmp_path, columns)


def test_who_asks_for_the_least_peak_gets_no_other_budgets(tmp_path: Path) -> None:
    said = planned(tmp_path, 120, "--objective", "peak", "--work-limit", "100000")
    assert chart_of(said)
    assert not ROW.findall(said)


def hard_graph(folder: Path) -> str:
    """On which planning goes on to its limit."""
    path = folder / "hard.json"
    said_by(["generate", "random_layered", "--nodes", "300", "--seed", "3", "-o", str(path)], None)
    return str(path)


def test_long_work_says_what_is_left_of_it(tmp_path: Path) -> None:
    graph = hard_graph(tmp_path)
    said = said_by(["plan", graph, "-b", "70%", "--time-limit", "1.5s"], 100, errors=True, NO_COLOR="1")
    left = [float(found) for found in re.findall(r"([\d.]+) s left", said)]
    assert left
    assert left == sorted(left, reverse=True)
    assert 0 <= left[-1] < left[0] < 1.5
    # The line is gone in the end; spaces before that cover a longer one.
    assert re.match(r" *\r +\r", said.rpartition(" left")[2])
    by_work = ["sweep", graph, "--points", "4", "--work-limit", "5000000"]
    assert re.search(r"[\d.]+ % of the work left", said_by(by_work, 100, errors=True))
    assert "left" not in said_by(["plan", graph, "-b", "70%", "--time-limit", "1s"], 100)


def test_several_pieces_of_work_are_counted(tmp_path: Path) -> None:
    graph = hard_graph(tmp_path)
    command = ["compare", graph, "-b", "70%", "--planners", "search,auto", "--time-limit", "1s"]
    said = said_by(command, 100, errors=True)
    assert "\r1 of 2  " in said
    assert "\r2 of 2  " in said
