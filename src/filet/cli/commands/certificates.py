"""The commands for proofs that others can check: `certify` and `check`."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, cast

import click

from ...errors import InvalidArgumentError, MissingExtraError
from ...showing.answers import describe_run
from ..group import CANNOT_ANSWER, Command
from ..options import (
    FilePath,
    adjacency_option,
    analysis_option,
    budget_options,
    config_option,
    delta_option,
    json_option,
    output_options,
    run_from,
    run_options,
)
from ..output import check_output, print_json, print_pairs, progress_bar, warn_of_delta

if TYPE_CHECKING:
    from ...checking import Verdict

_BYTES_OF_A_CHARACTER = 32  # that a character of JSON may take in memory, such as those of [{},{},{}]


@click.command(cls=Command)
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@output_options("The certificate to write, such as run.certificate.json (no default).")
@budget_options
@json_option
def certify(as_json: bool, force: bool, max_seconds: float, max_bytes: float, **options: Any) -> None:
    """Write a certificate of a run: its epsilon, with a proof that others can check.

    The checker's lattice of losses makes epsilon a little larger than that of `filet epsilon`, by
    0.1 % (or 1e-4) at most. Nothing secret is in the file. Check it with `filet check`. Needs pip
    install 'filet[check]'.
    """
    from ..._files import whole_file
    from ..._numbers import round_up

    check_output(options["output"], force)
    run = run_from(options, "delta", "output")
    output = str(options["output"])
    delta = cast(float, run.delta)
    with progress_bar("certifying") as bar:
        claim = run.curve.certificate(delta, max_seconds=max_seconds, max_bytes=max_bytes, progress=bar)
    with whole_file(output) as temporary:
        temporary.write_text(json.dumps(claim) + "\n", encoding="utf-8")
    bound, epsilon = run.curve.epsilon(delta), float(claim["epsilon"])
    cost = epsilon / bound - 1.0 if bound else 0.0
    if as_json:
        asked = {**describe_run(run.curve), "delta": delta}
        result = {"epsilon": claim["epsilon"], "uncertified_epsilon": bound, "cost": cost, "file": output}
        print_json("certify", asked, result)
    else:
        print_pairs(
            [
                ("epsilon", claim["epsilon"]),
                ("delta", claim["delta"]),
                ("adjacency", claim["adjacency"]),
                ("cost of the lattice", f"{100.0 * cost:.3f} % of epsilon {round_up(bound, 8)}"),
                ("file", output),
            ]
        )
    warn_of_delta(delta, *run.sizes)


@click.command(cls=Command)
@click.argument("file", type=FilePath(allow_dash=True))
@budget_options
@json_option
def check(file: str, max_seconds: float, max_bytes: float, as_json: bool) -> None:
    """Check a certificate: is its epsilon proven? FILE may be -, standard input.

    Prints what was proven, in words, or why it is refused (exit code 1). The checker uses ball
    arithmetic and nothing else of filet. Needs pip install 'filet[check]'.
    """
    verdict = _verdict(file, max_seconds, max_bytes)
    if as_json:
        result = {name: getattr(verdict, name) for name in ("ok", "reason", "words", "epsilon", "delta", "seconds")}
        print_json("check", {"file": file, "max_seconds": max_seconds, "max_bytes": max_bytes}, result)
    else:
        click.echo(verdict.words if verdict.ok else f"Refused: {verdict.reason}")
    if not verdict.ok:
        raise click.exceptions.Exit(CANNOT_ANSWER)


def _verdict(file: str, max_seconds: float, max_bytes: float) -> Verdict:
    try:
        from ...checking import Verdict
        from ...checking import check as judge
    except ImportError as error:  # the checker knows nothing of filet, nor of its errors
        raise MissingExtraError(str(error)) from None
    from ..._checks import real  # late: it loads NumPy

    seconds = real("max_seconds", max_seconds, remedy="pass the seconds that it may take")
    size = real("max_bytes", max_bytes, remedy="pass the bytes that it may take")
    try:
        with click.open_file(file, encoding="utf-8") as text:
            claim = _claim(text, size)
    except OSError as error:
        raise InvalidArgumentError(f"cannot read {file!r}: {error.strerror}; pass a certificate's file") from None
    except (ValueError, RecursionError) as error:
        return Verdict(False, f"the file is not plain JSON: {error}", "", "", "", 0.0)
    with progress_bar("checking") as bar:
        heard = (lambda share: None) if bar is None else (lambda share: bar(share, ""))
        return judge(claim, max_seconds=seconds, max_bytes=size, progress=heard)


def _claim(file: IO[str], max_bytes: float) -> Any:
    """The claim in a file that fits into memory."""
    from ..._files import plain_json

    most = int(min(max(max_bytes, 0.0) / _BYTES_OF_A_CHARACTER, 1e9))
    text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"it has more than {most} characters, and reading them may take more than max_bytes")
    return plain_json(text)
