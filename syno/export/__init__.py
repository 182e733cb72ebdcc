"""Write an operator to a file that works without Syno, after a check that it computes what the operator means."""

from syno.export.formats import FORMATS, Format, check_own, take_home

__all__ = ["FORMATS", "Format", "check_own", "take_home"]
