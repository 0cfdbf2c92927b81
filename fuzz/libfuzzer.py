"""One target under libFuzzer: python -m fuzz.libfuzzer TARGET [libFuzzer's arguments] [folders of inputs]."""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["filet", "tomllib", "fuzz"]):
        import filet

        # filet imports late; a module imported while the target runs would not be measured.
        for module in pkgutil.walk_packages(filet.__path__, "filet."):
            if not module.ispkg and not module.name.startswith("filet.integrations."):
                importlib.import_module(module.name)
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
