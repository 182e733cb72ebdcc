"""An experiment: all settings of its stages, with their defaults, as a YAML file gives them.

Unknown keys are errors. Paths are relative to the folder where the command runs. Reading an experiment loads neither torch nor
optuna, and imports no code that it names: what follows from the network is computed on first use, and `use_code` imports.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from syno.base.errors import SpecError, SynoError
from syno.base.files import check_folder, check_name, lies_in
from syno.base.identity import version_of_code
from syno.base.registry import is_path, own_paths, search_code_in
from syno.base.validation import explained, read_mapping, set_fields
from syno.config.ablations import Ablations
from syno.config.dependencies import ALL, After, as_given, check_placed, with_operators
from syno.config.groups import OperatorChoice, Original, RelativeBudget, Section
from syno.config.kept_file import completed
from syno.config.specs import Part, check_names, make_spec, parts
from syno.config.stages import (
    JoinSettings,
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


# The policy of an experiment: a name, or a mapping with its settings.


def _with_name(settings: Any) -> Any:
    try:
        return named_policy(settings)
    except SynoError as error:
        raise ValueError(str(error)) from None


PolicyChoice = Annotated[Mapping[str, Any], BeforeValidator(_with_name)]


def policy_of(settings: Mapping[str, Any]) -> str:
    """Return the name of a policy, or the path of a user's own, in an experiment's settings."""
    return str(settings.get("name", "mcts"))


def policy_settings(settings: Mapping[str, Any]) -> PolicySettings:
    """Return the settings of a policy with this name and these settings. Imports a user's own.

    Raises SpecError for unknown names and settings.
    """
    rest = dict(settings)
    rest.pop("name", None)
    kind = POLICIES.find(policy_of(settings)).Settings
    try:
        return kind(**rest)
    except ValidationError as error:
        raise SpecError(f"policy: {explained(error, kind)}") from None


# The check of `select`: which selections the other settings of an experiment allow.


def check_selection(
    select: SelectSettings, train: TrainSettings, tune: TuneSettings, workload: WorkloadSettings | None, evaluation: str
) -> None:
    """Raise SpecError if the other settings of an experiment do not allow its selection."""
    if select.by == "latency" and (workload is None or not tune.pairs):
        lacking = "a workload" if workload is None else "compilers and devices to measure with (tune: compilers)"
        raise SpecError(f"select: by: latency needs {lacking}; give them, or select by pareto or reward")
    if select.within is None or select.source is not None:
        return
    if workload is None or evaluation != "training":
        raise SpecError(
            "select: within compares trials with the original network, so that trials must be trainings of a workload; leave "
            "it out, or give least_accuracy or most_loss"
        )
    if not train.seeds:
        raise SpecError("select: within compares trials with the trained original network; give train: seeds, or leave it out")
    training = train.training
    if training is not None and training != workload.training:
        raise SpecError(
            "select: within compares trials with the original network, which train: training would train in another way than "
            "the search trains operators; leave one of the two out, or train again in another experiment (select: source)"
        )


# The check of `goal`: which goals the other settings of an experiment allow.


def check_goal(goal: Goal | None, reward: str, select: SelectSettings, tune: TuneSettings, *, searches: bool) -> None:
    """Raise SpecError if the other settings of an experiment do not allow its goal, or need one.

    Args:
        goal: the goal; None if there is none.
        reward: name of the reward.
        select, tune: settings of these stages.
        searches: whether the experiment has a search.
    """
    of_goal = (GoalReward.name, GainReward.name)
    for option, needs_it in ((f"reward: {reward}", reward in of_goal), ("select: by: goal", select.by == "goal")):
        if goal is None and needs_it:
            raise SpecError(f"{option} needs a goal: give one, as in goal: {{speedup: 1.5, lose_at_most: 0.01}}")
    if goal is None:
        return
    if not searches:
        raise SpecError("goal: it is the goal of a search, and this experiment has none; leave out select: operators or source")
    if not goal.measures:
        return
    try:
        compiler = compiler_facts(goal.compiler)
    except SynoError as error:
        raise SpecError(f"goal: compiler: {error}") from None
    try:
        tune.device(goal.device, goal.compiler)
        if is_here(goal.device):
            compiler.check_gpu(goal.device)
    except SynoError as error:
        raise SpecError(f"goal: device: {error}") from None
    if is_here(goal.device) and not compiler.compiles_for(goal.device):
        raise SpecError(f'goal: the compiler "{goal.compiler}" does not compile for {goal.device}; give another compiler')


# The kinds of experiments: which have a search, which train, and which only hold the data or the results of others.


SHAPES = "shapes"  # the data set without pictures
COSTS = {"original_flops", "original_parameters"}  # metrics
COUNTED = ("flops", "parameters", "memory_bytes")  # without a training


def check_compares_with_nothing(reward: Reward) -> None:
    """Raise SpecError if a reward needs the cost of the original model, which is not known."""
    if not COSTS.isdisjoint(reward.needs):
        raise SpecError(
            f'the reward "{reward.name}" compares with the original model: give its cost, as in '
            "original: {flops: 2.3e+11, parameters: 1.1e+7}"
        )


def check_counts(reward: Reward) -> None:
    """Raise SpecError if a reward needs more than the costs that are counted without a training."""
    counted = dict.fromkeys((*COUNTED, *COSTS), 1.0)
    if missing := [name for name in reward.needed(counted) if name not in counted]:
        raise SpecError(
            f'evaluate: cost measures {", ".join(counted)}, and the reward "{reward.name}" needs {", ".join(missing)}: give '
            "another reward, such as reward: {name: savings}, or evaluate: training"
        )


def check_has_data(data: str, trains: bool) -> None:
    """Raise SpecError if an experiment trains on the data set that has only shapes."""
    if data == SHAPES and trains:
        raise SpecError(
            'workload: data: "shapes" has no pictures to train on, only their shape; give select: source or operators, and '
            "train: {seeds: []}, to measure latencies, or another data set"
        )


def check_without_workload(searches: bool, select: SelectSettings, spec: object, needing: Mapping[str, object]) -> None:
    """Raise SpecError if an experiment without a workload lacks a spec, or has something that needs a workload.

    Args:
        searches: whether it has a search.
        select: its selection.
        spec: its spec, as it is given.
        needing: what needs a workload, by the name of the option; what is not given is false.
    """
    give = "give the network and the data set, as in workload: {model: resnet8}"
    if not searches:
        option = "source" if select.source is not None else "operators"
        raise SpecError(f"select: {option} needs a workload: {give}")
    if not spec:
        raise SpecError("spec: is missing; give a preset's name, a spec file or its options, or a workload")
    for name, given in needing.items():
        if given:
            raise SpecError(f"{name} needs a workload: {give}")


Settings = Mapping[str, Any]
RESULTS = Path("results")
WRITTEN = ("tables", "figures", "operators")  # folders of results into which commands write that only read the rest
JOURNAL = "journal"  # in place of a storage: one in the folder of results
OF_ANY = ("name", "output", "code")  # options of every experiment
OF_OTHERS = {"published data": (*OF_ANY, "artifact", "ablations"), "joined results": (*OF_ANY, "join")}  # all that these have


def _is_stored_in(url: str, folder: Path) -> bool:
    """Return whether a storage URL names a file in a folder, or a database in memory."""
    for scheme in ("journal:", "sqlite:///"):
        if url.startswith(scheme) and "?" not in url and not url.startswith("sqlite:///file:"):
            return lies_in(Path(url.removeprefix(scheme)), folder)
    return url == "memory:" or (":" not in url and lies_in(Path(url), folder))


class Experiment(Section):
    """A search for operators and what is done with them. `Experiment.load` reads it from a YAML file."""

    name: str
    """name of the study and of the folder of results"""
    spec: str | Settings = {}
    """a preset, a spec file, or options; with `preset`, options that differ from it"""
    workload: WorkloadSettings | None = None
    """a network and a data set; the spec is then that of the network's layers"""
    after: After | None = None
    """another experiment on the same network, which goes first: its operator is in the layers that it replaced already"""
    artifact: Path | None = None
    """the data that the paper's authors published, to take operators from and to draw its figures; without any other option"""
    join: JoinSettings | None = None
    """other experiments, whose results are put together and end in the paper's figures; without any other option"""
    relative_budget: RelativeBudget | None = None
    """bounds of the cost as fractions of the original network's; needs a workload"""
    goal: Goal | None = None
    """how fast, accurate and small the network must be, as in {speedup: 1.5, lose_at_most: 0.01}; needs a workload"""
    evaluate: str = ""
    """`cost` (counts FLOPs and parameters), `training` (of the workload), or your own as `package.module:function`"""
    original: Original | None = None
    """cost of the original model, for rewards that compare with it"""
    reward: Settings = {"name": "savings"}
    """name and settings of the reward; where the search trains operators, `relative` is the default"""
    policy: PolicyChoice = {"name": "mcts"}
    """name and settings of the policy, or its name alone; where the search trains operators, `surrogate` is the default"""
    study: StudySettings = StudySettings()
    warm_start: tuple[OperatorChoice, ...] | Literal["known"] = ()
    """operators that the first trials evaluate, in this order; known: the policy begins with the results of those known
    operators among the `rivals` that are in the space, which are not trained again"""
    select: SelectSettings = SelectSettings()
    train: TrainSettings = TrainSettings()
    rivals: RivalSettings | Literal["none"] = RivalSettings()
    """beside a goal, what a user would do without synthesis: pruning, fewer channels, known layers, 8-bit integers; or none"""
    mixtures: MixtureSettings | Literal["none"] = "none"
    """beside a goal of speed, an operator of its own for each layer: {count: 1}; needs `training: {initialization: fit}`"""
    tune: TuneSettings = TuneSettings()
    ablations: Ablations = Ablations()
    output: Path | None = None
    """folder of the results; by default results/NAME"""
    code: Path | None = None
    """folder of your own modules; by default that of this file, if it has the modules that the file names"""
    _is_received: bool = PrivateAttr(default=False)  # whether whoever made the folder of results wrote it, as far as is known

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(f'experiment "{fields.get("name", "")}": {explained(error, type(self))}') from None

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a YAML file. Raises SpecError, which says what is wrong and what is allowed."""
        return cls(**{"name": file.stem, **completed(read_mapping(file, "an experiment", cls), file)})

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        return check_name(name, "an experiment's name")

    @field_validator("output")
    @classmethod
    def _is_a_folder(cls, folder: Path | None) -> Path | None:
        return None if folder is None else check_folder(folder, "the folder of results")

    @field_validator("spec", mode="before")
    @classmethod
    def _as_options(cls, options: Any) -> Any:
        return options.model_dump() if isinstance(options, OperatorSpec) else options

    @model_validator(mode="before")
    @classmethod
    def _with_settings_of_the_workload(cls, settings: Any) -> Any:
        """Return the settings; `train: training` has those of the workload's training, too, unless it has a recipe."""
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
            workload = with_operators(self.after, self.workload, lambda file: type(self).load(file).workload)
            set_fields(self, {"workload": workload})
            self._check()
        except SynoError as error:
            raise ValueError(str(error)) from None
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return as_given(write(self))

    def _set_defaults(self) -> None:
        """Set the options whose defaults follow from the workload."""
        if isinstance(self.spec, Mapping):
            set_fields(self, {"spec": {"reads": AUTO, **self.spec}})
        set_fields(self, following(self.evaluation, self.goal, self.reward, self.select, self.model_fields_set))

    def _check(self, *, runs: bool = False) -> None:
        """Raise SpecError if settings are wrong; those of own code, which is imported for it, only if the experiment `runs`."""
        if self.only_holds is not None:
            self._check_alone(OF_OTHERS[self.only_holds])
            return
        for name in self.baselines:
            check_name(name, "train: baselines: the name of an operator, or of its file without the ending,")
        if runs or not is_path(policy_of(self.policy)):
            self.policy_settings  # noqa: B018  (each raises what is wrong with it)
        else:
            POLICIES.check(policy_of(self.policy))
        if self.has_own_reward and not runs:
            REWARDS.check(str(self.reward["name"]))
        reward = self.make_reward() if runs or not self.has_own_reward else None
        check_stopping(self.study, self.workload, self.evaluation)
        check_goal(self.goal, str(self.reward.get("name")), self.select, self.tune, searches=self.searches)
        check_selection(self.select, self.train, self.tune, self.workload, self.evaluation)
        if self.begins_with_rivals:
            self._check_begins_with_rivals()
        if self.mixtures != "none":
            self._check_mixtures()
        if self.workload is not None:
            if isinstance(self.spec, str) or "preset" in self.spec:
                raise SpecError(
                    "spec: its layers are those of the workload; give a mapping of the options that differ, or leave it out"
                )
            check_names(self.spec)
            check_has_data(self.workload.data, self.trains)
            # The score of a task of one's own may have another unit.
            if self.goal is not None and not is_path(self.workload.data):
                self.goal.check_loss(ACCURACY)
            if self.searches and self.evaluation == "training" and self.workload.training.processes > 1:
                raise SpecError(
                    "workload: training: processes is for one network on several GPUs, and a search trains a network on each "
                    "GPU (study: workers); leave it out, or give it in train: training"
                )
            if self.searches and self.evaluation == "cost" and self.goal is None and reward is not None:
                check_counts(reward)
            return
        needing = {"evaluate: training": self.evaluation == "training", "relative_budget": self.relative_budget}
        check_without_workload(self.searches, self.select, self.spec, {**needing, "goal": self.goal})
        self.operator_spec  # noqa: B018
        if self.evaluation == "cost" and self.original is None and reward is not None:
            check_compares_with_nothing(reward)

    def _check_begins_with_rivals(self) -> None:
        """Raise SpecError if no rival is trained with the recipe of the search, so that it could begin with them."""
        option = f"reward: {GainReward.name}" if self.needs_front else "warm_start: known"
        if self.evaluation != "training" or not self.rival_names:
            raise SpecError(
                f"{option} compares trials with rivals, and there are none: give a goal with speedup, rivals, train: seeds and "
                "trials that are trained, or leave it out"
            )
        training = self.train.training
        if training is not None and self.workload is not None and training != self.workload.training:
            raise SpecError(
                f"{option} compares trials with rivals, which train: training would train in another way than the search "
                "trains operators; leave one of the two out"
            )

    def _check_mixtures(self) -> None:
        """Raise SpecError if there is nothing that mixtures begin with or aim at."""
        training = None if self.workload is None else self.train.training or self.workload.training
        if training is None or training.initialization != "fit":
            raise SpecError(
                "mixtures: operators of several kinds begin in the trained original; give workload: {training: "
                "{initialization: fit}}, or mixtures: none"
            )
        if not self.mixture_names:
            raise SpecError(
                "mixtures: they are chosen for a speed, from what a search found; give a goal with speedup, a search, and "
                "train: seeds, or mixtures: none"
            )

    def _check_alone(self, allowed: Collection[str]) -> None:
        """Raise SpecError if an experiment that only holds the results of others has options of a search or a training.

        An experiment that is alone in its file cannot join all others, either.
        """
        fields = type(self).model_fields
        given = [name for name in fields if name not in allowed and getattr(self, name) != fields[name].default]
        if self.ablations.canonical or self.ablations.distance:
            given.append('ablation but "patterns"')
        if given and self.artifact is None:
            raise SpecError(f"join: an experiment of joined results has no {given[0]}; give it to an experiment that is joined")
        if given:
            raise SpecError(
                f"artifact: an experiment of published data has no {given[0]}; leave it out, or give it to another experiment "
                f"in the same file, which takes the operators: select: {{source: {self.name}}}"
            )
        if self.join is not None and self.join.of == ALL:
            raise SpecError("join: of: all means the other experiments in the same file, and there is none; give folders")

    def use_code(self) -> Self:
        """Import the code that the experiment names, and check the settings that it takes. Returns the experiment.

        Whatever runs an experiment begins with this. What only reads it does not: the code may be a stranger's.

        Raises SpecError if something cannot be imported, or is not what it has to be.
        """
        self._is_received = False
        if not any(own_paths(self.model_dump(mode="json"))):
            return self
        self.find_code()
        try:
            for name in (*self.tune.all_compilers, *([] if self.goal is None else [self.goal.compiler])):
                compiler_named(name)
            self.tune.check_places()
            self._check(runs=True)
        except SynoError as error:
            raise SpecError(f'experiment "{self.name}": {error}') from error
        return self

    def find_code(self) -> None:
        """Let modules be imported from the experiment's folder of own modules, from now on. Call only before it runs."""
        if self.code is not None:
            search_code_in(self.code)

    # ---- properties -----------------------------------------------------------------------------------------------

    def received(self) -> Self:
        """Return the experiment as one that others may have written: its storage is opened only in its folder of results.

        Raises SpecError if a folder in there leads out of it, into which commands would write.
        """
        if outside := next((one for name in WRITTEN if not lies_in(one := self.folder / name, self.folder)), None):
            raise SpecError(
                f"{outside} leads to {outside.resolve()}, out of the folder of results; others may have set the link, so "
                "nothing is written there: give the experiment's own file in place of the folder, or put a folder in its place"
            )
        found = self.model_copy()
        found._is_received = True
        return found

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.output or RESULTS / self.name

    @property
    def goes_first(self) -> tuple[Path, ...]:
        """The folder of results of the experiment named by `after`; () if there is none."""
        return () if self.after is None else (self.after.source,)

    @property
    def searches(self) -> bool:
        """Whether there is a search. Without one, the operators are named, of another experiment, or were published."""
        return self._origin is None

    @property
    def only_holds(self) -> Literal["published data", "joined results"] | None:
        """What an experiment is of that has no operators of its own, so that only few options are allowed; None for others."""
        if self.artifact is not None:
            return "published data"
        return None if self.join is None else "joined results"

    @property
    def _origin(self) -> str | None:
        """Where an experiment without a search has its results or operators from, in words; None if it has a search."""
        if self.only_holds is not None:
            return f"is of {self.only_holds} ({'join' if self.artifact is None else 'artifact'})"
        if self.select.operators:
            return "takes named operators (select: operators)"
        if self.select.source is not None:
            return f"takes the operators that {self.select.source} selected (select: source)"
        return None

    @property
    def compares_latencies(self) -> bool:
        """Whether operators are selected by latency: the shortlist is then measured before the selection."""
        by, tune = self.select.by, self.tune
        is_measured = self.workload is not None and tune.layers != "only" and bool(tune.pairs)
        return by == "latency" or (by == "front" and is_measured)

    @property
    def goal_pair(self) -> tuple[str, str] | None:
        """The compiler and the device with which the goal's speedups are measured; None if no latency matters."""
        return None if self.goal is None or not self.goal.measures else (self.goal.compiler, self.goal.device)

    @property
    def trains(self) -> bool:
        """Whether anything is trained: in the search, or after the selection."""
        return self.workload is not None and (bool(self.train.seeds) or (self.searches and self.evaluation == "training"))

    @property
    def storage(self) -> str:
        """The storage of the trials, as a URL. Raises SpecError if the experiment has no search."""
        if (origin := self._origin) is not None:
            begin = "" if self.only_holds is not None else "; begin with `syno select`"
            raise SpecError(f'experiment "{self.name}" {origin}, so it has no search and no trials{begin}')
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
        """The name of the evaluation of operators."""
        return self.evaluate or ("cost" if self.workload is None else "training")

    @property
    def baselines(self) -> dict[str, OperatorChoice]:
        """The known operators that are trained, too, by name."""
        return {choice.key: choice for choice in self.train.baselines}

    @property
    def rival_names(self) -> tuple[str, ...]:
        """The names of the rivals of a search with a goal whose networks are timed and trained; () without one."""
        goal, rivals, workload = self.goal, self.rivals, self.workload
        has_rivals = goal is not None and goal.measures and workload is not None and self.searches and bool(self.train.seeds)
        if rivals == "none" or not has_rivals:
            return ()
        assert goal is not None and workload is not None
        formats = set(rivals.number_formats(goal.device))
        if self.train.int8:  # it is a baseline, whose name is the same
            formats.discard(INT8)
        return rivals.names(goal, self.baselines, formats)

    @property
    def needs_front(self) -> bool:
        """Whether the reward compares with the front of the rivals, which is found from their records."""
        return self.reward.get("name") == GainReward.name and not self.reward.get("front")

    @property
    def begins_with_rivals(self) -> bool:
        """Whether the rivals are trained before the search, which begins with their results."""
        return self.needs_front or self.warm_start == "known"

    @property
    def mixture_names(self) -> tuple[str, ...]:
        """The names of the mixtures that are chosen, timed and trained; () without any."""
        goal = self.goal
        is_asked = goal is not None and goal.measures and self.searches and bool(self.train.seeds)
        return self.mixtures.names if self.mixtures != "none" and is_asked else ()

    @property
    def number_formats(self) -> dict[str, Literal["rivals", "all"]]:
        """The number formats of lower precision in which networks are tested, too; see `RivalSettings.number_formats`."""
        if self.rivals == "none" or self.goal is None or not self.rival_names:
            return {}
        return self.rivals.number_formats(self.goal.device)

    @property
    def rival_operators(self) -> dict[str, OperatorChoice]:
        """The known operators that are rivals, by name."""
        if self.rivals == "none" or self.goal is None:
            return {}
        given = self.rivals.chosen_operators(self.goal)
        return {choice.key: choice for choice in given if choice.key in self.rival_names}

    def part(self, name: Part, *, code: bool = False) -> str:
        """Return the settings that a stage depends on, as JSON. Its files stay valid as long as this text is the same.

        With `code`, a checksum of the user's own code that the settings name is among them. The code is imported for that, so
        this is for an experiment that runs.
        """
        found = parts(self.model_dump(mode="json"))[name]
        return json.dumps({**found, **version_of_code(found)} if code else found, sort_keys=True)

    @property
    def policy_settings(self) -> PolicySettings:
        """The settings of the policy. Imports a user's own. Raises SpecError for unknown names and settings."""
        return policy_settings(self.policy)

    @property
    def has_own_reward(self) -> bool:
        """Whether the reward is code of a user's own, so that only a run of the experiment makes it."""
        return is_path(str(self.reward.get("name", "")))

    def make_reward(self) -> Reward:
        """Return the reward. Imports a user's own. Raises SpecError for unknown names and settings."""
        try:
            return from_settings(self.reward)
        except ValidationError as error:
            raise SpecError(f"reward: {explained(error, REWARDS.find(self.reward.get('name', 'accuracy')))}") from None

    @cached_property
    def network(self) -> Workload:
        """The network on its data, built once. Imports a user's own. Raises SpecError if the experiment has none."""
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
        """The spec of the operators to find. Raises SpecError if it is invalid."""
        if self.workload is None:
            return make_spec(self.spec)
        assert not isinstance(self.spec, str)  # checked above
        budget = dict(self.spec.get("budget", {}))
        if self.relative_budget is not None:
            budget = {**self.relative_budget.of(self.network.original, self.network.rest), **budget}
        return self.network.spec({**self.spec, "budget": budget})
