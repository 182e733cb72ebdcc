"""A small experiment that has been run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_once import made_once
from small_experiment import FIELDS

from syno.config import Experiment
from syno.stages.data import prepare
from syno.stages.measurements import measure
from syno.stages.search import work
from syno.stages.select import select
from syno.stages.study import freeze
from syno.stages.tables import make_tables
from syno.stages.train import train


def run(folder: Path) -> None:
    """Search, and train and measure some of the networks."""
    experiment = Experiment(**FIELDS, output=folder / "small")
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


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment that has been searched, with some operators trained and measured again. A test that changes it mends it.

    Each process of pytest has a copy.
    """
    folder = tmp_path_factory.mktemp("results") / "small"
    shutil.copytree(made_once(tmp_path_factory, "searched", run) / "small", folder)
    return Experiment(**FIELDS, output=folder)
