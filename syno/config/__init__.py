"""Settings: pydantic models that say what a config may hold, and read it."""

from syno.config.experiment import Experiment
from syno.config.several import load_experiment, load_experiments
from syno.config.spaces import find_space

__all__ = ["Experiment", "find_space", "load_experiment", "load_experiments"]
