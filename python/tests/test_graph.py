"""remat.Graph: from Python objects and files, and back."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat
from graphs import GraphDict, chain, graph_dicts, two_layers
from hypothesis import given


@given(graph_dicts())
def test_a_graph_gives_back_the_dict_it_was_made_from(graph: GraphDict) -> None:
    made = remat.Graph.from_dict(graph)
    assert made.to_dict() == graph
    assert remat.Graph.from_dict(made.to_dict()) == made


@given(graph_dicts())
def test_dict_file_pickle_and_constructor_make_the_same_graph(
    tmp_path_factory: Any, graph: GraphDict
) -> None:
    path = tmp_path_factory.mktemp("graph") / "g.json"
    made = remat.Graph.from_dict(graph)
    made.save(path)
    assert json.loads(path.read_text())["values"] == graph["values"]
    assert remat.load_graph(path) == made
    assert pickle.loads(pickle.dumps(made)) == made
    by_hand = remat.Graph(
        graph["values"],
        [made.op(i) for i in range(made.num_ops)],
        graph["inputs"],
        graph["outputs"],
        graph["name"],
        graph["time_unit"],
    )
    assert by_hand == made
    assert by_hand.hash == made.hash


@given(graph_dicts())
def test_columns_say_what_the_dict_says(graph: GraphDict) -> None:
    made = remat.Graph.from_dict(graph)
    ops = graph["ops"]
    assert made.bytes.tolist() == [v["bytes"] for v in graph["values"]]
    assert made.durations.tolist() == [op["duration"] for op in ops]
    assert made.workspaces.tolist() == [op.get("workspace", 0) for op in ops]
    assert made.recomputable.tolist() == [op.get("recompute") != "never" for op in ops]
    producers = [-1] * len(graph["values"])
    for index, op in enumerate(ops):
        for value in op["outputs"]:
            producers[value] = index
    assert made.producers.tolist() == producers
    assert [made.op_inputs(i) for i in range(made.num_ops)] == [op["inputs"] for op in ops]
    assert [made.op_outputs(i) for i in range(made.num_ops)] == [op["outputs"] for op in ops]
    assert [made.readers(v) for v in range(made.num_values)] == [
        [i for i, op in enumerate(ops) if v in op["inputs"]] for v in range(made.num_values)
    ]
    assert made.base_duration == sum(op["duration"] for op in ops)
    assert made.resident == sum(graph["values"][v]["bytes"] for v in graph["inputs"])


def test_numpy_integers_and_lists_make_the_same_graph() -> None:
    sizes = [4096, 1024, 1024]
    ops = [remat.Op("mm", 5200, [0], [1], kind="aten.mm.default"), remat.Op("relu", 900, [1], [2])]
    numbers = [
        remat.Op("mm", np.int32(5200), np.array([0]), np.array([1]), kind="aten.mm.default"),
        remat.Op("relu", np.uint16(900), (1,), range(2, 3)),
    ]
    expected = remat.Graph(sizes, ops, [0], [2])
    for dtype in (np.int64, np.int32, np.uint64):
        made = remat.Graph(np.array(sizes, dtype), numbers, np.array([0]), np.array([2], dtype))
        assert made == expected


def test_views_share_memory_cannot_be_written_and_outlive_the_graph() -> None:
    graph = remat.Graph.from_dict(two_layers())
    first, second = graph.bytes, graph.bytes
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    del graph
    assert first.tolist() == [4096, 1024, 1024]


def test_sizes_of_a_graph() -> None:
    graph = remat.Graph.from_dict(two_layers())
    assert (graph.num_ops, graph.num_values, graph.name, graph.time_unit) == (2, 3, "two_layers", "ns")
    assert (graph.keep_all_peak, graph.floor, graph.base_duration) == (6144, 6144, 6100)
    assert (graph.inputs, graph.outputs) == ([0], [2])
    assert (graph.op_name(0), graph.value_name(0), graph.value_name(1)) == ("mm", "x", "")
    assert repr(graph) == "<remat.Graph 'two_layers': 2 ops, 3 values>"


def test_the_hash_forgets_names_and_sees_sizes() -> None:
    graph = two_layers()
    renamed = {**graph, "name": "other", "values": [{"bytes": v["bytes"]} for v in graph["values"]]}
    larger = {**graph, "values": [{"bytes": v["bytes"] + 1} for v in graph["values"]]}
    made = remat.Graph.from_dict(graph)
    assert remat.Graph.from_dict(renamed).hash == made.hash
    assert remat.Graph.from_dict(renamed) != made
    assert remat.Graph.from_dict(larger).hash != made.hash


def test_graphs_can_be_keys_and_copies_are_the_graph_itself() -> None:
    graph = remat.Graph.from_dict(two_layers())
    assert {graph: 1}[remat.Graph.from_dict(two_layers())] == 1
    assert copy.copy(graph) is graph
    assert copy.deepcopy([graph])[0] is graph
    assert graph != "two_layers"


def without(key: str) -> Callable[[GraphDict], object]:
    return lambda d: d.pop(key)


def in_op(**fields: Any) -> Callable[[GraphDict], object]:
    return lambda d: d["ops"][1].update(fields)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("format"), "graph: the key 'format' is missing"),
        (without("values"), "graph: the key 'values' is missing"),
        (lambda d: d.update(format="remat.plan"), "'format': found 'remat.plan' instead of 'remat.graph'"),
        (lambda d: d.update(version=2), "'version': version 2 is not supported; this reader knows version 1"),
        (lambda d: d.update(name=3), "'name': found 3 instead of text"),
        (lambda d: d.update(ops=[]), "the graph has no ops"),
        (lambda d: d.update(ops={}), "'ops': found {} instead of an array"),
        (lambda d: d["ops"][1].pop("duration"), "op 1 'relu': the key 'duration' is missing"),
        (lambda d: d["values"][1].pop("bytes"), "value 1: the key 'bytes' is missing"),
        (lambda d: d["values"][1].update(bytes=-1), f"value 1: bytes -1 is outside [0, {2**62})"),
        (lambda d: d["values"][1].update(bytes=2**62), f"value 1: bytes {2**62} is outside [0, {2**62})"),
        (
            lambda d: d["values"][2].update(bytes=10**30),
            f"value 2: 'bytes': {10**30} does not fit into 64 bits",
        ),
        (lambda d: d["values"][1].update(bytes=0.5), "value 1: 'bytes': found 0.5 instead of an integer"),
        (lambda d: d["values"][1].update(bytes=True), "value 1: 'bytes': found True instead of an integer"),
        (in_op(duration=None), "op 1 'relu': 'duration': found None instead of an integer"),
        (in_op(inputs=1), "op 1 'relu': 'inputs': found 1 instead of an array of integers"),
        (in_op(inputs=["1"]), "op 1 'relu': 'inputs': found '1' instead of an integer"),
        (in_op(inputs=[7]), "op 1 'relu': input 7 is not one of the 3 values"),
        (in_op(after=[7]), "op 1 'relu': 'after' 7 is not one of the 2 ops"),
        (in_op(after=[1]), "op 1 'relu': 'after' names op 1 'relu', which is not earlier in the order"),
        (in_op(over=[[1]]), "op 1 'relu': 'over': found 1 integers instead of an input and an output"),
        (in_op(over=[1]), "op 1 'relu': 'over': found 1 instead of an array of integers"),
        (in_op(over=[[0, 2]]), "op 1 'relu': 'over' names value 0 'x', which the op does not read"),
        (in_op(forward_of=-3), "op 1 'relu': 'forward_of': -3 is not an op index"),
        (in_op(recompute="no"), "op 1 'relu': 'recompute': found 'no' instead of one of 'allowed', 'never'"),
        (in_op(outputs=[1]), "value 1 is made twice: by op 0 'mm' and by op 1 'relu'"),
        (in_op(inputs=[2]), "op 1 'relu' reads value 2 'y', which is made by op 1 'relu' itself"),
        (lambda d: d.update(inputs=[]), "op 0 'mm' reads value 0 'x', which no op makes"),
        (lambda d: d.update(outputs=[9]), "graph output 9 is not one of the 3 values"),
    ],
)
def test_bad_dicts_are_named_with_place_and_numbers(
    damage: Callable[[GraphDict], object], message: str
) -> None:
    graph = two_layers()
    damage(graph)
    with pytest.raises(remat.GraphError) as caught:
        remat.Graph.from_dict(graph)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage", [in_op(recompute="no"), in_op(inputs=[7]), in_op(forward_of=-3), in_op(phase=1)]
)
def test_a_dict_and_its_file_are_refused_with_the_same_words(
    damage: Callable[[GraphDict], object], tmp_path: Path
) -> None:
    graph = two_layers()
    damage(graph)
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph))
    with pytest.raises(remat.GraphError) as from_dict:
        remat.Graph.from_dict(graph)
    with pytest.raises(remat.GraphError) as from_file:
        remat.load_graph(path)
    assert str(from_file.value).startswith(f"{path}:")
    assert str(from_file.value).endswith(str(from_dict.value))


def test_unknown_keys_give_one_warning_for_dicts_and_files(tmp_path: Path) -> None:
    graph = two_layers()
    graph["color"] = 1
    for op in graph["ops"]:
        op["shape"] = [2, 3]
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph))
    for read in (lambda: remat.Graph.from_dict(graph), lambda: remat.load_graph(path)):
        with pytest.warns(UserWarning, match="ignored unknown keys: ") as caught:
            read()
        assert len(caught) == 1
        assert {"color", "ops[].shape"} == set(str(caught[0].message).split(": ")[-1].split(", "))


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(remat.GraphError, match="nowhere.json: No such file or directory"):
        remat.load_graph(tmp_path / "nowhere.json")
    graph = remat.Graph.from_dict(two_layers())
    with pytest.raises(remat.RematError, match="no folder/g.json"):
        graph.save(tmp_path / "no folder" / "g.json")
    with pytest.raises(remat.RematError):
        graph.save("/dev/full/g.json")


def test_the_graph_that_was_read_is_not_replaced_by_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    remat.Graph.from_dict(two_layers()).save(path)
    before = path.read_bytes()
    graph = remat.load_graph(path)
    plan = remat.plan(graph, "100%").plan
    assert plan is not None
    (tmp_path / "link.json").symlink_to(path)
    for name in ("g.json", "link.json"):
        with pytest.raises(remat.RematError, match=f"{name}: it is the graph that was read from"):
            plan.save(tmp_path / name)
    assert path.read_bytes() == before
    graph.save(path)  # a graph may replace a graph


def test_an_output_takes_the_place_of_an_input_that_is_not_read_again() -> None:
    ops = [
        remat.Op("a", 2, [], [0]),
        remat.Op("b", 1, [0], [1], over=[(0, 1)]),
        remat.Op("c", 1, [1], [2]),
        remat.Op("d", 1, [0, 2], [3]),
    ]
    graph = remat.Graph([4, 4, 1, 1], ops, outputs=[3])
    assert graph.op(1).over == graph.op_over(1) == [(0, 1)]
    assert graph.op(0).over == []
    assert graph.to_dict()["ops"][1]["over"] == [[0, 1]]
    assert remat.Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert list(remat.simulate(graph, [0, 1, 2, 3]).memory) == [4, 8, 9, 6]
    twice = remat.simulate(graph, [0, 1, 2, 0, 3])
    assert list(twice.memory) == [4, 4, 5, 5, 6]
    assert twice.overwrites == [(1, 0, 1)]
    assert graph.floor == 6


def test_a_value_may_be_kept_from_the_host() -> None:
    ops = [remat.Op("a", 2, [], [0]), remat.Op("b", 1, [0], [1]), remat.Op("c", 1, [0, 1], [2])]
    graph = remat.Graph([{"bytes": 4, "copy": "never"}, 4, 1], ops, outputs=[2], time_unit="us")
    assert graph.to_dict()["values"] == [{"bytes": 4, "copy": "never"}, {"bytes": 4}, {"bytes": 1}]
    assert remat.Graph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    with pytest.raises(remat.PlanError, match="copy_value: step 0: the copy out of value 0: the graph forb"):
        remat.Plan(graph, [0, 1, 2], copies=[(0, "out", 0, 3)])
    with pytest.raises(remat.RematError, match="value 0: 'copy': found 'no' instead of one of 'allowed'"):
        remat.Graph([{"bytes": 4, "copy": "no"}], [remat.Op("a", 2, [], [0])])


def test_op_has_the_fields_of_the_file() -> None:
    op = remat.Op(
        "b", 7, [0], [1], workspace=3, kind="k", module="m", recompute="never", after=[0], phase="loss"
    )
    assert (op.name, op.duration, op.inputs, op.outputs, op.workspace) == ("b", 7, [0], [1], 3)
    assert (op.kind, op.module, op.recompute, op.after, op.phase, op.forward_of) == (
        "k",
        "m",
        "never",
        [0],
        "loss",
        None,
    )
    assert op == remat.Op(
        "b", 7, [0], [1], workspace=3, kind="k", module="m", recompute="never", after=[0], phase="loss"
    )
    assert op != remat.Op("b", 7, [0], [1])
    with pytest.raises(TypeError, match="Op has no field 'color'"):
        remat.Op("b", 7, [0], [1], color=3)  # type: ignore[call-arg]
    with pytest.raises(remat.GraphError, match="op 'b': 'duration': found 1.5 instead of an integer"):
        remat.Op("b", 1.5, [0], [1])  # type: ignore[arg-type]


def test_indices_out_of_range_are_index_errors() -> None:
    graph = chain(3)
    for call in (graph.op, graph.op_name, graph.op_inputs, graph.op_outputs):
        for index in (-1, graph.num_ops):
            with pytest.raises(IndexError, match=f"op {index} is not one of the 6 ops"):
                call(index)
    for call in (graph.value_name, graph.readers):
        with pytest.raises(IndexError, match="value 6 is not one of the 6 values"):
            call(6)
