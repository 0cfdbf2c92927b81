"""Pictures of the arrays in `filet.showing.columns`, with matplotlib (`pip install 'filet[plot]'`).

Each function takes `Columns` and an Axes (None makes one), draws, and returns the Axes. Colours are Okabe and Ito's,
which colour-blind readers can tell apart; lines differ in style too. The assumptions stand under every picture.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MissingExtraError
from ..planning.strategies import STRATEGIES
from .columns import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
_STYLES = {
    "refined": (BLUE, "-", "refined"),
    "run": (BLUE, "-", "all phases, certified"),
    "swap": ("#56B4E9", "-.", "swap (Theorem 2 alone)"),
    "note": (ORANGE, "--", "note (Ganesh, 2025)"),
    "union": (RED, ":", "union bound"),
    "attack": (GREY, "-.", "best known attack: no analysis can show less"),
    "truncate_refined": (BLUE, "-", "truncate, refined"),
    "truncate_swap": ("#56B4E9", "-.", "truncate, swap (Theorem 2 alone)"),
    "truncate_note": (ORANGE, "--", "truncate, note (Ganesh, 2025)"),
    "truncate_union": (RED, ":", "truncate, union bound"),
    "reject_refined": (GREEN, "-.", "reject"),
}


def new_axes(width: float = 6.4, height: float = 4.2) -> Axes:
    """An Axes in a figure of its own that no graphical window knows of.

    >>> new_axes().figure.get_size_inches().tolist()
    [6.4, 4.2]
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise MissingExtraError("plots need matplotlib; install it with: pip install 'filet[plot]'") from None
    figure: Figure = Figure(figsize=(width, height), layout="constrained")
    return figure.add_subplot()


def finish(ax: Axes, columns: Columns, x: str, y: str, title: str, *, legend: bool = True) -> Axes:
    """Labels, title, grid and the assumptions below the picture."""
    about = "\n".join(textwrap.wrap(columns.assumptions, 88))
    ax.set_xlabel(f"{x}\n" if not about else x)
    ax.set_ylabel(y)
    ax.set_title(title, fontsize="medium", loc="left")
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if about:
        ax.annotate(
            about, (0.0, -0.16), xycoords="axes fraction", fontsize=6.5, color=GREY, va="top", annotation_clip=False
        )
    if legend:
        ax.legend(frameon=False, fontsize="small")
    return ax


def plot_epsilon_of_steps(columns: Columns, ax: Axes | None = None) -> Axes:
    """Epsilon against the number of steps, one line for each analysis, and the best known attack from below."""
    ax = ax or new_axes()
    for name in columns.arrays:
        if name == "steps":
            continue
        colour, style, label = _STYLES[name.removeprefix("epsilon_")]
        values = np.where(np.isfinite(columns[name]), columns[name], np.nan)
        if not np.isfinite(values).any():
            label += " (infinite)"
        ax.plot(columns["steps"], values, color=colour, linestyle=style, label=label)
    ax.set_ylim(bottom=0.0)
    ax.set_xlim(left=0.0)
    return finish(ax, columns, "training steps", "epsilon", "Privacy spent")


def plot_delta_of_epsilon(columns: Columns, ax: Axes | None = None) -> Axes:
    """Delta against epsilon on a logarithmic scale, with the numerical bracket."""
    ax = ax or new_axes()
    shown = columns["delta_upper"] > 0
    ax.plot(columns["epsilon"][shown], columns["delta_upper"][shown], color=BLUE, label="certified upper bound")
    low = columns["delta_lower"] > 0
    ax.plot(columns["epsilon"][low], columns["delta_lower"][low], color=ORANGE, linestyle="--",
            label="lower bound of the same analysis")  # fmt: skip
    reached = columns["delta_attack"] > 0
    ax.plot(columns["epsilon"][reached], columns["delta_attack"][reached], color=GREY, linestyle="-.",
            label="one attack reaches this (proven)")  # fmt: skip
    ax.set_yscale("log")
    return finish(ax, columns, "epsilon", "delta", "Privacy profile of the run")


