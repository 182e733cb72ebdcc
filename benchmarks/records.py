"""Measurements with records in a folder: what has one is not measured again, so a run that was stopped goes on where it was."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syno.base.errors import SpecError
from syno.measure.compilers import compiler_named
from syno.measure.network_subject import NetworkSubject
from syno.measure.tuning import LatencySettings, TuningRecord, TvmSettings, tune


def add_options(parser: argparse.ArgumentParser, compilers: str) -> None:
    """The options that `measured` and `names` look at; `compilers` is the default of theirs."""
    add = parser.add_argument
    add("--records", type=Path, required=True, metavar="DIR", help="where records are kept")
    add("--compilers", default=compilers, metavar="A,B", help="default: %(default)s")
    add("--device", default="cpu", help="cpu, cuda, or one of several GPUs such as cuda:1; default: %(default)s")
    add("--target", help="tvm: what to generate code for, if not the device")
    add("--trials", type=int, default=64, help="tvm: schedules measured of each task; default: %(default)s")
    add("--threads", type=int, default=1, help="default: %(default)s")
    add("--time-limit", type=float, default=1800.0, help="seconds for each measurement; default: %(default)s")


def names(options: argparse.Namespace) -> list[str]:
    """The compilers. UnknownNameError, MissingPackageError if there is none of that name, or it lacks something."""
    found = [part for part in options.compilers.split(",") if part]
    for compiler in found:
        compiler_named(compiler).require()
    return found


def measured(name: str, subject: NetworkSubject, compiler: str, options: argparse.Namespace) -> TuningRecord:
    """The record that there is, or a new one. SpecError if that which there is was made for something else.

    Args:
        name: of the subject, in the file's name.
        subject: what to measure, with a batch of 1.
        compiler: a name in `COMPILERS`.
        options: as `add_options` has them.
    """
    device = options.device.replace(":", "")
    file = options.records / f"{name}-{compiler}-{device}.json"
    settings = LatencySettings(batch=1, threads=options.threads)
    if file.exists():
        found = TuningRecord.read(file)
        if (found.subject, found.settings.threads, found.settings.batch) != (subject, settings.threads, settings.batch):
            raise SpecError(f"{file} is of another operator or number of threads: give another folder, or delete it")
        return found
    own: dict[str, Any] = {}
    if compiler_named(compiler).tunes:
        tvm = TvmSettings(target=options.target, trials_per_task=options.trials)
        own = {"tvm": tvm, "folder": options.records / f"tvm-{device}"}  # trials are kept, too
    record = tune(subject, compiler, options.device, settings, time_limit_s=options.time_limit, **own)
    record.write(file)
    return record


def about(records: Sequence[TuningRecord], threads: int) -> list[str]:
    """Lines of a report: when, where and with what these were measured."""
    versions = {name: version for record in records for name, version in record.versions.items()}
    dates = sorted(record.date for record in records)
    span = f"{dates[0]:%Y-%m-%d %H:%M} to {dates[-1]:%Y-%m-%d %H:%M} UTC" if dates else "nothing"
    places = ", ".join(sorted({record.device.name or record.device.kind for record in records}))
    lines = [
        f"- Measured: {span}, on {places}, {threads} thread{'s'[: threads != 1]}, batch 1, float32",
        f"- Versions then: {', '.join(f'{name} {version}' for name, version in versions.items())}",
    ]
    errors = [record.largest_relative_error for record in records if record.largest_relative_error is not None]
    if errors:
        lines.append(f"- Outputs checked: {len(errors)}; the largest error of any is {max(errors):.1g} of its largest value")
    tuned = [record.tuning for record in records if record.tuning is not None]
    if tuned:
        wanted = sorted({tuning.trials_wanted // max(len(tuning.tasks), 1) for tuning in tuned})
        targets = sorted({str(tuning.target) for tuning in tuned})
        lines.append(
            f"- TVM: {' or '.join(map(str, wanted))} trials of each task, {sum(tuning.trials for tuning in tuned):,} together, "
            f"{sum(tuning.seconds for tuning in tuned) / 60:.0f} minutes; target {'; '.join(targets)}"
        )
    return lines
