"""Settings: pydantic models that say what a config may hold, and read it."""

from syno.config.experiment import Experiment
from syno.config.files import find_space, load_experiment, load_experiments

__all__ = ["Experiment", "find_space", "load_experiment", "load_experiments"]
