"""What extensions add to the stages: kinds of experiments, figures, and places where experiments take operators from.

Importing this module loads next to nothing, as extensions import it for every command.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.extensions import load_extensions

if TYPE_CHECKING:
    from syno.config import Experiment
    from syno.stages.selection import Selected


class FigureSet(ABC):
    """Figures that some experiments have beside their own."""

    @abstractmethod
    def names(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the names of an experiment's figures of this set."""

    @abstractmethod
    def draw(self, experiment: Experiment, name: str) -> list[Path]:
        """Draw a figure in all formats; return the files. SpecError if there are no results yet."""

    def page_parts(self, experiment: Experiment) -> Sequence[object]:
        """Return parts of the report page, with the fields that the page's template reads."""
        return ()


class ExperimentKind(FigureSet):
    """A kind of experiments that hold no results of their own, such as published data: its figures, and its page."""

    @abstractmethod
    def includes(self, experiment: Experiment) -> bool:
        """Return whether an experiment is of this kind."""

    def needs(self, experiment: Experiment, left: Collection[str]) -> Mapping[str, Callable[[], str]]:
        """Return functions that look for what the stages that are `left` need, by its name.

        Each returns what there is, or raises a SynoError, which says what to do.
        """
        return {}

    @abstractmethod
    def write_page(self, experiment: Experiment, output: Path | None) -> Path:
        """Write the page; return its file. SpecError if there are no results yet."""


class OperatorSource(ABC):
    """A kind of folders, beside those of experiments, from which `select: source` takes operators."""

    @abstractmethod
    def includes(self, folder: Path) -> bool:
        """Return whether a folder is of this kind."""

    @abstractmethod
    def choose(self, experiment: Experiment) -> list[Selected]:
        """Return the operators that an experiment takes from its source, the best first. SpecError if there is none."""


FIGURE_SETS: list[FigureSet] = []
KINDS: list[ExperimentKind] = []
SOURCES: list[OperatorSource] = []


def kind_of(experiment: Experiment) -> ExperimentKind | None:
    """Return the kind of an experiment; None if its results are its own."""
    load_extensions()
    return next((kind for kind in KINDS if kind.includes(experiment)), None)


def source_of(folder: Path) -> OperatorSource | None:
    """Return the kind of a folder from which operators are taken; None if it is of no such kind."""
    load_extensions()
    return next((source for source in SOURCES if source.includes(folder)), None)
