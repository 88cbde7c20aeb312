"""Finds the module of each op of a recorded step: in the forward the running one, in the backward the one
whose forward made the autograd node.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ..base.private import autograd_node_number, leaf_at_work, next_node_number
from ..base.storages import tensor_storages


class Modules:
    """Of some models, whose modules are told apart by their names."""

    def __init__(self, *models: torch.nn.Module) -> None:
        self._names: dict[int, str] = {}
        self._of_leaf: dict[int, str] = {}
        for model in models:
            for name, module in model.named_modules():
                self._names.setdefault(id(module), name)
                for own in module.parameters(recurse=False):
                    self._of_leaf.setdefault(id(own), name)
        self._of_node: dict[int, str] = {}
        self._running: list[tuple[int, str]] = []
        self._thread = threading.get_ident()

    def in_forward(self) -> str:
        """The module of an op that runs now, in the forward."""
        name = self._running[-1][1] if self._running else ""
        # The node of an op is made before the op runs.
        self._of_node.setdefault(next_node_number() - 1, name)
        return name

    def in_backward(self) -> str:
        leaf = leaf_at_work()
        if leaf is not None:
            return self._of_leaf.get(id(leaf), "")
        return self._of_node.get(autograd_node_number(), "")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See which module runs, in this thread."""
        hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]
        try:
            with warnings.catch_warnings():
                # A warning that compiled modules call such hooks twice, which does no harm here.
                warnings.filterwarnings("ignore", message="Using `torch.compile")
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if threading.get_ident() == self._thread:
            above = self._running[-1][1] if self._running else ""
            self._running.append((id(module), self._names.get(id(module), above)))

    def _leave(self, module: torch.nn.Module, *_: Any) -> None:
        """Modules that raised an exception have ended too."""
        places = [i for i, (running, _) in enumerate(self._running) if running == id(module)]
        if places and threading.get_ident() == self._thread:
            del self._running[places[-1] :]


def modules_in(resident: Iterable[Any]) -> list[torch.nn.Module]:
    return [item for item in resident if isinstance(item, torch.nn.Module)]


def named_storages(resident: Iterable[Any], device: torch.device) -> dict[int, tuple[str, int]]:
    """By address, names and bytes of storages of modules, positional and keyword arguments: "parameter
    layers.0.weight", "buffer norm.running_mean", "input 0".
    """
    named: list[tuple[str, Any]] = []
    for item in resident:
        if isinstance(item, torch.nn.Module):
            named += [(f"parameter {name}", p) for name, p in item.named_parameters()]
            named += [(f"buffer {name}", b) for name, b in item.named_buffers()]
        else:
            inputs = item.items() if isinstance(item, Mapping) else enumerate(item)
            named += [(f"input {key}", each) for key, each in inputs]
    found: dict[int, tuple[str, int]] = {}
    for name, item in named:
        for address, size in tensor_storages(item, device.type).items():
            found.setdefault(address, (name, size))
    return found
