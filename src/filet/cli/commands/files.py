"""The commands that write files: `sample` and `plot`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..options import (
    INTEGER,
    adjacency_option,
    analysis_option,
    asked_delta,
    config_option,
    delta_option,
    output_options,
    required,
    run_from,
    run_options,
    scheme_options,
)
from ..output import check_output, note, progress_bar

if TYPE_CHECKING:
    from ..._progress import Progress
    from ...sampling.sampler import Batches
    from ...showing.columns import Columns


_FORMATS = ("jsonl", "csv", "npy")


@click.command()
@scheme_options
@click.option("--steps", type=INTEGER, help="Number of steps of the run (as accounted).")
@click.option("--start", type=INTEGER, default=0, help="First step to write.  [default: 0]")
@click.option("--key-file", type=click.Path(dir_okay=False), help="File of 16 to 64 secret random bytes.")
@click.option("--key", help="Instead: an integer; for tests, as it shows up in process lists.")
@click.option(
    "--secure/--no-secure",
    default=True,
    help="AES-256 in counter mode (default), or Philox, which is not cryptographic.",
)
@click.option("--rank", type=INTEGER, help="Write this rank's share of every batch.")
@click.option("--world-size", type=INTEGER, help="Number of ranks.")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="[default: from the file name, else jsonl]")
@output_options("File to write, whole or not at all, for its owner only.  [default: stdout]")
def sample(form: str | None, output: str | None, force: bool, **options: Any) -> None:
    """Batches of a run, one line a step, for pipelines in any language.

    Every line has max_batch_size entries: the row numbers in ascending order, then -1 for padding. JSON lines look like
    {"step": 0, "indices": [3, 17, -1]}; CSV has the columns step, 0, 1, ...; npy is one integer matrix. Batches, and
    their sizes, are secrets of the run.
    """
    from ..._files import whole_file

    check_output(output, force)
    batches = _batches(options)
    form = form or _format_of(output)
    if output is None:
        if form == "npy":
            raise InvalidArgumentError("npy is binary and needs a file; pass --output batches.npy")
        for line in _lines(batches, form, None):
            sys.stdout.write(line)
        return
    with whole_file(output, secret=True) as temporary, progress_bar("drawing") as progress:
        if form == "npy":
            _write_npy(batches, temporary, progress)
        else:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(_lines(batches, form, progress))


def _batches(options: dict[str, Any]) -> Batches:
    from ..run_file import make_scheme

    for name in ("dataset_size", "max_batch_size", "steps"):
        required(options, name)
    scheme = make_scheme(options, "the command line")
    sampler = scheme.sampler(_key(options["key"], options["key_file"]), secure=options["secure"])
    if (options["rank"] is None) != (options["world_size"] is None):
        raise InvalidArgumentError("rank and world_size go together; pass both or neither")
    if options["rank"] is not None:
        sampler = sampler.shard(options["rank"], options["world_size"])
    return sampler.batches(options["steps"], options["start"])


def _key(number: str | None, path: str | None) -> bytes | int | None:
    if number is not None and path is not None:
        raise InvalidArgumentError("key and key_file are both given; pass one of them")
    if path is not None:
        return _secret_bytes(path)
    if number is None:
        note("no key given: these batches come from a fresh key that is not kept, and cannot be drawn again")
        return None
    try:
        return int(number, 0)
    except ValueError:
        # The value may be a secret: it is not repeated.
        raise InvalidArgumentError(
            "key is not an integer such as 7 or 0x1f; put secret bytes into a --key-file"
        ) from None


def _secret_bytes(path: str) -> bytes:
    """What a key file holds; one that others can read, or put something else into, holds no secret."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if os.name == "posix" and mode & 0o077:
                raise InvalidArgumentError(
                    f"the key file {path!r} is open to others (mode {mode:03o}); run chmod 600 on it, or make a new key"
                )
            return file.read()
    except OSError as error:
        raise InvalidArgumentError(
            f"cannot read the key file {path!r}: {error.strerror}; pass a readable file"
        ) from None


def _format_of(output: str | None) -> str:
    if output is None:
        return "jsonl"
    suffix = Path(output).suffix.lstrip(".").lower()
    if suffix not in _FORMATS:
        raise InvalidArgumentError(
            f"the file name {output!r} names no format; end it in .jsonl, .csv or .npy, or pass --format"
        )
    return suffix


def _lines(batches: Batches, form: str, progress: Progress | None) -> Iterator[str]:
    from ..._progress import reported

    if form == "csv":
        batches.sampler[0]  # rows that memory cannot hold are refused here, before their names are written
        yield ",".join(["step", *map(str, range(batches.sampler.rows))]) + "\n"
    for step, batch in zip(batches.steps, reported(batches, progress), strict=True):
        indices = batch.indices.tolist()
        yield (
            f"{step},{','.join(map(str, indices))}\n"
            if form == "csv"
            else json.dumps({"step": step, "indices": indices}) + "\n"
        )


def _write_npy(batches: Batches, path: Path, progress: Progress | None) -> None:
    import numpy as np
    from numpy.lib.format import open_memmap

    from ..._progress import reported

    shape = (len(batches), batches.sampler.rows)
    if not len(batches):
        with path.open("wb") as file:
            np.save(file, np.empty(shape, dtype=np.int64))
        return
    matrix = open_memmap(path, mode="w+", dtype=batches[0].indices.dtype, shape=shape)
    for row, batch in enumerate(reported(batches, progress)):
        matrix[row] = batch.indices
    matrix.flush()


