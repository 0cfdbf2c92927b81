"""The command that runs a distributed job: `beam`."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from ...errors import InvalidArgumentError
from ..group import Command
from ..jobs import check_output, job_options, key_handle, warnings_as_notes, write_options
from ..options import scheme_and_steps
from ..output import note

_PASS_ON = {"ignore_unknown_options": True}  # Beam's own options, which it checks itself


@click.command(cls=Command, context_settings=_PASS_ON)
@click.argument("input")
@click.argument("output")
@click.argument("pipeline_options", nargs=-1, type=click.UNPROCESSED)
@job_options
@click.option("--runner-option", multiple=True, metavar="NAME=VALUE", help="For the runner, past Beam's own checks.")
@click.option("--force", is_flag=True, help="Replace a finished run in OUTPUT.")
def beam(input: str, output: str, pipeline_options: tuple[str, ...], force: bool, **options: Any) -> None:
    """Batches of examples that are too large for one machine, by an Apache Beam job.

    INPUT is a pattern of files, such as 'data/*.parquet', or a directory; OUTPUT is a directory.
    The batches are those of `filet sample` with the same key and options, with their examples:
    files for ranges of steps, and a manifest, last. They are secrets of the run. Where --size is
    not public, the job counts the examples, and draws as `filet sample` does with --records.
    Options that are not listed here are Beam's, behind INPUT and OUTPUT: --runner=FlinkRunner,
    --direct_num_workers=2 --direct_running_mode=multi_processing. Without --runner the job runs
    here. On a terminal, Beam reports its progress.

    Needs Apache Beam: pip install 'filet[beam]'.
    """
    for path in (input, output):
        if path.startswith("-"):
            raise InvalidArgumentError(f"{path!r} stands where INPUT and OUTPUT do; put Beam's options behind them")
    scheme, steps = scheme_and_steps(options)
    from ...integrations import beam as integration

    examples = integration.ReadExamples(input, options["input_format"])
    write = integration.WriteBatches(
        output, scheme, steps, key_handle(options), options["start"], **write_options(options)
    )
    check_output(output, force)
    known = _known(pipeline_options, options["runner_option"])
    # On a terminal Beam says what it does; elsewhere a failure is the one line that the command
    # prints.
    logging.getLogger("apache_beam").setLevel(logging.INFO if sys.stderr.isatty() else logging.CRITICAL)
    with warnings_as_notes():
        integration.run_job(examples, write, known, id=options["id_field"])
    note(f"wrote {write.run.steps - write.run.start} steps in {write.run.ranges} files to {output}")


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
