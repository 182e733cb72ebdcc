"""A faster network from a trained one: `speed_up` writes an experiment, runs its workflow, and reads its results."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import GeneratorType
from typing import IO, TYPE_CHECKING, Any

import cloudpickle
import pandas
import torch
import yaml
from pydantic import ValidationError
from torch import nn
from torch.nn import functional
from torch.utils.data.dataloader import _BaseDataLoaderIter

from syno.base.devices import usable_cores
from syno.base.errors import DataError, SpecError, SynoError, TrainingError
from syno.base.files import ORIGINAL, checksum, name_from, write_whole
from syno.base.fork_server import end_with
from syno.base.identity import changes, identity_of, in_words
from syno.base.interval import Interval
from syno.base.progress import Display, Progress, display
from syno.base.user_code import INSTALLED, kind_of
from syno.base.validation import explained, named_differences
from syno.config import Experiment, load_experiment, load_experiments
from syno.model.onnx import read_onnx
from syno.model.shared_memory import copy_of, moved_to
from syno.notebook.training import OwnWorkload
from syno.run.metric import front
from syno.run.rivals import best_of
from syno.run.values import STATES
from syno.run.values import Score as JudgedNetwork
from syno.stages.places import FROZEN, REPORT, TRAINING
from syno.stages.results import StoredRun
from syno.stages.take_home import record_taken, take_network, trained_network
from syno.stages.watch import Watch
from syno.stages.workflow.command import LOCAL, command
from syno.stages.workflow.failures import ERROR
from syno.train.metric import ACCURACY, METRICS, Metric
from syno.train.numerics import on_device
from syno.train.own_task import Task, checked, divergence
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.training import score_only
from syno.train.trial_step import try_step

if TYPE_CHECKING:
    from syno.search.snapshot import Snapshot

Loss = Callable[[nn.Module, Any], torch.Tensor]
Score = Callable[[nn.Module], float]

CONFIG, CODE, LOG = "speed_up.yaml", "code", "speed_up.log"  # in the folder
OWN = "own"  # in that file: what the network and the task are
SAME_SCORE = 1e-3  # of a score: a larger difference, if it matters for the goal, is no rounding
CALL = "call.json"  # in the folder with the code: by what the call is told from others
LOCK = "speed_up.lock"  # in the folder: a workflow holds it to its end, also when the program that began it was killed
COLUMNS = (
    "operator", "score", "speedup", "speedup_low", "speedup_high", "lost", "lost_low", "lost_high", "verdict",
)  # fmt: skip
# The space of the demo and of the examples.
SPEC = {"depth": 9, "occurrences": {"tensors": 3, "merges": 1, "splits": 3, "shifts": 0, "strides": 0}}
FLOPS_OF_SPEED = (
    0.8  # divided by the speedup: the share of the FLOPs that operators may leave. In the demo, 0.25 is 3.2 to 4 times as fast
)
LEAST_GAIN = 0.3  # of the FLOPs outside of the replaced layers that the operators may have at least, whatever the speedup
SEARCH_SHARE = 0.6  # of the minutes: trainings with other seeds and the last measurements need the rest
LOOK_SECONDS = 2.0
MODULE = '''"""The network and the task of a call of `syno.speed_up`.

