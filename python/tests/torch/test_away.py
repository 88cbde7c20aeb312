"""Values that leave for a host and come back: bits of eager mode, predicted peaks, whatever the clock."""

from __future__ import annotations

import copy
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import remat
import remat.torch
import torch
from late import at_random, leave_out_waits, pool_of, until
from models import CASES, Case, case
from plans import random_plan, with_random_copies
from remat.torch.plan.peak import _alive
from remat.torch.run import channels
from remat.torch.run.copies import HostPool
from remat.torch.session import pipeline
from torch import nn
from training import Trace, fit, step_peak, train

HOST = "2GB/s"


def fit_copying(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], budget: int | str, **options: object
) -> nn.Module:
    """A plan that is not worth much without copies."""
    return fit(model, inputs, budget, **{"host": HOST, "time_limit": None, "work_limit": 30_000, **options})


@pytest.mark.parametrize(
    "c",
    [pytest.param(c, marks=pytest.mark.long if c.name in ("mlp", "encoder") else []) for c in CASES],
    ids=lambda c: c.name,
)
def test_late_copies_change_neither_bits_nor_the_peak(c: Case, slow) -> None:
    model, inputs = c.build()
    eager = train(copy.deepcopy(model), inputs)
    sizes = slow(at_random(1, 0.003))
    fitted = fit_copying(model, inputs, "60%")
    assert all(part.copied_out > 0 for part in fitted.remat.parts)
    assert eager.differences(train(fitted, inputs)) == []
    assert sizes
    adding, making = fitted.remat.parts[-1], fitted.remat.parts[0]
    assert adding.existing_gradients > 0
    assert step_peak(fitted, inputs) == pytest.approx(adding.predicted_peak, rel=1e-4)
    fitted.zero_grad()
    measured = step_peak(fitted, inputs)
    assert measured == pytest.approx(making.predicted_peak, rel=1e-4)
    assert measured <= making.budget


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["mlp", "conv_net", pytest.param("encoder", marks=pytest.mark.long)])
def test_copies_at_any_time_of_any_plan_equal_eager(name: str, seed: int, slow) -> None:
    model, inputs = case(name).build()
    eager = train(copy.deepcopy(model), inputs)
    graph = remat.torch.capture(model, inputs, accumulate=False, host=HOST)
    plan = with_random_copies(graph, random_plan(graph, seed), seed)
    assert {way for _, way, _, _ in plan.copies} == {"out", "in"}
    slow(at_random(seed, 0.003))
    fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False, host=HOST)
    assert eager.differences(train(fitted, inputs)) == []
    fitted.zero_grad()
    assert step_peak(fitted, inputs) == pytest.approx(fitted.remat.predicted_peak, rel=1e-4)


def test_the_device_is_waited_for_and_the_report_says_for_how_long(slow, caplog) -> None:
    caplog.set_level("DEBUG", logger="remat.torch")
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "60%")
    (part, *_) = fitted.remat.parts
    assert part.traffic == remat.torch.Traffic()  # of training alone
    sizes = slow(lambda size: 0.02)
    for _ in range(2):
        fitted(*inputs).backward()
        fitted.zero_grad()
    assert part.traffic.calls == 2
    assert part.traffic.out == 2 * part.copied_out
    assert part.traffic.back == 2 * part.copied_in
    assert sum(sizes) == 2 * (part.copied_out + part.copied_in)
    assert part.traffic.stalled > 0.02
    assert part.host_peak > 0
    assert "calls copied" in caplog.messages[-1]
    assert part.copied_so_far() == caplog.messages[-1]
    text = str(part)
    assert "copied_out = " in text
    assert "stalled_measured = " in text
    assert "copied out" in part.summary()


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_wait_that_is_left_out_shows(way: str, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    fitted = fit_copying(model, inputs, "60%", accumulate=False)
    slow(lambda size: 0.03)
    leave_out_waits(monkeypatch, way)
    fitted(*inputs).backward()
    fitted.zero_grad()
    peak = step_peak(fitted, inputs)
    fitted.zero_grad()
    differences = eager.differences(train(fitted, inputs))
    if way == "in":
        assert differences
    else:
        assert peak > 1.01 * fitted.remat.predicted_peak or differences
    time.sleep(0.5)  # until what nobody waited for has ended


def test_several_calls_in_flight_have_places_of_their_own(slow) -> None:
    model, inputs = case("encoder").build()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, inputs, "70%", calls=2)
    (part, *_) = fitted.remat.parts
    assert part.copied_out > 0
    slow(at_random(3))
    for each in (eager, fitted):
        torch.manual_seed(5)
        losses = [each(*inputs) for _ in range(2)]
        losses[0].backward()
        losses[1].backward()
    assert all(p.grad.equal(q.grad) for p, q in zip(fitted.parameters(), eager.parameters(), strict=True))


