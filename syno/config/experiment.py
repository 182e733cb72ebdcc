"""Experiments that search for operators: the settings of all stages, their defaults, and checks of combinations.

Unknown keys are errors. Paths are relative to the working directory. Reading an experiment loads neither torch nor optuna, and
imports no code that it names: values that depend on the network are computed at first use, and `use_code` imports the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from syno.base.errors import SpecError, SynoError, suggestion
from syno.base.files import check_name, lies_in
from syno.base.registry import is_path, own_paths
from syno.base.validation import explained, set_fields
from syno.config.dependencies import After, as_given, check_placed, with_operators
from syno.config.groups import OperatorChoice, Original, RelativeBudget
from syno.config.kinds import OWN, AnyExperiment, Settings
from syno.config.specs import check_names, make_spec, parts
from syno.config.stages import (
    MixtureSettings,
    RivalSettings,
    SelectSettings,
    StudySettings,
    TrainSettings,
    TuneSettings,
    check_stopping,
    following,
)
from syno.measure.compilers import compiler_facts, compiler_named
from syno.measure.tvm.targets import is_here
from syno.model.networks import INT8
from syno.search.goal import Goal
from syno.search.policies import POLICIES, PolicySettings
from syno.search.policies.presets import named_policy
from syno.search.reward import REWARDS, GainReward, GoalReward, Reward, from_settings
from syno.space.reads import AUTO
from syno.space.spec import OperatorSpec
from syno.train.metric import ACCURACY
from syno.train.settings import WorkloadSettings

if TYPE_CHECKING:
    from syno.train.workload import Workload


SHAPES = "shapes"  # the data set without pictures
COSTS = {"original_flops", "original_parameters"}  # metrics
COUNTED = ("flops", "parameters", "memory_bytes")  # metrics without training
JOURNAL = "journal"  # value of `storage`: a journal in the folder of results


def _with_name(settings: Any) -> Any:
    try:
        return named_policy(settings)
    except SynoError as error:
        raise ValueError(str(error)) from None


PolicyChoice = Annotated[Mapping[str, Any], BeforeValidator(_with_name)]


def policy_name(policy: Settings) -> str:
    """Return the name of a policy in an experiment's settings, or the path of a user's own."""
    return str(policy.get("name", "mcts"))


def policy_settings(policy: Settings) -> PolicySettings:
    """Return the validated settings of a policy. Imports a user's own policy.

    Raises SpecError for unknown names and settings.
    """
    kind = POLICIES.find(policy_name(policy)).Settings
    try:
        return kind(**{name: value for name, value in policy.items() if name != "name"})
    except ValidationError as error:
        raise SpecError(f"policy: {explained(error, kind)}") from None


def _is_stored_in(url: str, folder: Path) -> bool:
    """Return whether a storage URL is a file in a folder, or a database in memory."""
    for scheme in ("journal:", "sqlite:///"):
        if url.startswith(scheme) and "?" not in url and not url.startswith("sqlite:///file:"):
            return lies_in(Path(url.removeprefix(scheme)), folder)
    return url == "memory:" or (":" not in url and lies_in(Path(url), folder))


class Experiment(AnyExperiment):
    """A search for operators, with training and measurement of the selected operators. `Experiment.load` reads a YAML file."""

    spec: str | Settings = {}
    """a preset, a spec file, or options; with `preset`, options that override the preset's"""
    workload: WorkloadSettings | None = None
    """a network and a data set; the spec then describes the network's layers"""
    after: After | None = None
    """another experiment on the same network, which runs first: its operator is placed in the layers that it replaced"""
    relative_budget: RelativeBudget | None = None
    """bounds of the cost as fractions of the original network's; needs a workload"""
    goal: Goal | None = None
    """required speed, accuracy and size of the network, as in {speedup: 1.5, lose_at_most: 0.01}; needs a workload"""
    evaluate: str = ""
    """`cost` (counts FLOPs and parameters), `training` (of the workload), or your own as `package.module:function`"""
    original: Original | None = None
    """cost of the original model, for rewards that compare with it"""
    reward: Settings = {"name": "savings"}
    """name and settings of the reward; default for trained operators: `relative`"""
    policy: PolicyChoice = {"name": "mcts"}
    """name and settings of the policy, or only its name; default for trained operators: `surrogate`"""
    study: StudySettings = StudySettings()
    warm_start: tuple[OperatorChoice, ...] | Literal["known"] = ()
    """operators that the first trials evaluate, in this order; known: the policy starts with the results of the known operators
    among the `rivals` that are in the space, which are not trained again
    """
    select: SelectSettings = SelectSettings()
    train: TrainSettings = TrainSettings()
    rivals: RivalSettings | Literal["none"] = RivalSettings()
    """alternatives without synthesis, compared in a search with a goal: pruning, fewer channels, known layers, 8-bit integers;
    or none
    """
    mixtures: MixtureSettings | Literal["none"] = "none"
    """mixtures, in a search with a goal of speed: a different operator for each layer, as in {count: 1}; need `training:
    {initialization: fit}`
    """
    tune: TuneSettings = TuneSettings()

    @field_validator("spec", mode="before")
    @classmethod
    def _as_options(cls, options: Any) -> Any:
        return options.model_dump() if isinstance(options, OperatorSpec) else options

    @model_validator(mode="before")
    @classmethod
    def _with_settings_of_the_workload(cls, settings: Any) -> Any:
        """Merge the settings of the workload's training into `train: training`, unless that has a recipe."""
        parts = [settings.get(name) if isinstance(settings, Mapping) else None for name in ("workload", "train")]
        workload, last = (part.get("training") if isinstance(part, Mapping) else None for part in parts)
        if not isinstance(workload, Mapping) or not isinstance(last, Mapping) or "recipe" in last:
            return settings
        return {**settings, "train": {**settings["train"], "training": {**workload, **last}}}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.workload is not None and self.searches:
            self._set_defaults()
        try:
            workload = with_operators(self.after, self.workload, _workload_in)
            set_fields(self, {"workload": workload})
            check_options(self, runs=False)
        except SynoError as error:
            raise ValueError(str(error)) from None
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_given(write(self))

    def _set_defaults(self) -> None:
        """Set the options whose defaults depend on the workload."""
        if isinstance(self.spec, Mapping):
            set_fields(self, {"spec": {"reads": AUTO, **self.spec}})
        set_fields(self, following(self.evaluation, self.goal, self.reward, self.select, self.model_fields_set))

    @classmethod
    def resolved(
        cls, name: str, fields: Settings, folders: Mapping[str, Path], kinds: Mapping[str, type[AnyExperiment]]
    ) -> Settings:
        """Return the options with folders in place of experiments' names in `select` and `after`."""
        options = dict(fields)
        if isinstance(after := fields.get("after"), str):
            options["after"] = {"source": after}
        for option in ("select", "after"):
            group = options.get(option)
            source = group.get("source") if isinstance(group, Mapping) else None
            if isinstance(source, str) and source in folders:
                options[option] = {**options[option], "source": str(folders[source])}
            elif isinstance(source, str) and not Path(source).exists() and (meant := suggestion(source, folders)):
                raise SpecError(
                    f'experiment "{name}": {option}: source: neither an experiment here nor a folder is called "{source}".'
                    f"{meant}"
                )
        return options

    def use_code(self) -> Self:
        """Import the user code that the experiment names, validate the settings for it, and return the experiment."""
        super().use_code()
        if not any(own_paths(self.model_dump(mode="json"))):
            return self
        self.find_code()
        try:
            for name in (*self.tune.all_compilers, *([] if self.goal is None else [self.goal.compiler])):
                compiler_named(name)
            self.tune.check_places()
            check_options(self, runs=True)
        except SynoError as error:
            raise SpecError(f'experiment "{self.name}": {error}') from error
        return self

    @property
    def goes_first(self) -> tuple[Path, ...]:
        """Folders of results that this experiment waits for: that of its `after` experiment; () without one."""
        return () if self.after is None else (self.after.source,)

    @property
    def sources(self) -> tuple[Path, ...]:
        """Folders of results from which operators are taken: the folder of `select: source`; () without a source."""
        return () if self.select.source is None else (self.select.source,)

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons why optional devices are skipped, by their names."""
        return self.tune.left_out

    @property
    def searches(self) -> bool:
        """Whether the experiment searches. Otherwise operators are named, or taken from another experiment."""
        return self._origin is None

    @property
    def _origin(self) -> str | None:
        """The source of the operators of an experiment that does not search, in words; None if it searches."""
        if self.select.operators:
            return "takes named operators (select: operators)"
        if self.select.source is not None:
            return f"takes the operators that {self.select.source} selected (select: source)"
        return None

    @property
    def compares_latencies(self) -> bool:
        """Whether operators are selected by latency, so that a shortlist of them is measured before the selection."""
        by, tune = self.select.by, self.tune
        is_measured = self.workload is not None and tune.layers != "only" and bool(tune.pairs)
        return by == "latency" or (by == "front" and is_measured)

    @property
    def goal_pair(self) -> tuple[str, str] | None:
        """Compiler and device for the goal's speedups; None if latency does not matter."""
        return None if self.goal is None or not self.goal.measures else (self.goal.compiler, self.goal.device)

    @property
    def trains(self) -> bool:
        """Whether anything is trained, in the search or after the selection."""
        return self.workload is not None and (bool(self.train.seeds) or (self.searches and self.evaluation == "training"))

    @property
    def storage(self) -> str:
        """Storage of the trials, as a URL. Raises SpecError if the experiment has no search."""
        if (origin := self._origin) is not None:
            raise SpecError(f'experiment "{self.name}" {origin}, so it has no search and no trials; begin with `syno select`')
        if self.study.storage == JOURNAL:
            url = f"journal:{self.folder / 'trials.log'}"
        else:
            url = self.study.storage or f"sqlite:///{self.folder / 'trials.db'}"
        if self._is_received and not _is_stored_in(url, self.folder):
            raise SpecError(
                f"the experiment of {self.folder} names the storage {url}, which lies outside of that folder; others may have "
                "named it, so it is not opened: give the experiment's own file in place of the folder"
            )
        return url

    @property
    def evaluation(self) -> str:
        """Name of the evaluation of operators: `cost`, `training`, or the path of a user's own."""
        return self.evaluate or ("cost" if self.workload is None else "training")

    @property
    def baselines(self) -> dict[str, OperatorChoice]:
        """The known operators that are trained as baselines, by name."""
        return {choice.key: choice for choice in self.train.baselines}

    @property
    def rival_names(self) -> tuple[str, ...]:
        """The names of the rivals that are timed and trained in a search with a goal; () without one."""
        goal, rivals, workload = self.goal, self.rivals, self.workload
        has_rivals = goal is not None and goal.measures and workload is not None and self.searches and bool(self.train.seeds)
        if rivals == "none" or not has_rivals:
            return ()
        assert goal is not None and workload is not None
        formats = set(rivals.number_formats(goal.device))
        if self.train.int8:  # int8 is already a baseline, with the same name
            formats.discard(INT8)
        return rivals.names(goal, self.baselines, formats)

    @property
    def needs_front(self) -> bool:
        """Whether the reward compares with the front of the rivals, which is computed from their records."""
        return self.reward.get("name") == GainReward.name and not self.reward.get("front")

    @property
    def begins_with_rivals(self) -> bool:
        """Whether the rivals are trained before the search, which starts from their results."""
        return self.needs_front or self.warm_start == "known"

    @property
    def mixture_names(self) -> tuple[str, ...]:
        """The names of the mixtures that are chosen, timed and trained; () if there are none."""
        goal = self.goal
        is_asked = goal is not None and goal.measures and self.searches and bool(self.train.seeds)
        return self.mixtures.names if self.mixtures != "none" and is_asked else ()

    @property
    def number_formats(self) -> dict[str, Literal["rivals", "all"]]:
        """Number formats of lower precision in which networks are also tested; see `RivalSettings.number_formats`."""
        if self.rivals == "none" or self.goal is None or not self.rival_names:
            return {}
        return self.rivals.number_formats(self.goal.device)

    @property
    def rival_operators(self) -> dict[str, OperatorChoice]:
        """The rivals that are known operators, by name."""
        if self.rivals == "none" or self.goal is None:
            return {}
        choices = self.rivals.chosen_operators(self.goal)
        return {choice.key: choice for choice in choices if choice.key in self.rival_names}

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings on which each stage depends, as JSON, by the stage's part name."""
        return parts(self.model_dump(mode="json", include=set(Experiment.model_fields)))

    @property
    def policy_name(self) -> str:
        """The name of the policy, or the path of a user's own."""
        return policy_name(self.policy)

    @property
    def policy_settings(self) -> PolicySettings:
        """The validated settings of the policy. Imports a user's own policy. SpecError for unknown names and settings."""
        return policy_settings(self.policy)

    @property
    def has_own_reward(self) -> bool:
        """Whether the reward is a user's own code, which is only imported in runs of the experiment."""
        return is_path(str(self.reward.get("name", "")))

    def make_reward(self) -> Reward:
        """Return the reward. Imports a user's own reward. SpecError for unknown names and settings."""
        try:
            return from_settings(self.reward)
        except ValidationError as error:
            raise SpecError(f"reward: {explained(error, REWARDS.find(self.reward.get('name', 'accuracy')))}") from None

    @cached_property
    def network(self) -> Workload:
        """The network with its data, built once. Imports a user's own network. SpecError if the experiment has no workload."""
        if self.workload is None:
            raise SpecError(
                f'experiment "{self.name}" has no workload: give the network and the data set, as in '
                "workload: {model: resnet8}"
            )
        check_placed(self.name, self.after, self.workload)
        if any(own_paths(self.workload.model_dump(mode="json"))):
            self.find_code()
        from syno.train.workload import Workload  # imports torch

        return Workload.of(self.workload)

    @cached_property
    def operator_spec(self) -> OperatorSpec:
        """The spec of the searched operators. Raises SpecError if it is invalid."""
        if self.workload is None:
            return make_spec(self.spec)
        assert not isinstance(self.spec, str)  # checked above
        budget = dict(self.spec.get("budget", {}))
        if self.relative_budget is not None:
            budget = {**self.relative_budget.of(self.network.original, self.network.rest), **budget}
        return self.network.spec({**self.spec, "budget": budget})


