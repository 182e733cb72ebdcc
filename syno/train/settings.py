"""What a network is trained on and how: settings alone, so that a config is read without loading torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from syno.base.devices import DEVICE_PATTERN
from syno.base.errors import UnknownNameError
from syno.train.recipes import MILESTONES, QUICK, RECIPES

Metric = Literal["accuracy", "loss"]  # of what is trained: a fraction, more is better; nats per token, less is better
Positive = Annotated[int, Field(ge=1)]
Above = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


def check_score(metric: str, value: float) -> None:
    """Raise ValueError if a score is none: an accuracy is from 0 to 1, a loss is 0 or more and may be infinite."""
    if metric == "accuracy" and not 0 <= value <= 1:
        raise ValueError(f"an accuracy is a fraction, from 0 to 1; given: {value}")
    if metric == "loss" and not value >= 0:
        raise ValueError(f"a loss is 0 or more; given: {value}")


class TrainingSettings(BaseModel):
    """How a network is trained: a recipe, and what differs from it. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    recipe: str = QUICK  # where the defaults come from; docs/training.md has all; those of quick are shown here
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "cpu"  # cpu, cuda, or one of several GPUs such as cuda:1
    epochs: Positive = 4
    most_steps: Positive | None = None  # end after so many, whatever the epochs
    most_minutes: Above | None = None  # end after so many of training and testing; results then depend on the machine's speed
    most_epoch_seconds: Above | None = (
        None  # end after a round that trained for longer, unless it is the first; the paper's: 60
    )
    round_steps: Positive | None = None  # test, and ask milestones and pruners, after every so many steps; null: every epoch
    most_tests: Positive | None = None  # pictures or sequences to test on, the first ones; null: all
    batch: Positive = 64  # pictures or sequences; the last batch of an epoch is left out if it is smaller
    optimizer: Literal["sgd", "adamw"] = "sgd"  # sgd: with Nesterov momentum
    learning_rate: Above = 0.1  # the highest
    schedule: Literal["one-cycle", "cosine", "cosine-by-epoch", "triangle", "constant"] = "one-cycle"  # of the learning rate
    final_learning_rate: Annotated[float, Field(ge=0)] = 0.0  # of cosine
    peak_epoch: Above = 2.0  # of triangle: it rises from 0 until then, and falls to 0 until the end
    momentum: Annotated[float, Field(gt=0, lt=1)] = 0.9  # of sgd
    betas: tuple[Share, Share] = (0.9, 0.95)  # of adamw
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    decay: Literal["all", "matrices"] = "all"  # which parameters decay; matrices: no biases, norms, embeddings, nothing 1-d
    label_smoothing: Share = 0.0
    clip: Above | None = None  # the greatest norm of all gradients together
    initialization: Literal["fan-in", "paper", "normal"] = "fan-in"  # paper: truncated normal 0.1; normal: operators N(0, 1)
    score: Literal["last", "best", "tail"] = "last"  # of a round's tests; tail: mean of the last 20 % of a text's losses
    flip_tests: bool = False  # whether a picture's logits are the mean over it and its mirror image
    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of autocast; float16 with scaled gradients
    tf32: bool = False  # whether a GPU may multiply float32 in less than full precision
    compile: bool = False  # by torch.compile: on a CPU it does not pay for trainings of minutes
    channels_last: bool = True  # the memory format of pictures: faster, the same results up to rounding
    threads: Positive = 1  # of one process; with more, results differ in the last bits

    @model_validator(mode="before")
    @classmethod
    def _of_recipe(cls, given: Any) -> Any:
        """What is not given is the recipe's."""
        if not isinstance(given, Mapping):
            return given
        try:
            return {**RECIPES[str(given.get("recipe", QUICK))], **given}
        except UnknownNameError as error:
            raise ValueError(f"recipe: {error}") from None


class WorkloadSettings(BaseModel):
    """A network on a data set, and the training that tells what an operator in it is worth."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = "resnet8"  # the backbone: a name, or your own as `package.module:function`
    width: Annotated[float, Field(gt=0)] = 1.0  # multiplies its features
    layers: str = "spatial"  # which are replaced: `spatial`, `paper-3x3`, `paper`, `projections`, or `package.module:rule`
    data: str = "glyphs"  # the data set: a name in docs/data.md, or your own as `package.module:function`
    data_settings: Mapping[str, Any] = {}  # such as {preset: micro}
    training: TrainingSettings = TrainingSettings()
    milestones: Mapping[Positive, Annotated[float, Field(ge=0)]] = {}  # least accuracies, most losses after rounds, or a name
    seed: int = 0  # of weights and of the order of what is trained on

    @field_validator("milestones", mode="before")
    @classmethod
    def _named_curve(cls, given: Any) -> Any:
        try:
            return MILESTONES[given] if isinstance(given, str) else given
        except UnknownNameError as error:
            raise ValueError(str(error)) from None
