"""An experiment: all settings of its stages, with their defaults, as a YAML file gives them.

Unknown keys are errors. Paths are relative to the folder where the command runs. Reading an experiment loads neither torch nor
optuna, and imports no code that it names: what follows from the network is computed on first use, and `use_code` imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import SerializerFunctionWrapHandler, ValidationError, field_validator, model_serializer, model_validator

from syno.base.errors import SpecError, SynoError
from syno.base.files import check_folder, check_name
from syno.base.registry import is_path, search_code_in
from syno.base.validation import explained, read_mapping
from syno.config.ablations import Ablations
from syno.config.after import After, as_given, check_placed, with_operators
from syno.config.defaults import following
from syno.config.goal import check_goal
from syno.config.groups import OperatorChoice, Original, RelativeBudget, Section
from syno.config.kept_file import completed
from syno.config.kinds import (
    check_alone,
    check_compares_with_nothing,
    check_counts,
    check_has_data,
    check_without_workload,
    no_search,
)
from syno.config.own_code import own_paths
from syno.config.parts import Part, parts
from syno.config.policies import PolicyChoice, policy_of, policy_settings
from syno.config.selection import check_selection
from syno.config.specs import check_names, make_spec
from syno.config.stages import JoinSettings, SelectSettings, StudySettings, TrainSettings, TuneSettings
from syno.config.stopping import check_stopping, rounds_of
from syno.measure.compilers import compiler_named
from syno.search.goal import Goal
from syno.search.policies import POLICIES, PolicySettings
from syno.search.reward import REWARDS, Reward, from_settings
from syno.space.reads import AUTO
from syno.space.spec import OperatorSpec
from syno.train.settings import WorkloadSettings

if TYPE_CHECKING:
    from syno.train.workload import Workload

Settings = Mapping[str, Any]
RESULTS = Path("results")
JOURNAL = "journal"  # in place of a storage: one in the folder of results
OF_ANY = ("name", "output", "code")  # options of every experiment; one of published data, or of joined results, has one more
OF_PUBLISHED = ("artifact", "ablations")  # further ones of an experiment of published data


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
    warm_start: tuple[OperatorChoice, ...] = ()
    """operators that the first trials evaluate, in this order"""
    select: SelectSettings = SelectSettings()
    train: TrainSettings = TrainSettings()
    tune: TuneSettings = TuneSettings()
    ablations: Ablations = Ablations()
    output: Path | None = None
    """folder of the results; by default results/NAME"""
    code: Path | None = None
    """folder of your own modules; by default that of this file, if it has the modules that the file names"""

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
    def _names_a_folder(cls, given: str) -> str:
        return check_name(given, "an experiment's name")

    @field_validator("output")
    @classmethod
    def _is_a_folder(cls, given: Path | None) -> Path | None:
        return None if given is None else check_folder(given, "the folder of results")

    @field_validator("spec", mode="before")
    @classmethod
    def _as_options(cls, given: Any) -> Any:
        return given.model_dump() if isinstance(given, OperatorSpec) else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.workload is not None and self.searches:
            self._set_defaults()
        try:
            self.__dict__["workload"] = with_operators(self.after, self.workload, lambda file: type(self).load(file).workload)
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
            self.__dict__["spec"] = {"reads": AUTO, **self.spec}
        self.__dict__ |= following(self.evaluation, self.goal, self.reward, self.select, self.model_fields_set)

    def _check(self, *, runs: bool = False) -> None:
        """Raise what is wrong with the settings; those of own code, which is imported for it, only if the experiment `runs`."""
        if self.artifact is not None or self.join is not None:
            self._check_alone()
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
        check_stopping(self.study, rounds_of(self.workload, self.evaluation), runs=runs)
        check_goal(self.goal, str(self.reward.get("name")), self.select, self.tune, searches=self.searches)
        check_selection(self.select, self.train, self.tune, self.workload, self.evaluation)
        if self.workload is not None:
            if isinstance(self.spec, str) or "preset" in self.spec:
                raise SpecError(
                    "spec: its layers are those of the workload; give a mapping of the options that differ, or leave it out"
                )
            check_names(self.spec)
            check_has_data(self.workload.data, self.trains)
            if self.searches and self.evaluation == "cost" and self.goal is None and reward is not None:
                check_counts(reward)
            return
        needing = {"evaluate: training": self.evaluation == "training", "relative_budget": self.relative_budget}
        check_without_workload(self.searches, self.select, self.spec, {**needing, "goal": self.goal})
        self.operator_spec  # noqa: B018
        if self.evaluation == "cost" and self.original is None and reward is not None:
            check_compares_with_nothing(reward)

    def _check_alone(self) -> None:
        """Raise SpecError if an experiment of published data, or of joined results, has other options."""
        fields, kind = type(self).model_fields, "join" if self.artifact is None else "artifact"
        allowed = (*OF_ANY, *(OF_PUBLISHED if kind == "artifact" else ("join",)))
        given = [name for name in fields if name not in allowed and getattr(self, name) != fields[name].default]
        if self.ablations.canonical or self.ablations.distance:
            given.append('ablation but "patterns"')
        check_alone(self.name, kind, given, self.join)

    def use_code(self) -> Self:
        """Import the code that the experiment names, and check the settings that it takes. Returns the experiment.

        Whatever runs an experiment begins with this. What only reads it does not: the code may be a stranger's.

        Raises SpecError if something cannot be imported, or is not what it has to be.
        """
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
        return no_search(self.name, self.select, self.artifact, self.join) is None

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
        if why := no_search(self.name, self.select, self.artifact, self.join):
            raise SpecError(why)
        if self.study.storage == JOURNAL:
            return f"journal:{self.folder / 'trials.log'}"
        return self.study.storage or f"sqlite:///{self.folder / 'trials.db'}"

    @property
    def evaluation(self) -> str:
        """The name of the evaluation of operators."""
        return self.evaluate or ("cost" if self.workload is None else "training")

    @property
    def baselines(self) -> dict[str, OperatorChoice]:
        """The known operators that are trained, too, by name."""
        return {choice.key: choice for choice in self.train.baselines}

    def part(self, name: Part) -> str:
        """Return the settings that a stage depends on, as JSON. Its files stay valid as long as this text is the same."""
        return json.dumps(parts(self.model_dump(mode="json"))[name], sort_keys=True)

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
