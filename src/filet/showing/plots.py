"""Pictures of the arrays in `filet.showing.columns`, with matplotlib (`pip install 'filet[plot]'`).

Each function takes `Columns` and an Axes (None makes one), draws, and returns the Axes. Colours are
Okabe and Ito's, which colour-blind readers can tell apart; lines differ in style too. The
assumptions stand under every picture.
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
    "run": (BLUE, "-", "all phases"),
    "swap": ("#56B4E9", "-.", "swap (Theorem 2 alone)"),
    "note": (ORANGE, "--", "note (Ganesh, 2025)"),
    "union": (RED, ":", "union bound"),
    "attack": (GREY, "-.", "best known attack: proven lower bound"),
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


def finish(
    ax: Axes, columns: Columns, x: str, y: str, title: str, *, legend: bool = True, key: str | None = None
) -> Axes:
    """Labels, title, grid and the assumptions below the picture; `key` is the title of the legend."""
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
        ax.legend(frameon=False, fontsize="small", title=key, title_fontsize="small", alignment="left")
    return ax


BOUNDS = "proven upper bounds"


def _nothing(ax: Axes, reason: str) -> None:
    """Say in the middle of the frame why there is nothing in it."""
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color=GREY)
    ax.set_xticks([])
    ax.set_yticks([])


def _finite(columns: Columns, names: list[str]) -> bool:
    return any(np.isfinite(columns[name]).any() for name in names)


def plot_epsilon_of_steps(columns: Columns, ax: Axes | None = None) -> Axes:
    """Epsilon against the steps, one line for each analysis, and the best known attack."""
    ax = ax or new_axes()
    names = [name for name in columns.arrays if name != "steps"]
    for name in names:
        colour, style, label = _STYLES[name.removeprefix("epsilon_")]
        values = np.where(np.isfinite(columns[name]), columns[name], np.nan)
        if not np.isfinite(values).any():
            label += " (infinite)"
        ax.plot(columns["steps"], values, color=colour, linestyle=style, label=label)
    ax.set_ylim(bottom=0.0)
    ax.set_xlim(left=0.0)
    if not _finite(columns, names):
        _nothing(ax, _INFINITE)
    return finish(ax, columns, "training steps", "epsilon", "Privacy spent", key=BOUNDS)


_INFINITE = "No finite epsilon is proven for this run.\nWithout noise there is none."


def plot_epsilon_of_cap(columns: Columns, ax: Axes | None = None) -> Axes:
    """Epsilon against the cap: the cost of the same batches under each policy and analysis."""
    ax = ax or new_axes(6.6, 4.0)
    caps, plain = columns["max_batch_size"], columns["epsilon_no_cap"][0]
    if not 0.0 < plain < np.inf:
        _nothing(ax, _INFINITE if plain else "Epsilon is 0: this run reveals nothing.")
    top = 6.0 * plain
    for name in columns.arrays:
        if name in ("max_batch_size", "epsilon_no_cap"):
            continue
        colour, style, label = _STYLES[name.removeprefix("epsilon_")]
        values = np.where(np.isfinite(columns[name]), columns[name], np.nan)
        infinite = np.flatnonzero(np.isnan(values))
        if infinite.size:
            label += f"\n(infinite at caps up to {caps[infinite[-1]]:g})"
            values[infinite[-1]] = 100.0 * top  # the line leaves the picture there
        ax.plot(caps, values, color=colour, linestyle=style, label=label)
    ax.axhline(plain, color=GREY, linewidth=0.8, label="Poisson without a cap (batches of any size)")
    if 0.0 < top < np.inf:
        ax.set_ylim(0.0, top)
        ax.set_xlim(caps[0], max(caps[-1], caps[0] + 1))
    unit = "max_batch_size: rows of every batch"
    return finish(ax, columns, unit, "epsilon", "The price of a fixed shape", key=BOUNDS)


def plot_delta_of_epsilon(columns: Columns, ax: Axes | None = None) -> Axes:
    """Delta against epsilon on a logarithmic scale, with the numerical bracket."""
    ax = ax or new_axes()
    shown = columns["delta_upper"] > 0
    ax.plot(columns["epsilon"][shown], columns["delta_upper"][shown], color=BLUE, label="proven upper bound")
    low = columns["delta_lower"] > 0
    bound = "proven lower bound of the same analysis"
    ax.plot(columns["epsilon"][low], columns["delta_lower"][low], color=ORANGE, linestyle="--", label=bound)
    reached = columns["delta_attack"] > 0
    attack = "proven lower bound: one attack reaches this"
    ax.plot(columns["epsilon"][reached], columns["delta_attack"][reached], color=GREY, linestyle="-.", label=attack)
    ax.set_yscale("log")
    if (columns["delta_upper"] >= 1.0).all():
        _nothing(ax, "Delta is 1 at every epsilon: this run hides nothing.")
    return finish(ax, columns, "epsilon", "delta", "Privacy profile of the run")


def plot_trade_off(columns: Columns, ax: Axes | None = None) -> Axes:
    """True against false positive rate of membership attacks: a bound for all, and one attack."""
    ax = ax or new_axes()
    x = columns["false_positive_rate"]
    upper, lower = columns["true_positive_rate_upper"], columns["true_positive_rate_lower"]
    ax.fill_between(x, lower, upper, color=BLUE, alpha=0.15, linewidth=0, label="the best attack lies here")
    ax.plot(x, upper, color=BLUE, label="proven upper bound: no attack does better")
    ax.plot(x, lower, color=ORANGE, linestyle="--", label="proven lower bound: one attack reaches this")
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
        free: dict[str, Any] = {
            "color": ORANGE,
            "linestyle": "--",
            "linewidth": 1.0,
            "label": "Poisson, without the cap",
        }
        ax.step(size, columns["probability_without_cap"], where="mid", **free)
        ax.axvline(cap, color=RED, linestyle=":", label=f"cap {cap:g}")
    ax.axvline(
        columns.marks["mean"], color=GREY, linestyle="-.", linewidth=0.8, label=f"mean {columns.marks['mean']:.1f}"
    )
    ax.set_ylim(bottom=0.0)
    return finish(ax, columns, "examples in a batch", "probability", "Batch sizes")


def plot_utilization_of_cap(columns: Columns, ax: Axes | None = None) -> Axes:
    """Share of the rows in use against the cap, one line for each policy and analysis."""
    ax = ax or new_axes()
    names = [name for name in columns.arrays if name != "max_batch_size"]
    caps = columns["max_batch_size"]
    for name in names:
        colour, style, label = _STYLES[name.removeprefix("utilization_")]
        ax.plot(caps, 100 * columns[name], color=colour, linestyle=style, marker=_marker(caps), label=label)
    ax.set_xscale("log", base=2)
    marked = caps[:: max(1, (caps.size + 5) // 7)]
    ax.set_xticks(marked, [f"{cap:g}" for cap in marked])
    ax.minorticks_off()
    ax.set_ylim(0, 100)
    if not any(columns[name].any() for name in names):
        _nothing(ax, "No sampling probability meets the target at these caps.")
    title = "Compute in use at the same privacy"
    unit = "rows that hold examples (%)"
    return finish(ax, columns, "max_batch_size (rows)", unit, title, key="by proven upper bounds")


def _marker(points: np.ndarray) -> str:
    """Points of a line are marked where they are few; many are a curve."""
    return "." if points.size <= 12 else ""


def plot_frontier(columns: Columns, ax: Axes | None = None) -> Axes:
    """The planner's frontier: noise on the mean gradient against the steps, a line a strategy."""
    ax = ax or new_axes()
    for strategy in reversed(STRATEGIES):
        name = strategy.name
        colour, style, label = _STYLES[f"{strategy.overflow}_{strategy.analysis}"]
        if not np.isfinite(columns[name]).any():
            label += " (impossible)"
        steps = columns["steps"]
        ax.plot(steps, columns[name], color=colour, linestyle=style, marker=_marker(steps), label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    if not _finite(columns, [strategy.name for strategy in STRATEGIES]):
        _nothing(ax, "No noise meets the target.")
    unit = "noise on the mean gradient\n(clipping norms, one step)"
    title = "Noise that the target takes"
    return finish(ax, columns, "training steps", unit, title, key="by proven upper bounds")


def save(ax: Axes, path: Any) -> None:
    """Write the picture to a png, svg or pdf file, whole or not at all.

    The same input gives the same bytes.
    """
    from matplotlib import rc_context

    from .._files import whole_file

    figure = ax.get_figure(root=True)
    assert figure is not None  # an Axes that was drawn on has a figure
    kind = str(path).rsplit(".", 1)[-1].lower()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with whole_file(path) as temporary, rc_context({"svg.hashsalt": "filet", "svg.fonttype": "none"}):
        figure.savefig(temporary, format=kind, dpi=150, metadata=dates, bbox_inches="tight")
