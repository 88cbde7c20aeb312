"""Random modules as in eager mode, and whether the grammar finds what was mended once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from grammar.check import check
from remat.torch.cost.layouts import Layouts
from remat.torch.executors import regions, steps
from remat.torch.executors.recording import tensors_like
from remat.torch.run import replay
from remat.torch.session import region
from remat.torch.session.prepare import Preparation
from remat.torch.session.untouched import Snapshot
from remat.torch.trace import inplace, kernels
from remat.torch.trace.floats import Marks
from remat.torch.trace.masks import Masks
from remat.torch.trace.tangents import TangentStrides
from torch.nn.functional import scaled_dot_product_attention as attention

MODULES, EACH = 20, 5
# "100%" of a model in several graphs is refused; not so with a number.
SEVERAL_GRAPHS = "calls in flight together"


# PyTorch's own, of modules of complex numbers.
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(EACH, MODULES, EACH))]
)
def test_random_modules_are_as_in_eager_mode_and_within_their_budgets(first: int) -> None:
    outcomes = [check(n) for n in range(first, first + EACH)]
    wrong = [each.line for each in outcomes if each.kind == "wrong"]
    assert [line for line in wrong if SEVERAL_GRAPHS not in line] == []


# The last of them were wrong once: predictions, or budgets that were named and then refused.
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(
    "number",
    [100, *(pytest.param(n, marks=pytest.mark.long) for n in range(101, 106)), 40, 120, 223, 232, 478],
)
def test_random_modules_in_eager_mode(number: int) -> None:
    outcome = check(number, "eager")
    assert outcome.kind != "wrong", outcome.line


def masks_show() -> bool:
    """Does attention make other bits with a mask than without? That depends on the processor."""
    torch.manual_seed(0)
    for length, width in itertools.product((3, 5, 8, 33), (4, 8, 16)):
        q, k, v = (torch.randn(2, 2, length, width) for _ in range(3))
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        masked, causal = (attention(q, k, v, **how) for how in ({"attn_mask": mask}, {"is_causal": True}))
        if not masked.equal(causal):
            return True
    return False


def masks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    if not masks_show():
        pytest.skip("on this processor attention makes the same bits with a mask and without")
    monkeypatch.setattr(Masks, "left_out", lambda self, args: frozenset())


def fit_leaves_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Snapshot, "restore", lambda self: None)


def strides_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "EagerStrides", contextlib.nullcontext)


def gradients_come_as_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TangentStrides, "of", lambda self, output, tangent: None)


def late_gradients_are_summed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "will_execute", lambda node: False)


def autocast_casts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "cast_once", contextlib.nullcontext)


def real_layouts_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layouts, "compare", lambda self, step, costs: None)


def every_sum_of_gradients_is_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """In simulated steps under checkpoints."""

    def adds_in_place(self: Any, op: Any, position: int) -> bool:
        first = tensors_like(op.args)[:2]
        return op.func is torch.ops.aten.add.Tensor and len({each.storage_bytes for each in first}) == 1

    monkeypatch.setattr(steps._Building, "_adds_in_place", adds_in_place)


def copies_run_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models with policies."""
    monkeypatch.setattr(regions.Around, "__deepcopy__", lambda self, memo: self, raising=False)


def numbers_stay_as_they_were_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Marks, "put", lambda self, joint, numbers: None)


def products_with_numbers_are_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which rounds otherwise in 16 bits."""
    aten = torch.ops.aten
    form = inplace.Over("mul.Scalar", lambda *args, out: aten.mul_.Scalar(*args))
    monkeypatch.setitem(inplace._OVER, aten.mul.Scalar, (form, 1))
    monkeypatch.setattr(inplace, "same_over", lambda node, write, index, kind: True)


@pytest.mark.parametrize(
    ("take_out", "numbers"),
    [
        # On some processor in these sizes, on another in those.
        (masks_stay, [312, 388, 1241]),
        # Of a number: what is left of a tensor is memory that nothing has written, and can be what it was.
        pytest.param(fit_leaves_traces, [329], marks=pytest.mark.long),
        (strides_are_lost, [511]),
        (late_gradients_are_summed_apart, [18]),
        (gradients_come_as_outputs_are, [89]),
        (autocast_casts_each_time, [88]),
        (every_sum_of_gradients_is_in_place, [79]),
        (copies_run_the_original, [474]),
        (numbers_stay_as_they_were_traced, [575]),
        (products_with_numbers_are_in_place, [96]),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_the_grammar_finds_what_was_mended(
    monkeypatch: pytest.MonkeyPatch, take_out: Callable[[pytest.MonkeyPatch], None], numbers: list[int]
) -> None:
    """PyTorch's own tracing may differ in the same. `fit` itself would find some, and take eager mode."""
    monkeypatch.setattr(Preparation, "_compare_with_eager_mode", lambda self: None)
    take_out(monkeypatch)
    assert any(check(number).kind in ("wrong", "PyTorch") for number in numbers)
