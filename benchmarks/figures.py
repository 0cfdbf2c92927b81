"""Draw figures/*.svg from results/*.json."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
from common import HERE
from results import distance, is_plain, load, number

matplotlib.use("svg")
import matplotlib.pyplot as plt

FOLDER = HERE / "figures"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "filet",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
}
COLOURS = {
    "filet": "#d1495b",
    "dp_accounting PLD": "#00798c",
    "prv_accountant": "#edae49",
    "Opacus PRV": "#66a182",
    "dp_accounting RDP": "#8d96a3",
    "Opacus RDP": "#2e4057",
    "tensorflow-privacy": "#b39c4d",
    "autodp": "#9467bd",
}


def draw() -> None:
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        if sweep := load("sweep"):
            for name in ("steps", "delta", "p", "sigma"):
                save(times_and_distances(sweep, name), f"sweep-{name}")
        if growth := load("growth"):
            save(growth_panels(growth), "growth")
        if floor := load("floor"):
            save(stage_bars(floor), "floor")


def save(figure: Any, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def times_and_distances(sweep: dict[str, Any], name: str) -> Any:
    """Plain Poisson sampling: time on the left, relative distance from the truth on the right."""
    rows = [row for row in sweep["rows"] if row["point"]["sweep"] == name and is_plain(row)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    for peer, colour in COLOURS.items():
        answered = [
            (row["point"][name], row["answers"][peer], row) for row in rows if "ms" in row["answers"].get(peer, {})
        ]
        width = 2.4 if peer == "filet" else 1.2
        left.plot(
            [x for x, _, _ in answered],
            [a["ms"] for _, a, _ in answered],
            "o-",
            ms=3,
            lw=width,
            color=colour,
            label=peer,
        )
        known = [(x, distance(a["epsilon"], row, peer)) for x, a, row in answered]
        over = [(x, max(d, 1e-12)) for x, d in known if d is not None and 0 <= d < math.inf]
        under = [(x, -d) for x, d in known if d is not None and d < 0]
        right.plot([x for x, _ in over], [d for _, d in over], "o-", ms=3, lw=width, color=colour, label=peer)
        right.plot([x for x, _ in under], [d for _, d in under], "v", ms=8, mfc="none", color=colour)
    for axes, label in ((left, "milliseconds"), (right, "relative distance from the truth")):
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel=label)
    if name == "delta":
        left.invert_xaxis()
        right.invert_xaxis()
    right.set_title("triangles: BELOW the truth", fontsize=9)
    figure.legend(
        *left.get_legend_handles_labels(), loc="lower center", ncols=4, bbox_to_anchor=(0.5, -0.18), frameon=False
    )
    return figure


def growth_panels(growth: dict[str, Any]) -> Any:
    figure, panels = plt.subplots(2, len(growth["axes"]), figsize=(13, 5), sharey="row", squeeze=False)
    for column, axis in enumerate(growth["axes"]):
        x = [row["value"] for row in axis["rows"]]
        for row, (what, label) in enumerate((("ms", "milliseconds"), ("peak_mb", "megabytes"))):
            panel = panels[row][column]
            panel.plot(x, [max(number(one[what]), 0.1) for one in axis["rows"]], "o-", ms=3, color=COLOURS["filet"])
            panel.set(xscale="log", yscale="log")
            panel.set_title(f"slope {axis['slopes'][what]:+.3f}", fontsize=9)
            if row:
                panel.set_xlabel(axis["axis"])
            if not column:
                panel.set_ylabel(label)
    panels[0][0].set_ylim(0.5, 1000)
    panels[1][0].set_ylim(1, 100)
    figure.tight_layout()
    return figure


def stage_bars(floor: dict[str, Any]) -> Any:
    figure, axes = plt.subplots(figsize=(8, 2.8))
    names = [row["setting"] for row in floor["rows"]]
    left = [0.0] * len(names)
    palette = plt.get_cmap("tab10")
    for index, stage in enumerate(floor["rows"][0]["stages"]):
        widths = [row["stages"][stage] for row in floor["rows"]]
        axes.barh(names, widths, left=left, label=stage, color=palette(index))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.barh(names, [row["floor_total_ms"] for row in floor["rows"]], height=0.25, color="black", label="the floor")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one epsilon call")
    axes.legend(ncols=1, bbox_to_anchor=(1.01, 1.0), loc="upper left", frameon=False)
    return figure


if __name__ == "__main__":
    draw()
