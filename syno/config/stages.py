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
    """The study: storage, number of trials, and workers."""

    storage: str | None = None
    """database URL or journal file; null: `trials.db` in the folder of results; `journal`: `trials.log` there"""
    seed: int = 0
    """seed of the policy's random numbers"""
    n_trials: Annotated[int, Field(ge=0)] = 100
    """number of trials of the study, by all workers and all runs together"""
    workers: Annotated[int, Field(ge=1)] = 1
    """number of workers: jobs of the workflow that share the study; with one worker, runs are reproducible"""
    stopping: HalvingSettings | None = None
    """early stopping of resumable trials, as in {keep: auto} or {keep: {1: 0.5, 2: 0.3}}"""
    most_attempts: Annotated[int, Field(ge=1)] = 3
    """number of workers that die during an operator's evaluation after which its trial counts as failed"""
    heartbeat_seconds: Annotated[float, Field(ge=0.1)] = 60
    """interval at which a worker renews the lease on its trial, in seconds"""
    grace_seconds: Annotated[float, Field(gt=0)] = 180
    """time without renewal after which another worker takes over the trial, in seconds; at least twice `heartbeat_seconds`"""
    check_gradients: bool = True
    """whether an operator fails without training if, on the first batch, the gradient of a weight is zero or not finite"""

    @model_validator(mode="before")
    @classmethod
    def _without_pruner(cls, given: Any) -> Any:
        """Remove `pruner: null`, which files beside older results contain."""
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
    """The selection of operators for the final training and measurement."""

    by: Literal["pareto", "front", "reward", "latency", "goal"] = "pareto"
    """pareto: operators on the Pareto front of accuracy or loss against FLOPs first; front: only operators on the Pareto front
    against latency on a device, or against FLOPs if no latency is measured; reward: the highest rewards; latency: the fastest
    on each device; goal: operators that meet the goal first, then the nearest. Default: goal if the experiment has a `goal`,
    reward if the operators of a workload are only counted
    """
    count: Annotated[int, Field(ge=1)] = 3
    """largest number of selected operators"""
    least_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """least accuracy of a selected operator in the search"""
    most_loss: Annotated[float, Field(gt=0)] | None = None
    """largest loss of a selected operator in the search, in nats per token, for networks for text"""
    source: Path | None = None
    """instead of a search: another experiment whose operators are used, by its name in this file or its folder of results"""
    within: Annotated[float, Field(ge=0)] | None = None
    """allowed loss of an operator's score against the original network's, in the search or in the source"""
    shortlist: Annotated[int, Field(ge=1)] = 10
    """for latency or front: number of operators, the best by reward or score, whose latency is measured before the selection"""
    operators: tuple[OperatorChoice, ...] = ()
    """instead of a search: these operators, independent of `count`; each by name, file or folder, with `rename` if necessary"""

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
    """seeds, with one training for each; they must differ from the search's seed, by which operators were selected; [] trains
    nothing
    """
    baselines: tuple[OperatorChoice, ...] = ()
    """known operators that are trained as well; also nas_pte_1 to nas_pte_3, which are PyTorch modules, or your own as
    `package.module:name`
    """
    training: TrainingSettings | None = None
    """settings of training that override the workload's; with a recipe, all settings are the recipe's and these"""
    weights: Literal["all", "operators", "none"] = "all"
    """networks whose trained weights are stored beside their records: all, only those with operators of the search, or none"""
    int8: bool = False
    """whether the trained original network is also tested with post-training quantization to 8-bit integers: the baseline
    `int8`
    """

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{list(seeds)} has a seed twice; each is one training")
        return seeds


DIVIDED = ("grouped", "low_rank")  # known layers whose costs are divided by a number
AUTO_SHARES = (
    1.0,
    0.75,
)  # factors of the share of channels that would give the goal's speedup if time were proportional to FLOPs
MOST_AUTO_SHARE = 0.9  # a larger share is hardly faster
AUTO_SPEEDUP = 2.0  # if the goal has no speedup
MOST_NAMES = 20  # of layers in a message