They are pickled objects, whose loading can run any code: run this experiment only if you trust where the folder comes from.
"""

import sys
from pathlib import Path

import cloudpickle

sys.path += [place for place in {places!r} if place not in sys.path]


def _read(name):
    with (Path(__file__).parent / f"{{name}}.pkl").open("rb") as file:
        return cloudpickle.load(file)


def network(**_):
    """Return the network, with its weights."""
    return _read("network")


def task(**_):
    """Return the task: batches, loss and score, or a whole training."""
    return _read("task")
'''


class Classification(Task):
    """Classification: cross-entropy of the network's outputs and integer labels. The score is the accuracy.

    Batches are pairs of inputs and labels; labels below 0 are ignored.
    """

    metric = ACCURACY

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Return the mean cross-entropy over the labels of a batch."""
        inputs, labels = self._pair(batch)
        return functional.cross_entropy(model(inputs), labels.masked_fill(labels < 0, -100))

    def counted(self, batch: Any) -> float:
        """Return the number of labels in a batch that are not ignored."""
        return int((self._pair(batch)[1] >= 0).sum())

    def score(self, model: nn.Module) -> float:
        """Return the accuracy: the fraction of test labels that the network predicts correctly."""
        right = count = 0
        for batch in self.tests(model):
            inputs, labels = self._pair(batch)
            counts = labels >= 0
            right += int((model(inputs).argmax(1) == labels)[counts].sum())
            count += int(counts.sum())
        if not count:
            raise DataError("there is no batch to test on; give test=..., as a torch.utils.data.DataLoader")
        return right / count

    def difference(self, output: Any, taught: Any) -> torch.Tensor:
        """Return the divergence of the network's class probabilities from the teacher's; see `divergence`."""
        return divergence(output, taught, 1)

    def _pair(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        is_pair = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], torch.Tensor)
        if not is_pair or batch[1].is_floating_point():
            raise SpecError("without a loss, batches are pairs of inputs and integer labels; give loss=...")
        return batch[0], batch[1].long()  # PyTorch's loss takes no other integers, nor truth values


