"""Keep, recompute or offload: the gain from a host, compared with recomputation alone and offload alone."""

from __future__ import annotations

from remat.bench.lab import Graph, GraphSpec, Lab, Run
from remat.bench.report import Section, Table, graph_table

MODELS = {
    "gpt": "gpt --variant medium",
    "transformer": "transformer --batch 32 --sequence 200",
    "resnet": "resnet --batch 256",
    "unet": "unet --batch 32",
    "mixer": "mlp_mixer --batch 128",
    "regnet": "regnet --batch 128",
    "googlenet": "googlenet --batch 128",
    "segnet": "segnet --batch 16",
}
ROOFLINE = "--durations roofline --device a100"
BUDGETS = [50, 30]
BANDWIDTHS = [12, 25, 50]
CHAINS = {
    "gpt": MODELS["gpt"],
    "resnet": MODELS["resnet"],
    "unet": MODELS["unet"],
    "vgg": "vgg --batch 128",
    "mobilenet": "mobilenet --batch 256",
}
CHAIN_BUDGETS = [70, 50]
CHAIN_BANDWIDTHS = [12, 25]
CHAIN_SECONDS = 30.0
NARROW = ["gpt", "transformer", "resnet", "unet"]
NARROW_BANDWIDTHS = [25, 50]
HEAD = ["graph", "budget (%)", "GB/s", "recomputation alone", "offload alone", "both", "bound", "above it"]
CHAIN_HEAD = ["graph", "budget (%)", "GB/s", "rotor", "pofo", "both", "bound"]
ALL_HEAD = ["graph", "GB/s", "its peak (%)", "offload_all", "both"]

_PAPER = (
    "none for the tables; `pofo` is after [*Efficient Combination of Rematerialization and Offloading for "
    "Training DNNs*](https://papers.nips.cc/paper/2021/hash/c8461bf13fca8a2b9912ab2eb1668e4b-Abstract.html), "
    "O. Beaumont, L. Eyraud-Dubois, A. Shilova, NeurIPS 2021."
)


def measure(lab: Lab) -> Section:
    """Both tables for 32-bit floats, the first one for bf16 too."""
    both = Table("Overhead (%), 32-bit floats", HEAD, [])
    all_of_it = Table("Against `offload_all`, at its own peak: overhead (%)", ALL_HEAD, [])
    chains = Table("On chains of stages: overhead (%)", CHAIN_HEAD, [])
    narrow = Table("Overhead (%), bf16 on tensor cores", HEAD, [])
    above, faster = [], 0
    for name, arguments in MODELS.items():
        graph = lab.graph(GraphSpec(name, f"{arguments} {ROOFLINE}"))
        above += _rows(lab, graph, BANDWIDTHS, both)
        faster += _against_all(lab, graph, all_of_it)
    for name, arguments in CHAINS.items():
        _on_chain(lab, lab.graph(GraphSpec(name, f"{arguments} {ROOFLINE}")), chains)
    for name in NARROW:
        graph = lab.graph(GraphSpec(f"{name}_bf16", f"{MODELS[name]} {ROOFLINE} --dtype bf16"))
        _rows(lab, graph, NARROW_BANDWIDTHS, narrow)
    near = sum(points <= 0.5 for points in above)
    return Section(
        "offload",
        "Plans with a host (offload)",
        [
            "What is not needed for a while is kept, computed again or copied to the host and fetched back "
            "(`remat plan --host`). *Recomputation alone* is `auto` without a host, *offload alone* "
            "`offload_only`, *both* `auto` with a host, 1 s each on one thread; *bound*: no plan with this "
            "host is faster; *above it* in points. Rooflines of an A100, the same bandwidth each way. "
            "`offload_all` copies all that the backward pass reads, as frameworks do, whatever the budget: "
            "`auto` gets the peak that it has. On chains of stages, `rotor` computes again and `pofo` copies "
            "as well.",
        ],
        [both, all_of_it, chains, narrow, graph_table(lab.used)],
        [
            "`pofo` is ours, after the paper of Beaumont, Eyraud-Dubois and Shilova 2021, and has up to "
            f"{CHAIN_SECONDS:g} s; rotor has as many, *both* 1 s. The paper's own figures are of measured "
            "networks, and its abstract sums them up: offloading can remove a third of the overhead of "
            "rematerialization, and both together make the memory of activations 4 to 6 times smaller at an "
            "overhead below 20 %."
        ],
        f"Within 0.5 points of the bound in {near} of {len(above)} rows where a plan fits; "
        f"faster than `offload_all` at its own peak in {faster} of {len(all_of_it.rows)} rows.",
        source=_PAPER,
    )


def _rows(lab: Lab, graph: Graph, bandwidths: list[int], table: Table) -> list[float]:
    """Adds the rows of a graph; returns the distance of each to the bound in percentage points."""
    above = []
    for percent in BUDGETS:
        budget = graph.share(percent)
        alone = lab.plan(graph, "auto", budget)
        for bandwidth in bandwidths:
            host = f"{bandwidth}GB/s"
            only = lab.plan(graph, "offload_only", budget, host=host)
            joint = lab.plan(graph, "auto", budget, host=host)
            bound = (joint.duration_lower_bound or graph.base_duration) / graph.base_duration - 1
            distance = 100 * (joint.overhead - bound) if joint.fits and joint.overhead is not None else None
            if distance is not None:
                above.append(distance)
            table.rows.append(
                [
                    *(graph.name, str(percent), str(bandwidth)),
                    *(_overhead(alone), _overhead(only), _overhead(joint)),
                    "-" if joint.status == "infeasible" else f"{100 * bound:.2f}",
                    "-" if distance is None else f"{distance:.2f}",
                ]
            )
    return above


def _on_chain(lab: Lab, graph: Graph, table: Table) -> None:
    """Adds the rows of a graph for the planners of chains."""
    for percent in CHAIN_BUDGETS:
        budget = graph.share(percent)
        alone = lab.plan(graph, "rotor", budget, limit=CHAIN_SECONDS)
        for bandwidth in CHAIN_BANDWIDTHS:
            host = f"{bandwidth}GB/s"
            chain = lab.plan(graph, "pofo", budget, limit=CHAIN_SECONDS, host=host)
            joint = lab.plan(graph, "auto", budget, host=host)
            bound = (joint.duration_lower_bound or graph.base_duration) / graph.base_duration - 1
            table.rows.append(
                [
                    *(graph.name, str(percent), str(bandwidth)),
                    *(_overhead(alone), _overhead(chain), _overhead(joint)),
                    "-" if joint.status == "infeasible" else f"{100 * bound:.2f}",
                ]
            )


def _against_all(lab: Lab, graph: Graph, table: Table) -> int:
    """Adds a row for each bandwidth; returns the number in which `auto` is faster."""
    faster = 0
    for bandwidth in BANDWIDTHS:
        host = f"{bandwidth}GB/s"
        every = lab.plan(graph, "offload_all", host=host)
        peak = every.peak or graph.keep_all_peak
        joint = lab.plan(graph, "auto", peak, host=host)
        faster += joint.fits and (joint.duration or 0) < (every.duration or 0)
        table.rows.append(
            [
                *(graph.name, str(bandwidth), f"{100 * peak / graph.keep_all_peak:.1f}"),
                *(_overhead(every), _overhead(joint)),
            ]
        )
    return faster


def _overhead(run: Run) -> str:
    if not run.fits or run.overhead is None:
        return "infeasible" if run.status == "infeasible" else "over budget" if run.peak else "n/a"
    return f"{100 * run.overhead:.2f}"
