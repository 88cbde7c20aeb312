"""Bartan et al., MOCCASIN (ICML 2023): Tables 2-3, Figures 1, 5, 6."""

from __future__ import annotations

from dataclasses import dataclass

from remat.bench.lab import Graph, GraphSpec, Lab, Run, published_planners
from remat.bench.report import (
    Comparison,
    Curve,
    Figure,
    Panel,
    Section,
    Table,
    cell,
    graph_table,
    percent,
)

_PAPER = (
    "[*Moccasin: Efficient Tensor Rematerialization for Neural Networks*]("
    "https://proceedings.mlr.press/v202/bartan23a.html), "
    "B. Bartan, H. Li, H. Teague, C. Lott, B. Dilkina, ICML 2023. Its graphs: random layered ones, those of "
    "[Checkmate](https://github.com/parasj/checkmate), and four that are not public."
)


@dataclass(frozen=True)
class Row:
    """A graph of Table 3: per budget (90 %, 80 %) the published increase in percent and seconds, MILP and
    MOCCASIN; None where the paper has a dash or no such graph."""

    spec: GraphSpec
    milp: tuple[tuple[float, float] | None, ...] = (None, None)
    moccasin: tuple[tuple[float, float] | None, ...] = (None, None)


def layered(ops: int, width: float) -> GraphSpec:
    """A random layered graph like those of the paper."""
    return GraphSpec(
        f"RL-n{ops}", f"random_layered --nodes {ops} --width {width}", (f"random_layered_n{ops}",)
    )


G1, G2, G3, G4 = layered(100, 0.27), layered(250, 0.43), layered(500, 0.36), layered(1000, 0.31)
LAYER = "--granularity layer --durations roofline --device cpu"
TABLE = [
    Row(G1, ((0.8, 18.5), (2.3, 22.7)), ((0.8, 9.3), (2.3, 9.5))),
    Row(G2, ((0.9, 685.1), None), ((0.9, 55.0), (4.9, 639.5))),
    Row(G3, (None, None), ((0.7, 1803.3), (3.4, 1804.8))),
    Row(G4, (None, None), ((0.7, 3612.9), (3.4, 3611.8))),
    Row(
        GraphSpec("CM1-FCN8", f"fcn8 --batch 32 {LAYER}", ("fcn8_vgg_train", "fcn_8_vgg")),
        ((0.0, 6.3), (0.1, 5.6)),
        ((0.0, 3.1), (0.1, 3.1)),
    ),
    Row(
        GraphSpec("CM2-ResNet50", f"resnet --depth 50 --batch 256 {LAYER}", ("resnet50_train",)),
        ((0.1, 434.1), (0.3, 485.3)),
        ((0.2, 65.2), (0.3, 69.3)),
    ),
    # Of the same Checkmate repository; not in the paper's table.
    Row(GraphSpec("CM-MobileNet", f"mobilenet --batch 512 {LAYER}", ("mobilenet_train",))),
    Row(GraphSpec("CM-SegNet", f"segnet --batch 32 {LAYER}", ("segnet_train",))),
    Row(GraphSpec("CM-VGG16", f"vgg --batch 256 {LAYER}", ("vgg16_train",))),
]
BUDGETS = (90.0, 80.0)
CURVE_BUDGETS = (95.0, 90.0, 85.0, 80.0)
CURVES = ("checkmate_milp", "moccasin", "search")
SCALING = [layered(n, 0.3) for n in (50, 175, 375, 750)]
LATER = ("checkmate_milp", "moccasin")


def measure(lab: Lab) -> Section:
    """The tables, the progress curves and the scaling plot."""
    planners = [name for name in published_planners() if name not in ("chen", "lower_set_dp")]
    comparison = Comparison("All planners at the same budgets: extra duration in percent", planners)
    table, runs = _table(lab, comparison)
    parts: list[Table | Figure] = [table, comparison.table]
    parts += _curves(lab, runs)
    parts += _scaling(lab, runs)
    return Section(
        "moccasin",
        "Bartan et al. 2023, MOCCASIN (moccasin)",
        [
            "Total duration increase at 90 and 80 % of the keep-all peak, in fixed order. Published "
            "numbers: 16 cores, Gurobi for Checkmate, limits of half an hour (an hour for n = 1000); "
            f"here one thread, HiGHS and {lab.limit:g} s for each planner, 1 s for `auto`. Where a "
            "published instance was given with `--instances`, the row is that instance (column `origin` "
            "of the last table); the others are look-alikes, whose budgets and increases need not equal "
            "the published ones. The real-world graphs RW 1-4 are not public.",
        ],
        [*parts, graph_table(lab.used)],
        _differences(),
        comparison.verdict(),
        source=_PAPER,
    )


def _printed(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.1f} in {pair[1]:.0f} s"


def _shown(run: Run) -> str:
    if not run.fits:
        return cell(run)
    proved = ", proved" if run.status == "optimal" else ""
    return f"{percent(run.overhead)} in {run.time_to_best:.1f} s{proved}"


