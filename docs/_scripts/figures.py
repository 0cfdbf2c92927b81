"""Draw the figures of the documentation: python docs/_scripts/figures.py (about 20 s; the same bytes every time)."""

from __future__ import annotations

import math
from pathlib import Path

import filet
from filet.showing import plots
from filet.showing.columns import Columns

STATIC = Path(__file__).resolve().parents[1] / "_static"


def gain() -> None:
    """Epsilon against the cap, for a mean batch of 256: what each policy and analysis asks for the same batches."""
    n, mean, sigma, steps, delta = 60_000, 256, 1.0, 14_000, 1e-5
    caps = [*range(248, 304, 4), *range(304, 360, 6), *range(360, 385, 2)]
    ax = plots.new_axes(6.6, 4.0)
    lines = [
        ("truncate", "union", plots.RED, ":", 1.5, "truncate, union bound (Chua et al., 2024)"),
        ("truncate", "note", plots.ORANGE, "--", 1.5, "truncate, note (Ganesh, 2025)"),
        ("truncate", "swap", plots.BLUE, "-", 0.7, "truncate, swap alone (filet)"),
        ("truncate", "refined", plots.BLUE, "-", 2.0, "truncate, refined: swap and lending (filet)"),
        ("reject", "refined", plots.GREEN, "-.", 1.5, "reject (filet)"),
    ]
    for overflow, analysis, colour, style, width, label in lines:
        values = []
        for cap in caps:
            scheme = filet.CappedPoisson(n, mean / n, cap, overflow)  # type: ignore[arg-type]
            curve = filet.account(
                scheme, noise_multiplier=sigma, steps=steps, adjacency="zero-out", analysis=filet.Analysis(analysis)
            )
            epsilon = curve.epsilon(delta)
            values.append(epsilon if math.isfinite(epsilon) else math.nan)
        infinite = [index for index, value in enumerate(values) if math.isnan(value)]
        if infinite:  # the line leaves the picture at the last cap with an infinite epsilon
            values[infinite[-1]] = 1e3
            label += f"\n(infinite at caps up to {caps[infinite[-1]]})"
        ax.plot(caps, values, color=colour, linestyle=style, linewidth=width, label=label)
    plain = filet.account(
        filet.CappedPoisson(n, mean / n, n), noise_multiplier=sigma, steps=steps, adjacency="zero-out"
    )
    ax.axhline(
        plain.epsilon(delta), color=plots.GREY, linewidth=0.8, label="Poisson without a cap (batches of any size)"
    )
    ax.set_ylim(0, 16)
    ax.set_xlim(248, 384)
    about = Columns(
        {}, f"zero-out, delta={delta:g}; n={n}, mean batch {mean}, noise multiplier {sigma:g}, {steps} steps"
    )
    plots.finish(
        ax, about, "max_batch_size: rows of every batch", "epsilon (upper bound)", "The price of a fixed shape"
    )
    plots.save(ax, STATIC / "gain.svg")


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