class RivalSettings(Section):
    """Rivals: alternatives without synthesis, which are trained and measured beside the operators of a search with a goal.

    Each has the recipe, the seeds, the compiler and the device of the operators.
    """

    shares: tuple[Annotated[float, Field(gt=0, lt=1)], ...] | Literal["auto"] = "auto"
    """shares of channels that narrower networks keep; auto: two around the share that would give the goal's speedup"""
    pruning: bool = True
    """whether to prune channels of the trained original (structured pruning) and train it again"""
    narrowing: bool = True
    """whether to train networks with equally few channels from newly initialized weights"""
    operators: tuple[OperatorChoice, ...] | Literal["auto"] = "auto"
    """known efficient layers that replace the network's, as in [separable, grouped_4]; auto: separable layers, grouped and
    low-rank layers with the number of groups or the rank that would give the goal's speedup, and shifts. A layer that does not
    fit becomes a row with the reason
    """
    int8: bool | Literal["all"] = True
    """whether to quantize the original, the pruned networks and mixtures to 8-bit integers: on a CPU, by TorchInductor; all:
    also networks with selected operators, which takes minutes to compile
    """
    bfloat16: bool | Literal["auto"] = "auto"
    """whether to compute the original, all trained rivals and networks with selected operators in bfloat16 as well, by
    TorchInductor; auto: on a GPU, since most CPUs have no instructions for it
    """
    learning_rate: Annotated[float, Field(gt=0)] = 0.5
    """factor on the learning rate in the training after pruning, which starts from trained weights"""

    def number_formats(self, device: str) -> dict[str, Literal["rivals", "all"]]:
        """Return the number formats of lower precision, each with the networks that are tested in it.

        "rivals": the original, pruned networks and mixtures. "all": also networks with selected operators.
        """
        formats: dict[str, Literal["rivals", "all"]] = {}
        if self.int8 and device == "cpu":  # TorchInductor's int8 kernels are for x86, which the settings cannot tell
            formats["int8"] = "all" if self.int8 == "all" else "rivals"
        if self.bfloat16 is True or (self.bfloat16 == "auto" and device.startswith("cuda")):
            formats["bfloat16"] = "all"
        return formats

    def names(self, goal: Goal, others: Collection[str], formats: Collection[str]) -> tuple[str, ...]:
        """Return the names of the rivals.

        Args:
            goal: the experiment's goal.
            others: names of the experiment's baselines, which are trained in any case.
            formats: number formats of lower precision in which the original is a rival.
        """
        kinds: tuple[tuple[Kind, bool], ...] = (("pruned", self.pruning), ("narrow", self.narrowing))
        shares = self.chosen_shares(goal)
        narrower = [NarrowerNetwork(kind, share).name for share in shares for kind, is_asked in kinds if is_asked]
        known = [choice.key for choice in self.chosen_operators(goal)]
        names = [*narrower, *known, *(name for name in NUMBER_FORMATS if name in formats)]
        return tuple(name for name in dict.fromkeys(names) if name not in others)

    def chosen_shares(self, goal: Goal) -> tuple[float, ...]:
        """Return the shares of channels that narrower networks keep."""
        if self.shares != "auto":
            return self.shares
        around = (goal.speedup or AUTO_SPEEDUP) ** -0.5
        return tuple(share for factor in AUTO_SHARES if (share := round(factor * around, 2)) <= MOST_AUTO_SHARE)

    def chosen_operators(self, goal: Goal) -> tuple[OperatorChoice, ...]:
        """Return the known layers among the rivals. Automatic numbers of groups are powers of two, which divide most
        channels.
        """
        if self.operators != "auto":
            return self.operators
        divisor = 2 ** max(1, ceil(log2(goal.speedup or AUTO_SPEEDUP)))
        names = ("separable", *(f"{kind}_{divisor}" for kind in DIVIDED), "shift_conv1x1")
        return tuple(OperatorChoice(operator=name) for name in names)


def listed(layers: Collection[str]) -> str:
    """Return names of layers as text, truncated if there are many."""
    more = f" and {len(layers) - MOST_NAMES} more" if len(layers) > MOST_NAMES else ""
    return f"{', '.join([*layers][:MOST_NAMES])}{more}"


