"""One allocation for results: the bits of eager mode, the budget, and nobody who finds it written over."""

from __future__ import annotations

import copy
import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import CASES, case
from remat.torch.plan.arena import Placeable, arrange
from remat.torch.run import places as places_file
from remat.torch.run.placed import _tried
from remat.torch.run.places import PLACE, Checked, Place
from remat.torch.run.pool import Pool
from remat.torch.session.pipeline import Call
from remat_models.zoo import animal
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from training import fit, train

aten = torch.ops.aten


POOLS: list[weakref.ReferenceType[Pool]] = []


def pool() -> Pool:
    """Of the model that was fitted last."""
    found = POOLS[-1]()
    assert found is not None
    return found


def storage_of_pool() -> torch.UntypedStorage:
    found = pool()._storage
    assert found is not None
    return found


def lies_in(storage: torch.UntypedStorage, tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.untyped_storage().data_ptr() == storage.data_ptr()


def fitted(name: str, budget: str = "100%", **options: Any) -> tuple[nn.Module, Any]:
    gc.collect()
    model, inputs = case(name).build()
    return fit(model, inputs, budget, arena=True, **{"accumulate": False, **options}), inputs


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Pool.__init__

    def noted(self: Pool) -> None:
        made(self)
        POOLS.append(weakref.ref(self))

    monkeypatch.setattr(Pool, "__init__", noted)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    gc.collect()


@pytest.mark.parametrize(
    "name",
    [pytest.param(c.name, marks=pytest.mark.long if c.name in ("gpt", "encoder") else []) for c in CASES],
)
def test_steps_are_those_of_eager_mode_within_the_budget(name: str) -> None:
    for budget in (case(name).budgets[0], case(name).budgets[-1]):
        model, inputs = case(name).build()
        expected = train(copy.deepcopy(model), inputs)
        planned = fit(model, inputs, budget, arena=True)
        assert expected.differences(train(planned, inputs)) == []
        planned.zero_grad()
        report = max((p for p in planned.remat.parts if not p.existing_gradients), key=lambda p: p.rise)
        assert report.arena is not None
        assert report.arena.places or name == "conv_net"  # convolutions allocate what they make

        def step(model: nn.Module = planned, inputs: Any = inputs) -> None:
            model(*inputs).backward()

        step()
        planned.zero_grad()
        # The pool is there before the step.
        measured = remat.torch.measure_peak(step, resident=[planned, *inputs]) + report.arena.pool
        assert measured <= report.predicted_peak <= report.budget
        assert measured >= 0.99 * report.predicted_peak
        del planned, step


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("resnet", "100%"),
        pytest.param("bert", "100%", marks=pytest.mark.long),
        *(pytest.param(name, "50%", marks=pytest.mark.long) for name in ("vit", "unet", "gpt2")),
    ],
)
def test_the_zoo_has_the_gradients_of_eager_mode(name: str, budget: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (it needs Python 3.11)")
    z = animal(name)
    model, inputs = z.build()

    def steps(model: nn.Module) -> list[torch.Tensor]:
        torch.manual_seed(7)
        for _ in range(3):
            model.zero_grad()
            z.loss(model(**inputs) if isinstance(inputs, dict) else model(*inputs)).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    expected = steps(copy.deepcopy(model))
    options: dict[str, Any] = {"loss": z.loss, "arena": True, "accumulate": False, "work_limit": 20_000}
    try:
        planned = remat.torch.fit(model, inputs, budget, **options)
    except remat.NoPlanError as error:
        planned = remat.torch.fit(model, inputs, error.smallest_known, **options)
    found = steps(planned)
    assert len(found) == len(expected)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
    assert all(part.predicted_peak <= part.budget for part in planned.remat.parts)
    arenas = [part.arena for part in planned.remat.parts if part.arena is not None]
    assert len(arenas) == len(planned.remat.parts)
    if (name, budget) == ("bert", "100%"):
        assert all(arena.places for arena in arenas)


def test_nothing_that_leaves_a_step_lies_in_the_pool() -> None:
    model, inputs = fitted("gpt")
    loss = model(*inputs)
    loss.backward()
    storage = storage_of_pool()
    assert not lies_in(storage, loss)
    assert not any(lies_in(storage, p.grad) for p in model.parameters())


def test_the_memory_stays_and_no_step_takes_it_anew() -> None:
    model, inputs = fitted("gpt")
    model(*inputs).backward()
    storage = storage_of_pool()
    address, arena = storage.data_ptr(), model.remat.arena
    assert storage.nbytes() == arena.pool
    for _ in range(3):
        model.zero_grad()
        model(*inputs).backward()
        assert storage_of_pool().data_ptr() == address
    assert " in one allocation (arena)" in str(model.remat)
    assert "arena = " in str(model.remat.parts[0])


def test_the_memory_goes_with_the_model() -> None:
    model, inputs = fitted("mlp")
    model(*inputs).backward()
    memory = weakref.ref(pool()._own[0])
    del model
    gc.collect()
    assert memory() is None


def test_a_call_in_flight_outlives_the_model() -> None:
    expected = eager_gradients("mlp", lambda model, inputs: model(*inputs).backward())
    model, inputs = fitted("mlp")
    model(*inputs).backward()
    model.zero_grad()
    loss, parameters = model(*inputs), list(model.parameters())
    del model
    gc.collect()
    loss.backward()
    assert all(map(torch.equal, expected, [p.grad for p in parameters]))


def eager_gradients(name: str, run: Callable[[nn.Module, Any], None]) -> list[torch.Tensor | None]:
    model, inputs = case(name).build()
    torch.manual_seed(3)
    run(model, inputs)
    return [p.grad for p in model.parameters()]


def test_a_second_call_in_flight_does_without() -> None:
    def both(model: nn.Module, inputs: Any) -> None:
        first, second = model(*inputs), model(inputs[0].flip(0), *inputs[1:])
        second.backward()
        first.backward()

    expected = eager_gradients("encoder", both)
    model, inputs = fitted("encoder")
    model(*inputs).backward()
    for _ in range(2):  # then plans are made for two calls
        model.zero_grad()
        torch.manual_seed(3)
        both(model, inputs)
        assert all(map(torch.equal, expected, [p.grad for p in model.parameters()]))


def test_a_graph_that_is_kept_is_not_written_over() -> None:
    def twice(model: nn.Module, inputs: Any) -> None:
        loss = model(*inputs)
        loss.backward(retain_graph=True)
        loss.backward()

    expected = eager_gradients("encoder", twice)
    model, inputs = fitted("encoder")
    torch.manual_seed(3)
    twice(model, inputs)
    assert all(map(torch.equal, expected, [p.grad for p in model.parameters()]))
    # Held, and another call after it.
    model.zero_grad()
    torch.manual_seed(3)
    kept = model(*inputs)
    kept.backward(retain_graph=True)
    model.zero_grad()
    model(inputs[0].flip(0), *inputs[1:]).backward()
    model.zero_grad()
    kept.backward()
    once = eager_gradients("encoder", lambda model, inputs: model(*inputs).backward())
    assert all(map(torch.equal, once, [p.grad for p in model.parameters()]))


def test_hooks_that_pack_saved_tensors_find_none_of_the_pool() -> None:
    model, inputs = fitted("encoder")
    model(*inputs).backward()
    storage, packed = storage_of_pool(), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    model.zero_grad()
    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(*inputs)
    assert packed
    assert not any(lies_in(storage, tensor) for tensor in packed)
    loss.backward()
    expected = eager_gradients("encoder", lambda model, inputs: model(*inputs).backward())
    assert all(map(torch.equal, expected, [p.grad for p in model.parameters()]))


def test_a_saved_tensor_that_somebody_holds_keeps_its_numbers() -> None:
    model, inputs = fitted("encoder")
    model(*inputs).backward()
    storage = storage_of_pool()
    loss = model(*inputs)
    node = loss.grad_fn
    saved = [t for t in node.saved_tensors if isinstance(t, torch.Tensor) and lies_in(storage, t)]
    large = max(saved, key=lambda tensor: tensor.numel())
    before = large.clone()
    del loss, node, saved
    model(inputs[0].flip(0), *inputs[1:]).backward()
    assert torch.equal(before, large)


def test_threads_do_not_meet_in_the_pool() -> None:
    model, inputs = fitted("mlp", accumulate=None)
    alone = copy.deepcopy(case("mlp").build()[0])
    alone(*inputs).backward()
    failed: list[str] = []

    def steps() -> None:
        for _ in range(5):
            found = torch.autograd.grad(model(*inputs), list(model.parameters()))
            if not all(map(torch.equal, found, [p.grad for p in alone.parameters()])):
                failed.append("differs")

    threads = [threading.Thread(target=steps) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_step_that_is_verified_is_that_of_the_pool() -> None:
    model, inputs = fitted("encoder", verify=True)
    model(*inputs).backward()
    assert storage_of_pool().nbytes() == model.remat.arena.pool


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arena": 1}, "arena must be True or False, not 1"),
        ({"arena": True, "executor": "inductor"}, 'needs executor="boxed"'),
        ({"arena": True, "host": "1GB/s"}, "host= do not go together"),
        ({"arena": True, "group": object()}, "group= do not go together"),
        ({"arena": True, "budget_on": "reserved"}, 'arena=True needs budget_on="peak"'),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.UsageError, match=message):
        fit(model, inputs, "100%", **options)


def test_other_devices_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Call, "device", torch.device("xpu", 0))
    model, inputs = case("mlp").build()
    with pytest.raises(Exception, match=r"arena=True is for the CPU, not for xpu:0.*torch\.cuda\.MemPool"):
        fit(model, inputs, "100%", arena=True)


