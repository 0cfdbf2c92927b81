"""Draw the contour of one question: python docs/_scripts/contour_figure.py (a second; the same bytes every time)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from filet import CappedPoisson
from filet.accounting.proving.loss_law import Array
from filet.accounting.proving.pair import Pair, phase_law
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search.contour import Query, choose_inversion
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.saddle_point import saddle_points_at_delta
from filet.accounting.terms import Adjacency, Analysis, Phase
from filet.showing import plots

STATIC = Path(__file__).resolve().parents[1] / "_static"
LOG_DELTA = math.log(1e-5)


def composed_loss() -> LossPMF:
    """Setting A of the benchmarks: 14,000 steps of 256 examples of 60,000, policy reject."""
    scheme = CappedPoisson(60_000, 256 / 60_000, 300, overflow="reject")
    phase = Phase(scheme, 1.0, 14_000, Analysis.REFINED)
    pair = Pair((phase_law(phase, Adjacency.ZERO_OUT, 1),))
    law = pair.phases[0].law
    assert law is not None
    grid = uniform_grid(law, 9.0, 0.1)
    return pair.pmf([grid], above=True, negligible=0.0)


def log_integrand(pmf: LossPMF, z: np.ndarray, epsilon: float) -> Array:
    """log |E[e^{zL}]^steps e^{-z epsilon} / (z (z + 1))|."""
    (block,) = pmf.blocks
    terms = np.exp(block.log_mass[0] + np.multiply.outer(z, block.loss[0]))
    value = block.steps[0] * np.log(np.abs(terms.sum(axis=-1)))
    return np.asarray(value - z.real * epsilon - np.log(np.abs(z * (z + 1.0))))


@np.errstate(divide="ignore", invalid="ignore")
def main() -> None:
    pmf = composed_loss()
    epsilons, tilts = saddle_points_at_delta(pmf.whole, np.array([LOG_DELTA])).at_delta(np.array([LOG_DELTA]))
    epsilon, tilt = float(epsilons[0]), float(tilts[0])
    inversion = choose_inversion(Query(pmf, epsilons, np.array([LOG_DELTA]), 1.0), tilt)
    contour = inversion.contours[0]
    real, imaginary = np.linspace(1.0, 1.8 * contour.c, 120), np.linspace(-1.5, 1.5, 121) * contour.u[-1]
    plane = log_integrand(pmf, real[None, :] + 1j * imaginary[:, None], epsilon)
    at_saddle = float(log_integrand(pmf, np.array([contour.c + 0j]), epsilon)[0])
    left = plots.new_axes(8.0, 3.4)
    figure = left.figure
    left.set_position((0.08, 0.16, 0.4, 0.72))
    levels = np.arange(-24.0, 13.0, 3.0)
    left.contour(real, imaginary, plane - at_saddle, levels=levels, colors=plots.GREY, linewidths=0.8)
    nodes = np.concatenate([-contour.u[:0:-1], contour.u])
    left.plot(np.full(nodes.size, contour.c), nodes, ".", color=plots.BLUE, markersize=3)
    left.plot([contour.c], [0.0], "o", color=plots.RED)
    left.annotate("saddle point", (contour.c, 0.0), (1.15 * contour.c, 0.06 * imaginary[-1]), fontsize=8.5)
    left.set(xlabel="tilt, Re z", ylabel="frequency, Im z", title="log of the integrand, and the contour's nodes")
    right = figure.add_axes((0.58, 0.16, 0.38, 0.72))
    along = log_integrand(pmf, contour.c + 1j * contour.u, epsilon) - at_saddle
    right.plot(contour.u, along, ".-", color=plots.BLUE, markersize=4, linewidth=1.0)
    right.set(xlabel="frequency, Im z", title="along the contour", ylim=(-45.0, 2.0))
    plots.save(left, STATIC / "contour.svg")


if __name__ == "__main__":
    main()
