"""The union of kinds of experiments: what all have, and which kind the options of an experiment tell."""

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
WRITTEN = ("tables", "figures", "operators")  # folders of results into which commands write that only read the rest


class AnyExperiment(Section):
    """What experiments of every kind have: a name, a folder of results, and a folder of own modules.

    `Experiment` searches for operators, or evaluates those that it names. Extensions add other kinds (`experiment_kinds`).
    """

    option: ClassVar[str] = ""  # which only experiments of this kind have, and must have; "" for `Experiment`
    content: ClassVar[str] = "operators"  # of the folder of results, in words
    keeps_settings: ClassVar[bool] = True  # whether the manifest of results has a checksum of the settings of each file

    name: str
    """name of the study and of the folder of results"""
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
        fields = completed(read_mapping(file, "an experiment", OWN[0]), file)
        return cls.checked(make_experiment({"name": file.stem, **fields}))

    @classmethod
    def checked(cls, experiment: AnyExperiment) -> Self:
        """Return the experiment. Raises SpecError if it is of another kind."""
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
        """Return the options without those of other kinds at their defaults, which files beside older results have.

        Raises ValueError for an option of another kind that is not at its default.
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
        """Return the message for an option of another kind in the experiment of this name."""
        return f"{other}: an experiment of {cls.content} has no such option; give it to another experiment"

    @classmethod
    def resolved(
        cls, name: str, fields: Settings, folders: Mapping[str, Path], kinds: Mapping[str, type[AnyExperiment]]
    ) -> Settings:
        """Return the options of one of several experiments in a file, with folders in place of the names of others.

        Args:
            name: the experiment's name.
            fields: its options as given.
            folders: the folder of results of every experiment in the file, by name.
            kinds: the kind of each of them, by name.

        Raises SpecError for a name that is neither an experiment nor a folder.
        """
        return fields

    def check_beside(self, others: Sequence[AnyExperiment]) -> None:
        """Raise SpecError if the experiment does not go with those in the same file, itself among them."""

    def use_code(self) -> Self:
        """Import the code that the experiment names, and check the settings that it takes. Returns the experiment.

        Whatever runs an experiment begins with this. What only reads it does not: the code may be a stranger's.

        Raises SpecError if something cannot be imported, or is not what it has to be.
        """
        self._is_received = False
        return self

    def find_code(self) -> None:
        """Let modules be imported from the experiment's folder of own modules, from now on. Call only before it runs."""
        if self.code is not None:
            search_code_in(self.code)

    def received(self) -> Self:
        """Return the experiment as one that others may have written: its storage is opened only in its folder of results.

        Raises SpecError if a folder in there leads out of it, into which commands would write.
        """
        if outside := next((one for name in WRITTEN if not lies_in(one := self.folder / name, self.folder)), None):
            raise SpecError(
                f"{outside} leads to {outside.resolve()}, out of the folder of results; others may have set the link, so "
                "nothing is written there: give the experiment's own file in place of the folder, or put a folder in its place"
            )
        copy = self.model_copy()
        copy._is_received = True
        return copy

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.output or RESULTS / self.name

    @property
    def goes_first(self) -> tuple[Path, ...]:
        """The folders of results of the experiments that change this one's network (`after`)."""
        return ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """The folders of results of the experiments whose operators or tables this one takes."""
        return ()

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why optional devices are left out, by their names."""
        return {}

    @property
    def searches(self) -> bool:
        """Whether there is a search."""
        return False

    @property
    def storage(self) -> str:
        """The storage of the trials, as a URL. Raises SpecError if the experiment has no search."""
        raise SpecError(f'experiment "{self.name}" is of {self.content} ({self.option}), so it has no search and no trials')

    def part(self, name: str, *, code: bool = False) -> str:
        """Return the settings that a stage depends on, as JSON. Its files stay valid as long as this text is the same.

        With `code`, a checksum of the user's own code that the settings name is among them. The code is imported for that, so
        this is for an experiment that runs.
        """
        settings = self.parts()[name]
        return json.dumps({**settings, **version_of_code(settings)} if code else settings, sort_keys=True)

    def parts(self) -> Mapping[str, dict[str, Any]]:
        """Return the settings that stages depend on, as for JSON, by the name of the part."""
        return {}


def experiment_kinds() -> tuple[type[AnyExperiment], ...]:
    """Return the classes of all kinds of experiments: those of extensions, and `Experiment`."""
    load_extensions()
    return (*(resolve_name(path) for path in EXPERIMENTS), *OWN)


def kind_of(fields: Settings) -> type[AnyExperiment]:
    """Return the class of an experiment with these options: the first whose own option is given."""
    return next((kind for kind in experiment_kinds() if fields.get(kind.option) is not None), OWN[0])


def make_experiment(fields: Settings) -> AnyExperiment:
    """Return the experiment of these options, of the kind that they tell. Raises SpecError if they are wrong."""
    return kind_of(fields)(**fields)


def _is_default(value: object, field: FieldInfo) -> bool:
    """Return whether an option is not given, or given as its default."""
    default = field.default
    if value is None or default is PydanticUndefined:
        return value is None
    if isinstance(default, BaseModel) and isinstance(value, Mapping):
        try:  # files of earlier versions have fewer options, or some that are no longer there
            return bool(type(default).model_validate(value) == default)
        except ValidationError:
            return False
    return bool(to_jsonable_python(value) == to_jsonable_python(default))


OWN: list[type[AnyExperiment]] = []  # `syno.config.experiment.Experiment`, which its module adds