def _workload_in(file: Path) -> WorkloadSettings | None:
    """Return the workload of the experiment in a file; None if it has none."""
    experiment = AnyExperiment.load(file)
    return experiment.workload if isinstance(experiment, Experiment) else None


OWN.append(Experiment)


def check_options(experiment: Experiment, *, runs: bool) -> None:
    """Raise SpecError for the first option that contradicts other options.

    Args:
        experiment: an experiment whose options are valid separately.
        runs: whether it is about to run, so that user code is imported and its settings are checked, too.
    """
    for name in experiment.baselines:
        check_name(name, "train: baselines: the name of an operator, or of its file without the ending,")
    if runs or not is_path(experiment.policy_name):
        experiment.policy_settings  # noqa: B018  (each raises what is wrong with it)
    else:
        POLICIES.check(experiment.policy_name)
    if experiment.has_own_reward and not runs:
        REWARDS.check(str(experiment.reward["name"]))
    reward = experiment.make_reward() if runs or not experiment.has_own_reward else None
    check_stopping(experiment.study, experiment.workload, experiment.evaluation)
    _check_goal(experiment)
    _check_selection(experiment)
    if experiment.begins_with_rivals:
        _check_begins_with_rivals(experiment)
    if experiment.mixtures != "none":
        _check_mixtures(experiment)
    if experiment.workload is not None:
        _check_with_workload(experiment, reward)
    else:
        _check_without_workload(experiment, reward)


