"""The steps of a training: what `syno.train.training.train` does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from syno.train.checkpoint import Checkpoint
from syno.train.optimization import make_optimizer, make_schedule
from syno.train.pruning import EpochReport, Pruned
from syno.train.settings import TrainingSettings
from syno.train.tasks import Task
from syno.train.training_progress import Progress, TrainingResult

LOOKS = {"cpu": 1, "cuda": 50}  # steps between two looks at the losses; on a GPU each look waits for all that is under way


class Broken(Exception):  # noqa: N818  (a result, no error)
    """Training made numbers that are none."""


class Training:
    """A training at some step."""

    def __init__(self, model: nn.Module, task: Task, settings: TrainingSettings, device: torch.device) -> None:
        self.model, self.task, self.settings, self.device = model, task, settings, device
        if settings.channels_last:
            for module in model.modules():
                if isinstance(module, nn.Conv2d):  # an operator's weights have any number of axes, and a layout of their own
                    module.to(memory_format=torch.channels_last)
        self.network = torch.compile(model) if settings.compile else model
        self.per_epoch = len(task.batches)
        self.total = min(settings.epochs * self.per_epoch, settings.most_steps or settings.epochs * self.per_epoch)
        self.round = settings.round_steps or self.per_epoch
        self.optimizer = make_optimizer(model, settings)
        self.schedule = make_schedule(self.optimizer, settings, self.total, self.per_epoch)
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        self.progress = Progress()
        self.unseen: list[torch.Tensor] = []  # losses that were not looked at
        self.checkpoint: Checkpoint | None = None
        self.too_slow = False
        self.has_checked_data = False
        self._began()

    def _began(self) -> None:
        """Time counts from here."""
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    # ---- going through --------------------------------------------------------------------------------------------

    def run(self, report: EpochReport | None) -> TrainingResult:
        """All rounds that are left."""
        stopped, broken, asked = None, False, 0
        try:
            while True:
                for number, score in enumerate(self.progress.scores[asked:], asked + 1):
                    asked = number
                    self._ask(report, number, score)
                if (stopped := self._limit()) or self.progress.steps >= self.total:
                    break
                self._run_round()
                self._keep()
        except Pruned as pruned:
            stopped = str(pruned)
        except Broken as error:
            stopped, broken = str(error), True
        self._forget()
        return self._result(stopped, broken)

    def _ask(self, report: EpochReport | None, number: int, score: float) -> None:
        """Raises Pruned, or what the report raises, if training goes no further."""
        try:
            if report is not None and report(number, score) is False:
                raise Pruned(f"stopped by the report after {self._place(number)}")
        except Exception:  # a decision: nobody will go on with this
            self._forget()
            raise

    def _run_round(self) -> None:
        """Train up to the end of the round, and test."""
        began, progress = time.perf_counter(), self.progress
        end = min((progress.steps // self.round + 1) * self.round, self.total)
        self.network.train()
        batches = self._batches()
        while progress.steps < end:
            asked = time.perf_counter()
            batch = next(batches)
            progress.waited += time.perf_counter() - asked
            self._step(batch)
            if self._out_of_time():
                break
            if progress.steps < end:  # else after the test, without which the round has not ended
                self._keep()
        self._look()
        progress.stepping += time.perf_counter() - began
        self.too_slow = self._is_too_slow(time.perf_counter() - began)
        score = self.task.score(self.network)
        if score != score:  # NaN
            raise Broken(f"the network's output is not finite after {self._place(len(progress.scores) + 1)}")
        progress.scores.append(score)
        progress.ends.append(progress.steps)

    def _batches(self) -> Iterator[Any]:
        """Those from the present step on."""
        epoch, first = divmod(self.progress.steps, self.per_epoch)
        while True:
            yield from self.task.batches.epoch(epoch + 1, first)
            epoch, first = epoch + 1, 0

    def _step(self, batch: Any) -> None:
        if not self.has_checked_data:
            self.task.check(batch)
            self.has_checked_data = True
        loss = self.task.loss(self.network, batch)
        self.unseen.append(loss.detach())
        if len(self.unseen) >= LOOKS.get(self.device.type, 1):
            self._look()
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if self.settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.progress.steps += 1

    def _look(self) -> None:
        """Take note of the latest losses. Raises Broken if one is not finite."""
        if not self.unseen:
            return
        values = torch.stack(self.unseen).float().tolist()
        self.unseen.clear()
        for value in values:
            self.progress.losses.append(value)
            if not abs(value) < float("inf"):
                step = len(self.progress.losses)
                self.progress.steps = step
                raise Broken(f"the loss is {value} at step {step}, in epoch {(step - 1) // self.per_epoch + 1}")

    # ---- ending ---------------------------------------------------------------------------------------------------

    def _place(self, number: int) -> str:
        return f"{'epoch' if self.settings.round_steps is None else 'round'} {number}"

    def _out_of_time(self) -> bool:
        most = self.settings.most_minutes
        return most is not None and self._seconds() >= 60 * most

    def _is_too_slow(self, seconds: float) -> bool:
        most = self.settings.most_epoch_seconds
        return most is not None and seconds > most and len(self.progress.scores) > 0

    def _limit(self) -> str | None:
        """Why a limit ends training after this round; None if it goes on, or would have ended anyway, or was not tested yet."""
        if self.progress.steps >= self.total or not self.progress.scores:
            return None
        if self.too_slow:
            return (
                f"{self._place(len(self.progress.scores))} trained for more than {self.settings.most_epoch_seconds:g} seconds"
            )
        if self._out_of_time():
            return f"its {self.settings.most_minutes:g} minutes were over after step {self.progress.steps} of {self.total}"
        return None

    def _seconds(self) -> float:
        return self.progress.seconds + time.perf_counter() - self.wall

    def _result(self, stopped: str | None, broken: bool) -> TrainingResult:
        progress = self.progress
        return TrainingResult(
            metric=self.task.metric,
            score=self._broken_score if broken else self._score(),
            scores=tuple(progress.scores),
            losses=progress.losses_of_rounds,
            steps=progress.steps,
            stopped=stopped,
            broken=broken,
            step_seconds=progress.stepping,
            data_seconds=progress.waited,
            seconds=self._seconds(),
            cpu_seconds=progress.cpu_seconds + time.process_time() - self.cpu,
        )

    @property
    def _broken_score(self) -> float:
        return 0.0 if self.task.metric == "accuracy" else float("inf")

    def _score(self) -> float:
        if self.settings.score == "tail" and self.task.metric == "loss":
            return self.progress.tail
        if self.settings.score == "best":
            return (max if self.task.metric == "accuracy" else min)(self.progress.scores)
        return self.progress.scores[-1]

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def keep_in(self, checkpoint: Checkpoint) -> None:
        """Keep the state there from now on; go on from the one that is there. DataError if it is damaged."""
        self.checkpoint = checkpoint
        state = checkpoint.read(self.device)
        if state is None:
            return
        try:
            self._take(state)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of another network, or of no training at all
            raise checkpoint.damaged(error) from error
        self._began()

    def _take(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.progress = Progress(**state["progress"])
        torch.set_rng_state(state["random"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"].cpu(), self.device)

    def _keep(self) -> None:
        if self.checkpoint is None or not self.checkpoint.due:
            return
        self._look()
        progress = asdict(self.progress) | {
            "seconds": self._seconds(),
            "cpu_seconds": self.progress.cpu_seconds + time.process_time() - self.cpu,
        }
        state = {name: part.state_dict() for name, part in self._parts().items()}
        state |= {"progress": progress, "random": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state(self.device)
        self.checkpoint.write(state)

    def _forget(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.remove()

    def _parts(self) -> dict[str, Any]:
        """What has a state."""
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}
