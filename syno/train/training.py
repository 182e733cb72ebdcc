"""Deterministic, resumable training.

A training is a number of steps, which are grouped in rounds (epochs by default). After each round the network is tested, and a
report decides whether to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from syno.base.core_locks import computing, make_way
from syno.base.errors import SpecError, TrainingError, UserCodeError
from syno.base.files import checksum
from syno.base.user_code import user_code
from syno.data import PictureData, TokenSet
from syno.model.calls import own_inputs
from syno.model.extraction import evaluation_mode
from syno.model.shared_memory import to_channels_last
from syno.train.checkpoint import EVERY_SECONDS, Checkpoint
from syno.train.metric import Metric
from syno.train.micro_batches import AUTO, add_gradients, chosen, first_part, halved
from syno.train.numerics import make_optimizer, make_schedule, own_state
from syno.train.own_task import Task, check_score, checked
from syno.train.processes import ALONE, Processes
from syno.train.progress import Broken, EpochReport, Paused, Pruned, TrainingProgress, TrainingResult
from syno.train.settings import TrainingSettings
from syno.train.tasks import DeviceTask, feature_pairs, task_of
from syno.train.weights import WeightsFile

BEST = "best"  # the setting `score` of a training


class TrainingState:
    """The mutable parts of a training: the content of a checkpoint, and the weights of its best or last round.

    Args:
        parts: objects with `state_dict` and `load_state_dict`, by name; the network is "model".
        device: device of the training; its random states are part of the checkpoint.
        checkpoint: the file from which the training resumes.
        weights: the file for the weights of the round whose score counts; None: they are not stored.
        metric, score: metric and setting `score`, which select this round; see `TrainingProgress.scored_round`.
        processes: processes of a distributed training. All resume from the same files, which process 0 writes.
    """

    def __init__(
        self,
        parts: Mapping[str, Any],
        device: torch.device,
        checkpoint: Checkpoint,
        weights: Path | None,
        metric: Metric,
        score: str,
        processes: Processes = ALONE,
    ) -> None:
        self.parts, self.device, self.checkpoint, self.metric, self.score = parts, device, checkpoint, metric, score
        self.processes = processes
        self.weights = None if weights is None else WeightsFile(weights, checkpoint.identity)

    def restored(self) -> TrainingProgress | None:
        """Restore all parts from the checkpoint, and return the progress; None if there is no checkpoint.

        Raises DamagedCheckpointError if it is damaged, or if the weights of the best round are lost.
        """
        if (state := self.checkpoint.read(self.device)) is None:
            return None
        try:
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
            progress = TrainingProgress(**state["progress"])
            torch.set_rng_state(self._own(state["random"]).cpu())
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(self._own(state["random_cuda"]).cpu(), self.device)
            self._require_weights(progress)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the state of another network, or of no training at all
            raise self.checkpoint.damaged(error) from error
        return progress

    def keep(self, progress: Mapping[str, Any]) -> None:
        """Write the state and the fields of the progress to the checkpoint."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"progress": dict(progress), "random": self._of_all(torch.get_rng_state())}
        if self.device.type == "cuda":
            state["random_cuda"] = self._of_all(torch.cuda.get_rng_state(self.device))
        if self.processes.is_first:
            self.checkpoint.write(state)

    def _of_all(self, random: torch.Tensor) -> Any:
        """Return the random state of this process; in a distributed training, those of all processes."""
        return random if self.processes.count == 1 else self.processes.gathered(random)

    def _own(self, random: Any) -> torch.Tensor:
        states: torch.Tensor = random if self.processes.count == 1 else random[self.processes.number]
        return states

    def end_round(self, progress: TrainingProgress) -> None:
        """Store the weights if the best round counts, and the round that has just ended is the best so far."""
        number = len(progress.scores)
        if not self.processes.is_first:
            return
        if self.weights is not None and self.score == BEST and progress.scored_round(self.metric, self.score) == number:
            self.weights.write(self.parts["model"], number)

    def end(self, progress: TrainingProgress, *, broken: bool) -> None:
        """Delete the checkpoint, and store the weights of the last round if its score counts.

        No weights are stored if the training diverged, or if steps followed the last test.
        """
        if not self.processes.is_first:
            return
        if self.weights is not None and broken:
            self.weights.remove()
        elif self.weights is not None and self.score != BEST and progress.ends[-1:] == [progress.steps]:
            self.weights.write(self.parts["model"], len(progress.scores))
        self.checkpoint.remove()

    def _require_weights(self, progress: TrainingProgress) -> None:
        """Raise FileNotFoundError if the stored weights of the best round so far are lost."""
        if self.weights is None or self.score != BEST or not progress.scores:
            return
        number = progress.scored_round(self.metric, self.score)
        if self.weights.round() != number:
            raise FileNotFoundError(f"the weights of its round {number} are not in {self.weights.path}")