def _check_goal(experiment: Experiment) -> None:
    """Raise SpecError if the goal contradicts other settings, or if other settings need a goal."""
    goal, reward, tune = experiment.goal, str(experiment.reward.get("name")), experiment.tune
    of_goal = (GoalReward.name, GainReward.name)
    for option, needs_it in ((f"reward: {reward}", reward in of_goal), ("select: by: goal", experiment.select.by == "goal")):
        if goal is None and needs_it:
            raise SpecError(f"{option} needs a goal: give one, as in goal: {{speedup: 1.5, lose_at_most: 0.01}}")
    if goal is None:
        return
    if not experiment.searches:
        raise SpecError("goal: it is the goal of a search, and this experiment has none; leave out select: operators or source")
    if not goal.measures:
        return
    try:
        compiler = compiler_facts(goal.compiler)
    except SynoError as error:
        raise SpecError(f"goal: compiler: {error}") from None
    if goal.screening is not None:
        try:
            compiler_facts(goal.screening)
        except SynoError as error:
            raise SpecError(f"goal: screening: {error}") from None
    try:
        tune.device(goal.device, goal.compiler)
        if is_here(goal.device):
            compiler.check_gpu(goal.device)
    except SynoError as error:
        raise SpecError(f"goal: device: {error}") from None
    if is_here(goal.device) and not compiler.compiles_for(goal.device):
        raise SpecError(f'goal: the compiler "{goal.compiler}" does not compile for {goal.device}; give another compiler')