def test_places_that_overlap_are_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    marked = places_file.Places.mark

    def at_zero(self: Any, node: fx.Node, *rest: Any) -> None:
        marked(self, node, *rest)
        if PLACE in node.meta:
            place = node.meta[PLACE]
            node.meta[PLACE] = Place(place.form, (0,) * len(place.offsets))

    monkeypatch.setattr(places_file.Places, "mark", at_zero)
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%", arena=True)
    assert not fitted.remat.parts
    assert re.search(r"runs as in eager mode.* is written to where .* is, which is read later", caplog.text)


def traced(run: Callable[..., Any], *inputs: torch.Tensor) -> fx.Node:
    """The last op of a traced function."""
    graph = make_fx(run, tracing_mode="fake")(*inputs).graph
    return [node for node in graph.nodes if node.op == "call_function" and "getitem" not in str(node)][-1]


def test_forms_are_those_that_make_the_same_bits_without_a_copy() -> None:
    x, weight = torch.randn(32, 48), torch.randn(48)
    with torch.no_grad():
        sum_of = _tried(traced(lambda x: aten.add.Tensor(x, x), x))
        norm = _tried(traced(lambda x, w: aten.native_layer_norm.default(x, [48], w, w, 1e-5), x, weight))
        scatter = _tried(traced(lambda x, w: aten.select_scatter.default(x, w, 0, 1), x, weight))
        rectified = _tried(traced(aten.relu.default, x))
    assert sum_of.form is not None
    assert sum_of.reads_pool
    assert rectified.form is not None
    assert norm.form is None  # its `out` form copies
    assert norm.reads_pool
    assert not scatter.reads_pool  # it copies all that is in the storage


