"""The comparison of policies on the table of truth, and its command."""

import math
from dataclasses import replace

import numpy
import pandas
import pytest
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.cli import app
from syno.paper.replay import OperatorTable, Subset
from syno.paper.replay.comparison import Contender, Run, Searches, p_value, quartiles, summary
from syno.paper.replay.report import PARTS
from syno.paper.replay.table import FOLDER
from syno.search.policies import RandomWalk


class Lengthy(RandomWalk):
    """A policy of a user's own."""


@pytest.fixture(scope="module")
def known() -> Searches:
    """Two searches by hand: the second operator of one succeeds, after 30 CPU-seconds, and none of the other."""
    table = OperatorTable.read()
    good, bad = ([one for one in table.entries.values() if table.succeeds(one, 0) is which] for which in (True, False))
    runs = [
        Run(0, (bad[0].id, good[0].id, bad[1].id), (10.0, 30.0, 60.0), (1, 2, 3)),
        Run(1, (bad[1].id, bad[0].id), (30.0, 40.0), (1, 2)),
    ]
    return Searches(table, Contender("random", "random"), Subset.ALL, 3, runs)


def test_success_is_counted_in_trials_and_in_seconds(known) -> None:
    assert known.trials_to_success.tolist() == [2, math.inf]
    assert known.seconds_to_success.tolist() == [30, math.inf]
    (row,) = summary([known])
    assert row["trials to success, median"] == "2" and row["quartiles"] == "2 to > 3" and row["succeed"] == "50%"


def test_best_so_far_counts_cheap_operators_only(known) -> None:
    table = known.table
    values = [
        [one.accuracy(0) if one.flops <= 0.45 * table.original.flops else 0.0 for one in map(table.entries.get, run.ids)]
        for run in known.runs
    ]
    first, second = (list(numpy.maximum.accumulate(row)) for row in values)
    assert known.best_so_far.tolist() == [first, [*second, second[-1]]]
    assert known.best_at(numpy.array([5.0, 30.0, 59.0, 60.0])).tolist() == [
        [0.0, first[1], first[1], first[2]],
        [0.0, second[0], second[1], second[1]],
    ]


def test_quartiles_and_p_values_take_searches_without_success() -> None:
    assert quartiles(numpy.array([1, 2, 3, math.inf])) == (1, 2, 3)
    assert quartiles(numpy.array([1, math.inf, math.inf, math.inf])) == (1, math.inf, math.inf)
    few, many = numpy.arange(1.0, 21), numpy.full(20, math.inf)
    assert p_value(few, many) < 1e-6 and p_value(many, many) > 0.4


@pytest.mark.parametrize(
    ("given", "words"),
    [("mctss", 'Did you mean "mcts"'), ("{name: mcts, explore: 1}", "no such option"), ("{explore: 1}", "has no name")],
)
def test_a_policy_that_is_none_is_refused(given, words) -> None:
    with pytest.raises(Exception, match=words) as raised:
        Contender.of(given)
    assert isinstance(raised.value, SpecError) or "UnknownName" in type(raised.value).__name__


def test_the_command_compares_a_policy_of_ones_own(tmp_path) -> None:
    given = ["bench", "policies", "--policy", f"{__name__}:Lengthy", "--seeds", "3", "--trials", "4", "--requirements"]
    printed = CliRunner().invoke(app, [*given, "--output", str(tmp_path)])
    assert printed.exit_code == 0, printed.output
    runs = pandas.read_csv(tmp_path / "policies-runs.csv", comment="#")
    assert runs.groupby("policy")["trials"].sum().to_dict() == {"random": 12, "Lengthy": 12}
    assert {file.name for file in tmp_path.iterdir()} == {"policies.csv", "policies-runs.csv", "policies.svg", "policies.png"}


def test_a_comparison_goes_on_where_it_was_stopped(tmp_path, monkeypatch) -> None:
    from syno.base.progress import LogDisplay
    from syno.paper.replay import report as replays

    made, search = [], replays.Run.of

    def stopping(*given: object) -> Run:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(given[3])
        return search(*given)

    def compare() -> Searches:
        contender = Contender("random", "random")
        options = {"seeds": 5, "trials": 3, "parts": tmp_path / PARTS, "folder": FOLDER, "display": LogDisplay()}
        (found,) = replays.compare([contender], [Subset.NATURAL], **options)
        return found

    monkeypatch.setattr(replays.Run, "of", stopping)
    with pytest.raises(KeyboardInterrupt):
        compare()
    monkeypatch.setattr(replays.Run, "of", lambda *given: made.append(given[3]) or search(*given))
    assert [replace(run) for run in compare().runs] == [
        search(OperatorTable.read(), Contender("random", "random"), Subset.NATURAL, seed, 3) for seed in range(5)
    ]
    assert made == [0, 1, 2, 3, 4]