def plot_trade_off(columns: Columns, ax: Axes | None = None) -> Axes:
    """True against false positive rate of membership attacks: what is possible at most, and what one attack does."""
    ax = ax or new_axes()
    x = columns["false_positive_rate"]
    upper, lower = columns["true_positive_rate_upper"], columns["true_positive_rate_lower"]
    ax.fill_between(x, lower, upper, color=BLUE, alpha=0.15, linewidth=0, label="the best attack lies here")
    ax.plot(x, upper, color=BLUE, label="no attack does better (proven)")
    ax.plot(x, lower, color=ORANGE, linestyle="--", label="one attack reaches this (proven)")
    ax.plot(x, x, color=GREY, linestyle=":", label="guessing")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(top=1.2)
    return finish(ax, columns, "false positive rate", "true positive rate", "Membership inference")


def plot_batch_sizes(columns: Columns, ax: Axes | None = None) -> Axes:
    """Chance of each batch size, with the cap."""
    ax = ax or new_axes()
    size, cap = columns["size"], columns.marks.get("max_batch_size", np.inf)
    inside = size <= cap
    ax.fill_between(size[inside], 0, columns["probability"][inside], step="mid", color=BLUE, alpha=0.3, linewidth=0)
    ax.step(size[inside], columns["probability"][inside], where="mid", color=BLUE, label="batch size")
    if np.isfinite(cap):
        ax.step(size, columns["probability_without_cap"], where="mid", color=ORANGE, linestyle="--", linewidth=1.0,
                label="Poisson, without the cap")  # fmt: skip
        ax.axvline(cap, color=RED, linestyle=":", label=f"cap {cap:g}")
    ax.axvline(
        columns.marks["mean"], color=GREY, linestyle="-.", linewidth=0.8, label=f"mean {columns.marks['mean']:.1f}"
    )
    ax.set_ylim(bottom=0.0)
    return finish(ax, columns, "examples in a batch", "probability", "Batch sizes")


def plot_utilization_of_cap(columns: Columns, ax: Axes | None = None) -> Axes:
    """Share of the rows in use against the cap, one line for each policy and analysis."""
    ax = ax or new_axes()
    for name in columns.arrays:
        if name == "max_batch_size":
            continue
        colour, style, label = _STYLES[name.removeprefix("utilization_")]
        ax.plot(
            columns["max_batch_size"],
            100 * columns[name],
            color=colour,
            linestyle=style,
            marker="o",
            markersize=3,
            label=label,
        )
    ax.set_xscale("log", base=2)
    ax.set_xticks(columns["max_batch_size"], [f"{cap:g}" for cap in columns["max_batch_size"]])
    ax.minorticks_off()
    ax.set_ylim(0, 100)
    return finish(
        ax, columns, "max_batch_size (rows)", "rows that hold examples (%)", "Compute in use at the same privacy"
    )


def plot_frontier(columns: Columns, ax: Axes | None = None) -> Axes:
    """The planner's frontier: noise on the mean gradient against the steps, one line for each strategy."""
    ax = ax or new_axes()
    for strategy in reversed(STRATEGIES):
        name = strategy.name
        colour, style, label = _STYLES[f"{strategy.overflow}_{strategy.analysis}"]
        if not np.isfinite(columns[name]).any():
            label += " (impossible)"
        ax.plot(columns["steps"], columns[name], color=colour, linestyle=style, marker="o", markersize=3, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    unit = "noise on the mean gradient\n(clipping norms, one step)"
    return finish(ax, columns, "training steps", unit, "Noise that the target takes")


def save(ax: Axes, path: Any) -> None:
    """Write the picture to a png, svg or pdf file, whole or not at all; the same input gives the same bytes."""
    from matplotlib import rc_context

    from .._files import whole_file

    figure = ax.get_figure(root=True)
    assert figure is not None  # an Axes that was drawn on has a figure
    kind = str(path).rsplit(".", 1)[-1].lower()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with whole_file(path) as temporary, rc_context({"svg.hashsalt": "filet", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind, dpi=150, metadata=dates, bbox_inches="tight")