def _check_selection(experiment: Experiment) -> None:
    """Raise SpecError if the selection contradicts other settings."""
    select, workload = experiment.select, experiment.workload
    if select.by == "latency" and (workload is None or not experiment.tune.pairs):
        lacking = "a workload" if workload is None else "compilers and devices to measure with (tune: compilers)"
        raise SpecError(f"select: by: latency needs {lacking}; give them, or select by pareto or reward")
    if select.within is None or select.source is not None:
        return
    if workload is None or experiment.evaluation != "training":
        raise SpecError(
            "select: within compares trials with the original network, so that trials must be trainings of a workload; leave "
            "it out, or give least_accuracy or most_loss"
        )
    if not experiment.train.seeds:
        raise SpecError("select: within compares trials with the trained original network; give train: seeds, or leave it out")
    training = experiment.train.training
    if training is not None and training != workload.training:
        raise SpecError(
            "select: within compares trials with the original network, which train: training would train in another way than "
            "the search trains operators; leave one of the two out, or train again in another experiment (select: source)"
        )


def _check_begins_with_rivals(experiment: Experiment) -> None:
    """Raise SpecError if the search should start with rivals, but no rival is trained with the search's recipe."""
    option = f"reward: {GainReward.name}" if experiment.needs_front else "warm_start: known"
    if experiment.evaluation != "training" or not experiment.rival_names:
        raise SpecError(
            f"{option} compares trials with rivals, and there are none: give a goal with speedup, rivals, train: seeds and "
            "trials that are trained, or leave it out"
        )
    training = experiment.train.training
    if training is not None and experiment.workload is not None and training != experiment.workload.training:
        raise SpecError(
            f"{option} compares trials with rivals, which train: training would train in another way than the search "
            "trains operators; leave one of the two out"
        )


