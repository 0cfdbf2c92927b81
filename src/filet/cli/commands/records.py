"""The command `record`: a run's record, to publish and to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from ...errors import InvalidArgumentError
from ..group import CANNOT_ANSWER, Command
from ..options import (
    RUN_NAMES,
    FilePath,
    adjacency_option,
    analysis_option,
    config_option,
    delta_option,
    flag,
    json_option,
    output_options,
    required,
    run_from,
    run_options,
)
from ..output import check_output, print_json, progress_bar, warn_of_delta

if TYPE_CHECKING:
    from ...planning.run_file import RunFile

FORMATS = ("json", "markdown", "latex", "bibtex", "registry")
_MAKING = (*RUN_NAMES, "run", "config", "source", "delta", "output", "unit", "title", "certificate", "form")


@click.command(cls=Command)
@click.argument("run", type=FilePath(allow_dash=True), required=False)
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@click.option("--from", "source", type=FilePath(), help="Read the run from what it left behind; see below.")
@click.option("--unit", help="What one example is, such as 'one sequence of 1,024 tokens'.")
@click.option("--title", help="A name of the run.")
@click.option("--certificate", is_flag=True, default=None, help="Add a proof for `filet check`; takes a while.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What to write.  [default: json]")
@click.option("--verify", type=FilePath(), help="Check this record instead: account for its run again.")
@click.option("--max-seconds", type=float, default=600.0, help="Refuse certificates that take longer.  [default: 600]")
@output_options("The file to write; standard output if absent.")
@json_option
def record(as_json: bool, force: bool, max_seconds: float, verify: str | None, **options: Any) -> None:
    """Write the record of a run: unit, mechanism, guarantee, risks, and how to check it.

    RUN is a run file; or pass the run's options. Nothing secret is in a record. markdown is a block for a
    Hugging Face model card, latex a sentence with a footnote, bibtex an entry, registry the fields of a registry of
    deployments.

    --from reads a finished run: a checkpoint of CappedPrivacyEngine; a state that Accountant.save wrote; a
    dp_accounting event tree, or the fields of a JAX Privacy plan's config, as JSON (with --adjacency, and
    --dataset-size if they do not name it); or a checkpoint of Opacus's own engine (with --dataset-size, --adjacency,
    and --no-cap or --max-batch-size).

    With --verify, the run of a record is accounted for again, and every field that is not as it should be is named (exit
    code 1).

    Example: filet record run.toml --unit 'one sequence of 1,024 tokens' -o record.json
    """
    if verify is not None:
        _verify(verify, max_seconds, as_json, options)
        return
    if as_json:
        raise InvalidArgumentError("--json is for --verify; a record is JSON unless --format says otherwise, drop it")
    _write(force, max_seconds, options)


def _write(force: bool, max_seconds: float, options: dict[str, Any]) -> None:
    from ..._files import whole_file
    from ...showing.citing import cited
    from ...showing.record import UNIT
    from ...showing.record import record as made

    if options["run"] is not None and options["config"] is not None:
        raise InvalidArgumentError("RUN and --config are both given; pass one run file")
    check_output(options["output"], force)
    found = _run(options)
    words = {"unit": options["unit"] or UNIT, "title": options["title"] or ""}
    with progress_bar("certifying") if options["certificate"] else _silence() as bar:
        one = made(
            found.curve,
            cast(float, found.delta),
            **words,
            certificate=bool(options["certificate"]),
            max_seconds=max_seconds,
            progress=bar,
        )
    text = cited(one, options["form"] or "json")
    if options["output"] is None:
        click.echo(text, nl=False)
    else:
        with whole_file(options["output"]) as temporary:
            temporary.write_text(text, encoding="utf-8")
    warn_of_delta(cast(float, found.delta), *found.sizes)


def _run(options: dict[str, Any]) -> RunFile:
    """The run of a run file, of the options, or of what a finished one left behind."""
    from ...planning.run_file import RunFile, checked_question
    from ..sources import read_source

    if options["source"] is None:
        return run_from({**options, "config": options["run"] or options["config"]}, "delta")
    required(options, "delta")
    accountant = read_source(options["source"], _left_open(options))
    return RunFile(accountant, *checked_question(options["delta"], None))


def _left_open(options: dict[str, Any]) -> dict[str, Any]:
    """The options that say what a finished run's file may leave open; all others are refused."""
    from ..sources import GIVEN

    given = [name for name in (*RUN_NAMES, "run", "config") if options[name] is not None]
    for name in given:
        if name not in GIVEN:
            shown = "RUN" if name == "run" else flag(name)
            raise InvalidArgumentError(f"{shown} has no place beside --from: the file says what the run was; drop it")
    return {name: options[name] for name in given}


def _silence() -> Any:
    from contextlib import nullcontext

    return nullcontext(None)


def _verify(file: str, max_seconds: float, as_json: bool, options: dict[str, Any]) -> None:
    from ..._numbers import round_up
    from ...showing.record import read_record, verify

    given = [name for name in _MAKING if options.get(name) is not None]
    if given:
        name = {"run": "RUN", "form": "--format", "source": "--from"}.get(given[0], flag(given[0]))
        raise InvalidArgumentError(f"{name} has no place beside --verify: the record says what the run was; drop it")
    one = read_record(file)
    with progress_bar("checking") as bar:
        problems = verify(one, max_seconds=max_seconds, progress=bar)
    if as_json:
        print_json("record", {"file": file}, {"ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            click.echo(f"Refused: {problem}")
    else:
        proof = ", its certificate is proven" if one["certificate"] else ""
        epsilon, delta = round_up(one["guarantee"]["epsilon"]), one["guarantee"]["delta"]
        click.echo(f"Every field holds: epsilon = {epsilon} at delta = {delta!r}{proof}.")
    if problems:
        raise click.exceptions.Exit(CANNOT_ANSWER)
