"""The settings of a search, as `syno search` reads them from a YAML file; the one place of their defaults.

Unknown keys are errors. Paths are relative to the folder where the command runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from syno.errors import SpecError, SynoError, suggestion
from syno.evaluate.settings import WorkloadSettings
from syno.ir.graph import PGraph
from syno.ir.lookup import find_operator
from syno.ir.renaming import with_variables
from syno.report.sampling import rejections
from syno.report.validation import explained, read_mapping
from syno.search.evaluation import find_evaluation
from syno.search.interruption import Interruption, Stoppable, StoppingDisplay
from syno.search.policies import POLICIES, PolicySettings
from syno.search.processes import beside
from syno.search.reward import REWARDS, Reward, from_settings
from syno.space.complete import Cost, cost
from syno.space.emptiness import check_not_empty
from syno.space.presets import PRESETS, paper
from syno.space.space import Space
from syno.space.spec import OperatorSpec

if TYPE_CHECKING:
    from syno.evaluate.workload import Workload
    from syno.search.progress import Display
    from syno.search.study import Evaluate, Study

Settings = Mapping[str, Any]


class Section(BaseModel):
    """A group of settings. Frozen; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OperatorChoice(Section):
    """An operator; a text alone stands for its name."""

    operator: str  # a known operator, a text file, or a published operator's folder
    rename: Mapping[str, str] = {}  # its variables to those of the spec, as in {k: k_1}

    def find(self) -> PGraph:
        """The operator. Raises a SynoError if there is none."""
        return with_variables(find_operator(self.operator), self.rename)


