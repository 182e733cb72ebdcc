"""Training a network, deterministic and to be gone on with where it was interrupted.

A training is a number of steps. They are grouped in rounds, which are epochs unless the settings say otherwise; after each
round the network is tested, and a report is asked whether to go on.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import torch
from torch import nn

from syno.data.contract import PictureData
from syno.data.tokens import TokenSet
from syno.train.checkpoint import EVERY_SECONDS, Checkpoint
from syno.train.optimization import own_state
from syno.train.pruning import EpochReport
from syno.train.settings import TrainingSettings
from syno.train.tasks import measure_accuracy, task_of
from syno.train.training_loop import Training
from syno.train.training_progress import TrainingResult

__all__ = ["TrainingResult", "measure_accuracy", "train"]


def train(
    model: nn.Module,
    data: PictureData | TokenSet,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    report: EpochReport | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = EVERY_SECONDS,
) -> TrainingResult:
    """Train `model`, in place, on the device where it is.

    The global random state and number of threads are as before afterwards. What broke (a loss that is not finite) and
    what was pruned are results, not exceptions.

    Args:
        model: [N, channels, H, W] -> logits [N, classes]; of a text, [N, L] tokens -> logits [N, L, vocabulary].
        data: what to learn, and what to test on.
        settings: how.
        seed: of the order of what is trained on, and of whatever is random in the model (dropout). Its weights are as given.
        report: called after every round with its number and score; see `syno.train.pruning`. If training goes on from a
            checkpoint, it is called for the rounds before that, too.
        checkpoint: a file in which the state is kept now and then; an interrupted training with equal arguments goes on from
            there. It is deleted at the end.
        checkpoint_seconds: how often.

    Raises:
        ShapeError: the batch is larger than the data set.
        DataError: the checkpoint is damaged.
    """
    settings = settings or TrainingSettings()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with own_state(seed, settings, device):
        training = Training(model, task_of(data, settings, seed, device), settings, device)
        if checkpoint is not None:
            identity = blake2b(f"{settings.model_dump_json()} {seed} {data.hash} {model}".encode(), digest_size=16).hexdigest()
            training.keep_in(Checkpoint(checkpoint, identity, checkpoint_seconds))
        result = training.run(report)
    return result
