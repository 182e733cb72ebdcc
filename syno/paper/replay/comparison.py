"""Comparison of policies on a table: the trials until each finds a successful operator, over many seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray
from pydantic import ValidationError

from syno.base.errors import SpecError
from syno.base.validation import explained
from syno.base.yaml_text import parse_yaml
from syno.paper.replay.replay import SEARCH_SEED, ReplayedTrial, replay
from syno.paper.replay.table import OperatorTable, Subset
from syno.search.halving import HalvingSettings
from syno.search.policies import POLICIES, Policy

FLOPS, LOSE = 0.45, 0.01  # success: at most this share of the FLOPs, and at most this much less accurate than the original
BLIND = "random"  # the policy that the others are compared with


@dataclass(frozen=True)
class Contender:
    """A policy with its settings.

    Attributes:
        name: the name in tables and figures.
        policy: the name of a policy or the path `package.module:MyPolicy`.
        settings: the policy's settings that differ from the defaults.
    """

    name: str
    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Contender:
        """Return the contender of a text: a policy's name or path, or a YAML mapping such as {name: mcts, exploration: 0.5}.

        Raises UnknownNameError or SpecError if there is no such policy or setting.
        """
        read = parse_yaml(text, "the policy") if text.lstrip().startswith("{") else {"name": text}
        if not isinstance(read.get("name"), str):
            raise SpecError(f"the policy {text} has no name; give one, as in {{name: mcts, exploration: 0.5}}")
        settings = {key: value for key, value in read.items() if key != "name"}
        label = " ".join([read["name"].rpartition(":")[2], *(f"{key}={value}" for key, value in settings.items())])
        made = cls(label, read["name"], settings)
        made.make(None, 0)
        return made

    @property
    def kind(self) -> type[Policy]:
        """The class of the contender's policy."""
        return POLICIES.find(self.policy)

    def make(self, tree: Any, seed: int) -> Policy | None:
        """Return the policy for a tree and a seed; None without a tree, which checks the settings only."""
        kind = self.kind
        try:
            settings = kind.Settings(**self.settings)
        except ValidationError as error:
            raise SpecError(f"policy {self.name}: {explained(error, kind.Settings)}") from None
        return None if tree is None else kind(tree, seed, settings=settings)


@dataclass(frozen=True)
class Run:
    """One search on the table: its operators in the order in which their trainings ended, and the times of these ends.

    Attributes:
        seed: the seed of the policy.
        ids: ids of the operators.
        finished: for each operator, the CPU-seconds from the start to the end of its training.
        begun: for each operator, the number of trials begun by then.
    """

    seed: int
    ids: tuple[str, ...]
    finished: tuple[float, ...]
    begun: tuple[int, ...]

    @classmethod
    def of(
        cls,
        table: OperatorTable,
        contender: Contender,
        subset: Subset,
        seed: int,
        trials: int,
        stopping: HalvingSettings | None = None,
    ) -> Run:
        """Search the table, and return the run. Operators whose trainings `stopping` ended early are left out."""

        def make(tree: Any, seed: int) -> Policy:
            policy = contender.make(tree, seed)
            assert policy is not None
            return policy

        replayed = replay(table, make, seed=seed, trials=trials, tree=table.tree(subset), stopping=stopping)
        ended: list[ReplayedTrial] = [one for one in replayed if not one.stopped]
        return cls(
            seed,
            tuple(one.entry.id for one in ended),
            tuple(one.finished for one in ended),
            tuple(one.begun for one in ended),
        )


