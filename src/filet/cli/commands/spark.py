"""The command that runs a distributed job on Spark: `spark`."""

from __future__ import annotations

from typing import Any

import click

from ...errors import InvalidArgumentError
from ..group import Command
from ..jobs import check_output, job_options, key_handle, warnings_as_notes, write_options
from ..options import scheme_and_steps
from ..output import note


@click.command(cls=Command)
@click.argument("input")
@click.argument("output")
@job_options
@click.option("--master", help="Of the cluster: spark://host:7077, yarn, sc://host ...  [default: here]")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's; several times.")
@click.option("--force", is_flag=True, help="Replace a finished run in OUTPUT.")
def spark(input: str, output: str, force: bool, **options: Any) -> None:
    """Batches of examples that are too large for one machine, by an Apache Spark job.

    INPUT is a pattern of files, such as 'data/*.parquet', or a directory; OUTPUT is a directory.
    Every executor reaches both. The batches are those of `filet sample` with the same key and
    options, with their examples: files for ranges of steps, and a manifest, last. They are secrets
    of the run. Where --size is not public, the job counts the examples, and draws as `filet sample`
    does with --records. Under spark-submit, its options decide and --master and --conf are not
    needed.

    Needs Apache Spark and Java: pip install 'filet[spark]'.
    """
    scheme, steps = scheme_and_steps(options)
    settings = dict(_setting(one) for one in options["conf"])
    from ...integrations import spark as integration

    key = key_handle(options)
    arguments = {"start": options["start"], **write_options(options)}
    integration.check_job(output, scheme, steps, key, **arguments)
    check_output(output, force)
    with warnings_as_notes(), integration.spark_session(options["master"], settings) as session:
        if options["id_field"] is None:
            examples = integration.read_examples(session, input, options["input_format"])
        else:
            examples = _indexed(session, input, options)
        integration.write_batches(examples, output, scheme, steps, key, **arguments)
    note(f"wrote {steps - options['start']} steps to {output}")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidArgumentError(f"--conf {text!r} is no setting; pass --conf name=value")
    return name, value


def _indexed(session: Any, input: str, options: dict[str, Any]) -> Any:
    from ...integrations import spark as integration

    if options["input_format"] not in (None, "parquet"):
        raise InvalidArgumentError(
            f"--id-field with {options['input_format']} files is not supported; pass Parquet files"
        )
    return integration.index_examples(integration.read_parquet(session, input), options["id_field"])