def speed_up(
    model: nn.Module | str | Path,
    example_inputs: Any = None,
    *,
    train: Iterable[Any] = (),
    test: Iterable[Any] = (),
    loss: Loss | None = None,
    score: Score | None = None,
    metric: Metric | None = None,
    fit: Callable[..., object] | None = None,
    speedup: float = 1.5,
    lose_at_most: float = 0.01,
    compiler: str | None = None,
    device: str = "cpu",
    minutes: float | None = None,
    folder: str | Path = "speed_up",
    where: str | Sequence[str] = "spatial",
    trials: int = 20,
    seeds: int = 3,
    workers: int = 1,
    cores: int | None = None,
    train_original: bool = False,
    rivals: bool = True,
    mixtures: bool = True,
    spec: Mapping[str, Any] | None = None,
    progress: bool = True,
    **training: Any,
) -> SpeedUp:
    """Search operators that speed up a trained network, train and measure the best, and return the answer.

    It writes an experiment into a folder and runs its workflow, the same stages as `syno run`. Besides operators, it tries
    pruned and narrower networks, and known layers; the answer is the best of all. After an interruption (Ctrl-C, a crash), an
    equal call continues. Calls are equal if their settings, the network with its weights, the batches, and the code of the
    functions with all their dependencies are equal: a different call in the same folder is an error that names the changes. If
    an equal call has finished before, its network is scored again on this call's batches, and the answer states its age.

    Args:
        model: the network, with trained weights, or an ONNX file, which `syno.read_onnx` reads. A copy of it is used. Operators
            are fitted to the layers that they replace.
        example_inputs: inputs of the network: a tensor, a tuple of arguments, or a dict of named arguments. Speeds are measured
            for one sample. Default: the first element of the first training batch.
        train, test: training and test batches: lists, or other iterables that can be iterated repeatedly, such as a
            `torch.utils.data.DataLoader`.
        loss: `loss(model, batch)` returns a scalar; by default the cross-entropy of the outputs with integer labels.
        score: `score(model)` returns a number; default: the accuracy, or the mean test loss if a loss is given.
        metric: the score's name, unit and direction, as in `syno.Metric("SI-SDR", "dB")`.
        fit: `fit(model, report)` is your whole training, instead of `train` and `loss`; see `syno.Task`.
        speedup: required speedup, as measured.
        lose_at_most: allowed loss of score, in the unit of the score: 0.01 is one point of accuracy.
        compiler: compiler with which speeds are measured; default: `native` on the CPU and `inductor` on GPUs.
        device: device for training and measurement: `cpu`, `cuda`, or one of several GPUs.
        minutes: approximate time after which the search ends and the best operators are trained; None: after `trials`.
        folder: folder of the experiment and its results.
        where: the layers to replace: the name of a rule, or names and patterns of layers; see `syno.substitute`.
        trials: number of operators that are trained in the search. Operators that are too slow are not trained, and do not
            count.
        seeds: number of trainings of each selected operator, with different seeds, for the confidence interval of its score.
        workers: number of search processes. With one, equal calls make equal trials.
        cores: number of processor cores for all processes; default: all that this process may use.
        train_original: whether to train the original network, too. If not, its score is that of its given weights.
        rivals: whether to try pruned and narrower networks and known layers, which docs/search.md describes.
        mixtures: whether to try mixtures, with a different operator for each layer, in the original and in pruned networks, if
            several layers are replaced; not with `fit`.
        spec: options that override those of the space of operators; docs/options.md lists them.
        progress: whether to display progress and the remaining time.
        training: settings of the training, such as `epochs=4`; docs/training.md describes them. Without `fit`, trainings use
            knowledge distillation from the model (`distill`).

    Raises:
        SpecError: a setting is invalid, the folder belongs to a different call, or an argument cannot be pickled for other
            processes.
        TrainingError: a stage failed; the message names its log.
        DataError: the network of an earlier answer has a different score on the batches of this call.
        KeyboardInterrupt: the call was interrupted.

    >>> import syno, torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> syno.speed_up(model, train=[torch.zeros(4, 1, 8, 8)])
    Traceback (most recent call last):
    ...
    syno.base.errors.SpecError: without a loss, batches are pairs of inputs and integer labels; give loss=...
    """
    _check_numbers(speedup=speedup, lose_at_most=lose_at_most, minutes=minutes, trials=trials, seeds=seeds, cores=cores)
    place = Path(folder).resolve()
    task = _task(train, test, loss, score, metric, fit, example_inputs)
    begun = {"initialization": "keep"} if fit is not None else {"initialization": "fit", "distill": {}}
    training_options = {"train_original": train_original, "device": device, **begun, **training}
    try:
        settings = TrainingSettings(**training_options)
    except ValidationError as error:
        raise SpecError(f"speed_up: {explained(error, TrainingSettings)}") from None
    layers = where if isinstance(where, str) else ", ".join(where)
    if isinstance(model, str | Path):
        model = read_onnx(model, task.example_inputs)
    workload = OwnWorkload(WorkloadSettings(model="network", task="task", layers=layers, training=settings), task, model)
    try_step(workload)
    options = {
        "goal": {
            "speedup": speedup,
            "lose_at_most": lose_at_most,
            "compiler": compiler or ("native" if device == "cpu" else "inductor"),
            "device": device,
        },
        "relative_budget": _budget(workload, speedup),
        "spec": dict(spec or SPEC),
        "study": {"n_trials": trials, "workers": workers},
        "select": {"count": 2},
        "train": {"seeds": list(range(1, seeds + 1))},
        "rivals": {"int8": False} if rivals else "none",  # a task's own network may return anything
        **({"mixtures": {"count": 1}} if mixtures and settings.initialization == "fit" and len(workload.layers) > 1 else {}),
        "tune": {"compilers": ["eager"], "devices": [device], "baselines": False},
    }
    written = settings.model_dump(mode="json", include=set(training_options))
    call = _Call(place, model, task, {"layers": layers, "training": written}, options)
    load_experiments(call.experiment)  # SpecError before anything is written
    with _alone(place, call.check) as lock:
        before = call.answered
        call.write()
        _Run(call, lock, cores, minutes, progress).finish()
        answer = SpeedUp(place)
        if before is not None and before == call.answered:
            answer.score_again(task, before, settings)
    return answer


def _check_numbers(**numbers: Any) -> None:
    """Raise SpecError if a numeric argument of `speed_up` has the wrong type or is out of range."""
    for name, value in numbers.items():
        if value is None and name in ("minutes", "cores"):
            continue
        is_whole = name in ("trials", "seeds", "cores")
        if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float):
            kind = "a whole number" if is_whole else "a number"
            raise SpecError(f"speed_up: {name} is {value!r}, {kind_of(value)}; give {kind}")
        least = 1 if name in ("seeds", "cores") else 0
        if not least <= value < float("inf") or (name in ("minutes", "speedup") and value == 0):
            raise SpecError(f"speed_up: {name} is {value!r}; give {'1 or more' if least else 'a number above 0'}")


