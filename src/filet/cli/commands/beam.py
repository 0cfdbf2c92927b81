"""The command that runs a distributed job: `beam`."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..options import INTEGER, required, scheme_options
from ..output import note

if TYPE_CHECKING:
    from ...integrations.beam_keys import KeyHandle


_FORMATS = click.Choice(("parquet", "tfrecord", "avro"))
_PASS_ON = {"ignore_unknown_options": True}  # Beam's own options, which it checks itself


@click.command(context_settings=_PASS_ON)
@click.argument("input")
@click.argument("output")
@click.argument("pipeline_options", nargs=-1, type=click.UNPROCESSED)
@scheme_options
@click.option("--steps", type=INTEGER, help="Number of steps of the run (as accounted).")
@click.option("--start", type=INTEGER, default=0, help="First step to write.  [default: 0]")
@click.option("--key-file", help="File of 16 to 64 secret random bytes, at this path on every worker.")
@click.option("--key-variable", help="Instead: environment variable of every worker, in hex digits.")
@click.option("--key-call", help="Instead: module:function, importable on every worker; it returns the key.")
@click.option("--secure/--no-secure", default=True, help="AES-256 in counter mode (default), or Philox.")
@click.option("--input-format", type=_FORMATS, help="[default: from INPUT's end]")
@click.option("--id-field", help="Number the examples by this field, a unique id, not by file and place.")
@click.option("--format", "form", type=_FORMATS, default="parquet", help="Of the output.  [default: parquet]")
@click.option("--steps-per-file", type=INTEGER, help="Steps of one output file.  [default: about 16384 rows]")
@click.option("--rows-per-key", type=INTEGER, default=1024, help="Examples that travel together.  [default: 1024]")
@click.option("--runner-option", multiple=True, metavar="NAME=VALUE", help="For the runner, past Beam's own checks.")
@click.option("--force", is_flag=True, help="Replace a finished run in OUTPUT.")
def beam(input: str, output: str, pipeline_options: tuple[str, ...], force: bool, **options: Any) -> None:
    """Batches of examples that are too large for one machine, by an Apache Beam job.

    INPUT is a pattern of files, such as 'data/*.parquet', or a directory; OUTPUT is a directory. The batches are those of
    `filet sample` with the same key and options, with their examples: files for ranges of steps, and a manifest, last.
    They are secrets of the run. Options that are not listed here are Beam's, behind INPUT and OUTPUT: --runner=FlinkRunner,
    --direct_num_workers=2 --direct_running_mode=multi_processing. Without --runner the job runs here. On a terminal, Beam
    reports its progress.

    Needs Apache Beam: pip install 'filet[beam]'.
    """
    for name in ("dataset_size", "max_batch_size", "steps"):
        required(options, name)
    for path in (input, output):
        if path.startswith("-"):
            raise InvalidArgumentError(f"{path!r} stands where INPUT and OUTPUT do; put Beam's options behind them")
    from ...integrations import beam as integration
    from ..run_file import make_scheme

    scheme = make_scheme(options, "the command line")
    examples = integration.ReadExamples(input, options["input_format"])
    write = integration.WriteBatches(
        output,
        scheme,
        options["steps"],
        _handle(options),
        options["start"],
        format=options["form"],
        steps_per_file=options["steps_per_file"],
        secure=options["secure"],
        rows_per_key=options["rows_per_key"],
    )
    if not force and integration.has_manifest(output):
        raise InvalidArgumentError(f"{output!r} holds a finished run; pass --force to replace it, or another directory")
    known = _known(pipeline_options, options["runner_option"])
    # On a terminal Beam says what it does; elsewhere a failure is the one line that the command prints.
    logging.getLogger("apache_beam").setLevel(logging.INFO if sys.stderr.isatty() else logging.CRITICAL)
    integration.run_job(examples, write, known, id=options["id_field"])
    note(f"wrote {write.run.steps - write.run.start} steps in {write.run.ranges} files to {output}")


def _handle(options: dict[str, Any]) -> KeyHandle:
    from ...integrations import beam as integration

    kinds: dict[str, Any] = {
        "key_file": integration.KeyFile,
        "key_variable": integration.KeyVariable,
        "key_call": integration.KeyCall,
    }
    given = [(kind, options[name]) for name, kind in kinds.items() if options[name] is not None]
    if len(given) != 1:
        words = "--key-file, --key-variable or --key-call"
        raise InvalidArgumentError(f"{'several keys are' if given else 'no key is'} given; pass one of {words}")
    kind, value = given[0]
    # Workers may start elsewhere in the file system than this command.
    value = os.path.abspath(value) if kind is integration.KeyFile and "://" not in value else value
    handle: KeyHandle = kind(value)
    return handle


def _known(flags: tuple[str, ...], more: tuple[str, ...]) -> Any:
    """Beam's options; a misspelt option of filet's must not pass as one of them."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    logging.getLogger("apache_beam.options").setLevel(logging.ERROR)
    try:
        both = [PipelineOptions([*flags]).get_all_options(retain_unknown_options=keep) for keep in (False, True)]
    except SystemExit:  # the reason is on stderr already
        raise InvalidArgumentError("Beam does not take these options; see the line above") from None
    unknown = [f"--{name}" for name in sorted(set(both[1]) - set(both[0]))]
    if flags and not flags[0].startswith("-"):
        unknown.insert(0, flags[0])
    if unknown:
        raise InvalidArgumentError(
            f"neither filet nor Beam knows {unknown[0]!r}; correct it, or pass --runner-option name=value if your runner does"
        )
    options = PipelineOptions([*flags, *(f"--{one}" for one in more)])
    standard = options.view_as(StandardOptions)
    # Beam's own default downloads a runner as it starts; nothing is to be fetched unasked.
    standard.runner = standard.runner or "FnApiRunner"
    return options
