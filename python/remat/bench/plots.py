"""Figures by matplotlib, as PNG and SVG. The only file that imports it.

python -m remat.bench.plots DATA FOLDER redraws the figures of a file that `remat bench --report` wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from remat.bench import interrupts, look
from remat.bench.report import Curve, Figure, Panel, figures_from_json

MISSING = "no figures: matplotlib is not installed (pip install 'remat[bench]')"


class Style(NamedTuple):
    """The style of a planner in all figures."""

    color: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]


# The colour-blind safe palette of Okabe and Ito, and gray.
ORANGE, SKY, GREEN, BLUE, RED, PURPLE, GRAY = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#808080",
)
DOTS, DASHES, DASH_DOT = (0, (1, 1)), (0, (5, 2)), (0, (5, 1, 1, 1))
STYLES = {
    "auto": Style(look.CURVE, "o", "-"),
    "search": Style(BLUE, "P", DASHES),
    "retention": Style(GREEN, "p", DASHES),
    "evict": Style(SKY, "*", DASHES),
    "hiremate": Style(RED, "D", DASHES),
    "tw_remat": Style(SKY, "s", DASH_DOT),
    "pw_remat": Style(PURPLE, "h", DASH_DOT),
    "greedy": Style(ORANGE, "v", DASH_DOT),
    "keep_all": Style(GRAY, "_", DOTS),
    "rotor": Style(PURPLE, "^", DASHES),
    "checkmate_milp": Style(ORANGE, "X", DASHES),
    "checkmate_lp": Style(ORANGE, "<", DOTS),
    "moccasin": Style(PURPLE, "v", DASHES),
    "chen": Style(GRAY, ">", DASHES),
    "lower_set_dp": Style(BLUE, "<", DASH_DOT),
    "dtr": Style(PURPLE, "d", DOTS),
    "rockmate": Style(BLUE, "d", DASH_DOT),
    # Names in the papers.
    "NoRemat": Style(GRAY, "_", DOTS),
    "GreedyRemat": Style(ORANGE, "v", DASH_DOT),
    "TWRemat": Style(SKY, "s", DASH_DOT),
    "TWRemat(k)": Style(RED, "s", DOTS),
}
# For curves that are not planners but values of an option.
_OTHERS = [
    Style(BLUE, "o", "-"),
    Style(ORANGE, "s", DASHES),
    Style(GREEN, "^", DASH_DOT),
    Style(RED, "D", DOTS),
    Style(PURPLE, "v", (0, (3, 1, 1, 1, 1, 1))),
    Style(SKY, "P", (0, (7, 3))),
]


def available() -> bool:
    """True if matplotlib is installed."""
    try:
        with interrupts.held():
            import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def styles_of(figure: Figure) -> dict[str, Style]:
    """Styles by curve: the fixed style of its planner, else the next unused one."""
    names = dict.fromkeys(curve.name for panel in figure.panels for curve in panel.curves)
    others = iter(_OTHERS * len(names))
    return {name: STYLES.get(name.partition(",")[0]) or next(others) for name in names}


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Writes FOLDER/NAME.png and FOLDER/NAME.svg, deterministically."""
    with interrupts.held():
        import matplotlib
        from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    styles = styles_of(figure)
    with matplotlib.rc_context(look.settings(figure.name)):
        count = len(figure.panels)
        columns = min(count, 4)
        rows = -(-count // columns)
        made, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 3.4 * rows), squeeze=False)
        for spare in axes.flat[count:]:
            spare.set_visible(False)
        for panel, ax in zip(figure.panels, axes.flat, strict=False):
            draw_panel(panel, ax, styles)
        made.tight_layout()
        paths = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
        made.savefig(paths[0], dpi=120)
        made.savefig(paths[1], metadata={"Date": None})
        pyplot.close(made)
    return paths


def draw_panel(panel: Panel, ax: Any, styles: dict[str, Style]) -> None:
    """On axes of matplotlib."""
    shown = [curve for curve in panel.curves if curve.x]
    for rank, curve in enumerate(shown):
        _draw_curve(ax, curve, styles[curve.name], len(shown) - 1 - rank)
    ax.set_title(panel.title)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    if panel.log_x:
        # Linear below 1 where there is a 0.
        if any(0 in curve.x for curve in shown):
            ax.set_xscale("symlog", linthresh=1)
        else:
            ax.set_xscale("log")
    if panel.log_y:
        ax.set_yscale("log")
    else:
        top = max((value for curve in shown for value in curve.y), default=1.0) or 1.0
        # From 0, with room for markers on the axis, and above for missed budgets.
        ax.set_ylim(-0.04 * top, 1.16 * top if any(c.missed for c in panel.curves) else 1.06 * top)
    _mark_missed(panel, ax, styles)
    if shown:
        ax.legend()


def _draw_curve(ax: Any, curve: Curve, style: Style, under: int) -> None:
    """Curves below others are wider with larger markers, so that both are visible."""
    ax.plot(
        curve.x,
        curve.y,
        color=style.color,
        marker=style.marker,
        markersize=4 + 1.6 * under,
        markerfacecolor="none",
        markeredgewidth=1.1,
        linestyle=style.line,
        linewidth=1.2 + 0.6 * under,
        drawstyle="steps-post" if curve.steps else "default",
        label=curve.name,
    )


def _mark_missed(panel: Panel, ax: Any, styles: dict[str, Style]) -> None:
    """Draws a cross at the upper edge where a planner has no plan within the budget, with the planners'
    names."""
    missed = [curve for curve in panel.curves if curve.missed]
    for rank, curve in enumerate(missed):
        ax.plot(
            curve.missed,
            [0.975 - 0.045 * rank] * len(curve.missed),
            transform=ax.get_xaxis_transform(),
            color=styles[curve.name].color,
            marker="x",
            markersize=5,
            linestyle="none",
            clip_on=False,
            label=f"{curve.name}: no plan",
        )


def main(arguments: list[str]) -> int:
    """Draws the figures of a file again."""
    if len(arguments) != 2:
        print("usage: python -m remat.bench.plots DATA FOLDER", file=sys.stderr)
        return 64
    if not available():
        print(f"remat: {MISSING}", file=sys.stderr)
        return 1
    for figure in figures_from_json(Path(arguments[0]).read_text()):
        for path in draw(figure, Path(arguments[1])):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
