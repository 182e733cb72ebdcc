"""Rows of a data set of the Hub: from local Parquet files, from the cache of `datasets`, or by download."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from syno.base.errors import DataError, one_line
from syno.data.files import how_to_download, not_at_hand
from syno.data.settings import Cifar100Settings, Lm1bSettings

ROWS = 1000  # rows read at once
MOST_RATIO = 200  # largest ratio of a column's bytes to its compressed bytes
MOST_BYTES = 2**26  # size of a column up to which the ratio does not matter


def rows_of_files(files: Sequence[Path], columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield (file name, table with some of the file's rows and these columns).

    DataError, with the file name, for a damaged file.
    """
    import pyarrow
    import pyarrow.parquet

    for file in files:
        try:
            opened = pyarrow.parquet.ParquetFile(file)
            _check_columns(str(file), opened.schema_arrow.names, columns)
            _check_sizes(opened.metadata, columns)
            for batch in opened.iter_batches(batch_size=ROWS, columns=list(columns)):
                yield str(file), pyarrow.Table.from_batches([batch])
        except DataError:
            raise
        except Exception as error:  # a damaged file raises anything
            raise DataError(f"{file} cannot be read as Parquet: {one_line(error)}; copy it again") from error


def _check_sizes(metadata: Any, columns: Sequence[str]) -> None:
    """Raise ValueError if these columns of a Parquet file would fill the memory when decompressed."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for part in map(group.column, range(group.num_columns)):
            size, stored = part.total_uncompressed_size, part.total_compressed_size
            if part.path_in_schema.split(".")[0] in columns and size > max(MOST_BYTES, MOST_RATIO * stored):
                raise ValueError(f"{part.path_in_schema} has {size:,} bytes, compressed to {stored:,}: it may be an attack")


def rows_of_hub(
    settings: Cifar100Settings | Lm1bSettings, split: str, columns: Sequence[str], absent: str
) -> Iterator[tuple[str, Any]]:
    """Yield tables of a repository on the Hub as `rows_of_files` does, through `datasets`.

    `datasets` caches downloads in HF_HOME. Without `download`, only this cache is read, or a repository that is a local folder,
    without access to the network.

    Raises DataError if the data cannot be downloaded; or if it is not cached and the settings do not allow a download, with the
    message `absent`, which names the missing files.
    """
    import datasets

    repository = settings.repository
    place = f'"{repository}", {split}'
    try:
        with nullcontext() if settings.download else _without_network():
            dataset = datasets.load_dataset(repository, split=split)
    except Exception as error:  # the network and a repository raise anything
        if not settings.download and isinstance(error, OSError):  # among them are ConnectionError and FileNotFoundError
            raise not_at_hand(settings, absent) from None
        source = "had from the Hub" if settings.download else "read from the cache of `datasets`"
        instead = f"or copy it to {settings.folder}: {how_to_download(settings)}"
        raise DataError(f"{place} cannot be {source}: {one_line(error)}; {instead}") from error
    _check_columns(place, dataset.column_names, columns)
    as_stored = {name: kind for name, kind in dataset.features.items() if type(kind).__name__ == "Image"}
    for name in as_stored:
        dataset = dataset.cast_column(name, datasets.Image(decode=False))
    for table in dataset.select_columns(list(columns)).with_format("arrow").iter(ROWS):
        yield place, table


@contextmanager
def _without_network() -> Iterator[None]:
    """Switch `datasets` to offline mode in the block. Its own switch, an environment variable, is only read at import."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _check_columns(place: str, columns: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in columns:
            raise DataError(f'{place} has no column "{name}"; it has: {", ".join(columns)}')
