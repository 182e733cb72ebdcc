"""TVM for whole networks: import from PyTorch, tuning with MetaSchedule, compilation. Importing this does not import TVM."""
