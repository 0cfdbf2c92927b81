"""Handles of a run's key for workers on other machines: where to find the key, never the key itself."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.sampling.keys import MAX_KEY_BYTES, MIN_KEY_BYTES, read_key_file

from .storage import opened


@dataclass(frozen=True)
class KeyFile:
    """The key is in a file of 16 to 64 bytes that every worker finds at this path.

    >>> KeyFile("/run/secrets/batches.key")
    KeyFile(path='/run/secrets/batches.key')

    Guarantees: a job holds the path alone; a worker opens the file when it starts. A local file that others than its
    owner can open is refused. A path on an object store (`gs://...`) has no modes: there, the bucket's access rules
    decide who reads it.

    Arguments:
        path: where the file is, on every worker.
    """

    path: str

    def read(self) -> bytes:
        """The key's bytes."""
        if "://" not in self.path:
            return read_key_file(self.path)
        try:
            with opened(self.path) as file:
                data = bytes(file.read(MAX_KEY_BYTES + 1))
        except Exception:  # every file system has errors of its own
            raise _checks.fail(f"cannot read the key file {self.path!r}; pass a readable file") from None
        return _sized(data, f"the key file {self.path!r}")


@dataclass(frozen=True)
class KeyVariable:
    """The key is in an environment variable of every worker, as 32 to 128 hex digits.

    >>> os.environ["EXAMPLE_KEY"] = "00112233445566778899aabbccddeeff"
    >>> len(KeyVariable("EXAMPLE_KEY").read())
    16

    Guarantees: a pipeline holds the name alone.

    Arguments:
        name: the variable, as a secret manager sets it in the workers' container.
    """

    name: str

    def read(self) -> bytes:
        """The key's bytes."""
        text = os.environ.get(self.name)
        if text is None:
            raise _checks.fail(f"the environment variable {self.name} is not set here; set it on every worker")
        try:
            data = bytes.fromhex(text)
        except ValueError:  # the value is a secret, and is not repeated
            raise _checks.fail(
                f"the environment variable {self.name} does not hold hex digits; pass 32 to 128"
            ) from None
        return _sized(data, f"the environment variable {self.name}")


@dataclass(frozen=True)
class KeyCall:
    """The key is what a function without arguments returns on the worker, such as a call of a secret manager.

    >>> KeyCall("my_secrets:batches_key")
    KeyCall(function='my_secrets:batches_key')

    Guarantees: a pipeline holds the function's name alone, so that no key can hide in what Python would pickle with it.

    Arguments:
        function: `module:name`, importable on every worker; it returns 16 to 64 bytes.
    """

    function: str

    def read(self) -> bytes:
        """The key's bytes."""
        module, _, name = self.function.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError):
            raise _checks.fail(
                f"no function {self.function!r} here; pass 'module:name', importable on workers"
            ) from None
        data = found()
        if not isinstance(data, bytes):
            raise _checks.fail(f"{self.function} returned a {type(data).__name__}, not bytes; return 16 to 64 bytes")
        return _sized(data, self.function)


KeyHandle = KeyFile | KeyVariable | KeyCall


def checked_handle(key: Any) -> KeyHandle:
    """The handle, or an error for a key itself, which the pipeline would carry in the clear."""
    if isinstance(key, (KeyFile, KeyVariable, KeyCall)):
        return key
    raise InvalidArgumentError(
        f"key is of type {type(key).__name__}, and a pipeline would carry it in the clear; pass KeyFile(path),"
        " KeyVariable(name) or KeyCall('module:function')"
    )


def _sized(data: bytes, where: str) -> bytes:
    if not MIN_KEY_BYTES <= len(data) <= MAX_KEY_BYTES:
        has = f"{len(data)} bytes" if len(data) <= MAX_KEY_BYTES else f"more than {MAX_KEY_BYTES} bytes"
        raise _checks.fail(f"{where} holds {has}, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}; pass random bytes")
    return data
