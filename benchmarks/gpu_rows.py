"""The rows that are measured on a GPU: tests, trainings, latencies. The most valuable ones come first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

import syno
from syno.algebra import VariableKind
from syno.base.errors import SynoError, one_line
from syno.measure.measuring_process import crash_in_words, kill
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.protocol import LOOK_SECONDS
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune

ROOT = Path(__file__).resolve().parents[1]
ORIGINAL = "original"
GOOD = ("ok", "skipped")  # ends of rows that are no failure
MOST_THREADS = 16  # of the CPU: outputs are compared with double precision there
Section: TypeAlias = Literal["tests", "training", "latency"]


@dataclass(frozen=True)
class Outcome:
    """How measuring a row ended.

    Attributes:
        status: "ok", "skipped" where this machine cannot, or a word for what went wrong, such as "failed" or "timeout".
        reason: one sentence; empty for "ok".
        values: what was measured, as JSON.
    """

    status: str
    reason: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Something to measure.

    Attributes:
        key: its name in the file of results.
        section: of the report.
        title: in the report.
        about: what is the same for all rows of a table, and their places in it.
        least_s: seconds that it takes at least: it does not begin where fewer are left.
        most_s: seconds after which it is stopped.
        measure: gets a limit in seconds and a folder for files.
    """

    key: str
    section: Section
    title: str
    about: dict[str, Any]
    least_s: float
    most_s: float
    measure: Callable[[float, Path], Outcome] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Network:
    """A network whose latency is measured, with the operators that fit its layers; `shape` is of a sample."""

    model: str
    title: str
    shape: tuple[int, ...]
    operators: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1, 128)
    vocabulary: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict, hash=False)  # of operators that are not in the library

    def text(self, operator: str) -> str | None:
        """The operator's text; None for the original."""
        if operator == ORIGINAL:
            return None
        return self.texts[operator] if operator in self.texts else str(syno.OPERATORS[operator]())

    def subject(self, operator: str | None) -> NetworkSubject | LanguageModelSubject:
        """The network, with the operator of this text or as it is."""
        given: dict[str, Any] = {"model": self.model, "operator": operator, "layers": "paper"}
        if self.vocabulary is not None:
            return LanguageModelSubject(**given, vocabulary=self.vocabulary, length=self.shape[0])
        return NetworkSubject(**given, classes=1000, image_shape=self.shape, memory_format="channels_last")


PICTURE = (3, 224, 224)
BOTH = ("operator_1", "operator_2")
NETWORKS = (
    Network("resnet18", "ResNet-18", PICTURE, BOTH),
    Network("gpt2", "GPT-2, 2048 tokens", (2048,), ("gpt2_projection",), (1,), vocabulary=50257),  # its logits are 0.4 GB each
    Network("resnet34", "ResNet-34", PICTURE, BOTH),
    Network("resnext29_2x64d_1000", "ResNeXt-29", PICTURE, BOTH),
    Network("densenet121", "DenseNet-121", PICTURE),  # the library's operators do not fit its layers
    Network("efficientnet_v2_s", "EfficientNet-V2-S", PICTURE),
)
COMPILERS = ("inductor", "eager", "inductor-bfloat16", "inductor-max-autotune")
SECONDS = {
    "eager": (15, 150),
    "inductor": (30, 240),
    "inductor-bfloat16": (30, 240),
    "inductor-max-autotune": (60, 420),
}  # at least, at most
TRAININGS = {  # their keys, and what is given to benchmarks/training.py
    "pictures-32": ("--sizes", "32", "--tf32", "--language-model", "none"),
    "gpt2": ("--sizes", "", "--tf32", "--language-model", "gpt2"),
    "pictures-224": ("--sizes", "224", "--tf32", "--precision", "float16", "--language-model", "none"),
    "files-224": ("--sizes", "", "--files", "4096", "--tf32", "--precision", "float16", "--language-model", "none"),
    "pictures-32-compiled": ("--sizes", "32", "--tf32", "--compile", "--language-model", "none"),
    "gpt2-compiled": ("--sizes", "", "--tf32", "--compile", "--language-model", "gpt2"),
}
MINIATURE = Network("resnet8", "ResNet-8, 16x16", (3, 16, 16), ("separable_conv2d",), (4,))
MINIATURE_TRAININGS = {
    "pictures-32": ("--sizes", "32", "--language-model", "none"),
    "gpt2": ("--sizes", "", "--language-model", "gpt_tiny", "--length", "32"),
}
IN_MINIATURE = ("--batch", "4", "--steps", "2", "--turns", "1")


