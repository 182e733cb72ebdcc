"""Whole models in TVM: imported from PyTorch, tuned with MetaSchedule, compiled. Importing it does not import TVM."""
