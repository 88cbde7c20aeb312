"""Gusak et al., HiREmate (ICML 2025): Tables 2-4, Figures 4-6 and 10-15."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

V100 = "--durations roofline --device v100"
P100 = "--durations roofline --device p100"
OWN = "hiremate"

_PAPER = (
    "[*HiRemate: Hierarchical Approach for Efficient Re-materialization of Neural Networks*]("
    "https://proceedings.mlr.press/v267/gusak25a.html), J. Gusak, X. Zhao, T. Le Hellard, Z. Li, "
    "L. Eyraud-Dubois, O. Beaumont, ICML 2025."
)


def transformer(layers: int, batch: int = 64, sequence: int = 200, device: str = V100) -> GraphSpec:
    """Encoder-decoder with `layers` layers on each side. The vocabulary is small, as the paper's must be:
    with 33,708 entries the logits alone would be more than half of a small model's memory."""
    return GraphSpec(
        f"transformer{layers}-b{batch}-s{sequence}",
        f"transformer --depth {layers} --batch {batch} --sequence {sequence} --vocabulary 1000 {device}",
    )


def unet(batch: int = 64, resolution: int = 256, device: str = V100) -> GraphSpec:
    """The U-Net at a batch and a resolution."""
    return GraphSpec(
        f"unet-b{batch}-r{resolution}", f"unet --batch {batch} --resolution {resolution} {device}"
    )


def gpt(layers: int, variant: str = "small", device: str = V100) -> GraphSpec:
    """GPT-2 with this many layers; small ones have a small vocabulary, for the same reason."""
    vocabulary = " --vocabulary 8192" if variant == "small" else ""
    return GraphSpec(
        f"gpt-{variant}{layers}", f"gpt --variant {variant} --depth {layers}{vocabulary} {device}"
    )


MIXER = GraphSpec("mlp_mixer-b64-r256", f"mlp_mixer --batch 64 --resolution 256 {V100}")
# Table 3: overheads of Checkmate and H-ILP in percent at falling budgets in GB.
OPTIMAL: list[tuple[GraphSpec, list[tuple[str, float | None, float | None]]]] = [
    (
        GraphSpec("ResNet34", f"resnet --depth 34 --batch 128 {V100}"),
        [("5.0", 1.38, 1.84), ("4.0", 3.60, 3.94), ("3.5", 5.17, 5.54), ("3.0", 7.12, 7.61)],
    ),
    (unet(32), [("9.1", 0.90, 0.90), ("8.1", 2.93, 3.17), ("7.1", 5.32, 5.44), ("6.1", 7.76, 8.30)]),
    (
        transformer(2),
        [("9.0", 1.95, 1.94), ("8.0", 3.55, 3.56), ("7.0", 5.32, 5.34), ("6.0", 7.00, 7.02)],
    ),
    (MIXER, [("8.0", 0.50, 0.44), ("7.0", 1.37, 1.37), ("6.0", 2.47, 2.44), ("5.0", 4.66, 5.45)]),
    (
        gpt(5),
        [("1.4", 1.13, 1.17), ("1.25", 6.02, 9.24), ("1.1", 15.15, 19.29), ("1.0", None, 25.93)],
    ),
]
OPTIMAL_SHARES = (90.0, 80.0, 70.0, 60.0)


@dataclass(frozen=True)
class Model:
    """A row of Table 4: nodes forward and backward, predicted time and memory in percent, minutes."""

    label: str
    spec: GraphSpec
    nodes: int
    memory: float
    time: float
    minutes: float
    groups: str