def rows(device: str, *, tf32: bool = False) -> list[Row]:
    """All rows on a GPU."""
    networks = with_published(NETWORKS)
    latencies = {
        (network.model, compiler, batch): list(latency_rows(network, compiler, batch, device, tf32=tf32))
        for compiler in COMPILERS
        for network in networks
        for batch in network.batches
    }
    trainings = [training_row(key, device, (*given, "--workers", str(threads()))) for key, given in TRAININGS.items()]
    first = [("resnet18", "inductor", 1), ("gpt2", "inductor", 1), ("resnet18", "inductor", 128), ("resnet18", "eager", 1)]
    first += [
        ("resnet18", "inductor-max-autotune", 1),
        ("resnet18", "inductor-bfloat16", 128),
        ("gpt2", "inductor-bfloat16", 1),
    ]
    ordered = [tests_row(device), *trainings[:2]]
    ordered += [row for place in first for row in latencies.pop(place)]
    ordered += trainings[2:4]
    ordered += [row for (_, compiler, _), of in latencies.items() if compiler != COMPILERS[-1] for row in of]
    ordered += trainings[4:]
    return ordered + [row for (_, compiler, _), of in latencies.items() if compiler == COMPILERS[-1] for row in of]


def with_published(networks: Sequence[Network]) -> list[Network]:
    """The networks, each of pictures with the first published operator for it if the environment names the artifact."""
    if not os.environ.get("SYNO_ARTIFACT"):
        return list(networks)
    try:
        import cases
    except ImportError as error:  # a package that reads the artifact is absent
        print(f"published operators are left out: {one_line(error)}", file=sys.stderr)
        return list(networks)
    known: dict[str, tuple[str, str]] = {}
    for operator in reversed(cases.operators(cases.artifact_folder())):
        if operator.layer is not None and operator.backbone:
            variables = operator.graph.variables.items()
            constants = {name: operator.layer[name] for name, one in variables if one.kind is VariableKind.COEFFICIENT}
            known[operator.backbone] = operator.name, str(operator.graph.renamed(operator.name, **constants))
    found = []
    for network in networks:
        name, text = next((one for backbone, one in known.items() if network.model.startswith(backbone)), (None, ""))
        fits = name is not None and network.vocabulary is None
        found.append(replace(network, operators=(*network.operators, name), texts={name: text}) if fits else network)
    return found


def miniature() -> list[Row]:
    """The rows of a pretended GPU: the same programs, on the CPU."""
    trainings = [training_row(key, "cpu", (*given, *IN_MINIATURE)) for key, given in MINIATURE_TRAININGS.items()]
    latencies = [row for batch in MINIATURE.batches for row in latency_rows(MINIATURE, "eager", batch, "cpu")]
    return [tests_row("cpu"), *trainings, *latencies]


def threads() -> int:
    """The CPU threads that check outputs, or read files."""
    return min(os.cpu_count() or 1, MOST_THREADS)


def tests_row(device: str) -> Row:
    """The tests of tests/gpu."""

    def measure(limit_s: float, folder: Path) -> Outcome:
        file = folder / "tests.json"
        end, reason = _program([str(ROOT / "tests" / "gpu"), "--results", str(file)], device, limit_s, folder / "tests.log")
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        failed = [one["test"] for one in found if one["outcome"] == "FAIL"]
        if failed:
            end, reason = "failed", f"{len(failed)} failed: {', '.join(failed)}"
        return Outcome(end, reason, {"tests": found})

    return Row("tests", "tests", "the tests of tests/gpu", {}, 60, 300 if device != "cpu" else 1200, measure)


