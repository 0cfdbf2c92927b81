"""Run files: any bytes are a run that can be composed, saved and asked, or one line that names the file."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random

from filet.errors import FiletError
from filet.planning.run_file import PHASE_KEYS, RUN_KEYS, read_run

from .common import NUMBERS, WORDS, check_accountant, check_message, edited

HEADERS = ("[[phases]]", "[[gaussian]]", "[phases]", "[gaussian]", "[[phases.steps]]", "phases = [{}, {}]")
VALUES = (*NUMBERS, *(repr(word) for word in WORDS), "true", "[]", "[1]", "{}", "1979-05-27", "07:32:00", "[" * 2000)


@lru_cache(maxsize=1)
def _path() -> Path:
    return Path(tempfile.mkdtemp(prefix="filet-fuzz-"), "run.toml")


def check(data: bytes) -> None:
    path = _path()
    path.write_bytes(data)
    try:
        run = read_run(path)
    except FiletError as error:
        assert str(path) in check_message(error), f"the file is not named: {error}"
        return
    assert run.delta is None or 0.0 < run.delta < 1.0
    assert run.max_epsilon is None or 0.0 <= run.max_epsilon < float("inf")
    check_accountant(run.accountant, run.delta or 1e-5)


def mutate(data: bytes, random: Random) -> bytes:
    """A change of one line or one value, so that the file mostly stays TOML."""
    lines = data.decode(errors="replace").split("\n")
    if random.random() < 0.3:
        return "\n".join(edited(lines, random)).encode()
    here = random.randrange(len(lines))
    key, equals, _ = lines[here].partition("=")
    choice = random.random()
    if choice < 0.5 and equals:
        lines[here] = f"{key}= {random.choice(VALUES)}"
    elif choice < 0.85:
        lines.insert(here, f"{random.choice((*RUN_KEYS, *PHASE_KEYS, 'count'))} = {random.choice(VALUES)}")
    else:
        lines.insert(here, random.choice(HEADERS))
    return "\n".join(lines).encode(errors="replace")