MODELS = [
    Model("GPT 24 (medium)", gpt(24, "medium", P100), 734, 36.6, 122.3, 7.9, "3, 28, 8, 15"),
    Model("GPT 96", gpt(96, "medium", P100), 2894, 47.2, 119.6, 15, "4, 61, 21, 10"),
    Model("UNet", unet(16, 256, P100), 101, 51.3, 113.5, 9, "2, 9, 9, 15"),
    Model(
        "MLP-Mixer",
        GraphSpec("mlp_mixer-p100", f"mlp_mixer --batch 64 {P100}"),
        250,
        53.3,
        107.3,
        1.5,
        "2, 15, 6, 10",
    ),
    Model(
        "RegNet32",
        GraphSpec("regnet32-p100", f"regnet --batch 64 {P100}"),
        347,
        41.1,
        107.0,
        5,
        "2, 15, 10, 15",
    ),
    Model(
        "ResNet101",
        GraphSpec("resnet101-p100", f"resnet --depth 101 --batch 64 {P100}"),
        423,
        42.6,
        115.3,
        5.5,
        "2, 19, 10, 15",
    ),
    Model("Transformer 6-6", transformer(6, 32, 200, P100), 417, 46.9, 117.6, 20, "3, 23, 20, 17"),
    Model("Transformer 36-36", transformer(36, 8, 200, P100), 2457, 44.6, 118.4, 147, "16, 128, 67, 19"),
    Model("FNO 1d", GraphSpec("fno1d", f"fno --variant 1d {P100}"), 82, 53.1, 114.7, 2.5, "2, 10, 5, 8"),
    Model("FNO 3d", GraphSpec("fno3d", f"fno --variant 3d {P100}"), 121, 47.2, 117.4, 5.3, "2, 12, 12, 10"),
    Model("U-FNO", GraphSpec("ufno", f"ufno {P100}"), 221, 56.7, 116.3, 16.3, "2, 11, 9, 17"),
    Model("UNO", GraphSpec("uno", f"uno {P100}"), 229, 58.5, 121.9, 0, "4, 12, 12, 19"),
]
SHARES = (80.0, 60.0, 45.0, 30.0)
SIZES = {"encoder-decoder": [transformer(n, 32) for n in (1, 2, 4, 8)], "GPT": [gpt(n) for n in (2, 5, 12)]}
NETWORKS = {
    "(a) GPT-2": gpt(12),
    "(b) ResNet101": GraphSpec("resnet101-b64", f"resnet --depth 101 --batch 64 {V100}"),
    "(c) Transformer 6-6": transformer(6, 32),
    "(d) UNet": unet(32),
}
INPUTS = {
    "hiremate_figure11": ("Figure 11: Transformer, batches", [transformer(6, b) for b in (16, 64)]),
    "hiremate_figure12": ("Figure 12: Transformer, lengths", [transformer(6, 64, s) for s in (100, 400)]),
    "hiremate_figure13": ("Figure 13: UNet, batches at 256 x 256", [unet(b) for b in (16, 64)]),
    "hiremate_figure14": ("Figure 14: UNet, resolutions at batch 64", [unet(64, r) for r in (128, 512)]),
    "hiremate_figure15": ("Figure 15: MLP-Mixer", [MIXER]),
}
DEPTHS = ("4", "6", "8", "12", "20")
ALPHAS = ("0.2", "0.5", "1", "2")


def among(names: Iterable[str]) -> list[str]:
    """The registered ones of these planners."""
    known = published_planners()
    return [name for name in names if name in known]


def measure(lab: Lab) -> Section:
    """Runs the suite; parts that need the planner `hiremate` are skipped if it is not registered."""
    optimal = Comparison("Table 3: all planners at the same budgets", published_planners())
    broad = Comparison("Table 4: all planners at HiREmate's memory", published_planners())
    parts: list[Table | Figure] = [
        *_optimal(lab, optimal),
        *_broad(lab, broad),
        *_sizes(lab),
        _networks(lab),
        *_inputs(lab),
    ]
    if OWN in published_planners():
        parts += _options(lab, "hiremate_figure6", "Figure 6: groups of different size", "most_lower", DEPTHS)
        parts += _options(lab, "hiremate_figure10", "Figure 10: alpha of the partition", "alpha", ALPHAS)
    return Section(
        "hiremate",
        "Gusak et al. 2025, HiREmate (hiremate)",
        [
            "Overheads in predicted time, budgets in percent of the keep-all peak. The paper's graphs "
            "come from PyTorch modules on GPUs and are not published: all are generated, with roofline "
            "durations of a V100 (Table 4: P100). Its budgets are absolute and its batches mostly not "
            "stated, so rows of Tables 2 and 3 use 90, 80, 70 and 60 % in place of the published four "
            "falling budgets, and rows of Table 4 the published percentage of memory. Table 2 is a part "
            f"of Table 3. {lab.limit:g} s and one thread for each planner, 1 s for `auto`.",
        ],
        [*parts, graph_table(lab.used)],
        _differences(),
        f"Table 3: {optimal.verdict()} Table 4: {broad.verdict()}",
        source=_PAPER,
    )


