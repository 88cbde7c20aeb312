"""What is reported while planning and training, and when: log lines, warnings, the line on a terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import time

import pytest
import remat.torch
import torch
from models import MLP, case
from remat.torch.base.progress import ProgressLine
from remat.torch.plan.report import PlanReport
from remat.torch.session.watch import StepWatch
from training import fit

CUDA = torch.device("cuda", 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plan_report(**fields) -> PlanReport:
    numbers = dict.fromkeys(
        ["budget", "reserve", "predicted_peak", "keep_all_peak", "peak_lower_bound", "duration_lower_bound"],
        0,
    )
    counts = dict.fromkeys(["ops", "recomputed_steps", "distinct_ops", "existing_gradients"], 0)
    texts = {"name": "step_0", "status": "feasible", "planner": "x", "graph": None, "plan": None}
    return PlanReport(**{**texts, **numbers, **counts, "overhead": 0.0, **fields})


@pytest.fixture(autouse=True)
def a_terminal_that_knows_more_than_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def said_by_remat(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "remat.torch"]


def test_every_plan_is_one_line_with_peaks_overhead_and_seconds(caplog) -> None:
    model, inputs = case("mlp").build()
    with caplog.at_level(logging.INFO, "remat.torch"):
        report = fit(model, inputs, "80%", accumulate=False).remat.parts[0]
    (line,) = said_by_remat(caplog)
    assert line.startswith(
        f"step_0: {report.ops} ops, peak {remat.format_bytes(report.keep_all_peak)} -> "
        f"{remat.format_bytes(report.predicted_peak)} (budget {remat.format_bytes(report.budget)}), "
        f"overhead {100 * report.overhead:.1f} % of the traced step's ops, "
    )
    assert line.endswith(" s")


def test_a_peak_above_the_prediction_is_said_once_when_it_is_measured(caplog) -> None:
    torch.manual_seed(0)
    model, x = MLP(width=64, depth=4).layers, torch.randn(256, 64)
    fitted = fit(model, x, "100%")

    def step() -> None:
        y = fitted(x)
        held = torch.zeros(1 << 20)
        y.square().mean().backward()
        del held

    step()  # after which the plan counts on dropped outputs
    model.zero_grad()
    with caplog.at_level(logging.WARNING, "remat.torch"):
        peak = remat.torch.measure_peak(step, resident=[model, x])
        (warning,) = said_by_remat(caplog)
        assert "the measured peak is" in warning
        assert peak > 1.02 * fitted.remat.predicted_peak
        assert fitted.remat.parts[0].exceeded >= (1 << 22) - (1 << 16)
        caplog.clear()
        model.zero_grad()
        remat.torch.measure_peak(step, resident=[model, x])
        assert said_by_remat(caplog) == []


def test_what_happens_before_or_after_the_step_is_not_held_against_the_plan(caplog) -> None:
    torch.manual_seed(0)
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "80%")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        before = torch.zeros(1 << 20)
        loss = fitted(*inputs)
        loss.backward()
        after = torch.zeros(1 << 22)
        optimizer.step()
        del before, after

    with caplog.at_level(logging.WARNING, "remat.torch"):
        assert remat.torch.measure_peak(step, resident=[model, inputs]) > 1.02 * fitted.remat.predicted_peak
    assert said_by_remat(caplog) == []


@pytest.mark.parametrize(
    ("high_before", "high_after", "said"),
    [(500, 1200, True), (500, 1101, False), (1300, 1300, False)],
    ids=["too high", "within 2 percent", "no new mark"],
)
def test_on_cuda_a_new_highest_mark_is_compared(monkeypatch, caplog, high_before, high_after, said) -> None:
    marks = iter([high_before, high_after])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 400)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(marks))
    report = plan_report(predicted_peak=1000, rise=690)  # from 400 to 1090: 20 of tolerance
    watch = StepWatch()
    with caplog.at_level(logging.WARNING, "remat.torch"):
        watch.forward(report, CUDA)
        watch.backward_done(report, CUDA)
    assert ("the measured peak is 1.08 KiB, 11.0 % above the predicted 0.977 KiB" in caplog.text) == said
    assert watch.open is None


def test_a_step_of_several_graphs_is_held_against_the_highest_prediction(monkeypatch, caplog) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    marks = iter([500, 1200, 1200, 1300])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(marks))
    first = plan_report(name="first", predicted_peak=600, rise=600)
    second = plan_report(name="second", predicted_peak=1200, rise=1200)
    watch = StepWatch()
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for _ in range(2):
            watch.forward(first, CUDA)
            watch.forward(second, CUDA)
            watch.backward_done(second, CUDA)
            assert watch.open is not None
            assert said_by_remat(caplog) == []
            watch.backward_done(first, CUDA)
    (warning,) = said_by_remat(caplog)
    assert warning.startswith("second: the measured peak is")


def test_new_shapes_beyond_the_bound_drop_the_least_recently_used_with_one_warning(caplog) -> None:
    torch.manual_seed(0)
    model = MLP(width=16, depth=2)
    batches = [torch.randn(n, 16) for n in (4, 5, 6, 7)]
    fitted = fit(model, batches[0], "1GiB", max_shapes=2, accumulate=False)

    with caplog.at_level(logging.WARNING, "remat.torch"):
        for batch in batches:
            fitted(batch).backward()
            model.zero_grad()
            assert len(fitted.remat.parts) <= 2
    (warning,) = said_by_remat(caplog)
    assert "more than 2 combinations of input shapes" in warning
    known = list(fitted.remat.parts)
    fitted(batches[-1]).backward()
    model.zero_grad()
    assert fitted.remat.parts == known
    expected = MLP(width=16, depth=2)
    expected.load_state_dict(model.state_dict())
    loss = fitted(batches[0])  # was dropped
    loss.backward()
    expected(batches[0]).backward()
    assert len(fitted.remat.parts) == 2
    assert all(a.grad.equal(b.grad) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_the_limit_of_dynamo_is_said_before_it_runs_without_a_plan(caplog) -> None:
    model = MLP(width=16, depth=2)
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled = torch.compile(model, backend="remat", options={"budget": "1GiB"}, dynamic=False)
        with caplog.at_level(logging.WARNING, "remat.torch"):
            compiled(torch.randn(4, 16)).backward()
            assert "Dynamo has compiled" not in caplog.text
            compiled(torch.randn(5, 16)).backward()
            assert "Dynamo has compiled this model 2 times, its limit" in caplog.text


def test_the_progress_line_shows_shares_of_ops_and_of_the_time_limit() -> None:
    line = ProgressLine(Terminal())
    line.profiling(3, 12)
    assert line.line(time.perf_counter()) == (
        "remat: profiling [######..................] 0 s, about 0 s left, 3/12 ops"
    )
    assert "20 s, about 60 s left" in line.line(line._phase + 20)
    line.planning(10.0)
    start = time.perf_counter()
    assert line.line(start + 5).startswith("remat: planning [############............] 5 s, 5 s left")
    assert line.line(start + 50).startswith("remat: planning [########################] 50 s, 0 s left")
    line.better_plan("greedy", 0.1, 100, 5, True)
    assert line.line(start + 5).endswith("5 s left, within the budget by greedy")
    line.planning(None)
    assert line.line(start + 7) == "remat: planning 7 s"


def test_the_progress_line_is_drawn_on_terminals_only_and_cleared() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with ProgressLine(stream, delay=0.0) as line:
            line.planning(10.0)
            deadline = time.perf_counter() + 5
            while stream.isatty() and not stream.getvalue() and time.perf_counter() < deadline:
                time.sleep(0.01)
    assert pipe.getvalue() == ""
    assert "\rremat: planning [" in terminal.getvalue()
    last = terminal.getvalue().split("\r")[-2]
    assert last.strip() == ""
    assert len(last) > 30


def test_a_dumb_terminal_gets_no_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with ProgressLine(terminal, delay=0.0) as line:
        line.planning(10.0)
        assert line._thread is None
    assert terminal.getvalue() == ""


def test_the_progress_line_is_replaced_by_what_it_came_to_unless_there_was_an_error() -> None:
    def shown(fail: bool) -> str:
        terminal = Terminal()
        with contextlib.suppress(KeyboardInterrupt), ProgressLine(terminal, delay=0.0) as line:
            line.tracing()
            deadline = time.perf_counter() + 5
            while not terminal.getvalue() and time.perf_counter() < deadline:
                time.sleep(0.01)
            line.set_result("peak 3.00 GiB of 5.00 GiB")
            if fail:
                raise KeyboardInterrupt
        return terminal.getvalue()

    assert "\rremat: tracing 0 s" in shown(False)
    last = shown(False).split("\r")[-1]
    assert last.startswith("remat: peak 3.00 GiB of 5.00 GiB, 0.")
    assert last.endswith(" s\n")
    assert "GiB" not in shown(True)


def test_fit_shows_all_of_its_phases_on_one_line(monkeypatch) -> None:
    phases: list[str] = []
    begin = ProgressLine._begin
    monkeypatch.setattr(ProgressLine, "_begin", lambda self, what: (phases.append(what), begin(self, what)))
    made: list[ProgressLine] = []
    start = ProgressLine.__enter__
    monkeypatch.setattr(ProgressLine, "__enter__", lambda self: (made.append(self), start(self))[1])
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "80%", work_limit=10_000)
    assert phases[0] == "tracing"
    assert list(dict.fromkeys(phases)) == ["tracing", "profiling", "planning"]
    assert len(made) == 1
    assert made[0]._result == fitted.remat.largest().outcome()


def test_the_progress_line_waits_a_moment() -> None:
    terminal = Terminal()
    with ProgressLine(terminal) as line:
        line.planning(10.0)
        time.sleep(0.3)
    assert terminal.getvalue() == ""


class Narrowed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.narrow(torch.tanh(x * self.scale), 1, at, 2).square().sum()


def test_what_was_chosen_and_why_is_one_line_whatever_pytorch_says(caplog) -> None:
    with caplog.at_level(logging.WARNING, "remat.torch"):
        remat.torch.fit(Narrowed(), (torch.randn(8, 8), torch.tensor(3)), "100%")
    (line,) = [text for text in said_by_remat(caplog) if "runs in eager mode" in text]
    assert line.endswith("that are made again: what aten._local_scalar_dense.default makes depends on data")
