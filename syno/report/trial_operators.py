"""The operators of trials: their names on the page, and their ids."""

from __future__ import annotations

import re
from typing import NamedTuple

from syno.report.results import TRIAL_COLUMNS, Results, complete

SHORT = 8  # letters of an id
_ID = re.compile(r"^id ([0-9a-f]+)\s*$", re.MULTILINE)  # the last line of an operator's text


class TrialOperator(NamedTuple):
    """A trial's operator.

    Attributes:
        name: as in the other tables of the page, if it is in them; else the trial's number and the beginning of the id.
        id: of the operator; "" if the table does not have it.
    """

    name: str
    id: str


def trial_operators(results: Results) -> dict[int, TrialOperator]:
    """Return the operator of each trial, by the trial's number.

    All trials of a study have one name, which is that of the network. So an operator is recognized by its id.
    """
    known = {operator.id: name for name, operator in results.operators.items()}
    found = {}
    for row in complete(results.trials, TRIAL_COLUMNS, "trials").to_dict("records"):
        number, name = int(row["number"]), str(row.get("name", ""))
        ids = _ID.findall(str(row.get("operator", "")))
        id_ = ids[-1] if ids else ""
        otherwise = f"trial {number} ({id_[:SHORT]})" if id_ else name
        found[number] = TrialOperator(known.get(id_, otherwise), id_)
    return found
