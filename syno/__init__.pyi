"""The public names of Syno, and where each of them is defined: `syno/__init__.py` loads them from here on first use."""

from . import plot as plot
from .algebra import Valuations as Valuations
from .algebra import VariableTable as VariableTable
from .base.errors import SynoError as SynoError
from .data import DATASETS as DATASETS
from .data import DataSet as DataSet
from .ir.builder import Builder as Builder
from .ir.coordinates import expression as expression
from .ir.coordinates import loop_nest as loop_nest
from .ir.drawing import to_dot as to_dot
from .ir.drawing import to_svg as to_svg
from .ir.graph import PGraph as PGraph
from .ir.library import OPERATORS as OPERATORS
from .ir.text import parse as parse
from .lower.choose import plan as plan
from .lower.interpreter import interpret as interpret
from .lower.loops import to_c as to_c
from .lower.pytorch.source import to_source as to_source
from .lower.tvm import to_te_source as to_te_source
from .model import build as build
from .model import prepare_for_inference as prepare_for_inference
from .model.counting import model_cost as model_cost
from .model.onnx import read_onnx as read_onnx
from .model.saved import load as load
from .model.spec import spec_for as spec_for
from .model.substitution import substitute as substitute
from .notebook.layer_times import layer_latency as layer_latency
from .notebook.speed_up import SpeedUp as SpeedUp
from .notebook.speed_up import speed_up as speed_up
from .notebook.study import Study as Study
from .notebook.training import Training as Training
from .search.policies import POLICIES as POLICIES
from .search.reward import REWARDS as REWARDS
from .space import OperatorSpec as OperatorSpec
from .space import Space as Space
from .space import preset as preset
from .space.complete import cost as cost
from .space.sample import sample as sample
from .train.metric import Metric as Metric
from .train.own_task import Task as Task

__all__: list[str]
__version__: str