def test_an_op_that_meets_other_strides_allocates_its_result() -> None:
    x = torch.randn(6, 8)
    node = traced(aten.relu.default, x)
    form = _tried(node).form
    assert form is not None
    node.meta[PLACE] = Place(form, (0,))
    others: set[fx.Node] = set()
    checked, place = Checked(node, aten.relu.default, others), torch.empty(6, 8)
    assert checked(x, out=place).data_ptr() == place.data_ptr()
    assert not others
    turned = torch.randn(8, 6).t()
    result = checked(turned, out=place)
    assert result.data_ptr() != place.data_ptr()
    assert result.stride() == turned.relu().stride()
    assert others == {node}


@pytest.mark.parametrize(
    "seed", [0, 2, 6, *(pytest.param(s, marks=pytest.mark.long) for s in (1, 3, 4, 5, 7))]
)
def test_a_pool_fits_where_the_plan_does(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    terminal = [sys.executable, "-m", "remat", "generate", "random_layered", "--nodes", "60"]
    subprocess.run([*terminal, "--seed", str(seed), "-o", str(path)], check=True, stdout=subprocess.DEVNULL)
    graph = remat.load_graph(path)
    plan = remat.plan(graph, "80%", work_limit=2_000_000).plan
    assert plan is not None
    every = Placeable(dict.fromkeys(range(0, graph.num_ops, 1 + seed % 3), None), frozenset(graph.outputs))
    whole = arrange(graph, plan, every)
    for limit in (plan.peak, (plan.peak + whole.peak) // 2, whole.peak):
        arena = arrange(graph, plan, every, limit)
        assert arena.peak <= limit
        assert max(arena.memory) == arena.peak
        lives = remat.layout(graph, plan, work_limit=1, time_limit=None).layout
        assert lives is not None
        placed = [
            (b.first, b.end, arena.places[b.first, b.value], b.bytes)
            for b in lives.buffers
            if b.value is not None and (b.first, b.value) in arena.places
        ]
        assert len(placed) == len(arena.places)
        for i, (first, end, offset, size) in enumerate(placed):
            assert offset % 64 == 0
            assert offset + size <= arena.pool
            for other_first, other_end, other, other_size in placed[:i]:
                if first < other_end and other_first < end:
                    assert offset + size <= other or other + other_size <= offset


def test_rows_of_live_bytes_are_not_those_of_an_arena() -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.UsageError, match="arena=True is for fit"):
        remat.torch.sweep(model, inputs, arena=True, points=2)
    with pytest.raises(remat.UsageError, match="largest_batch: arena=True"):
        remat.torch.largest_batch(model, lambda size: torch.randn(size, 128), "1GiB", arena=True)
