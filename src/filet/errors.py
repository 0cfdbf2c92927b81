"""The errors filet raises: each message is one line with the rule, the value and the remedy."""

from __future__ import annotations

from ._public import public


@public
class FiletError(Exception):
    """Base class of every error that filet raises on purpose."""


@public
class InvalidArgumentError(FiletError, ValueError):
    """An argument breaks its rule; nothing was computed."""


@public
class NotCertifiedError(FiletError, ArithmeticError):
    """No proven bound could be computed, so none is returned."""


@public
class StateError(FiletError):
    """A saved state is damaged, or belongs to something else."""


@public
class MissingExtraError(FiletError, ImportError):
    """An optional package is missing or has changed; the message names the extra or the version to install."""


@public
class OutputError(FiletError, OSError):
    """A file could not be written; nothing was changed."""


@public
class NoSolutionError(InvalidArgumentError):
    """Each argument is fine, but no number answers the question: nothing meets the target, or everything does."""
