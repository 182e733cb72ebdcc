"""Calls of user code: an exception becomes one message that names the line in the user's file.

Process-wide state that the code changes, such as random seeds or torch's default dtype, is restored after the call.

>>> def make(*, classes): return classes[0]
>>> check_arguments(make, "the model", {"width": 1.0})
Traceback (most recent call last):
...
syno.base.errors.UserCodeError: the model is called with width=1.0, but make(*, classes): missing a required argument: 'classes'
"""

from __future__ import annotations

import inspect
import os
import random
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import TracebackType
from typing import Any

from syno.base.errors import SynoError, UserCodeError

OWN = Path(__file__).parents[1]  # the package syno
INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
OF_PACKAGES = frozenset({"site-packages", "dist-packages"})  # names of folders
LONGEST_REASON = 500  # characters of an exception's message
# Exceptions that user code does not cause, such as a lack of memory: their messages need no line of the user's file.
OF_THE_MACHINE = ("OutOfMemoryError", "MemoryError")


@contextmanager
def user_code(description: str) -> Iterator[None]:
    """Run user code in the block; an exception that it raises becomes a UserCodeError.

    Args:
        description: the user's function, as a message begins, such as 'the model "my_network:make"'.

    Raises UserCodeError, with the exception as its cause. A SynoError and a lack of memory are raised as they are.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, SynoError) or type(error).__name__ in OF_THE_MACHINE:
            raise
        raise UserCodeError(f"{description} failed: {reason_of(error)}") from error


@contextmanager
def unchanged_process(seed: int | None = None, *, environment: bool = True) -> Iterator[None]:
    """Restore process-wide state that user code changes in the block.

    Restored are the working directory, the environment, warning filters, the random states of Python, NumPy and torch, and
    torch's and NumPy's settings: one network must not change how others are trained and measured. Packages that are not
    imported yet have no state to restore.

    Args:
        seed: seeds all random generators in the block, so that equal seeds draw equal weights; None: the generators go on.
        environment: whether environment and working directory are restored. False for imports: a
            module may set variables for packages that read them later.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    with ExitStack() as restored, warnings.catch_warnings():
        if environment:
            restored.callback(os.chdir, Path.cwd())
            restored.callback(_set_environment, dict(os.environ))
        restored.callback(random.setstate, random.getstate())
        if numpy is not None:
            restored.callback(numpy.random.set_state, numpy.random.get_state())
            restored.enter_context(numpy.errstate())
            restored.enter_context(numpy.printoptions())
        if torch is not None:
            _restore_torch(torch, restored)
        if seed is not None:
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            if torch is not None:
                torch.manual_seed(seed)
        yield


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:  # setting a variable is not safe beside threads that read it
            os.environ[name] = value


def _restore_torch(torch: Any, restored: ExitStack) -> None:
    """Register in `restored` the callbacks that set torch's settings and random states back to their present values."""
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    # `torch.get_default_device` returns the CPU if no device was set, and only None resets the setting.
    settings: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, lambda found: torch.set_default_device(None if found.type == "cpu" else found)),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
        *(
            (getattr(torch.backends.cuda, f"{kind}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{kind}_sdp"))
            for kind in ("flash", "mem_efficient", "math", "cudnn")
        ),
        (lambda: _flushes_denormals(torch), torch.set_flush_denormal),
        (lambda: vars(torch._tensor_str.PRINT_OPTS).copy(), vars(torch._tensor_str.PRINT_OPTS).update),
        *(
            (partial(getattr, module, name), partial(setattr, module, name))
            for module, names in (
                (cudnn, ("enabled", "benchmark", "deterministic", "allow_tf32")),
                (mkldnn, ("enabled", "deterministic")),
            )
            for name in names
        ),
    ]
    for current, restore in settings:
        restored.callback(_restore_if_changed, current, restore, current())
    restored.callback(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        restored.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())


def _restore_if_changed(current: Callable[[], Any], restore: Callable[[Any], Any], before: Any) -> None:
    if current() != before:
        restore(before)


def _flushes_denormals(torch: Any) -> bool:
    """Return whether torch rounds denormal numbers to zero (`torch.set_flush_denormal`), which torch has no getter for."""
    return not bool(torch.full((), 1e-310, dtype=torch.float64, device="cpu") * 1.0)


def reason_of(error: Exception) -> str:
    """Return an exception as text: its type, its message, and the innermost line in the user's files, if there is one."""
    message = " ".join(str(error).split())
    if len(message) > LONGEST_REASON:
        message = f"{message[:LONGEST_REASON]} ..."
    place = last_own_line(error.__traceback__)
    at = "" if place is None else f" ({_short_path(place.filename)}, line {place.lineno}, in {place.name}: {place.line})"
    return f"{type(error).__name__}{f': {message}' if message else ''}{at}"


def last_own_line(traceback: TracebackType | None) -> FrameSummary | None:
    """Return the innermost frame of a traceback that lies in the user's files; None if there is none."""
    return next((frame for frame in reversed(extract_tb(traceback)) if _is_the_users(frame.filename)), None)


def kind_of(value: object) -> str:
    """Return the type of a value with an article, for messages, such as "an int"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_arguments(function: Callable[..., Any], description: str, keywords: Mapping[str, Any]) -> None:
    """Raise UserCodeError if `function` does not accept these keyword arguments; `description` names it in the message."""
    if not callable(function):
        raise UserCodeError(f"{description} is no function but {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C
        return
    try:
        signature.bind(**keywords)
    except TypeError as error:
        arguments = ", ".join(f"{name}={value!r}" for name, value in keywords.items())
        name = getattr(function, "__name__", type(function).__name__)
        raise UserCodeError(
            f"{description} is called with {arguments or 'no arguments'}, but {name}{signature}: {error}"
        ) from None


def _is_the_users(filename: str) -> bool:
    path = Path(filename)
    return path.is_file() and not is_installed(path)


def is_installed(file: Path) -> bool:
    """Return whether a file belongs to Syno, to Python or to an installed package; any other file is the user's own."""
    in_another = not OF_PACKAGES.isdisjoint(file.parts)  # environments may be layered on others
    return in_another or any(file.is_relative_to(folder) for folder in (OWN, *INSTALLED))


def _short_path(filename: str) -> str:
    """Return a path relative to the working directory, if it lies in there."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
