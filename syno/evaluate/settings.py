"""What a network is trained on and how: settings alone, so that a config is read without loading torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ORIGINAL = "original"  # stands for the network as it is, where an operator could be named

Metric = Literal["accuracy", "loss"]  # of what is trained: a fraction, more is better; nats per token, less is better
Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class TrainingSettings(BaseModel):
    """The recipe: SGD with Nesterov momentum under a one-cycle learning rate. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: Positive = 4
    batch: Positive = 64  # pictures; the last batch of an epoch is left out if it is smaller
    learning_rate: Annotated[float, Field(gt=0)] = 0.1  # the highest of the cycle
    momentum: Annotated[float, Field(gt=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    clip: Annotated[float, Field(gt=0)] | None = None  # the greatest norm of all gradients together
    channels_last: bool = True  # the memory format: faster, the same results up to rounding
    threads: Positive = 1  # of one process; with more, results differ in the last bits


class WorkloadSettings(BaseModel):
    """A network on a data set, and the training that tells what an operator in it is worth."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = "resnet8"  # the backbone: a name, or your own as `package.module:function`
    width: Annotated[float, Field(gt=0)] = 1.0  # multiplies its features
    layers: str = "spatial"  # which of its layers are replaced: `spatial`, `paper-3x3`, `paper`, or `package.module:rule`
    data: str = "glyphs"  # the data set: a name in docs/data.md, or your own as `package.module:function`
    data_settings: Mapping[str, Any] = {}  # such as {preset: micro}
    training: TrainingSettings = TrainingSettings()
    milestones: Mapping[Positive, Fraction] = {}  # the accuracy to have after an epoch, or training ends there: {2: 0.35}
    seed: int = 0  # of weights and of the order of pictures
