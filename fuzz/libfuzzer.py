"""One target under libFuzzer: python -m fuzz.libfuzzer TARGET [libFuzzer's arguments] [folders of inputs]."""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys
from collections.abc import Iterable, Iterator

import atheris


def modules(path: Iterable[str], prefix: str) -> Iterator[str]:
    """Names of all modules but the integrations': to walk their packages is to import frameworks."""
    for module in pkgutil.iter_modules(path, prefix):
        if not module.ispkg:
            yield module.name
        elif module.name != "filet.integrations":
            yield from modules(importlib.import_module(module.name).__path__, f"{module.name}.")


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["filet", "tomllib", "fuzz"]):
        import filet

        # filet imports late; a module imported while the target runs would not be measured.
        for module in modules(filet.__path__, "filet."):
            importlib.import_module(module)
        target = importlib.import_module(f"fuzz.{name}")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chooser = random.Random(seed)
        if chooser.random() < 0.3:
            return bytes(atheris.Mutate(data, max_size))
        for _ in range(chooser.randint(1, 3)):
            data = target.mutate(data, chooser)
        return data[:max_size]

    atheris.Setup(sys.argv, target.check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
