"""A memory planning algorithm for ExecuTorch that places tensors with `remat.layout_buffers`
(docs/executorch.md).

Importing this module imports neither executorch nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from remat._core import LayoutResult
from remat.errors import GraphError
from remat.planning import layout_buffers
from remat.tables import require

# Some seconds if the lower bound is not reached; most models reach it within milliseconds.
_WORK_LIMIT = 5_000_000
# Default memory of tensors; memory 0 holds constants.
_DEFAULT_MEMORY = 1


class Spec(Protocol):
    """The part of ExecuTorch's ``TensorSpec`` that is read.

    Attributes:
        lifetime: the first and the last node that use the tensor, both included.
        mem_id: the memory to place it in; None: memory 1.
        storage_base: a tensor whose memory holds this one, at `storage_base_offset` bytes, or None.
        allocated_memory: bytes, rounded up to the alignment.
    """

    lifetime: list[int]
    mem_id: int | None
    storage_base: Spec | None
    storage_base_offset: int

    @property
    def allocated_memory(self) -> int: ...

    def realign(self, new_alignment: int) -> int: ...


def layout(
    alignment: int,
    specs: Iterable[Spec],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int = 0,
    *,
    work_limit: int | None = _WORK_LIMIT,
    time_limit: float | str | None = None,
    seed: int = 0,
    on_layout: Callable[[int, LayoutResult], object] | None = None,
) -> Any:
    """Place tensors; an algorithm for ExecuTorch's ``MemoryPlanningAlgorithmSuite``, with others or alone.

    The suite passes the first five arguments; ``functools.partial`` sets the others. Each memory (``mem_id``)
    is laid out separately, with the buffers of submodules first, as in ExecuTorch's own algorithms. Only the
    alignment of the specs is written; the suite writes the rest.

    Args:
        alignment: every offset is a multiple of it, and sizes are rounded up to it; bytes.
        specs: the tensors to place, whose lifetimes are known.
        graph_module: its ``input_mem_buffer_sizes``, if any, are the bytes of its submodules by memory.
        graph_signature: not read.
        extra_padding: bytes that are added to each memory that holds tensors.
        work_limit: units of work for each memory; makes layouts equal on every machine.
        time_limit: seconds of wall clock for each memory, or ``"1s"``; None: no limit of this kind.
        seed: of the search's random numbers.
        on_layout: called with each memory that holds tensors and its :class:`remat.LayoutResult`, which has
            the lower bound and counts neither submodules nor padding.

    Returns:
        A ``MemoryAlgoResult`` of ExecuTorch.

    Raises:
        GraphError: a tensor cannot lie in the memory of its `storage_base`.
        RematError: executorch is not installed.
    """
    api = require("executorch.exir.memory_planning", "executorch", "remat.executorch")
    specs = list(specs)
    for spec in specs:
        spec.realign(alignment)
    roots = _roots(specs, alignment)
    memories: dict[int, dict[Spec, list[int]]] = {}
    for spec, (root, _) in roots.items():
        lives = memories.setdefault(_memory_of(root), {})
        first, last = lives.get(root, root.lifetime)
        lives[root] = [min(first, spec.lifetime[0]), max(last, spec.lifetime[1])]

    sizes = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])
    sizes += [0] * (1 + max([_DEFAULT_MEMORY, *memories]) - len(sizes))
    offsets: dict[Spec, int] = {}
    for memory, lives in sorted(memories.items()):
        result = layout_buffers(
            [first for first, _ in lives.values()],
            [last + 1 for _, last in lives.values()],
            [spec.allocated_memory for spec in lives],
            alignment=alignment,
            work_limit=work_limit,
            time_limit=time_limit,
            seed=seed,
        )
        if on_layout is not None:
            on_layout(memory, result)
        assert result.offsets is not None, "without a capacity there is a layout"
        begin = _rounded_up(sizes[memory], alignment)
        offsets |= {spec: begin + offset for spec, offset in zip(lives, result.offsets.tolist(), strict=True)}
        sizes[memory] = begin + result.best_arena + extra_padding

    # Overlapping tensors must belong to one object, so all tensors of a memory do.
    places = {
        spec: api.SpecAllocResult(mem_id=_memory_of(root), mem_obj_id=0, mem_offset=offsets[root] + inside)
        for spec, (root, inside) in roots.items()
    }
    return api.MemoryAlgoResult(places, sizes)


def _memory_of(spec: Spec) -> int:
    return _DEFAULT_MEMORY if spec.mem_id is None else spec.mem_id


def _rounded_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _roots(specs: list[Spec], alignment: int) -> dict[Spec, tuple[Spec, int]]:
    """By tensor: the tensor whose memory holds it, and its offset there; mostly itself and 0."""
    planned = set(specs)
    roots = {}
    for spec in specs:
        root, offset, seen = spec, 0, {spec}
        while (base := root.storage_base) is not None:
            if base in seen:
                raise GraphError(f"{spec}: its storage_base leads back to itself")
            if base not in planned:
                raise GraphError(f"{spec}: its storage_base is a tensor for which no memory is planned")
            inside = root.storage_base_offset
            if inside < 0 or inside + root.allocated_memory > base.allocated_memory:
                raise GraphError(
                    f"{spec}: {root.allocated_memory} bytes at {inside} do not fit into its storage_base of "
                    f"{base.allocated_memory} bytes"
                )
            offset += inside
            seen.add(base)
            root = base
        if offset % alignment:
            raise GraphError(f"{spec}: its offset {offset} in its storage_base is no multiple of {alignment}")
        roots[spec] = root, offset
    return roots
