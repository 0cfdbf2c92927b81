"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from typing import Any

import click


@click.command()
def calibrate(**options: Any) -> None:
    """The noise, the steps or the sampling probability that meet a target."""


@click.command()
def plan(**options: Any) -> None:
    """The run that wastes the least compute at a target epsilon."""