def _task(
    train: Iterable[Any],
    test: Iterable[Any],
    loss: Loss | None,
    score: Score | None,
    metric: Metric | None,
    fit: Callable[..., object] | None,
    example_inputs: Any,
) -> Task:
    """Return the task for the arguments of `speed_up`. Raises SpecError if one of them is invalid."""
    if loss is None and fit is None:
        if score is not None or metric is not None:
            raise SpecError("a score of your own needs a loss of your own; give loss=..., or fit=...")
        return checked(Classification(train, test, example_inputs=example_inputs, name="classification"))
    own = {"loss": loss, "score": score, "metric": metric, "fit": fit, "example_inputs": example_inputs}
    name = getattr(fit or loss, "__name__", "task")
    return checked(Task(train, test, name=name, **{part: value for part, value in own.items() if value is not None}))


def _budget(workload: OwnWorkload, speedup: float) -> dict[str, float]:
    """Return bounds of FLOPs (as `relative_budget`) for operators that may be fast enough."""
    rest = workload.rest.flops / workload.original.flops
    most = min(1.0, max(FLOPS_OF_SPEED / speedup, rest + LEAST_GAIN * (1 - rest)))
    return {"least_flops": round(rest + LEAST_GAIN * (most - rest), 4), "most_flops": round(most, 4)}


