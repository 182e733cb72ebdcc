"""Settings: pydantic models that say what a config may hold, and read it."""

from syno.config.experiment import Experiment
from syno.config.several import load_experiment, load_experiments
from syno.config.specs import find_spec

__all__ = ["Experiment", "find_spec", "load_experiment", "load_experiments"]
