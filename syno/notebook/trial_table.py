"""The table of a study's trials, as notebooks show it."""

from __future__ import annotations

import pandas

from syno.report.results import shown_metrics

ID_DIGITS = 8
FIRST = ("number", "outcome", "reward")


class TrialTable(pandas.DataFrame):
    """A pandas frame with a row for each trial and the columns of `syno.search.storage.records.table`.

    When it is printed or shown by a notebook, it has the columns that matter: the outcome, the reward, the metrics of the
    operator, its id. What is taken from it, such as some of its columns, is a plain frame.
    """

    @property
    def short(self) -> pandas.DataFrame:
        """The columns that are shown: metrics under their own names, the first digits of the operator's id, and messages."""
        metrics, whole = shown_metrics(self), pandas.DataFrame(self)
        found = whole[[name for name in (*FIRST, *metrics, "seconds") if name in whole]].rename(columns=metrics)
        if "operator" in whole:
            found["operator"] = [text.rstrip().rpartition("id ")[2][:ID_DIGITS] for text in whole["operator"]]
        if "message" in whole and whole["message"].any():
            found["message"] = [text.partition("\n")[0] for text in whole["message"]]
        return found.set_index("number").rename_axis(index=None, columns="number") if "number" in found else found

    def __repr__(self) -> str:
        return repr(self.short)

    def _repr_html_(self) -> str:
        """Return the table that notebooks show in place of the repr."""
        return str(self.short.to_html(max_rows=60, border=0))