Tell: TypeAlias = Callable[[float, float], object]


class Reports:
    """The reports that one training makes: each once, in the order of steps.

    Args:
        report: called after every round with the round's number and score.
        recent_loss: called before `report`, with the round's number and the mean loss over the last quarter of its steps.
        looks: fractional rounds, such as 0.5, after which `recent_loss` is called, too.
    """

    def __init__(self, report: EpochReport | None, recent_loss: Tell | None, looks: Sequence[float]) -> None:
        self._report, self._recent_loss = report, recent_loss
        self._looks = sorted(looks) if recent_loss is not None else []  # fractional rounds still to come in this round
        self._told = 0  # number of reported rounds

    def is_due(self, step: int, length: int) -> bool:
        """Return whether one of the fractional rounds in `looks` ends at this step; a round has `length` steps."""
        return bool(self._looks) and step == _step(self._looks[0], length)

    def due(self, progress: TrainingProgress, length: int) -> Iterator[tuple[Tell, float, float]]:
        """Yield the pending reports up to now: the function to call, and its two arguments."""
        for number, score in enumerate(progress.scores[self._told :], self._told + 1):
            self._told = number
            yield from self._due_looks(progress, length, progress.ends[number - 1])
            if self._recent_loss is not None:
                yield self._recent_loss, number, progress.recent_loss(number)
            if self._report is not None:
                yield cast(Tell, self._report), number, score
        yield from self._due_looks(progress, length, progress.steps)

    def of_score(self, number: int, score: float, loss: float) -> Iterator[tuple[Tell, float, float]]:
        """Yield the reports of a round with a score but no known loss; `loss`, derived from the score, takes its place."""
        while self._looks and self._looks[0] <= number:
            yield cast(Tell, self._recent_loss), self._looks.pop(0), loss
        if self._recent_loss is not None:
            yield self._recent_loss, number, loss
        if self._report is not None:
            yield cast(Tell, self._report), number, score

    def _due_looks(self, progress: TrainingProgress, length: int, last: int) -> Iterator[tuple[Tell, float, float]]:
        while self._looks and (step := _step(self._looks[0], length)) <= last:
            assert self._recent_loss is not None  # there are no looks without it
            yield self._recent_loss, self._looks.pop(0), progress.loss_before(step, length)


def _step(look: float, length: int) -> int:
    return max(1, round(look * length))


LOOKS = {"cpu": 1, "cuda": 50}  # steps between two reads of the losses: on a GPU, each read waits for all queued work


def train(
    model: nn.Module,
    data: PictureData | TokenSet | Task,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    report: EpochReport | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = EVERY_SECONDS,
    weights: Path | None = None,
    recent_loss: Callable[[float, float], object] | None = None,
    looks: Sequence[float] = (),
    processes: Processes = ALONE,
    teacher: nn.Module | None = None,
    features: Sequence[str] = (),
    identity: str = "",
) -> TrainingResult:
    """Train `model`, in place, on its device, and return the result.

    The global random states and number of threads are restored afterwards. A training that diverges (its loss is not finite),
    or that a report stops, ends with a result, not with an exception.

    Args:
        model: [N, channels, ...] -> logits [N, classes] or [N, classes, *positions]; for text, [N, L] tokens -> logits
            [N, L, vocabulary].
        data: training and test data, or a user's own task. If the task has its own training, there is no checkpoint, and an
            interrupted training starts anew.
        settings: settings of the training; the defaults if None.
        seed: seed of the order of the data, and of random layers (dropout). The model's weights are not initialized.
        report: called after every round with its number and score; after a resume, also for the earlier rounds.
        checkpoint: file of the state, from which an interrupted training with equal arguments resumes. It is deleted at the
            end, but not if the report raises Paused.
        checkpoint_seconds: time between two checkpoints.
        weights: file for the weights of the round whose score counts: the last or the best.
        recent_loss, looks: see `syno.train.training`; `recent_loss` may raise what `report` may.
        teacher: a trained network on the same device, for knowledge distillation: see the setting `distill`.
        features: names of layers in both networks, for the setting `distill: features`.
        identity: identity of user code in the network and the data, so that checkpoints of changed code are ignored.
        processes: the processes of a distributed training, which all call this function with equal arguments. Their reports
            must decide alike, and must not raise Paused.

    Raises:
        SpecError: `processes` contradicts the setting.
        ShapeError: the batch is larger than the data set. Paused: the report raised it.
        DamagedCheckpointError: the checkpoint is damaged.
    """
    settings = settings or TrainingSettings()
    if isinstance(data, Task) and data.fits:
        return _fit(model, data, settings, seed, Reports(report, recent_loss, looks), weights)
    if settings.processes != processes.count:
        raise SpecError(
            f"training: processes is {settings.processes}, but one process trains here; several train one network in the stage "
            "train only (syno train, syno baseline, snakemake): give it in train: {training: {...}}, or in an experiment that "
            "does not search"
        )
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with own_state(processes.seed(seed), settings, device), processes.synchronized(model, settings.batch_norm):
        made_by = checksum(f"{settings.model_dump_json()} {seed} {data.hash} {model}{identity}".encode())
        kept = Checkpoint(checkpoint, made_by, checkpoint_seconds)
        task = task_of(data, settings, seed, device, processes.share)
        if teacher is not None:
            task.teacher = teacher
            task.features = feature_pairs(model, teacher, features)
            if task.channels_last:
                to_channels_last(teacher)
        return _Training(model, task, settings, device, kept, weights, processes).run(Reports(report, recent_loss, looks))


