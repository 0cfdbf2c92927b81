"""Writes batches.json: batches for fixed keys, so that no version of filet changes a stream unnoticed.

Run it only for a deliberate change of the stream, which breaks every saved key and belongs in the changelog.
"""

import json
from pathlib import Path

from filet.scheme import CappedPoisson

CASES = [
    {"dataset_size": 10, "sampling_probability": 0.5, "max_batch_size": 6},
    {"dataset_size": 10, "sampling_probability": 0.5, "max_batch_size": 12, "overflow": "reject"},
    {"dataset_size": 25, "sampling_probability": 0.8, "max_batch_size": 22},
    {"dataset_size": 60_000, "sampling_probability": 0.0002, "max_batch_size": 14},
    {"dataset_size": 60_000, "sampling_probability": 0.5, "max_batch_size": 9, "overflow": "reject"},
    {"dataset_size": 10_001, "sampling_probability": 0.01, "max_batch_size": 12, "cycle_length": 10},
    {"dataset_size": 10**12, "sampling_probability": 8e-12, "max_batch_size": 10},
    {"dataset_size": 10**12 + 1, "sampling_probability": 8e-11, "max_batch_size": 10, "cycle_length": 10},
    {"dataset_size": 2**63 - 1, "sampling_probability": 1e-17, "max_batch_size": 12, "cycle_length": 12},
]
KEYS = ["000102030405060708090a0b0c0d0e0f", "ff" * 32, 0, 2**255 + 1]
STEPS = [0, 13, 2**63 - 1]


def batches() -> list[dict[str, object]]:
    return [
        {"scheme": case, "key": key, "secure": secure, "step": step, "indices": drawn(case, key, secure, step)}
        for case in CASES
        for key in KEYS
        for secure in (False, True)
        for step in STEPS
    ]


def drawn(case: dict[str, object], key: object, secure: bool, step: int) -> list[int]:
    real_key = bytes.fromhex(key) if isinstance(key, str) else key
    return CappedPoisson(**case).sampler(real_key, secure=secure)[step].indices.tolist()


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(row) for row in batches())
    Path(__file__).with_name("batches.json").write_text(f"[\n{rows}\n]\n")
