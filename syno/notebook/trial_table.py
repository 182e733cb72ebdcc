"""The table of a study's trials, as notebooks show it."""

from __future__ import annotations

import pandas

from syno.report.results import shown_metrics

FIRST, LAST = ("number", "outcome", "reward"), ("seconds", "name")


class TrialTable(pandas.DataFrame):
    """A pandas frame with a row for each trial and the columns of `syno.search.storage.records.table`.

    When it is printed or shown by a notebook, it has the columns that matter: the outcome, the reward, the metrics of the
    operator. Everything else that is taken from it, such as some of its columns, is a plain frame.
    """

    @property
    def short(self) -> pandas.DataFrame:
        """The columns that are shown; metrics under their own names, numbered by trial."""
        metrics = shown_metrics(self)
        found = pandas.DataFrame(self)[[name for name in (*FIRST, *metrics, *LAST) if name in self.columns]]
        return found.rename(columns=metrics).set_index("number") if "number" in found else found

    def __repr__(self) -> str:
        return repr(self.short)

    def _repr_html_(self) -> str:
        """Return the table that notebooks show in place of the repr."""
        return str(self.short.to_html(max_rows=60, border=0))
