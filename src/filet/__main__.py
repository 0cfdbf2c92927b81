"""`python -m filet` is the `filet` command."""

from .cli.entry import main

if __name__ == "__main__":
    main()
