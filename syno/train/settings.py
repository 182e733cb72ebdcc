"""The settings of workloads and trainings, which are read without loading torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from syno.base.devices import DEVICE_PATTERN
from syno.base.errors import UnknownNameError
from syno.train.recipes import MILESTONES, QUICK, RECIPES

Metric = Literal["accuracy", "loss"]  # of a training: a fraction, more is better; nats per token, less is better
Positive = Annotated[int, Field(ge=1)]
Above = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


def check_score(metric: str, value: float) -> None:
    """Raise ValueError for an impossible score: accuracies are from 0 to 1; losses are 0 or more, and may be infinite."""
    if metric == "accuracy" and not 0 <= value <= 1:
        raise ValueError(f"an accuracy is a fraction, from 0 to 1; given: {value}")
    if metric == "loss" and not value >= 0:
        raise ValueError(f"a loss is 0 or more; given: {value}")


class TrainingSettings(BaseModel):
    """Settings of a training: a recipe, and what differs from it. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    recipe: str = QUICK
    """recipe that sets the defaults; docs/training.md describes all; the defaults here are those of quick"""
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "cpu"
    """cpu, cuda, or one of several GPUs such as cuda:1"""
    epochs: Positive = 4
    """passes over the data"""
    most_steps: Positive | None = None
    """most steps, whatever the epochs; null: no limit"""
    most_minutes: Above | None = None
    """most minutes of training and testing; null: no limit. With a limit, results depend on the machine's speed"""
    most_epoch_seconds: Above | None = None
    """training ends after a round, other than the first, that trained for longer; null: no limit; the paper's: 60"""
    round_steps: Positive | None = None
    """steps of a round, after which the network is tested and milestones and pruners are asked; null: an epoch"""
    most_tests: Positive | None = None
    """most pictures or sequences to test on, the first ones; null: all"""
    batch: Positive = 64
    """pictures or sequences of a batch; the last batch of an epoch is left out if it is smaller"""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """optimizer; sgd is with Nesterov momentum"""
    learning_rate: Above = 0.1
    """highest learning rate"""
    schedule: Literal["one-cycle", "cosine", "cosine-by-epoch", "triangle", "constant"] = "one-cycle"
    """schedule of the learning rate"""
    final_learning_rate: Annotated[float, Field(ge=0)] = 0.0
    """learning rate at the end of a cosine schedule"""
    peak_epoch: Above = 2.0
    """epoch until which a triangle schedule rises from 0; from there it falls to 0 at the end"""
    momentum: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """momentum of sgd"""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """betas of adamw"""
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    """weight decay"""
    decay: Literal["all", "matrices"] = "all"
    """parameters that decay; matrices: no biases, normalizations, embeddings, and no vectors"""
    label_smoothing: Share = 0.0
    """label smoothing of the cross-entropy"""
    clip: Above | None = None
    """greatest norm of all gradients together; null: no clipping"""
    initialization: Literal["fan-in", "paper", "normal"] = "fan-in"
    """new weights; fan-in keeps the variance; paper: truncated normal 0.1; normal: operators N(0, 1)"""
    score: Literal["last", "best", "tail"] = "last"
    """score of the training: of its last or best round; tail: mean of the last 20 % of a text's losses"""
    flip_tests: bool = False
    """whether a picture's logits are the mean over it and its mirror image"""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """number format of autocast; with float16, gradients are scaled"""
    tf32: bool = False
    """whether a GPU may multiply float32 with less than full precision"""
    compile: bool = False
    """whether torch.compile compiles the network; on a CPU that doesn't pay for trainings of minutes"""
    channels_last: bool = True
    """whether pictures are in the memory format channels_last: faster, and equal up to rounding"""
    threads: Positive = 1
    """threads of one process; with more than 1, results differ in the last bits"""

    @model_validator(mode="before")
    @classmethod
    def _of_recipe(cls, given: Any) -> Any:
        """Return the settings with the recipe's values where none are given."""
        if not isinstance(given, Mapping):
            return given
        try:
            return {**RECIPES[str(given.get("recipe", QUICK))], **given}
        except UnknownNameError as error:
            raise ValueError(f"recipe: {error}") from None


class WorkloadSettings(BaseModel):
    """A network, a data set, and the training that evaluates an operator in them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    model: str = "resnet8"
    """backbone: a name, or your own as `package.module:function`"""
    width: Annotated[float, Field(gt=0)] = 1.0
    """factor of the backbone's numbers of features"""
    layers: str = "spatial"
    """rule for the layers to replace: `spatial`, `paper-3x3`, `paper`, `projections`, or `package.module:rule`"""
    data: str = "glyphs"
    """data set: a name in docs/data.md, or your own as `package.module:function`"""
    data_settings: Mapping[str, Any] = {}
    """settings of the data set, such as {preset: micro}"""
    training: TrainingSettings = TrainingSettings()
    """settings of the training"""
    milestones: Mapping[Positive, Annotated[float, Field(ge=0)]] = {}
    """least accuracies, or greatest losses, by round; or the name of a curve"""
    seed: int = 0
    """seed of the weights and of the order of the data"""

    @field_validator("milestones", mode="before")
    @classmethod
    def _named_curve(cls, given: Any) -> Any:
        try:
            return MILESTONES[given] if isinstance(given, str) else given
        except UnknownNameError as error:
            raise ValueError(str(error)) from None
