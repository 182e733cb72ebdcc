"""Identity of operators: whether two of them compute the same, or nearly the same.

`fingerprint` hashes the function that an operator computes, at small sizes that `valuations` chooses (it first removes sizes
that do not matter). `agreement` measures how nearly two operators are the same.
"""
