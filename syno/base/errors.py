"""One family of exceptions.

Every message says what was given, what is allowed, and what to do about it; it quotes the user's own input.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SynoError(Exception):
    """Base of every error that Syno raises on bad input."""


class SizeError(SynoError, ValueError):
    """A size that is not a legal monomial, or that has no integer value."""


class ValuationError(SynoError, ValueError):
    """A valuation that lacks a variable or gives it a value that is not a positive integer."""


class GraphError(SynoError, ValueError):
    """A pGraph that breaks a rule of the language, or a primitive applied to the wrong coordinates."""


class ParseError(SynoError, ValueError):
    """Text that is not an operator, a size or a graph. The message names the place."""


class ShapeError(SynoError, ValueError):
    """A tensor whose shape is not the one the operator takes."""


class LoweringError(SynoError, RuntimeError):
    """An operator that a generator cannot express."""


class MissingPackageError(SynoError, ImportError):
    """An optional package that is not installed, or in another version than the one that works."""


class WrongOutputError(SynoError, RuntimeError):
    """A module whose output is not that of its reference: how long it took means nothing."""


class DeviceError(SynoError, RuntimeError):
    """A device, or the tracker that lends it, that does not answer, or no longer does."""


class DataError(SynoError, ValueError):
    """Data that is missing or damaged. The message names the file or folder."""


class TrainingError(SynoError, RuntimeError):
    """A training that failed, as one that produced NaN or infinity."""


class SpecError(SynoError, ValueError):
    """A spec or configuration that means nothing, or that no operator can meet."""


class StorageError(SpecError):
    """A storage of trials that is full, read-only, damaged or gone. It says nothing about the operator at hand."""


class MisfitError(SpecError):
    """An operator that does not fit a layer of a network."""


class MissingDeviceError(DeviceError, SpecError):
    """A device that the settings name and this machine does not have."""


class SearchStoppedError(SynoError, RuntimeError):
    """A search that stopped before its end, because evaluations fail for a reason that is not the operators'."""


class UserCodeError(SpecError):
    """A function of the user's own that raised an exception, or returned something else. The message names the place."""


class UnreachableError(SynoError, LookupError):
    """An operator that a space does not hold. The message names the rule or option that excludes it."""


class UnknownNameError(SynoError, KeyError):
    """A name that a table does not hold."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line, or the name of its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def suggestion(given: str, allowed: Iterable[str]) -> str:
    """`' Did you mean "x"?'` for the closest allowed name, or an empty string."""
    close = difflib.get_close_matches(given, list(allowed), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""
