"""Draw the argument of lending: python docs/_scripts/lending_figure.py (a second; the same bytes every time)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from filet.showing import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATIC = Path(__file__).resolve().parents[1] / "_static"


def _batch(ax: Axes, x: float, y: float, colour: str, size: float, words: str, side: str = "left") -> None:
    """A Gaussian, as a disc, with its words beside it."""
    ax.scatter([x], [y], s=size, color=colour, alpha=0.22, linewidths=0, zorder=2)
    ax.scatter([x], [y], s=14, color=colour, zorder=4)
    gap = -0.2 if side == "left" else 0.2
    ax.text(x + gap, y, words, ha="right" if side == "left" else "left", va="center", fontsize=8.5, zorder=5)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, bend: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "connectionstyle": f"arc3,rad={bend}"}
    ax.annotate("", end, start, arrowprops={**style, "shrinkA": 4, "shrinkB": 4}, zorder=3)


def _swap(ax: Axes) -> None:
    """What Theorem 2 compares: the batch with x_1 and the batch with v in its place."""
    _batch(ax, 0.0, 1.0, plots.ORANGE, 900, "Y + v\nwithout x₁, full")
    _batch(ax, 0.0, 0.0, plots.BLUE, 300, "Y\nB-1 others")
    _batch(ax, 0.7, -0.7, plots.RED, 500, "Y + x₁", "right")
    ax.plot([0.0, 0.7], [1.0, -0.7], color=plots.GREY, linestyle="--", linewidth=1.0, zorder=1)
    ax.text(0.45, 0.25, "up to 2", fontsize=8.5, color=plots.GREY)
    ax.set_title("Swap: x₁ against the v\nthat it displaced", fontsize=9.5)


def _lend(ax: Axes) -> None:
    """One step up, one step down, back to the middle."""
    _batch(ax, 0.0, 1.0, plots.ORANGE, 900, "Y + v\none more: a step up")
    _batch(ax, 0.0, 0.0, plots.BLUE, 1500, "Y")
    _batch(ax, 0.0, -1.0, plots.GREEN, 900, "Y - u\none fewer: a step down\n(lent by the level below)")
    _batch(ax, 0.7, -0.7, plots.RED, 500, "Y + x₁", "right")
    _arrow(ax, (0.0, 1.0), (0.0, 0.0), plots.ORANGE, -0.35)
    _arrow(ax, (0.0, -1.0), (0.0, 0.0), plots.GREEN, 0.35)
    ax.plot([0.0, 0.7], [0.0, -0.7], color=plots.GREY, linestyle="--", linewidth=1.0, zorder=1)
    ax.text(0.42, -0.32, "about 1", fontsize=8.5, color=plots.GREY)
    ax.text(
        0.34,
        0.55,
        "the geometric mean of\nboth steps lies near Y,\nas v and u come from\none population",
        fontsize=8.5,
        va="center",
    )
    ax.set_title("Lending: a step up and a step down\nlead back to the middle", fontsize=9.5)


def main() -> None:
    left = plots.new_axes(7.6, 3.6)
    figure = left.figure
    left.set_position((0.02, 0.03, 0.42, 0.80))
    right = figure.add_axes((0.50, 0.03, 0.48, 0.80))
    for ax, draw in ((left, _swap), (right, _lend)):
        draw(ax)
        ax.set_xlim(-1.35, 1.45)
        ax.set_ylim(-1.45, 1.4)
        ax.axis("off")
    STATIC.mkdir(exist_ok=True)
    plots.save(left, STATIC / "lending.svg")


if __name__ == "__main__":
    main()