@dataclass(frozen=True)
class Searches:
    """The searches of one policy on one part of a table.

    Attributes:
        table: the table.
        contender: the policy.
        subset: the part.
        trials: the number of trials of each search; fewer if no operator is left.
        runs: the searches, one for each seed.
    """

    table: OperatorTable
    contender: Contender
    subset: Subset
    trials: int
    runs: Sequence[Run]

    def first_success(self, run: Run, seed: int | None = SEARCH_SEED) -> int | None:
        """Return the index in a run of the first successful operator (`OperatorTable.succeeds`); None if there is none.

        Success is judged by the accuracies of one training seed, by default the search's; None: by means over seeds.
        """
        entries = self.table.entries
        found = (
            number for number, id_ in enumerate(run.ids) if self.table.succeeds(entries[id_], seed, lose=LOSE, flops=FLOPS)
        )
        return next(found, None)

    def trials_of(self, run: Run, seed: int | None = SEARCH_SEED) -> int | None:
        """Return the number of trials begun when a search found its first successful operator; None if it found none."""
        first = self.first_success(run, seed)
        return None if first is None else run.begun[first]

    @cached_property
    def trials_to_success(self) -> NDArray[numpy.float64]:
        """Trials until the first success, infinite for searches without one. Shape [runs]."""
        return numpy.array([self.trials_of(run) or math.inf for run in self.runs])

    @cached_property
    def seconds_to_success(self) -> NDArray[numpy.float64]:
        """CPU-seconds of training until success, infinite where a search found none. Shape [runs]."""
        firsts = [self.first_success(run) for run in self.runs]
        return numpy.array(
            [math.inf if first is None else run.finished[first] for run, first in zip(self.runs, firsts, strict=True)]
        )

    @cached_property
    def best_so_far(self) -> NDArray[numpy.float64]:
        """The best accuracy after each trial among operators of at most 45 % of the FLOPs. Shape [runs, trials].

        The value is 0 before the first such operator. A search that ended early keeps its last value.
        """
        found = numpy.zeros((len(self.runs), self.trials))
        for row, run in zip(found, self.runs, strict=True):
            numpy.maximum.at(row, numpy.array(run.begun, dtype=int) - 1, self._values(run))
        return numpy.maximum.accumulate(found, axis=1)

    def _values(self, run: Run) -> list[float]:
        most = FLOPS * self.table.original.flops
        found = map(self.table.entries.__getitem__, run.ids)
        return [one.accuracy(SEARCH_SEED) if one.flops <= most else 0.0 for one in found]

    def best_at(self, seconds: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """Return `best_so_far` after these CPU-seconds instead of after each trial. Shape [runs, times]."""
        found = numpy.zeros((len(self.runs), len(seconds)))
        for row, run in zip(found, self.runs, strict=True):
            best = numpy.maximum.accumulate([0.0, *self._values(run)])
            ended = numpy.searchsorted(numpy.array(run.finished), seconds, side="right")
            row[:] = best[ended]
        return found


def quartiles(values: NDArray[numpy.float64]) -> tuple[float, float, float]:
    """Return the quartiles of values, some of which may be infinite; each is one of the values."""
    low, middle, high = numpy.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf")
    return float(low), float(middle), float(high)


def p_value(ours: NDArray[numpy.float64], others: NDArray[numpy.float64]) -> float:
    """Return the p-value of the one-sided Mann-Whitney test that `ours` are smaller than `others`. Infinities are ties."""
    from scipy.stats import mannwhitneyu

    largest = 1 + max((float(one) for one in (*ours, *others) if math.isfinite(one)), default=0.0)
    finite = [numpy.where(numpy.isfinite(values), values, largest) for values in (ours, others)]
    return float(mannwhitneyu(*finite, alternative="less").pvalue)


def summary(searches: Sequence[Searches]) -> list[dict[str, object]]:
    """Return a row for each policy and part: trials and CPU-seconds until success, and the number of successes."""
    rows = []
    for one in searches:
        blind = next((other for other in searches if (other.contender.policy, other.subset) == (BLIND, one.subset)), None)
        mean = [one.first_success(run, None) is not None for run in one.runs]
        trials, seconds = quartiles(one.trials_to_success), quartiles(one.seconds_to_success)
        rows.append(
            {
                "policy": one.contender.name,
                "operators": f"{one.subset} ({len(one.table.subset(one.subset))})",
                "seeds": len(one.runs),
                "trials to success, median": _count_text(trials[1], one.trials),
                "quartiles": f"{_count_text(trials[0], one.trials)} to {_count_text(trials[2], one.trials)}",
                "CPU-seconds, median": _count_text(round(seconds[1]) if math.isfinite(seconds[1]) else math.inf, None),
                "succeed": f"{numpy.isfinite(one.trials_to_success).mean():.0%}",
                "by the mean of seeds": f"{numpy.mean(mean):.0%}",
                "p against random": None
                if blind is None or blind is one
                else _p(p_value(one.trials_to_success, blind.trials_to_success)),
            }
        )
    return rows


def _count_text(value: float, trials: int | None) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "none" if trials is None else f"> {trials}"


def _p(value: float) -> str:
    return f"{value:.1e}" if value < 0.001 else f"{value:.3f}"
