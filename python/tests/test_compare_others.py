"""Plans of other programs in the table of `compare`."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

import pytest
import remat

COMMAND = Path(remat.__file__).parent / "bin" / "remat"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    file = tmp_path / "a graph's.json"
    remat.generate("chain", length=8, bytes=100).save(file)
    return file


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "compare", *words], capture_output=True, text=True)


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {row["planner"]: row for row in json.loads(done.stdout)["planners"]}


def steps_only(path: Path, steps: list[int]) -> Path:
    path.write_text(json.dumps({"format": "remat.plan", "version": 1, "steps": steps}))
    return path


def test_a_plan_of_others_stands_in_the_table_as_ours_do(graph: Path, tmp_path: Path) -> None:
    loaded = remat.load_graph(graph)
    greedy = remat.plan(loaded, "70%", planner="greedy", work_limit=1000, time_limit=None).plan
    assert greedy is not None
    mine = steps_only(tmp_path / "mine.json", greedy.steps)
    every = steps_only(tmp_path / "all.json", list(range(loaded.num_ops)))
    bad = steps_only(tmp_path / "bad.json", [1, 0])
    words = [graph, "-b", "70%", "--planners", "greedy", "--work-limit", "1000", "--json"]
    words += ["--plan", f"mine={mine}", "--plan", f"all={every}", "--plan", f"bad={bad}"]
    done = run(*words, "--out-dir", tmp_path / "plans")
    assert (done.returncode, done.stderr) == (0, "")
    table = rows(done)
    assert list(table) == ["greedy", "mine", "all", "bad"]
    for key in ("overhead_percent", "peak", "over_budget", "peak_bound", "duration_bound", "gap_percent"):
        assert table["mine"][key] == table["greedy"][key]
    assert (table["all"]["over_budget"], table["all"]["peak"]) == ("yes", loaded.keep_all_peak)
    assert table["bad"]["status"] == "not run"
    assert table["bad"]["note"].startswith("not valid: rule input_ready: step 0: op 1")
    assert remat.load_plan(tmp_path / "plans" / "mine.json").steps == greedy.steps
    plans = {"mine": greedy, "all": remat.Plan(loaded, range(loaded.num_ops))}
    here = remat.compare(loaded, "70%", ["greedy"], plans=plans, work_limit=1000, time_limit=None)
    for row in here:
        assert (row.peak, row.status) == (table[row.planner]["peak"], table[row.planner]["status"])
    other = remat.Plan(remat.Graph([1], [remat.Op("a", 1, [], [0])]), [0])
    wrong = remat.compare(loaded, "70%", [], plans={"wrong": other})["wrong"]
    assert (wrong.status, wrong.result) == ("not run", None)
    assert wrong.note.startswith("not valid: ")


def test_a_command_makes_a_plan_within_the_budget(graph: Path) -> None:
    ask = f"'{COMMAND}' plan {{graph}} -b {{budget}} --planner greedy -o {{out}}"
    words = [graph, "-b", "70%", "--planners", "greedy", "--json"]
    table = rows(run(*words, "--run", f"theirs={ask}"))
    assert table["theirs"]["peak"] == table["greedy"]["peak"]
    assert table["theirs"]["seconds"] > 0
    for command, note in (
        ("exit 3; {out}", "the command ended with 3"),
        ("kill -9 $$; {out}", "the command was ended by signal 9"),
        ("true {out}", "the command wrote no plan"),
        ("echo hello > {out}", "not valid JSON"),
    ):
        done = run(*words, "--run", f"theirs={command}")
        assert note in rows(done)["theirs"]["note"]
        assert done.returncode == 0, "the planner has a plan"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plan", "mine"], "--plan 'mine' is not NAME=FILE"),
        (["--run", "mine=true"], "--run 'mine=true' has no {out}, the file for its plan"),
        (["--plan", "auto=p.json"], "'auto' is the name of a planner: give the plan another one"),
        (["--plan", "a/b=p.json"], "the name 'a/b' has a '/'"),
        (["--plan", "a=p.json", "--run", "a={out}"], "two plans have the name 'a'"),
    ],
)
def test_wrong_usage_is_one_line(graph: Path, words: list[str], message: str) -> None:
    done = run(graph, "-b", "70%", *words)
    assert (done.returncode, done.stderr, done.stdout) == (64, f"remat: {message}\n", "")


def ends(pid: int) -> bool:
    """Has a process ended, or does it soon: one that was killed runs until the system takes it off?"""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 60)[0])
    finally:
        os.close(handle)


def test_a_command_is_ended_at_its_limit_with_all_that_it_started(graph: Path, tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = f"sleep 1000 & echo $! > {child}; wait; true {{out}}"
    words = [graph, "-b", "70%", "--planners", "greedy", "--work-limit", "1000", "--json"]
    done = run(*words, "--run", f"slow={command}", "--run-limit", "1s")
    assert (done.returncode, done.stderr) == (0, "")
    row = rows(done)["slow"]
    assert (row["status"], row["note"]) == ("not run", "ended at its limit of 1 s (--run-limit)")
    assert ends(int(child.read_text()))
    bad = run(*words, "--run", f"slow={command}", "--run-limit", "soon")
    assert bad.returncode == 64
    assert bad.stderr.startswith("remat: ")


def test_a_plan_is_made_again_from_what_its_file_says_was_asked(graph: Path, tmp_path: Path) -> None:
    words = [graph, "-b", "70%", "--planners", "auto,search", "--work-limit", "30000", "--seed", "3"]
    done = run(*words, "--out-dir", tmp_path)
    assert done.returncode == 0
    for planner in ("auto", "search"):
        made = json.loads((tmp_path / f"{planner}.json").read_text())
        asked = made["request"]
        assert asked["planner"] == planner
        assert (asked["work_limit"], asked["time_limit"], asked["threads"]) == (30000, None, 1)
        again = tmp_path / "again.json"
        words_again = [graph, "--budget", str(made["budget"]), "--planner", asked["planner"], "--seed", "3"]
        words_again += ["--work-limit", str(asked["work_limit"]), "-o", again]
        subprocess.run([COMMAND, "plan", *words_again], check=True, capture_output=True)
        assert json.loads(again.read_text()) == made
