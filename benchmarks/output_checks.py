"""The check of compiled networks: honest compilations that it lets pass, and planted faults that it finds.

    python benchmarks/output_checks.py --output docs/measured/check.md

Operators and small networks are compiled with each compiler, as they come but for schedules: TVM's are not tuned. Then small
faults are planted into ResNet-8 and ResNet-18. The report goes to standard output, and to the file `--output`; progress goes
to standard error. Exit status: 0; 1 for a false alarm or a fault that was not found; 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import planted_faults
import reports
import torch

import syno
from syno.base.errors import SizeError, WrongOutputError
from syno.measure.compilers import COMPILERS
from syno.measure.job import Job
from syno.measure.latency import pinned
from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
from syno.measure.output_check import Deviation, check_of
from syno.measure.subjects import OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import AnySubject
from syno.measure.tvm.targets import TvmSettings

COMPILED = ("eager", "inductor", "tvm", "inductor-max-autotune")
EVERY = {"inductor-max-autotune": 6}  # of how many subjects one is compiled, where that takes long
SIZES = (
    {"C_in": 32, "C_out": 32, "C": 32, "H": 8, "seq_len": 8, "H_in": 96, "M": 12, "K": 96, "N": 20},
    {"C_in": 64, "C_out": 128, "C": 64, "H": 16, "seq_len": 24, "H_in": 192, "M": 64, "K": 512, "N": 64},
    {"C_in": 128, "C_out": 64, "C": 128, "H": 12, "seq_len": 40, "H_in": 384, "M": 7, "K": 2048, "N": 9},
)
SEPARABLE, OPERATOR_1, CONV2D = "separable_conv2d", "operator_1", "conv2d"
PLANTED = {  # by model: sizes of pictures, an operator, classes, and the rule for layers
    "resnet8": ((16, 32), SEPARABLE, 10, "spatial"),
    "resnet18": ((64, 224), OPERATOR_1, 1000, "paper-3x3"),
}
UNTUNED = TvmSettings(trials_per_task=0)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one compilation."""

    kind: str  # "operator" or "network"
    name: str
    compiler: str
    deviation: Deviation | None  # None where nothing was compiled
    alarm: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, plant, print and write the report; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--operators", type=int, default=57, help="compilations of operators by each; default: %(default)s")
    parser.add_argument("--networks", type=int, default=10, help="compilations of networks by each; default: %(default)s")
    parser.add_argument("--compilers", default=",".join(COMPILED), metavar="A,B", help="default: %(default)s")
    parser.add_argument("--models", default=",".join(PLANTED), metavar="A,B", help="with faults; default: %(default)s")
    options = reports.parse(parser, arguments)
    start = reports.heading("Check of outputs", f"benchmarks/output_checks.py {' '.join(sys.argv[1:])}".strip())
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # so that everything is compiled
        outcomes = list(_honest(options, Path(folder)))
    faults = [found for model in options.models.split(",") if model for found in planted(model)]
    minutes = (time.monotonic() - began) / 60
    start.append(f"- Took: {minutes:.0f} minutes, 1 thread")
    reports.deliver([*start, "", *_report(outcomes, faults)], options.output)
    wrong = any(outcome.alarm for outcome in outcomes) or any(found <= 1 for *_, found in faults)
    return 1 if wrong else 0


# ---- honest compilations ----------------------------------------------------------------------------------------


def _operators(count: int) -> Iterator[tuple[AnySubject, int]]:
    """Known operators at several sizes and batches, in the form that is measured."""
    found = 0
    for number, sizes in enumerate(SIZES):
        for name in syno.OPERATORS:
            graph = syno.OPERATORS[name]()
            given = {variable: value for variable, value in sizes.items() if variable in graph.variables}
            if "N" in graph.runtime_variables:
                del given["N"]
            try:
                subject = OperatorSubject.of(graph, given)
            except SizeError:
                continue
            if found < count:
                found += 1
                yield subject, 1 + number


def _networks(count: int) -> Iterator[tuple[AnySubject, int]]:
    pictures = [
        ("resnet8", 1.0, 32, None), ("resnet8", 0.5, 16, SEPARABLE), ("resnet8", 1.0, 16, CONV2D),
        ("resnet18", 0.25, 64, None), ("resnet18", 0.5, 32, OPERATOR_1), ("resnet8", 0.25, 24, "shift_conv1x1"),
        ("resnet8", 2.0, 8, "nas_pte_sequence_1"),
    ]  # fmt: skip
    texts = [(64, None), (16, "gpt2_projection"), (32, "mqa_projection")]
    subjects: list[AnySubject] = [
        NetworkSubject(
            model=model,
            width=width,
            classes=10,
            image_shape=(3, size, size),
            operator=None if operator is None else _text(operator),
        )
        for model, width, size, operator in pictures
    ]
    subjects[3:3] = [
        LanguageModelSubject(
            model="gpt_tiny", vocabulary=64, length=length, operator=None if operator is None else _text(operator)
        )
        for length, operator in texts
    ]
    for number, subject in enumerate(subjects[:count]):
        yield subject, 1 + number % 3


def _text(operator: str) -> str:
    graph = syno.OPERATORS[operator]()
    return str(graph.renamed(operator, g=4) if "g" in graph.variables and operator == OPERATOR_1 else graph)


