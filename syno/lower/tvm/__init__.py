"""The TVM code generator: a plan becomes tensor expressions, one function for each stage. Importing it does not import TVM."""

from syno.lower.tvm.source import StageFunction, TeStage, prim_functions, stage_functions, te_stages, to_te_source

__all__ = ["StageFunction", "TeStage", "prim_functions", "stage_functions", "te_stages", "to_te_source"]
