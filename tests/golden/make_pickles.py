"""Makes `pickles.json`: one pickle of each kind, as written by the version that is named in it.

Run it only to add a kind: the point of the file is that old pickles stay readable.
"""

from __future__ import annotations

import base64
import functools
import json
import pickle
from pathlib import Path
from typing import Any

import filet

KEY = b"golden pickle key"


@functools.cache  # a plan takes seconds
def values() -> dict[str, Any]:
    scheme = filet.CappedPoisson(1_000, 0.02, 32, "reject", cycle_length=4)
    sampler = scheme.sampler(key=KEY, secure=False)  # the default of the version that wrote them
    accountant = filet.Accountant("zero-out")
    accountant.compose(scheme, 1.5, 40)
    accountant.compose_gaussian(8.0)
    plan = filet.plan(dataset_size=1_000, max_batch_size=32, steps=100, epsilon=3.0, delta=1e-4, adjacency="zero-out")
    return {
        "scheme": scheme,
        "sampler": sampler,
        "shard": sampler.shard(1, 2),
        "secure sampler": scheme.sampler(key=KEY),
        "batches": sampler.batches(steps=9, start=3),
        "batch": sampler[5],
        "accountant": accountant,
        "curve": accountant.curve(),
        "bounds": filet.Bounds(1.0, 2.0),
        "words": [filet.Adjacency.ZERO_OUT, filet.Overflow.REJECT, filet.Analysis.REFINED],
        "plan": plan,
        "error": filet.NotCertifiedError("no bound"),
    }


def main() -> None:
    file = Path(__file__).parent / "pickles.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for name, value in values().items():
        if name not in known:
            known[name] = base64.b64encode(pickle.dumps(value, protocol=4)).decode()
    file.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
