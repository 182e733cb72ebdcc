"""The reproduction of the paper: its published data and numbers, its figures, ablations, and policies on a table of truth.

It is an extension (`syno.base.extensions`): the rest of Syno imports nothing of it, and works without it.
"""
