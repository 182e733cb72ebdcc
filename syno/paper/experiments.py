"""The paper's kinds of experiments: published data, results that are joined, and searches with ablations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from syno.base.errors import SpecError, suggestion
from syno.config.dependencies import way_back
from syno.config.experiment import Experiment
from syno.config.groups import Section
from syno.config.kinds import AnyExperiment, Settings
from syno.paper.ablations.settings import Ablations

ALL = "all"


class PublishedData(AnyExperiment):
    """An experiment of the data that the paper's authors published: operators to take from, and the paper's figures."""

    option: ClassVar[str] = "artifact"
    content: ClassVar[str] = "published data"
    keeps_settings: ClassVar[bool] = False  # imports by hand have no settings

    artifact: Path
    """the data that the paper's authors published, to take operators from and to draw its figures: a checkout, or its folder"""
    ablations: Ablations = Ablations()

    @model_validator(mode="after")
    def _has_patterns_alone(self) -> Self:
        if self.ablations.canonical or self.ablations.distance:
            raise ValueError(self.refusal('ablation but "patterns"', self.name))
        return self

    @classmethod
    def refusal(cls, other: str, name: object) -> str:
        """Return the message for an option that experiments of published data do not have."""
        return (
            f"artifact: an experiment of published data has no {other}; leave it out, or give it to another experiment in the "
            f"same file, which takes the operators: select: {{source: {name}}}"
        )

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings that ablations depend on."""
        settings = self.model_dump(mode="json", include={"artifact", "ablations"})
        # The options of other kinds at their defaults: Snakemake compares this text with that of earlier versions.
        return {"ablations": {"spec": {}, "workload": None, "relative_budget": None, **settings}}


class AblatedExperiment(Experiment):
    """A search with ablations of its space, or of the operators that it finds."""

    option: ClassVar[str] = "ablations"

    ablations: Ablations = Ablations()

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings that stages depend on, as for JSON, by the name of the part."""
        parts = super().parts()
        of_space = {"spec": parts["search"]["spec"], "relative_budget": parts["search"]["relative_budget"]}
        ablations = self.ablations.model_dump(mode="json")
        return {
            **parts,
            "ablations": {**of_space, **parts["data"], "artifact": None, "ablations": ablations},
        }


def ablations_of(experiment: AnyExperiment) -> Ablations:
    """Return the ablations of an experiment; those of other kinds have none."""
    return experiment.ablations if isinstance(experiment, PublishedData | AblatedExperiment) else Ablations()


class JoinSettings(Section):
    """The results of other experiments in one table, from which the paper's figures are drawn."""

    of: Literal["all"] | Annotated[tuple[Path, ...], Field(min_length=1)]
    """names of experiments in this file, or folders of results; all: every other experiment in this file that is no join"""
    proxy: tuple[str, ...] = ()
    """experiments on the data set that stands for the paper's CIFAR-100; `*` matches any text; others: cifar100 and lm1b"""
    final: tuple[str, ...] = ()
    """experiments on the data set that stands for the paper's ImageNet, likewise; others: imagenet"""
    paper: bool = True
    """whether to add the accuracies that only the paper has; an import has them already"""

    @field_validator("of", mode="before")
    @classmethod
    def _all_or_several(cls, experiments: Any) -> Any:
        if experiments != ALL and not (isinstance(experiments, list | tuple) and experiments):
            raise ValueError(f"give all, or a list of experiments in this file and folders of results; given: {experiments!r}")
        return experiments