def training_row(key: str, device: str, arguments: tuple[str, ...]) -> Row:
    """A training of benchmarks/training.py."""

    def measure(limit_s: float, folder: Path) -> Outcome:
        if "--files" in arguments and find_spec("PIL") is None:
            return Outcome("skipped", "pictures are written by Pillow, which is not installed")
        file = folder / "training.json"
        command = [str(ROOT / "benchmarks" / "training.py"), "--device", device, *arguments, "--results", str(file)]
        end, reason = _program(command, device, limit_s, folder / "training.log")
        return Outcome(end, reason, {"rows": json.loads(file.read_text(encoding="utf-8"))} if end == "ok" else {})

    given = " ".join(argument or '""' for argument in arguments)
    compiled = "--compile" in arguments
    return Row(f"training/{key}", "training", f"training, {key}", {"arguments": given}, 90 if compiled else 30, 300, measure)


def latency_rows(network: Network, compiler: str, batch: int, device: str, *, tf32: bool = False) -> Iterator[Row]:
    """The network as it is and with each of its operators, one after the other."""
    for operator in (ORIGINAL, *network.operators):

        def measure(limit_s: float, folder: Path, operator: str = operator) -> Outcome:
            settings = LatencySettings(batch=batch, threads=threads(), tf32=tf32)
            try:
                record = tune(network.subject(network.text(operator)), compiler, device, settings, time_limit_s=limit_s)
            except SynoError as error:
                return Outcome("failed", one_line(error))
            kept = {"latency_ms", "latency_low_ms", "latency_high_ms", "flops", "parameters", "compile_seconds", "suspicious"}
            kept |= {"checked", "share_of_allowed", "operator_id", "repeats", "calls_per_repeat"}
            return Outcome(record.status, record.reason, record.model_dump(mode="json", include=kept))

        place = {"network": network.title, "operator": operator, "compiler": compiler, "batch": batch, "tf32": tf32}
        key = f"latency/{network.model}/{operator}/{compiler}/{batch}{'/tf32' * tf32}"
        title = f"latency of {network.title}, {operator}, {compiler}, batch {batch}{', TF32' * tf32}"
        yield Row(key, "latency", title, place, *SECONDS[compiler], measure)


def _program(command: list[str], device: str, limit_s: float, log: Path) -> tuple[str, str]:
    """Run a program of this project, whose output is also shown here; how it ended, and a reason."""
    environment = {**os.environ, "SYNO_GPU_DEVICE": device}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    if device == "cpu":
        environment["TORCHINDUCTOR_VEC_ISA_OK"] = "1"  # or Inductor would compile a program for each instruction set
    echo = _Echo(log)
    given, deadline = [sys.executable, *command], time.monotonic() + limit_s
    with log.open("wb") as stream:
        process = subprocess.Popen(
            given, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, start_new_session=True
        )
    try:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            echo.show()
        code = process.poll()
    finally:  # also when this process is interrupted
        kill(process, set())
    echo.show()
    if code == 0:
        return "ok", ""
    end = "timeout" if code is None else "crashed"
    reason = f"it was stopped at its time limit of {limit_s:g} s" if code is None else crash_in_words(code)
    return end, f"{reason}; its last words: {' '.join(echo.text.strip().splitlines()[-1:])[:300]}"


class _Echo:
    """Shows what a program writes into its log, while it runs."""

    def __init__(self, log: Path) -> None:
        self._log, self._shown = log, 0

    @property
    def text(self) -> str:
        """All that it has written."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def show(self) -> None:
        """Write what is new in the log to standard error."""
        text = self.text
        whole = text[: text.rfind("\n") + 1]
        sys.stderr.write(whole[self._shown :])
        sys.stderr.flush()
        self._shown = len(whole)