def _honest(options: argparse.Namespace, folder: Path) -> Iterator[Outcome]:
    for kind, subjects in (("operator", _operators(options.operators)), ("network", _networks(options.networks))):
        for number, (subject, batch) in enumerate(subjects):
            for compiler in options.compilers.split(","):
                if number % EVERY.get(compiler, 1):
                    continue
                began = time.monotonic()
                outcome = _compiled(kind, subject, batch, compiler, folder)
                said = outcome.alarm or ("–" if outcome.deviation is None else f"{outcome.deviation.of_allowed:.2g} of allowed")
                taken = f"{time.monotonic() - began:.0f} s"
                print(f"{outcome.name}, batch {batch}, {compiler}: {said}, {taken}", file=sys.stderr, flush=True)
                yield outcome


def _compiled(kind: str, subject: AnySubject, batch: int, compiler: str, folder: Path) -> Outcome:
    settings = LatencySettings(batch=batch)
    torch._dynamo.reset()
    name = subject.title if kind == "operator" else f"{getattr(subject, 'model', '')} with {subject.title}"
    with torch.no_grad(), pinned(settings):
        material = subject.make("cpu", batch)
        check = check_of(material, settings, "cpu")
        job = Job(
            module=material.module,
            example=material.make_inputs(),
            make_inputs=material.make_inputs,
            device="cpu",
            settings=settings,
            check=check,
            name="compiled",
            folder=folder,
            options=UNTUNED,
            began=0.0,
            time_limit_s=float("inf"),
            begin=lambda phase: None,
            note=lambda **fields: None,
            count=lambda trials: None,
            lacks=lambda sentence: None,
        )
        try:
            deviation = check.require(check.of(COMPILERS[compiler](job)))
        except WrongOutputError as error:
            return Outcome(kind, name, compiler, None, f"FALSE ALARM: {error}")
        except Exception as error:  # nothing to compare
            return Outcome(kind, name, compiler, None, f"not compiled: {type(error).__name__}: {str(error)[:200]}")
    return Outcome(kind, name, compiler, deviation, "")


# ---- planted faults ---------------------------------------------------------------------------------------------


def planted(model: str) -> Iterator[tuple[str, str, float, float]]:
    """Network, fault, its largest difference relative to the largest value, and as a share of what is allowed."""
    sizes, known, classes, layers = PLANTED[model]
    for size, operator in ((size, operator) for size in sizes for operator in (None, known)):
        text = None if operator is None else str(syno.OPERATORS[operator]())
        subject = NetworkSubject(model=model, classes=classes, image_shape=(3, size, size), operator=text, layers=layers)
        settings = LatencySettings()
        with torch.no_grad(), pinned(settings):
            material = subject.make("cpu", 1)
            check = check_of(material, settings, "cpu")
            for fault, plant in planted_faults.FAULTS.items():
                found = check.of(plant(material.module))
                yield f"{model}, {size}x{size}, {subject.title}", fault, found.relative, found.of_allowed
            factors = [
                check.of(planted_faults.changed(material.module, number, planted_faults.slightly_larger))
                for number in range(len(planted_faults.operators(material.module)))
            ]
            least = min(factors, key=lambda found: found.of_allowed)
            name = f"factor, the least of all {len(factors)}"
            yield f"{model}, {size}x{size}, {subject.title}", name, least.relative, least.of_allowed
            print(f"{model} {size} {operator}: faults planted", file=sys.stderr, flush=True)


# ---- the report -------------------------------------------------------------------------------------------------


def _report(outcomes: Sequence[Outcome], faults: Sequence[tuple[str, str, float, float]]) -> list[str]:
    compiled = [outcome for outcome in outcomes if outcome.deviation is not None]
    alarms = [outcome for outcome in outcomes if outcome.alarm]
    lines = [
        "A share of 1 is the most by which an element of an output may differ from double precision; "
        "[evaluation.md](../evaluation.md#whether-the-output-is-right) says how much that is.",
        "",
        f"## Honest compilations: {len(compiled)}, false alarms: {sum('FALSE' in outcome.alarm for outcome in alarms)}",
        "",
    ]
    rows = []
    for kind in ("operator", "network"):
        for compiler in dict.fromkeys(outcome.compiler for outcome in outcomes):
            these = [
                (outcome.deviation.of_allowed, outcome.name)
                for outcome in compiled
                if (outcome.kind, outcome.compiler) == (kind, compiler) and outcome.deviation is not None
            ]
            if these:
                worst, name = max(these)
                rows.append([f"{kind}s", compiler, name, str(len(these)), f"{worst:.2f}"])
    columns = ["what", "compiler", "closest to the bound", "compilations", "share of allowed"]
    lines += reports.table(columns, rows, left=3)
    lines += ["", *(f"- {outcome.name}, {outcome.compiler}: {outcome.alarm}" for outcome in alarms)] if alarms else []
    lines += [
        "",
        "## Planted faults",
        "",
        "Relative errors are shares of the largest value, of which 0.001 was once allowed.",
        "",
    ]
    lines += reports.table(
        ["network", "fault", "relative error", "times what is allowed"],
        [[network, fault, f"{relative:.1e}", f"{found:.3g}"] for network, fault, relative, found in faults],
        left=2,
    )
    lines += [
        "",
        "- channel: the last channel of the last operator is zero; corner: one pixel of the first operator, in all channels",
        "- factor: one operator times 1.001; border: the last row of the first operator is that before it",
        "- bfloat16: weights and input rounded to 8 bits; operator-in-bfloat16: the output of the last operator",
    ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