KINDS = ("epsilon-steps", "delta-epsilon", "trade-off", "batch-sizes", "utilization", "frontier")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@click.option("--epsilon", type=float, help="Target, for utilization and frontier.")
@click.option("--points", type=INTEGER, help="Number of points to compute.")
@output_options("A .png, .svg, .pdf or .csv file.", needed=True)
def plot(kind: str, output: str, force: bool, **options: Any) -> None:
    """Draw a picture, or write its numbers to a .csv file.

    epsilon-steps: privacy spent over a run. delta-epsilon: the privacy profile. trade-off: power of membership attacks.
    batch-sizes: their law, with the cap. utilization: rows in use against the cap at a target epsilon, for each policy
    and analysis. frontier: the noise that a target takes, against the steps.
    """
    from ..._files import whole_file

    suffix = Path(output).suffix.lstrip(".").lower()
    if suffix not in ("png", "svg", "pdf", "csv"):
        raise InvalidArgumentError(f"the file name {output!r} names no format; end it in .png, .svg, .pdf or .csv")
    check_output(output, force)
    columns = _COLUMNS[kind](options)
    if suffix == "csv":
        with whole_file(output) as temporary:
            temporary.write_text(columns.to_csv(), encoding="utf-8")
        return
    from ...showing import plots

    draw = {
        "epsilon-steps": plots.plot_epsilon_of_steps,
        "delta-epsilon": plots.plot_delta_of_epsilon,
        "trade-off": plots.plot_trade_off,
        "batch-sizes": plots.plot_batch_sizes,
        "utilization": plots.plot_utilization_of_cap,
        "frontier": plots.plot_frontier,
    }[kind]
    plots.save(draw(columns), output)


def _points(options: dict[str, Any], default: int) -> int:
    from ...showing.columns import checked_points

    return checked_points(default if options["points"] is None else options["points"])


def _epsilon_steps(options: dict[str, Any]) -> Columns:
    from ...accounting.terms import Analysis
    from ...showing import columns

    run = run_from(options)
    if len(run.accountant.phases) != 1 or run.curve.gaussian:
        raise InvalidArgumentError("epsilon-steps draws runs of one phase; pass a file with one, or options")
    phase = run.accountant.phases[0]
    one = options.get("analysis") or phase.scheme.overflow.value == "reject"
    wanted = [phase.analysis] if one else list(Analysis)
    points = _points(options, 25)
    with progress_bar("accounting") as progress:
        return columns.epsilon_of_steps(
            phase.scheme,
            noise_multiplier=phase.noise_multiplier,
            steps=phase.steps,
            delta=asked_delta(run),
            adjacency=run.accountant.adjacency,
            analyses=wanted,
            points=points,
            progress=progress,
        )


def _delta_epsilon(options: dict[str, Any]) -> Columns:
    from ...showing import columns

    points = _points(options, 41)
    with progress_bar("accounting") as progress:
        return columns.delta_of_epsilon(run_from(options).curve, points=points, progress=progress)


def _trade_off(options: dict[str, Any]) -> Columns:
    from ...showing import columns

    with progress_bar("accounting") as progress:
        return columns.trade_off(run_from(options).curve, points=_points(options, 61), progress=progress)


def _batch_sizes(options: dict[str, Any]) -> Columns:
    from ...showing import columns
    from ..run_file import make_scheme

    for name in ("dataset_size", "max_batch_size"):
        required(options, name)
    return columns.batch_sizes(make_scheme(options, "the command line"))


def _utilization(options: dict[str, Any]) -> Columns:
    from ...scheme import CappedPoisson
    from ...showing import columns

    names = ("dataset_size", "noise_multiplier", "steps", "epsilon", "delta", "adjacency")
    given = {name: required(options, name) for name in names}
    cap, points = required(options, "max_batch_size"), _points(options, 7)
    CappedPoisson(given["dataset_size"], 1.0, cap)  # checks both, before they are computed with
    # Caps from an eighth of the given one to eight times it, as far as the data set allows.
    factors = [2 ** (6 * i / max(points - 1, 1) - 3) for i in range(points)]
    caps = sorted({min(given["dataset_size"], max(1, round(cap * factor))) for factor in factors})
    with progress_bar("calibrating") as progress:
        return columns.utilization_of_cap(max_batch_sizes=caps, progress=progress, **given)


def _frontier(options: dict[str, Any]) -> Columns:
    from ...showing import columns
    from ..run_file import make_scheme

    names = ("dataset_size", "max_batch_size", "steps", "epsilon", "delta", "adjacency")
    given = {name: required(options, name) for name in names}
    rate = make_scheme(options, "the command line").sampling_probability
    points = _points(options, 7)
    with progress_bar("planning") as progress:
        return columns.frontier_of_steps(sampling_probability=rate, points=points, progress=progress, **given)


_COLUMNS: dict[str, Callable[[dict[str, Any]], Columns]] = {
    "epsilon-steps": _epsilon_steps,
    "delta-epsilon": _delta_epsilon,
    "trade-off": _trade_off,
    "batch-sizes": _batch_sizes,
    "utilization": _utilization,
    "frontier": _frontier,
}
