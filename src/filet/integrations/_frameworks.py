"""Imports of other libraries: a missing one names its extra, a changed one the version that filet knows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib import metadata

from filet.errors import MissingExtraError

# Each library's name in prose, and the version with which all tests pass: that of constraints.txt, or
# of constraints-flower.txt for Flower, which has an environment of its own.
KNOWN = {
    "apache_beam": ("Apache Beam", "2.77.0"),
    "dp_accounting": ("dp_accounting", "0.6.0"),
    "fastavro": ("fastavro", "1.13.1"),
    "flwr": ("Flower", "1.41.0"),
    "google_crc32c": ("google_crc32c", "1.9.0"),
    "grain": ("grain", "0.2.18"),
    "jax": ("JAX", "0.10.2"),
    "jax_privacy": ("JAX Privacy", "2.0.0"),
    "keras": ("Keras", "3.15.1"),
    "lightning": ("Lightning", "2.6.6"),
    "opacus": ("Opacus", "1.6.0"),
    "optax": ("optax", "0.2.8"),
    "pandas": ("pandas", "3.1.1"),
    "pyarrow": ("pyarrow", "25.0.1"),
    "pyspark": ("PySpark", "4.3.0"),
    "ray": ("Ray", "2.60.0"),
    "torch": ("PyTorch", "2.13.0"),
    "transformers": ("Transformers", "5.23.0"),
    "trl": ("TRL", "1.16.0"),
}


@contextlib.contextmanager
def needed_for(extra: str) -> Iterator[None]:
    """Turn a failed import inside the block into one line with its remedy.

    >>> with needed_for("jax"):
    ...     import no_such_library
    Traceback (most recent call last):
    ...
    filet.MissingExtraError: no_such_library is not installed; run: pip install 'filet[jax]'

    Guarantees: a library that is there, but without a name that filet imports, is not reported as
    missing; the message says what it lacks and which version has it.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(_message(error, extra)) from error


def _message(error: ImportError, extra: str) -> str:
    module = error.name or ""
    library = module.split(".")[0]
    title, known = KNOWN.get(library, (library, None))
    blocked = sys.modules.get(library, library) is None  # as tests and some hosts hide a library
    if isinstance(error, ModuleNotFoundError) and (module == library or blocked):
        return f"{title} is not installed; run: pip install 'filet[{extra}]'"
    lack = str(error).split("\n")[0].split(" (")[0]  # without the place of the file
    if known is None:
        return f"the extra {extra!r} cannot be imported: {lack}; run: pip install 'filet[{extra}]'"
    distribution = library.replace("_", "-")
    return (
        f"{title} {_installed(distribution)} does not have what filet imports: {lack}; filet knows"
        f" version {known}, run: pip install '{distribution}=={known}'"
    )


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"