def _table(lab: Lab, comparison: Comparison) -> tuple[Table, dict[tuple[str, str, float], Run]]:
    head = ["graph", "(n, m)", "origin", "budget", "MILP published", "MILP", "LP rounding"]
    head += ["LP peak / budget", "MOCCASIN published", "moccasin", "auto, 1 s"]
    table = Table("Tables 2 and 3: increase of duration in percent, time to the best plan", head, [])
    found: dict[tuple[str, str, float], Run] = {}
    for row in TABLE:
        graph = lab.graph(row.spec)
        for index, share in enumerate(BUDGETS):
            budget = graph.share(share)
            runs = comparison.measure(lab, graph, budget)
            for run in runs:
                found[graph.name, run.planner, share] = run
            milp, relaxed, rival = (
                found.get((graph.name, name, share))
                for name in ("checkmate_milp", "checkmate_lp", "moccasin")
            )
            table.rows.append(
                [
                    graph.name,
                    f"({graph.ops}, {graph.edges})",
                    "real" if graph.is_real else "look-alike",
                    f"{budget:,} ({share:.0f} %)",
                    _printed(row.milp[index]),
                    _shown(milp) if milp else "-",
                    percent(relaxed.overhead) if relaxed else "-",
                    f"{relaxed.peak / budget:.2f}" if relaxed and relaxed.peak else "-",
                    _printed(row.moccasin[index]),
                    _shown(rival) if rival else "-",
                    _shown(runs[-1]),
                ]
            )
    return table, found


def _progress(graph: Graph, run: Run) -> Curve:
    """Duration increase in percent against seconds."""
    base = graph.base_duration
    points = [(max(x, 0.001), 100 * (y - base) / base) for x, y in run.curve]
    if points and run.limit > points[-1][0]:
        points.append((run.limit, points[-1][1]))
    missed = [] if points else [run.limit]
    return Curve(run.planner, [x for x, _ in points], [y for _, y in points], steps=True, missed=missed)


def _curves(lab: Lab, runs: dict[tuple[str, str, float], Run]) -> list[Table | Figure]:
    """Figures 1 and 5: the best duration of each planner over time."""
    panels = []
    for spec in (G1, G2, G3, G4):
        graph = lab.graph(spec)
        for share in CURVE_BUDGETS:
            curves = []
            for planner in CURVES:
                run = runs.get((graph.name, planner, share))
                if run is None:
                    run = lab.plan(graph, planner, graph.share(share), limit=lab.limit)
                curves.append(_progress(graph, run))
            title = f"{graph.name}, {share:.0f} %"
            panels.append(Panel(title, "planning time (s)", "overhead (%)", curves, log_x=True))
    # The real-world graph of Figure 1 is not public; a graph of similar size replaces it.
    first = [panel for panel in panels if panel.title == f"{G3.name}, 80 %"]
    return [
        Figure(
            "moccasin_figure1",
            "Figure 1: progress at 80 % on a graph like the paper's (n = 442, not public): random "
            "layered, n = 500",
            first,
        ),
        Figure(
            "moccasin_figure5", "Figure 5: progress on four random layered graphs at four budgets", panels
        ),
    ]


def _scaling(lab: Lab, runs: dict[tuple[str, str, float], Run]) -> list[Table | Figure]:
    """Figure 6: seconds to the best plan over n, at 90 %."""
    table = Table(
        "Figure 6 as numbers: seconds until the best plan at 90 %, and its increase in percent",
        ["n", *LATER, "auto, 1 s"],
        [],
    )
    lines: dict[str, Curve] = {name: Curve(name) for name in (*LATER, "auto")}
    specs = sorted([*SCALING, G1, G2, G3, G4], key=lambda spec: int(spec.name.split("-n")[1]))
    for spec in specs:
        graph = lab.graph(spec)
        cells = []
        for planner in (*LATER, "auto"):
            run = runs.get((graph.name, planner, 90.0)) or lab.plan(graph, planner, graph.share(90))
            cells.append(f"{run.time_to_best:.2f} s, {percent(run.overhead)}" if run.fits else cell(run))
            lines[planner].add(graph.ops, max(run.time_to_best, 0.001) if run.fits else None)
        table.rows.append([str(graph.ops), *cells])
    panel = Panel(
        "random layered graphs, 90 %", "ops", "time to the best plan (s)", list(lines.values()), True, True
    )
    return [Figure("moccasin_figure6", "Figure 6: time to the best plan over n", [panel]), table]


def _differences() -> list[str]:
    return [
        "HiGHS on one thread replaces Gurobi on 16 cores: the integer program is solved later or not "
        "within the limit, and is refused above its size limit.",
        "LP rounding of the paper exceeds its budget in most rows; `checkmate_lp` fits its rounding "
        "to the budget if it can, and the column shows its peak.",
        "`moccasin` runs CP-SAT on one thread; without OR-tools it is `n/a`.",
        "Time to the best plan depends on the limit: anytime planners go on improving.",
    ]
