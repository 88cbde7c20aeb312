"""The common style of all figures: the colours of the report page (page/src/style.css, light mode) and
settings for matplotlib.
"""

from __future__ import annotations

TEXT, TEXT_2, EDGE, GRID = "#16191d", "#565d66", "#d8dce1", "#e8ebee"
BUDGET, CURVE, BOUND, BOUND_EDGE = "#b3261e", "#0b6e4f", "#d9dde2", "#9aa2ab"
# By kind of memory, as in reports; the areas of a chart from the bottom up.
KINDS = {
    "parameters": "#7f868e",
    "inputs": "#bcc2c8",
    "kept to the end": "#0072b2",
    "activations kept": "#56b4e9",
    "computed again": "#d55e00",
    "gradients passing": "#cc79a7",
    "short-lived": "#f0d858",
    "copied to the host or back": "#e69f00",
    "workspace": "#009e73",
}


def settings(salt: str) -> dict[str, object]:
    """For `matplotlib.rc_context`. Deterministic: equal numbers give equal files."""
    return {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": TEXT,
        "axes.titlesize": 10,
        "axes.labelcolor": TEXT_2,
        "axes.edgecolor": EDGE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "xtick.color": EDGE,
        "ytick.color": EDGE,
        "xtick.labelcolor": TEXT_2,
        "ytick.labelcolor": TEXT_2,
        "legend.frameon": False,
        "legend.fontsize": 8,
    }
