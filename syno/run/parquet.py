"""Tables in Parquet files with a checksum of the whole file, metadata included.

The checksum is an entry of the file's metadata, as the format provides for it, so that every reader of Parquet reads these
files. It is computed with zeros in its own place. Parquet's checksums of pages would leave the metadata uncovered.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.base.addresses import cleaned
from syno.base.errors import SpecError
from syno.base.files import CHECKSUM_DIGITS, checksum, write_whole

if TYPE_CHECKING:
    import pandas

KEY, MARK = b"syno.checksum", b"128 bits of blake2b: "  # the mark stands before the digits
ZEROS = b"0" * CHECKSUM_DIGITS
PLACE = re.compile(re.escape(MARK) + rb"([0-9a-f]{%d})" % CHECKSUM_DIGITS)


def write_parquet(table: pandas.DataFrame, file: Path) -> None:
    """Write a table and its checksum to a file, atomically. Equal tables give equal files."""
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
    """Return the table in a file.

    Args:
        file: The file.
        made_by: The command that makes it, for messages.
        columns: The names of columns that it must have; it may have more.

    Raises SpecError if the file is missing, holds no table, lacks a column, or does not agree with its checksum.
    """
    if not file.is_file():
        raise SpecError(f"{file} is not there; `{made_by}` makes it")
    try:
        table: pandas.DataFrame = _cleaned(_table(file.read_bytes()))
    except Exception as error:  # a damaged file raises anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(f"{file} holds no table: {reason}; delete it and run `{made_by}` again") from error
    for column in columns:
        if column not in table:
            raise SpecError(f'{file} holds no table with a column "{column}"; delete it and run `{made_by}` again')
    return table


def _cleaned(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table with all texts and names of columns cleaned of passwords (`syno.base.addresses.cleaned`)."""
    changed = {}
    for name in table.select_dtypes(["object", "str"]).columns:
        texts = table[name].tolist()
        shown = cleaned(texts, name)
        if any(one is not other for one, other in zip(texts, shown, strict=True)):
            changed[name] = shown
    named = {name: cleaned(name) for name in table.columns if cleaned(name) != name}
    found = table.assign(**changed) if changed else table
    return found.rename(columns=named) if named else found


def _table(content: bytes) -> Any:
    """Return the table in the content of a file. Raise ValueError if it was damaged, or whatever Arrow and pandas raise."""
    import pyarrow.parquet

    places = list(PLACE.finditer(content))
    if not places:
        raise ValueError("it has no checksum, so it was damaged, or is no table of Syno")
    first, last = places[-1].span(1)
    view = memoryview(content)
    if places[-1][1].decode() != checksum(view[:first], ZEROS, view[last:]):
        raise ValueError("it does not agree with its checksum, so it was damaged, or changed, after it was written")
    return pyarrow.parquet.ParquetFile(io.BytesIO(content)).read().to_pandas()
