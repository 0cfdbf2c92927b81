"""Check a certificate of filet: is its epsilon proven? Ball arithmetic and integers only; nothing else of filet is used.

>>> from filet.checking import check
>>> print(check({"format": "something else"}).reason)
this is no certificate (format 'something else'); pass the JSON that filet wrote
"""

from __future__ import annotations

try:
    import flint as _flint  # noqa: F401
except ImportError as error:
    raise ImportError("filet.checking needs python-flint; pip install 'filet[check]'") from error

from .claims import Verdict, check

__all__ = ["Verdict", "check"]
