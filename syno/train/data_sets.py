"""Data sets and tasks by name: functions of Syno, or a user's own (`package.module:function`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syno.base.errors import DataError, SpecError, SynoError, UserCodeError
from syno.base.registry import imported, is_path
from syno.base.user_code import check_arguments, kind_of, unchanged_process, user_code
from syno.data import DATASETS, PictureData, TokenSet
from syno.train.own_task import Task, checked, task_from
from syno.train.settings import WorkloadSettings

OF_PICTURE_DATA = ("name", "classes", "hash", "image_shape", "train_count", "test_count", "train_batches", "test_batches")
DATA_SEED = 0  # seed while a user's own function runs, so that random splits are equal in all processes


def load_workload(settings: WorkloadSettings) -> PictureData | TokenSet | Task:
    """Return the data set of a workload, or the user's own task. Raises as `load_data`."""
    if settings.fit is None:
        return load_data(settings.data, settings.data_settings)
    own = {name: getattr(settings, name) for name in ("fit", "score", "example_inputs")}
    functions = {name: imported(path, f"workload: {name}") for name, path in own.items()}
    for name, function in functions.items():
        if not callable(function):
            raise SpecError(f'workload: {name} is "{own[name]}", which is no function but {function!r}')
    metric = None if settings.metric is None else settings.metric.of
    with unchanged_process(DATA_SEED):
        return task_from(functions["fit"], functions["score"], metric, functions["example_inputs"], settings.fit)


def load_data(name: str, settings: Mapping[str, Any]) -> PictureData | TokenSet | Task:
    """Call a data set's function with these settings, and return the data set, or the user's own task.

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
        data: PictureData | TokenSet | Task = load(**settings)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise SpecError(f'workload.data_settings, of the data set "{name}": {error}') from error
    return data


def _own_data(load: Callable[..., Any], name: str, settings: Mapping[str, Any]) -> PictureData | TokenSet | Task:
    source = f'the data set "{name}"'
    check_arguments(load, f"{source} (workload: data_settings)", settings)
    with unchanged_process(DATA_SEED), user_code(source):
        try:
            data = load(**settings)
        except SynoError as error:
            if isinstance(error, DataError):
                raise DataError(f"{source}: {error}") from error
            raise
        if isinstance(data, Task):
            return checked(data.named(name, settings))
        missing = [] if isinstance(data, TokenSet) else [part for part in OF_PICTURE_DATA if not hasattr(data, part)]
    if missing:
        raise UserCodeError(
            f"{source} returned {kind_of(data)}, which has no {', '.join(missing)}; return a DataSet or a TokenSet "
            "(syno.data), an object that has these attributes, or a syno.Task with a loss of your own (docs/tasks.md)"
        )
    whole: PictureData | TokenSet = data
    return whole
