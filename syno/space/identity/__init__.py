"""Identity of operators: whether two of them compute the same, or nearly the same.

`fingerprint` names what an operator computes, at small sizes that `valuations` chooses; `fusing` takes sizes out of an operator
that do not matter. `agreement` measures how nearly two operators are the same.
"""
