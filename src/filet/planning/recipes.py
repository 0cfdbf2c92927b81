"""Recipes that repeat one run: a `filet epsilon` command, Python lines and a run file.

A run description is a mapping of the keys of a run file, in their order. Numbers are written
exactly, so that each of the three gives the same epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCHEME = ("dataset_size", "sampling_probability", "max_batch_size", "no_cap", "overflow", "cycle_length", "size")
_ACCOUNT = ("noise_multiplier", "steps", "adjacency", "analysis")


def command(run: Mapping[str, Any]) -> str:
    """The command line, in one line.

    >>> command({"dataset_size": 100, "no_cap": True, "adjacency": "zero-out"})
    'filet epsilon --dataset-size 100 --no-cap --adjacency zero-out'
    """
    words = (f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in run.items())
    return " ".join(["filet epsilon", *words])


def broken(line: str, width: int) -> str:
    """A command in lines of about `width` characters, for a shell: broken before options only.

    >>> print(broken("filet epsilon --steps 5 --no-cap --delta 1e-5", 24))
    filet epsilon \\
        --steps 5 --no-cap \\
        --delta 1e-5
    """
    first, *options = line.split(" --")
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) + len(" -- \\") <= width:
            lines[-1] += f" --{option}"
        else:
            lines.append(f"    --{option}")
    return " \\\n".join(lines)


def python(run: Mapping[str, Any]) -> str:
    """Python lines that make the scheme, account for the run and print its epsilon."""
    scheme = {name: run[name] for name in _SCHEME if name in run}
    if scheme.pop("no_cap", False):
        scheme["max_batch_size"] = None
    account = {name: run[name] for name in _ACCOUNT if name in run}
    return "\n".join(
        [
            "import filet",
            "",
            *_call("scheme = filet.CappedPoisson", [], scheme),
            *_call("curve = filet.account", ["scheme"], account),
            f"print(curve.epsilon(delta={run['delta']!r}))",
        ]
    )


def _call(start: str, first: list[str], named: Mapping[str, Any]) -> list[str]:
    arguments = [*first, *(f"{name}={_quoted(value)}" for name, value in named.items())]
    return [f"{start}(", *(f"    {argument}," for argument in arguments), ")"]


def run_file(run: Mapping[str, Any]) -> str:
    """A run file, for `filet epsilon --config FILE`.

    >>> print(run_file({"steps": 5, "no_cap": True, "adjacency": "zero-out"}))
    steps = 5
    no_cap = true
    adjacency = "zero-out"
    """
    return "\n".join(f"{name} = {'true' if value is True else _quoted(value)}" for name, value in run.items())


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
