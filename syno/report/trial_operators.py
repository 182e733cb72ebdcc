"""The operators of trials: their names on the page, and their ids."""

from __future__ import annotations

import re
from typing import NamedTuple

from syno.report.results import TRIAL_COLUMNS, Results, complete

_ID = re.compile(r"^id ([0-9a-f]+)\s*$", re.MULTILINE)  # the last line of an operator's text


class TrialOperator(NamedTuple):
    """A trial's operator.

    Attributes:
        name: as in the other tables of the page, if it is in them; else that of the store, by the first trial that found it.
        id: of the operator; "" if the table does not have it.
    """

    name: str
    id: str


def trial_operators(results: Results) -> dict[int, TrialOperator]:
    """Return the operator of each trial, by the trial's number.

    All trials of a study have one name, which is that of the network. So an operator is recognized by its id.
    """
    known = {operator.id: name for name, operator in results.operators.items()}
    found: dict[int, TrialOperator] = {}
    for row in complete(results.trials, TRIAL_COLUMNS, "trials").to_dict("records"):
        number, name = int(row["number"]), str(row.get("name", ""))
        ids = _ID.findall(str(row.get("operator", "")))
        id_ = ids[-1] if ids else ""
        if id_:
            name = known.setdefault(id_, f"{results.name}_{number}")
        found[number] = TrialOperator(name, id_)
    return found
