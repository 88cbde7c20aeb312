"""Copies between a device and host memory while ops run: two channels, each first in, first out.

The two implementations: a file that is mapped from disk and a thread for each way (device CPU), and pinned
memory and a stream for each way (device CUDA).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import queue
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

import remat

from ..base.devices import runtime_of
from ..base.ends import when_gone
from ..base.errors import HostMemoryError
from ..base.units import exact_bytes


class Region(Protocol):
    """A region of host memory.

    size: how many.
    """

    size: int


class Copy(Protocol):
    """An issued copy."""

    def wait(self) -> float:
        """Later ops run only after the copy has ended. Returns the seconds waited."""

    def has_ended(self) -> bool:
        """True if the copy has ended; does not wait."""


class Channels(Protocol):
    """The channels to a host and back, shared by all copies of one device."""

    device: torch.device

    def __hash__(self) -> int: ...

    def reserve(self, size: int) -> Region:
        """Reserve host memory. Raises HostMemoryError if there is not enough."""

    def out(self, source: torch.UntypedStorage, region: Region, offset: int, holder: object) -> Copy:
        """Issue a copy of a whole storage to the region; its memory and `holder` are held until it has
        ended."""

    def back(self, region: Region, offset: int, target: torch.UntypedStorage, holder: object) -> Copy:
        """Issue a copy from the region over a whole storage."""


class MappedFile:
    """A region in an unnamed file, which disappears with the process."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        try:
            with tempfile.TemporaryFile(dir=folder, prefix="remat-") as file:
                _take_space(file, size)
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise HostMemoryError(_why_no_space(folder, size, error)) from None
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


def _take_space(file: Any, size: int) -> None:
    """A hole in a mapped file would show as a crash once the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    block = bytes(1 << 20)
    for start in range(0, size, len(block)):
        file.write(block[: size - start])
    file.flush()


def _why_no_space(folder: Path, size: int, error: OSError) -> str:
    needed = f"host: this step's copies need {exact_bytes(size)}"
    try:
        disk = os.statvfs(folder)
    except OSError:
        return f"{needed}, and {folder}: {error.strerror}"
    free = exact_bytes(disk.f_bavail * disk.f_frsize)
    return f"{needed}, and {folder} has {free} free ({error.strerror}): host_dir= names another folder"


def move(target: int, source: int, size: int) -> None:
    """Copies between addresses without the GIL."""
    ctypes.memmove(target, source, size)


class _Job:
    """A copy by a thread. It releases what it holds before it reports its end."""

    def __init__(self, target: int, source: int, size: int, held: tuple[object, ...]) -> None:
        self._move: tuple[int, int, int] | None = (target, source, size)
        self._held = held
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            assert self._move is not None
            move(*self._move)
        except BaseException as error:  # re-raised for the waiting thread
            self._error = error
        self._held = ()
        self._ended.set()

    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> float:
        if self._ended.is_set():
            stalled = 0.0
        else:
            start = time.perf_counter()
            self._ended.wait()
            stalled = time.perf_counter() - start
        if self._error is not None:
            raise HostMemoryError(f"host: a copy failed: {self._error}")
        return stalled


class _Worker:
    """One channel: a thread that runs one copy after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._process = 0
        self._lock = threading.Lock()

    def put(self, job: _Job) -> _Job:
        if self._process != os.getpid():
            self._start()
        self._jobs.put(job)
        return job

    def _start(self) -> None:
        """Starts the thread, also in a forked child, which does not inherit it."""
        with self._lock:
            if self._process == os.getpid():
                return
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
            self._process = os.getpid()