class MixtureSettings(Section):
    """Mixtures: a different operator for each layer, chosen by integer programming from the operators' savings and losses.

    They start from the trained original or a pruned network, and are trained and timed like the operators.
    """

    count: Annotated[int, Field(ge=1)] = 1
    """number of mixtures that are trained and timed"""
    operators: Annotated[int, Field(ge=1)] = 3
    """number of selected operators, the best first, that are tried in each layer, besides the known layers of `rivals`"""
    pruned: bool = True
    """whether operators are also tried in the pruned networks of `rivals`, and pruned single layers with the same share of
    channels in the original
    """
    margins: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (1.03, 1.3)
    """speeds for which mixtures are chosen, as factors of the goal's speedup; with `find: fastest`, higher speeds follow"""
    keep: tuple[str, ...] = ()
    """layers that keep their original operator in all mixtures, by names or patterns, as in [blocks.0.*]"""
    fix: Mapping[str, str] = {}
    """layers with a fixed operator in all mixtures, by names or patterns, as in {blocks.2.conv2: separable_conv2d}; it is a
    known layer, or a selected operator by its name
    """

    def by_hand(self, layers: Mapping[str, Collection[str]]) -> dict[str, str | None]:
        """Return the operator's name for each layer that `keep` or `fix` names; None for a kept layer.

        Args:
            layers: the replaceable layers, each with all of its names.

        Raises SpecError if a name or pattern matches no layer, if a layer has two different operators, or if all layers are
        kept.
        """
        operators: dict[str, tuple[str, str | None]] = {}
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
                other, before = operators.setdefault(layer, (option, operator))
                if before != operator:
                    raise SpecError(f"mixtures: the layer {layer} is in {other} and in {option}; leave it out of one of them")
        if len(operators) == len(layers) and all(operator is None for _, operator in operators.values()):
            raise SpecError(f"mixtures: keep has all layers that can be replaced: {listed(layers)}; leave some of them out")
        return {layer: operators[layer][1] for layer in layers if layer in operators}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the mixtures."""
        return tuple(f"mixture_{number}" for number in range(1, self.count + 1))


# Fields of `tune` that select measurements or comparisons, but do not change how one is measured: records do not depend on
# them, except those of `speed`.
WHICH_MEASUREMENTS = ("layers", "breakdown", "training", "original_compilers", "stands_for", "speed")


class DeviceChoice(Section):
    """A device on which latencies are measured, with its options. Plain text stands for its name."""

    device: str
    """name of the device: cpu, cuda, one of several GPUs such as cuda:1, or the name of a remote device"""
    optional: bool = False
    """whether to skip the device's measurements if it is missing when the experiment first runs; otherwise that is an error"""


class TuneSettings(Section):
    """The measurement of the network's latency: compilers, devices, limits."""

    _left_out: Mapping[str, str] = PrivateAttr(default_factory=dict)

    compilers: tuple[str, ...] = ("eager", "inductor")
    """compilers, such as eager, inductor or tvm (docs/evaluation.md lists all); [] measures nothing"""
    original_compilers: tuple[str, ...] = ()
    """compilers that only measure the original network, such as inductor-int8 for a baseline in 8-bit integers"""
    devices: tuple[str | DeviceChoice, ...] = ("cpu",)
    """devices: cpu, cuda, one of several GPUs such as cuda:1, or names of remote devices; {device: NAME, optional: true} may be
    missing
    """
    remote_devices: Mapping[str, RemoteDevice] = {}
    """remote devices by name: reached by TVM's RPC, or machines reached by ssh"""
    stands_for: Mapping[str, str] = {}
    """names under which joined results compare devices and compilers with published results, as in {cuda: A100, jetson-gpu:
    Jetson Orin Nano GPU}; several devices may share a board
    """
    baselines: bool = True
    """whether the baselines are measured as well"""
    layers: bool | Literal["only"] = False
    """whether each distinct replaced layer is also measured separately; only: layers, but not the whole network"""
    breakdown: bool = False
    """whether to measure the breakdown of time by replaced layer and stage, before and after replacement, on devices of this
    machine
    """
    latency: LatencySettings = LatencySettings()
    tvm: TvmSettings = TvmSettings()
    # Absent at its default, so that checksums of older results stay.
    fastest: FastestSettings = Field(default=FastestSettings(), exclude_if=FastestSettings().__eq__)
    training: bool = False
    """whether to measure the training speed of the original and each operator, on devices of this machine"""
    speed: SpeedSettings = SpeedSettings()
    time_limit_seconds: Annotated[float, Field(gt=0)] = 600
    """time limit for compiling, tuning and measuring one network, in seconds"""
    memory_limit_mib: Annotated[float, Field(gt=0)] | None = None
    """memory limit of the process that compiles and measures, in MiB"""

    @field_validator("devices", mode="before")
    @classmethod
    def _chosen(cls, compilers: Any) -> Any:
        try:
            return [DeviceChoice(**choice) if isinstance(choice, Mapping) else choice for choice in compilers]
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
        """Raise SpecError if a device does not exist, no compiler reaches it, or a compiler does not support it.

        The devices that users' own compilers reach are only known once these are imported.
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
        remote = find_device(name, self.remote_devices)
        if not reaches(compiler, remote):
            if isinstance(remote, SshSettings):
                allowed = ", ".join(remote.compilers or ())
                raise SpecError(f'the device "{name}" has the compilers {allowed or "[]"}, and not "{compiler}"; add it there')
            raise SpecError(
                f'what the compiler "{compiler}" makes runs on this machine only, and "{name}" is another; it takes the '
                "compiler tvm, or kind: ssh with the host"
            )
        return as_reached(compiler, remote)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of all devices, including optional ones."""
        return tuple(choice if isinstance(choice, str) else choice.device for choice in self.devices)

    @property
    def optional_devices(self) -> tuple[str, ...]:
        """Names of the devices that may be missing when the experiment first runs."""
        return tuple(choice.device for choice in self.devices if isinstance(choice, DeviceChoice) and choice.optional)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons why optional devices are skipped, by their names; `syno.config.left_out` reads them from the folder of
        results.
        """
        return self._left_out

    @property
    def present_devices(self) -> tuple[str, ...]:
        """Names of the devices on which latencies are measured: all except the skipped ones."""
        return tuple(name for name in self.device_names if name not in self._left_out)

    def leaving_out(self, reasons: Mapping[str, str]) -> Self:
        """Return these settings without measurements on the optional devices in `reasons`, which maps names to reasons."""
        made = self.model_copy()
        made._left_out = dict(reasons)
        return made

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(compiler, device) pairs that are measured: each compiler on each device that it reaches."""
        return self._pairs(self.compilers)

    @property
    def original_pairs(self) -> tuple[tuple[str, str], ...]:
        """Further (compiler, device) pairs, with which only the original network is measured."""
        return self._pairs(self.all_compilers[len(self.compilers) :])

    @property
    def all_compilers(self) -> tuple[str, ...]:
        """All compilers; compilers that only measure the original network come last."""
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
        """Return the settings of a remote device that affect results, without its address; {} for this machine."""
        remote = find_device(name, self.remote_devices)
        chosen: Any = {"kind": True, "target": True}
        if isinstance(remote, SshSettings):
            chosen |= {"device": True, "tvm": {"kind", "target"}}
        return {} if remote is None else remote.model_dump(mode="json", include=chosen, exclude_none=True)


