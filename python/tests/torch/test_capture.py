"""What a captured step looks like as a graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
import remat
import remat.torch
import torch
from models import case
from torch import nn
from training import fit


def graph_of(name: str) -> dict:
    model, inputs = case(name).build()
    return remat.torch.capture(model, inputs).to_dict()


@pytest.fixture(scope="module")
def encoder() -> dict:
    return graph_of("encoder")


@pytest.fixture(scope="module")
def conv_net() -> dict:
    return graph_of("conv_net")


def test_views_are_no_ops_of_the_graph(encoder: dict) -> None:
    views = {"aten.view.default", "aten.t.default", "aten.transpose.int", "aten._unsafe_view.default"}
    kinds = {op["kind"] for op in encoder["ops"]}
    assert "aten.addmm.default" in kinds
    assert not kinds & views
    assert all("getitem" not in kind for kind in kinds)


def test_the_loss_separates_forward_and_backward_and_runs_once(encoder: dict) -> None:
    phases = [op["phase"] for op in encoder["ops"]]
    loss = phases.index("loss")
    assert set(phases[:loss]) == {"forward"}
    assert set(phases[loss + 1 :]) == {"backward"}
    assert encoder["ops"][loss]["recompute"] == "never"


@pytest.mark.parametrize("outputs", ["held", "dropped"])
def test_what_the_caller_holds_is_made_once(outputs: str) -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 512))
    ops = fit(model, torch.randn(4, 8), 1 << 30, outputs=outputs).remat.graph.to_dict()["ops"]
    once = [op.get("recompute") == "never" for op in ops if op["phase"] == "forward"]
    assert once == [False, False, outputs == "held"]


def test_random_ops_keep_their_order_and_may_run_again(encoder: dict) -> None:
    dropouts = [i for i, op in enumerate(encoder["ops"]) if op["kind"] == "aten.native_dropout.default"]
    # In each of two layers: of the attention, of its output, two in the feed-forward.
    assert len(dropouts) == 8
    for before, after in pairwise(dropouts):
        assert encoder["ops"][after]["after"] == [before]
        assert encoder["ops"][after].get("recompute", "allowed") == "allowed"


def test_buffers_are_overwritten_once_and_cloned_for_those_who_read_them_again(conv_net: dict) -> None:
    writes = [op for op in conv_net["ops"] if op["kind"] == "aten.copy_.default"]
    # Five layers with a mean, a variance and a counter.
    assert len(writes) == 15
    assert all(op["recompute"] == "never" and op["outputs"] == [] for op in writes)
    clones = [op for op in conv_net["ops"] if op["kind"] == "remat.clone"]
    assert len(clones) == 15
    assert all(op["recompute"] == "never" for op in clones)


def test_new_running_statistics_are_written_at_once_and_held_by_nobody(conv_net: dict) -> None:
    ops = conv_net["ops"]
    for i, op in enumerate(ops):
        if op["kind"] == "aten._native_batch_norm_legit_functional.default":
            readers = [[j for j, other in enumerate(ops) if v in other["inputs"]] for v in op["outputs"][3:]]
            assert [[ops[j]["kind"] for j in each] for each in readers] == [["aten.copy_.default"]] * 2
            assert sorted(j for each in readers for j in each) == [i + 1, i + 2]


def test_ops_of_both_halves_know_the_line_that_asked_for_them() -> None:
    class Lines(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.T).tanh().sum()

    first = Lines.forward.__code__.co_firstlineno + 1
    graph = remat.torch.capture(Lines(), torch.randn(4, 4, requires_grad=True)).to_dict()
    lines = {op.get("source", "").rpartition("/")[2] for op in graph["ops"] if op["phase"] != "loss"}
    assert lines == {f"test_capture.py:{first}"}
    assert {op["phase"] for op in graph["ops"]} == {"forward", "loss", "backward"}


def test_ops_of_several_outputs_have_a_value_for_each(conv_net: dict) -> None:
    norms = [op for op in conv_net["ops"] if op["kind"] == "aten._native_batch_norm_legit_functional.default"]
    assert [len(op["outputs"]) for op in norms] == [5] * 5


def test_sizes_are_those_of_the_storages() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
    graph = remat.torch.capture(model, torch.zeros(7, 10)).to_dict()
    sizes = [
        graph["values"][v]["bytes"] for op in graph["ops"] for v in op["outputs"] if op["phase"] == "forward"
    ]
    assert sizes == [7 * 20 * 4, 7 * 20 * 4, 7 * 4]
    resident = sum(graph["values"][v]["bytes"] for v in graph["inputs"])
    assert resident == 4 * (10 * 20 + 20 + 20 + 1 + 7 * 10)
    kept = sum(graph["values"][v]["bytes"] for v in graph["outputs"])
    # The output, its gradient, and the gradients of the parameters.
    assert kept == 4 * (7 + 7 + 10 * 20 + 20 + 20 + 1)


def test_ops_know_their_module_and_backward_ops_their_forward_op(encoder: dict) -> None:
    ops = encoder["ops"]
    first = next(op for op in ops if op.get("module") == "encoder.layers.1.linear1")
    assert first["phase"] == "forward"
    backward = [op for op in ops if op["phase"] == "backward"]
    known = [op for op in backward if op.get("forward_of") is not None]
    assert len(known) > 0.8 * len(backward)
    assert all(ops[op["forward_of"]]["phase"] == "forward" for op in known)
    layer = [op for op in known if op["kind"] == "aten.native_layer_norm_backward.default"]
    assert len(layer) == 4
    assert all(ops[op["forward_of"]]["kind"] == "aten.native_layer_norm.default" for op in layer)


def test_durations_are_measured_and_convolutions_backward_need_workspace(conv_net: dict) -> None:
    assert all(op["duration"] > 0 for op in conv_net["ops"] if op["kind"].startswith("aten."))
    workspaces = [
        op["workspace"] for op in conv_net["ops"] if op["kind"] == "aten.convolution_backward.default"
    ]
    assert max(workspaces) > 0


def test_existing_gradients_are_resident_where_the_step_adds_to_them() -> None:
    model = nn.Linear(16, 16)
    x = torch.zeros(2, 16)
    bare = remat.torch.capture(model, x).resident
    model(x).sum().backward()
    assert remat.torch.capture(model, x).resident == bare + 4 * (16 * 16 + 16)
    assert remat.torch.capture(model, x, accumulate=False).resident == bare


def test_parameters_that_the_step_does_not_read_are_resident_too() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(100, 100)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    graph = remat.torch.capture(Unused(), torch.zeros(1, 8))
    assert graph.resident == 4 * (8 * 8 + 8 + 8 + 100 * 100 + 100)


def test_a_captured_graph_is_planned_elsewhere_and_comes_back(tmp_path) -> None:
    model, inputs = case("mlp").build()
    remat.torch.capture(model, inputs, accumulate=False).save(tmp_path / "step.json")
    graph = remat.load_graph(tmp_path / "step.json")
    result = remat.plan(graph, "80%")
    assert result.plan is not None
    result.plan.save(tmp_path / "plan.json")
    fitted = fit(model, inputs, result.plan.peak, plan=str(tmp_path / "plan.json"), accumulate=False)
    assert list(fitted.remat.plan.steps) == list(result.plan.steps)
    # Some results take the place of an argument, which a graph does not say.
    assert fitted.remat.predicted_peak <= result.plan.peak


def test_capturing_leaves_no_trace_in_the_model() -> None:
    model, inputs = case("conv_net").build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    remat.torch.capture(model, inputs)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert state.equal(torch.get_rng_state())
