"""The entry point of the `filet` command; the commands are in `commands`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .commands.answers import main as group
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.stderr.write(f"filet: the command line needs {error.name}; install it with: pip install 'filet[cli]'\n")
        sys.exit(1)
    group()


if __name__ == "__main__":
    main()
