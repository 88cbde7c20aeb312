"""Python as a library: what the command line has too, results that show, pickle and become tables."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import remat
from remat import _core

COMMAND = Path(remat.__file__).parent / "bin" / "remat"


@pytest.fixture(scope="module")
def chain() -> remat.Graph:
    return remat.generate("chain", length=8, bytes=100)


def command(*words: str) -> dict[str, object]:
    done = subprocess.run([COMMAND, *words, "--json"], capture_output=True, text=True, check=True)
    read: dict[str, object] = json.loads(done.stdout)
    return read


def test_ops_and_values_are_those_of_the_file(chain: remat.Graph) -> None:
    assert [op.name for op in chain.ops] == [op["name"] for op in chain.to_dict()["ops"]]
    assert chain.ops[3] == chain.op(3)
    assert [value.bytes for value in chain.values] == chain.bytes.tolist()
    x = chain.values[0]
    assert (x.name, x.producer, x.copy, x.readers) == ("x", None, "allowed", chain.readers(0))
    assert chain.values[1].producer == 0
    assert repr(x) == "<remat.Value 0 'x': 100 bytes>"


def test_plans_are_sequences_of_ops(chain: remat.Graph) -> None:
    plan = remat.plan(chain, "60%").plan
    assert plan is not None
    assert list(plan) == plan.steps
    assert (plan[0], plan[-1], plan[2:4]) == (plan.steps[0], plan.steps[-1], plan.steps[2:4])
    with pytest.raises(IndexError):
        plan[len(plan)]


def test_representations_show_what_counts(chain: remat.Graph) -> None:
    result = remat.plan(chain, "60%", work_limit=10_000, time_limit=None)
    assert repr(result) == (
        "<remat.PlanResult: optimal by stage_milp, budget 600, best peak 600, overhead 16%, gap 0%>"
    )
    assert repr(result.plan) == "<remat.Plan of 'chain_8': 21 steps, peak 600, overhead 16%>"
    assert "infeasible" in repr(remat.plan(chain, 1))
    curve = remat.sweep(chain, 5)
    assert repr(curve) == (
        "<remat.SweepResult by auto: 5 points, budgets 1000 down to 400, overhead up to 84%>"
    )
    assert repr(curve[-1]) == "<remat.SweepPoint: budget 400, overhead 84%, optimal>"


@pytest.mark.parametrize("budget_on", ["peak", "arena", "reserved"])
def test_results_pickle(chain: remat.Graph, budget_on: str) -> None:
    result = remat.plan(chain, "1MiB", budget_on=budget_on)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(result))
    for name in [n for n in dir(result) if not n.startswith("_")]:
        value = getattr(result, name)
        if not callable(value):
            assert getattr(again, name) == value, name
    assert repr(again) == repr(result)
    assert again.smallest_known_budget() == result.smallest_known_budget()
    assert again._repr_html_() == result._repr_html_()


def test_results_without_a_plan_and_those_of_a_executor_pickle() -> None:
    graph = remat.generate("gpt", variant="small", depth=2, batch=1, sequence=32, durations="roofline")
    infeasible = remat.plan(graph, 1)
    again = pickle.loads(pickle.dumps(infeasible))
    with pytest.raises(remat.InfeasibleError, match="proved infeasible"):
        again.raise_if_no_plan()
    executor = remat.plan(graph, "80%", executor="partitioner", time_limit="1s")
    again = pickle.loads(pickle.dumps(executor))
    assert (again.executor, again.saved, again.plan) == ("partitioner", executor.saved, executor.plan)
    assert again.full is not None
    assert executor.full is not None
    assert again.full.plan == executor.full.plan


@pytest.mark.parametrize("host", [None, "25GB/s"])
def test_sweeps_are_sequences_that_pickle(host: str | None) -> None:
    chain = remat.generate("ffn", batch=4096, durations="roofline")
    curve = remat.sweep(chain, 4, host=host, time_limit=2)
    again = pickle.loads(pickle.dumps(curve))
    assert [point.to_dict() for point in again] == [point.to_dict() for point in curve]
    assert [point.plan for point in again] == [point.plan for point in curve]
    assert len(again) == len(curve.points)
    assert (again.seconds, again.stopped_by, repr(again)) == (curve.seconds, curve.stopped_by, repr(curve))
    assert again._repr_html_() == curve._repr_html_()
    assert remat.report(chain, sweeps=again).content == remat.report(chain, sweeps=curve).content
    assert curve[0].to_dict()["budget"] == curve[0].budget
    assert pickle.loads(pickle.dumps(curve[-1])).plan == curve[-1].plan


def test_a_time_limit_is_seconds_or_a_text(chain: remat.Graph) -> None:
    for limit in (1, 0.5, "1s", "500ms", "2m", None):
        assert remat.plan(chain, "60%", time_limit=limit, gap="0").status == "optimal"
    with pytest.raises(remat.UsageError, match="time limit '1 week' is not a time: write 10s, 500ms"):
        remat.plan(chain, "60%", time_limit="1 week")
    with pytest.raises(remat.UsageError, match="time_limit is neither seconds nor a text"):
        remat.plan(chain, "60%", time_limit=[])  # type: ignore[arg-type]
    with pytest.raises(remat.UsageError, match="is not 0 or more seconds"):
        remat.sweep(chain, time_limit=-1)


def test_a_gap_is_a_share_or_a_text(chain: remat.Graph) -> None:
    for gap in ("0.5%", 0.005, 0, 0.0, "0", None):
        assert remat.plan(chain, "60%", gap=gap).status == "optimal"
    with pytest.raises(remat.UsageError, match="^gap '-1.0000000000%' is not a percentage"):
        remat.plan(chain, "60%", gap=-0.01)
    with pytest.raises(remat.UsageError, match="^gap is neither a share nor a text, but .1.$"):
        remat.plan(chain, "60%", gap=[1])  # type: ignore[arg-type]


def test_ops_values_and_devices_pickle() -> None:
    graph = remat.generate("random_dag", nodes=30, over_share=0.5, random_share=0.5, seed=4)
    for op in graph.ops:
        assert pickle.loads(pickle.dumps(op)) == op
    for value in graph.values:
        again = pickle.loads(pickle.dumps(value))
        for name in ("index", "name", "bytes", "copy", "producer", "readers"):
            assert getattr(again, name) == getattr(value, name)
    device = pickle.loads(pickle.dumps(remat.parse_device("flops=1e12,bandwidth=2e11,launch=1e-6")))
    assert (device.flops_per_second, device.bytes_per_second, device.launch_seconds) == (1e12, 2e11, 1e-6)


def test_generate_makes_the_graphs_of_the_command_line(tmp_path: Path) -> None:
    file = str(tmp_path / "g.json")
    for words, graph in (
        (["chain", "--length", "4", "--inference"], remat.generate("chain", length=4, inference=True)),
        (
            ["random_layered", "--nodes", "40", "--seed", "3"],
            remat.generate("random_layered", nodes=40, seed=3),
        ),
        (["random_dag", "--nodes", "9"], remat.generate("random_dag", nodes=9)),
        (
            ["gpt", "--batch", "2", "--depth", "2", "--optimizer", "adam", "--durations", "roofline"],
            remat.generate("gpt", batch=2, depth=2, optimizer="adam", durations="roofline"),
        ),
        (
            ["gpt", "--depth", "1", "--dropout", "0.1", "--no-random-recompute", "--granularity", "layer"],
            remat.generate("gpt", depth=1, dropout=0.1, random_recompute=False, granularity="layer"),
        ),
    ):
        command("generate", *words, "-o", file)
        assert remat.load_graph(file) == graph, words


def test_generate_says_what_there_is() -> None:
    for settings, message in (
        ({"kind": "chan"}, "unknown kind of graph 'chan': did you mean 'chain'?"),
        (
            {"kind": "chain", "len": 3},
            "chain has no setting 'len'; it has: length, bytes, duration, inference",
        ),
        ({"kind": "chain", "length": 2.5}, "chain: length: found 2.5 instead of an integer"),
        ({"kind": "gpt", "resolution": 3}, "gpt has no setting 'resolution'"),
        ({"kind": "gpt", "optimizer": "adm"}, "gpt: optimizer: found 'adm' instead of one of 'none', 'sgd'"),
        ({"kind": "gpt", "device": "a100"}, "device says how long ops take with durations='roofline' only"),
        ({"kind": "random_dag", "seed": -1}, "random_dag: seed: -1 is negative"),
    ):
        with pytest.raises(remat.UsageError) as raised:
            remat.generate(**settings)  # type: ignore[arg-type]
        assert message in str(raised.value)


def test_generate_buffers_makes_the_table_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    command("generate", "buffers", "--count", "300", "--long-share", "0.1", "--seed", "2", "-o", str(file))
    lower, upper, size = remat.generate_buffers(count=300, long_share=0.1, seed=2)
    written = [[int(field) for field in line.split(",")] for line in file.read_text().splitlines()[1:]]
    assert written == [list(row) for row in zip(range(300), lower, upper, size, strict=True)]
    result = remat.layout_buffers(lower, upper, size, work_limit=200_000, time_limit=None)
    assert result.best_arena >= result.live_peak
    with pytest.raises(
        remat.UsageError, match="^buffers has no setting 'nodes'; it has: count, phases, life"
    ):
        remat.generate_buffers(nodes=3)
    with pytest.raises(remat.UsageError, match="^phases = 8 is outside .1, 2.$"):
        remat.generate_buffers(count=2)


def test_largest_answers_as_the_command_line() -> None:
    said = command("largest", "ffn", "--budget", "1GiB", "--most", "300", "--work-limit", "2000")
    found = remat.largest("ffn", "1GiB", most=300, work_limit=2000, time_limit=None)
    assert (found.largest, found.impossible, found.proved) == (
        said["largest"],
        said["impossible"],
        said["proved"],
    )
    sizes = said["sizes"]
    assert isinstance(sizes, list)
    assert [(row.size, row.peak, row.status) for row in found] == [
        (row["batch"], row["peak"], row["status"]) for row in sizes
    ]
    for row in found:
        if row.plan is not None:
            assert remat.check(row.graph, row.plan).peak == row.peak
    assert pickle.loads(pickle.dumps(found)).largest == found.largest
    with pytest.raises(remat.UsageError, match="unknown size 'heads'"):
        remat.largest("gpt", "1GiB", over="heads")  # type: ignore[arg-type]
    with pytest.raises(remat.UsageError, match="another one for each size"):
        remat.largest("gpt", "50%")
    with pytest.raises(TypeError, match="unexpected keyword argument 'timelimit'"):
        remat.largest("gpt", "1GiB", timelimit=3)  # type: ignore[call-arg]


def test_compare_answers_as_the_command_line(
    chain: remat.Graph, tmp_path: Path, shipped_planners: list[str]
) -> None:
    file = str(tmp_path / "g.json")
    chain.save(file)
    said = command("compare", file, "--budget", "60%", "--work-limit", "2000")
    table = remat.compare(chain, "60%", shipped_planners, work_limit=2000, time_limit=None)
    assert [row.planner for row in table] == shipped_planners
    rows = said["planners"]
    assert isinstance(rows, list)
    assert len(rows) == len(table)
    for row, printed in zip(table, rows, strict=True):
        assert (row.planner, row.status, row.peak) == (
            printed["planner"],
            printed["status"],
            printed["peak"],
        )
        assert row.note[:40] == printed["note"][:40]  # behind it is where a library was looked for
        assert row.duration_bound == printed["duration_bound"]
    best = table.best
    assert best is not None
    assert best.overhead == 0.16
    assert table["keep_all"].over_budget is True
    assert table[0].planner == "auto"
    again = pickle.loads(pickle.dumps(table))
    assert again.to_dicts() == table.to_dicts()
    with pytest.raises(KeyError):
        table["nobody"]
    with pytest.raises(remat.UsageError, match="unknown planner 'ato': did you mean 'auto'"):
        remat.compare(chain, "60%", ["ato"])


def test_tables_need_pandas_and_say_so(chain: remat.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(remat.RematError, match="^to_pandas\\(\\) needs pandas"):
        remat.sweep(chain, 3).to_pandas()


def test_sweeps_comparisons_and_sizes_become_data_frames(chain: remat.Graph) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    curve = remat.sweep(chain, 5)
    frame = curve.to_pandas()
    assert frame["budget"].tolist() == [point.budget for point in curve]
    assert remat.compare(chain, "60%", ["greedy"]).to_pandas()["planner"].tolist() == ["greedy"]
    found = remat.largest("ffn", "1GiB", most=16, time_limit=1)
    assert found.to_pandas()["size"].tolist() == [row.size for row in found]


def test_every_function_and_constructor_has_a_signature() -> None:
    for name in dir(remat):
        member = getattr(remat, name)
        if inspect.isfunction(member):
            assert inspect.signature(member).parameters or name in ("devices", "planners"), name
    for kind in (remat.Graph, remat.Op, remat.Plan, remat.Host, remat.CachingAllocator):
        assert "self" not in inspect.signature(kind).parameters
    assert list(inspect.signature(remat.check).parameters) == ["graph", "plan", "host"]
    assert list(inspect.signature(remat.Plan.memory).parameters) == ["self", "graph"]
    limit = inspect.signature(remat.plan).parameters["time_limit"]
    assert (limit.kind, limit.default) == (inspect.Parameter.KEYWORD_ONLY, 10.0)
    assert inspect.signature(remat.simulate_allocator).parameters["allocator"].default == "cuda"


def test_warnings_name_the_line_that_asked(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="unknown keys") as caught:
        remat.Graph.from_dict({**remat.generate("chain").to_dict(), "extra": 1})
    assert caught[0].filename == __file__


def test_plan_has_a_keyword_for_each_option_of_a_request() -> None:
    keywords = inspect.signature(remat.plan).parameters
    for option in _core.request_options():
        keyword = keywords[option.name]
        assert str(keyword.default) == option.default
        if option.choices:
            literals = re.findall(r"""['"](\w+)['"]""", str(keyword.annotation))
            assert sorted(literals) == sorted(option.choices)


def test_functions_pickle_and_say_their_signature_once() -> None:
    for name in ("check", "load_graph", "plan", "compare"):
        function = getattr(remat, name)
        assert pickle.loads(pickle.dumps(function)) is function
    assert remat.check.__doc__ is not None
    assert remat.check.__doc__.startswith("Checks a plan by its steps")
