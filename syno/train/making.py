"""Networks and data sets made by name: by functions of the project, or by your own (`package.module:function`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from torch import nn

from syno.base.errors import DataError, SpecError, SynoError, UserCodeError
from syno.base.registry import Registry
from syno.base.user_code import check_arguments, user_code
from syno.data import DATASETS, PictureData, TokenSet
from syno.model.network_function import arguments_taken, call

OF_PICTURE_DATA = ("name", "classes", "hash", "image_shape", "train_count", "test_count", "train_batches", "test_batches")


def is_own(name: str) -> bool:
    """Return whether a name means a user's own function: `package.module:function`."""
    return ":" in name


def make_network(models: Registry[Callable[..., Any]], name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Call a function by name, and return the network that it makes.

    Args:
        models: registry of the project's functions.
        name: of one of them, or of the user's own function.
        arguments: of the call; a function of the user's own need not take all of them (`syno.model.network_function`).

    Raises:
        UnknownNameError: there is no such function; SpecError: it cannot be imported.
        UserCodeError: it needs other arguments, raised an exception, or returned no network.
    """
    make, what = models.find(name), f'the model "{name}"'
    if is_own(name):
        check_arguments(make, what, arguments_taken(make, arguments))
    with user_code(what) if is_own(name) else nullcontext():
        made = call(make, arguments)
    if not isinstance(made, nn.Module):
        raise UserCodeError(f"{what} returned {_kind(made)}; it must return the network, an nn.Module")
    return made


def load_data(name: str, settings: Mapping[str, Any]) -> PictureData | TokenSet:
    """Call a data set's function by name with these settings, and return the data set.

    Raises:
        UnknownNameError: there is no such data set.
        SpecError: the function cannot be imported, or a setting is unknown.
        DataError: the data is missing or damaged.
        UserCodeError: the user's own function raised an exception, or returned no data set.
    """
    load = DATASETS.find(name)
    if is_own(name):
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
    with user_code(what):
        try:
            data = load(**settings)
        except SynoError as error:
            if isinstance(error, DataError):
                raise DataError(f"{what}: {error}") from error
            raise
        missing = [] if isinstance(data, TokenSet) else [part for part in OF_PICTURE_DATA if not hasattr(data, part)]
    if missing:
        raise UserCodeError(
            f"{what} returned {_kind(data)}, which has no {', '.join(missing)}; return a DataSet or a TokenSet "
            "(syno.data), or an object that has these attributes"
        )
    checked: PictureData | TokenSet = data
    return checked


def _kind(value: object) -> str:
    """Return the type of a value in words, with an article."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
