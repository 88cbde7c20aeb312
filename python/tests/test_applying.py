"""Plans as ONNX models: the results of the model, in the order of the plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
reference = pytest.importorskip("onnx.reference", reason="onnx is not installed")

BATCH, WIDTH, LAYERS = 256, 16, 6


def training_step(path: Path) -> Path:
    """x -> (MatMul -> Tanh -> Reshape) * LAYERS -> loss, and the gradients of the weights.

    Ops make the shapes of views; a view is among the results.
    """
    helper, kept = onnx.helper, []
    node = helper.make_node
    rng = np.random.default_rng(0)
    for i in range(LAYERS):
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4
        kept.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
    nodes, shown = [], "x"
    for i in range(LAYERS):
        nodes += [
            node("MatMul", [shown, f"w{i}"], [f"z{i}"], f"mm{i}"),
            node("Tanh", [f"z{i}"], [f"h{i}"], f"tanh{i}"),
            node("Shape", ["x"], [f"s{i}"], f"shape{i}"),
            node("Reshape", [f"h{i}", f"s{i}"], [f"v{i}"], f"view{i}"),
        ]
        shown = f"v{i}"
    nodes += [
        node("ReduceSum", [shown], ["loss"], "loss", keepdims=0),
        node("Constant", [], ["two"], "two", value_float=2.0),
        node("Mul", [shown, "two"], ["g"], "scaled"),
    ]
    gradient = "g"
    for i in reversed(range(LAYERS)):
        nodes += [
            node("Mul", [f"h{i}", f"h{i}"], [f"q{i}"], f"squared{i}"),
            node("Mul", [gradient, f"q{i}"], [f"d{i}"], f"through{i}"),
            node("Gemm", [f"v{i - 1}" if i else "x", f"d{i}"], [f"dw{i}"], f"weight{i}", transA=1),
            node("Gemm", [f"d{i}", f"w{i}"], [f"dx{i}"], f"input{i}", transB=1),
        ]
        gradient = f"dx{i}"
    info = helper.make_tensor_value_info
    outputs = [info("loss", 1, []), info("v1", 1, ["batch", WIDTH])]
    outputs += [info(f"dw{i}", 1, [WIDTH, WIDTH]) for i in range(LAYERS)]
    graph = helper.make_graph(nodes, "step", [info("x", 1, ["batch", WIDTH])], outputs, kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def results(path: Path) -> list[Any]:
    given = {"x": np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype(np.float32)}
    found: list[Any] = reference.ReferenceEvaluator(str(path)).run(None, given)
    return found


def same(left: list[Any], right: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def plan_of(model: Path, budget: str, **options: Any) -> remat.Plan:
    graph = remat.convert(model, dims={"batch": BATCH})
    found = remat.plan(graph, budget, time_limit=None, work_limit=500_000, **options).plan
    assert found is not None
    return found


@pytest.mark.parametrize(("budget", "order"), [("100%", "fixed"), ("70%", "fixed"), ("70%", "free")])
def test_the_planned_model_computes_the_same(tmp_path: Path, budget: str, order: str) -> None:
    model, out = training_step(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    plan = plan_of(model, budget, order=order)
    plan.save(tmp_path / "plan.json")
    applied = remat.apply(model, tmp_path / "plan.json", out, dims={"batch": BATCH})
    assert applied.peak == plan.peak
    assert same(results(out), results(model))
    names = [node.name for node in onnx.load(out).graph.node]
    assert len(names) == len(set(names))
    graph = remat.convert(out)
    remat.check(graph, remat.Plan(graph, range(graph.num_ops)))
    assert graph.keep_all_peak == plan.peak, "in its own order it needs what the plan does"
    if budget != "100%":
        assert any(name.startswith("tanh") and name.endswith("_again") for name in names)


def branching(path: Path) -> Path:
    """A body that reads a tensor from outside, which may run again."""
    helper = onnx.helper
    node, info = helper.make_node, helper.make_tensor_value_info
    branches = [
        helper.make_graph([node(kind, ["h"], [f"{kind}_out"])], kind, [], [info(f"{kind}_out", 1, [256, 16])])
        for kind in ("Sin", "Cos")
    ]
    nodes = [
        node("Tanh", ["x"], ["h"], "h"),
        node("MatMul", ["h", "w"], ["wide"], "widen"),
        node("ReduceSum", ["wide"], ["total"], "sum", keepdims=0),
        node("Cast", ["total"], ["way"], "cast", to=9),
        node("If", ["way"], ["y"], "if", then_branch=branches[0], else_branch=branches[1]),
    ]
    weight = onnx.numpy_helper.from_array(np.ones((16, 64), np.float32), "w")
    graph = helper.make_graph(nodes, "ways", [info("x", 1, [256, 16])], [info("y", 1, [256, 16])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def test_bodies_read_the_newest_instance(tmp_path: Path) -> None:
    model, out = branching(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    with pytest.warns(UserWarning, match="durations by bytes alone for: If"):
        graph = remat.convert(model)
    remat.apply(model, remat.Plan(graph, [0, 1, 2, 3, 0, 4]), out)
    planned = onnx.load(out)
    assert [node.name for node in planned.graph.node] == ["h", "widen", "sum", "cast", "h_again", "if"]
    branch = planned.graph.node[-1].attribute[0].g
    assert branch.node[0].input[0] == planned.graph.node[4].output[0] == "h_again"
    assert same(results(out), results(model))


def error_of(*args: Any, **options: Any) -> str:
    with pytest.raises(remat.RematError) as raised:
        remat.apply(*args, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_what_cannot_be_applied_is_said_in_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out, dims = training_step(tmp_path / "m.onnx"), tmp_path / "out.onnx", {"batch": BATCH}
    plan = plan_of(model, "100%")
    plan.save(tmp_path / "plan.json")
    missing = tmp_path / "no.onnx"
    assert error_of(missing, plan, out) == f"cannot read {missing}: No such file or directory"
    assert "no.json" in error_of(model, tmp_path / "no.json", out, dims=dims)
    assert "without a size" in error_of(model, plan, out)
    (tmp_path / "half.onnx").write_bytes(model.read_bytes()[:300])
    assert "not an ONNX model, or a part of one" in error_of(tmp_path / "half.onnx", plan, out, dims=dims)
    small = branching(tmp_path / "small.onnx")
    assert "op" in error_of(small, plan, out)
    assert error_of(model, plan, tmp_path / "none" / "o.onnx", dims=dims).startswith("cannot write")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "needs onnx" in error_of(model, plan, out, dims=dims)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half.onnx", "m.onnx", "plan.json", "small.onnx"]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remat.apply_command", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))


def test_the_command_writes_what_python_writes(tmp_path: Path) -> None:
    model, out = training_step(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    plan_of(model, "70%").save(tmp_path / "plan.json")
    done = run(model, tmp_path / "plan.json", "-o", out, "--dim", f"batch={BATCH}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps = " in done.stdout
    remat.apply(model, tmp_path / "plan.json", tmp_path / "other.onnx", dims={"batch": BATCH})
    assert out.read_bytes() == (tmp_path / "other.onnx").read_bytes()
    done = run(model, tmp_path / "plan.json", "-o", tmp_path / "bad.onnx")
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (1, 1, "")
    assert done.stderr.startswith(f"remat: {model}: the tensor 'x' has a dimension 'batch'")
    assert not (tmp_path / "bad.onnx").exists()
