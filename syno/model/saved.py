"""Loading of a trained network from a folder that `syno get EXPERIMENT OPERATOR` wrote.

    import syno
    model = syno.load("quickstart_5")
    logits = model(pictures)

The folder can be used without Syno, too: its `network.py` has a function `load`.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from syno.base.errors import DataError, SpecError
from syno.base.files import checksum, read_json

NETWORK_CODE, WEIGHTS, PROGRAM, FACTS = "network.py", "weights.safetensors", "network.pt2", "network.json"
FILES = "files"  # in the facts: the checksum of each file


def load(folder: str | Path, device: torch.device | str = "cpu") -> nn.Module:
    """Return the trained network in a folder, in evaluation mode.

    The folder's own code is executed: load folders that you trust (docs/trust.md says what else runs code). Its weights are
    compared with their checksum. A network "for inference" (its card says so) raises an error when it is put in training mode.

    >>> import syno
    >>> try:
    ...     model = syno.load("quickstart_5").eval()
    ... except syno.SynoError as error:  # there is no such folder
    ...     print(error)
    quickstart_5 has neither network.py nor network.pt2; `syno get EXPERIMENT OPERATOR` writes such a folder

    Args:
        folder: a folder that `syno get EXPERIMENT OPERATOR` wrote.
        device: the device of the loaded network.

    Raises:
        SpecError: the folder has no network.
        DataError: a file of it is missing, damaged, or of another network.
    """
    place = Path(folder)
    if (file := place / NETWORK_CODE).is_file():
        try:
            code = code_of(file.read_text(encoding="utf-8"), str(file))
        except Exception as error:  # a damaged file raises anything
            raise _damaged(file, f"cannot be run: {error}") from error
        weights = place / WEIGHTS
        _check(weights, getattr(code, "CHECKSUM", None))
        try:
            network: nn.Module = code.load(weights, device)
        except Exception as error:  # the code was edited
            raise _damaged(weights, f"is not the file of {file.name}: {error}") from error
        return network
    if (file := place / PROGRAM).is_file():
        _check(file)
        try:
            return _Program(torch.export.load(file).module()).to(device)
        except Exception as error:  # a damaged file raises anything
            raise _damaged(file, f"holds no program: {error}") from error
    raise SpecError(f"{place} has neither {NETWORK_CODE} nor {PROGRAM}; `syno get EXPERIMENT OPERATOR` writes such a folder")


def _check(file: Path, expected: str | None = None) -> None:
    """Raise DataError if a file of the folder is missing, or its content does not match its checksum.

    Args:
        file: the file.
        expected: the file's checksum in the code beside it; None: only the checksum in the folder's facts is compared, if any.
    """
    try:
        actual = checksum(file.read_bytes())
    except OSError as error:
        raise _damaged(file, f"cannot be read: {error.strerror or error}") from error
    known = {expected, _facts(file.with_name(FACTS)).get(FILES, {}).get(file.name)} - {None, ""}
    if known and known != {actual}:
        raise _damaged(file, "does not agree with its checksum, so it was damaged or exchanged after it was written")


def _facts(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        facts = read_json(file)
    except (OSError, ValueError) as error:
        raise _damaged(file, f"cannot be read: {error}") from error
    return facts if isinstance(facts, dict) and isinstance(facts.get(FILES, {}), dict) else {}


def _damaged(file: Path, damage: str) -> DataError:
    said = " ".join(damage.split())[:400]
    return DataError(f"{file} {said}; copy the folder again, or write it again with `syno get EXPERIMENT OPERATOR`")


class _Program(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """An exported program (torch.export) as a module that can only be in evaluation mode."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program
        self.training = program.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the program's output."""
        return self.program(*args, **kwargs)

    def train(self, mode: bool = True) -> _Program:
        """Do nothing for evaluation mode. Raises SpecError for training mode, which an exported program does not have."""
        if mode:
            raise SpecError(
                f"this network is for inference: {PROGRAM} is a program of torch.export, which has no training mode; train the "
                "network that the experiment makes, with the weights of this one's `state_dict()`"
            )
        return self


def code_of(text: str, file: str) -> ModuleType:
    """Execute source text as a module that names `file` as its origin, and return it; it is not added to `sys.modules`."""
    spec = spec_from_loader(Path(file).stem, loader=None, origin=file)
    assert spec is not None
    module = module_from_spec(spec)
    module.__file__ = file
    exec(compile(text, file, "exec"), module.__dict__)
    return module