def test_a_backward_may_come_twice_and_a_call_that_is_dropped_leaves_its_place(slow) -> None:
    model, inputs = case("encoder").build()
    eager = copy.deepcopy(model)
    graph = remat.torch.capture(model, inputs, accumulate=False, host=HOST)
    # Copies out in the backward take the places of what has come back by then.
    plan = with_random_copies(graph, random_plan(graph, 0), 0)
    fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False, host=HOST)
    slow(at_random(4, 0.003))
    for each in (eager, fitted):
        torch.manual_seed(5)
        loss = each(*inputs)
        loss.backward(retain_graph=True)
        loss.backward()
    assert all(p.grad.equal(q.grad) for p, q in zip(fitted.parameters(), eager.parameters(), strict=True))
    pool = pool_of(fitted)
    free = pool.bytes_free()
    assert pool.bytes_used == 0
    loss = fitted(*inputs)
    assert pool.bytes_used > 0
    del loss
    until(lambda: pool.bytes_used == 0)
    for _ in range(3):
        fitted(*inputs)
    until(lambda: pool.bytes_used == 0)
    assert pool.bytes_free() == free


def test_what_raises_between_forward_and_backward_leaves_nothing(slow) -> None:
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "60%")
    pool = pool_of(fitted)
    slow(lambda size: 0.002)

    def step(fails: bool) -> None:
        loss = fitted(*inputs)
        if fails:
            raise KeyError("a loop")
        loss.backward()

    for fails in (True, False, True, False):
        fitted.zero_grad()
        try:
            step(fails)
        except KeyError:
            assert fails
        until(lambda: pool.bytes_used == 0)
    fitted.zero_grad()
    peak = step_peak(fitted, inputs)
    assert peak == pytest.approx(fitted.remat.parts[0].predicted_peak, rel=1e-4)


def test_an_error_inside_the_backward_is_the_callers_and_the_next_step_is_right() -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    fitted = fit_copying(model, inputs, "60%")

    def fail(gradient: torch.Tensor) -> None:
        raise KeyError("a hook")

    hook = next(fitted.parameters()).register_hook(fail)
    with pytest.raises(KeyError, match="a hook"):
        fitted(*inputs).backward()
    hook.remove()
    fitted.zero_grad()
    assert eager.differences(train(fitted, inputs)) == []


@pytest.mark.parametrize("late", [0.0, 0.02])
def test_copies_a_hundred_times_as_slow_need_the_same_memory(late: float, slow) -> None:
    """At 20 ms for each copy of 0.5 MB the bandwidth is a hundredth of what was planned for."""
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "50%", accumulate=False)
    (part,) = fitted.remat.parts
    slow(lambda size: late)
    start = time.perf_counter()
    assert step_peak(fitted, inputs) == part.predicted_peak
    assert part.predicted_peak <= part.budget
    copies = len(part.plan.copies)
    assert time.perf_counter() - start > late * copies / 2


def test_a_full_disk_is_one_error_before_the_step(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("conv_net").build()
    fitted = fit_copying(model, inputs, "70%", host_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []  # the file has no name
    pool_of(fitted).forget()
    before = {name: buffer.clone() for name, buffer in fitted.named_buffers()}
    state = torch.get_rng_state()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    message = r"^host: this step's copies need .* and .* has .* free \(No space left on device\): host_dir="
    with pytest.raises(remat.torch.HostMemoryError, match=message) as caught:
        fitted(*inputs)
    assert "\n" not in str(caught.value)
    assert all(buffer.equal(before[name]) for name, buffer in fitted.named_buffers())
    assert torch.get_rng_state().equal(state)
    monkeypatch.undo()
    fitted(*inputs).backward()


def test_a_host_without_room_is_one_error_before_the_step() -> None:
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "60%", host=remat.Host(2e9, 2e9, budget="3MB"), accumulate=False)
    (part,) = fitted.remat.parts
    assert 1.5e6 < part.host_peak <= 3e6
    first = fitted(*inputs)
    message = r"^host: this step's copies need .* beside .* of calls in flight, the budget of the host is .*$"
    with pytest.raises(remat.torch.HostMemoryError, match=message):
        fitted(*inputs)
    first.backward()


def test_a_folder_that_does_not_exist_is_an_error_of_fit(tmp_path) -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.torch.HostMemoryError, match=r"nowhere: No such file or directory"):
        fit_copying(model, inputs, "60%", host_dir=tmp_path / "nowhere")


