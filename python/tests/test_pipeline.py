"""`remat.pipeline`: what Python adds to the core's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import remat

COMMAND = [sys.executable, "-m", "remat"]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> remat.Graph:
    path = tmp_path_factory.mktemp("pipeline") / "gpt.json"
    sizes = {"depth": 8, "width": 64, "heads": 2, "vocabulary": 128, "sequence": 64, "batch": 4}
    settings = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    more = ["--optimizer", "adam", "--durations", "roofline", "-o", str(path)]
    subprocess.run([*COMMAND, "generate", "gpt", *settings, *more], check=True, capture_output=True)
    return remat.load_graph(Path(path))


def test_stages_follow_each_other_within_the_budget(gpt: remat.Graph) -> None:
    result = remat.pipeline(gpt, 3, microbatches=6, budget="8MiB")
    assert result.status == "optimal"
    assert [stage.in_flight for stage in result.stages] == [3, 2, 1]
    assert [stage.blocks[0] for stage in result.stages] == [0] + [s.blocks[1] for s in result.stages[:-1]]
    assert result.stages[-1].blocks[1] == 10
    assert all(stage.peak <= 8 << 20 for stage in result.stages)
    times = [stage.forward + stage.backward + stage.recomputed for stage in result.stages]
    assert result.slowest == max(times)
    assert result.duration is not None
    assert result.duration >= 6 * max(times)
    for name in ("uniform_own", "uniform_same", "uniform_full"):
        other = result.beside[name]
        assert other is None or other >= result.slowest


def test_more_memory_is_never_slower(gpt: remat.Graph) -> None:
    budgets = [f"{mib}MiB" for mib in (5, 6, 8, 12, 64)]
    results = [remat.pipeline(gpt, 4, microbatches=8, budget=budget) for budget in budgets]
    slowest = [result.slowest for result in results if result.slowest is not None]
    assert slowest == sorted(slowest, reverse=True)
    assert len(set(slowest)) > 1
    assert remat.pipeline(gpt, 4, microbatches=8).slowest == slowest[-1]


def test_policies_are_those_of_checkpoints(gpt: remat.Graph) -> None:
    result = remat.pipeline(gpt, 3, microbatches=6, budget="8MiB", executor="checkpoint")
    stage = result.stages[0]
    assert [name for name, _, _ in stage.policies] == stage.names
    file = remat.checkpoint_file(stage)
    assert file["format"] == "remat.checkpoint"
    blocks = file["blocks"]
    assert isinstance(blocks, dict)
    assert blocks
    for name, runs_again, saved in stage.policies:
        assert (name in blocks) == runs_again
        if runs_again:
            assert blocks[name]["save"] == saved


def test_chunks_of_a_device_share_its_memory(gpt: remat.Graph) -> None:
    result = remat.pipeline(gpt, 2, "interleaved", microbatches=4, budget="64MiB")
    assert result.status == "feasible"
    assert [(s.device, s.chunk) for s in result.stages] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert result.stages[0].peak == result.stages[2].peak


def test_parts_follow_each_other(gpt: remat.Graph) -> None:
    result = remat.pipeline([gpt, (gpt, 2)], 3, microbatches=3)
    assert result.stages[-1].blocks[1] == 30


def test_errors_are_one_line_each(gpt: remat.Graph) -> None:
    with pytest.raises(remat.InfeasibleError, match="no cuts and choices fit: stages 0 to") as found:
        remat.pipeline(gpt, 3, microbatches=6, budget="1MiB", check=True)
    least = found.value.smallest_known
    assert remat.pipeline(gpt, 3, microbatches=6, budget=least, check=True).status == "optimal"
    with pytest.raises(remat.UsageError, match="11 stages need as many blocks, found 10"):
        remat.pipeline(gpt, 11, microbatches=6)
    with pytest.raises(remat.UsageError, match="unknown schedule 'gpipe'"):
        remat.pipeline(gpt, 2, "gpipe", microbatches=6)  # type: ignore[arg-type]
    with pytest.raises(remat.BudgetError):
        remat.pipeline(gpt, 2, microbatches=6, budget="50%")
    single = remat.Graph([4], [remat.Op("a", 1, [], [0])], outputs=[0])
    with pytest.raises(remat.GraphError, match="has no backward half"):
        remat.pipeline(single, 1, microbatches=1)