def _optimal(lab: Lab, comparison: Comparison) -> list[Table]:
    head = ["network", "published: GB", "Checkmate", "H-ILP", "here: share", "checkmate_milp, warm start"]
    if OWN in published_planners():
        head.append(OWN)
    table = Table("Tables 2 and 3: overhead (%) of the optimum and of H-ILP", [*head, "auto, 1 s"], [])
    for spec, published in OPTIMAL:
        graph = lab.graph(spec)
        for (budget, milp, ilp), share in zip(published, OPTIMAL_SHARES, strict=True):
            runs = {run.planner: run for run in comparison.measure(lab, graph, graph.share(share))}
            printed = ["-" if value is None else f"{value:.2f}" for value in (milp, ilp)]
            warm = lab.plan(graph, "checkmate_milp", graph.share(share), options={"warm_start": "search"})
            cells = [_proved(run) for run in (warm, runs.get(OWN), runs["auto"]) if run]
            table.rows.append([graph.name, budget, *printed, f"{share:.0f} %", *cells])
    return [table, comparison.table]


def _proved(run: Run) -> str:
    return cell(run) + (" (optimal)" if run.status == "optimal" else "")


def _broad(lab: Lab, comparison: Comparison) -> list[Table]:
    own = OWN in published_planners()
    head = ["model", "nodes published", "ops here", "memory %", "time % published", "minutes"]
    head += ["hiremate, time %", "seconds", "levels, groups, distinct, largest", "published"] if own else []
    table = Table("Table 4: twelve models at the published share of memory", [*head, "auto 1 s, time %"], [])
    for model in MODELS:
        printed = [f"{model.memory:.1f}", f"{model.time:.1f}", f"{model.minutes:g}" if model.minutes else "-"]
        graph = lab.graph(model.spec)
        budget = graph.share(model.memory)
        runs = {run.planner: run for run in comparison.measure(lab, graph, budget)}
        row = [model.label, str(model.nodes), str(graph.ops), *printed]
        if own:
            run = runs[OWN]
            row += [_time(run), f"{run.seconds:.1f}", _groups(run), model.groups]
        table.rows.append([*row, _time(runs["auto"])])
    return [table, comparison.table]


def _time(run: Run) -> str:
    return f"{100 + 100 * (run.overhead or 0):.1f}" if run.fits else cell(run)


def _groups(run: Run) -> str:
    wanted = ("levels", "groups", "distinct", "largest")
    return ", ".join(str(run.counters.get(name, "-")) for name in wanted)


