"""The data that the paper's authors published: reading its measurements and operators."""

from syno.paper.places import NUMBERS, RECORD

__all__ = ["NUMBERS", "RECORD"]