class JoinedResults(AnyExperiment):
    """An experiment that puts the results of other experiments together, and ends in the paper's figures."""

    option: ClassVar[str] = "join"
    content: ClassVar[str] = "joined results"

    join: JoinSettings
    """other experiments, whose results are put together and end in the paper's figures"""

    @model_validator(mode="after")
    def _joins_something(self) -> Self:
        if self.join.of == ALL:
            raise ValueError("join: of: all means the other experiments in the same file, and there is none; give folders")
        return self

    @classmethod
    def refusal(cls, other: str, name: object) -> str:
        """Return the message for an option that experiments of joined results do not have."""
        return f"join: an experiment of joined results has no {other}; give it to an experiment that is joined"

    @classmethod
    def resolved(
        cls, name: str, fields: Settings, folders: Mapping[str, Path], kinds: Mapping[str, type[AnyExperiment]]
    ) -> Settings:
        """Return the options with folders in place of the names of experiments in `join: of`."""
        join = fields["join"]
        if not isinstance(join, Mapping):
            return fields  # the settings say what is wrong with it
        of = join.get("of")
        if of == ALL:
            others = [str(folder) for other, folder in folders.items() if not issubclass(kinds[other], JoinedResults)]
            return {**fields, "join": {**join, "of": others or ALL}}
        names = [of] if isinstance(of, str) else of
        if not isinstance(names, list | tuple):
            return fields
        return {**fields, "join": {**join, "of": [_folder(name, str(other), folders) for other in names]}}

    def check_beside(self, others: Sequence[AnyExperiment]) -> None:
        """Raise SpecError if the experiment joins itself through others, or does not go with those in the same file.

        A pattern of `proxy` or `final` has to match an experiment, and no experiment can take operators from joined results.
        """
        joins = {other.folder: other for other in others if isinstance(other, JoinedResults)}
        names = {other.folder: other.name for other in others}
        if way := way_back({folder: list(other.sources) for folder, other in joins.items()}):
            shown = " joins ".join(names.get(folder, str(folder)) for folder in way)
            raise SpecError(f'experiment "{names[way[0]]}": join: of leads back to itself: {shown}; leave one of them out')
        _check_patterns(self.name, self.join, list(self._names_of_joined(names, joins)))
        for other in others:
            if isinstance(other, Experiment) and self.folder in other.sources:
                raise SpecError(
                    f'experiment "{other.name}": select: source: "{self.name}" is of joined results, which no operator is '
                    "selected from; name one of the experiments that it joins"
                )

    @property
    def sources(self) -> tuple[Path, ...]:
        """The folders of the results that are joined."""
        return tuple(map(Path, self.join.of))

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings that the join depends on."""
        return {"join": self.join.model_dump(mode="json")}

    def _names_of_joined(self, names: Mapping[Path, str], joins: Mapping[Path, JoinedResults]) -> Iterator[str]:
        """Yield the names of all experiments that are joined, also through others."""
        for folder in self.sources:
            yield names.get(folder, folder.name)
            if folder in joins:
                yield from joins[folder]._names_of_joined(names, joins)


def _folder(name: str, other: str, folders: Mapping[str, Path]) -> str:
    if other == name:
        raise SpecError(f'experiment "{name}": join: of: it cannot be joined with itself; leave it out')
    if other in folders:
        return str(folders[other])
    if not Path(other).exists() and "/" not in other:
        raise SpecError(
            f'experiment "{name}": join: of: neither an experiment here nor a folder of results is called "{other}"; there '
            f"are: {', '.join(known for known in folders if known != name)}.{suggestion(other, folders)}"
        )
    return other


def _check_patterns(name: str, join: JoinSettings, known: list[str]) -> None:
    for option, patterns in (("proxy", join.proxy), ("final", join.final)):
        for pattern in patterns:
            if not any(fnmatchcase(one, pattern) for one in known):
                raise SpecError(
                    f'experiment "{name}": join: {option}: no experiment that is joined is called "{pattern}"; there are: '
                    f"{', '.join(known)}.{suggestion(pattern, known)}"
                )
    for one in known:
        if role_of(one, join) == "both":
            raise SpecError(f'experiment "{name}": join: "{one}" is of both proxy and final; each experiment has one data set')


def role_of(name: str, join: JoinSettings) -> str | None:
    """Return "proxy" or "final" if patterns say so of an experiment, "both" if both do, and None if none does."""
    found = [
        option
        for option, patterns in (("proxy", join.proxy), ("final", join.final))
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    return "both" if len(found) > 1 else next(iter(found), None)
