"""A graph of Dynamo with symbols for varying sizes: its form and its trace for each call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import fx

from ..base.errors import UnsupportedModelError, log
from ..base.garbage import collected_later
from ..base.modes import Casts
from ..base.private import JointTrace, detect_fake_mode, guarded, nothing_donated
from ..run.compile import traced_alone
from ..run.outputs import cut_off
from ..trace.kernels import eager_kernels
from ..trace.masks import Masks
from ..trace.strides import EagerStrides
from ..trace.symbolic import Sizes, SymbolicTrace, at_sizes, differ
from ..trace.tangents import Strides, TangentStrides
from .pipeline import device_of


class SymbolsDifferError(Exception):
    """The trace with symbols differs from the one without."""


class Form(NamedTuple):
    """Of a trace: masks that are left out, outputs without gradients, strides of the gradients of others, and
    where the backward is to run.
    """

    left_out: frozenset[int]
    cut: frozenset[int]
    strides: frozenset[tuple[str, Strides]]
    casts: Casts


class Plain(NamedTuple):
    """A trace without symbols. described: arguments by name."""

    described: dict[str, Any]
    trace: JointTrace


def described_inputs(gm: fx.GraphModule) -> dict[str, Any]:
    """Dynamo's descriptions of the inputs of a graph, by name."""
    return {str(p.target): p.meta.get("example_value") for p in gm.graph.find_nodes(op="placeholder")}


class Varying:
    """The forms of one such graph."""

    def __init__(self, gm: fx.GraphModule, one_plan: bool) -> None:
        """one_plan: as of `Masks`."""
        self._gm, self._one_plan = gm, one_plan
        self._described = described_inputs(gm)
        self._masks: dict[Hashable, Masks] = {}
        self._traces: dict[Form, SymbolicTrace | None] = {}
        self._seen: set[Form] = set()

    def masks(self, shapes: Hashable, args: Sequence[Any]) -> Masks:
        """Of the graph for these arguments, which have these shapes."""
        if shapes not in self._masks:
            sizes = Sizes.of(list(self._described.values()), args)
            try:
                gm = self._gm if sizes is None else at_sizes(self._gm, sizes)
            except UnsupportedModelError as error:
                log.info("each shape is traced for itself: %s", error)
                gm = self._gm
            self._masks[shapes] = Masks(gm, self._one_plan)
        return self._masks[shapes]

    def forget(self, shapes: Hashable) -> None:
        self._masks.pop(shapes, None)

    def trace(
        self, shapes: Hashable, args: Sequence[Any], form: Form, plain: Iterable[Plain]
    ) -> JointTrace | None:
        """The trace for these arguments; None if they must be traced separately.

        plain: traces of the same code in the same form, with which the trace with symbols is compared. It is
        made once there is one for these symbols: many programs see one more shape, and no third one. Raises
        SymbolsDifferError if they differ.
        """
        if form not in self._seen:
            self._seen.add(form)
            return None
        if form not in self._traces:
            self._traces[form] = None
            self._traces[form] = self._traced(self.masks(shapes, args), args, form, list(plain))
        traced = self._traces[form]
        with collected_later():
            told = None if traced is None else traced.at(args)
        if traced is not None and told is None:
            log.info("these sizes are traced for themselves: what was traced does not hold for them")
        return told

    def _traced(
        self, masks: Masks, args: Sequence[Any], form: Form, plain: list[Plain]
    ) -> SymbolicTrace | None:
        if not plain:
            return None
        described = list(self._described.values())
        gm = cut_off(masks.graph_like(self._gm, form.left_out), form.cut)
        found = self._trace_of(gm, described, args, form)
        if found is None:
            return None
        differences = (self._difference(found, each) for each in plain)
        different = next((each for each in differences if each is not None), None)
        if different is not None:
            raise SymbolsDifferError(different)
        return found

    def _trace_of(
        self, gm: fx.GraphModule, described: Sequence[Any], args: Sequence[Any], form: Form
    ) -> SymbolicTrace | None:
        with nothing_donated(), eager_kernels(device_of(args), casts=form.casts), EagerStrides():
            try:
                with guarded(detect_fake_mode(described)):
                    trace = traced_alone(gm, described, TangentStrides(gm, dict(form.strides)))
            except Exception as error:  # whatever cannot be done with symbols
                log.info("each shape is traced for itself: %s", str(error).partition("\n")[0])
                return None
        return None if trace is None else SymbolicTrace(trace, described)

    def _difference(self, found: SymbolicTrace, plain: Plain) -> str | None:
        names = [name for name in self._described if name in plain.described]
        sizes = Sizes.of([self._described[n] for n in names], [plain.described[n] for n in names])
        try:
            told = None if sizes is None else found.at_sizes(sizes)
        except UnsupportedModelError as error:
            return str(error)
        if told is None:
            return "it does not hold for the sizes before"
        return differ(told.traced[0], plain.trace.traced[0])
