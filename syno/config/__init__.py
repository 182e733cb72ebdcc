"""Experiment settings: pydantic models that define the options of a config file, and read it."""

from syno.config.experiment import Experiment
from syno.config.files import find_space, load_any, load_experiment, load_experiments
from syno.config.kinds import AnyExperiment, make_experiment

__all__ = ["AnyExperiment", "Experiment", "find_space", "load_any", "load_experiment", "load_experiments", "make_experiment"]