def _sizes(lab: Lab) -> list[Table | Figure]:
    """Figure 4: time of a step and of planning against the number of layers, at 60 % of keep-all."""
    planners = [*among(("rockmate", "checkmate_milp", "moccasin", OWN)), "auto"]
    table = Table(
        "Figure 4 as numbers: overhead (%) and seconds of planning at 60 %",
        ["graph", "ops", *planners],
        [],
    )
    panels = []
    for family, specs in SIZES.items():
        step = {name: Curve(name) for name in planners}
        solving = {name: Curve(name) for name in planners}
        for spec in specs:
            graph = lab.graph(spec)
            runs = [lab.plan(graph, name, graph.share(60)) for name in planners]
            shown = [f"{percent(r.overhead)} in {r.seconds:.1f} s" if r.fits else cell(r) for r in runs]
            table.rows.append([graph.name, str(graph.ops), *shown])
            for run in runs:
                step[run.planner].add(graph.ops, percent_of(run))
                if run.fits:
                    solving[run.planner].add(graph.ops, max(run.seconds, 0.001))
        panels.append(Panel(f"{family}: time of a step", "ops", "overhead (%)", list(step.values())))
        panels.append(
            Panel(f"{family}: planning", "ops", "planning time (s)", list(solving.values()), log_y=True)
        )
    return [Figure("hiremate_figure4", "Figure 4: graphs of growing size, at 60 %", panels), table]


def percent_of(run: Run) -> float | None:
    """Overhead in percent; None without a plan."""
    return 100 * (run.overhead or 0) if run.fits else None


def _over_shares(name: str, runs: Sequence[Run]) -> Curve:
    """Overhead against memory."""
    curve = Curve(name)
    for share, run in zip(SHARES, runs, strict=True):
        curve.add(share, percent_of(run))
    return curve


def _memory_curves(lab: Lab, graph: Graph, planners: Sequence[str]) -> Panel:
    """Time of a step against memory."""
    curves = []
    for name in planners:
        runs = [lab.plan(graph, name, graph.share(share)) for share in SHARES]
        curves.append(_over_shares(name, runs))
    return Panel(graph.name, "budget (% of keep-all)", "overhead (%)", curves)


def _networks(lab: Lab) -> Figure:
    planners = [*among(("tw_remat", "rotor", "rockmate", OWN)), "auto"]
    panels = []
    for title, spec in NETWORKS.items():
        panel = _memory_curves(lab, lab.graph(spec), planners)
        panel.title = title
        panels.append(panel)
    return Figure("hiremate_figure5", "Figure 5: time against memory on four architectures", panels)


def _inputs(lab: Lab) -> list[Figure]:
    planners = [*among(("tw_remat", OWN)), "auto"]
    return [
        Figure(name, caption, [_memory_curves(lab, lab.graph(spec), planners) for spec in specs])
        for name, (caption, specs) in INPUTS.items()
    ]


def _options(lab: Lab, name: str, caption: str, option: str, values: Sequence[str]) -> list[Table | Figure]:
    """Time against memory on the 6-layer Transformer, one line per value of an option."""
    graph = lab.graph(transformer(6, 32))
    head = ["", "levels, groups, distinct, largest", *(f"{share:g} %" for share in SHARES)]
    table = Table(f"{caption}, as numbers: overhead (%) on {graph.name}", head, [])
    curves = []
    for value in values:
        runs = [lab.plan(graph, OWN, graph.share(share), options={option: value}) for share in SHARES]
        table.rows.append([f"{option} {value}", _groups(runs[0]), *map(cell, runs)])
        curves.append(_over_shares(f"{option} {value}", runs))
    panel = Panel(graph.name, "budget (% of keep-all)", "overhead (%)", curves)
    return [Figure(name, caption, [panel]), table]


def _differences() -> list[str]:
    return [
        "Predicted times are sums of roofline durations, not of measured kernels; the share of "
        "convolutions and products in a step differs from a real GPU's.",
        "Batch, length and resolution are stated in the paper for Figures 11-15 only; elsewhere they "
        "are our choice, and budgets in bytes cannot be compared.",
        "The Transformers have a vocabulary of 1000 and the small GPTs one of 8192: with the published "
        "vocabularies the logits alone exceed the lower budgets. GPT 24 and 96 of Table 4 have the full one.",
        "Node counts differ: the paper counts simplified PyTorch nodes, the generator counts kernels. U-FNO "
        "and UNO are in two dimensions here.",
        "The paper's solvers are Gurobi on several cores for minutes to hours; here HiGHS on one thread "
        "within the limit named above.",
        "Gradients and parameters are part of the budget here, as everything in memory is.",
    ]
