"""Write docs/cli.md from the commands' own --help: python docs/_scripts/cli.py"""

from __future__ import annotations

from pathlib import Path

import click

from filet.cli.commands.answers import main

TARGET = Path(__file__).resolve().parents[1] / "cli.md"

INTRODUCTION = """# Command line

`pip install 'filet[cli]'` brings the command `filet` (`filet[plot]` adds pictures, `filet[explore]` the [page](exploring.md)). Option names are the Python names.

```sh
filet epsilon --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300 \\
    --noise-multiplier 1 --steps 14000 --delta 1e-5 --adjacency zero-out
```

- Standard output carries results only: a short table for people, JSON with `--json`. Remarks and progress bars go to standard
  error, bars only to terminals. Tables fit the terminal (`COLUMNS`, or 80), and go on below rather than cut a figure; `NO_COLOR` means no bold
  letters either.
- Nothing is ignored: an option given twice, or one that a command does not read, is an error, and a near miss gets a suggestion.
- `--config FILE` describes the run instead of options, in every command; `-` is standard input. A question about one phase refuses a file of several.
- Printed upper bounds are rounded up, lower bounds down. JSON has full precision, the inputs as understood, the version,
  and a schema name; infinities are the strings `"inf"` and `"-inf"`.
- Files are written whole or not at all, and over an existing file only with `--force`, which keeps its mode. A new file of batches,
  which are secrets, is readable by its owner only; pictures and their numbers follow the umask.
- A key file must be its owner's alone, or it is refused: `filet keygen FILE` makes one, and `filet sample --key-file FILE` reads it.
- A delta above 1 / `dataset_size` is answered with a warning: publishing some examples as they are would pass.

| exit code | meaning |
| --- | --- |
| 0 | answered |
| 1 | cannot answer: no certified bound, no solution (nothing meets the target, or everything does), a file cannot be written |
| 2 | usage: an option or a run file is wrong |
| 3 | answered, but epsilon is above `--max-epsilon` |
| 130 | interrupted |

Shell completion: `eval "$(_FILET_COMPLETE=bash_source filet)"` (or `zsh_source`, `fish_source`).

## Run files

A TOML file describes a whole run, several phases included. Keys of a phase may stand at the top, for
all phases, but for `steps` and `epochs`: each phase has its own. Without `[[phases]]` the top level is
the one phase; a second phase needs a table for the first as well. Unknown keys are errors.

```toml
adjacency = "zero-out"
delta = 1e-5
max_epsilon = 3.0              # optional guard: exit code 3 above it
dataset_size = 60_000
max_batch_size = 300           # or no_cap = true: plain Poisson sampling

[[phases]]
poisson_batch_size = 128      # mean before the cap; or sampling_probability
noise_multiplier = 1.2
steps = 1_000                  # or epochs

[[phases]]
poisson_batch_size = 256
overflow = "reject"
noise_multiplier = 1.0
steps = 10_000

[[gaussian]]                   # optional: other Gaussian releases from the same data
noise_multiplier = 20.0
count = 1
```

`filet epsilon --config run.toml` in a CI job guards a training configuration: the job fails as soon as someone changes
it beyond the budget.

"""


def reference() -> str:
    """The whole page."""
    parts = [INTRODUCTION + "## filet\n\n" + _help(main, "filet")]
    for name in sorted(main.commands):
        command = main.commands[name]
        parts.append(f"## filet {name}\n\n" + _help(command, f"filet {name}"))
        kinds = command.commands if isinstance(command, click.Group) else {}
        for kind in sorted(kinds):
            parts.append(f"### filet {name} {kind}\n\n" + _help(kinds[kind], f"filet {name} {kind}"))
    return "\n".join(parts)


def _help(command: click.Command, path: str) -> str:
    settings = {**main.context_settings, "terminal_width": 100}
    context = click.Context(command, info_name=path, **settings)
    return f"```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
