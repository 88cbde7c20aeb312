"""Costs and plans on disk, shared by all processes that name the same folder.

Every file is named by a hash of the problem or environment that it holds for, contains that too, and is
written atomically. Unreadable or foreign files are ignored with a warning and replaced; nothing here makes a
run fail.

    costs-<hash of the environment>.json    one per environment, merged under a lock
    plan-<hash of the problem>.json         one per planned graph
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from remat.files import write_atomically

from ..base.errors import log
from ..cost.cost import Cost
from ..cost.files import costs_from_json, costs_to_json

try:
    import fcntl
except ImportError:  # then a merge may lose measurements of another process
    fcntl = None  # type: ignore[assignment]

PLAN_FORMAT, PLAN_VERSION = "remat.torch.plan", 1
# Drops least recently used files first, and oldest measurements.
MAX_FILES = {"plan": 256, "costs": 16}
MAX_COSTS = 20_000
_ABANDONED_S = 3600

_Content = TypeVar("_Content")


def digest(description: Any) -> str:
    """Hash of a JSON value."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """One folder, made when something is first written to it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()

    def load_costs(self, environment: Mapping[str, str]) -> dict[str, Cost]:
        """The costs measured in this environment so far."""

        def read(text: str) -> dict[str, Cost]:
            where, costs = costs_from_json(text)
            if where != dict(environment):
                raise ValueError("it holds for another environment")
            return costs

        return self._read(self._path("costs", environment), read) or {}

    def add_costs(self, environment: Mapping[str, str], found: Mapping[str, Cost]) -> dict[str, Cost]:
        """Add measurements and return the stored ones: existing entries stay.

        So all processes plan with the same costs, and find each other's plans.
        """
        with self._locked():
            before = self.load_costs(environment)
            merged = {**found, **before} if before else dict(found)
            newest = [key for key in merged if key not in found] + list(found)
            kept = {key: merged[key] for key in newest[-MAX_COSTS:]}
            self._write(self._path("costs", environment), costs_to_json(environment, kept), "costs")
        return {key: merged[key] for key in found}

    def load_plan(self, problem: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored plan of a problem; the caller checks it."""

        def read(text: str) -> dict[str, Any]:
            content = json.loads(text)
            if not isinstance(content, dict) or content.get("format") != PLAN_FORMAT:
                raise ValueError(f"no {PLAN_FORMAT} file")
            if content.get("version") != PLAN_VERSION:
                raise ValueError(
                    f"version {content.get('version')}, this is a reader of version {PLAN_VERSION}"
                )
            if content.get("problem") != dict(problem) or not isinstance(content.get("found"), dict):
                raise ValueError("it holds for another problem")
            found: dict[str, Any] = content["found"]
            return found

        return self._read(self._path("plan", problem), read)

    def add_plan(self, problem: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        content = {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "problem": dict(problem),
            "found": dict(found),
        }
        with self._locked():
            self._write(self._path("plan", problem), json.dumps(content) + "\n", "plan")

    def ignore_plan(self, problem: Mapping[str, Any], why: object) -> None:
        """Warn that a stored plan is invalid."""
        self._warn(self._path("plan", problem), why)

    def _path(self, kind: str, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{kind}-{digest(dict(key))}.json"

    def _warn(self, path: Path, why: object) -> None:
        log.warning("cache: %s is ignored: %s", path, why)

    def _read(self, path: Path, read: Callable[[str], _Content]) -> _Content | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(path, getattr(error, "strerror", None) or error)
            return None
        try:
            content = read(text)
        except (ValueError, RecursionError) as error:
            self._warn(path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        return content

    def _write(self, path: Path, text: str, kind: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
            files = sorted(self.folder.glob(f"{kind}-*.json"), key=_last_use)
        except OSError as error:
            log.warning("cache: %s is not written: %s", path, error.strerror or error)
            return
        surplus = [f for f in files if f != path][: max(0, len(files) - MAX_FILES[kind])]
        for old in [*surplus, *self._abandoned()]:
            with contextlib.suppress(OSError):
                old.unlink()

    def _abandoned(self) -> list[Path]:
        """Temporary files of processes that died while writing."""
        return [f for f in self.folder.glob(".*.tmp") if time.time() - _last_use(f) > _ABANDONED_S]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclusive access among the processes that use the folder, if the system supports it."""
        with contextlib.ExitStack() as stack:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # not writable: reported on writing
                    self.folder.mkdir(parents=True, exist_ok=True)
                    lock = stack.enter_context(open(self.folder / ".lock", "w"))
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0
