"""Reports code of a model that runs without a plan: a warning once for each place, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..base.errors import UnsupportedModelError, log
from ..base.private import replaced
from ..base.units import exact_bytes, format_bytes
from ..plan.report import PlanReport
from ..trace.conversion import Spot

# Fewer bytes left by eager code are not worth a warning or a new plan.
WORTH_COUNTING = 1 << 16
_NAMED = 4
TRANSFORMED = (
    "a call inside a transform of torch.func (vmap, grad, jvp) or forward-mode differentiation runs as it is "
    "written, without a plan"
)
KEPT = (
    "a backward with retain_graph=True leaves in memory what its forward saved, and what was made again: "
    "such steps can need more than the budget"
)
SEVERAL = (
    "a call has several backwards, and its plan is for one: such steps can need more than the budget (one "
    "backward of the sum of the losses does not)"
)
SKIPPED = (
    'step="backward": parameters that only outputs need which the loss skips are stepped with zeros as '
    "gradients, where eager mode leaves them (loss= tells fit which outputs those are)"
)
# Markers of graph-break reasons that depend on values.
_DATA = ("depends on input Tensor data", "ata-dependent", "ata dependent", "depends on data")

# Places left alone, places of breaks with how often each broke a graph, and what was said.
Known = tuple[dict[str, Spot], dict[str, tuple[Spot, int]], set[str]]


def larger_inputs(inputs: int, counted: int, report: PlanReport) -> str:
    """No plan was found for inputs that take more bytes than those that plans count."""
    return (
        "inputs of a call are views of larger tensors, or share less memory, than those it was planned for: "
        f"they take {exact_bytes(inputs)} instead of {exact_bytes(counted)}; no plan for that was found, and "
        f"its step may take {exact_bytes(report.predicted_peak + inputs - counted)}, above the budget of "
        f"{exact_bytes(report.budget)} (fit with such inputs, or call with copies)"
    )


class Unplanned:
    """The code of one model that Dynamo skips, and the places at which it breaks the graph.

    strict: what would be a warning is an error.
    counted: what such code saves is measured, and taken from the budget.
    """

    def __init__(self, strict: bool, counted: bool) -> None:
        self.strict = strict
        self._consequence = (
            "nothing of it is recomputed" if counted else "the budget does not cover what it saves"
        )
        self._said: set[str] = set()
        self._left: dict[str, Spot] = {}
        # By place; the number of times that it broke a graph there.
        self._breaks: dict[str, tuple[Spot, int]] = {}
        self._first: Callable[[], object] | None = None

    def told(self, first: Callable[[], object]) -> AbstractContextManager[None]:
        """Call this before the first such code runs."""
        return replaced(self, "_first", first)

    def _note_first(self) -> None:
        if self.is_empty and self._first is not None:
            self._first()

    def known(self) -> Known:
        """The skipped and broken places until now."""
        return dict(self._left), dict(self._breaks), set(self._said)

    def forget_since(self, known: Known) -> bool:
        """Forgets the places added since then. False if there are none."""
        if known[:2] == (self._left, self._breaks):
            return False
        self._left, self._breaks, self._said = known
        return True

    def left_alone(self, spot: Spot) -> None:
        self._note_first()
        self._left.setdefault(spot.place, spot)
        self.say(
            spot.place,
            f"{spot} has no plan and runs as in eager mode, {self._consequence}: {spot.reason}",
        )

    def broken(self, spot: Spot) -> None:
        self._note_first()
        _, times = self._breaks.get(spot.place, (spot, 0))
        self._breaks[spot.place] = spot, times + 1

    def say_broken(self, graphs: int, between: int) -> None:
        """Warns of the number of graphs, and of the bytes that pass between them."""
        advice = ""
        if any(word in spot.reason for spot, _ in self._breaks.values() for word in _DATA):
            advice = (
                "; shapes and branches that do not depend on data do not break it (mixtures of transformers: "
                'experts_implementation="grouped_mm")'
            )
        log.warning(
            "the model runs as %d graphs, each planned by itself within the common budget; nothing is "
            "recomputed across a graph break, and %s that pass between graphs stay in memory; breaks: %s%s",
            graphs,
            format_bytes(between),
            self.where(),
            advice,
        )

    @property
    def is_broken(self) -> bool:
        return bool(self._breaks)

    @property
    def is_empty(self) -> bool:
        """True if nothing was skipped or broken."""
        return not self._breaks and not self._left

    def say(self, about: str, text: str) -> None:
        """A warning, once for each matter; with strict=True an error, every time."""
        if self.strict:
            raise UnsupportedModelError(f"strict=True: {text}")
        if about not in self._said:
            self._said.add(about)
            log.warning("%s", text)

    def say_saved(self, size: int) -> None:
        """Warns of bytes that eager code before a graph saves for the backward."""
        self.say(
            "saved",
            f"code beside the planned graphs saves {format_bytes(size)} for the backward, beyond the budget "
            f"({self.where()})",
        )

    def where(self) -> str:
        """The places that are known."""
        spots = list({**{place: spot for place, (spot, _) in self._breaks.items()}, **self._left}.values())
        if not spots:
            return "TORCH_LOGS=graph_breaks says why"
        named = [f"{spot}: {spot.reason}" for spot in spots[:_NAMED]]
        more = len(spots) - len(named)
        return "; ".join(named) + (f"; {more} more" if more else "")


def saved_before(args: Iterable[Any], ours: Iterable[Any]) -> int:
    """Bytes saved by the autograd graph behind these tensors, up to our own nodes.

    Without parameters and private state of nodes.
    """
    nodes = [arg.grad_fn for arg in args if isinstance(arg, torch.Tensor) and arg.grad_fn is not None]
    seen, storages = set(map(id, ours)), dict[int, int]()
    keep: list[Any] = []
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        keep.append(node)
        nodes += [next_node for next_node, _ in node.next_functions if next_node is not None]
        for name in dir(node):
            if name.startswith("_saved_"):
                for tensor in _saved(node, name):
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _saved(node: Any, name: str) -> list[torch.Tensor]:
    try:
        value = getattr(node, name)
    except RuntimeError:  # freed already
        return []
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor) and not _is_leaf(item)]


def _is_leaf(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)
