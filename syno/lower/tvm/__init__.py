"""TVM generator: a plan as tensor expressions, one function per stage. Importing it does not import TVM."""

from syno.lower.tvm.source import TeStage, te_stages, to_te_source
from syno.lower.tvm.stages import StageFunction, prim_functions, stage_functions

__all__ = ["StageFunction", "TeStage", "prim_functions", "stage_functions", "te_stages", "to_te_source"]
