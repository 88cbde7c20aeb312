"""Graphs that `make_fx` traced: planned, they make the same bits, within the predicted bytes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import remat.torch
import torch
from remat.torch.base.allocator import trace_allocations
from remat.torch.base.storages import same_bits
from remat.torch.trace import inplace
from test_inplace import TYPES, _arguments, _node
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
plan_graph = partial(remat.torch.plan_graph, time_limit=None, work_limit=3_000_000)

Arguments = tuple[Any, ...]


def bytes_of(args: Any) -> int:
    storages = {t.untyped_storage() for t in tree_leaves(args) if isinstance(t, torch.Tensor)}
    return sum(storage.nbytes() for storage in storages)


def cloned(args: Arguments) -> Arguments:
    return tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, args)


@torch.no_grad()
def measured(function: Callable[..., Any], args: Arguments, held: int = 0) -> tuple[int, list[Any]]:
    """The peak of a call, arguments included, and all it leaves: results, then arguments.

    held: bytes of what the function holds itself.
    """
    with trace_allocations():
        function(*cloned(args))
    args = cloned(args)
    torch.manual_seed(5)
    with trace_allocations() as trace:
        results = function(*args)
    return trace.rise()[0] + bytes_of(args) + held, [*tree_leaves(results), *tree_leaves(args), torch.rand(3)]


def all_same(left: list[Any], right: list[Any]) -> bool:
    return all(
        same_bits(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(left, right, strict=True)
    )


def check(
    function: Callable[..., Any], args: Arguments, budget: str, mode: str = "fake"
) -> remat.torch.PlannedGraph:
    """Planned as it is traced: the same bits, and the bytes that were predicted."""
    gm = make_fx(function, tracing_mode=mode)(*cloned(args))
    planned = plan_graph(gm, args, budget)
    peak, results = measured(planned.gm, args)
    assert all_same(results, measured(gm, args)[1])
    report = planned.report
    assert peak == pytest.approx(report.predicted_peak, rel=1e-3)
    assert report.predicted_peak <= report.budget
    assert report.peak_lower_bound <= report.predicted_peak
    return planned


def potential(parameters: dict[str, torch.Tensor], x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Energy of atoms: messages along the edges of a graph, three times."""
    source, target = ends
    squares = (x[source] - x[target]).pow(2).sum(1, keepdim=True)
    messages = torch.tanh(squares @ parameters["radial"])
    for layer in range(3):
        atoms = torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages)
        atoms = torch.tanh(atoms @ parameters[f"atoms{layer}"])
        messages = torch.tanh(messages @ parameters[f"edges{layer}"] + atoms[source])
    return messages.sum()


