"""Tables in Parquet files with a checksum of the whole file: of data and metadata alike.

The checksum is an entry of the file's metadata, as the format provides for it, so that every reader of Parquet reads these
files. It is computed with zeros in its own place. Parquet's checksums of pages would leave the metadata uncovered.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.errors import SpecError
from syno.base.files import CHECKSUM_DIGITS, checksum, write_whole

if TYPE_CHECKING:
    import pandas

KEY, MARK = b"syno.checksum", b"128 bits of blake2b: "  # what stands before the digits
ZEROS = b"0" * CHECKSUM_DIGITS
OF_PANDAS = {b"pandas", b"ARROW:schema"}  # all that a file of an earlier version has in its metadata
PLACE = re.compile(re.escape(MARK) + rb"([0-9a-f]{%d})" % CHECKSUM_DIGITS)


def write_parquet(table: pandas.DataFrame, file: Path) -> None:
    """Write a table with its checksum, whole. Equal tables give equal files."""
    import pyarrow
    import pyarrow.parquet

    made, stream = pyarrow.Table.from_pandas(table, preserve_index=False), io.BytesIO()
    named = made.replace_schema_metadata({KEY: b"there is one", **made.schema.metadata})
    with pyarrow.parquet.ParquetWriter(stream, named.schema) as writer:
        writer.write_table(named)
        writer.add_key_value_metadata({f"{KEY.decode()} of this file": (MARK + ZEROS).decode()})
    content = stream.getvalue()
    place = content.rindex(MARK + ZEROS) + len(MARK)
    write_whole(file, content[:place] + checksum(content).encode() + content[place + CHECKSUM_DIGITS :])


def read_parquet(file: Path, made_by: str, columns: Iterable[str] = ()) -> pandas.DataFrame:
    """Read a table.

    Args:
        file: the file. One of an earlier version, which has no checksum, is read as it is.
        made_by: the command that makes it, for messages.
        columns: names of columns that it must have; it may have more.

    Raises SpecError if the file is missing, holds no table, lacks a column, or does not agree with its checksum.
    """
    if not file.is_file():
        raise SpecError(f"{file} is not there; `{made_by}` makes it")
    try:
        table: pandas.DataFrame = _table(file.read_bytes())
    except Exception as error:  # a damaged file raises anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(f"{file} holds no table: {reason}; delete it and run `{made_by}` again") from error
    for column in columns:
        if column not in table:
            raise SpecError(f'{file} holds no table with a column "{column}"; delete it and run `{made_by}` again')
    return table


def _table(content: bytes) -> Any:
    """The table in a file. ValueError if the file was damaged, and whatever Arrow and pandas raise."""
    import pyarrow.parquet

    places = list(PLACE.finditer(content))
    if places:
        first, last = places[-1].span(1)
        view = memoryview(content)
        if places[-1][1].decode() != checksum(view[:first], ZEROS, view[last:]):
            raise ValueError("it does not agree with its checksum, so it was damaged, or changed, after it was written")
    opened = pyarrow.parquet.ParquetFile(io.BytesIO(content))
    if not places:
        _check_has_none(opened.metadata.metadata or {})
    return opened.read().to_pandas()


def _check_has_none(metadata: dict[bytes, bytes]) -> None:
    """ValueError if a file without a checksum has had one: its metadata has other entries than pandas writes."""
    if set(metadata) != OF_PANDAS or not isinstance(json.loads(metadata[b"pandas"]), dict):
        raise ValueError("its metadata is neither that of a table with a checksum nor that of an earlier version")
