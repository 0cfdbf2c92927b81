"""`python -m filet` is the `filet` command. The file can be submitted to a cluster, too."""

from filet.cli.entry import main

if __name__ == "__main__":
    main()
