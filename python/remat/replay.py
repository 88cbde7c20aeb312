"""``remat replay HISTORY``: compares a recorded history of CUDA memory with the simulated allocator.

The history is a pickle that ``torch.cuda.memory._dump_snapshot`` wrote after
``torch.cuda.memory._record_memory_history()``. docs/allocator.md has what is compared.
"""

from __future__ import annotations

import argparse
import bisect
import io
import json
import pickle
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from remat._core import CachingAllocator, format_bytes
from remat.errors import RematError

MIB = 1 << 20
MOST = 1 << 62
SMALL_PAGE = 2 * MIB
DEFAULT_POOL = (0, 0)
GROWS = ("segment_alloc", "segment_map")
SHRINKS = ("segment_free", "segment_unmap")
FREES = ("free_requested", "free_completed")


class HistoryError(RematError):
    """The file is not a history."""


class _Plain(pickle.Unpickler):
    """Unpickles only dicts, lists, tuples, texts and numbers, and calls nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise HistoryError(f"it names {module}.{name}, and a history holds no objects")

    def persistent_load(self, pid: object) -> NoReturn:
        raise HistoryError("it refers to another file")


def load_history(path: Path) -> dict[str, Any]:
    """The snapshot in a file: segments, traces by device and settings, checked as far as a replay needs them.

    Nothing in the file is executed. Raises HistoryError, one line that names the file.
    """
    try:
        snapshot: dict[str, Any] = _Plain(io.BytesIO(path.read_bytes())).load()
        _check(snapshot)
    except HistoryError as error:
        raise HistoryError(f"{path}: {error}") from None
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # a broken pickle may raise any exception
        raise HistoryError(f"{path}: not a pickle: {str(error) or type(error).__name__}") from None
    return snapshot


def _check(snapshot: Any) -> None:
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise HistoryError("not a snapshot of PyTorch's allocator: it has no device_traces")
    if not isinstance(snapshot.get("segments", []), list):
        raise HistoryError("segments is not a list")
    for device, trace in enumerate(snapshot["device_traces"]):
        if not isinstance(trace, list):
            raise HistoryError(f"device_traces[{device}] is not a list")
        for number, event in enumerate(trace):
            where = f"device_traces[{device}][{number}]"
            if not isinstance(event, dict) or not isinstance(event.get("action"), str):
                raise HistoryError(f"{where} has no action")
            needed = ("size", "addr") if event["action"] in ("alloc", *GROWS, *SHRINKS, *FREES) else ()
            for key in needed:
                if type(event.get(key)) is not int or not 0 <= event[key] < MOST:
                    raise HistoryError(f"{where} ({event['action']}): {key} is not a number in [0, 2^62)")
            if type(event.get("stream", 0)) is not int or not _is_pool(event.get("pool_id", DEFAULT_POOL)):
                raise HistoryError(f"{where}: stream or pool_id is not a number or a pair of them")
    for number, segment in enumerate(snapshot.get("segments", [])):
        amounts = ("total_size", "allocated_size", "device")
        if (
            not isinstance(segment, dict)
            or any(type(segment.get(key, 0)) is not int for key in amounts)
            or not _is_pool(segment.get("segment_pool_id", DEFAULT_POOL))
        ):
            raise HistoryError(f"segments[{number}] is not a segment")


def _is_pool(pool: Any) -> bool:
    return isinstance(pool, (tuple, list)) and len(pool) == 2 and all(type(part) is int for part in pool)


def recorded_settings(snapshot: dict[str, Any]) -> str:
    """The allocator settings in the file; "cuda" if there are none."""
    settings = snapshot.get("allocator_settings")
    if not isinstance(settings, dict):
        return "cuda"
    name = "cuda-expandable" if settings.get("expandable_segments") is True else "cuda"
    options = settings.get("PYTORCH_CUDA_ALLOC_CONF")
    return f"{name}:{options}" if isinstance(options, str) and options.strip() else name


@dataclass
class Replay:
    """Recorded and predicted memory of a device, in bytes."""

    device: int
    allocator: str
    events: int = 0
    allocations: int = 0
    skipped: int = 0  # of private pools
    unknown_frees: int = 0  # of blocks allocated before the history began
    failures: int = 0
    requested_peak: int = 0
    allocated_peak: int = 0
    allocated_at_end: int = 0
    recorded_allocated_at_end: int | None = None
    reserved_peak: int = 0
    recorded_reserved_peak: int = 0
    reserved_at_end: int = 0
    recorded_reserved_at_end: int = 0
    reserved_before: int | None = None  # device memory in use when the history began
    first_difference: str | None = None

    def report(self) -> dict[str, Any]:
        """The printed report."""
        fields = dict(vars(self))
        difference = fields.pop("first_difference")
        if self.recorded_reserved_peak:
            fields["reserved_peak_off_percent"] = 100 * (self.reserved_peak / self.recorded_reserved_peak - 1)
        fields["first_difference"] = difference
        return fields


Range = tuple[int, bool]  # stream, and whether it serves small requests


@dataclass
class _Recorded:
    """The segments of the history."""

    reserved: int = 0
    begins: list[int] = field(default_factory=list)
    # For expandable segments: pages of a range are mapped from its start, small ones one by one.
    ranges: dict[Range, int] = field(default_factory=dict)
    mapped: dict[Range, int] = field(default_factory=dict)

    def grow(self, event: dict[str, Any]) -> None:
        self.reserved += event["size"]
        if event["action"] == "segment_alloc":
            bisect.insort(self.begins, event["addr"])
            return
        key = (event.get("stream", 0), event["size"] == SMALL_PAGE)
        self.ranges.setdefault(key, event["addr"])
        self.mapped[key] = self.mapped.get(key, 0) + event["size"]

    def shrink(self, event: dict[str, Any]) -> None:
        self.reserved -= event["size"]
        if event["action"] == "segment_unmap":
            below = [(begin, key) for key, begin in self.ranges.items() if begin <= event["addr"]]
            if below:
                key = max(below)[1]
                self.mapped[key] -= event["size"]
                if self.mapped[key] <= 0:  # the next page may be in another range
                    del self.ranges[key], self.mapped[key]
            return
        at = bisect.bisect_left(self.begins, event["addr"])
        if self.begins[at : at + 1] == [event["addr"]]:
            del self.begins[at]

    def offset(self, address: int, stream: int, is_small: bool, is_expandable: bool) -> int | None:
        """The offset of an address in its segment; None if the segment was not recorded."""
        if is_expandable:
            begin = self.ranges.get((stream, is_small))
            return None if begin is None else address - begin
        at = bisect.bisect_right(self.begins, address)
        return address - self.begins[at - 1] if at else None


class _Player:
    def __init__(self, device: int, trace: list[dict[str, Any]], allocator: CachingAllocator) -> None:
        self.trace = trace
        self.allocator = allocator
        self.is_expandable = allocator.allocator.startswith("cuda-expandable")
        self.recorded = _Recorded()
        self.places: dict[int, int] = {}  # recorded addresses to simulated ones
        self.waiting: int | None = None  # address of the segment that the next allocation asked for
        self.result = Replay(device, allocator.allocator, len(trace))

    def run(self) -> Replay:
        last = ""
        for number, event in enumerate(self.trace):
            action = event["action"]
            if tuple(event.get("pool_id", DEFAULT_POOL)) != DEFAULT_POOL:
                self.result.skipped += 1
                continue
            if action in GROWS:
                self.recorded.grow(event)
                self.waiting = event["addr"] if action == "segment_alloc" else None
            elif action in SHRINKS:
                self.recorded.shrink(event)
                if last not in SHRINKS:
                    self.allocator.empty_cache()
            elif action == "alloc":
                self.allocate(number, event)
            elif action == "free_completed":
                self.free(event)
            elif action == "oom":
                self.result.failures += 1
            last = action
            self.result.recorded_reserved_peak = max(
                self.result.recorded_reserved_peak, self.recorded.reserved
            )
        return self.finish()

    def allocate(self, number: int, event: dict[str, Any]) -> None:
        size, address, stream = event["size"], event["addr"], event.get("stream", 0)
        self.result.allocations += 1
        try:
            place = self.allocator.allocate(size, stream, self.waiting)
        except MemoryError:
            self.differ(number, event, "the simulated device has no room")
            return
        self.waiting = None
        self.places[address] = place
        if place and self.result.first_difference is None:
            self.compare(number, event, place, stream)

    def compare(self, number: int, event: dict[str, Any], place: int, stream: int) -> None:
        if self.allocator.reserved != self.recorded.reserved:
            said = f"{self.allocator.reserved} bytes reserved instead of {self.recorded.reserved}"
            self.differ(number, event, said)
            return
        is_small = self.allocator.size_of(place) <= MIB
        there = self.recorded.offset(event["addr"], stream, is_small, self.is_expandable)
        here = place - self.allocator.segment_of(place)
        if there is not None and there != here:
            self.differ(number, event, f"at {here} of its segment instead of {there}")
        elif not self.is_expandable and there is not None and place != event["addr"]:
            self.differ(number, event, "in another segment")

    def differ(self, number: int, event: dict[str, Any], what: str) -> None:
        if self.result.first_difference is None:
            self.result.first_difference = f"event {number}, alloc of {event['size']} bytes: {what}"

    def free(self, event: dict[str, Any]) -> None:
        place = self.places.pop(event["addr"], None)
        if place is None:
            self.result.unknown_frees += 1
        else:
            self.allocator.free(place)

    def finish(self) -> Replay:
        result, now = self.result, self.allocator
        result.requested_peak = now.requested_peak
        result.allocated_peak, result.allocated_at_end = now.allocated_peak, now.allocated
        result.reserved_peak, result.reserved_at_end = now.reserved_peak, now.reserved
        result.recorded_reserved_at_end = self.recorded.reserved
        return result


def replay(
    snapshot: dict[str, Any], allocator: str | None = None, capacity: int | str | None = None
) -> list[Replay]:
    """Runs each device's trace through a simulated allocator.

    Args:
        snapshot: as of :func:`load_history`.
        allocator: as of :class:`remat.CachingAllocator`; None: the recorded settings.
        capacity: memory of the device, in bytes or as "80GiB"; None: unlimited.

    Raises UsageError for an invalid allocator or capacity.
    """
    results = []
    name = allocator or recorded_settings(snapshot)
    for device, trace in enumerate(snapshot["device_traces"]):
        if not trace:
            continue
        result = _Player(device, trace, CachingAllocator(name, capacity)).run()
        segments = [
            segment
            for segment in snapshot.get("segments", [])
            if segment.get("device", 0) == device
            and tuple(segment.get("segment_pool_id", DEFAULT_POOL)) == DEFAULT_POOL
        ]
        if segments:
            held = sum(segment.get("total_size", 0) for segment in segments)
            result.reserved_before = held - result.recorded_reserved_at_end
            result.recorded_allocated_at_end = sum(segment.get("allocated_size", 0) for segment in segments)
        results.append(result)
    return results


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"remat: {message} (see 'remat replay --help')", file=sys.stderr)
        sys.exit(64)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="remat replay",
        description="Replays a recorded history of CUDA memory against the simulated caching allocator.",
    )
    parser.add_argument(
        "history", type=Path, metavar="HISTORY", help="written by torch.cuda.memory._dump_snapshot"
    )
    parser.add_argument(
        "--allocator",
        metavar="NAME[:OPTIONS]",
        help="cuda, cuda-expandable, cuda:max_split_size_mb:200, ... (default: as recorded)",
    )
    parser.add_argument("--capacity", metavar="B", help="what the device holds: 80GiB (default: no end)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(arguments)


def _lines(results: Iterable[Replay]) -> Iterable[str]:
    for result in results:
        for key, value in result.report().items():
            amount = isinstance(value, int) and (
                "reserved" in key or "allocated" in key or "requested" in key
            )
            said = "-" if value is None else value
            if amount and sys.stdout.isatty():
                said = format_bytes(value)
            elif isinstance(value, float):
                said = f"{value:.4g}"
            yield f"{key} = {said}"


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0, or 1 for a file that is no history, 64 for wrong usage; each one line."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    asked = _parse(arguments)
    try:
        results = replay(load_history(asked.history), asked.allocator, asked.capacity)
        if not results:
            raise HistoryError(f"{asked.history}: no device has a history (was it recorded?)")
    except RematError as error:
        print(f"remat: {error}", file=sys.stderr)
        return 1 if isinstance(error, HistoryError) else 64
    for result in results:
        if result.unknown_frees or result.reserved_before:
            print(
                f"remat: warning: device {result.device}: the history begins with memory in use; figures "
                "compare only where it was recorded from the first allocation on",
                file=sys.stderr,
            )
    if asked.json:
        print(json.dumps({"devices": [result.report() for result in results]}, indent=2))
    else:
        print("\n".join(_lines(results)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
