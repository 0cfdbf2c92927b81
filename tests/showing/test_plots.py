"""Pictures: they show the columns, say what was assumed, and files repeat to the byte."""

import numpy as np
import pytest

import filet
from filet.planning.strategies import STRATEGIES
from filet.showing import columns, plots

SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 300)
CURVE = filet.account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out")


def drawn():
    yield (
        plots.plot_epsilon_of_steps,
        columns.epsilon_of_steps(
            SCHEME,
            noise_multiplier=1.0,
            steps=100,
            delta=1e-5,
            adjacency="zero-out",
            analyses=["refined", "union"],
            points=3,
        ),
    )
    yield (
        plots.plot_epsilon_of_cap,
        columns.epsilon_of_cap(SCHEME, noise_multiplier=1.0, steps=100, delta=1e-5, adjacency="zero-out", points=3),
    )
    yield plots.plot_delta_of_epsilon, columns.delta_of_epsilon(CURVE, points=5)
    yield plots.plot_trade_off, columns.trade_off(CURVE, points=5)
    yield plots.plot_batch_sizes, columns.batch_sizes(SCHEME)


def test_every_picture_labels_axes_assumptions_and_lines_and_uses_the_axes_it_is_given():
    for draw, curve in drawn():
        ax = plots.new_axes()
        assert draw(curve, ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert any("n=60000" in text.get_text() for text in ax.texts)
        assert ax.get_legend() is not None
        colours = [line.get_color() for line in ax.lines]
        styles = [(line.get_color(), line.get_linestyle()) for line in ax.lines]
        assert len(set(styles)) == len(styles)
        assert set(colours) <= {plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED, plots.GREY, "#56B4E9"}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_saved_pictures_repeat_to_the_byte_and_leave_nothing_else(tmp_path, suffix):
    for name in ("a", "b"):
        plots.save(plots.plot_batch_sizes(columns.batch_sizes(SCHEME)), tmp_path / f"{name}.{suffix}")
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 1000


def test_pictures_of_strategies_have_a_line_for_each_and_say_what_is_impossible():
    x = np.array([1.0, 2.0])
    heights = {strategy.name: x + i for i, strategy in enumerate(STRATEGIES)} | {"union": np.array([np.nan, np.nan])}
    ax = plots.plot_frontier(columns.Columns({"steps": x, **heights}, "n=1"))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == len(STRATEGIES)
    assert [label.endswith("(impossible)") for label in labels] == [True, False, False, False]
    shares = {f"utilization_{one.overflow}_{one.analysis}": x / 4 for one in STRATEGIES}
    ax = plots.plot_utilization_of_cap(columns.Columns({"max_batch_size": x, **shares}, "n=1"))
    assert [line.get_ydata().tolist() for line in ax.lines] == [[25.0, 50.0]] * len(STRATEGIES)


def test_legends_say_what_is_proven_from_above():
    for draw, curve in drawn():
        if draw is plots.plot_batch_sizes:
            continue
        legend = draw(curve).get_legend()
        words = [legend.get_title().get_text(), *(text.get_text() for text in legend.get_texts())]
        assert any("proven upper bound" in text for text in words), draw


def test_the_price_of_a_shape_has_a_line_for_each_policy_and_analysis_and_for_no_cap():
    given = {"noise_multiplier": 1.0, "steps": 100, "delta": 1e-5, "adjacency": "zero-out"}
    found = columns.epsilon_of_cap(SCHEME, points=3, **given)
    ax = plots.plot_epsilon_of_cap(found)
    assert len(ax.lines) == len(columns.CAPPED) + 1
    plain = found["epsilon_no_cap"][0]
    assert ax.lines[-1].get_ydata()[0] == plain
    assert ax.get_ylim() == (0.0, 6.0 * plain)
    union = next(text.get_text() for text in ax.get_legend().get_texts() if "union" in text.get_text())
    last = found["max_batch_size"][np.flatnonzero(np.isinf(found["epsilon_truncate_union"]))[-1]]
    assert f"infinite at caps up to {last:g}" in union


def test_an_infinite_epsilon_is_said_and_not_drawn():
    steps = np.array([1.0, 2.0])
    found = columns.Columns({"steps": steps, "epsilon_refined": steps, "epsilon_union": steps * np.inf})
    ax = plots.plot_epsilon_of_steps(found)
    assert ax.get_legend().get_texts()[1].get_text() == "union bound (infinite)"
    assert np.isnan(ax.lines[1].get_ydata()).all()