def _fit(
    model: nn.Module, task: Task, settings: TrainingSettings, seed: int, reports: Reports, weights: Path | None
) -> TrainingResult:
    """Train a network by the training function of the user's task, and return the result; see `train`."""
    if settings.processes > 1:
        raise SpecError(f"training: processes is {settings.processes}, and {task} has a training of its own; leave it out")
    progress, metric, ended = TrainingProgress(), checked(task).score_metric, list[Exception]()
    wall, cpu = time.perf_counter(), time.process_time()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))

    def tell(step: int, score: float | None = None) -> None:
        if isinstance(step, bool) or int(step) != step or step <= progress.steps:
            raise ValueError(f"report(step, score) was called with step={step!r}; steps are whole numbers that grow from 1")
        value = score_now(model, task) if score is None else check_score(task, score)
        progress.steps = int(step)
        progress.scores.append(value)
        try:
            for function, number, told in reports.of_score(progress.steps, value, -metric.quality(value)):
                if function(number, told) is False:
                    raise Pruned(f"stopped by the report after step {progress.steps}")
        except Exception as error:
            ended.append(error)
            raise

    stopped, broken, score = None, False, metric.of_broken
    with own_state(seed, settings, device):
        try:
            with user_code(f"the training of {task}"):
                made = task.fit(model.train(), tell)
        except Exception:
            if not ended:
                raise
        if not ended and isinstance(made, nn.Module) and made is not model:
            raise UserCodeError(
                f"the training of {task} returned another network; it must train the one that it gets, in place"
            )
        if ended and not isinstance(ended[0], Pruned):
            raise ended[0]
        if ended:
            stopped, score = str(ended[0]), progress.scores[-1]
        else:
            score = score_now(model, task)
    if score != score:  # NaN
        stopped, broken, score = "the score is not a number", True, metric.of_broken
    if weights is not None and not broken:
        WeightsFile(weights, "").write(model, progress.steps)
    seconds, of_cpu = time.perf_counter() - wall, time.process_time() - cpu
    return TrainingResult(
        metric.key, score, tuple(progress.scores), (), progress.steps, stopped, broken, seconds=seconds, cpu_seconds=of_cpu,
        step_seconds=seconds,
    )  # fmt: skip


def score_now(model: nn.Module, task: Task) -> float:
    """Return the current score of a network, whose mode is restored."""
    with evaluation_mode(model), torch.no_grad(), own_inputs(model), user_code(f"the score of {task}"):
        return check_score(task, task.score(model))


