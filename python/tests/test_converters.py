"""Graphs of other programs: what becomes of them, and one line for those that are none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx_models
import pytest
import remat

COMMAND = Path(remat.__file__).parent / "bin" / "remat"
A100 = remat.parse_device("a100")
NEEDED = {"onnx": "onnx", "dot": "pydot", "stablehlo": "jaxlib", "networkx": "networkx"}
DOT = """digraph net {
  x [input=true, bytes="4KiB"];
  conv [bytes=400, duration=30, workspace=7, label="conv1"];
  subgraph cluster_tail { relu [bytes=400, duration=5]; y [bytes=4, output=true, recompute=never]; }
  x -> conv -> relu -> y;
  conv:east -> y;
}
"""
STABLEHLO = """module @small {
  func.func public @main(%x: tensor<8x16xf32>, %w: tensor<16x4xbf16>) -> tensor<8x4xf32> {
    %0 = stablehlo.convert %w : (tensor<16x4xbf16>) -> tensor<16x4xf32>
    %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] :
      (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %2 = call @relu(%1) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.reshape %2 : (tensor<8x4xf32>) -> tensor<32xf32>
    %4 = stablehlo.reshape %3 : (tensor<32xf32>) -> tensor<8x4xf32>
    %5 = stablehlo.custom_call @mine(%4) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %5 : tensor<8x4xf32>
  }
  func.func private @relu(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<8x4xf32>
    %0 = stablehlo.maximum %x, %c : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
"""


def need(format: str) -> None:
    """Skips the test where the package that reads the format is not installed."""
    package = NEEDED[format]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def duration(flops: float, moved: int) -> int:
    seconds = A100.launch_seconds + max(flops / A100.flops_per_second, moved / A100.bytes_per_second)
    return max(1, round(seconds * 1e9))


def write(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def error_of(source: Any, **options: Any) -> str:
    with pytest.raises(remat.RematError) as raised:
        remat.convert(source, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def planned(graph: remat.Graph, budget: str = "90%") -> remat.PlanResult:
    """A plan of the graph that `check` confirms, if there is one."""
    result = remat.plan(graph, budget, time_limit=1, order="free")
    if result.plan is not None:
        remat.check(graph, result.plan)
    return result


def test_an_onnx_model_has_weights_as_inputs_and_views_without_ops(tmp_path: Path) -> None:
    need("onnx")
    graph = remat.convert(onnx_models.two_layers(tmp_path / "m.onnx"))
    assert [op.name for op in graph.ops] == ["first", "relu", "second", "softmax"]
    assert [op.kind for op in graph.ops] == ["MatMul", "Relu", "MatMul", "Softmax"]
    assert {graph.value_name(v): int(graph.bytes[v]) for v in graph.inputs} == {
        "w1": 2048,
        "w2": 512,
        "shape": 16,
        "x": 512,
    }
    relu, second = graph.op(1), graph.op(2)
    assert relu.outputs[0] in second.inputs
    assert graph.op(0).duration == duration(2 * 8 * 16 * 32, 512 + 2048 + 1024)
    assert graph.op(3).duration == duration(5 * 32, 128 + 128)
    assert [graph.value_name(v) for v in graph.outputs] == ["y"]
    assert planned(graph, "100%").plan is not None


def test_dimensions_with_a_name_need_a_size(tmp_path: Path) -> None:
    need("onnx")
    free = onnx_models.two_layers(tmp_path / "m.onnx", "batch")
    assert remat.convert(free, dims={"batch": 8}) == remat.convert(
        onnx_models.two_layers(tmp_path / "n.onnx")
    )
    assert f"{free}: the tensor 'x' has a dimension 'batch' without a size; give one: " in error_of(free)


def test_products_convolutions_and_unknown_operators_of_onnx(tmp_path: Path) -> None:
    need("onnx")
    import numpy as np
    from onnx import helper

    nodes = [
        helper.make_node("Constant", [], ["form"], value_ints=[8, 1, 4, 4]),
        helper.make_node("Reshape", ["x", "form"], ["image"]),
        helper.make_node("Conv", ["image", "kernel"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Gemm", ["f", "wide"], ["g"], "gemm", transB=1),
        helper.make_node("RandomNormalLike", ["g"], ["noise"], "noise"),
        helper.make_node("Add", ["g", "noise"], ["y"], "add"),
    ]
    weights = {"kernel": np.zeros((4, 1, 3, 3), np.float32), "wide": np.zeros((5, 64), np.float32)}
    graph = remat.convert(onnx_models.save_model(tmp_path / "m.onnx", nodes, weights, 8, 5))
    assert [op.name for op in graph.ops] == ["conv", "gemm", "noise", "add"]
    conv, gemm, noise, _ = graph.ops
    assert conv.duration == duration(2 * 512 * 9, 512 + 144 + 2048)
    assert gemm.duration == duration(2 * 8 * 5 * 64, 2048 + 4 * 5 * 64 + 4 * 8 * 5)
    assert (gemm.recompute, noise.recompute) == ("allowed", "never")


def test_an_unknown_operator_is_counted_by_its_bytes_with_one_warning(tmp_path: Path) -> None:
    need("onnx")
    import onnx
    from onnx import helper

    nodes = [
        helper.make_node("Mine", ["x"], ["m"], domain="own"),
        helper.make_node("Mine", ["m"], ["y"], domain="own"),
    ]
    file = onnx_models.save_model(tmp_path / "m.onnx", nodes, {})
    assert "the shape of the tensor 'm' is not known and cannot be inferred" in error_of(file)
    model = onnx.load(file)
    model.graph.value_info.append(helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, [8, 16]))
    onnx.save(model, file)
    with pytest.warns(UserWarning, match="durations by bytes alone for: own.Mine$") as caught:
        graph = remat.convert(file)
    assert len(caught) == 1
    assert graph.op(0).duration == duration(0, 1024)


def test_a_truncated_onnx_model_is_refused_at_every_length(tmp_path: Path) -> None:
    need("onnx")
    whole = onnx_models.two_layers(tmp_path / "m.onnx").read_bytes()
    file = tmp_path / "part.onnx"
    for length in range(0, len(whole), 41):
        file.write_bytes(whole[:length])
        assert error_of(file).startswith(f"{file}: ")


def test_stablehlo_calls_are_expanded_and_reshapes_are_views(tmp_path: Path) -> None:
    need("stablehlo")
    file = write(tmp_path, "m.mlir", STABLEHLO)
    with pytest.warns(UserWarning, match="durations by bytes alone for: stablehlo.custom_call$"):
        graph = remat.convert(file)
    assert [op.kind.partition(".")[2] for op in graph.ops] == [
        "convert",
        "dot_general",
        "maximum",
        "custom_call",
    ]
    assert [int(graph.bytes[v]) for v in graph.inputs] == [512, 128, 128]
    assert graph.op(1).duration == duration(2 * 8 * 4 * 16, 512 + 256 + 128)
    assert graph.op(2).outputs[0] in graph.op(3).inputs
    assert graph.op(1).source == f"{file}:4"
    assert planned(graph).status != "unknown"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": the file is empty"),
        ("garbage", ":1:1: custom op 'garbage' is unknown"),
        (STABLEHLO[:300], ":5:"),
        ("module {}", ": the module has no function"),
        (STABLEHLO.replace("stablehlo.maximum", "arith.addf"), ":14:"),
        (STABLEHLO.replace("stablehlo.maximum", "tosa.maximum"), ":14:"),
        ("func.func @f(%x: tensor<?xf32>) { return }", ":1:1: the size of tensor<?xf32> is not known"),
        (STABLEHLO.replace("%5 :", "%6 :"), ":10:"),
    ],
)
def test_a_module_that_cannot_be_read_says_where(tmp_path: Path, text: str, message: str) -> None:
    need("stablehlo")
    file = write(tmp_path, "m.mlir", text)
    assert error_of(file).startswith(f"{file}")
    assert message in error_of(file)


def test_a_dot_file_is_a_graph_of_its_nodes(tmp_path: Path) -> None:
    need("dot")
    graph = remat.convert(write(tmp_path, "net.dot", DOT))
    assert graph.name == "net"
    assert [(op.name, op.duration, op.workspace) for op in graph.ops] == [
        ("conv1", 30, 7),
        ("relu", 5, 0),
        ("y", 0, 0),
    ]
    assert [graph.value_name(v) for v in graph.inputs + graph.outputs] == ["x", "y"]
    assert (graph.resident, graph.op(2).recompute) == (4096, "never")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("digraph { a -> b; b -> c; c -> b }", ": the edges form a cycle of 2 nodes: 'b' -> 'c' -> 'b'"),
        ("graph { a -- b }", ": the graph is undirected"),
        ("digraph { a -> ", ": not a graph in DOT"),
        ("digraph { }", ": the graph has no nodes"),
        ("digraph { a [bytes=many] }", ": node 'a': 'bytes': found 'many' instead of a number"),
        ("digraph { {a b} -> c }", ": an edge between groups of nodes"),
        ("digraph { a } digraph { b }", ": found 2 graphs instead of one"),
        (b"\xff\xfe\x00", ": not a text: byte 0 is no UTF-8"),
    ],
)
def test_a_dot_file_that_is_no_graph_says_why(tmp_path: Path, text: str | bytes, message: str) -> None:
    need("dot")
    file = write(tmp_path, "a.dot", text)
    assert error_of(file).startswith(f"{file}{message}")


def test_networkx_graphs_have_inputs_outputs_and_no_cycles() -> None:
    need("networkx")
    import networkx as nx

    net = nx.DiGraph(name="net")
    net.add_node("x", cost_ram=8)
    net.add_node(("layer", 1), out_cost=4, duration=2.5, backward=False)
    net.add_edge("x", ("layer", 1))
    graph = remat.Graph.from_networkx(net, inputs=["x"], outputs=[("layer", 1)])
    assert graph.to_dict()["ops"] == [
        {"name": "('layer', 1)", "duration": 2, "inputs": [0], "outputs": [1], "phase": "forward"}
    ]
    assert (graph.inputs, graph.outputs, graph.name) == ([0], [1], "net")
    assert remat.convert(net).num_ops == 2
    net.add_edge(("layer", 1), "x")
    for bad, message in (
        (net, "networkx: the edges form a cycle of 2 nodes: 'x' -> '('layer', 1)' -> 'x'"),
        (nx.Graph([(1, 2)]), "networkx: the graph is undirected"),
        (3, "networkx: found int instead of a networkx graph"),
    ):
        with pytest.raises(remat.GraphError) as raised:
            remat.Graph.from_networkx(bad)
        assert str(raised.value).startswith(message)
    with pytest.raises(remat.GraphError, match="there is no node 9"):
        remat.Graph.from_networkx(nx.DiGraph([(1, 2)]), outputs=[9])


def test_from_dict_takes_what_load_graph_takes() -> None:
    import json

    import numpy as np

    file = Path(__file__).parents[2] / "docs" / "examples" / "net.json"
    net = json.loads(file.read_text())
    assert remat.Graph.from_dict(net) == remat.load_graph(file) == remat.convert(net) == remat.convert(file)
    net["nodes"][0]["cost_cpu"] = np.int64(30)
    assert remat.Graph.from_dict(net) == remat.load_graph(file)
    net["links"].append({"source": 3, "target": 0})
    with pytest.raises(remat.GraphError, match="the links form a cycle of"):
        remat.Graph.from_dict(net)


def test_a_plug_in_reads_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "edges-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: edges\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[remat.converters]\nedges = edges_plug_in:convert\n")
    (tmp_path / "edges_plug_in.py").write_text(
        "import remat\n"
        "def convert(path, options):\n"
        "    return remat.Graph([4], [remat.Op(path.read_text(), 1, [], [0])])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert remat.convert(write(tmp_path, "a.edges", "mm")).op_name(0) == "mm"
    assert remat.convert(write(tmp_path, "a.txt", "relu"), format="edges").op_name(0) == "relu"
    message = error_of(tmp_path / "a.txt")
    assert message.startswith(f"{tmp_path / 'a.txt'}: no converter for '.txt'")
    assert "edges" in error_of(tmp_path / "a.txt", format="nothing")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.onnx"
    assert error_of(missing) == f"cannot read {missing}: No such file or directory"
    (tmp_path / "folder.dot").mkdir()
    assert error_of(tmp_path / "folder.dot") == f"cannot read {tmp_path / 'folder.dot'}: Is a directory"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in (("m.onnx", "onnx"), ("m.dot", "pydot"), ("m.mlir", "jaxlib.mlir.ir")):
        monkeypatch.setitem(sys.modules, module, None)
        assert f"needs {module.split('.')[0]}" in error_of(write(tmp_path, name, "x"))


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REMAT_PYTHON": sys.executable}
    return subprocess.run([COMMAND, "convert", *words], capture_output=True, text=True, env=environment)


def test_the_command_writes_what_python_makes(tmp_path: Path) -> None:
    need("onnx")
    model, graph = onnx_models.two_layers(tmp_path / "m.onnx", "batch"), tmp_path / "g.json"
    done = run(model, "-o", graph, "--dim", "batch=8", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert "input_format = onnx\n" in done.stdout
    assert remat.load_graph(graph) == remat.convert(model, dims={"batch": 8}, device="cpu")
    before = model.read_bytes()
    assert run(model, "-o", model, "--dim", "batch=8").returncode == 1
    assert model.read_bytes() == before, "an input of another kind is never replaced"


@pytest.mark.parametrize(
    ("name", "content", "words", "code", "message"),
    [
        ("e.onnx", b"", [], 1, "{file}: the file is empty"),
        ("e.dot", "digraph { a -> b; b -> a }", [], 1, "{file}: the edges form a cycle of 2 nodes"),
        ("e.foo", "x", [], 1, "{file}: no converter for '.foo'"),
        ("e.dot", "digraph { a }", ["--device", "gpu"], 64, "device 'gpu' is none of"),
        ("e.dot", "digraph { a }", ["--dim", "batch"], 1, "--dim 'batch' is not NAME=N"),
        ("e.dot", "digraph { a }", ["--from", "xml"], 1, "unknown format 'xml'; known: onnx"),
        ("e.json", "{}", ["--dim", "n=1"], 64, "--device and --dim are for files that are not JSON"),
    ],
)
def test_the_command_says_one_line_and_writes_nothing(
    tmp_path: Path, name: str, content: str | bytes, words: list[str], code: int, message: str
) -> None:
    if name.endswith(".dot"):
        need("dot")
    file = write(tmp_path, name, content)
    done = run(file, "-o", tmp_path / "g.json", *words)
    assert done.stderr.startswith("remat: " + message.format(file=file))
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (code, 1, "")
    assert not (tmp_path / "g.json").exists()


def test_importing_remat_imports_no_package_of_others() -> None:
    code = (
        "import sys, remat\n"
        "print({'torch', 'onnx', 'jax', 'jaxlib', 'networkx', 'pandas', 'pydot'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_json_schema_knows_the_files_that_are_read() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    import json

    docs = Path(__file__).parents[2] / "docs"
    validator = jsonschema.Draft202012Validator(json.loads((docs / "graph.schema.json").read_text()))
    validator.check_schema(validator.schema)
    whole = remat.generate("random_dag", random_share=0.5, over_share=0.5)
    gpt = remat.generate("gpt", depth=1, dropout=0.1)
    files = [
        json.loads((docs / "examples" / f"{name}.json").read_text()) for name in ("chain", "over", "host")
    ]
    for graph in [whole.to_dict(), gpt.to_dict(), *files]:
        validator.validate(graph)
    keys = validator.schema["$defs"]["op"]["properties"]
    assert set(keys) == {n for n in dir(remat.Op) if not n.startswith("_")}
    files[0]["ops"][0]["duration"] = 1.5
    assert not validator.is_valid(files[0])


def test_nodes_that_make_a_plan_pointless_are_warned_of_once() -> None:
    need("networkx")
    import networkx as nx

    net = nx.DiGraph()
    net.add_node("a", size=4, duration=0.25)
    net.add_node("b", size=4, duration=0.5)
    net.add_edge("a", "b")
    with pytest.warns(UserWarning, match="^networkx: ") as warned:
        remat.Graph.from_networkx(net)
    assert [str(warning.message) for warning in warned] == [
        "networkx: no node has bytes; the attribute is 'bytes'",
        "networkx: durations below 1 count as 0: give them in a smaller unit",
    ]


def test_a_long_cycle_is_named_in_a_short_line() -> None:
    need("networkx")
    import networkx as nx

    net = nx.cycle_graph(50_000, create_using=nx.DiGraph)
    nx.set_node_attributes(net, 4, "bytes")
    with pytest.raises(
        remat.GraphError, match=r"^networkx: the edges form a cycle of 50000 nodes: "
    ) as raised:
        remat.Graph.from_networkx(net)
    assert str(raised.value).endswith(" -> ... -> '0'")
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("size", [0, -2, 2.5, "x", None])
def test_a_size_of_a_dimension_is_a_positive_integer(tmp_path: Path, size: object) -> None:
    message = f"dims: 'n': found {size!r} instead of a positive integer"
    with pytest.raises(remat.UsageError) as raised:
        remat.convert(tmp_path / "m.onnx", dims={"n": size})  # type: ignore[dict-item]
    assert str(raised.value) == message
