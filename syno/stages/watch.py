"""Watching the search of an experiment from its storage alone, as text and as a page."""

from __future__ import annotations

from datetime import datetime
from math import ceil
from pathlib import Path

from syno.base.files import write_whole
from syno.config import Experiment
from syno.config.stages import rounds_of
from syno.report.watching import failure_lines, progress_line, status_lines, watch_text
from syno.search.snapshot import Snapshot, StudyLimits, snapshot
from syno.search.storage.view import NotBegunError, StudyView
from syno.stages.provenance import check_shown
from syno.stages.rivals import rival_lines
from syno.stages.search import limits
from syno.stages.top import find_experiment

GALLERY = 6  # of the best operators, on the page
FASTEST_RELOAD = 2  # seconds


class Watch:
    """A read-only view of an experiment's search, on any machine that reaches its storage. It locks nothing.

    Attributes:
        experiment: the experiment.
    """

    def __init__(self, experiment: str) -> None:
        """`experiment` is an experiment's config, its folder of results, or its name in `results/`.

        Raises SpecError if there is no such experiment, it has no search, or its results are of other settings.
        """
        self.experiment: Experiment = find_experiment(experiment)
        check_shown(self.experiment)
        study = self.experiment.study
        rounds = rounds_of(self.experiment.workload, self.experiment.evaluation)
        keep = None if study.stopping is None else study.stopping.rungs(rounds)
        self._limits = StudyLimits(*limits(self.experiment), study.most_attempts, keep)
        self._view = StudyView(self.experiment.storage, self.experiment.name)
        self._given = experiment

    def look(self, now: datetime | None = None) -> Snapshot:
        """Return a snapshot of the stored search. `now` is the current time by default, without a time zone.

        Raises SpecError if the search has not begun, StorageError if the storage cannot be reached or read.
        """
        try:
            return snapshot(self._view.read(), self._limits, now or datetime.now())
        except NotBegunError as error:
            raise NotBegunError(f"{error}. Begin it: syno search {self._given}") from None

    def text(self, snapshot: Snapshot) -> str:
        """Return the state of the search in lines, and the results of rivals so far."""
        text, rivals = watch_text(self.experiment.name, snapshot, self.experiment.goal), rival_lines(self.experiment)
        return "\n\n".join([text, *(["\n".join(["without synthesis:", *rivals])] if rivals else [])])

    def line(self, snapshot: Snapshot) -> str:
        """Return the progress of the search, in one line."""
        return progress_line(self.experiment.name, snapshot)

    def write_page(self, snapshot: Snapshot, file: Path, every: float | None = None) -> None:
        """Write the page of the search so far. While the search runs, browsers reload it every `every` seconds (None: never).

        Raises SpecError if the file cannot be written.
        """
        from syno.report.page import Live, page
        from syno.report.result_figures import pictures
        from syno.run.table import trials_in
        from syno.stages.figures import SEARCH_FIGURES
        from syno.stages.results import so_far

        run = so_far(self.experiment, trials_in(snapshot.trials), GALLERY)
        lines = [*status_lines(self.experiment.name, snapshot, self.experiment.goal), *failure_lines(snapshot)]
        lines += [f"Without synthesis: {line}" for line in rival_lines(self.experiment)]
        reload = None if every is None or snapshot.is_over else max(FASTEST_RELOAD, ceil(every))
        live = Live(lines, f"{snapshot.now:%Y-%m-%d %H:%M:%S}", reload)
        write_whole(file, page(run, pictures(run, SEARCH_FIGURES), live=live), durable=False)
