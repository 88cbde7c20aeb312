"""Lets ops of a planned step bypass Python by a small extension, `passing.cc`.

It uses PyTorch's C++ interface, so it is compiled once for each PyTorch and Python (`python -m
remat.torch.native`). Without it, each op goes through the dispatch mode.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import remat

from ..base.errors import log
from ..base.nodes import BUILTIN_NAMESPACES
from ..base.private import OpOverload, schema, storage_id
from .keeping import Kept
from .kinds import kind_of

_SOURCE = Path(__file__).with_suffix(".cc")
_NAME = "_passing"
_TORCH = Path(torch.__file__).parent
# Set to 0: the extension is not used.
_SWITCH = "REMAT_NATIVE"
_Hook = Callable[[Any], Any]


def path() -> Path:
    """Path of the extension for this PyTorch and Python, built or not."""
    made_of = f"{torch.__version__} {torch.version.git_version} {sys.version}".encode() + _SOURCE.read_bytes()
    tag = hashlib.sha256(made_of).hexdigest()[:16]
    return _SOURCE.with_name(f"{_NAME}-{tag}.so")


def build() -> Path:
    """Compile the extension, next to the package's sources, if needed. Takes about 30 s.

    Raises remat.UsageError if there is no compiler, it fails, or the folder is not writable.
    """
    target = path()
    if target.exists():
        return target
    compiler = os.environ.get("CXX", "c++")
    included = [f"-isystem{each}" for each in (_TORCH / "include", sysconfig.get_path("include"))]
    linked = [f"-L{_TORCH / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python"]
    options = ["-O2", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden"]
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=_NAME) as folder:
            made = Path(folder, target.name)
            command = [compiler, *options, *included, str(_SOURCE), "-o", str(made), *linked]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                line = next((each for each in done.stderr.splitlines() if "error" in each), "it says nothing")
                raise remat.UsageError(f"{compiler} cannot build {_SOURCE.name}: {line}")
            os.replace(made, target)
    except OSError as error:
        where = error.filename or target.parent
        raise remat.UsageError(f"{_SOURCE.name} cannot be built: {where}: {error.strerror}") from error
    return target


@cache
def _extension() -> ModuleType | None:
    """The extension; None if it is not built or is switched off."""
    built = path()
    if os.environ.get(_SWITCH) == "0" or not built.exists():
        return None
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(built))
    spec = importlib.util.spec_from_file_location(_NAME, built, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        log.warning("%s is not used, each op goes through Python: %s", built.name, error)
        return None
    return module


def is_used() -> bool:
    """True if the extension is used."""
    return _extension() is not None


def passing(functions: Sequence[Any], again: Collection[int]) -> Any:
    """The ops of a forward that may bypass the mode, in the extension's form. None without the extension."""
    extension = _extension()
    if extension is None:
        return None
    return extension.Sequence(
        [None if number in again else _name_to_pass(func) for number, func in enumerate(functions)]
    )


def _name_to_pass(func: Any) -> tuple[str, str] | None:
    """The name of an op that may pass; it must write to nothing. Others may be unloaded."""
    if not isinstance(func, OpOverload) or func.namespace not in BUILTIN_NAMESPACES or kind_of(func).written:
        return None
    return schema(func).name, schema(func).overload_name


class Passing:
    """Counts the ops of a step for its dispatch mode. Inside its context, which is nested in the mode's,
    unaffected ops bypass the mode.
    """

    def __init__(self, mode: Any, sequence: Any) -> None:
        """sequence: what `passing` returned."""
        extension = _extension()
        self._filter = None if extension is None or sequence is None else extension.Filter(mode, sequence)
        self._taken = 0

    def __enter__(self) -> None:
        if self._filter is not None:
            self._filter.enter()

    def __exit__(self, *_: object) -> None:
        if self._filter is not None:
            self._filter.leave()

    def hooks(self, pack: _Hook, unpack: _Hook) -> tuple[_Hook, _Hook]:
        """Hooks for saved tensors, which skip tensors that are only kept."""
        extension = _extension()
        if extension is None or self._filter is None:
            return pack, unpack
        quick = extension.Hooks(self._filter, pack, unpack)
        return quick.pack, quick.unpack

    def take(self) -> int:
        """The number of an op that the mode sees."""
        if self._filter is not None:
            return int(self._filter.take())
        self._taken += 1
        return self._taken - 1

    def seen(self) -> int:
        """How many ops there were."""
        return self._taken if self._filter is None else int(self._filter.position)

    def follow(self, sequence: Any) -> None:
        """Lets these ops pass from now on. None: none."""
        if self._filter is not None:
            if sequence is None:
                self._filter.stop()
            else:
                self._filter.follow(sequence)

    def keep(self, saved: bool, asked_for: bool) -> None:
        """Whether only-kept tensors bypass Python: when autograd saves them, and when it requests them."""
        if self._filter is not None:
            self._filter.keep(saved, asked_for)

    def mark(self, positions: Collection[int]) -> None:
        """Tensors saved after this many ops are not only kept."""
        if self._filter is not None:
            self._filter.mark(list(positions))

    def note_results(self, tensors: Sequence[torch.Tensor]) -> None:
        """Results of an op that may be recomputed, or offloaded ones, are not only kept."""
        if self._filter is not None:
            for tensor in tensors:
                self._filter.note_result(storage_id(tensor))


def kept(held: Any) -> Any:
    """The object that autograd holds for a tensor, in the form of the Python path."""
    extension = _extension()
    if extension is not None and isinstance(held, extension.Saved):
        return Kept.since(held.tensor, held.version)
    return held
