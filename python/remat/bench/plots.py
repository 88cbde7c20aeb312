"""Figures by matplotlib, as PNG and SVG. The only file that imports it."""

from __future__ import annotations

from pathlib import Path

from remat.bench import interrupts
from remat.bench.report import Figure

MISSING = "no figures: matplotlib is not installed (pip install 'remat[bench]')"
MARKERS = "osD^vP*Xd<>p"


def available() -> bool:
    """Whether matplotlib is there."""
    try:
        with interrupts.held():
            import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Writes FOLDER/NAME.png and FOLDER/NAME.svg, the same bytes for the same numbers."""
    with interrupts.held():
        import matplotlib
        from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    style = {"svg.hashsalt": figure.name, "svg.fonttype": "none", "font.size": 9, "axes.grid": True}
    # A planner looks the same in all panels.
    names = list(dict.fromkeys(curve.name for panel in figure.panels for curve in panel.curves))
    with matplotlib.rc_context(style):
        count = len(figure.panels)
        columns = min(count, 4)
        rows = -(-count // columns)
        made, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 3.4 * rows), squeeze=False)
        for spare in axes.flat[count:]:
            spare.set_visible(False)
        for panel, ax in zip(figure.panels, axes.flat, strict=False):
            for curve in panel.curves:
                index = names.index(curve.name)
                ax.plot(
                    curve.x,
                    curve.y,
                    color=f"C{index % 10}",
                    marker=MARKERS[index % len(MARKERS)],
                    markersize=4,
                    drawstyle="steps-post" if curve.steps else "default",
                    label=curve.name,
                )
            ax.set_title(panel.title)
            ax.set_xlabel(panel.x_label)
            ax.set_ylabel(panel.y_label)
            if panel.log_x:
                ax.set_xscale("log")
            if panel.log_y:
                ax.set_yscale("log")
            if panel.curves:
                ax.legend(fontsize=7)
        made.tight_layout()
        paths = [folder / f"{figure.name}.{kind}" for kind in ("png", "svg")]
        made.savefig(paths[0], dpi=120)
        made.savefig(paths[1], metadata={"Date": None})
        pyplot.close(made)
    return paths
