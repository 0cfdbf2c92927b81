"""Draw the figures of the documentation: python docs/_scripts/figures.py (about 20 s; the same bytes every time)."""

from __future__ import annotations

from pathlib import Path

import filet
from filet.showing import columns, plots

STATIC = Path(__file__).resolve().parents[1] / "_static"


def gain() -> None:
    """The README's first picture: `filet plot epsilon-cap` of the setting that all pages use."""
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    found = columns.epsilon_of_cap(scheme, noise_multiplier=1.0, steps=14_000, delta=1e-5, adjacency="zero-out")
    plots.save(plots.plot_epsilon_of_cap(found), STATIC / "gain.svg")


def argument() -> None:
    """Which batches Theorem 2 (swap) compares with which."""
    ax = plots.new_axes(7.6, 3.3)
    boxes = [
        (
            0.0,
            3.2,
            "at most B-2 others drawn",
            "x₁ fits, and so does one more",
            "Poisson at rate p,\ndistance 1",
            plots.GREEN,
        ),
        (3.4, 2.2, "B-1 others", "x₁ takes the last place", "weight w", plots.BLUE),
        (5.8, 3.2, "B or more others", "x₁ takes the place of v,\nif it survives the cut", "weight tau", plots.ORANGE),
    ]
    for left, width, title, words, below, colour in boxes:
        ax.fill_between([left, left + width], 0, 1, color=colour, alpha=0.18, linewidth=0)
        ax.text(left + width / 2, 0.8, title, ha="center", va="center", fontsize=9, weight="bold")
        ax.text(left + width / 2, 0.5, words, ha="center", va="center", fontsize=8.5)
        ax.text(left + width / 2, 0.18, below, ha="center", va="center", fontsize=8.5, color=plots.GREY)
    for left, right, height, words in (
        (0.0, 5.6, 1.14, "note: label 1"), (5.8, 9.0, 1.14, "note: label 2"),
        (0.0, 3.2, 1.42, "swap: label 1"), (3.4, 9.0, 1.42, "swap: label 2, one group: distances 1 and 2"),
    ):  # fmt: skip
        ax.annotate(
            "", (right, height), (left, height), arrowprops={"arrowstyle": "|-|,widthA=.2,widthB=.2", "lw": 1.0}
        )
        ax.text((left + right) / 2, height + 0.04, words, ha="center", va="bottom", fontsize=8.5)
    ax.set_ylim(-0.05, 1.65)
    ax.set_xlim(-0.1, 9.1)
    ax.axis("off")
    plots.save(ax, STATIC / "argument.svg")


if __name__ == "__main__":
    STATIC.mkdir(exist_ok=True)
    gain()
    argument()
