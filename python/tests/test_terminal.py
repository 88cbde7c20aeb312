"""What `remat plan` shows to people at a terminal, in a terminal of the test's own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from graphs import chain

BLOCKS = " ▁▂▃▄▅▆▇█"


def planned(folder: Path, columns: int | None, **environment: str) -> str:
    """What `remat plan` writes to a terminal of so many columns, or to a pipe."""
    chain(12, size=1000).save(folder / "graph.json")
    command = [sys.executable, "-m", "remat", "plan", str(folder / "graph.json"), "-b", "50%"]
    known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "REMAT_COLUMNS")}
    given = {"env": {**known, **environment}, "stderr": subprocess.PIPE, "timeout": 60}
    if columns is None:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **given).stdout  # type: ignore[call-overload, no-any-return]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run(command, stdout=theirs, check=True, **given)  # type: ignore[call-overload]
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def chart_of(said: str) -> list[str]:
    return said.partition("keep-all peak:\n")[2].splitlines()


def test_a_terminal_that_is_wide_enough_gets_a_chart(tmp_path: Path) -> None:
    rows = chart_of(planned(tmp_path, 100, NO_COLOR="1"))
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
    assert "\033[31m" in planned(tmp_path, 80, NO_COLOR="")
