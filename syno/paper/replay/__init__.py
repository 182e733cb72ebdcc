"""Replays of searches on a table of operators that were all trained: no space, no training, the same in every process.

>>> table = OperatorTable.read()
>>> trials = replay(table, RandomWalk, tree=table.tree(Subset.REQUIRED), seed=0, trials=20)
>>> max(trial.accuracy for trial in trials)
"""

from syno.paper.replay.entries import Original, TableEntry
from syno.paper.replay.replay import REWARD, ReplayedTrial, Stops, milestones, replay
from syno.paper.replay.stopping import TableTree
from syno.paper.replay.table import OperatorTable, Subset

__all__ = [
    "REWARD",
    "OperatorTable",
    "Original",
    "ReplayedTrial",
    "Stops",
    "Subset",
    "TableEntry",
    "TableTree",
    "milestones",
    "replay",
]
