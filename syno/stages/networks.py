"""The keys of the networks that an experiment trains and measures, before and after the selection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from syno.base.files import ORIGINAL
from syno.model.networks import NUMBER_FORMATS, Network, Role

if TYPE_CHECKING:
    from syno.config import Experiment


def keys(experiment: Experiment, selected: Sequence[str] | None = None) -> list[str]:
    """Return the keys of the networks that are trained: the original, the baselines, and those with selected operators.

    Without `selected`, as before the selection, there are as many as may be selected, as `selected1`, `selected2` and so on.
    """
    found = _placeholders("selected", most_selected(experiment)) if selected is None else selected
    return [ORIGINAL, *experiment.baselines, *found]


def shortlist_keys(experiment: Experiment, shortlisted: Sequence[str] | None = None) -> list[str]:
    """Return the keys of the networks that are measured for a selection by latency; they include the selected operators.

    Without `shortlisted`, before there is a shortlist, the keys are `shortlisted1`, `shortlisted2` and so on, up to the
    longest possible shortlist.
    """
    return keys(experiment, _placeholders("shortlisted", experiment.select.shortlist) if shortlisted is None else shortlisted)


def most_selected(experiment: Experiment) -> int:
    """Return the largest number of selected operators: by latency, at most one for each pair of a compiler and a device."""
    select = experiment.select
    if not experiment.compares_latencies:
        return select.most
    return min(select.count, select.shortlist, *([len(experiment.tune.pairs)] if select.by == "latency" else []))


def converted(experiment: Experiment, selected: Iterable[str]) -> list[Network]:
    """Return the networks with selected operators in the number formats in which the experiment tests them."""
    formats = [NUMBER_FORMATS[name] for name, which in experiment.number_formats.items() if which == "all"]
    return [Network(key, precision, Role.FOUND) for precision in formats for key in selected]


def _placeholders(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(1, count + 1)]


def measured(experiment: Experiment, networks: Sequence[str]) -> list[str]:
    """Return those of the keys `networks` whose networks' latencies the experiment measures."""
    return [key for key in networks if experiment.tune.baselines or key not in experiment.baselines]
