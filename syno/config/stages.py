"""The settings of an experiment's stages, one group for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from syno.base.errors import SpecError, SynoError
from syno.config.original import OperatorChoice
from syno.config.section import Section
from syno.measure.compilers import compiler_named, name_in_files, reaches, unreached
from syno.measure.timing import LatencySettings
from syno.measure.tvm.settings import DeviceSettings, TvmSettings, check_name, find_device
from syno.train.settings import TrainingSettings

Seed = Annotated[int, Field(ge=0)]  # it is in the name of a file


class StudySettings(Section):
    """Where trials are kept, how many there are, and who evaluates them."""

    storage: str | None = None  # a database URL or journal file; null: trials.db in the folder of results; journal: trials.log
    seed: int = 0
    n_trials: Annotated[int, Field(ge=0)] = 100  # of the study, all workers and earlier runs together
    workers: Annotated[int, Field(ge=1)] = 1  # jobs of the workflow that share the study; with one, runs are reproducible
    pruner: Mapping[str, Any] | None = None  # an Optuna pruner's name and settings, as in {name: median, n_warmup_steps: 1}
    most_attempts: Annotated[int, Field(ge=1)] = 3  # after so many workers died over an operator, it counts as failed
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 60  # how often a worker says that it is alive
    grace_seconds: Annotated[float, Field(gt=0)] = 180  # of silence, after which another worker takes its trial


class SelectSettings(Section):
    """Which operators are trained again and tuned."""

    by: Literal["pareto", "reward"] = "pareto"  # the front of accuracy or loss against FLOPs, then by reward; or reward alone
    count: Annotated[int, Field(ge=1)] = 3  # at most so many
    least_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0  # in the search, of any that is selected
    most_loss: Annotated[float, Field(gt=0)] | None = None  # the same, of networks for text: nats per token
    source: Path | None = None  # no search: operators of another experiment, by its name in this file or its folder of results
    within: Annotated[float, Field(ge=0)] | None = None  # of a source: how much worse than the original they may be there

    @model_validator(mode="after")
    def _within_a_source(self) -> Self:
        if self.within is not None and self.source is None:
            raise ValueError("within says how good operators of another experiment must be; give source, too, or leave it out")
        return self


class TrainSettings(Section):
    """How the selected operators are trained again, beside the original and the baselines."""

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (
        1,
        2,
        3,
    )  # not the search's, by which operators were chosen
    baselines: tuple[OperatorChoice, ...] = ()  # known operators that are trained, too
    training: TrainingSettings | None = None  # instead of the workload's

    @field_validator("seeds")
    @classmethod
    def _different(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(given)) < len(given):
            raise ValueError(f"{list(given)} has a seed twice; each is one training")
        return given


class TuneSettings(Section):
    """How the network's latency is measured: with which compilers, on which devices."""

    compilers: tuple[str, ...] = ("eager", "inductor")  # of: eager, inductor, inductor-max-autotune, inductor-int8, tvm; or []
    devices: tuple[str, ...] = ("cpu",)  # cpu, cuda, or one of several GPUs such as cuda:1; or names of remote devices
    remote_devices: Mapping[str, DeviceSettings] = {}  # by name, the devices that TVM's RPC reaches
    baselines: bool = True  # whether the baselines are measured, too
    latency: LatencySettings = LatencySettings()
    tvm: TvmSettings = TvmSettings()
    time_limit_seconds: Annotated[float, Field(gt=0)] = 600  # for compiling, tuning and measuring one network
    memory_limit_mib: Annotated[float, Field(gt=0)] | None = None  # of the process that does it

    @field_validator("compilers")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            try:
                name_in_files(compiler_named(name).name)
            except SynoError as error:
                raise ValueError(str(error)) from None
        return given

    @field_validator("remote_devices")
    @classmethod
    def _named(cls, given: Mapping[str, DeviceSettings]) -> Mapping[str, DeviceSettings]:
        for name in given:
            try:
                check_name(name)
            except SpecError as error:
                raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _devices(self) -> Self:
        try:
            for name in self.devices:
                find_device(name, self.remote_devices)
        except SpecError as error:
            raise ValueError(f"devices: {error}") from None
        lost = unreached(self.devices, self.compilers, self.remote_devices) if self.compilers else []
        if lost:
            raise ValueError(
                f"devices: {', '.join(lost)}: only the compiler tvm reaches remote devices, and compilers are "
                f"{', '.join(self.compilers)}; add tvm to the compilers, or leave the device out"
            )
        return self

    @model_validator(mode="after")
    def _tunable(self) -> Self:
        try:
            for compiler in map(compiler_named, self.compilers):
                for device in self.devices:
                    compiler.check_gpu(device)
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self

    def device(self, name: str, compiler: str) -> DeviceSettings | None:
        """The remote device to measure on, or None for one of this machine.

        Raises SpecError if there is none of that name, or what the compiler makes cannot be measured there.
        """
        found = find_device(name, self.remote_devices)
        if not reaches(compiler, found):
            raise SpecError(
                f'what the compiler "{compiler}" makes runs on this machine only, and "{name}" is another; it takes the '
                "compiler tvm"
            )
        return found

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """What is measured: each compiler on each device that it reaches."""
        return tuple(
            (compiler, name)
            for name in self.devices
            for compiler in self.compilers
            if reaches(compiler, self.remote_devices.get(name))
        )

    def made_for(self, name: str) -> dict[str, Any]:
        """What results on a device depend on; where it is and how patiently it is asked may change. Empty for this machine."""
        found = find_device(name, self.remote_devices)
        return {} if found is None else found.model_dump(mode="json", include={"kind", "target"})
