"""What extensions add to the stages: output of their kinds of experiments, figures, and sources of operators.

This module imports few others at its top, since extensions import it for every command.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.extensions import load_extensions

if TYPE_CHECKING:
    from syno.config import AnyExperiment, Experiment
    from syno.stages.selection import Selected


class FigureSet(ABC):
    """Figures that an extension adds to some experiments, beside the figures that every experiment has."""

    @abstractmethod
    def names(self, experiment: AnyExperiment) -> tuple[str, ...]:
        """Return the names of the figures of this set that an experiment has."""

    @abstractmethod
    def draw(self, experiment: AnyExperiment, name: str) -> list[Path]:
        """Draw a figure in all formats; return the files. SpecError if there are no results yet."""

    def page_parts(self, experiment: AnyExperiment) -> Sequence[object]:
        """Return parts of the report page, with the fields that the page's template reads."""
        return ()


class ExperimentKind(FigureSet):
    """What experiments of a kind of an extension (`syno.base.extensions.EXPERIMENTS`) show: figures, and a page."""

    made_by = ""  # the command that makes their results, for messages
    operator_files: tuple[str, ...] = ()  # in their folder, which a selection reads that takes operators from there

    def needs(self, experiment: AnyExperiment, left: Collection[str]) -> Mapping[str, Callable[[], str]]:
        """Return probes of what the stages `left` (stages whose files are not there yet) need, by the name of the need.

        Each probe returns a text that says what is installed, or raises a SynoError that says what to do.
        """
        return {}

    @abstractmethod
    def write_page(self, experiment: AnyExperiment, output: Path | None) -> Path:
        """Write the experiment's report page, and return its file. SpecError if there are no results yet."""


class OperatorSource(ABC):
    """A kind of folders, beside those of experiments, from which `select: source` takes operators."""

    operator_files: tuple[str, ...] = ()  # those that a selection reads

    @abstractmethod
    def includes(self, folder: Path) -> bool:
        """Return whether this source can read operators from a folder."""

    @abstractmethod
    def choose(self, experiment: Experiment) -> list[Selected]:
        """Return the operators that an experiment takes from its source, the best first. SpecError if there is none."""


FIGURE_SETS: list[FigureSet] = []
PUBLISHED_HOURS: dict[str, Mapping[str, float]] = {}  # GPU hours of "search", "training" and "tuning", by the head of a column
KINDS: dict[str, ExperimentKind] = {}  # by the option that experiments of the kind have
SOURCES: list[OperatorSource] = []


def kind_of(experiment: AnyExperiment) -> ExperimentKind | None:
    """Return the extension's kind of an experiment; None for an experiment with operators of its own."""
    load_extensions()
    return KINDS.get(experiment.option)


def source_of(folder: Path) -> OperatorSource | None:
    """Return the operator source that reads this folder; None if no source does."""
    load_extensions()
    return next((source for source in SOURCES if source.includes(folder)), None)
