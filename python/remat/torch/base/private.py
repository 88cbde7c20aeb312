"""All private names and attributes of PyTorch that the front-end uses, in one place.

Seen in 2.10.0, 2.11.0, 2.12.1, 2.13.0, 2.14.1 and 2.15.0, except where a comment says which.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import sys
import threading
import types
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import _dynamo, fx
from torch._C import (
    DispatchKey,
    TensorBase,
    _AutoDispatchBelowAutograd,
    _autograd,
    _DisableAutocast,
    _DisableTorchDispatch as without_dispatch_modes,
    _dispatch_get_all_op_names,
    _RestorePythonTLSSnapshot as with_autograd_in_dispatch,
    _VariableFunctions,
)
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    RecordScope,
    _ExperimentalConfig,
    _ExtraFields_Allocation as AllocationFields,
)
from torch._decomp import decomposition_table
from torch._dispatch.python import no_python_dispatcher
from torch._dynamo import (
    convert_frame,
    output_graph,
    symbolic_convert,
    trace_rules,
    utils as dynamo_utils,
)
from torch._dynamo.types import FrameAction, FrameExecStrategy
from torch._dynamo.utils import get_compilation_metrics, graph_break_reasons
from torch._dynamo.variables import builder
from torch._functorch import aot_autograd, config as functorch_config, partitioners
from torch._functorch._aot_autograd import descriptors, graph_compile
from torch._functorch._aot_autograd.descriptors import (
    IntermediateBaseAOTOutput,
    PlainAOTOutput,
    SavedForBackwardsAOTOutput,
    TangentAOTInput,
)
from torch._functorch._aot_autograd.schemas import MemoryFormatMeta, OutputType, PlainTensorMeta
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import CompileContext, detect_fake_mode
from torch._higher_order_ops.wrap import TagActivationCheckpoint as TagActivationCheckpoint
from torch._inductor import custom_graph_pass
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad, graph
from torch.autograd.function import BackwardCFunction
from torch.fx import _symbolic_trace
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental import proxy_tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils import clip_grad
from torch.utils._ordered_set import OrderedSet
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)
from torch.utils.checkpoint import checkpoint

from .garbage import collected_later

rng_prims: Any = torch._prims.rng_prims
_partitioners: Any = partitioners
# The class of the partitioner's solvers, if this release has it.
CustomKnapsackSolver: Any = getattr(custom_graph_pass, "CustomKnapsackSolver", object)
# What an autograd function of the model stores on its context. 2.10 checks versions of that as of all else.
SavedForBackwardsNoVcCheckAOTOutput: Any = getattr(
    descriptors, "SavedForBackwardsNoVcCheckAOTOutput", SavedForBackwardsAOTOutput
)
# A batch norm that returns its new statistics.
FUNCTIONAL_BATCH_NORM: Any = torch.ops.aten._native_batch_norm_legit_functional.default
# Batch norms are traced as one of them.
TRACED_BATCH_NORMS: Sequence[Any] = (
    torch.ops.aten._native_batch_norm_legit.default,
    torch.ops.aten._native_batch_norm_legit.no_stats,
    FUNCTIONAL_BATCH_NORM,
)
# Batch norm of eager mode on CUDA, in fp32 and fp16; traced as a different op.
CUDNN_BATCH_NORM: Any = torch.ops.aten.cudnn_batch_norm.default
# Batch norms of libraries, which write to running statistics that their schema does not mark.
WRITING_BATCH_NORMS: Sequence[Any] = (CUDNN_BATCH_NORM, torch.ops.aten.miopen_batch_norm.default)
# A state beside the generator's (`get_dropout_state` in RNN.cpp): another run draws another mask.
WITH_A_STATE: Sequence[Any] = (torch.ops.aten._cudnn_rnn.default,)
# Ops that copy a tensor.
COPY: Any = torch.ops.aten._to_copy.default
# Ops that may copy between devices.
COPIES: Sequence[Any] = (COPY, torch.ops.prims.device_put.default)
# In 2.10 it takes methods of loggers alone, which are all that it is used for.
IGNORED_LOGGING = next(
    name for name in ("ignore_logging_functions", "ignore_logger_methods") if hasattr(_dynamo.config, name)
)

# Errors by which Dynamo breaks a graph where a backend fails with one: what an op makes depends on data.
BREAKING_ERRORS: Any = _dynamo.exc.exceptions_allowed_to_be_fallback
# Ops of Dynamo's graphs that enter and leave a mode for the ops between.
ENTER_AUTOCAST: Any = torch.amp.autocast_mode._enter_autocast
EXIT_AUTOCAST: Any = torch.amp.autocast_mode._exit_autocast
SET_GRAD: Any = torch._C._set_grad_enabled


def inductor() -> tuple[Any, type[Exception]]:
    """Inductor's entry point and the kind of its errors, imported when they are first needed."""
    with warnings.catch_warnings():
        # It uses deprecated parts of PyTorch, which warn.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._inductor.compile_fx import compile_fx
        from torch._inductor.exc import InductorError
        from torch._inductor.fx_passes import joint_graph  # noqa: F401
    return compile_fx, InductorError


class InductorCode(NamedTuple):
    """The Python code that Inductor writes around the kernels of a graph, and the tensors that it names."""

    text: str
    constants: Mapping[str, Any]


class _WrittenError(Exception):
    """Raised to leave Inductor when the code is written and not yet compiled."""


