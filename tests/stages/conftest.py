"""A small experiment that has been run."""

from __future__ import annotations

import pytest
from small_experiment import FIELDS

from syno.config import Experiment
from syno.stages.data import prepare
from syno.stages.measure import measure
from syno.stages.search import work
from syno.stages.select import select
from syno.stages.study import freeze
from syno.stages.tables import make_tables
from syno.stages.train import train


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment that has been searched, with some operators trained and measured again. A test that changes it mends it."""
    experiment = Experiment(**FIELDS, output=tmp_path_factory.mktemp("results") / "small")
    prepare(experiment)
    work(experiment, 1)
    freeze(experiment)
    chosen = select(experiment)
    for key in ("original", "separable_conv2d", chosen[0].key):
        for seed in experiment.train.seeds:
            train(experiment, key, seed)
    measure("tune", experiment, "original", "eager", "cpu")
    measure("tune", experiment, chosen[0].key, "eager", "cpu")
    make_tables(experiment)
    return experiment
