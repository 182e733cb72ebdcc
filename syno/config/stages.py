"""The settings of the stages of an experiment, one group for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from fnmatch import fnmatchcase
from math import ceil, log2
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.validation import explained
from syno.config.groups import OperatorChoice, Section
from syno.measure.compilers import as_reached, compiler_facts, name_in_files, reaches, unreached
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.fastest import FastestSettings
from syno.measure.timing import LatencySettings
from syno.measure.tvm.targets import TvmSettings, check_name, find_device, is_here
from syno.model.networks import NUMBER_FORMATS
from syno.model.replacements import Kind, NarrowerNetwork
from syno.search.goal import Goal
from syno.search.halving import OF_FIT, HalvingSettings
from syno.search.reward import GainReward, GoalReward, RelativeReward
from syno.train.settings import SpeedSettings, TrainingSettings, WorkloadSettings

Seed = Annotated[int, Field(ge=0)]  # not negative, since names of files contain it


class StudySettings(Section):
    """The study: where its trials are stored, how many there are, and who evaluates them."""

    storage: str | None = None
    """database URL or journal file; null: `trials.db` in the folder of results; `journal`: `trials.log` there"""
    seed: int = 0
    """seed of the random numbers of the policy"""
    n_trials: Annotated[int, Field(ge=0)] = 100
    """number of trials of the study, by all workers and all runs together"""
    workers: Annotated[int, Field(ge=1)] = 1
    """jobs of the workflow that share the study; with one worker, runs are reproducible"""
    stopping: HalvingSettings | None = None
    """early stopping of trials that can be resumed, as in {keep: auto} or {keep: {1: 0.5, 2: 0.3}}"""
    most_attempts: Annotated[int, Field(ge=1)] = 3
    """number of workers that may die while they evaluate an operator, before its trial counts as failed"""
    heartbeat_seconds: Annotated[float, Field(ge=0.1)] = 60
    """seconds between two signs of life of a worker"""
    grace_seconds: Annotated[float, Field(gt=0)] = 180
    """seconds without a sign of life after which another worker takes over a trial; at least twice `heartbeat_seconds`"""
    check_gradients: bool = True
    """whether an operator fails without a training if, on the first batch, the gradient of a weight is zero or not finite"""

    @model_validator(mode="before")
    @classmethod
    def _without_pruner(cls, given: Any) -> Any:
        """Leave out `pruner: null`, which experiments kept beside results have."""
        if not isinstance(given, Mapping) or "pruner" not in given:
            return given
        if given["pruner"] is not None:
            raise ValueError("there is no pruner; give study: {stopping: {keep: auto}}, or workload: {milestones: ...}")
        return {name: value for name, value in given.items() if name != "pruner"}

    @model_validator(mode="after")
    def _workers_live_on(self) -> Self:
        if self.grace_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"grace_seconds is {self.grace_seconds:g}, and heartbeat_seconds {self.heartbeat_seconds:g}: a worker that "
                "lives would lose its trial; give at least twice as many grace_seconds"
            )
        return self


class SelectSettings(Section):
    """The selection of the operators that are trained again and measured."""

    by: Literal["pareto", "front", "reward", "latency", "goal"] = "pareto"
    """pareto: those on the front of accuracy or loss against FLOPs first; front: only those on the front against latency on a
    device, or against FLOPs if none is measured; reward; latency: the fastest on each device; goal: those that meet it first,
    then the nearest, which is the default where the experiment has a `goal`; reward is the default where a workload's
    operators are only counted"""
    count: Annotated[int, Field(ge=1)] = 3
    """most operators that are selected"""
    least_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """least accuracy in the search"""
    most_loss: Annotated[float, Field(gt=0)] | None = None
    """largest loss in the search, in nats per token, for networks for text"""
    source: Path | None = None
    """instead of a search: another experiment whose operators are taken, by its name in this file or its folder of results"""
    within: Annotated[float, Field(ge=0)] | None = None
    """how much worse than the original network's an operator's score may be, in the search or in the source"""
    shortlist: Annotated[int, Field(ge=1)] = 10
    """by latency or front: most operators whose latency is measured before the selection, the best by reward or score"""
    operators: tuple[OperatorChoice, ...] = ()
    """instead of a search: these operators, whatever `count` is; each by name, file or folder, with `rename` if it must be"""

    @model_validator(mode="after")
    def _operators_alone(self) -> Self:
        fields = SelectSettings.model_fields
        others = [name for name in fields if name not in ("operators", "count") and getattr(self, name) != fields[name].default]
        if self.operators and others:
            raise ValueError(f"operators are all taken, so {others[0]} means nothing; leave one of the two out")
        return self

    @property
    def most(self) -> int:
        """The largest number of operators that can be selected."""
        return len(self.operators) or self.count


class TrainSettings(Section):
    """The training of the selected operators, the original network and the baselines."""

    seeds: tuple[Seed, ...] = (1, 2, 3)
    """one training for each of these seeds, other ones than the search's, whose scores decided; [] trains nothing"""
    baselines: tuple[OperatorChoice, ...] = ()
    """known operators that are trained, too; also nas_pte_1 to nas_pte_3, which are PyTorch modules, or your own as
    `package.module:name`"""
    training: TrainingSettings | None = None
    """settings of training that differ from the workload's; with a recipe, all are the recipe's and these"""
    weights: Literal["all", "operators", "none"] = "all"
    """trainings whose weights are kept, beside their records: all, or those of networks with an operator that was found"""
    int8: bool = False
    """whether the trained original network is also tested in 8-bit integers, quantized after training: the baseline `int8`"""

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{list(seeds)} has a seed twice; each is one training")
        return seeds