def force_loss(
    parameters: dict[str, torch.Tensor],
    x: torch.Tensor,
    ends: torch.Tensor,
    energy: torch.Tensor,
    forces: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of energy and forces, and its gradients."""
    parameters = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    x = x.detach().requires_grad_()
    found = potential(parameters, x, ends)
    (gradient,) = torch.autograd.grad(found, x, create_graph=True)
    loss = (found - energy).pow(2) + (-gradient - forces).pow(2).mean()
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return loss.detach(), dict(zip(parameters, gradients, strict=True))


def force_inputs() -> Arguments:
    width, atoms, edges = 16, 40, 400
    torch.manual_seed(0)
    parameters = {"radial": torch.randn(1, width)}
    for layer in range(3):
        parameters[f"atoms{layer}"] = torch.randn(width, width) / 4
        parameters[f"edges{layer}"] = torch.randn(width, width) / 4
    ends = torch.randint(atoms, (2, edges))
    return parameters, torch.randn(atoms, 3), ends, torch.zeros(()), torch.randn(atoms, 3)


FIELD = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def burgers_loss(
    parameters: dict[str, torch.Tensor], points: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The residual of Burgers' equation at points (x, t), and its gradients."""
    parameters = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    points = points.detach().requires_grad_()
    u = functional_call(FIELD, parameters, (points,))
    (first,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
    loss = (first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second[:, 0]).pow(2).mean()
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return loss.detach(), dict(zip(parameters, gradients, strict=True))


def burgers_inputs() -> Arguments:
    torch.manual_seed(1)
    return {name: torch.randn_like(p) / 4 for name, p in FIELD.named_parameters()}, torch.randn(300, 2)


def trained(step: Callable[..., Any], inputs: Arguments, steps: int) -> list[torch.Tensor]:
    """Losses of so many steps, then the parameters."""
    parameters, *batch = cloned(inputs)
    losses = []
    for _ in range(steps):
        loss, gradients = step(parameters, *batch)
        losses.append(loss)
        parameters = {name: p - 0.01 * gradients[name].detach() for name, p in parameters.items()}
    return [*losses, *parameters.values()]


@pytest.mark.parametrize(
    ("loss", "inputs"),
    [(force_loss, force_inputs()), (burgers_loss, burgers_inputs())],
    ids=["forces", "pinn"],
)
def test_losses_of_derivatives_train_at_60_percent_with_the_bits_of_eager_mode(
    loss: Callable[..., Any], inputs: Arguments
) -> None:
    gm = make_fx(loss, tracing_mode="fake")(*inputs)
    whole, _ = measured(gm, inputs)
    planned = plan_graph(gm, inputs, whole * 6 // 10)
    peak, _ = measured(planned.gm, inputs)
    assert peak == pytest.approx(planned.report.predicted_peak, rel=1e-3)
    assert peak <= 0.6 * whole
    assert planned.report.recomputed_steps > 0
    with torch.no_grad():
        ours = trained(planned.gm, inputs, steps=20)
        assert all_same(ours, trained(gm, inputs, steps=20))
    assert all_same(ours, trained(loss, inputs, steps=20))
    assert not torch.equal(ours[0], ours[19]), "it learns"


# Copying what takes nested arguments, PyTorch warns of its own class.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")
def test_the_graph_comes_back_in_its_own_form() -> None:
    args = force_inputs()
    gm = make_fx(force_loss, tracing_mode="fake")(*args)
    gm.meta["whose"] = "mine"
    for node in gm.graph.nodes:
        node.meta["custom"] = {"name": node.name}
    before = str(gm.graph)
    planned = plan_graph(gm, args, "60%")
    assert str(gm.graph) == before
    assert not any("remat_origin" in node.meta for node in gm.graph.nodes)
    assert type(planned.gm).__mro__[1:] == type(gm).__mro__[1:]
    assert planned.gm.meta["whose"] == "mine"
    names = [node.name for node in planned.gm.graph.find_nodes(op="placeholder")]
    assert names == [node.name for node in gm.graph.find_nodes(op="placeholder")]
    originals = {node.name: node for node in gm.graph.nodes}
    copies = 0
    for node in planned.gm.graph.nodes:
        if node.op == "call_function":
            origin = originals[node.meta["custom"]["name"]]
            assert "remat_origin" not in node.meta
            assert node.name.startswith(origin.name)
            made, traced = (tree_leaves(each.meta["val"]) for each in (node, origin))
            assert [t.shape for t in made] == [t.shape for t in traced]
            copies += "_again" in node.name
    assert copies >= planned.report.recomputed_steps > 0
    text = planned.gm.code
    assert " = None" in text, "results are freed where Python frees them"
    assert "remat" not in text, "it is made of PyTorch's own ops"
    again = pickle.loads(pickle.dumps(planned.gm))
    compiled = torch.compile(planned.gm, backend="aot_eager")
    with torch.no_grad():
        results = tree_leaves(gm(*args))
        for other in (again, copy.deepcopy(planned.gm), compiled):
            assert all_same(tree_leaves(other(*args)), results)


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4),
    )  # fmt: skip


def step_of(model: nn.Module, calls: int = 1) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """A step with gradients, its parameters and buffers."""

    def step(parameters: dict[str, Any], buffers: dict[str, Any], x: torch.Tensor) -> Any:
        parameters = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        for _ in range(calls):
            out = functional_call(model, (parameters, buffers), (x,))
        loss = out.float().pow(2).mean()
        return loss.detach(), torch.autograd.grad(loss, list(parameters.values()))

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    return step, parameters, dict(model.named_buffers())


def test_running_statistics_and_masks_are_those_of_a_single_run() -> None:
    torch.manual_seed(2)
    step, parameters, buffers = step_of(conv_net())
    args = (parameters, buffers, torch.randn(8, 3, 8, 8))
    planned = check(step, args, "85%")
    kinds = [str(node.target) for node in planned.gm.graph.nodes if "_again" in node.name]
    assert any("batch_norm" in kind for kind in kinds), "it runs again"
    assert not any("bernoulli" in kind for kind in kinds)


def test_a_model_that_is_called_twice_updates_its_statistics_twice() -> None:
    torch.manual_seed(2)
    step, parameters, buffers = step_of(conv_net(), calls=2)
    check(step, (parameters, buffers, torch.randn(8, 3, 8, 8)), "90%")


def test_masks_fill_tensors_as_they_lie_in_memory() -> None:
    """Dropout of a transposed tensor is drawn in place, and `functionalize` makes it contiguous."""
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    step, parameters, buffers = step_of(layer)
    args = (parameters, buffers, torch.randn(4, 12, 16))
    gm = make_fx(step, tracing_mode="fake")(*args)
    drawn = gm.graph.find_nodes(op="call_function", target=aten.bernoulli_.float)
    assert any(not node.args[0].meta["val"].is_contiguous() for node in drawn)
    check(step, args, "75%")


def adam(parameters: dict[str, Any], moments: dict[str, Any], x: torch.Tensor) -> Any:
    parameters_now = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    for layer in range(len(parameters)):
        x = torch.tanh(x @ parameters_now[f"layer{layer}"])
    loss = x.pow(2).mean()
    gradients = torch.autograd.grad(loss, list(parameters_now.values()))
    for name, gradient in zip(parameters, gradients, strict=True):
        first, second = moments[name]
        first.mul_(0.9).add_(gradient)
        second.mul_(0.99).addcmul_(gradient, gradient)
        parameters[name].addcdiv_(first, second.sqrt().add_(1e-8), value=-0.01)
    return loss.detach(), parameters


def test_an_optimizer_in_the_graph_writes_to_the_inputs() -> None:
    torch.manual_seed(6)
    parameters = {f"layer{i}": torch.randn(16, 16) / 4 for i in range(8)}
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in parameters.items()}
    args = (parameters, moments, torch.randn(200, 16))
    planned = check(adam, args, "75%")
    with torch.no_grad():
        given = cloned(args)
        _, returned = planned.gm(*given)
    assert all(returned[name] is given[0][name] for name in parameters)