class _Call:
    """A call of `speed_up` in a folder: its experiment, and the pickled objects for the processes of its stages.

    Args:
        folder: folder of the experiment and its results.
        model, task: the network and the task, as objects.
        workload: settings of the workload, without the objects.
        options: other options of the experiment.
    """

    def __init__(
        self, folder: Path, model: nn.Module, task: Task, workload: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self.folder, self.model, self.task = folder, model, task
        self.module = f"speed_up_{checksum(str(folder).encode())[:8]}"  # one process may read several such folders
        self.experiment: dict[str, Any] = {
            "name": name_from(folder.name),
            "output": str(folder),
            "code": str(folder / CODE),
            "workload": {"model": f"{self.module}:network", "task": f"{self.module}:task", **workload},
            **options,
        }

    @property
    def config(self) -> Path:
        """The path of the experiment's file."""
        return self.folder / CONFIG

    @property
    def answered(self) -> datetime | None:
        """Time of the last answer in this folder; None if there is none."""
        file = self.folder / REPORT
        return datetime.fromtimestamp(file.stat().st_mtime).astimezone() if file.is_file() else None

    def check(self) -> dict[str, Any] | None:
        """Return the stored data of an equal call in the folder; None without one. SpecError if a different call wrote
        there.
        """
        file = self.folder / CODE / CALL
        if not file.is_file():
            return None
        kept: dict[str, Any] = json.loads(file.read_text())
        there, here = dict(kept["call"]), dict(self._identity)
        changed = changes(there.pop(OWN, {}), here.pop(OWN))
        if differences := [*named_differences(there, here), *([in_words(changed)] if changed else [])]:
            raise SpecError(
                f"{self.folder} is of another call of speed_up: {'; '.join(differences)}. "
                "Give another folder, or delete this one"
            )
        return kept

    def write(self) -> None:
        """Write the experiment and the objects, unless an equal call has done so. SpecError if a different call wrote there."""
        file, kept, trials = self.folder / CODE / CALL, self.check(), self.experiment["study"]["n_trials"]
        if kept is not None:
            if kept["trials"] == trials and (self.folder / FROZEN).is_file():  # its minutes may have ended the search before
                return
        else:
            for name, pickled in (("network", self.model), ("task", self.task)):
                write_whole(self.folder / CODE / f"{name}.pkl", self._pickled(name, pickled))
            places = [str(Path(place or ".").resolve()) for place in sys.path if not _is_installed(place)]
            write_whole(self.folder / CODE / f"{self.module}.py", MODULE.format(places=places))
        write_whole(file, json.dumps({"call": self._identity, "trials": trials}, indent=1))
        self.write_config()

    def write_config(self, trials: int | None = None) -> None:
        """Write the experiment's file. `trials` overrides the number of trials."""
        study = self.experiment["study"] | ({} if trials is None else {"n_trials": trials})
        write_whole(self.config, yaml.safe_dump({**self.experiment, "study": study}, sort_keys=False))

    def _pickled(self, name: str, value: object) -> bytes:
        try:
            file = io.BytesIO()
            _Pickler(file).dump(moved_to(copy_of(value), "cpu") if isinstance(value, nn.Module) else value)
            return file.getvalue()
        except Exception as error:
            raise SpecError(
                f"the {name} cannot be pickled for the processes that train it ({type(error).__name__}: {error}); make it of "
                "objects that can, or run an experiment whose file names functions that make them (docs/tasks.md)"
            ) from error

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """The identity of this call, as JSON, by which calls are compared. It excludes the number of trials, which may grow."""
        told: dict[str, Any] = {
            "experiment": {name: value for name, value in self.experiment.items() if name != "study"},
            "task": _described(self.task),
            OWN: identity_of({"the network": self.model, **self.task.things}).stored,
        }
        return dict(json.loads(json.dumps(told)))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles the common memory of several tensors once; PyTorch would pickle all of it for each batch that `split` made."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.whole: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def reducer_override(self, value: Any) -> Any:
        """Return the function and arguments that reconstruct an object; see `pickle.Pickler.reducer_override`.

        Iterators inside a loader, as of persistent workers, are pickled as None; they are created anew in the other process.
        """
        if isinstance(value, _BaseDataLoaderIter | GeneratorType):
            return type(None), ()
        if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout != torch.strided:
            return super().reducer_override(value)
        storage = value.untyped_storage()
        if value.requires_grad or value.is_conj() or value.is_neg() or value.nbytes >= storage.nbytes():
            return super().reducer_override(value)
        key, count = (storage.data_ptr(), value.dtype), storage.nbytes() // value.element_size()
        if key not in self.whole:
            self.whole[key] = value.new_empty(0).set_(storage, 0, (count,), (1,))
        return torch.Tensor.as_strided, (self.whole[key], tuple(value.shape), value.stride(), value.storage_offset())


def _described(task: Task) -> dict[str, Any]:
    """Return the metric and the numbers of batches of a task, as part of the call's identity."""
    description: dict[str, Any] = {"metric": task.score_metric.key}
    for part in ("train", "test"):
        with suppress(TypeError):
            description[f"batches to {part} on"] = len(getattr(task, part))
    return description


def _is_installed(place: str) -> bool:
    return any(Path(place or ".").resolve().is_relative_to(folder) for folder in INSTALLED)


class _Run:
    """A run of the workflow of a call.

    Args:
        call: the call, with the experiment.
        lock: descriptor of the folder's lock.
        cores: number of processor cores.
        minutes: time after which no more operators are tried.
        shows: whether to display progress.
    """

    def __init__(self, call: _Call, lock: int, cores: int | None, minutes: float | None, shows: bool) -> None:
        self.call, self.lock, self.cores, self.shows = call, lock, cores or usable_cores(), shows
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes * SEARCH_SHARE

    def finish(self) -> None:
        """Run all stages of the workflow. TrainingError if one failed; KeyboardInterrupt after the jobs have stopped."""
        searched = self.call.folder / FROZEN
        with display() if self.shows else nullcontext(None) as shown:
            if self.deadline is not None and not searched.is_file() and not self._workflow(shown, [str(searched)]):
                _, search = self._finished()
                self.call.write_config(max(1, 0 if search is None else search.finished))
            self._workflow(shown)

    def _workflow(self, shown: Display | None, targets: Sequence[str] = ()) -> bool:
        """Run the workflow up to the targets; return whether it completed.

        A run with targets is interrupted at the deadline.
        """
        arguments = command(str(self.call.config), LOCAL, self.cores, targets, self.call.folder)
        with (self.call.folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                arguments, cwd=self.call.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=partial(_end_with, os.getpid()), pass_fds=[self.lock],
            )  # fmt: skip
        began, before = time.monotonic(), self._finished()[0]
        try:
            while process.poll() is None:
                if shown is not None:
                    self._show(shown, began, before)
                if targets and self.deadline is not None and time.monotonic() > self.deadline:
                    _interrupt(process)
                    return False
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)
        except KeyboardInterrupt:
            _interrupt(process)
            print(f"What is done is in {self.call.folder}; the same call goes on.", file=sys.stderr, flush=True)
            raise
        if process.returncode:
            raise TrainingError(f"speed_up: {self._reason()} (more: {self.call.folder / LOG}); after that, call it again")
        if shown is not None:
            self._show(shown, began, before)
        return True

    def _reason(self) -> str:
        """Return the last error in the workflow's log."""
        lines = (self.call.folder / LOG).read_text(errors="replace").splitlines()
        return next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), "the workflow failed")

    def _finished(self) -> tuple[int, Snapshot | None]:
        """Return the number of finished trainings, in the search and after it, and a snapshot of the search."""
        after = len(list(self.call.folder.glob(TRAINING.format(key="*", seed="*"))))
        with suppress(SynoError):  # it has not begun
            snapshot = Watch(str(self.call.config)).look()
            return snapshot.finished + after, snapshot
        return after, None

    def _show(self, shown: Display, began: float, before: int) -> None:
        (experiment,) = map(Experiment.checked, load_experiments(self.call.experiment).values())
        done, snapshot = self._finished()
        trials, seconds = experiment.study.n_trials if snapshot is None else snapshot.planned, time.monotonic() - began
        # Rivals that are no faster are not trained, and there may be fewer mixtures: then the last ones take no time.
        networks = 1 + min(experiment.select.count, trials) + len((*experiment.rival_names, *experiment.mixture_names))
        total = max(done, trials + len(experiment.train.seeds) * networks)
        shown.show(Progress(
            experiment.name, done, total, done, running=0 if snapshot is None else snapshot.running, seconds=seconds,
            rate=(done - before) / max(seconds, 1e-9), screened={} if snapshot is None else dict(snapshot.screened),
        ))  # fmt: skip