DIVIDED = ("grouped", "low_rank")  # known layers whose costs are divided by a number
AUTO_SHARES = (1.0, 0.75)  # times the share of channels that would give the goal's speedup if time followed FLOPs
MOST_AUTO_SHARE = 0.9  # more is hardly faster
AUTO_SPEEDUP = 2.0  # in place of a goal's speedup
MOST_NAMES = 20  # of layers in a message


class RivalSettings(Section):
    """What a user would do without synthesis: it is trained and measured beside the operators that a search with a goal finds.

    Each has the recipe, the seeds, the compiler and the device of the operators.
    """

    shares: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | Literal["auto"] = "auto"
    """shares of the channels that narrower networks keep; auto: two around the share that would give the goal's speedup"""
    pruning: bool = True
    """whether channels are removed from the trained original (structured pruning), which is then trained again"""
    narrowing: bool = True
    """whether networks with as few channels are trained from new weights"""
    operators: tuple[OperatorChoice, ...] | Literal["auto"] = "auto"
    """known efficient layers in place of the network's, as in [separable, grouped_4]; auto: separable ones, as many groups of
    channels as would give the goal's speedup, as low a rank, and shifts. One that does not fit is a row with the reason"""
    int8: bool | Literal["all"] = True
    """whether the original, the pruned networks and mixtures are quantized to 8-bit integers, too: on a CPU, by TorchInductor;
    all: those with selected operators, too, which takes minutes to compile"""
    bfloat16: bool | Literal["auto"] = "auto"
    """whether the original, all trained rivals and networks with selected operators are computed in bfloat16, too, by
    TorchInductor; auto: on a GPU, since most CPUs have no instructions for it"""
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
    """factor of the learning rate for the training after pruning, which begins with trained weights"""

    def number_formats(self, device: str) -> dict[str, Literal["rivals", "all"]]:
        """Return the number formats of lower precision in which trained networks are tested, by name, and which networks.

        "rivals": the original, the pruned ones and mixtures. "all": those with selected operators, too.
        """
        found: dict[str, Literal["rivals", "all"]] = {}
        if self.int8 and device == "cpu":  # as far as the settings say it: TorchInductor has kernels for x86
            found["int8"] = "all" if self.int8 == "all" else "rivals"
        if self.bfloat16 is True or (self.bfloat16 == "auto" and device.startswith("cuda")):
            found["bfloat16"] = "all"
        return found

    def names(self, goal: Goal, others: Collection[str], formats: Collection[str]) -> tuple[str, ...]:
        """Return the names of the rivals.

        Args:
            goal: of the experiment.
            others: names of the experiment's baselines, which are trained in any case.
            formats: of lower precision, in which the original is a rival.
        """
        kinds: tuple[tuple[Kind, bool], ...] = (("pruned", self.pruning), ("narrow", self.narrowing))
        shares = self.chosen_shares(goal)
        narrower = [NarrowerNetwork(kind, share).name for share in shares for kind, is_asked in kinds if is_asked]
        known = [choice.key for choice in self.chosen_operators(goal)]
        found = [*narrower, *known, *(name for name in NUMBER_FORMATS if name in formats)]
        return tuple(name for name in dict.fromkeys(found) if name not in others)

    def chosen_shares(self, goal: Goal) -> tuple[float, ...]:
        """Return the shares of channels."""
        if self.shares != "auto":
            return self.shares
        around = (goal.speedup or AUTO_SPEEDUP) ** -0.5
        return tuple(share for factor in AUTO_SHARES if (share := round(factor * around, 2)) <= MOST_AUTO_SHARE)

    def chosen_operators(self, goal: Goal) -> tuple[OperatorChoice, ...]:
        """Return the known layers. A number of groups is a power of two, which divides the channels of most networks."""
        if self.operators != "auto":
            return self.operators
        divisor = 2 ** max(1, ceil(log2(goal.speedup or AUTO_SPEEDUP)))
        names = ("separable", *(f"{kind}_{divisor}" for kind in DIVIDED), "shift_conv1x1")
        return tuple(OperatorChoice(operator=name) for name in names)