def overwritten_early(x: torch.Tensor, w: torch.Tensor) -> Any:
    """What is made from x is wanted again after x is overwritten."""
    y = (x @ w).sin()
    total = (y.exp() @ w).sum()
    x.copy_(x * 2)
    wide = torch.cat([x, x, x], 1).cos().sum()
    return total * wide + y.sum()


@pytest.mark.parametrize("budget", ["100%", "90%"])
def test_what_is_read_again_is_overwritten_last(budget: str) -> None:
    torch.manual_seed(3)
    planned = check(overwritten_early, (torch.randn(60, 30), torch.randn(30, 30)), budget)
    writes = planned.gm.graph.find_nodes(op="call_function", target=aten.copy_.default)
    assert len(writes) == 1
    reads = [node for node in writes[0].args[0].users if node is not writes[0]]
    place = {node: i for i, node in enumerate(planned.gm.graph.nodes)}
    assert all(place[node] < place[writes[0]] for node in reads)


def test_what_is_known_to_work_works_where_inputs_are_overwritten() -> None:
    torch.manual_seed(2)
    step, parameters, buffers = step_of(conv_net())
    args = (parameters, buffers, torch.randn(8, 3, 8, 8))
    gm = make_fx(step, tracing_mode="fake")(*args)
    with pytest.raises(remat.NoPlanError) as raised:
        plan_graph(gm, args, "10%")
    assert isinstance(raised.value, remat.InfeasibleError)
    known = raised.value.smallest_known
    planned = plan_graph(gm, args, known)
    assert raised.value.floor <= planned.report.predicted_peak <= known
    peak, results = measured(planned.gm, args)
    assert peak <= known
    assert all_same(results, measured(gm, args)[1])
    again = remat.torch.plan_graph(gm, args, known, plan=planned.report.plan)
    assert str(again.gm.graph) == str(planned.gm.graph)


