"""The command that serves the page: `explore`."""

from __future__ import annotations

import click

from ...errors import MissingExtraError
from ..group import Command
from ..options import INTEGER
from ..output import note


@click.command(cls=Command)
@click.option(
    "--port", type=INTEGER, help="Port of this machine; 0 for any free one.  [default: the first free one from 8765]"
)
@click.option("--no-browser", is_flag=True, help="Print the address, and leave the browser alone.")
def explore(port: int | None, no_browser: bool) -> None:
    """See the trade-off in a browser: a page on this machine, for this machine only.

    Moves sliders, draws epsilon, batch sizes, utilization, noise and attacks as they change, plans,
    and shows the command, the Python lines and the run file of what it shows. Prints its address;
    Ctrl-C stops it. Needs: pip install 'filet[explore]'.
    """
    try:
        from ...exploring import serving
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError(
            f"filet explore needs {error.name}; install it with: pip install 'filet[explore]'"
        ) from None

    def announce() -> None:
        click.echo(serving.address(listening))
        note("Ctrl-C stops")

    with serving.loopback_socket(port) as listening:
        serving.serve(listening, browser=not no_browser, announce=announce)