def inductor_code(gm: fx.GraphModule, inputs: Sequence[Any], visible: int | None) -> InductorCode | None:
    """The code that Inductor would run for one half of a step, which it changes; None if there is none. Must
    be called where AOTAutograd calls Inductor's partitioner. `compile_fx_inner`, `save_output_code`.

    visible: number of its first results that belong to the caller; None: it is the backward.
    """
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    written: list[InductorCode] = []

    def stop(text: str) -> None:
        written.append(InductorCode(text, dict(V.graph.constants)))
        raise _WrittenError

    results: Any = next(iter(reversed(gm.graph.nodes)))
    # Marked as by AOTAutograd's caller: they keep their strides.
    seen = results.args[0][: visible or 0]
    results.meta["user_visible_output_idxs"] = [i for i, each in enumerate(seen) if isinstance(each, fx.Node)]
    try:
        with replaced(GraphLowering, "save_output_code", staticmethod(stop)):
            compile_fx_inner(gm, list(inputs), is_backward=visible is None, is_inference=False)
    except Exception:
        if not written:
            raise
    return written[0] if written else None


class _NoKernel:
    """Stands for a kernel, and for what compiles one."""

    def __getattr__(self, name: str) -> Any:
        return self._compile

    def __call__(self, *_: Any, **__: Any) -> None:
        return None

    def _compile(self, *_: Any, **__: Any) -> _NoKernel:
        return self


