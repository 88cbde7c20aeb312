"""The private names of PyTorch that the front-end imports, in one place. Seen in 2.13.

Private attributes of its objects stand where they are used: kernels of ops (trace/kernels.py), sharded
modules (session/sharding.py), versions and storages of tensors.
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import _dynamo
from torch._C import (
    DispatchKey,
    TensorBase,
    _AutoDispatchBelowAutograd,
    _autograd,
    _DisableAutocast,
    _dispatch_get_all_op_names,
    _VariableFunctions,
)
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    RecordScope,
    _ExperimentalConfig,
    _ExtraFields_Allocation,
)
from torch._functorch import config as functorch_config, partitioners
from torch._functorch._aot_autograd.descriptors import (
    PlainAOTOutput,
    SavedForBackwardsAOTOutput,
    SavedForBackwardsNoVcCheckAOTOutput,
)
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import CompileContext, detect_fake_mode
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

rng_prims: Any = torch._prims.rng_prims


def inductor() -> tuple[Any, type[Exception]]:
    """Inductor's entry point and the kind of its errors, imported when they are first needed."""
    with warnings.catch_warnings():
        # It uses parts of PyTorch that warn of their own end.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.exc import InductorError
        from torch._inductor.fx_passes import joint_graph  # noqa: F401
    return compile_fx, InductorError


def compiled_apart(run: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """A function that a backend of Dynamo compiles, counted apart from all other functions of the same code.

    Dynamo counts what it compiles for a code object: past a limit it would silently run eagerly. Code that is
    called after graph breaks is shared with other models, whence `isolate_recompiles` (PyTorch 2.13).
    """
    own = types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__)
    compiler: Any = torch.compile
    apart = {"isolate_recompiles": True} if "isolate_recompiles" in _parameters(compiler) else {}
    compiled: Callable[..., Any] = compiler(own, backend=backend, dynamic=False, **apart)
    return compiled


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters


def insert_module_state(module: Any, state: Any) -> None:
    """Let a module have the sharding of another one; imported where PyTorch can do distributed work."""
    from torch.distributed import _composable_state

    _composable_state._insert_module_state(module, state)


__all__ = [
    "CompileContext",
    "CustomPartitionerFn",
    "DispatchKey",
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "PlainAOTOutput",
    "ProfilerActivity",
    "ProfilerConfig",
    "ProfilerState",
    "RecordScope",
    "SavedForBackwardsAOTOutput",
    "SavedForBackwardsNoVcCheckAOTOutput",
    "TensorBase",
    "TorchDispatchMode",
    "_AutoDispatchBelowAutograd",
    "_DisableAutocast",
    "_ExperimentalConfig",
    "_ExtraFields_Allocation",
    "_VariableFunctions",
    "_autograd",
    "_disable_current_modes",
    "_dispatch_get_all_op_names",
    "_dynamo",
    "aot_module_simplified",
    "compiled_apart",
    "detect_fake_mode",
    "functorch_config",
    "inductor",
    "insert_module_state",
    "partitioners",
    "rng_prims",
]
