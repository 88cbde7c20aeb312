"""Runs a training step, recorded or by a plan, and undoes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_leaves

from ..base.allocator import is_traced
from ..base.devices import runtime_of
from ..base.errors import UnsupportedModelError
from ..base.generators import generators_kept
from ..base.held import tensors_held
from ..base.in_use import in_use_on
from ..base.modes import casting, casts_apart
from ..base.private import begin_of_graph, storage_id, without_accumulate_hooks
from ..base.products import EagerProducts
from ..base.saved import digests_of, watched_saves
from ..base.storages import shown_bytes, tensor_storages
from .durations import clock_of, take_off_calls
from .ledger import Ledger
from .marks import levels_on
from .modules import Modules, modules_in, named_storages
from .online import Evictor
from .recorded import Record
from .recorder import Recorder


@dataclass(frozen=True)
class TrainingStep:
    """A step of a model, as the user trains it.

    forward: calls the model; loss: from its outputs to the differentiated value.
    parameters: those that get gradients. resident: what is there all the time: modules, arguments by
        position, arguments by name. restore: restores what a step changes besides gradients, their hooks and
        generators.
    existing: bytes of the user's gradients, which stay, if the step adds to them. Its own gradients are then
        freed at once, as if they had been added; taken: the numbers of their storages, by parameter.
    copies: bytes of the copies used to undo the step, if it runs among the user's.
    """

    forward: Callable[[], Any]
    loss: Callable[[Any], Sequence[torch.Tensor]]
    parameters: Sequence[torch.Tensor]
    resident: Sequence[Any]
    device: torch.device
    restore: Callable[[], object] = tuple
    existing: int = 0
    copies: int = 0
    taken: dict[int, int] = field(default_factory=dict)

    def run_unplanned(self) -> None:
        losses = self.loss(self.forward())
        self._backward(losses, _ones(losses))

    def run_planned(self, ledger: Ledger, dropped: Collection[int] = ()) -> None:
        """dropped: indices of outputs to drop before the backward."""
        outputs = ledger.through(self.forward)
        losses = self.loss(outputs)
        held = [each for i, each in enumerate(tensors_held(outputs)) if i not in dropped]
        # Without a loss of the user, what is differentiated are the outputs: an edge does not hold them. Who
        # has a loss holds it.
        roots = [get_gradient_edge(each) for each in losses]
        held += [each for each in losses if each.numel() == 1]
        ones = _ones(losses)
        del outputs, losses
        self._backward(roots, ones)
        del held

    def grown(self, ledger: Ledger | None) -> int | None:
        """Bytes that a forward leaves in use, by the allocator. None if it has no count, or a trace of the
        allocator itself takes memory of the process.
        """
        in_use = in_use_on(self.device)
        if in_use is None or is_traced():
            return None
        before = in_use()
        outputs = self.forward() if ledger is None else ledger.through(self.forward)
        grown = in_use() - before
        del outputs
        return grown

    def record(
        self,
        traced: bool,
        evictor: Evictor | None = None,
        before_write: Callable[[torch.Tensor], object] | None = None,
    ) -> Record:
        """traced: measure memory of ops, which is slower; else durations. evictor: keeps the
        step within a budget. before_write: called with what an op is about to write to.
        """
        clock = clock_of(self.device)
        make_recorder = partial(
            Recorder, self._modules(), evictor=evictor, before_write=before_write, begin=begin_of_graph()
        )
        if traced:
            levels = levels_on(self.device)
            # On the CPU, durations come from the other record.
            recorder = make_recorder(mark=levels.mark, clock=clock)
            with levels:
                self._recorded(recorder)
            levels.tell(recorder)
        else:
            recorder = make_recorder(clock=clock)
            self._recorded(recorder)
        take_off_calls(recorder.ops, self.device)
        found = Record(
            recorder.ops,
            recorder.values,
            runtime_of(self.device).generator_state().nbytes,
            self._beside(recorder.external),
            recorder.gradients,
            [None if value in recorder.gradients else value for value in recorder.outputs],
            self._names(recorder.addresses),
            self._sparse_gradients(),
            bool(self.existing),
            recorder.digests,
            runs_ahead=self.device.type != "cpu",
            asked_for=recorder.asked_for,
            products=recorder.products,
        )
        recorder.end()
        found.keep_gradients()
        return found

    def _sparse_gradients(self) -> int:
        found = [p.grad for p in self.parameters if p.grad is not None and p.grad.layout is not torch.strided]
        return sum(tensor_storages(found, self.device.type).values())

    def _names(self, addresses: Mapping[int, int]) -> dict[int, str]:
        """Of values that were there before."""
        known = self._named()
        return {value: known[address][0] for value, address in addresses.items() if address in known}

    def _recorded(self, recorder: Recorder) -> None:
        products = EagerProducts()
        with (
            torch.autograd.set_multithreading_enabled(False),
            products,
            recorder,
            watched_saves(recorder.pack, recorder.unpack),
            recorder.modules.watched(),
        ):
            outputs = self.forward()
            recorder.note_products(products.met)
            recorder.begin_loss(tensors_held(outputs))
            if recorder.in_autocast:
                recorder.note_digests(digests_of(outputs))
            losses = self.loss(outputs)
            if recorder.reads_other_graphs:
                raise UnsupportedModelError(
                    'executor="eager" cannot record a call that reads tensors with a graph of their own that '
                    "are no arguments (attributes, swapped parameters, tensors in objects): its backward "
                    "would go on there; pass them as arguments"
                )
            recorder.begin_backward()
            self._backward(losses, _ones(losses))
            left = [storage_id(p.grad) for p in self.parameters if has_dense_gradient(p)]
            recorder.end_backward([*left, *self.taken.values()])

    def _backward(self, roots: Sequence[Any], ones: Sequence[torch.Tensor]) -> None:
        """roots: tensors, or edges of the graph."""
        with casting(()):  # training loops leave autocast before the backward
            torch.autograd.backward(roots, ones)

    @contextmanager
    def without_traces(self) -> Iterator[None]:
        """Restores all that steps inside the block change."""
        before = [(parameter, parameter.grad) for parameter in self.parameters]
        for parameter, _ in before:
            parameter.grad = None
        with generators_kept(), casts_apart(), without_accumulate_hooks(self.parameters):
            if self.existing:
                for parameter, gradient in before:
                    if gradient is not None:
                        parameter.register_post_accumulate_grad_hook(self._take)
            try:
                yield
            finally:
                for parameter, gradient in before:
                    parameter.grad = gradient
                self.restore()

    def restore_beside_gradients(self) -> None:
        """Before a further run that adds to the gradients of the last one, or is compared with it: a model
        may choose its ops by its state or by random numbers."""
        made = [(parameter, parameter.grad) for parameter in self.parameters]
        self.restore()
        for parameter, gradient in made:
            parameter.grad = gradient

    def _take(self, parameter: torch.Tensor) -> None:
        if has_dense_gradient(parameter):
            self.taken[id(parameter)] = storage_id(parameter.grad)
        parameter.grad = None

    def adding(self) -> TrainingStep:
        """The same for a step that adds to existing gradients."""
        found = [p.grad for p in self.parameters if p.grad is not None]
        if any(each.layout is not torch.strided for each in found):
            return self  # their sum needs other memory
        return replace(self, existing=sum(tensor_storages(found, self.device.type).values()))

    def _beside(self, external: Mapping[int, int]) -> int:
        """Bytes of existing memory that ops read and that is not resident."""
        known = self.resident_bytes()
        return sum(size for address, size in external.items() if address not in known)

    def input_bytes(self) -> int:
        """Bytes of its own copies of arguments."""
        given = [item for item in self.resident if not isinstance(item, torch.nn.Module)]
        return shown_bytes(tree_leaves(given), self.device.type)

    def resident_bytes(self) -> dict[int, int]:
        return {address: size for address, (_, size) in self._named().items()}

    def resident_by_name(self) -> dict[str, int]:
        """Bytes of resident memory by name."""
        found: dict[str, int] = defaultdict(int)
        for name, size in self._named().values():
            found[name] += size
        return found

    def _named(self) -> dict[int, tuple[str, int]]:
        return named_storages(self.resident, self.device)

    def _modules(self) -> Modules:
        return Modules(*modules_in(self.resident))


def _ones(losses: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(each) for each in losses]


def has_dense_gradient(parameter: torch.Tensor) -> bool:
    return parameter.grad is not None and parameter.grad.layout is torch.strided
