"""`syno.plot` of the folder of an experiment's results."""

from __future__ import annotations

import matplotlib
import pytest
from matplotlib import pyplot as plt
from result_tables import read_tables

import syno
from syno.base.errors import SpecError
from syno.config import Experiment
from syno.stages.study import read_frozen

matplotlib.use("Agg")


@pytest.mark.parametrize("cost", ["flops", "latency_ms"])
def test_the_front_of_results_is_that_of_their_trained_networks(done: Experiment, cost: str) -> None:
    axes = syno.plot.front(done.folder, cost=cost)
    scores, latency = read_tables(done)
    known = scores if cost == "flops" else latency.merge(scores[["operator", "score"]], on="operator")
    marks = {
        (one.get_xdata()[0], one.get_ydata()[0]) for one in axes.lines if one.get_marker() in "Dso" and len(one.get_xdata())
    }
    assert marks == set(zip(known[cost], known["score"], strict=True)) and len(marks) >= 2
    plt.close(axes.figure)


def test_trials_of_results_are_plotted(done: Experiment) -> None:
    trials = read_frozen(done)
    axes = syno.plot.best_so_far(str(done.folder))
    assert max(axes.lines[-1].get_ydata()) == trials["reward"].max()
    features = syno.plot.parallel_coordinates(done.folder, columns=["FLOPs"])
    assert (
        len([one for one in features.lines if len(one.get_xdata()) == 2 and one.get_linewidth() > 1])
        == trials["reward"].count()
    )
    plt.close("all")


def test_what_results_do_not_have_is_named(done: Experiment) -> None:
    with pytest.raises(SpecError, match="no layer was measured"):
        syno.plot.layer_latency(done.folder)
    with pytest.raises(SpecError, match="results have flops, parameters, latency_ms and time"):
        syno.plot.front(done.folder, cost="seconds")
    with pytest.raises(SpecError, match="neither a config nor a folder of results"):
        syno.plot.front("no_such_folder")
