"""The commands about batches and their keys: `sample` and `keygen`."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..group import Command
from ..options import (
    INTEGER,
    FilePath,
    config_option,
    output_options,
    scheme_and_steps,
    scheme_options,
    steps_options,
)
from ..output import check_output, note, progress_bar

if TYPE_CHECKING:
    from ..._progress import Progress
    from ...sampling.sampler import Batches


@click.command(cls=Command)
@click.argument("file", type=FilePath())
def keygen(file: str) -> None:
    """Write a new key, 32 random bytes, into FILE, for its owner only (mode 0600).

    Use one key for one run, with filet sample --key-file FILE, or in Python with the bytes of the
    file. An existing file is never replaced.
    """
    from ...sampling.keys import write_key_file

    write_key_file(file)
    note(f"wrote {file}: a secret key, for one run")


_FORMATS = ("jsonl", "csv", "npy")


@click.command(cls=Command)
@scheme_options
@steps_options
@config_option
@click.option("--start", type=INTEGER, default=0, help="First step to write.  [default: 0]")
@click.option("--key-file", type=FilePath(), help="File of 16 to 64 secret random bytes, as made by filet keygen.")
@click.option("--key", help="Instead: an integer; for tests, as it shows up in process lists.")
@click.option(
    "--secure/--no-secure",
    default=True,
    help="AES-256 in counter mode (default), or Philox, which is not cryptographic.",
)
@click.option("--records", type=INTEGER, help="True number of records, a secret, where --size is not public.")
@click.option("--rank", type=INTEGER, help="Write this rank's share of every batch.")
@click.option("--world-size", type=INTEGER, help="Number of ranks.")
@click.option("--format", "form", type=click.Choice(_FORMATS), help="[default: from the file name, else jsonl]")
@output_options("File to write, whole or not at all, for its owner only.  [default: stdout]")
def sample(form: str | None, output: str | None, force: bool, **options: Any) -> None:
    """Batches of a run, one line a step, for pipelines in any language.

    Every line has max_batch_size entries: the row numbers in ascending order, then -1 for padding.
    JSON lines look like {"step": 0, "indices": [3, 17, -1]}; CSV has the columns step, 0, 1, ...;
    npy is one integer matrix. Batches, and their sizes, are secrets of the run.
    """
    check_output(output, force)
    batches, warned = _batches(options)
    form = form or _format_of(output)
    if output is None:
        if form == "npy":
            raise InvalidArgumentError("npy is binary and needs a file; pass --output batches.npy")
        for line in _lines(batches, form, None):
            sys.stdout.write(line)
        sys.stdout.flush()
    else:
        _write(batches, form, output)
    for remark in warned:  # after the batches, as errors are one line
        note(remark)


def _write(batches: Batches, form: str, output: str) -> None:
    from ..._files import whole_file

    with whole_file(output, secret=True) as temporary, progress_bar("drawing") as progress:
        if form == "npy":
            _write_npy(batches, temporary, progress)
        else:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(_lines(batches, form, progress))
    note(f"wrote {output}: {len(batches)} batches, which are secrets of the run")


def _batches(options: dict[str, Any]) -> tuple[Batches, list[str]]:
    """The batches to write, and warnings about their key."""
    scheme, steps = scheme_and_steps(options)
    if (options["rank"] is None) != (options["world_size"] is None):
        raise InvalidArgumentError("rank and world_size go together; pass both or neither")
    key = _key(options["key"], options["key_file"])
    with warnings.catch_warnings(record=True) as warned:  # of keys that can be found by trying
        warnings.simplefilter("always")
        sampler = scheme.sampler(key, secure=options["secure"], records=options["records"])
    if options["rank"] is not None:
        sampler = sampler.shard(options["rank"], options["world_size"])
    return sampler.batches(steps, options["start"]), [str(remark.message) for remark in warned]


def _key(number: str | None, path: str | None) -> bytes | int | None:
    from ...sampling.keys import read_key_file

    if number is not None and path is not None:
        raise InvalidArgumentError("key and key_file are both given; pass one of them")
    if path is not None:
        return read_key_file(path)
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