def without_kernels(code: InductorCode, fake_mode: FakeTensorMode) -> Callable[[list[Any]], Any]:
    """The code as a function that takes its arguments out of a list and has no kernels of Inductor's: to be
    run on fake tensors. `AsyncCompile`, and what the code allocates and looks at tensors with.
    """
    from torch._inductor import async_compile

    scope: dict[str, Any] = {"__name__": "remat_inductor_code", **code.constants}
    with replaced(async_compile, "AsyncCompile", _NoKernel):
        exec(compile(code.text, "<Inductor's code>", "exec"), scope)

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def empty_on(device: str) -> Callable[..., torch.Tensor]:
        return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)

    def shown(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
        return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    changed: dict[str, Any] = {"reinterpret_tensor": shown}
    for name in scope:
        if name.startswith("assert_"):
            changed[name] = nothing
        elif name.startswith("empty_strided_"):
            changed[name] = empty_on(name.removeprefix("empty_strided_").removesuffix("_pinned"))
        elif name in code.constants:
            changed[name] = fake_mode.from_tensor(code.constants[name])
    scope.update(changed)
    call: Callable[[list[Any]], Any] = scope["call"]
    return call


def compiled_apart(run: Callable[..., Any], backend: Any, dynamic: bool | None = False) -> Callable[..., Any]:
    """A function that a backend of Dynamo compiles, counted apart from all other functions of the same code.

    dynamic: with symbols for sizes; None: for those that are seen to vary.
    Dynamo counts what it compiles for a code object: past a limit it would silently run eagerly. Code that is
    called after graph breaks is shared with other models, whence `isolate_recompiles` (PyTorch 2.13).
    """
    own = types.FunctionType(run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__)
    compiler: Any = torch.compile
    apart = {"isolate_recompiles": True} if "isolate_recompiles" in _parameters(compiler) else {}
    compiled: Callable[..., Any] = compiler(own, backend=backend, dynamic=dynamic, **apart)
    return compiled


# In order, as `graph_break_reasons`: what broke a graph in a loop, where 2.10 leaves the whole function
# alone and does not tell why.
loop_breaks: list[str] = []


@functools.cache
def leave_to_python(package: str) -> None:
    """Dynamo does not compile functions of this package, such as hooks that autograd calls in the middle of
    compiled code. `trace_rules.add`.
    """
    trace_rules.add(package)


def traces_numpy(gm: fx.GraphModule) -> bool:
    """True if functions of numpy became functions of torch in this graph of Dynamo. `numpy_*_wrapper`."""
    wrappers = (
        dynamo_utils.numpy_to_tensor_wrapper,
        dynamo_utils.numpy_method_wrapper,
        dynamo_utils.numpy_operator_wrapper,
    )
    return any(isinstance(node.target, wrappers) for node in gm.graph.nodes)


def prepare_dynamo() -> None:
    """Patch older releases, once."""
    plain = getattr(symbolic_convert, "format_loop_skip_frame_message", None)  # 2.10
    if plain is not None:

        def noting(code: types.CodeType, frame_summary: str) -> Any:
            loop_breaks.append(f"graph break in a loop at: {frame_summary.strip().splitlines()[-1].strip()}")
            return plain(code, frame_summary)

        symbolic_convert.format_loop_skip_frame_message = noting
    if torch.__version__.startswith("2.11."):
        # Its metrics of a conversion are lost where functions are in this set: it cannot write them.
        dynamo_utils._get_dynamo_config_for_logging = _dynamo.config.patch({IGNORED_LOGGING: set()})(
            dynamo_utils._get_dynamo_config_for_logging
        )


def hooks_of_modules(model: torch.nn.Module) -> list[tuple[int, ...]]:
    """The numbers of all hooks of its modules; none is given twice. `_forward_hooks` and its relatives."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [tuple(getattr(module, name)) for module in model.modules() for name in names]


def backward_cast(casts: Sequence[tuple[str, torch.dtype]]) -> AbstractContextManager[Any]:
    """Inside the block, backwards are traced inside autocast for exactly these device types: by default
    PyTorch traces them inside the forward's autocast, which training loops leave before the backward.
    `backward_pass_autocast`.
    """
    if not hasattr(functorch_config, "backward_pass_autocast"):
        return nullcontext()
    kinds = [{"device_type": kind, "dtype": dtype} for kind, dtype in casts]
    changed: Any = functorch_config.patch(backward_pass_autocast=kinds or "off")
    return changed  # type: ignore[no-any-return]


def innermost_backend(converter: Any) -> Any:
    """The innermost backend of a Dynamo converter, as `torch.compile` wrapped it. `_torchdynamo_orig_backend`
    of converters and wrapped backends.
    """
    while hasattr(converter, "_torchdynamo_orig_backend"):
        converter = converter._torchdynamo_orig_backend
    return converter


def is_asked_for(error: Exception, wrapper: Any) -> bool:
    """True for errors of Dynamo that the user requested (`fullgraph=True` and the like).

    wrapper: of the converter, whose `_torchdynamo_orig_backend` it is.
    """
    converter = wrapper._torchdynamo_orig_backend
    names = ("Unsupported", "FailOnRecompileLimitHit", "RecompileError")
    kinds = tuple(getattr(_dynamo.exc, name) for name in names if hasattr(_dynamo.exc, name))
    return isinstance(error, kinds) or isinstance(converter, convert_frame.ConvertFrameAssert)


def convert_no_call_below() -> Any:
    """The result of a Dynamo converter for code that it skips, with all calls below."""
    skip = FrameAction.SKIP
    return convert_frame.ConvertFrameReturn(frame_exec_strategy=FrameExecStrategy(skip, skip))


def is_half_made(module: torch.nn.Module) -> bool:
    """True if its `__init__` has not run yet. `_parameters`, `_modules` of modules."""
    return not {"_parameters", "_modules"} <= vars(module).keys()


def unseen_by_hooks() -> dict[str, bool]:
    """For `checkpoint`: what it saves by a policy is not handed to hooks for saved tensors that surround it,
    as in all releases before 2.14, which do not know the argument. From then on they warn where nothing is
    said.
    """
    name = "respect_saved_tensors_hooks"
    return {name: False} if name in _parameters(checkpoint) else {}


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters


def start_profiler() -> None:
    """Starts recording events of the allocator. `_prepare_profiler`, `_enable_profiler`."""
    # The profiler library announces each start on stderr unless told not to, before its first use.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig())
    activities = {ProfilerActivity.CPU}
    profiler: Any = _autograd
    profiler._prepare_profiler(config, activities)
    # Scopes that nothing here opens: memory events are recorded, ops are not.
    profiler._enable_profiler(config, activities, {RecordScope.USER_SCOPE})


def stop_profiler() -> list[Any]:
    """The events since the start, as trees; those of the allocator have `AllocationFields`."""
    profiler: Any = _autograd
    return list(profiler._disable_profiler().experimental_event_tree())


def is_primal(node: torch.fx.Node) -> bool:
    """Is it an input of the forward half? `_is_primal` of partitioners."""
    return bool(_partitioners._is_primal(node))


def is_tangent(node: torch.fx.Node) -> bool:
    """Is it the gradient of an output? `_is_tangent` of partitioners."""
    return bool(_partitioners._is_tangent(node))


def tangent_output(node: torch.fx.Node) -> Any:
    """AOTAutograd's description of the output whose gradient a placeholder of a joint graph is, or None."""
    described = node.meta.get("desc")
    return described.output if isinstance(described, TangentAOTInput) else None


def base_of(output: Any) -> PlainAOTOutput | None:
    """The output that is a view of what is described, if any."""
    shown = output.base_of if isinstance(output, IntermediateBaseAOTOutput) else None
    return shown if isinstance(shown, PlainAOTOutput) else None


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def tangents_as_they_come(
    strides: Callable[[Any, torch.Tensor], Sequence[int] | None],
) -> Iterator[None]:
    """While it lasts, AOTAutograd traces gradients of outputs with these strides, and what it compiles takes
    them without a copy of those that have others. `aot_dispatch_autograd_graph`.

    strides: from the description of an output and its gradient as it would be traced; None: like that.
    """
    original: Any = graph_compile.aot_dispatch_autograd_graph

    def restrided(*args: Any, fw_metadata: Any, **kwargs: Any) -> Any:
        tangents = fw_metadata.traced_tangents
        metas, descriptions = fw_metadata.subclass_tangent_meta, fw_metadata.traced_tangents_descs
        if len(metas) == len(tangents):
            for i, (tangent, meta, described) in enumerate(zip(tangents, metas, descriptions, strict=True)):
                if not isinstance(meta, PlainTensorMeta) or not isinstance(tangent, torch.Tensor):
                    continue
                wanted = strides(described.output, tangent)
                if wanted is not None:
                    tangents[i] = tangent.new_empty_strided(tangent.shape, wanted)
                # Compared with the gradients that come.
                meta.memory_format = MemoryFormatMeta(size=cast(Any, _Any()), stride=cast(Any, _Any()))
        return original(*args, fw_metadata=fw_metadata, **kwargs)

    with _replaced_here(graph_compile, "aot_dispatch_autograd_graph", restrided):
        yield


@contextmanager
def nothing_donated() -> Iterator[None]:
    """While it lasts, AOTAutograd compiles backwards that may be told to leave the saved tensors: where it
    has not looked which of them may be written over, it refuses that. `collect_bw_donated_buffer_idxs`.
    """
    with (
        _replaced_here(graph_compile, "collect_bw_donated_buffer_idxs", lambda *_: []),
        functorch_config.patch(donated_buffer=True),
    ):
        yield


_VIEWS_OF_INTERMEDIATES = (OutputType.alias_of_intermediate, OutputType.alias_of_intermediate_save_as_output)


class JointTrace(NamedTuple):
    """What AOTAutograd finds out about a function that is to be trained.

    collected: what becomes of inputs and outputs. at_the_end: the same, once it has traced.
    traced: the joint graph, and what goes with it.
    """

    collected: Any
    at_the_end: Any
    traced: tuple[Any, ...]

    def overwritten(self, arguments: int) -> set[int] | None:
        """Which of so many arguments the function writes to. None: it is not said of each of them.
        `InputAliasInfo`.
        """
        said = self.collected.input_info
        if len(said) != arguments:
            return None
        written = ("mutates_data", "mutates_metadata", "mutates_storage_metadata")
        return {i for i, each in enumerate(said) if any(getattr(each, name) for name in written)}

    def joined_outputs(self) -> list[list[int]]:
        """Outputs that have gradients and show one result of the function, of which some are views: one
        gradient of the result stands for theirs. `OutputAliasInfo`.
        """
        said = self.collected.output_info
        graded = {i for i, each in enumerate(said) if each.requires_grad}
        found: dict[tuple[bool, int], list[int]] = {}
        for i in sorted(graded):
            of_output = said[i].output_type is OutputType.alias_of_intermediate_base_is_user_output
            if of_output or said[i].output_type in _VIEWS_OF_INTERMEDIATES:
                found.setdefault((of_output, said[i].base_idx), []).append(i)
        return [[*({base} & graded if shown else ()), *views] for (shown, base), views in found.items()]


def apart(metadata: Any, **changed: Any) -> Any:
    """A copy of metadata of AOTAutograd, which may be written to, with these attributes changed."""
    own = copy.copy(metadata)
    for name, value in {**vars(own), **changed}.items():
        setattr(own, name, value)
        if isinstance(value, (dict, list, set)):
            setattr(own, name, copy.copy(value))
    return own


@contextmanager
def unprinted() -> Iterator[None]:
    """While it lasts, AOTAutograd does not write out the graphs that it makes, unless somebody logs them.
    `_log_joint_graph`, `_log_fw_bw_graphs` (not in all releases).
    """
    joint, halves = "_log_joint_graph", "_log_fw_bw_graphs"
    loggers = [getattr(graph_compile, name, None) for name in ("aot_joint_log", "aot_graphs_log")]
    logged = any(logger is None or logger.isEnabledFor(logging.INFO) for logger in loggers)
    logged = logged or "TORCH_TRACE" in os.environ
    if logged or not (hasattr(graph_compile, joint) and hasattr(graph_compile, halves)):
        yield
        return
    with (
        _replaced_here(graph_compile, joint, lambda *_, **__: None),
        _replaced_here(graph_compile, halves, lambda *_, **__: (None, None)),
    ):
        yield


@contextmanager
def cast_once() -> Iterator[None]:
    """While it lasts, autocast casts a weight once in a trace, however often it is read, as eager mode does.
    `disable_autocast_cache`; `_mirror_autograd_meta_to`, which lets leaves look as if an op had made them:
    those are cast each time. A trace within a trace still does that.
    """
    within = 0
    private: Any = torch
    disabled: Any = proxy_tensor.disable_autocast_cache
    mirror: Any = private._mirror_autograd_meta_to

    @contextmanager
    def kept() -> Iterator[None]:
        nonlocal within
        if within:
            with disabled():
                yield
            return
        within += 1
        try:
            yield
        finally:
            within -= 1
            torch.clear_autocast_cache()  # of what is not real

    def mirrored(source: torch.Tensor, into: torch.Tensor) -> None:
        if source.is_leaf and source.requires_grad:
            into.requires_grad_()
        else:
            mirror(source, into)

    with (
        _replaced_here(proxy_tensor, "disable_autocast_cache", kept),
        _replaced_here(private, "_mirror_autograd_meta_to", mirrored),
    ):
        yield


@contextmanager
def replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    """Replaces an attribute inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _replaced_here(owner: Any, name: str, by: Callable[..., Any]) -> Iterator[None]:
    """Replaces a function inside the block, for this thread alone."""
    plain = getattr(owner, name)
    thread = threading.get_ident()

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (by if threading.get_ident() == thread else plain)(*args, **kwargs)

    with replaced(owner, name, chosen):
        yield


@contextmanager
def traced_once(
    known: JointTrace | None,
    copied: Callable[[torch.fx.GraphModule], torch.fx.GraphModule],
    keep: bool = True,
) -> Iterator[Callable[[], JointTrace | None]]:
    """Inside the block, AOTAutograd uses a known trace instead of tracing.
    `run_functionalized_fw_and_collect_metadata`, `aot_dispatch_autograd_graph`.

    known: of the same function with the same arguments. copied: makes a copy of a joint graph.
    keep: otherwise what is known is used up.
    Yields what tells the trace of the one function that was compiled, None if it has no gradients or is not
    kept.
    """
    module: Any = aot_autograd
    collect: Any = module.run_functionalized_fw_and_collect_metadata
    dispatch: Any = graph_compile.aot_dispatch_autograd_graph
    collected: list[Any] = []
    found: list[JointTrace] = [] if known is None else [known]

    def told(function: Any, *args: Any, **kwargs: Any) -> Any:
        if known is not None:
            return lambda *_: apart(known.collected)

        def noted(*given: Any) -> Any:
            with collected_later():
                metadata = collect(function, *args, **kwargs)(*given)
            collected[:] = [apart(metadata)]
            return metadata

        return noted

    def taken(*args: Any, fw_metadata: Any, **kwargs: Any) -> Any:
        if known is not None:
            vars(fw_metadata).update(vars(apart(known.at_the_end)))
            joint, *others = known.traced
            return (copied(joint) if keep else joint, *others)
        with collected_later():
            joint, *others = dispatch(*args, fw_metadata=fw_metadata, **kwargs)
        if collected:
            found[:] = [JointTrace(collected[0], apart(fw_metadata), (copied(joint), *others))]
        return (joint, *others)

    with (
        _replaced_here(module, "run_functionalized_fw_and_collect_metadata", told),
        _replaced_here(graph_compile, "aot_dispatch_autograd_graph", taken),
    ):
        yield lambda: found[0] if found and keep else None


@contextmanager
def changing_numbers(ints: bool) -> Iterator[None]:
    """Inside the block, Dynamo treats Python floats that were seen to change as dynamic, whatever the setting
    for sizes; ints: and ints that are no sizes, attributes of modules among them.
    `process_automatic_dynamic`, `VariableBuilder.wrap_symint`.
    """
    plain: Any = builder.process_automatic_dynamic

    def noting(translator: Any, name: str, entry: Any, **keywords: Any) -> Any:
        if type(entry.scalar) is not float:
            return plain(translator, name, entry, **keywords)
        with _dynamo.config.patch(automatic_dynamic_shapes=True):
            return plain(translator, name, entry, **keywords)

    builders: Any = builder.VariableBuilder
    plain_int = builders.wrap_symint

    def noting_int(self: Any, *args: Any, **keywords: Any) -> Any:
        with _dynamo.config.patch(automatic_dynamic_shapes=True):
            return plain_int(self, *args, **keywords)

    with replaced(builder, "process_automatic_dynamic", noting):
        if not ints:
            yield
            return
        config: Any = _dynamo.config
        with replaced(builders, "wrap_symint", noting_int), config.patch(allow_unspec_int_on_nn_module=True):
            yield


def _is_compiled(function: Any) -> bool:
    """Did `torch.compile` return it? What is only kept from Dynamo lacks one mark, a script the other."""
    return hasattr(function, "_torchdynamo_wrapper_id") and hasattr(function, "_torchdynamo_inline")


@contextmanager
def compiled_functions(told: Callable[[Any], object]) -> Iterator[None]:
    """While it lasts, `told` is called with each function that `torch.compile` made and that Dynamo traces as
    it is written. `WrapperUserFunctionVariable`.
    """
    wrappers: Any = builder.WrapperUserFunctionVariable
    plain = wrappers.__init__

    def noting(self: Any, function: Any, *args: Any, **keywords: Any) -> None:
        if _is_compiled(function):
            told(function)
        plain(self, function, *args, **keywords)

    with replaced(wrappers, "__init__", noting):
        yield


@contextmanager
def traced_ops(told: Callable[[int], object]) -> Iterator[None]:
    """While it lasts, `told` is called with how many ops are in the graph that Dynamo is making, with each.
    `SubgraphTracer.create_proxy`.
    """
    tracers: Any = output_graph.SubgraphTracer
    plain = tracers.create_proxy
    found: Counter[Any] = Counter()

    def noting(self: Any, kind: str, *args: Any, **keywords: Any) -> Any:
        if kind.startswith("call_"):
            found[self] += 1
            told(found[self])
        return plain(self, kind, *args, **keywords)

    with replaced(tracers, "create_proxy", noting):
        yield


def compiled_part(model: torch.nn.Module) -> str | None:
    """A module of it, but for itself, that `torch.compile` made, or that was compiled in place; or a method.
    None: there is none. `OptimizedModule`, `_compiled_call_impl`, `_torchdynamo_disable`.
    """
    for name, module in model.named_modules():
        wrapped = isinstance(module, _dynamo.OptimizedModule) or module._compiled_call_impl is not None
        if name and wrapped and not getattr(module.forward, "_torchdynamo_disable", False):
            return name
        for each in type(module).__mro__:
            for attribute, value in vars(each).items():
                if isinstance(value, types.FunctionType) and _is_compiled(value):
                    return f"{each.__qualname__}.{attribute}"
    return None


@contextmanager
def without_names() -> Iterator[None]:
    """While it lasts, Dynamo looks up no names of functions for messages that nobody logs: it reads every
    source file for that, token by token. `get_funcname`, `trace_call_log`, `trace_source_log`.
    """
    logs: list[Any] = [getattr(output_graph, "trace_call_log", None)]
    logs.append(getattr(symbolic_convert, "trace_source_log", None))
    logged = any(log is None or log.isEnabledFor(logging.DEBUG) for log in logs)
    if logged or not hasattr(symbolic_convert, "get_funcname"):
        yield
        return
    with replaced(symbolic_convert, "get_funcname", lambda *_: None):
        yield


def expression_of(number: Any, as_made: bool = False) -> Any:
    """What a symbolic number is in symbols. `node.expr`, `node._expr` of SymInt.

    as_made: in the symbols that it was made with, though some are known to be equal since.
    """
    return number.node._expr if as_made else number.node.expr


def guarded(mode: Any) -> AbstractContextManager[None]:
    """While it lasts, what is taken for granted of symbols is noted: Dynamo ends that when it is done.
    `frozen` of ShapeEnv.
    """
    return replaced(mode.shape_env, "frozen", False)


def holds_at(mode: Any, values: Mapping[Any, int]) -> bool:
    """True if a trace with symbols, in this fake tensor mode, holds for these values. `guards`,
    `var_to_range` of ShapeEnv.
    """
    env = mode.shape_env
    for symbol, value in values.items():
        allowed = env.var_to_range.get(symbol)
        if allowed is not None and not allowed.lower <= value <= allowed.upper:
            return False
    return all(guard.expr.xreplace(values) == True for guard in env.guards)  # noqa: E712


def fake_like(mode: Any, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake tensor of this mode which shows the same storage as a meta tensor."""
    return FakeTensor(mode, tensor, device)  # type: ignore[no-any-return, no-untyped-call]


class OpsMode(TorchDispatchMode):
    """A dispatch mode that leaves code as `torch.compile` made it, and sees the ops that this calls; under
    others it runs uncompiled, with other bits. `ignore_compile_internals`.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def wait_for(tensor: torch.Tensor) -> None:
    """Waits for the functional collective that made the tensor. `_c10d_functional.wait_tensor`."""
    torch.ops._c10d_functional.wait_tensor(tensor)


def storage_id(tensor: torch.Tensor) -> int:
    """The same number for all tensors of one storage, traced ones included."""
    return storage_number(tensor.untyped_storage())


def users_of_storage(number: int) -> int:
    """How many tensors show a storage, by its number (`_cdata`) while something refers to it.
    `torch._C._storage_Use_Count`, which counts Python's own reference too.
    """
    users: int = torch._C._storage_Use_Count(number)
    return max(0, users - 1)


def storage_number(storage: torch.UntypedStorage) -> int:
    """Of a storage, while it lasts. `_cdata` of storages."""
    return int(storage._cdata)


def storage_uses(storage: torch.UntypedStorage) -> int:
    """Number of tensors and storage objects that hold the memory. `_storage_Use_Count`."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def is_view(tensor: torch.Tensor) -> bool:
    """For autograd. `_is_view` of tensors."""
    return bool(tensor._is_view())


@contextmanager
def results_made_by(correct: Callable[[Any, Any, Any, Any], Any]) -> Iterator[None]:
    """While it lasts, results of ops on fake tensors are what `correct` makes of them, given op, arguments,
    keywords and result, outside of the mode. `FakeTensorMode.dispatch`.
    """
    plain: Any = FakeTensorMode.dispatch

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return correct(func, args, kwargs or {}, plain(self, func, types, args, kwargs))

    with replaced(FakeTensorMode, "dispatch", dispatch):
        yield


def in_place(op: OpOverload) -> OpOverload:
    """The op that writes its result over its first argument. `_opname` and `_overloadname` of overloads."""
    packet = getattr(torch.ops.aten, f"{op._opname}_")
    return cast(OpOverload, getattr(packet, op._overloadname))


def use_code_generator_of(graph: fx.Graph, other: fx.Graph) -> None:
    """The code of a graph takes arguments and returns results as that of another. `_codegen` of graphs."""
    graph.set_codegen(copy.copy(other._codegen))


def begin_of_graph() -> int:
    """The number of the next node that autograd makes in this thread. `_sequence_nr` of nodes."""
    with torch.enable_grad():
        node: Any = torch.empty((), requires_grad=True).view(1).grad_fn
    return int(node._sequence_nr()) + 1


def is_made_before(tensor: torch.Tensor, begin: int) -> bool:
    """True for the result of a node made before this one, but for a view of a leaf."""
    node: Any = tensor.grad_fn
    if node is None or node._sequence_nr() >= begin:
        return False
    return tensor._base is None or not tensor._base.is_leaf


def view_base(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a view shows, or the tensor itself. `_base` of tensors."""
    base: torch.Tensor | None = tensor._base
    return tensor if base is None else base


def conjugated_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, to be read as the conjugate. `torch._conj`."""
    view: torch.Tensor = torch._conj(tensor)
    return view


def negated_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, to be read with the other sign. `torch._neg_view`."""
    view: torch.Tensor = torch._neg_view(tensor)
    return view


def composite_kernel(op: OpOverload, *args: Any) -> Any:
    """What PyTorch makes of an op that is made of others. `_op_dk` of ops."""
    return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args)


def write_count(tensor: torch.Tensor) -> int:
    """How often the tensor was written to, which inference tensors do not count. `_version` of tensors."""
    return 0 if tensor.is_inference() else int(tensor._version)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor that is split between ranks. `_local_tensor` of DTensor."""
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def schema(op: OpOverload) -> Any:
    """Names and aliases of arguments and results. `_schema` of ops."""
    return op._schema


def builtin(op: OpOverload) -> Callable[..., Any]:
    """What an op calls, without what it looks up on the way. `_op` of ops."""
    call: Callable[..., Any] = op._op
    return call


def forget_kernels(op: OpOverload) -> None:
    """After a change of `py_kernels`. `_dispatch_cache` of ops."""
    op._dispatch_cache.clear()


def overload_name(op: OpOverload) -> str:
    """The part of its name after the dot. `_overloadname` of ops."""
    return op._overloadname


def will_execute(node: Any) -> bool:
    """Will the backward that runs now reach this node of the autograd graph? `_will_engine_execute_node`."""
    return bool(torch._C._will_engine_execute_node(node))


def accumulate_hooks(tensor: torch.Tensor) -> list[Callable[..., Any]]:
    """Hooks that autograd calls after accumulating into a leaf. `_post_accumulate_grad_hooks` of tensors."""
    hooks: Any = tensor._post_accumulate_grad_hooks
    return list(hooks.values()) if hooks else []


@contextmanager
def without_accumulate_hooks(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Inside the block, these leaves have no hooks after accumulation."""
    before: list[tuple[Any, Any]] = [(tensor, tensor._post_accumulate_grad_hooks) for tensor in tensors]
    for tensor, hooks in before:
        if hooks is not None:
            # None would make autograd forget nothing.
            tensor._post_accumulate_grad_hooks = OrderedDict[Any, Any]()
    try:
        yield
    finally:
        for tensor, hooks in before:
            inside = tensor._post_accumulate_grad_hooks
            if inside is not None and inside is not hooks:
                inside.clear()
            tensor._post_accumulate_grad_hooks = hooks


def tensor_hooks(tensor: torch.Tensor) -> list[dict[Any, Any]]:
    """Where a tensor keeps its hooks. `_backward_hooks`, `_post_accumulate_grad_hooks` of tensors."""
    kinds: list[Any] = [tensor._backward_hooks, tensor._post_accumulate_grad_hooks]
    return [hooks for hooks in kinds if hooks is not None]


def changes_arguments(module: torch.nn.Module) -> bool:
    """May its arguments become others before `forward` has them? `_forward_pre_hooks` of modules."""
    return bool(module._forward_pre_hooks)


def in_symbolic_tracing() -> bool:
    """True while `torch.fx.symbolic_trace` calls the model. `_is_fx_tracing_flag`."""
    return bool(_symbolic_trace._is_fx_tracing_flag)


@functools.cache
def global_module_hooks() -> list[dict[Any, Any]]:
    """Where hooks of all modules are kept. `_global_*` of `torch.nn.modules.module`."""
    return [
        v
        for k, v in vars(torch.nn.modules.module).items()
        if k.startswith("_global_") and isinstance(v, dict)
    ]


def has_tensor_hooks(tensor: torch.Tensor) -> bool:
    """True if a leaf has hooks on its gradient. `_backward_hooks` of tensors."""
    return bool(tensor._backward_hooks)


def optimizers_in_backward(parameter: torch.Tensor) -> list[torch.optim.Optimizer]:
    """What `torch.distributed.optim._apply_optimizer_in_backward` lets step there, unless DDP has taken that
    over. `_in_backward_optimizers` of parameters, and the handles of its hooks.
    """
    optimizers: list[torch.optim.Optimizer] = getattr(parameter, "_in_backward_optimizers", [])
    if not optimizers:
        return []
    from torch.distributed.optim import apply_optimizer_in_backward as applied

    handles = applied.param_to_optim_hook_handle_map.get(parameter, [])
    alive = [handle for handle in handles if handle.id in (handle.hooks_dict_ref() or ())]
    return list(optimizers) if len(alive) == 1 else []


def in_data_parallel() -> bool:
    """True inside a call of a DistributedDataParallel. `_get_active_ddp_module`."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    from torch.nn.parallel import DistributedDataParallel

    kind: Any = DistributedDataParallel
    return kind._get_active_ddp_module() is not None


@functools.cache
def refuse_clipping(check: Callable[[Sequence[torch.Tensor]], None]) -> None:
    """Calls this with parameters before their gradients are clipped by a common norm, from now on.
    `_clip_grads_with_norm_` of `torch.nn.utils.clip_grad`, which has no hook.
    """
    name = "_clip_grads_with_norm_"
    plain = getattr(clip_grad, name)

    @functools.wraps(plain)
    def checked(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        check(parameters)
        return plain(parameters, *args, **kwargs)

    setattr(clip_grad, name, checked)


def accumulated_leaf(node: Any) -> torch.Tensor | None:
    """The leaf into which a node of the autograd graph accumulates, if it does that. `AccumulateGrad`."""
    return node.variable if type(node).__name__ == "AccumulateGrad" else None


def autograd_node_number() -> int:
    """Of the autograd node that runs in this thread, -1 where none does. `_current_autograd_node`."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def entries_of_sparse(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Places and values of a sparse tensor that may name a place twice. `_indices`, `_values`."""
    return [tensor._indices(), tensor._values()]


def next_node_number() -> int:
    """The number of the next autograd node made in this thread. `_get_sequence_nr`."""
    return int(_autograd._get_sequence_nr())


def leaf_at_work() -> torch.Tensor | None:
    """Into which the autograd node that runs in this thread accumulates. `_current_autograd_node`."""
    return accumulated_leaf(torch._C._current_autograd_node())


def graph_task() -> int:
    """A number of the backward that runs in this thread. `_current_graph_task_id`."""
    return int(torch._C._current_graph_task_id())


class _HandedOver(list[Any]):
    """A list that forgets its items when they are read."""

    def __iter__(self) -> Iterator[Any]:
        items = iter(list(super().__iter__()))
        self.clear()
        return items


def hand_over_unchecked(context: Any) -> None:
    """The backward of this node frees tensors that were saved without a check of their version as it does
    others: PyTorch keeps them until it ends. `_tensors_no_vc_check`.
    """
    unchecked = getattr(context, "_tensors_no_vc_check", None)
    if unchecked and not keeps_graph() and any(t is not None for t in context.saved_tensors):
        context._tensors_no_vc_check = _HandedOver(unchecked)


def keeps_graph() -> bool:
    """True if the backward of this thread keeps the saved tensors (`retain_graph=True`).
    `_get_current_graph_task_keep_graph`.
    """
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def packs_saved_tensors() -> bool:
    """Do hooks (`saved_tensors_hooks`, which checkpointing is made of) decide what becomes of the tensors
    that this thread saves now? `_top_saved_tensors_default_hooks`.
    """
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def attention_priority() -> tuple[int, ...]:
    """The order in which kernels of attention are tried. `_get_sdp_priority_order`."""
    return tuple(torch._C._get_sdp_priority_order())


class KernelSettings(NamedTuple):
    """Settings by which an op chooses its kernel when it runs. Getters and setters of `torch._C`: those of
    `torch.backends` take ten times as long."""

    mkldnn: bool
    cudnn: bool
    cudnn_deterministic: bool
    deterministic: bool

    @classmethod
    def now(cls) -> KernelSettings:
        get = torch._C
        return cls(
            get._get_mkldnn_enabled(),
            get._get_cudnn_enabled(),
            get._get_cudnn_deterministic(),
            get._get_deterministic_algorithms(),
        )

    def set(self) -> None:
        torch._C._set_mkldnn_enabled(self.mkldnn)
        torch._C._set_cudnn_enabled(self.cudnn)
        torch._C._set_cudnn_deterministic(self.cudnn_deterministic)
        warn_only = torch._C._get_deterministic_algorithms_warn_only()
        torch._C._set_deterministic_algorithms(self.deterministic, warn_only=warn_only)


def is_transformed() -> bool:
    """True inside a transform of `torch.func` or forward-mode differentiation. `peek_interpreter_stack`,
    `_current_level`.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def foreign_modes() -> list[str]:
    """Classes of the dispatch modes of this thread that are not PyTorch's own, which only look.
    `_get_current_dispatch_mode_stack`.
    """
    kinds = [type(mode) for mode in _get_current_dispatch_mode_stack()]
    return [
        kind.__qualname__ for kind in kinds if kind.__module__.partition(".")[0] not in ("torch", "remat")
    ]


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Modes of torch functions (`TorchFunctionMode`) see nothing inside: a trace of Dynamo has their effects.
    `_pop_torch_function_stack` and its like.
    """
    stack = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(stack):
            torch._C._push_on_torch_function_stack(mode)


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Zeros that have no memory, as forward-mode differentiation makes them. `_is_zerotensor`."""
    return bool(tensor._is_zerotensor())


def holds_saved_tensors(node: BackwardCFunction) -> bool:
    """True until a backward has freed them. Does not unpack them, which would call hooks.
    `_raw_saved_tensors`."""
    try:
        return len(cast(Any, node)._raw_saved_tensors) > 0
    except RuntimeError:
        return False


def has_freed_saved_tensors(node: BackwardCFunction) -> bool:
    """True once a backward has freed them."""
    try:
        cast(Any, node)._raw_saved_tensors  # noqa: B018
    except RuntimeError:
        return True
    return False


def running_backwards() -> list[Sequence[Any]]:
    """The roots of all backwards that run now, of all threads. Read from the callers' stack frames:
    `t_outputs` of `_engine_run_backward`.
    """
    code = graph._engine_run_backward.__code__
    found = []
    tops = sys._current_frames()
    # This frame would form a reference cycle that holds its callers' objects until garbage is collected.
    tops[threading.get_ident()] = sys._getframe(1)
    for top in tops.values():
        frame: types.FrameType | None = top
        while frame is not None:
            if frame.f_code is code:
                found.append(frame.f_locals["t_outputs"])
            frame = frame.f_back
    return found


def takes_a_list(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Marks a function for AOTAutograd as taking its arguments in a list, which it empties. `_boxed_call`."""
    marked: Any = run
    marked._boxed_call = True
    return run


# Attributes of optimizers, and of modules that were compiled.
OPTIMIZER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
COMPILED_CALL = "_compiled_call_impl"


def eager_call(module: torch.nn.Module) -> Callable[..., Any]:
    """A call of the module, with its hooks, that is not compiled. `_call_impl` of modules."""
    call: Callable[..., Any] = module._call_impl
    return call


def share_sharding(module: Any, sharded: Any) -> None:
    """Let a module have the sharding of another one. `_get_fsdp_state`, `_insert_module_state`."""
    # Not at import: this PyTorch may be built without distributed support.
    from torch.distributed import _composable_state

    _composable_state._insert_module_state(module, sharded._get_fsdp_state())


def parameter_groups(module: Any) -> list[Any]:
    """Parameters that a sharded module gathers at once. One group up to PyTorch 2.10, `_fsdp_param_group`."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


# Does what calls a backward that is written in Python hold its arguments, gradients of outputs among them?
BACKWARD_HOLDS_ARGUMENTS = not hasattr(BackwardCFunction, "apply_boxed")


def sharded_part(parameter: Any) -> torch.Tensor:
    """This rank's part of a group's parameter. `_sharded_param_data`."""
    part: torch.Tensor = parameter._sharded_param_data
    return part


def gathered_parameter(parameter: Any) -> torch.Tensor | None:
    """A group's parameter as a whole, once gathered. `_unsharded_param`."""
    return getattr(parameter, "_unsharded_param", None)


# What other modules take from here, of what is imported above.
__all__ = [
    "AllocationFields",
    "BackwardCFunction",
    "CompileContext",
    "CustomPartitionerFn",
    "DispatchKey",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "PlainAOTOutput",
    "SavedForBackwardsAOTOutput",
    "StorageWeakRef",
    "TensorBase",
    "TorchDispatchMode",
    "_AutoDispatchBelowAutograd",
    "_DisableAutocast",
    "_LazyGraphModule",
    "_VariableFunctions",
    "_disable_current_modes",
    "_dispatch_get_all_op_names",
    "_dynamo",
    "_symbolic_trace",
    "aot_module_simplified",
    "convert_frame",
    "decomposition_table",
    "detect_fake_mode",
    "get_compilation_metrics",
    "graph_break_reasons",
    "is_traceable_wrapper_subclass",
    "no_python_dispatcher",
    "suggest_memory_format",
    "with_autograd_in_dispatch",
    "without_dispatch_modes",
]


def saved_by_min_cut(graph: fx.Graph, node_info: Any, recomputable: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes that PyTorch's partitioner saves if it may recompute these, without inputs of the graph. Must
    be called where it calls a solver.
    """
    options = _partitioners.MinCutOptions(
        ban_if_used_far_apart=False,
        ban_if_long_fusible_chains=False,
        ban_if_materialized_backward=False,
        ban_if_not_in_allowlist=False,
        ban_if_reduction=functorch_config.ban_recompute_reductions,
    )
    saved, _ = _partitioners.solve_min_cut(graph, node_info, options, OrderedSet(recomputable))
    return [node for node in saved if node not in set(node_info.inputs)]


def size_of_node(node: fx.Node) -> int:
    """Bytes of a node's result, as the partitioner counts them."""
    size: int = _partitioners._size_of(node)
    return size


def budget_of_partitioner(share: float, solver: Any) -> AbstractContextManager[Any]:
    """PyTorch's settings, patched so that its partitioner calls a solver."""
    changed: Any = functorch_config.patch(
        activation_memory_budget=share, activation_memory_budget_solver=solver
    )
    return cast("AbstractContextManager[Any]", changed)