class Original(Section):
    """What the model costs as it is, for one batch: given as numbers, or as the operator that is replaced everywhere."""

    flops: Annotated[float, Field(gt=0)] | None = None  # multiply-adds count as one
    parameters: Annotated[float, Field(gt=0)] | None = None
    operator: OperatorChoice | None = None  # what the replaced layers are, in place of the two numbers

    @field_validator("operator", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"operator": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        numbers = self.flops is not None and self.parameters is not None
        if numbers == (self.operator is not None):
            raise ValueError("give flops and parameters, or operator")
        return self

    def cost(self, spec: OperatorSpec) -> Cost:
        """The numbers; of an operator, counted in the layers of the spec."""
        if self.operator is not None:
            return cost(self.operator.find(), spec)
        assert self.flops is not None and self.parameters is not None
        return Cost(self.flops, self.parameters, 0)


class RelativeBudget(Section):
    """Bounds of the model with an operator, as shares of the original model's."""

    least_flops: Annotated[float, Field(ge=0)] = 0
    most_flops: Annotated[float, Field(gt=0)] | None = None
    least_parameters: Annotated[float, Field(ge=0)] = 0
    most_parameters: Annotated[float, Field(gt=0)] | None = None

    def of(self, original: Cost) -> dict[str, float]:
        """The options of a spec's budget that these are."""
        shares = {name: share for name, share in self.model_dump().items() if share is not None}
        return {
            name: share * (original.flops if name.endswith("flops") else original.parameters) for name, share in shares.items()
        }


class StudySettings(Section):
    """Where trials are kept, and how many there are."""

    storage: str | None = None  # a database URL or a journal file; trials.db in the folder `output` if not given
    seed: int = 0
    n_trials: Annotated[int, Field(ge=0)] = 100  # of the study, all workers and earlier runs together
    most_attempts: Annotated[int, Field(ge=1)] = 3  # after so many workers died over an operator, it counts as failed
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 60  # how often a worker says that it is alive
    grace_seconds: Annotated[float, Field(gt=0)] = 180  # of silence, after which another worker takes its trial


class SearchConfig(Section):
    """A search. `SearchConfig.load` reads it from a YAML file."""

    name: str  # of the study
    spec: OperatorSpec  # a preset's name, a spec file, a mapping of all its options, or of `preset` and those that differ
    workload: WorkloadSettings | None = None  # a network and a data set; the spec is then of its layers
    relative_budget: RelativeBudget | None = None  # needs a workload
    evaluate: str = "cost"  # `cost` (counts only), `training` (of the workload), or your own as `package.module:function`
    original: Original | None = None  # what the model costs as it is, for rewards that compare with it
    reward: Settings = {"name": "savings"}  # its name and settings
    policy: Settings = {"name": "mcts"}  # its name and settings
    study: StudySettings = StudySettings()
    warm_start: tuple[OperatorChoice, ...] = ()  # operators to begin with, in this order
    output: Path | None = None  # folder of the results; results/NAME if not given

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(f'search "{fields.get("name", "")}": {explained(error, type(self))}') from None

    @classmethod
    def load(cls, file: Path) -> SearchConfig:
        """Read a YAML file. SpecError says what is wrong with it and what is allowed."""
        return cls(**{"name": file.stem, **read_mapping(file, "a search config", cls)})

    @model_validator(mode="before")
    @classmethod
    def _of_the_workload(cls, fields: Any) -> Any:
        """What is not given and follows from the workload: the layers, the rest's cost, the budget, the original."""
        if not isinstance(fields, Mapping) or not fields.get("workload"):
            return fields
        options = fields.get("spec") or {}
        if not isinstance(options, Mapping) or "preset" in options:
            raise ValueError(
                "spec: its layers are those of the workload; give a mapping of the options that differ, or leave it out"
            )
        if "layers" in options:  # made before
            return fields
        workload = _workload(fields["workload"])
        given = RelativeBudget.model_validate(fields.get("relative_budget") or {})
        budget = {**given.of(workload.original), **options.get("budget", {})}
        original = {"flops": workload.original.flops, "parameters": workload.original.parameters}
        spec = workload.spec({**options, "budget": budget})
        return {"evaluate": "training", "original": original, **fields, "spec": spec}

    @field_validator("spec", mode="before")
    @classmethod
    def _spec(cls, given: Any) -> Any:
        if isinstance(given, str):
            return find_spec(given)
        if isinstance(given, Mapping) and "preset" in given:
            changes = {key: value for key, value in given.items() if key != "preset"}
            return OperatorSpec(**_merged(find_spec(str(given["preset"])).model_dump(), changes))
        return OperatorSpec(**given) if isinstance(given, Mapping) else given

    @field_validator("warm_start", mode="before")
    @classmethod
    def _warm_start(cls, given: Any) -> Any:
        return [{"operator": row} if isinstance(row, str) else row for row in given] if isinstance(given, list) else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.make_policy_settings()
        reward = self.make_reward()
        for name, given in (("evaluate: training", self.evaluate == "training"), ("relative_budget", self.relative_budget)):
            if given and self.workload is None:
                raise ValueError(
                    f"{name} needs a workload: give the network and the data set, as in workload: {{model: resnet8}}"
                )
        missing = [metric for metric in reward.needs if metric.startswith("original_")]
        if self.evaluate == "cost" and missing and self.original is None:
            raise ValueError(
                f'the reward "{reward.name}" compares with the original model: give its cost, as in '
                "original: {flops: 2.3e+11, parameters: 1.1e+7}"
            )
        return self

    # ---- what is made of it ---------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Where results go."""
        return self.output or Path("results") / self.name

    @property
    def storage(self) -> str:
        """Where trials are kept."""
        return self.study.storage or f"sqlite:///{self.folder / 'trials.db'}"

    def make_reward(self) -> Reward:
        """The reward. ValueError for unknown names and settings."""
        try:
            return from_settings(self.reward)
        except ValidationError as error:
            raise ValueError(f"reward: {explained(error, REWARDS[self.reward.get('name', 'accuracy')])}") from None
        except SynoError as error:
            raise ValueError(str(error)) from None

    def make_policy_settings(self) -> PolicySettings:
        """The constants of the policy. ValueError for unknown names and settings."""
        rest = dict(self.policy)
        try:
            kind = POLICIES[rest.pop("name", "mcts")].Settings
        except SynoError as error:
            raise ValueError(str(error)) from None
        try:
            return kind(**rest)
        except ValidationError as error:
            raise ValueError(f"policy: {explained(error, kind)}") from None

    def make_workload(self) -> Workload:
        """The network and the data. SpecError if the config has none."""
        if self.workload is None:
            raise SpecError(
                f'search "{self.name}" has no workload: give the network and the data set, as in workload: {{model: resnet8}}'
            )
        return _workload(self.workload)

    def make_evaluation(self) -> Evaluate:
        """What evaluates operators. SpecError if there is no such thing."""
        if self.evaluate == "training" and self.workload is not None:
            from syno.evaluate.workload import ProxyTraining  # with it comes torch

            return ProxyTraining(self.make_workload(), self.spec)
        original = None if self.original is None else self.original.cost(self.spec)
        return find_evaluation(self.evaluate, self.spec, original)

    @property
    def _space_id(self) -> str:
        """What tells studies apart that share a name: the spec, and how operators are trained."""
        return self.spec.id if self.workload is None else f"{self.spec.id} {self.workload.model_dump_json()}"

    def open_study(self, space: Space) -> Study:
        """The study, made if it is not there. SpecError if it is there with other settings."""
        from optuna import logging  # with it comes half a second

        from syno.search.study import Study

        logging.set_verbosity(logging.WARNING)
        return Study(
            space,
            space_id=self._space_id,
            name=self.name,
            storage=self.storage,
            policy=str(self.policy.get("name", "mcts")),
            policy_settings=self.make_policy_settings(),
            seed=self.study.seed,
            reward=self.make_reward(),
            warm_start=[choice.find() for choice in self.warm_start],
            most_attempts=self.study.most_attempts,
            heartbeat_seconds=self.study.heartbeat_seconds,
            grace_seconds=self.study.grace_seconds,
        )

    # ---- running --------------------------------------------------------------------------------------------------

    def run(self, workers: int = 1, display: Display | None = None) -> Study:
        """Search until the study has its trials, with so many processes on this machine; returns the study.

        Other machines may run the same config at the same time. Raises SpecError for an empty space, and as `open_study`.
        """
        if workers > 1 and self.storage == "memory:":
            raise SpecError("several workers need a storage that they share; study: storage is memory:")
        space, evaluate = Space(self.spec), self.make_evaluation()
        check_not_empty(space)
        study = self.open_study(space)
        with beside(_work, (self.model_dump(),), workers - 1), Interruption() as stop:
            shown = StoppingDisplay(stop, display)
            study.run(Stoppable(evaluate, stop), self.study.n_trials, display=shown, notes=lambda: rejections(space))
        return study


def _workload(given: Any) -> Workload:
    from syno.evaluate.workload import Workload  # with it comes torch

    return Workload.of(WorkloadSettings.model_validate(given))


def _work(fields: Mapping[str, Any]) -> None:
    """Be one more worker."""
    config = SearchConfig(**fields)
    study, evaluate = config.open_study(Space(config.spec)), config.make_evaluation()
    with Interruption() as stop:
        study.run(Stoppable(evaluate, stop), config.study.n_trials, display=StoppingDisplay(stop))


def find_spec(given: str) -> OperatorSpec:
    """The spec that a preset's name or the path of a YAML file means. SpecError if it is neither, or wrong."""
    if given in PRESETS:
        return paper(given)
    file = Path(given)
    if not file.is_file():
        raise SpecError(
            f'"{given}" is neither a spec file nor a preset; presets are: {", ".join(PRESETS)}.{suggestion(given, PRESETS)}'
        )
    return OperatorSpec.load(file)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`; groups of options are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = {**inner, **value} if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
