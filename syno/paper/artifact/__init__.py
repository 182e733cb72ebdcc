"""The data that the paper's authors published: reading its measurements and operators."""

from syno.results import IMPORT_NUMBERS as NUMBERS
from syno.results import IMPORT_RECORD as RECORD

__all__ = ["NUMBERS", "RECORD"]