def listed(layers: Collection[str]) -> str:
    """Return names of layers in a text, as far as they are not too many."""
    more = f" and {len(layers) - MOST_NAMES} more" if len(layers) > MOST_NAMES else ""
    return f"{', '.join([*layers][:MOST_NAMES])}{more}"


class MixtureSettings(Section):
    """Mixtures: an operator of its own for each layer, chosen from what each saves and costs there, by integer programming.

    They begin in the trained original or in a pruned network, and are trained and timed like the operators.
    """

    count: Annotated[int, Field(ge=1)] = 1
    """mixtures that are trained and timed"""
    operators: Annotated[int, Field(ge=1)] = 3
    """operators of the selection that are tried in each layer, the best first, beside the known layers of `rivals`"""
    pruned: bool = True
    """whether operators are also tried in the pruned networks of `rivals`, and single layers with the same share of channels"""
    margins: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (1.03, 1.3)
    """speeds that mixtures are chosen for, as factors of the goal's speedup; with `find: fastest`, higher ones follow"""
    keep: tuple[str, ...] = ()
    """layers without an operator in all mixtures, by names or patterns, as in [blocks.0.*]"""
    fix: Mapping[str, str] = {}
    """layers with one operator in all mixtures, by names or patterns, as in {blocks.2.conv2: separable_conv2d}; it is a known
    layer, or one of the selection by its name"""

    def by_hand(self, layers: Mapping[str, Collection[str]]) -> dict[str, str | None]:
        """Return the name of the operator of each layer that `keep` or `fix` names; None for a layer that stays.

        Args:
            layers: that can be replaced, each with all of its names.

        Raises SpecError if a name or pattern is of none of them, one has two different answers, or none is left.
        """
        found: dict[str, tuple[str, str | None]] = {}
        kept = ((f'keep: "{pattern}"', pattern, None) for pattern in self.keep)
        fixed = ((f'fix: "{pattern}": {operator}', pattern, operator) for pattern, operator in self.fix.items())
        for option, pattern, operator in (*kept, *fixed):
            matching = [layer for layer, names in layers.items() if any(fnmatchcase(name, pattern) for name in names)]
            if not matching:
                raise SpecError(
                    f"mixtures: {option}: no layer that can be replaced has this name; there are: {listed(layers)}, and "
                    f"patterns such as blocks.*.conv1.{suggestion(pattern, layers)}"
                )
            for layer in matching:
                other, before = found.setdefault(layer, (option, operator))
                if before != operator:
                    raise SpecError(f"mixtures: the layer {layer} is in {other} and in {option}; leave it out of one of them")
        if len(found) == len(layers) and all(operator is None for _, operator in found.values()):
            raise SpecError(f"mixtures: keep has all layers that can be replaced: {listed(layers)}; leave some of them out")
        return {layer: found[layer][1] for layer in layers if layer in found}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the mixtures."""
        return tuple(f"mixture_{number}" for number in range(1, self.count + 1))


# Fields of `tune` that say what is measured, or what it is compared with, and not how: records do not depend on them, but for
# `speed`, on which its own do.
WHICH_MEASUREMENTS = ("layers", "breakdown", "training", "original_compilers", "stands_for", "speed")


class DeviceChoice(Section):
    """A device on which latencies are measured, with its options. A text in place of the mapping is its name."""

    device: str
    """its name: cpu, cuda, one of several GPUs such as cuda:1, or that of a remote device"""
    optional: bool = False
    """whether its measurements are left out if it is not there when the experiment first runs; otherwise that is an error"""


class TuneSettings(Section):
    """The measurement of the network's latency: compilers, devices, limits."""

    _left_out: Mapping[str, str] = PrivateAttr(default_factory=dict)

    compilers: tuple[str, ...] = ("eager", "inductor")
    """compilers, such as eager, inductor or tvm (docs/evaluation.md lists all); [] measures nothing"""
    original_compilers: tuple[str, ...] = ()
    """compilers that only the original network is measured with, such as inductor-int8 for a baseline in 8-bit integers"""
    devices: tuple[str | DeviceChoice, ...] = ("cpu",)
    """devices: cpu, cuda, one of several GPUs such as cuda:1, or names of remote devices; {device: NAME, optional: true} is one
    that may be missing"""
    remote_devices: Mapping[str, RemoteDevice] = {}
    """devices that TVM's RPC reaches, and machines that are reached by ssh, by name"""
    stands_for: Mapping[str, str] = {}
    """names under which joined results compare devices and compilers with others', as in {cuda: A100, jetson-gpu: Jetson Orin
    Nano GPU}; several devices may be one board"""
    baselines: bool = True
    """whether the baselines are measured, too"""
    layers: bool | Literal["only"] = False
    """whether each distinct replaced layer is measured by itself, too; only: layers, but not the whole network"""
    breakdown: bool = False
    """whether it is measured where the time goes, by replaced layer and stage, before and after: on devices of this machine"""
    latency: LatencySettings = LatencySettings()
    tvm: TvmSettings = TvmSettings()
    fastest: FastestSettings = FastestSettings()
    training: bool = False
    """whether the speed of training is measured, too: on the devices of this machine, of the original and each operator"""
    speed: SpeedSettings = SpeedSettings()
    time_limit_seconds: Annotated[float, Field(gt=0)] = 600
    """limit of time for compiling, tuning and measuring one network"""
    memory_limit_mib: Annotated[float, Field(gt=0)] | None = None
    """limit of memory of the process that compiles and measures"""

    @field_validator("devices", mode="before")
    @classmethod
    def _chosen(cls, compilers: Any) -> Any:
        try:
            return [DeviceChoice(**one) if isinstance(one, Mapping) else one for one in compilers]
        except ValidationError as error:
            raise ValueError(explained(error, DeviceChoice)) from None

    @field_validator("compilers", "original_compilers")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            try:
                name_in_files(compiler_facts(name).name)
            except SynoError as error:
                raise ValueError(str(error)) from None
        return names

    @field_validator("remote_devices")
    @classmethod
    def _check_names(cls, devices: Mapping[str, RemoteDevice]) -> Mapping[str, RemoteDevice]:
        for name, device in devices.items():
            try:
                check_name(name)
                for compiler in device.compilers or () if isinstance(device, SshSettings) else ():
                    compiler_facts(compiler)
            except SynoError as error:
                raise ValueError(str(error)) from None
        return devices

    @model_validator(mode="after")
    def _places(self) -> Self:
        try:
            self.check_places()
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self

    def check_places(self) -> None:
        """Raise SpecError if there is no such device, no compiler reaches it, or one cannot take it.

        What compilers of a user's own reach is known once they have been imported.
        """
        try:
            for name in self.device_names:
                find_device(name, self.remote_devices)
        except SpecError as error:
            raise SpecError(f"devices: {error}") from None
        lost = unreached(self.device_names, self.compilers, self.remote_devices) if self.compilers else []
        if lost:
            raise SpecError(
                f"devices: {', '.join(lost)}: only the compiler tvm reaches devices at a tracker, others by ssh have a "
                f"list of compilers, and compilers are {', '.join(self.compilers)}; add one that reaches it, or leave it out"
            )
        for compiler in map(compiler_facts, self.all_compilers):
            for device in self.device_names:
                compiler.check_gpu(device)
        self._check_stands_for()

    def _check_stands_for(self) -> None:
        known = (*self.device_names, *self.all_compilers)
        if unknown := [name for name in self.stands_for if name not in known]:
            raise SpecError(
                f'stands_for: "{unknown[0]}" is neither a device nor a compiler here; there are: {", ".join(known)}'
                f".{suggestion(unknown[0], known)}"
            )
        names = [self.stands_for.get(name, name) for name in self.all_compilers]
        if twice := [name for name in names if names.count(name) > 1]:
            raise SpecError(f'stands_for: two compilers would be "{twice[0]}", and their numbers one; give each its own name')

    def device(self, name: str, compiler: str) -> RemoteDevice | None:
        """Return the remote device of this name, or None for a device of this machine.

        Raises SpecError if there is no such device, or the compiler does not reach it.
        """
        found = find_device(name, self.remote_devices)
        if not reaches(compiler, found):
            if isinstance(found, SshSettings):
                allowed = ", ".join(found.compilers or ())
                raise SpecError(f'the device "{name}" has the compilers {allowed or "[]"}, and not "{compiler}"; add it there')
            raise SpecError(
                f'what the compiler "{compiler}" makes runs on this machine only, and "{name}" is another; it takes the '
                "compiler tvm, or kind: ssh with the host"
            )
        return as_reached(compiler, found)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of all devices."""
        return tuple(one if isinstance(one, str) else one.device for one in self.devices)

    @property
    def optional_devices(self) -> tuple[str, ...]:
        """The names of the devices that may be missing."""
        return tuple(one.device for one in self.devices if isinstance(one, DeviceChoice) and one.optional)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why optional devices are left out, by their names; `syno.config.left_out` reads it from the folder of results."""
        return self._left_out

    @property
    def present_devices(self) -> tuple[str, ...]:
        """The names of the devices that are measured: all but those that are left out."""
        return tuple(name for name in self.device_names if name not in self._left_out)

    def leaving_out(self, reasons: Mapping[str, str]) -> Self:
        """Return these settings without measurements on some of the optional devices; `reasons` are by their names."""
        made = self.model_copy()
        made._left_out = dict(reasons)
        return made

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs (compiler, device) that are measured: each compiler on each device that it reaches."""
        return self._pairs(self.compilers)

    @property
    def original_pairs(self) -> tuple[tuple[str, str], ...]:
        """Further pairs (compiler, device), which only the original network is measured with."""
        return self._pairs(self.all_compilers[len(self.compilers) :])

    @property
    def all_compilers(self) -> tuple[str, ...]:
        """All compilers, those of the original network last."""
        return tuple(dict.fromkeys((*self.compilers, *self.original_compilers)))

    def _pairs(self, compilers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return tuple(
            (compiler, name)
            for name in self.present_devices
            for compiler in compilers
            if reaches(compiler, self.remote_devices.get(name))
            and (not is_here(name) or compiler_facts(compiler).compiles_for(name))
        )

    def made_for(self, name: str) -> dict[str, Any]:
        """Return the settings of a remote device that results depend on, but its address. Empty for this machine."""
        found = find_device(name, self.remote_devices)
        chosen: Any = {"kind": True, "target": True}
        if isinstance(found, SshSettings):
            chosen |= {"device": True, "tvm": {"kind", "target"}}
        return {} if found is None else found.model_dump(mode="json", include=chosen, exclude_none=True)


# Checks of the settings that end trials early.


def rounds_of(workload: WorkloadSettings | None, evaluation: str) -> int | None:
    """Return the number of reports of an evaluation, which is the epochs of its training; None if it is not known."""
    if workload is None or evaluation != "training" or workload.training.round_steps is not None:
        return None
    return workload.training.epochs


def check_stopping(study: StudySettings, workload: WorkloadSettings | None, evaluation: str) -> None:
    """Raise SpecError if the steps of `stopping` do not fit the evaluation."""
    if study.stopping is None:
        return
    keep = study.stopping.rungs(rounds_of(workload, evaluation))
    is_fitted = workload is None or evaluation != "training" or workload.training.initialization == "fit"
    if OF_FIT in keep and not is_fitted:
        raise SpecError(
            "study: stopping: keep has 0, where operators are compared by the errors of their fits, and here they begin "
            "with new weights; give training: {initialization: fit}, or leave 0 out"
        )


# The options whose defaults follow from other options of an experiment.


OF_TRAINING: Mapping[str, Any] = {"reward": {"name": RelativeReward.name}, "policy": {"name": "surrogate"}}


def following(
    evaluation: str, goal: Goal | None, reward: Mapping[str, Any], select: SelectSettings, set_options: Set[str]
) -> dict[str, Any]:
    """Return the default values of a search's options that depend on other options.

    Args:
        evaluation: its name.
        goal: the goal; None if there is none.
        reward: the reward, as it is without these defaults.
        select: the selection, likewise.
        set_options: names of the options that the experiment gives.
    """
    found = {name: default for name, default in OF_TRAINING.items() if name not in set_options and evaluation == "training"}
    is_selected = "by" not in select.model_fields_set and not select.operators and select.source is None
    if goal is None:
        if is_selected and evaluation == "cost":  # trials have no score, which a front needs
            found["select"] = select.model_copy(update={"by": "reward"})
        return found
    if "policy" not in set_options:
        found["policy"] = OF_TRAINING["policy"]
    if "reward" not in set_options or reward.get("name") in (GoalReward.name, GainReward.name):
        numbers = {"find": goal.find, "speedup": goal.speedup, "lose_at_most": goal.lose_at_most}
        own = reward if "reward" in set_options else {}
        found["reward"] = {"name": GoalReward.name, **{name: one for name, one in numbers.items() if one is not None}, **own}
    if is_selected:
        found["select"] = select.model_copy(update={"by": "goal"})
    return found
