"""Answers as JSON objects: one shape for the command line's `--json` and for the page.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..accounting.curve import PrivacyCurve


def describe_run(curve: PrivacyCurve) -> dict[str, Any]:
    """The inputs of an answer, as they were understood, and the data set sizes that it holds for."""
    from ..accounting.state import phase_fields

    described: dict[str, Any] = {
        "adjacency": curve.adjacency.value,
        "phases": [phase_fields(phase) for phase in curve.phases],
        "guarantee": {
            "size": curve.size.value,
            "holds_for": curve.holds_for,
            "composes_with_secret_sizes": curve.size.value != "public",
        },
    }
    if curve.gaussian:
        # Together the releases are as private as one of this noise.
        squares = [count / sigma / sigma if sigma else math.inf for sigma, count in curve.releases]
        described["gaussian_noise_multiplier"] = 1.0 / math.sqrt(math.fsum(squares))
    return described


def as_answer(kind: str, inputs: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """The JSON object of an answer, with its schema and filet's version.

    >>> as_answer("epsilon", {"steps": 5}, {"epsilon": math.inf})["result"]
    {'epsilon': 'inf'}
    """
    from .. import __version__

    answer = {"schema": f"filet.{kind}.v1", "version": __version__, "inputs": inputs, "result": result}
    return {key: jsonable(entry) for key, entry in answer.items()}


def jsonable(value: Any) -> Any:
    """The value with infinities as the strings "inf" and "-inf", as JSON has no number for them."""
    if isinstance(value, Mapping):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