def score_only(
    model: nn.Module,
    data: PictureData | TokenSet | Task,
    settings: TrainingSettings,
    *,
    seed: int,
    weights: Path | None = None,
    is_sound: bool = True,
) -> TrainingResult:
    """Return the result of a training without steps: the score of a network with its current weights.

    The weights are written to the file `weights`. Raises TrainingError if the score is NaN, if `is_sound`.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    wall, cpu = time.perf_counter(), time.process_time()
    with own_state(seed, settings, device):
        if isinstance(data, Task) and data.fits:
            metric, score = data.score_metric, score_now(model, data)
        else:
            task = task_of(data, settings, seed, device)
            if task.channels_last:
                to_channels_last(model)
            metric, score = task.metric, task.score(model)
    if is_sound and score != score:
        raise TrainingError("the output of the network is not finite with the weights that it comes with; look at the weights")
    if weights is not None:
        WeightsFile(weights, "").write(model, 0)
    seconds, of_cpu = time.perf_counter() - wall, time.process_time() - cpu
    return TrainingResult(metric.key, score, (), (), 0, None, seconds=seconds, cpu_seconds=of_cpu)


class _Training:
    """A running training. It resumes from the checkpoint, if there is one."""

    def __init__(
        self,
        model: nn.Module,
        task: DeviceTask,
        settings: TrainingSettings,
        device: torch.device,
        checkpoint: Checkpoint,
        weights: Path | None,
        processes: Processes,
    ) -> None:
        self.model, self.task, self.settings, self.device, self.checkpoint = model, task, settings, device, checkpoint
        self.processes = processes
        if task.channels_last:
            to_channels_last(model)  # only 4-d weights: an operator's weights may have any number of axes
        self.network = torch.compile(model) if settings.compile else model
        self.joined = processes.joined(self.network)
        self.per_epoch = len(task.batches)
        self.total = min(settings.epochs * self.per_epoch, settings.most_steps or settings.epochs * self.per_epoch)
        self.round = settings.round_steps or self.per_epoch
        self.optimizer = make_optimizer(model, settings)
        self.schedule = make_schedule(self.optimizer, settings, self.total, self.per_epoch)
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        parts = {"model": model, "optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}
        self.state = TrainingState(parts, device, checkpoint, weights, task.metric, settings.score, processes)
        self.unseen: list[torch.Tensor] = []  # losses that are still on the device
        self.began: float | None = None  # start time of the round, while its steps run
        self.too_slow = False
        self.has_checked_data = False
        self.progress = self.state.restored() or TrainingProgress()
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def run(self, reports: Reports) -> TrainingResult:
        """Run all remaining rounds, and return the result."""
        stopped, broken = None, False
        try:
            while True:
                self._report(reports)
                if (stopped := self._limit()) or self.progress.steps >= self.total:
                    break
                # Only process 0 waits for cores: the others wait for it in each step anyway.
                with computing(self.device.type) if self.processes.is_first else nullcontext(0.0) as waited:
                    self.wall += waited
                    self._run_round(reports)
                self._keep()
        except Pruned as pruned:
            stopped = str(pruned)
        except Broken as error:
            stopped, broken = str(error), True
        self.state.end(self.progress, broken=broken)
        return self.progress.result(self.task.metric, self.settings.score, stopped, broken=broken, **self._elapsed_in_all())

    def _report(self, reports: Reports) -> None:
        """Make the pending reports. Raises Pruned to stop the training, or a report's own exception, such as Paused."""
        try:
            for tell, number, value in reports.due(self.progress, self.round):
                if tell(number, value) is False:
                    raise Pruned(f"stopped by the report after {self._place(number)}")
        except Paused:
            self._keep(now=True)
            raise
        except Exception:  # the report decided to end the training, which will not be resumed
            self.checkpoint.remove()
            raise

    def _run_round(self, reports: Reports) -> None:
        """Train to the end of the current round, and test the network."""
        progress = self.progress
        self.began = time.perf_counter()
        self.task.prepare()
        end = min((progress.steps // self.round + 1) * self.round, self.total)
        self.joined.train()
        batches = self._batches()
        while progress.steps < end:
            asked = time.perf_counter()
            with user_code(f"making a batch of {self.task.name}"):
                batch = next(batches)
            progress.waited += time.perf_counter() - asked
            self._step(batch)
            paused = make_way()
            self.wall, self.began = self.wall + paused, self.began + paused
            if reports.is_due(progress.steps, self.round):
                self._look()
                self._report(reports)
            if self._out_of_time():
                break
            if progress.steps < end:  # after the last step of a round, the checkpoint is written after the test
                self._keep()
        self._look()
        seconds, most = self.processes.agreed(time.perf_counter() - self.began), self.settings.most_epoch_seconds
        progress.stepping += seconds
        self.began = None
        self.too_slow = most is not None and seconds > most and len(progress.scores) > 0
        score = self.processes.agreed(self.task.score(self.network) if self.processes.is_first else 0.0)
        if score != score:  # NaN
            raise Broken(f"the network's output is not finite after {self._place(len(progress.scores) + 1)}")
        progress.scores.append(score)
        progress.ends.append(progress.steps)
        self.state.end_round(progress)

    def _batches(self) -> Iterator[Any]:
        """Yield the training batches, from the current step on."""
        epoch, first = divmod(self.progress.steps, self.per_epoch)
        while True:
            yield from self.task.batches.epoch(epoch + 1, first)
            epoch, first = epoch + 1, 0

    def _step(self, batch: Any) -> None:
        if not self.has_checked_data:
            self.task.check(batch)
            self.has_checked_data = True
        self.optimizer.zero_grad(set_to_none=True)
        if self.progress.micro_batch is None:
            self.progress.micro_batch = most = self._micro_batch(batch)
            if self.processes.count > 1 or (most is not None and most < self.task.samples(batch)):
                self.task.check_parts(self.model, first_part(self.task, batch))
        self.unseen.append(self._add_gradients(batch))
        if len(self.unseen) >= LOOKS.get(self.device.type, 1):
            self._look()
        if self.settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.progress.steps += 1

    def _micro_batch(self, batch: Any) -> int | None:
        """Return the size of a micro-batch, the same in all processes."""
        size = chosen(self.task, self.model, batch)
        return None if size is None else min(int(number) for number in self.processes.gathered(torch.tensor(size)))

    def _add_gradients(self, batch: Any) -> torch.Tensor:
        """Compute the gradients of a batch, and return its loss. If memory runs out with `auto`, halve the micro-batch."""
        while True:
            most = self.progress.micro_batch
            try:
                return add_gradients(self.task, self.joined, batch, most, self.scaler.scale, self.processes)
            except torch.OutOfMemoryError:
                if self.settings.micro_batch != AUTO or most is None or most < 2 or self.processes.count > 1:
                    raise  # other processes are in the middle of the step
            # Only here, after the handler, is the memory of the failed pass free.
            self.progress.micro_batch = smaller = halved(most)
            self.optimizer.zero_grad(set_to_none=True)
            warnings.warn(
                f"step {self.progress.steps + 1}: out of memory with a micro_batch of {most}, so it is {smaller}", stacklevel=2
            )

    def _look(self) -> None:
        """Read the latest losses from the device. Raises Broken if one is not finite."""
        if not self.unseen:
            return
        values = self.processes.total(torch.stack(self.unseen)).float().tolist()
        self.unseen.clear()
        self.progress.add(values, self._stepping())
        if not abs(value := self.progress.losses[-1]) < float("inf"):
            self.progress.steps = step = len(self.progress.losses)
            raise Broken(f"the loss is {value} at step {step}, in epoch {(step - 1) // self.per_epoch + 1}")

    def _place(self, number: float) -> str:
        return f"{'epoch' if self.settings.round_steps is None else 'round'} {number:g}"

    def _out_of_time(self) -> bool:
        most = self.settings.most_minutes
        return most is not None and self.processes.agreed(self._elapsed()["seconds"]) >= 60 * most

    def _limit(self) -> str | None:
        """Return the reason why a limit ends the training after this round; None if the training goes on.

        It also goes on if it is complete, or if the round is untested.
        """
        steps, tests = self.progress.steps, len(self.progress.scores)
        if steps >= self.total or not tests:
            return None
        if self.too_slow:
            return f"{self._place(tests)} trained for more than {self.settings.most_epoch_seconds:g} seconds"
        if self._out_of_time():
            return f"its {self.settings.most_minutes:g} minutes were over after step {steps} of {self.total}"
        return None

    def _elapsed(self) -> dict[str, float]:
        """Return wall time and processor time in seconds, including the times before an interruption."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"seconds": self.progress.seconds + wall, "cpu_seconds": self.progress.cpu_seconds + cpu}

    def _elapsed_in_all(self) -> dict[str, float]:
        """Return wall time and the processor time of all processes together, in seconds."""
        here = self._elapsed()
        own = torch.tensor(here["cpu_seconds"] - self.progress.cpu_seconds, dtype=torch.float64)
        return here | {"cpu_seconds": self.progress.cpu_seconds + float(self.processes.total(own))}

    def _stepping(self) -> float:
        """Return the seconds of steps so far, without tests, including those before an interruption."""
        return self.progress.stepping + (0.0 if self.began is None else time.perf_counter() - self.began)

    def _keep(self, *, now: bool = False) -> None:
        """Write the checkpoint if it is due, or in any case with `now`."""
        if self.checkpoint.file is None or not (now or self.processes.agreed(self.checkpoint.due)):
            return
        self._look()
        self.state.keep(asdict(self.progress) | self._elapsed_in_all() | {"stepping": self._stepping()})
