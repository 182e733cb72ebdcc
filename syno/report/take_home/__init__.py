"""Taking an operator home: a file in a format of choice, compared with what the operator means before it is written."""

from syno.report.take_home.formats import FORMATS, Format, check_own
from syno.report.take_home.source import take_home

__all__ = ["FORMATS", "Format", "check_own", "take_home"]
