"""Values that leave for a host and come back: bits of eager mode, predicted peaks, whatever the clock."""

from __future__ import annotations

import copy
import errno
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import remat
import remat.torch
import torch
from models import CASES, Case, case
from plans import random_plan, with_random_copies
from remat.torch.run import channels
from remat.torch.run.copies import HostPool
from torch import nn
from training import fit, step_peak, train

HOST = "2GB/s"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], list[int]]:
    """Lets each copy begin so many seconds late, a function of its bytes; returns the sizes of all copies."""

    def late(seconds: Callable[[int], float]) -> list[int]:
        sizes: list[int] = []
        move = channels.move

        def late_move(target: int, source: int, size: int) -> None:
            time.sleep(seconds(size))
            sizes.append(size)
            move(target, source, size)

        monkeypatch.setattr(channels, "move", late_move)
        return sizes

    return late


def at_random(seed: int, most: float = 0.01) -> Callable[[int], float]:
    """Most copies a little late, some by `most` seconds."""
    rng = random.Random(seed)
    return lambda size: most * rng.random() ** 6


def fit_copying(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], budget: str, **options: object
) -> nn.Module:
    """A plan that is not worth much without copies."""
    return fit(model, inputs, budget, **{"host": HOST, "time_limit": None, "work_limit": 30_000, **options})


def pool_of(fitted: nn.Module) -> HostPool:
    """Where a fitted model has its places on the host."""
    pools = [each for each in gc.get_objects() if type(each) is HostPool]
    size = fitted.remat.parts[0].host_peak
    return next(pool for pool in reversed(pools) if pool.bytes_free() + pool.bytes_used >= size)


def until(holds: Callable[[], bool]) -> None:
    """Wait for the threads that copy."""
    start = time.perf_counter()
    while not holds():
        assert time.perf_counter() - start < 10
        time.sleep(0.01)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_late_copies_change_neither_bits_nor_the_peak(c: Case, slow) -> None:
    model, inputs = c.build()
    eager = train(copy.deepcopy(model), inputs)
    sizes = slow(at_random(1))
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["mlp", "conv_net", "encoder"])
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


def test_the_device_is_waited_for_and_the_report_says_for_how_long(slow) -> None:
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
    wait = channels._Job.wait
    left_out = "remat out" if way == "out" else "remat in"
    put = channels._Worker.put

    def put_and_note(self, job):
        job.way = self._name
        return put(self, job)

    monkeypatch.setattr(channels._Worker, "put", put_and_note)
    monkeypatch.setattr(channels._Job, "wait", lambda job: 0.0 if job.way == left_out else wait(job))
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
    fitted = fit_copying(model, inputs, "60%", host=remat.Host(2e9, 2e9, budget="6MB"), accumulate=False)
    (part,) = fitted.remat.parts
    assert part.host_peak <= 6e6
    first = fitted(*inputs)
    message = r"^host: this step's copies need .* beside .* of calls in flight, the budget of the host is .*$"
    with pytest.raises(remat.torch.HostMemoryError, match=message):
        fitted(*inputs)
    first.backward()


def test_a_folder_that_does_not_exist_is_an_error_of_fit(tmp_path) -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.torch.HostMemoryError, match=r"nowhere: No such file or directory"):
        fit_copying(model, inputs, "60%", host_dir=tmp_path / "nowhere")


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


def test_killing_the_process_leaves_no_file(tmp_path) -> None:
    script = KILLED.format(path=sys.path[:3], folder=str(tmp_path))
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
