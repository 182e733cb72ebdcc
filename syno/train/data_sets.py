"""Data sets made by name: by functions of the project, or by your own (`package.module:function`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syno.base.errors import DataError, SpecError, SynoError, UserCodeError
from syno.base.registry import is_path
from syno.base.user_code import check_arguments, unchanged_process, user_code
from syno.data import DATASETS, PictureData, TokenSet
from syno.model.network_function import kind_of

OF_PICTURE_DATA = ("name", "classes", "hash", "image_shape", "train_count", "test_count", "train_batches", "test_batches")
DATA_SEED = 0  # of random numbers that a user's own function draws, such as for a split, so that all processes have equal data


def load_data(name: str, settings: Mapping[str, Any]) -> PictureData | TokenSet:
    """Call a data set's function by name with these settings, and return the data set.

    Raises:
        UnknownNameError: there is no such data set.
        SpecError: the function cannot be imported, or a setting is unknown.
        DataError: the data is missing or damaged.
        UserCodeError: the user's own function raised an exception, or returned no data set.
    """
    load = DATASETS.find(name)
    if is_path(name):
        return _own_data(load, name, settings)
    try:
        data: PictureData | TokenSet = load(**settings)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise SpecError(f'workload.data_settings, of the data set "{name}": {error}') from error
    return data


def _own_data(load: Callable[..., Any], name: str, settings: Mapping[str, Any]) -> PictureData | TokenSet:
    what = f'the data set "{name}"'
    check_arguments(load, f"{what} (workload: data_settings)", settings)
    with unchanged_process(DATA_SEED), user_code(what):
        try:
            data = load(**settings)
        except SynoError as error:
            if isinstance(error, DataError):
                raise DataError(f"{what}: {error}") from error
            raise
        missing = [] if isinstance(data, TokenSet) else [part for part in OF_PICTURE_DATA if not hasattr(data, part)]
    if missing:
        raise UserCodeError(
            f"{what} returned {kind_of(data)}, which has no {', '.join(missing)}; return a DataSet or a TokenSet "
            "(syno.data), or an object that has these attributes"
        )
    checked: PictureData | TokenSet = data
    return checked