def _work(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        jobs.get().run()


class FileChannels:
    """Channels to files in a folder, with a thread for each way."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.device = folder, torch.device("cpu")
        self._out, self._back = _Worker("remat out"), _Worker("remat in")

    def reserve(self, size: int) -> MappedFile:
        return MappedFile(self.folder, size)

    def out(self, source: torch.UntypedStorage, region: Any, offset: int, holder: object) -> _Job:
        held = (source, region, holder)
        return self._out.put(_Job(region.address + offset, source.data_ptr(), source.nbytes(), held))

    def back(self, region: Any, offset: int, target: torch.UntypedStorage, holder: object) -> _Job:
        held = (target, region, holder)
        return self._back.put(_Job(target.data_ptr(), region.address + offset, target.nbytes(), held))


# File systems in memory.
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


def folder_on_disk() -> Path:
    """The folder of temporary files, unless it is in memory."""
    folders = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    for folder in folders:
        if os.access(folder, os.W_OK) and _file_system(folder) not in _IN_MEMORY:
            return folder
    return folders[0]


def _file_system(folder: Path) -> str:
    """The type of a file system; "" if unknown."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    found, kind = "", ""
    real = os.path.realpath(folder)
    for line in lines:
        _, mount, this_kind = line.split()[:3]
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(found):
            found, kind = mount, this_kind
    return kind


class PinnedMemory:
    """A region of pinned memory.

    read: event after the last copy back from it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.read: Any = None
        try:
            self.bytes = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise HostMemoryError(
                f"host: this step's copies need {exact_bytes(size)} of pinned memory: {why}"
            ) from None

    def note_read(self, ended: Any) -> None:
        """Notes that its bytes are read until this event."""
        self.read = ended


class _StreamCopy:
    """A copy that a stream carries out; memory on the device is held until an op waits for it."""

    def __init__(self, stream: Any, event: Any, held: object) -> None:
        self._stream, self._event = stream, event
        # For a dropped call: the allocator would reuse memory that is still copied.
        self._dropped = when_gone(self, _end_then_drop, event, held)

    def has_ended(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> float:
        self._stream().wait_event(self._event)
        # From here on, the memory is reused in the order of the waiting stream.
        self._dropped.detach()
        return 0.0


def _end_then_drop(event: Any, held: object) -> None:
    event.synchronize()
    del held


class StreamChannels:
    """Channels to pinned memory, with a stream for each way. Streams wait, the process does not.

    Memory never changes streams in the allocator: an offloaded storage is held until the ops' stream waits
    for its copy, and memory for a copy back is allocated in the order of that stream.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._runtime: Any = runtime_of(device)
        self._out, self._back = self._runtime.streams(2)

    def reserve(self, size: int) -> PinnedMemory:
        return PinnedMemory(size)

    def out(self, source: torch.UntypedStorage, region: Any, offset: int, holder: object) -> _StreamCopy:
        if region.read is not None:  # the call before may still read its place
            self._out.wait_event(region.read)
        there = region.bytes[offset : offset + source.nbytes()]
        return self._copy(self._out, there, self._bytes_of(source), holder)

    def back(self, region: Any, offset: int, target: torch.UntypedStorage, holder: object) -> _StreamCopy:
        there = region.bytes[offset : offset + target.nbytes()]
        copy = self._copy(self._back, self._bytes_of(target), there, holder)
        region.note_read(self._back.record_event())
        return copy

    def _bytes_of(self, storage: torch.UntypedStorage) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)

    def _move(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def _current(self) -> Any:
        return self._runtime.current_stream()

    def _copy(self, way: Any, target: torch.Tensor, source: torch.Tensor, holder: object) -> _StreamCopy:
        # After the op that made it, or that used this memory before.
        way.wait_event(self._current().record_event())
        with self._runtime.in_stream(way):
            self._move(target, source)
        return _StreamCopy(self._current, way.record_event(), (target, source, holder))


@cache
def _file_channels(folder: Path) -> FileChannels:
    return FileChannels(folder)


@cache
def _stream_channels(device: torch.device) -> StreamChannels:
    return StreamChannels(device)


def channels_of(device: torch.device, folder: str | Path | None) -> Channels:
    """The channels of a device, one pair per process. folder: of the files, on the CPU. Raises UsageError if
    the device has none.
    """
    if device.type == "cpu":
        return _file_channels(folder_on_disk() if folder is None else Path(folder))
    if folder is not None:
        raise remat.UsageError(f"remat: host_dir= is for models on the CPU, this one is on {device}")
    try:
        return _stream_channels(device)
    except NotImplementedError as error:
        raise remat.UsageError(f"remat: host=: there is none for a model on {device}: {error}") from None
