"""The exceptions that Syno raises. Every message quotes what was given, and says what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from syno.base.addresses import visible, without_passwords


class SynoError(Exception):
    """Base of every error that Syno raises on bad input. Its message is shown without the passwords in addresses, and
    with escapes of control characters.

    >>> import syno
    >>> try:
    ...     syno.OPERATORS["conv3d"]
    ... except syno.SynoError as error:
    ...     print(str(error).split(";")[0])
    unknown operator "conv3d"
    """

    def __str__(self) -> str:
        return visible(without_passwords(super().__str__()))


class SizeError(SynoError, ValueError):
    """A size that is not an allowed monomial, or whose value is not an integer."""


class ValuationError(SynoError, ValueError):
    """A valuation that lacks a variable, or gives it a value that is not a positive integer."""


class GraphError(SynoError, ValueError):
    """A pGraph that breaks a rule of the language, or a primitive applied to the wrong coordinates."""


class ParseError(SynoError, ValueError):
    """Text that is not an operator, a size or a graph. The message names the place."""


class ShapeError(SynoError, ValueError):
    """A tensor whose shape is not the shape that the operator takes."""


class LoweringError(SynoError, RuntimeError):
    """An operator that a generator cannot express."""


class MissingPackageError(SynoError, ImportError):
    """An optional package that is not installed, or whose version is not supported."""


class WrongOutputError(SynoError, RuntimeError):
    """A module whose output differs from its reference output. Its latency is not reported."""


class NotCompiledError(SynoError, RuntimeError):
    """A compiler that did not compile all code, so that a latency would include uncompiled code."""


class MachineError(SynoError, RuntimeError):
    """A failure of the machine, such as a lack of memory or disk space or a killed process: a retry may succeed."""


class DeviceError(SynoError, RuntimeError):
    """A device, or the tracker that assigns devices, that does not answer."""


class DataError(SynoError, ValueError):
    """Data that is missing or damaged. The message names the file or folder."""


class TrainingError(SynoError, RuntimeError):
    """A training that failed: it produced NaN or infinity."""


class SpecError(SynoError, ValueError):
    """A spec or configuration that is not valid, or that no operator can meet."""


class NoneSelectedError(SpecError):
    """A finished search without an operator that can be selected: a result, not a fault."""


class StorageError(SpecError):
    """A storage of trials that is full, read-only, damaged or missing: a fault that no operator caused."""


class MisfitError(SpecError):
    """An operator that does not fit a layer of a network."""


class ReplacedWeightError(SpecError, AttributeError):
    """A network that reads the weight of a layer that an operator has replaced."""


class MissingDeviceError(DeviceError, SpecError):
    """A device that the settings name but this machine does not have."""


class SearchStoppedError(SynoError, RuntimeError):
    """A search that stopped early, because evaluations fail for reasons other than the operators.

    Attributes:
        may_pass: whether the machine failed, so that the same command may succeed later or elsewhere.
    """

    may_pass = False


class UserCodeError(SpecError):
    """A user's function that raised an exception, or returned a value of the wrong kind. The message names the line."""


class RunsCodeError(SpecError):
    """Raised by commands that only read results, if they would have to import user code that the experiment names."""


class UnreachableError(SynoError, LookupError):
    """An operator that is not in a space. The message names the rule or option that excludes it."""


class UnknownNameError(SynoError, KeyError):
    """A name that is not in a registry or table. The message lists similar or allowed names."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return visible(without_passwords(str(self.args[0])))


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's message, shortened; the name of its class if the message is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line, or the name of its type if it has none."""
    return " ".join(visible(without_passwords(str(error))).split()) or type(error).__name__


def suggestion(name: str, allowed: Iterable[str]) -> str:
    """Return `' Did you mean "x"?'` for the closest allowed name, or an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""
