"""Files of checkpoints: whole or not at all, for their owner only if they hold a key."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from filet._files import whole_file


@contextlib.contextmanager
def target(path: Any, *, secret: bool) -> Iterator[Any]:
    """The file to write: one that appears whole or not at all, readable by its owner only if secret; or the given one."""
    if not isinstance(path, (str, os.PathLike)):
        yield path
        return
    if secret and os.path.isfile(path):  # an existing file keeps its mode, and one without the key may be for everybody
        os.chmod(path, 0o600)
    with whole_file(path, secret=secret) as temporary:
        yield temporary