# Checks of the settings that end trials early.


def rounds_of(workload: WorkloadSettings | None, evaluation: str) -> int | None:
    """Return the number of reports of an evaluation, which is its number of epochs; None if unknown."""
    if workload is None or evaluation != "training" or workload.training.round_steps is not None:
        return None
    return workload.training.epochs


def check_stopping(study: StudySettings, workload: WorkloadSettings | None, evaluation: str) -> None:
    """Raise SpecError if the rungs of `stopping` do not fit the evaluation."""
    if study.stopping is None:
        return
    keep = study.stopping.rungs(rounds_of(workload, evaluation))
    is_fitted = workload is None or evaluation != "training" or workload.training.initialization == "fit"
    if OF_FIT in keep and not is_fitted:
        raise SpecError(
            "study: stopping: keep has 0, where operators are compared by the errors of their fits, and here they begin "
            "with new weights; give training: {initialization: fit}, or leave 0 out"
        )


# Options whose defaults depend on other options of an experiment.


OF_TRAINING: Mapping[str, Any] = {"reward": {"name": RelativeReward.name}, "policy": {"name": "surrogate"}}


def following(
    evaluation: str, goal: Goal | None, reward: Mapping[str, Any], select: SelectSettings, set_options: Set[str]
) -> dict[str, Any]:
    """Return default values of a search's options that depend on other options.

    Args:
        evaluation: name of the evaluation.
        goal: the goal; None if there is none.
        reward: the reward's settings without these defaults.
        select: the selection's settings without these defaults.
        set_options: names of the options that the experiment sets itself.
    """
    defaults = {name: default for name, default in OF_TRAINING.items() if name not in set_options and evaluation == "training"}
    is_selected = "by" not in select.model_fields_set and not select.operators and select.source is None
    if goal is None:
        if is_selected and evaluation == "cost":  # a front needs scores, which these trials do not have
            defaults["select"] = select.model_copy(update={"by": "reward"})
        return defaults
    if "policy" not in set_options:
        defaults["policy"] = OF_TRAINING["policy"]
    if "reward" not in set_options or reward.get("name") in (GoalReward.name, GainReward.name):
        numbers = {"find": goal.find, "speedup": goal.speedup, "lose_at_most": goal.lose_at_most}
        own = reward if "reward" in set_options else {}
        defaults["reward"] = {
            "name": GoalReward.name,
            **{name: number for name, number in numbers.items() if number is not None},
            **own,
        }
    if is_selected:
        defaults["select"] = select.model_copy(update={"by": "goal"})
    return defaults