def test_the_child_of_a_process_that_forks_has_places_of_its_own(tmp_path, monkeypatch) -> None:
    pool = HostPool(channels.FileChannels(tmp_path), 5000)
    first, second = pool.lease(1000), pool.lease(1000)
    del second
    assert (pool.bytes_used, pool.bytes_free()) == (1000, 1000)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    own = pool.lease(900)
    assert own.region.size == 900
    del first  # the parent's
    assert (pool.bytes_used, pool.bytes_free()) == (900, 0)


KILLED = """
import sys, time, torch
sys.path[:0] = {path!r}
import remat.torch
from models import case
from remat.torch.run import channels
move = channels.move
def late(*args):
    time.sleep(0.05)
    move(*args)
channels.move = late
model, inputs = case("mlp").build()
model = remat.torch.fit(model, inputs, "60%", host="2GB/s", host_dir={folder!r}, work_limit=30000)
print("copying", flush=True)
while True:
    model(*inputs).backward()
"""


@pytest.mark.long
def test_killing_the_process_leaves_no_file(tmp_path) -> None:
    script = KILLED.format(path=[str(Path(__file__).parent)], folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"
        time.sleep(0.3)
        held = [os.readlink(f"/proc/{process.pid}/map_files/{m}") for m in maps_of(process.pid)]
        process.kill()
    assert any(str(tmp_path) in name for name in held)  # it was there
    assert list(tmp_path.iterdir()) == []


def maps_of(pid: int) -> list[str]:
    return os.listdir(f"/proc/{pid}/map_files")


def test_what_fills_the_peak_is_known_with_copies_too() -> None:
    model, inputs = case("encoder").build()
    fitted = fit_copying(model, inputs, "60%", accumulate=False)
    filled = remat.torch.report(fitted)
    assert filled.peak == fitted.remat.predicted_peak
    assert sum(row.bytes for row in filled.rows) == filled.peak
    assert min(row.bytes for row in filled.rows) > 0
    plan = fitted.remat.plan
    simulated = remat.simulate(fitted.remat.graph, plan.steps, plan.copies)
    for at in range(0, len(plan.steps), 7):
        alive = _alive(fitted.remat.graph, plan.steps, plan.copies, at)
        sizes = fitted.remat.graph.bytes
        workspace = fitted.remat.graph.workspaces[plan.steps[at]]
        twice = sum(int(sizes[output]) for step, _, output in simulated.overwrites if step == at)
        assert sum(int(sizes[v]) for v in alive) + workspace - twice == simulated.memory[at]


def test_a_step_with_copies_is_recorded_step_by_step(slow) -> None:
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "60%", accumulate=False)
    slow(at_random(6))
    fitted.zero_grad()

    def step() -> None:
        fitted(*inputs).backward()
        fitted.zero_grad()

    recorded = remat.torch.record(step, resident=[fitted, *inputs])
    assert recorded.measured_peak == fitted.remat.predicted_peak
    assert abs(recorded.measured - recorded.predicted).max() <= 0.01 * recorded.measured_peak


def test_verify_compares_steps_with_copies() -> None:
    model, inputs = case("encoder").build()
    found = remat.torch.verify(model, inputs, "70%", host=HOST, time_limit=None, work_limit=30_000)
    assert found.differences == ()
    assert found.within
    fitted = fit_copying(model, inputs, "70%", verify=True)
    fitted(*inputs).backward()


