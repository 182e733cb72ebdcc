"""An experiment: all settings of its stages, with their defaults, as a YAML file gives them.

Unknown keys are errors. Paths are relative to the folder where the command runs. Reading an experiment loads neither torch nor
optuna: what follows from the network is computed on first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ValidationError, field_validator, model_validator

from syno.base.errors import SpecError, SynoError
from syno.base.files import check_folder, check_name
from syno.base.validation import explained, read_mapping
from syno.config.ablations import Ablations
from syno.config.groups import OperatorChoice, Original, RelativeBudget, Section
from syno.config.specs import check_names, make_spec
from syno.config.stages import SelectSettings, StudySettings, TrainSettings, TuneSettings
from syno.search.policies import POLICIES, PolicySettings
from syno.search.reward import REWARDS, Reward, from_settings
from syno.space.spec import OperatorSpec
from syno.train.settings import WorkloadSettings

if TYPE_CHECKING:
    from syno.train.workload import Workload

Settings = Mapping[str, Any]
RESULTS = Path("results")
JOURNAL = "journal"  # in place of a storage: one in the folder of results
Part = Literal["data", "search", "select", "train", "tune", "ablations"]  # of the settings
OF_PUBLISHED = ("name", "artifact", "output", "ablations")  # the options of an experiment of published data
NOT_OF_A_SEARCH = ("select", "train", "tune", "output", "study", "artifact", "ablations")


class Experiment(Section):
    """A search for operators and what is done with them. `Experiment.load` reads it from a YAML file."""

    name: str
    """name of the study and of the folder of results"""
    spec: str | Settings = {}
    """a preset, a spec file, or options; with `preset`, options that differ from it"""
    workload: WorkloadSettings | None = None
    """a network and a data set; the spec is then that of the network's layers"""
    artifact: Path | None = None
    """the data that the paper's authors published, to take operators from and to draw its figures; without any other option"""
    relative_budget: RelativeBudget | None = None
    """bounds of the cost as fractions of the original network's; needs a workload"""
    evaluate: str = ""
    """`cost` (counts FLOPs and parameters), `training` (of the workload), or your own as `package.module:function`"""
    original: Original | None = None
    """cost of the original model, for rewards that compare with it"""
    reward: Settings = {"name": "savings"}
    """name and settings of the reward"""
    policy: Settings = {"name": "mcts"}
    """name and settings of the policy"""
    study: StudySettings = StudySettings()
    warm_start: tuple[OperatorChoice, ...] = ()
    """operators that the first trials evaluate, in this order"""
    select: SelectSettings = SelectSettings()
    train: TrainSettings = TrainSettings()
    tune: TuneSettings = TuneSettings()
    ablations: Ablations = Ablations()
    output: Path | None = None
    """folder of the results; by default results/NAME"""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(f'experiment "{fields.get("name", "")}": {explained(error, type(self))}') from None

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a YAML file. Raises SpecError, which says what is wrong and what is allowed."""
        return cls(**{"name": file.stem, **read_mapping(file, "an experiment", cls)})

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
        try:
            self._check()
        except SynoError as error:
            raise ValueError(str(error)) from None
        return self

    def _check(self) -> None:
        if self.artifact is not None:
            self._check_published()
            return
        for name in self.baselines:
            check_name(name, "train: baselines: the name of an operator, or of its file without the ending,")
        self.policy_settings  # noqa: B018  (each raises what is wrong with it)
        needs = self.make_reward().needs
        if self.study.pruner is not None:
            from syno.search.evaluation import make_pruner

            make_pruner(self.study.pruner)
        if self.workload is not None:
            if isinstance(self.spec, str) or "preset" in self.spec:
                raise SpecError(
                    "spec: its layers are those of the workload; give a mapping of the options that differ, or leave it out"
                )
            check_names(self.spec)
            return
        if not self.searches:
            raise SpecError(
                "select: source needs a workload: give the network and the data set, as in workload: {model: resnet8}"
            )
        if not self.spec:
            raise SpecError("spec: is missing; give a preset's name, a spec file or its options, or a workload")
        self.operator_spec  # noqa: B018
        for name, given in (("evaluate: training", self.evaluation == "training"), ("relative_budget", self.relative_budget)):
            if given:
                raise SpecError(
                    f"{name} needs a workload: give the network and the data set, as in workload: {{model: resnet8}}"
                )
        if self.evaluation == "cost" and self.original is None and any(metric.startswith("original_") for metric in needs):
            raise SpecError(
                f'the reward "{self.make_reward().name}" compares with the original model: give its cost, as in '
                "original: {flops: 2.3e+11, parameters: 1.1e+7}"
            )

    def _check_published(self) -> None:
        """Raise SpecError if an experiment of published data has options of a search or a training."""
        fields = type(self).model_fields
        given = [name for name in fields if name not in OF_PUBLISHED and getattr(self, name) != fields[name].default]
        if self.ablations.canonical or self.ablations.distance:
            given.append('ablation but "patterns"')
        if given:
            raise SpecError(
                f"artifact: an experiment of published data has no {given[0]}; leave it out, or give it to another experiment "
                f"in the same file, which takes the operators: select: {{source: {self.name}}}"
            )

    # ---- properties -----------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.output or RESULTS / self.name

    @property
    def searches(self) -> bool:
        """Whether there is a search. Without one, the operators come from another experiment, or were published."""
        return self.select.source is None and self.artifact is None

    @property
    def storage(self) -> str:
        """The storage of the trials, as a URL. Raises SpecError if the experiment has no search."""
        if self.artifact is not None:
            raise SpecError(f'experiment "{self.name}" is of published data (artifact), so it has no search and no trials')
        if not self.searches:
            raise SpecError(
                f'experiment "{self.name}" takes the operators that {self.select.source} selected (select: source), so it has '
                "no search and no trials; begin with `syno select`"
            )
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
        return {Path(choice.operator).stem: choice for choice in self.train.baselines}

    def part(self, name: Part) -> str:
        """Return the settings that a stage depends on, as JSON. Its files stay valid as long as this text is the same."""
        whole = self.model_dump(mode="json")
        of_study = {key: value for key, value in whole["study"].items() if key not in ("workers", "storage")}
        parts: dict[Part, dict[str, Any]] = {
            "data": {"workload": whole["workload"]},
            "search": {key: whole[key] for key in whole if key not in NOT_OF_A_SEARCH} | {"study": of_study},
            "select": whole["select"],
            "ablations": {key: whole[key] for key in ("spec", "workload", "relative_budget", "artifact", "ablations")},
            "train": {"workload": whole["workload"], "training": whole["train"]["training"]},
            "tune": {
                "workload": whole["workload"],
                "tune": {**whole["tune"], "compilers": None, "devices": None, "remote_devices": None, "baselines": None},
            },
        }
        return json.dumps(parts[name], sort_keys=True)

    @property
    def policy_settings(self) -> PolicySettings:
        """The settings of the policy. Raises SpecError for unknown names and settings."""
        rest = dict(self.policy)
        kind = POLICIES.find(str(rest.pop("name", "mcts"))).Settings
        try:
            return kind(**rest)
        except ValidationError as error:
            raise SpecError(f"policy: {explained(error, kind)}") from None

    def make_reward(self) -> Reward:
        """Return the reward. Raises SpecError for unknown names and settings."""
        try:
            return from_settings(self.reward)
        except ValidationError as error:
            raise SpecError(f"reward: {explained(error, REWARDS.find(self.reward.get('name', 'accuracy')))}") from None

    @cached_property
    def network(self) -> Workload:
        """The network on its data, built once. Raises SpecError if the experiment has none."""
        if self.workload is None:
            raise SpecError(
                f'experiment "{self.name}" has no workload: give the network and the data set, as in '
                "workload: {model: resnet8}"
            )
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
