"""The data that the paper's authors published: reading its measurements and operators."""

from syno.run import IMPORT_NUMBERS as NUMBERS
from syno.run import IMPORT_RECORD as RECORD

__all__ = ["NUMBERS", "RECORD"]
