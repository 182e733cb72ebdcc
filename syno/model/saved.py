"""A trained network in a folder, as `syno get EXPERIMENT OPERATOR` writes it: loaded in three lines.

    import syno
    model = syno.load("quickstart_5")
    logits = model(pictures)

The folder needs nothing of Syno: `network.py` in it has a function `load`, too.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from syno.base.errors import SpecError

NETWORK_CODE, WEIGHTS, PROGRAM, FACTS = "network.py", "weights.safetensors", "network.pt2", "network.json"


def load(folder: str | Path, device: torch.device | str = "cpu") -> nn.Module:
    """Return the trained network in a folder, in evaluation mode.

    The folder's own code is executed: load folders that you trust (docs/trust.md says what else runs code).

    >>> import syno
    >>> try:
    ...     model = syno.load("quickstart_5").eval()
    ... except syno.SynoError as error:  # there is no such folder
    ...     print(error)
    quickstart_5 has neither network.py nor network.pt2; `syno get EXPERIMENT OPERATOR` writes such a folder

    Args:
        folder: that `syno get EXPERIMENT OPERATOR` wrote.
        device: where the network shall be.

    Raises SpecError if the folder has no network.
    """
    place = Path(folder)
    if (place / NETWORK_CODE).is_file():
        file = place / NETWORK_CODE
        network: nn.Module = code_of(file.read_text(encoding="utf-8"), str(file)).load(place / WEIGHTS, device)
        return network
    if (place / PROGRAM).is_file():
        return torch.export.load(place / PROGRAM).module().to(device)
    raise SpecError(f"{place} has neither {NETWORK_CODE} nor {PROGRAM}; `syno get EXPERIMENT OPERATOR` writes such a folder")


def code_of(text: str, file: str) -> ModuleType:
    """Return a module with this source, as if it had been imported from the file; it is not in `sys.modules`."""
    spec = spec_from_loader(Path(file).stem, loader=None, origin=file)
    assert spec is not None
    module = module_from_spec(spec)
    module.__file__ = file
    exec(compile(text, file, "exec"), module.__dict__)
    return module