def test_the_backend_takes_a_host_and_finds_its_plan_again(tmp_path) -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    options = {
        "budget": "60%",
        "host": HOST,
        "work_limit": 30_000,
        "cache_dir": tmp_path / "plans",
        "host_dir": tmp_path,
        "accumulate": False,
    }
    for _ in range(2):
        torch._dynamo.reset()
        again = copy.deepcopy(model)
        compiled = torch.compile(again, backend="remat", options=options)
        found = train(compiled, inputs)
        found = Trace.of(again, found.losses)
        assert eager.differences(found) == []
    options["host"] = "3GB/s"
    fitted = [fit(copy.deepcopy(model), inputs, **options) for _ in range(2)]
    assert [f.remat.parts[0].stored for f in fitted] == [False, True]
    assert fitted[0].remat.plan.copies == fitted[1].remat.plan.copies != []


def test_how_fast_the_host_is_can_be_measured(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = case("mlp").build()
    with caplog.at_level("INFO", logger="remat.torch"):
        fitted = fit(model, inputs, "60%", host="auto", accumulate=False)
        again = fit(model, inputs, "70%", host="auto", accumulate=False)
    (part,) = fitted.remat.parts
    assert part.host is not None
    assert 1e7 < part.host.out < 1e12
    assert 0 < part.host.latency < 0.1
    assert again.remat.parts[0].host == part.host  # measured once
    assert sum("host=auto: " in message for message in caplog.messages) <= 1


def test_a_model_in_pieces_copies_too() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = case("mlp").build()[0], nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            torch._dynamo.graph_break()
            return y + self.second(x[:, :8]).square().mean()

    inputs = case("mlp").build()[1]
    torch.manual_seed(0)
    model = Broken()
    eager = train(copy.deepcopy(model), inputs)
    budget = 3 * step_peak(copy.deepcopy(model), inputs) // 4
    fitted = fit_copying(model, inputs, budget)
    assert max(part.copied_out for part in fitted.remat.parts) > 0
    assert eager.differences(train(fitted, inputs)) == []
    fitted.zero_grad()
    assert step_peak(fitted, inputs) <= budget


def test_gradients_that_end_in_the_backward_go_with_copies(slow) -> None:
    model, inputs = case("encoder").build()
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin)]
    fitted = fit_copying(model, inputs, "60%", optimizer=optimizers[0], step="backward")
    assert fitted.remat.parts[0].copied_out > 0
    slow(at_random(8, 0.003))
    for each in (fitted, twin):
        torch.manual_seed(2)
        for _ in range(3):
            each(*inputs).backward()
            if each is twin:
                optimizers[1].step()
                optimizers[1].zero_grad()
    assert all(p.equal(q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def test_where_no_plan_with_a_host_is_found_one_without_copies_is_taken(monkeypatch) -> None:
    plan = remat.plan

    def plan_badly(*args: object, host: object = None, **effort: object) -> remat.PlanResult:
        if host is not None:
            effort |= {"time_limit": None, "work_limit": 1}
        return plan(*args, host=host, **effort)

    monkeypatch.setattr(remat, "plan", plan_badly)
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "70%", host=HOST, accumulate=False)
    (part,) = fitted.remat.parts
    assert part.plan.copies == []
    assert part.recomputed_steps > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": True}, r"host must be a bandwidth .*, not True"),
        ({"host": "fast"}, r'host must be a bandwidth \("25GB/s"\), a remat.Host or "auto", not .fast.'),
        ({"host": HOST, "executor": "inductor"}, r'host= needs executor="boxed"'),
        ({"host": HOST, "order": "free"}, r'host= needs order="fixed"'),
        ({"host": HOST, "group": object()}, r"host= and group= do not go together"),
        ({"host_dir": "."}, r"host_dir belongs to host="),
        ({"host": HOST, "host_dir": 3}, r"host_dir must be a path, not int"),
    ],
)
def test_what_a_host_does_not_go_with_is_one_line(options: dict[str, object], message: str) -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.UsageError, match=message) as caught:
        remat.torch.fit(model, inputs, "60%", **options)
    assert "\n" not in str(caught.value)


