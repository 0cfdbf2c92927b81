"""What is tested apart, in an environment of its own, because its framework's pins conflict with the others'.

`FILET_TESTED_APART=flower` leaves Flower's tests out of a run. Without it they run, and fail where
Flower is not installed. Whoever sets it runs them elsewhere: CONTRIBUTING.md has the commands.
"""

from __future__ import annotations

import os

APART = os.environ.get("FILET_TESTED_APART", "").split()

collect_ignore_glob = [
    pattern
    for name in APART
    for pattern in (
        f"tests/integrations/{name}/*",
        f"tests/integrations/{name}_*.py",
        f"src/filet/integrations/{name}/*",
        f"docs/integrations/{name}.md",
    )
]
