"""`remat bench`: what it keeps, what it counts, what its tables say."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import remat
from graphs import chain
from remat.bench import interrupts, look, plots
from remat.bench.__main__ import main, write_report
from remat.bench.lab import (
    AS_PUBLISHED,
    BenchError,
    Graph,
    GraphSpec,
    Lab,
    Rehearsal,
    Run,
    published_planners,
)
from remat.bench.own import register_planners
from remat.bench.report import (
    Comparison,
    Curve,
    Figure,
    Panel,
    Section,
    Table,
    beaten_by,
    cell,
    figures_from_json,
    section_lines,
)
from remat.bench.suites import SUITES

CHAIN = GraphSpec("chain", "chain --length 6 --bytes 10", ("chain_real",))


def a_run(planner: str, overhead: float, fits: bool = True) -> Run:
    return Run("g", planner, 100, 1.0, "feasible", fits=fits, peak=90, duration=10, overhead=overhead)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path / "out")
    made.begin("test", 1.0, [])
    return made


def test_a_second_call_reads_what_the_first_one_found(lab: Lab) -> None:
    graph = lab.graph(CHAIN)
    first = lab.plan(graph, "greedy", graph.share(90))
    again = Lab(lab.folder)
    again.begin("test", 1.0, [])
    second = again.plan(again.graph(CHAIN), "greedy", graph.share(90))
    assert (lab.executed, again.executed) == (1, 0)
    assert second == first
    again.plan(graph, "greedy", graph.share(80))
    assert again.executed == 1


def test_a_run_holds_what_the_planner_found(lab: Lab) -> None:
    graph = lab.graph(CHAIN)
    assert (graph.ops, graph.edges) == (13, 17)
    run = lab.plan(graph, "auto", graph.share(90))
    expected = remat.plan(remat.load_graph(graph.path), graph.share(90), time_limit=1)
    assert run.fits
    assert run.overhead == expected.overhead
    assert run.peak is not None
    assert run.peak <= graph.share(90)
    assert run.curve[-1][1] == run.duration
    assert 0 <= run.time_to_best <= 2


def test_what_a_planner_refuses_is_a_note_and_not_an_end(lab: Lab) -> None:
    run = lab.plan(lab.graph(CHAIN), "checkmate_milp", objective="peak")
    assert run.status == "not run"
    assert "objective" in run.note
    assert cell(run) == "n/a"


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_published_planners_know_the_options_that_make_them_so(name: str, lab: Lab) -> None:
    if name not in published_planners():
        pytest.skip(f"{name} is not registered")
    graph = lab.graph(CHAIN)
    run = lab.plan(graph, name, graph.share(90))
    assert run.options == AS_PUBLISHED[name]
    assert run.note == ""


def test_a_published_instance_takes_the_place_of_the_look_alike(tmp_path: Path) -> None:
    real = tmp_path / "instances" / "chain_real_n3.json"
    real.parent.mkdir()
    ops = [{"name": "a", "duration": 1, "inputs": [], "outputs": [0]}]
    real.write_text(json.dumps({"format": "remat.graph", "version": 1, "values": [{"bytes": 8}], "ops": ops}))
    lab = Lab(tmp_path / "out", instances=real.parent)
    graph = lab.graph(CHAIN)
    assert (graph.is_real, graph.origin, graph.ops) == (True, "file chain_real_n3.json", 1)
    assert not Lab(tmp_path / "out").graph(CHAIN).is_real


def test_a_graph_that_cannot_be_made_ends_with_the_reason(lab: Lab) -> None:
    with pytest.raises(BenchError, match="no setting|unexpected|not expected|--colour"):
        lab.graph(GraphSpec("bad", "chain --colour 3"))


def test_auto_is_behind_where_a_published_planner_is_faster_within_the_budget() -> None:
    auto = a_run("auto", 0.10)
    others = [a_run("a", 0.05), a_run("b", 0.10), a_run("c", 0.01, fits=False), a_run("d", 0.02)]
    assert [run.planner for run in beaten_by(auto, others)] == ["d", "a"]
    assert [run.planner for run in beaten_by(a_run("auto", 0.0, fits=False), others)] == ["d", "a", "b"]


def test_a_comparison_counts_the_rows_where_auto_is_behind() -> None:
    graph = Graph("g", "", "none", False, 3, 2, 200, 10, 1, 0)
    comparison = Comparison("t", ["a"])
    comparison.add(graph, 100, [a_run("a", 0.2)], a_run("auto", 0.1))
    comparison.add(graph, 100, [a_run("a", 0.1)], a_run("auto", 0.2))
    assert "in 1 of 2 rows" in comparison.verdict()
    assert comparison.table.rows[0] == ["g", "50.0", "20.00", "10.00", ""]
    assert comparison.table.rows[1][-1] == "a 10.0000 (auto 20.0000)"


def test_published_planners_come_from_the_registry() -> None:
    names = published_planners()
    assert {"greedy", "tw_remat", "chen", "lower_set_dp", "moccasin"} <= set(names)
    left_out = {"auto", "search", "evict", "keep_all", "offload_all", "offload_only", "pofo"}
    assert not left_out & set(names)


def test_a_file_of_planners_is_run_in_every_process(tmp_path: Path) -> None:
    name = "test_bench.mine"
    file = tmp_path / "mine.py"
    file.write_text(
        "import remat\n"
        "def mine(problem):\n"
        "    return list(range(problem.graph.num_ops))\n"
        f"remat.register_planner({name!r}, mine, source='here')\n"
    )
    assert register_planners(file) == [name]
    assert name in published_planners()
    made = Lab(tmp_path / "out", planners=file)
    made.begin("test", 1.0, [])
    graph = made.graph(CHAIN)
    run = made.plan(graph, name, graph.share(100))
    assert (run.status, run.overhead, run.made_by) == ("optimal", 0.0, name)
    file.write_text("import remat\n1 / 0\n")
    with pytest.raises(remat.RematError, match=re.escape(f"{file}: ZeroDivisionError: division by zero")):
        register_planners(file)
    file.write_text("import remat\n")
    with pytest.raises(remat.RematError, match="it registers no planner"):
        register_planners(file)


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_can_be_rehearsed_and_written_down(name: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    rehearsal = Rehearsal(lab)
    rehearsal.begin(name, SUITES[name].limit, [])
    section = SUITES[name].measure(rehearsal)
    assert len(rehearsal.limits) > 20
    assert section.suite == name
    assert section.figures() or name in ("kusumoto", "offload")
    for part in section.parts:
        if isinstance(part, Table):
            assert all(len(row) == len(part.head) for row in part.rows), part.title
    text = "\n".join(section_lines(section, "figures"))
    assert section.verdict in text
    assert "What differs from the paper" in text
    assert not list(tmp_path.iterdir())  # nothing was run


def test_a_report_holds_sections_and_figures(lab: Lab, tmp_path: Path) -> None:
    if not plots.available():
        pytest.skip(plots.MISSING)
    curve = Curve("a", [1.0, 2.0], [3.0, 4.0])
    figure = Figure("f1", "Figure 1", [Panel("p", "x", "y", [curve], log_x=True), Panel("q", "x", "y", [])])
    paths = plots.draw(figure, lab.folder / "figures")
    assert [path.suffix for path in paths] == [".png", ".svg"]
    before = paths[1].read_bytes()
    assert before == plots.draw(figure, lab.folder / "figures")[1].read_bytes()
    section = Section("test", "Title", ["Words."], [figure], [], "Verdict.")
    write_report(tmp_path / "docs" / "results.md", lab, [section], [1.0], True)
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "[Title](results/test.md)" in text
    assert "Verdict." in text
    page = (tmp_path / "docs" / "results" / "test.md").read_text()
    assert page.startswith("# Title\n")
    assert "![Figure 1](f1.svg)" in page
    assert (tmp_path / "docs" / "results" / "f1.svg").exists()
    drawn = figures_from_json((tmp_path / "docs" / "results" / "figures.json").read_text())
    assert drawn == [figure]


def test_a_planner_looks_the_same_in_every_figure_of_the_documentation() -> None:
    results = Path(__file__).parents[2] / "docs" / "results"
    figures = figures_from_json((results / "figures.json").read_text())
    assert {f"{figure.name}.svg" for figure in figures} == {path.name for path in results.glob("*.svg")}
    seen: dict[str, plots.Style] = {}
    for figure in figures:
        styles = plots.styles_of(figure)
        assert len(set(styles.values())) == len(styles), figure.name
        for name, style in styles.items():
            if " " not in name:  # else a value of an option
                assert style == plots.STYLES[name]
                assert seen.setdefault(name, style) == style


def test_all_pictures_have_the_colours_of_the_page() -> None:
    root = Path(__file__).parents[2]
    style = root / "page/src/style.css"
    if not style.exists():
        pytest.skip("an installed package comes without the sources of the page")
    light = dict(re.findall(r"--([\w-]+): (#\w{6});", style.read_text().partition(":root[data-theme")[0]))
    names = (
        "parameters",
        "inputs",
        "outputs",
        "activations",
        "again",
        "gradients",
        "short",
        "copied",
        "workspace",
    )
    kinds = [light[name] for name in names]
    assert list(look.KINDS.values()) == kinds
    header = remat.report(chain(3), format="csv").content.decode().splitlines()[0]
    assert header.endswith(",".join(look.KINDS))
    others = ("text", "text-2", "edge", "grid", "budget", "curve", "bound", "bound-edge")
    assert [getattr(look, name.replace("-", "_").upper()) for name in others] == [light[n] for n in others]
    cells = (root / "src/report/notebook.cc").read_text().partition("kColours{")[2].partition("}")[0]
    assert re.findall(r"#\w{6}", cells) == kinds


def test_every_axis_has_its_unit_and_overheads_begin_at_zero() -> None:
    if not plots.available():
        pytest.skip(plots.MISSING)
    from matplotlib import pyplot

    results = Path(__file__).parents[2] / "docs" / "results"
    for figure in figures_from_json((results / "figures.json").read_text()):
        for panel in figure.panels:
            for label in (panel.x_label, panel.y_label):
                assert label in ("ops", "depth") or label.endswith(("(%)", "(% of keep-all)", "(s)", "(GiB)"))
            made, ax = pyplot.subplots()
            plots.draw_panel(panel, ax, plots.styles_of(figure))
            named = [text.get_text() for text in ax.get_legend().get_texts()]
            bottom, top = ax.get_ylim()
            pyplot.close(made)
            with_points = [curve.name for curve in panel.curves if curve.x]
            missed = [f"{curve.name}: no plan" for curve in panel.curves if curve.missed]
            assert named == with_points + missed
            if not panel.log_y:
                assert -0.1 * top < bottom <= 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "invalid choice: 'nope'"),
        ([], "required: suite"),
        (["kumar", "--limit", "-1"], "--limit takes a positive number"),
        (["kumar", "--instances", "/nowhere"], "/nowhere is no folder"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    said = capsys.readouterr().err
    assert stopped.value.code == 64
    assert message in said
    assert said.count("\n") == 1


def test_the_command_line_hands_over_to_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "remat", "bench", "--help"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "kumar,moccasin,hiremate,kusumoto,offload,all" in done.stdout


def bench_kumar(folder: Path) -> subprocess.Popen[str]:
    """A `remat bench` that runs for minutes; a shell may have started the tests with SIGINT ignored."""
    program = Path(remat.__file__).parent / "bin" / "remat"
    return subprocess.Popen(
        [str(program), "bench", "kumar", "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
def test_an_early_ctrl_c_ends_the_command(tmp_path: Path, delay: float) -> None:
    process = bench_kumar(tmp_path)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("ctrl_c_works")
def test_a_ctrl_c_that_python_drops_is_found_by_the_next_run(lab: Lab) -> None:
    graph = lab.graph(CHAIN)

    class Dropped:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    @interrupts.kept()
    def drop_and_go_on() -> None:
        Dropped()
        lab.plan(graph, "greedy", graph.share(90))

    with pytest.raises(KeyboardInterrupt):
        drop_and_go_on()
    assert lab.executed == 0


@pytest.mark.usefixtures("ctrl_c_works")
def test_a_ctrl_c_during_an_import_comes_after_it() -> None:
    done = []

    @interrupts.kept()
    def begin() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("import")

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert done == ["import"]