def _check_mixtures(experiment: Experiment) -> None:
    """Raise SpecError if mixtures have no trained original to start from, or no goal of speed."""
    workload = experiment.workload
    training = None if workload is None else experiment.train.training or workload.training
    if training is None or training.initialization != "fit":
        raise SpecError(
            "mixtures: operators of several kinds begin in the trained original; give workload: {training: "
            "{initialization: fit}}, or mixtures: none"
        )
    if not experiment.mixture_names:
        raise SpecError(
            "mixtures: they are chosen for a speed, from what a search found; give a goal with speedup, a search, and "
            "train: seeds, or mixtures: none"
        )


def _check_with_workload(experiment: Experiment, reward: Reward | None) -> None:
    """Raise SpecError if the spec, the data or the reward (None for user code) contradicts the workload."""
    workload, goal, spec = experiment.workload, experiment.goal, experiment.spec
    assert workload is not None
    if isinstance(spec, str) or "preset" in spec:
        raise SpecError(
            "spec: its layers are those of the workload; give a mapping of the options that differ, or leave it out"
        )
    check_names(spec)
    if workload.data == SHAPES and experiment.trains:
        raise SpecError(
            'workload: data: "shapes" has no pictures to train on, only their shape; give select: source or operators, and '
            "train: {seeds: []}, to measure latencies, or another data set"
        )
    # The score of a user's own task may have another unit.
    if goal is not None and not is_path(workload.data):
        goal.check_loss(ACCURACY)
    if experiment.searches and experiment.evaluation == "training" and workload.training.processes > 1:
        raise SpecError(
            "workload: training: processes is for one network on several GPUs, and a search trains a network on each "
            "GPU (study: workers); leave it out, or give it in train: training"
        )
    if experiment.searches and experiment.evaluation == "cost" and goal is None and reward is not None:
        _check_counts(reward)


def _check_counts(reward: Reward) -> None:
    """Raise SpecError if a reward needs more metrics than the costs that are counted without training."""
    counted = dict.fromkeys((*COUNTED, *COSTS), 1.0)
    if missing := [name for name in reward.needed(counted) if name not in counted]:
        raise SpecError(
            f'evaluate: cost measures {", ".join(counted)}, and the reward "{reward.name}" needs {", ".join(missing)}: give '
            "another reward, such as reward: {name: savings}, or evaluate: training"
        )


def _check_without_workload(experiment: Experiment, reward: Reward | None) -> None:
    """Raise SpecError if an experiment without a workload lacks a spec, or has an option that needs a workload."""
    give = "give the network and the data set, as in workload: {model: resnet8}"
    if not experiment.searches:
        option = "source" if experiment.select.source is not None else "operators"
        raise SpecError(f"select: {option} needs a workload: {give}")
    if not experiment.spec:
        raise SpecError("spec: is missing; give a preset's name, a spec file or its options, or a workload")
    needing = {
        "evaluate: training": experiment.evaluation == "training",
        "relative_budget": experiment.relative_budget,
        "goal": experiment.goal,
    }
    for option, value in needing.items():
        if value:
            raise SpecError(f"{option} needs a workload: {give}")
    experiment.operator_spec  # noqa: B018
    compares = reward is not None and not COSTS.isdisjoint(reward.needs)
    if compares and experiment.evaluation == "cost" and experiment.original is None:
        raise SpecError(
            f'the reward "{experiment.reward["name"]}" compares with the original model: give its cost, as in '
            "original: {flops: 2.3e+11, parameters: 1.1e+7}"
        )
