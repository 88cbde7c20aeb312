"""`remat replay`: histories in the published format, written by hand and by the model of the description."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import remat
from allocator_model import MIB, Model, NoRoom, Place, Settings
from remat.replay import HistoryError, Replay, load_history, main, recorded_settings, replay

Event = dict[str, Any]
BASE = 0x7F00_0000_0000
SPACING = 1 << 38  # between the addresses of segments


def event(action: str, addr: int, size: int, stream: int = 0, **more: Any) -> Event:
    return {"action": action, "addr": addr, "size": size, "stream": stream, "frames": [], **more}


def snapshot(trace: list[Event], **more: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": [trace], **more}


class Recorder:
    """A device by the model, and what PyTorch would have written down."""

    def __init__(self, settings: Settings, capacity: int | None = None) -> None:
        self.model = Model(settings, capacity)
        self.trace: list[Event] = []
        self.asked: dict[Place, int] = {}

    def where(self, place: Place) -> int:
        return BASE + place[0] * SPACING + place[1]

    def pages(self) -> set[tuple[int, int, int, int]]:
        """(stream, address, size) of what the device has given: segments, or single pages of ranges."""
        found = set()
        for segment in self.model.segments:
            for block in segment.blocks:
                if block.state == "unmapped" or not self.model.settings.expandable:
                    continue
                page = self.model.page(segment.small)
                first, stop = block.offset // page, -(-(block.offset + block.size) // page)
                for k in range(first, stop):
                    found.add((segment.stream, self.where((segment.number, k * page)), page, 0))
            if not self.model.settings.expandable:
                size = sum(block.size for block in segment.blocks)
                found.add((segment.stream, self.where((segment.number, 0)), size, 0))
        return found

    def note(self, before: set[tuple[int, int, int, int]]) -> None:
        after = self.pages()
        grow, shrink = (
            ("segment_map", "segment_unmap")
            if self.model.settings.expandable
            else ("segment_alloc", "segment_free")
        )
        for stream, address, size, _ in sorted(before - after):
            self.trace.append(event(shrink, address, size, stream))
        for stream, address, size, _ in sorted(after - before):
            self.trace.append(event(grow, address, size, stream))

    def allocate(self, size: int, stream: int = 0) -> Place:
        before = self.pages()
        place = self.model.allocate(size, stream)
        self.note(before)
        self.asked[place] = size
        self.trace.append(event("alloc", self.where(place), size, stream))
        return place

    def free(self, place: Place) -> None:
        size = self.asked.pop(place)
        for action in ("free_requested", "free_completed"):
            self.trace.append(event(action, self.where(place), size))
        self.model.free(place)

    def empty_cache(self) -> None:
        before = self.pages()
        self.model.empty_cache()
        self.note(before)


def only(found: list[Replay]) -> Replay:
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", ["cuda", "cuda-expandable", "cuda:roundup_power2_divisions:4"])
@pytest.mark.parametrize("capacity", [None, 200 * MIB])
def test_a_history_that_follows_the_rules_has_no_difference(name: str, capacity: int | None) -> None:
    settings = Settings(expandable=name == "cuda-expandable", divisions=4 if "divisions" in name else 0)
    for seed in range(6):
        draw = random.Random(seed)
        recorder = Recorder(settings, capacity)
        live: list[Place] = []
        for _ in range(120):
            if live and draw.random() < (0.6 if len(live) > 15 else 0.4):
                recorder.free(live.pop(draw.randrange(len(live))))
            elif draw.random() < 0.03:
                recorder.empty_cache()
            else:
                size = draw.choice([draw.randint(1, 1 << draw.randint(1, 25)), draw.randint(1, 40) * MIB])
                before = recorder.pages()
                try:
                    live.append(recorder.allocate(size, draw.choice([0, 0, 5])))
                except NoRoom:
                    recorder.note(before)
                    recorder.trace.append({"action": "oom", "size": size, "device_free": 0, "frames": []})
        result = only(replay(snapshot(recorder.trace), name))
        assert result.first_difference is None
        assert result.reserved_peak == result.recorded_reserved_peak == recorder.model.most_reserved
        assert result.reserved_at_end == result.recorded_reserved_at_end == recorder.model.reserved()
        assert result.allocated_at_end == recorder.model.allocated()
        assert result.unknown_frees == 0
        assert (result.failures > 0) <= (capacity is not None)


def test_figures_of_a_history_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = 0x7F12_3400_0000
    trace = [
        event("segment_alloc", base, 12 * MIB),
        event("alloc", base, 12_058_624),
        event("segment_alloc", base + 64 * MIB, 2 * MIB),
        event("alloc", base + 64 * MIB, 700),
        event("alloc", base + 64 * MIB + 1024, 100),
        event("free_requested", base, 12_058_624),
        event("free_completed", base, 12_058_624),
        event("alloc", base, 11 * MIB),
        event("snapshot", 0, 0),
        event("alloc", base + 900 * MIB, 77, pool_id=(1, 0)),
    ]
    blocks = [
        {"device": 0, "total_size": 12 * MIB, "allocated_size": 12 * MIB, "segment_pool_id": (0, 0)},
        {"device": 0, "total_size": 2 * MIB, "allocated_size": 1536, "segment_pool_id": (0, 0)},
        {"device": 0, "total_size": 2 * MIB, "allocated_size": 512, "segment_pool_id": (1, 0)},
    ]
    path = tmp_path / "history.pickle"
    path.write_bytes(pickle.dumps({"segments": blocks, "device_traces": [[], trace[:0], []]}))
    assert main([str(path)]) == 1
    assert "no device has a history" in capsys.readouterr().err
    path.write_bytes(pickle.dumps({"segments": blocks, "device_traces": [trace, []]}))
    assert main([str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["devices"]
    assert said == [
        {
            "device": 0,
            "allocator": "cuda",
            "events": 10,
            "allocations": 4,
            "skipped": 1,
            "unknown_frees": 0,
            "failures": 0,
            "requested_peak": 12_058_624 + 800,
            "allocated_peak": 12 * MIB + 1536,
            "allocated_at_end": 12 * MIB + 1536,
            "recorded_allocated_at_end": 12 * MIB + 1536,
            "reserved_peak": 14 * MIB,
            "recorded_reserved_peak": 14 * MIB,
            "reserved_at_end": 14 * MIB,
            "recorded_reserved_at_end": 14 * MIB,
            "reserved_before": 0,
            "reserved_peak_off_percent": 0.0,
            "first_difference": None,
        }
    ]
    assert main([str(path), "--allocator", "cuda-expandable"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "reserved_peak = 23068672" in lines
    assert "reserved_peak_off_percent = 57.14" in lines
    assert (
        "first_difference = event 1, alloc of 12058624 bytes: 20971520 bytes reserved instead of 12582912"
        in lines
    )


def test_the_drivers_addresses_decide_between_equal_blocks() -> None:
    high, low = BASE + 400 * MIB, BASE
    trace = [
        event("segment_alloc", high, 20 * MIB),
        event("alloc", high, 20 * MIB),
        event("segment_alloc", low, 20 * MIB),
        event("alloc", low, 20 * MIB),
        *[
            event(action, at, 20 * MIB)
            for at in (high, low)
            for action in ("free_requested", "free_completed")
        ],
        event("alloc", low, 15 * MIB),
        event("alloc", high, 12 * MIB),
    ]
    assert only(replay(snapshot(trace))).first_difference is None
    trace[-2:] = [event("alloc", high, 15 * MIB)]
    difference = only(replay(snapshot(trace))).first_difference
    assert difference == "event 8, alloc of 15728640 bytes: in another segment"
    trace[-1] = event("alloc", low + 512, 15 * MIB)
    difference = only(replay(snapshot(trace))).first_difference
    assert difference == "event 8, alloc of 15728640 bytes: at 0 of its segment instead of 512"


def test_a_history_that_begins_late_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = [event("free_requested", BASE, 512), event("free_completed", BASE, 512)]
    path = tmp_path / "late.pickle"
    segments = [{"total_size": 2 * MIB, "allocated_size": 0}]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [trace]}))
    assert main([str(path)]) == 0
    out, err = capsys.readouterr()
    assert "unknown_frees = 1" in out
    assert f"reserved_before = {2 * MIB}" in out
    assert err == (
        "remat: warning: device 0: the history begins with memory in use; figures compare only where it was "
        "recorded from the first allocation on\n"
    )


def test_a_device_that_is_too_small_is_a_difference() -> None:
    trace = [event("segment_alloc", BASE, 30 * MIB), event("alloc", BASE, 30 * MIB)]
    result = only(replay(snapshot(trace), capacity="24MiB"))
    assert result.first_difference == "event 1, alloc of 31457280 bytes: the simulated device has no room"


def test_settings_come_from_the_history() -> None:
    def named(settings: Any) -> str:
        return recorded_settings({"allocator_settings": settings})

    assert recorded_settings({}) == named(None) == named({}) == "cuda"
    assert named({"expandable_segments": True, "PYTORCH_CUDA_ALLOC_CONF": ""}) == "cuda-expandable"
    conf = "max_split_size_mb:200,expandable_segments:False"
    assert named({"PYTORCH_CUDA_ALLOC_CONF": conf}) == f"cuda:{conf}"
    trace = [event("segment_map", BASE, 20 * MIB), event("alloc", BASE, 2 * MIB)]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    result = only(replay(snapshot(trace, allocator_settings=settings)))
    assert (result.allocator, result.first_difference) == ("cuda-expandable", None)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("called",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a pickle: "),
        (b"hello", "not a pickle: "),
        (pickle.dumps(list(range(9)))[:-4], "not a pickle: "),
        (pickle.dumps(Evil()), "it names builtins.print, and a history holds no objects"),
        (pickle.dumps(Path("x")), "and a history holds no objects"),
        (pickle.dumps([1]), "not a snapshot of PyTorch's allocator: it has no device_traces"),
        (pickle.dumps({"device_traces": 3}), "it has no device_traces"),
        (pickle.dumps({"device_traces": [3]}), "device_traces[0] is not a list"),
        (pickle.dumps({"device_traces": [], "segments": 1}), "segments is not a list"),
        (pickle.dumps({"device_traces": [], "segments": [1]}), "segments[0] is not a segment"),
        (
            pickle.dumps({"device_traces": [], "segments": [{"segment_pool_id": 3}]}),
            "segments[0] is not a segment",
        ),
        (pickle.dumps(snapshot([{}])), "device_traces[0][0] has no action"),
        (
            pickle.dumps(snapshot([event("alloc", 1, "x")])),  # type: ignore[arg-type]
            "device_traces[0][0] (alloc): size is not a number in [0, 2^62)",
        ),
        (
            pickle.dumps(snapshot([event("alloc", -1, 1)])),
            "device_traces[0][0] (alloc): addr is not a number in [0, 2^62)",
        ),
        (
            pickle.dumps(snapshot([event("alloc", 1, 1, pool_id=4)])),
            "device_traces[0][0]: stream or pool_id is not a number or a pair of them",
        ),
    ],
)
def test_files_that_are_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(content)
    with pytest.raises(HistoryError) as error:
        load_history(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert main([str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"remat: {path}: ")


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.pickle"
    path.write_bytes(pickle.dumps(snapshot([event("alloc", BASE, 512)])))
    for arguments in (["--allocator", "x"], ["--capacity", "many"]):
        assert main([str(path), *arguments]) == 64
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 64
    assert main([str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.endswith("No such file or directory\n")


def test_the_command_line_hands_over(tmp_path: Path) -> None:
    path = tmp_path / "history.pickle"
    path.write_bytes(
        pickle.dumps(snapshot([event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 512)]))
    )
    command = [sys.executable, "-m", "remat", "replay", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["devices"][0]["reserved_peak"] == 2 * MIB


def test_snapshots_of_reports_are_histories(tmp_path: Path) -> None:
    """The files that `remat report --format memory_viz` writes have the same form."""
    graph = remat.Graph([100] * 3, [remat.Op(f"op{i}", 1, [i - 1] if i else [], [i]) for i in range(3)])
    path = tmp_path / "plan.pickle"
    remat.report(graph, format="memory_viz").save(path)
    result = only(replay(load_history(path), "exact"))
    assert result.requested_peak == graph.keep_all_peak
