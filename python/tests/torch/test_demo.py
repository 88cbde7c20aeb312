"""`make demo`: how much it trains."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("train_gpt", "gpt"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import train_gpt

    return train_gpt


@pytest.mark.parametrize(("first", "steps"), [(0.5, 20), (4.0, 13), (9.0, 5), (30.0, 5)])
def test_a_slow_machine_trains_fewer_steps(demo: Any, first: float, steps: int) -> None:
    assert demo.steps_for(first, 120) == steps


def test_a_machine_that_is_too_slow_gets_smaller_steps(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "first_step", lambda config, batch: 10.0 * batch)
    assert demo.choose(demo.Config(), 4, 120) == (1, 5, 10.0)
    assert "one step of 1 sequences in eager mode on 1 thread ... 10.00 s" in capsys.readouterr().out


@pytest.mark.parametrize(("alone", "together", "threads"), [(2.0, 9.0, 1), (2.0, 1.2, 2)])
def test_on_a_busy_machine_one_thread_may_be_faster(
    demo: Any, monkeypatch: pytest.MonkeyPatch, alone: float, together: float, threads: int
) -> None:
    before = demo.torch.get_num_threads()
    try:
        demo.torch.set_num_threads(2)
        seconds = {1: alone, 2: together}
        monkeypatch.setattr(demo, "first_step", lambda config, batch: seconds[demo.torch.get_num_threads()])
        assert demo.choose(demo.Config(), 4, 120)[2] == min(alone, together)
        assert demo.torch.get_num_threads() == threads
    finally:
        demo.torch.set_num_threads(before)


def test_what_is_trained_says_how_long_it_takes_and_ends_early_where_it_takes_longer(
    demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = demo.Config(layers=1, heads=1, width=8, context=8)
    data = demo.batches(demo.load_text(), 8, 1, config.context)
    assert len(demo.train("eager", data, config).losses) == 8
    assert len(demo.train("eager", data, config, seconds=0).losses) == demo.LEAST_STEPS
    said = capsys.readouterr().out
    assert "step  1/8" in said
    assert " s left" in said
