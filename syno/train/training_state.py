"""The state of a training: what a checkpoint holds, and the weights that are kept of its best or last round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from syno.train.checkpoint import Checkpoint
from syno.train.progress import TrainingProgress
from syno.train.settings import Metric
from syno.train.weights import WeightsFile

BEST = "best"  # the setting `score` of a training


class TrainingState:
    """The parts of a training that change.

    Args:
        parts: by name, each with `state_dict` and `load_state_dict`; the network is "model".
        device: of the training, whose random numbers are part of the state.
        checkpoint: the file from which it resumes.
        weights: the file for the weights of the round that the score is of; None: they are not kept.
        metric, score: which round that is; see `TrainingProgress.scored_round`.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        device: torch.device,
        checkpoint: Checkpoint,
        weights: Path | None,
        metric: Metric,
        score: str,
    ) -> None:
        self.parts, self.device, self.checkpoint, self.metric, self.score = parts, device, checkpoint, metric, score
        self.weights = None if weights is None else WeightsFile(weights, checkpoint.identity)

    def restored(self) -> TrainingProgress | None:
        """Set all parts to the state in the checkpoint, and return the progress; None if there is no checkpoint.

        Raises DamagedCheckpointError if it is damaged, or if the weights of the best round are lost.
        """
        if (state := self.checkpoint.read(self.device)) is None:
            return None
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
            progress = TrainingProgress(**state["progress"])
            torch.set_rng_state(state["random"].cpu())
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(state["random_cuda"].cpu(), self.device)
            self._require_weights(progress)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the state of another network, or of no training at all
            raise self.checkpoint.damaged(error) from error
        return progress

    def keep(self, progress: Mapping[str, Any]) -> None:
        """Write the state into the checkpoint, with the fields of the progress."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"progress": dict(progress), "random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        self.checkpoint.write(state)

    def end_round(self, progress: TrainingProgress) -> None:
        """Keep the weights if the score of the training is of its best round, and that is so far the one that has ended."""
        number = len(progress.scores)
        if self.weights is not None and self.score == BEST and progress.scored_round(self.metric, self.score) == number:
            self.weights.write(self.parts["model"], number)

    def end(self, progress: TrainingProgress, *, broken: bool) -> None:
        """Delete the checkpoint, and keep the weights of the last round if the score is of that one.

        If training broke, no weights are kept. None are kept either of a network that was trained on after its last test.
        """
        if self.weights is not None and broken:
            self.weights.remove()
        elif self.weights is not None and self.score != BEST and progress.ends[-1:] == [progress.steps]:
            self.weights.write(self.parts["model"], len(progress.scores))
        self.checkpoint.remove()

    def _require_weights(self, progress: TrainingProgress) -> None:
        """Raise FileNotFoundError if the weights of the best round so far are lost, which later rounds cannot replace."""
        if self.weights is None or self.score != BEST or not progress.scores:
            return
        number = progress.scored_round(self.metric, self.score)
        if self.weights.round() != number:
            raise FileNotFoundError(f"the weights of its round {number} are not in {self.weights.path}")
