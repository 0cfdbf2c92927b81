"""Options that the commands of distributed jobs share, and the library's arguments for them."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InvalidArgumentError
from .options import INTEGER, config_option, scheme_options, steps_options
from .output import note

if TYPE_CHECKING:
    from ..integrations.batch_files.keys import KeyHandle

_INPUTS = click.Choice(("parquet", "tfrecord", "avro"))
_FORMATS = click.Choice(("arrow", "parquet", "tfrecord", "avro"))
Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    scheme_options,
    steps_options,
    config_option,
    click.option("--start", type=INTEGER, default=0, help="First step to write.  [default: 0]"),
    click.option("--key-file", help="File of 16 to 64 secret bytes (filet keygen), at this path on every worker."),
    click.option("--key-variable", help="Instead: environment variable of every worker, in hex digits."),
    click.option("--key-call", help="Instead: module:function, importable on every worker; it returns the key."),
    click.option("--secure/--no-secure", default=True, help="AES-256 in counter mode (default), or Philox."),
    click.option("--input-format", type=_INPUTS, help="[default: from INPUT's end]"),
    click.option("--id-field", help="Number the examples by this field, a unique id, not by file and place."),
    click.option("--format", "form", type=_FORMATS, default="arrow", help="Of the output.  [default: arrow]"),
    click.option("--steps-per-file", type=INTEGER, help="Steps of one output file.  [default: about 16384 rows]"),
    click.option("--rows-per-key", type=INTEGER, default=1024, help="Examples that travel together.  [default: 1024]"),
)


def job_options(command: Command) -> Command:
    """The scheme, the steps, the key, and the files of a job."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def write_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the library's writers."""
    return {
        "format": options["form"],
        "steps_per_file": options["steps_per_file"],
        "secure": options["secure"],
        "rows_per_key": options["rows_per_key"],
    }


def key_handle(options: Mapping[str, Any]) -> KeyHandle:
    """The one handle of a key that is given."""
    from ..integrations import batch_files

    kinds: dict[str, Any] = {
        "key_file": batch_files.KeyFile,
        "key_variable": batch_files.KeyVariable,
        "key_call": batch_files.KeyCall,
    }
    given = [(kind, options[name]) for name, kind in kinds.items() if options[name] is not None]
    if len(given) != 1:
        words = "--key-file, --key-variable or --key-call"
        raise InvalidArgumentError(f"{'several keys are' if given else 'no key is'} given; pass one of {words}")
    kind, value = given[0]
    # Workers may start elsewhere in the file system than this command.
    is_local = kind is batch_files.KeyFile and "://" not in value
    handle: KeyHandle = kind(os.path.abspath(value) if is_local else value)
    return handle


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print what a job warns of behind it, a line each."""
    with warnings.catch_warnings(record=True) as warned:
        yield
    for one in warned:
        note(str(one.message))


def check_output(path: str, force: bool) -> None:
    """Raise if a finished run would be replaced without being told to."""
    from ..integrations import batch_files

    if not force and batch_files.has_manifest(path):
        raise InvalidArgumentError(f"{path!r} holds a finished run; pass --force to replace it, or another directory")