@contextmanager
def _alone(folder: Path, check: Callable[[], object]) -> Iterator[int]:
    """Lock a folder, and yield the lock's descriptor. Waits while an equal call, or its ending workflow, holds the lock.

    A worker of a killed call may still be running a trial; with a second worker beside it, equal calls would make different
    trials.

    Args:
        folder: created if needed.
        check: raises SpecError if the running call is a different one, for which this call does not wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        with suppress(OSError):  # a file system without locks lets all in
            is_told = False
            while not _is_locked(file):
                check()  # again and again: what runs there may write what it is only now
                if not is_told:
                    print(f"Another call runs in {folder}; this one waits for its end.", file=sys.stderr, flush=True)
                is_told = True
                time.sleep(LOOK_SECONDS / 4)
        yield file.fileno()


def _is_locked(file: IO[str]) -> bool:
    """Lock an open file; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_with(parent: int) -> None:
    """Let this process and its jobs be interrupted when its parent ends for any reason."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a shell starts programs in the background with signals ignored
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        end_with(parent, signal.SIGHUP)  # `syno.stages.workflow.process.end_with_program` interrupts the jobs, too


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a workflow and its jobs as Ctrl-C does, and wait until it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    process.wait()


class SpeedUp:
    """The answer of `syno.speed_up`, also from an earlier process.

    >>> import syno
    >>> syno.SpeedUp("speed_up").folder.name
    'speed_up'

    Attributes:
        folder: folder of the experiment and its results, as `syno top`, `syno get` and `syno.plot` take it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self._age = ""

    def score_again(self, task: Task, trained_at: datetime, settings: TrainingSettings) -> None:
        """Score the network of an earlier answer on the batches of a task; record the answer's age and the score for display.

        Args:
            task: the task of this call.
            trained_at: time of the earlier answer.
            settings: settings of the training.

        Raises DataError if the score differs from that in the record of the training.
        """
        key = ORIGINAL if self.best is None else self.best.key
        record, metric = record_taken(self.experiment, key), METRICS[record_taken(self.experiment, key).metric]
        with warnings.catch_warnings(), on_device(settings.device) as device:
            warnings.simplefilter("ignore")  # that this is the original is said where it is asked for
            network = moved_to(trained_network(self.experiment, key), device)
            now = score_only(network, task, settings, seed=record.seed).score
        goal, before = self.experiment.goal, record.score
        allowed = max(SAME_SCORE * abs(before), (goal.lose_at_most or 0.0) / 2 if goal is not None else 0.0)
        if not abs(now - before) <= allowed:
            raise DataError(
                f"{self.folder} holds the answer of {trained_at:%Y-%m-%d %H:%M}, whose network {record.name} had {metric.name} "
                f"{before:.6g} then, and has {now:.6g} on the batches to test on of this call: they, or what scores them, are "
                "other ones. Give another folder, or delete this one"
            )
        self._age = (
            f"This answer is of {trained_at:%Y-%m-%d %H:%M}, of an equal call; {record.name}, scored again now: {metric.name} "
            f"{now:.6g}, then {before:.6g}."
        )

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that `speed_up` wrote into the folder."""
        return load_experiment(str(self.folder))

    @cached_property
    def run(self) -> StoredRun:
        """The run of the experiment: its records and verdicts."""
        return StoredRun(self.experiment)

    @cached_property
    def best(self) -> JudgedNetwork | None:
        """The verdict on the returned network: the best of all networks, including those without synthesis.

        Its intervals and verdict are corrected for its selection among all of these. Its `state` is "meets" or "may meet". None
        if no network meets or may meet the goal.
        """
        assert self.run.goal is not None  # of every call
        best = best_of(self.run.scores, self.run.goal, self.run.metric)
        return None if best is None or best.state not in STATES[:2] else best

    @property
    def speedup(self) -> Interval:
        """Measured speedup of `best` over the original, with its 95 % interval; 1 for the original."""
        return Interval(1.0) if self.best is None else self.best.speedup

    @property
    def lost(self) -> Interval:
        """Loss of score of `best` against the original, in the score's unit, with its 95 % interval; 0 for the original."""
        return Interval(0.0) if self.best is None else self.best.lost

    @cached_property
    def model(self) -> nn.Module:
        """The best network, with its trained weights, in evaluation mode; the original if no network meets the goal."""
        if self.best is None:
            warnings.warn(f"no network meets the goal, so this is the original. {self}", stacklevel=2)
        return trained_network(self.experiment, ORIGINAL if self.best is None else self.best.key)

    @property
    def front(self) -> pandas.DataFrame:
        """The Pareto front of score and speed: the networks that no other network beats in both, the most accurate first.

        The columns are operator, score, speedup, speedup_low, speedup_high, lost, lost_low, lost_high and verdict.
        """
        judged = sorted(self.run.judged, key=lambda network: (STATES.index(network.state or "unknown"), network.missing))
        original = next((network.score for network in self.run.scores if network.key == ORIGINAL), None)
        rows = [(network.operator, network.score, *network.speedup, *network.lost, network.state or "") for network in judged]
        rows.append((ORIGINAL, original, *Interval(1.0, 1.0, 1.0), *Interval(0.0, 0.0, 0.0), ""))
        known = [row for row in rows if row[2] == row[2]]
        kept = front([(-row[2], -row[5]) for row in known])
        table = pandas.DataFrame([known[place] for place in kept], columns=list(COLUMNS))
        return table.sort_values("lost", ignore_index=True)

    def report(self) -> Path:
        """Return the path of the page with the answer, tables, figures and operators, for a browser."""
        return self.folder / REPORT

    def save(self, folder: str | Path) -> Path:
        """Write the best network into a folder that works without Syno: code, weights and a card; see `syno get`."""
        take_network(self.experiment, ORIGINAL if self.best is None else self.best.key, Path(folder))
        return Path(folder)

    def __str__(self) -> str:
        return "\n".join([*self.run.answer, *([self._age] if self._age else [])])

    def __repr__(self) -> str:
        return f"<speed-up in {self.folder}>"
