"""Networks and operators in PyTorch: backbones, extraction of their layers, and substitution of operators for layers.

Names are imported lazily, since other rooms read names of baselines without loading torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno.model.module import OperatorModule, build
    from syno.model.prepared_weights import prepare_for_inference

__all__ = ["OperatorModule", "build", "prepare_for_inference"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'syno.model' has no attribute {name!r}")
    from syno.model import module, prepared_weights  # torch takes long to import

    return getattr(prepared_weights if name == "prepare_for_inference" else module, name)