def test_a_plan_with_copies_needs_a_host_and_copies_what_may_leave() -> None:
    model, inputs = case("mlp").build()
    graph = remat.torch.capture(model, inputs, accumulate=False, host=HOST)
    plan = with_random_copies(graph, remat.Plan(graph, range(graph.num_ops)), 1)
    with pytest.raises(remat.PlanError, match=r"the given plan copies values to a host: host= says to which"):
        fit(model, inputs, 1 << 40, plan=plan, accumulate=False)
    plain = remat.torch.capture(model, inputs, accumulate=False)
    kept = graph.outputs[0]
    end = graph.num_ops
    wrong = remat.Plan(
        plain, range(end), copies=[(kept, "out", end - 1, end), (kept, "in", end, end)], host=HOST
    )
    with pytest.raises(remat.PlanError, match=r"copy_value: .*: the graph forbids it"):
        fit(model, inputs, 1 << 40, plan=wrong, accumulate=False, host=HOST)
    with pytest.raises(remat.UsageError, match=r"sweep: host= is not swept yet"):
        remat.torch.sweep(model, inputs, host=HOST)


class FakeEvent:
    """Has ended once all is done that its stream had to do when it was recorded."""

    def __init__(self, stream: FakeStream) -> None:
        self.stream, self.place = stream, len(stream.work)

    def query(self) -> bool:
        return self.stream.done >= self.place

    def synchronize(self) -> None:
        self.stream.run_to(self.place)


class FakeStream:
    """Does what it has to do as late as it may: when somebody waits who cannot go on without it."""

    def __init__(self, *_: object) -> None:
        self.work: list[Callable[[], object]] = []
        self.done = 0

    def add(self, work: Callable[[], object]) -> None:
        self.work.append(work)

    def record_event(self) -> FakeEvent:
        return FakeEvent(self)

    def wait_event(self, event: FakeEvent) -> None:
        self.add(event.synchronize)

    def run_to(self, place: int) -> None:
        while self.done < place:
            self.done += 1
            work, self.work[self.done - 1] = self.work[self.done - 1], int
            work()


class OpsStream(FakeStream):
    """The CPU's ops run where they are called, so this stream never has anything left to do."""

    def add(self, work: Callable[[], object]) -> None:
        work()


class FakeCuda:
    """As much of a device as copies need, with streams that are as late as they may be."""

    def __init__(self) -> None:
        self.ops, self.active = OpsStream(), None

    def streams(self, count: int) -> list[FakeStream]:
        return [FakeStream() for _ in range(count)]

    def current_stream(self) -> FakeStream:
        return self.ops

    @contextmanager
    def in_stream(self, stream: FakeStream) -> Iterator[None]:
        self.active = stream
        yield
        self.active = None


class PlainMemory(channels.PinnedMemory):
    """Not of the allocator that is measured."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, None
        self.bytes = torch.from_numpy(np.empty(size, dtype=np.uint8))


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The channels of CUDA under models on the CPU."""
    fake = FakeCuda()

    class Streams(channels.StreamChannels):
        def __init__(self, device: torch.device) -> None:
            self.device, self._runtime = device, fake
            self._out, self._back = fake.streams(2)

        def reserve(self, size: int) -> PlainMemory:
            return PlainMemory(size)

        def _move(self, target: torch.Tensor, source: torch.Tensor) -> None:
            fake.active.add(lambda: target.copy_(source))

    monkeypatch.setattr(pipeline, "channels_of", lambda device, folder: Streams(device))
    return fake


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_streams_that_are_as_late_as_they_may_be_give_the_bits_of_eager_mode(
    streams: FakeCuda, seed: int
) -> None:
    model, inputs = case("encoder").build()
    eager = train(copy.deepcopy(model), inputs)
    graph = remat.torch.capture(model, inputs, accumulate=False, host=HOST)
    plan = with_random_copies(graph, random_plan(graph, seed), seed)
    fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False, host=HOST)
    assert eager.differences(train(fitted, inputs)) == []
    for _ in range(3):  # dropped
        fitted(*inputs)
    fitted.zero_grad()
    assert eager.differences(train(fitted, inputs)) == []
    fitted.zero_grad()
    assert step_peak(fitted, inputs) == pytest.approx(fitted.remat.predicted_peak, rel=1e-4)


def test_streams_that_nobody_waits_for_show(streams: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    fitted = fit_copying(model, inputs, "60%", accumulate=False)
    assert eager.differences(train(fitted, inputs)) == []
    monkeypatch.setattr(channels._StreamCopy, "wait", lambda copy: 0.0)
    fitted.zero_grad()
    assert eager.differences(train(fitted, inputs)) != []
