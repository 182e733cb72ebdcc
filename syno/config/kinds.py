"""The union of all kinds of experiments: their common options, and the kind of an experiment with given options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Self

from pydantic import BaseModel, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from syno.base.errors import SpecError
from syno.base.extensions import EXPERIMENTS, load_extensions
from syno.base.files import check_folder, check_name, lies_in
from syno.base.identity import version_of_code
from syno.base.registry import search_code_in
from syno.base.validation import explained, read_mapping
from syno.config.groups import Section
from syno.config.kept_file import completed

Settings = Mapping[str, Any]
RESULTS = Path("results")
WRITTEN = ("tables", "figures", "operators")  # folders of results that read-only commands write, too


class AnyExperiment(Section):
    """The options of experiments of every kind: a name, a folder of results, and a folder of user modules.

    `Experiment` searches for operators, or evaluates named ones. Extensions add other kinds (`experiment_kinds`).
    """

    option: ClassVar[str] = (
        ""  # the option that identifies this kind: required here, unknown to other kinds; "" for `Experiment`
    )
    content: ClassVar[str] = "operators"  # content of the folder of results, in words
    keeps_settings: ClassVar[bool] = True  # whether the manifest of results has a checksum of the settings of each file

    name: str
    """name of the study and of the folder of results"""
    output: Path | None = None
    """folder of the results; default: results/NAME"""
    code: Path | None = None
    """folder of your own modules; default: the folder of this file, if it contains the modules that the file names"""
    _is_received: bool = PrivateAttr(default=False)  # whether a stranger may have written it, with the folder of results

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SpecError(f'experiment "{fields.get("name", "")}": {explained(error, type(self))}') from None

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a YAML file. Raises SpecError, which says what is invalid and what is allowed."""
        fields = completed(read_mapping(file, "an experiment", OWN[0]), file)
        return cls.checked(make_experiment({"name": file.stem, **fields}))

    @classmethod
    def checked(cls, experiment: AnyExperiment) -> Self:
        """Return the experiment. Raises SpecError if it is not of this kind."""
        if not isinstance(experiment, cls):
            raise SpecError(
                f'experiment "{experiment.name}" is of {experiment.content} ({experiment.option}), so it has no search, and '
                "nothing to train or to measure; name another experiment"
            )
        return experiment

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        return check_name(name, "an experiment's name")

    @field_validator("output")
    @classmethod
    def _is_a_folder(cls, folder: Path | None) -> Path | None:
        return None if folder is None else check_folder(folder, "the folder of results")

    @model_validator(mode="before")
    @classmethod
    def _without_options_of_other_kinds(cls, settings: Any) -> Any:
        """Remove options of other kinds that have their default values, which files beside older results contain.

        Raises ValueError for an option of another kind with another value.
        """
        strange = set(settings) - set(cls.model_fields)
        if not strange:
            return settings
        others = {name: field for kind in experiment_kinds() for name, field in kind.model_fields.items() if name in strange}
        if wrong := [name for name, field in others.items() if not _is_default(settings[name], field)]:
            raise ValueError(cls.refusal(wrong[0], settings.get("name", "")))
        return {name: value for name, value in settings.items() if name not in others}

    @classmethod
    def refusal(cls, other: str, name: object) -> str:
        """Return the message for an option of another kind in the experiment `name`."""
        return f"{other}: an experiment of {cls.content} has no such option; give it to another experiment"

    @classmethod
    def resolved(
        cls, name: str, fields: Settings, folders: Mapping[str, Path], kinds: Mapping[str, type[AnyExperiment]]
    ) -> Settings:
        """Return the options of one of several experiments in a file, with folders in place of other experiments' names.

        Args:
            name: the experiment's name.
            fields: its options as the file has them.
            folders: the folder of results of every experiment in the file, by name.
            kinds: the kind of every experiment in the file, by name.

        Raises SpecError for a name that is neither an experiment nor a folder.
        """
        return fields

    def check_beside(self, others: Sequence[AnyExperiment]) -> None:
        """Raise SpecError if the experiment contradicts one of the experiments in the same file (which include itself)."""

    def use_code(self) -> Self:
        """Import the code that the experiment names, and validate the settings for it. Returns the experiment.

        Every command that runs an experiment calls this first. Commands that only read it do not, since the code may be a
        stranger's.

        Raises SpecError if an object cannot be imported, or is of the wrong kind.
        """
        self._is_received = False
        return self

    def find_code(self) -> None:
        """Add the experiment's folder of user modules to the import path. Only for runs."""
        if self.code is not None:
            search_code_in(self.code)

    def received(self) -> Self:
        """Return the experiment as a possible stranger's: its storage is opened only within its folder of results.

        Raises SpecError if a folder in there is a link to the outside, where commands would write.
        """
        if outside := next((path for name in WRITTEN if not lies_in(path := self.folder / name, self.folder)), None):
            raise SpecError(
                f"{outside} leads to {outside.resolve()}, out of the folder of results; others may have set the link, so "
                "nothing is written there: give the experiment's own file in place of the folder, or put a folder in its place"
            )
        copy = self.model_copy()
        copy._is_received = True
        return copy

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.output or RESULTS / self.name

    @property
    def goes_first(self) -> tuple[Path, ...]:
        """Folders of results of the experiments that change this experiment's network (`after`), and so run first."""
        return ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """Folders of results of the experiments whose operators or tables this experiment uses."""
        return ()

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons why optional devices are skipped, by their names."""
        return {}

    @property
    def searches(self) -> bool:
        """Whether the experiment searches for operators."""
        return False

    @property
    def storage(self) -> str:
        """The storage of the trials, as a URL. Raises SpecError if the experiment has no search."""
        raise SpecError(f'experiment "{self.name}" is of {self.content} ({self.option}), so it has no search and no trials')

    def part(self, name: str, *, code: bool = False) -> str:
        """Return the settings that a stage depends on, as JSON: the cache key of its files.

        With `code`, it includes a checksum of the user code that the settings name, which is imported; only for runs.
        """
        settings = self.parts()[name]
        return json.dumps({**settings, **version_of_code(settings)} if code else settings, sort_keys=True)

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings on which each stage depends, as JSON, by the stage's part name."""
        return {}


def experiment_kinds() -> tuple[type[AnyExperiment], ...]:
    """Return the classes of all kinds of experiments: those of extensions, then `Experiment`."""
    load_extensions()
    return (*(resolve_name(path) for path in EXPERIMENTS), *OWN)


def kind_of(fields: Settings) -> type[AnyExperiment]:
    """Return the class of an experiment with these options: the first class whose own option is present."""
    return next((kind for kind in experiment_kinds() if fields.get(kind.option) is not None), OWN[0])


def make_experiment(fields: Settings) -> AnyExperiment:
    """Return the experiment with these options, of the kind that they determine. Raises SpecError if they are invalid."""
    return kind_of(fields)(**fields)


def _is_default(value: object, field: FieldInfo) -> bool:
    """Return whether an option is missing, or has its default value."""
    default = field.default
    if value is None or default is PydanticUndefined:
        return value is None
    if isinstance(default, BaseModel) and isinstance(value, Mapping):
        try:  # files of earlier versions lack options, or have options that no longer exist
            return bool(type(default).model_validate(value) == default)
        except ValidationError:
            return False
    return bool(to_jsonable_python(value) == to_jsonable_python(default))


OWN: list[type[AnyExperiment]] = []  # `syno.config.experiment.Experiment`, which its module adds