def parts(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = torch.zeros(x.shape[0], 2 * y.shape[1])
    z[:, : y.shape[1]] = x @ y
    z[:, y.shape[1] :] = (x @ y).sin()
    z[0] = 1.0
    x.add_(1)
    return {"z": z.cos(), "view": x.view(-1), "x": x}, [y, y.t()], None, 3


def test_results_may_be_nested_and_inputs_and_no_tensors() -> None:
    torch.manual_seed(4)
    args = (torch.randn(30, 20), torch.randn(20, 10))
    planned = check(parts, args, "100%")
    results, (same, _), nothing, three = planned.gm(*args)
    assert results["x"] is args[0]
    assert same is args[1]
    assert (nothing, three) == (None, 3)


def test_constants_and_shared_memory_count_once() -> None:
    constant = torch.randn(50, 50)
    gm = make_fx(lambda x, y: (x @ constant).sin() @ constant + y)(torch.randn(50, 50), torch.randn(50, 50))
    x = torch.randn(50, 50)
    planned = plan_graph(gm, (x, x.t()), "100%")
    assert planned.report.graph.resident == 2 * 10_000
    peak, results = measured(planned.gm, (x, x.t()))
    assert all_same(results, measured(gm, (x, x.t()))[1])
    peak, _ = measured(lambda x: planned.gm(x, x.t()), (x,), held=10_000)
    assert peak == planned.report.predicted_peak


def test_traced_with_real_tensors_it_is_planned_as_well() -> None:
    check(burgers_loss, burgers_inputs(), "60%", mode="real")


def test_tensors_without_data_and_a_given_plan_make_the_same_graph(tmp_path: Path) -> None:
    args = burgers_inputs()
    gm = make_fx(burgers_loss, tracing_mode="fake")(*args)
    with FakeTensorMode() as mode:
        fakes = tree_map(mode.from_tensor, args)
    planned = plan_graph(gm, fakes, "60%", costs="roofline", device="a100")
    planned.report.plan.save(tmp_path / "plan.json")
    given = remat.torch.plan_graph(gm, args, "60%", plan=tmp_path / "plan.json")
    assert given.report.planner == "given"
    assert str(given.gm.graph) == str(planned.gm.graph)


def test_a_budget_below_the_floor_is_an_error_that_names_one_that_works() -> None:
    args = burgers_inputs()
    gm = make_fx(burgers_loss, tracing_mode="fake")(*args)
    with pytest.raises(remat.InfeasibleError) as raised:
        plan_graph(gm, args, "1%")
    assert "\n" not in str(raised.value)
    known = raised.value.smallest_known
    assert f"{known} bytes" in str(raised.value)
    assert plan_graph(gm, args, known).report.predicted_peak <= known


X = torch.ones(4, 4)


@pytest.mark.parametrize(
    ("make", "args", "message"),
    [
        (lambda: nn.Linear(2, 2), (X,), "an fx.GraphModule, not Linear"),
        (lambda: make_fx(torch.sin)(X), X, "a tuple of the arguments, not Tensor"),
        (lambda: make_fx(torch.sin)(X), (X, X), "1 inputs (arg0_1), the example inputs are 2"),
        (lambda: make_fx(torch.sin)(X), (X[0],), "traced as (4, 4), and is (4,) in the example inputs"),
        (lambda: fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))), (X,), "call_module 0 hides its ops"),
        (lambda: fx.symbolic_trace(lambda x: x.sin()), (X,), "call_method sin hides its ops"),
        (lambda: fx.symbolic_trace(lambda x: torch.sin(x)), (X,), "sin is no ATen op"),
        (lambda: make_fx(lambda x: x.nonzero() + 1)(X), (X,), "what aten.nonzero.default makes depends"),
        (lambda: make_fx(lambda x: x.to_sparse())(X), (X,), "is a sparse_coo tensor"),
        (
            lambda: make_fx(lambda x: x.sin() + x.shape[0], tracing_mode="symbolic")(X),
            (X,),
            "plans need static shapes",
        ),
        (
            lambda: make_fx(lambda x: x.sin() + x.shape[0] * 2, tracing_mode="symbolic")(X),
            (X,),
            "makes a size, or one that depends on data",
        ),
        (lambda: make_fx(lambda x, y: x.add_(1) + y)(X, X[0]), (X, X[0]), "another input shows the same"),
        (lambda: make_fx(lambda x: x)(X), (X,), "the graph has no ops"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(make: Callable[[], Any], args: Any, message: str) -> None:
    with pytest.raises(remat.RematError) as raised:
        plan_graph(make(), args, "100%")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("budget", "options", "message"),
    [
        ("auto", {}, 'budget "auto" is for fit'),
        (0.5, {}, 'did you mean "50%"'),
        ("50%", {"host": "25GB/s"}, "no option 'host'; there are budget_on, reserve"),
        ("50%", {"order": "any"}, 'order must be "fixed" or "free"'),
    ],
)
def test_options_are_checked(budget: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(remat.RematError) as raised:
        remat.torch.plan_graph(make_fx(torch.sin)(X), (X,), budget, **options)
    assert message in str(raised.value)


@pytest.mark.parametrize("op", inplace._OVER, ids=str)
def test_ops_of_pytorch_write_over_an_argument_as_the_compared_form_does(op: Any) -> None:
    written = 0
    for dtype in TYPES:
        torch.manual_seed(0)
        for args in _arguments(str(op), dtype, 131):
            try:
                expected = op(*args)
            except (RuntimeError, NotImplementedError):  # not for this type
                continue
            node = _node(op, args)
            for index in range(inplace._OVER[op][1]):
                argument = args[index]
                like = isinstance(argument, torch.Tensor) and argument.shape == expected.shape
                if not like or not inplace._is_same(node, index):
                    continue
                written += 1
                graph = fx.Graph()
                nodes = [graph.placeholder(f"x{i}") for i in range(len(args))]
                graph.output(inplace.write_over(graph, inplace.over(node, index), nodes, "made"))
                given = copy.deepcopy(args)
                result = fx.GraphModule({}, graph)(*given)
                assert same_bits(result, expected), (dtype, index)
                assert result.data_ptr() == given[index].data_ptr()
    assert written > 0
