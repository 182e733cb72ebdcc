"""The file of a selection: the operators that were selected, or put on a shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from syno.base.addresses import cleaned
from syno.base.errors import SpecError
from syno.base.files import json_with_checksum, read_json, write_whole
from syno.stages.places import SELECTED, SHORTLIST
from syno.stages.store import ID_DIGITS, OperatorStore
from syno.train.metric import METRICS

Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
KEY = rf"^[0-9a-f]{{{ID_DIGITS}}}$"


class FastestOn(BaseModel):
    """A pair of compiler and device for which an operator is the fastest of a shortlist.

    Attributes:
        compiler, device: as the experiment's settings name them.
        latency_ms: latency of the network with the operator.
        speedup: speedup over the original network there; None if the original could not be measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    compiler: str
    device: str
    latency_ms: Above
    speedup: Above | None


class Selected(BaseModel):
    """A selected operator.

    Attributes:
        key: key in the operator store.
        name: name of the operator.
        trial: number of the trial; None for a published operator.
        reward: reward in the search; None for a published operator.
        metrics: measurements in the search, by name.
        fastest_on: for a selection by latency: where the operator was the fastest of the shortlist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: Annotated[str, Field(pattern=KEY)]
    name: Annotated[str, Field(min_length=1)]
    trial: Annotated[int, Field(ge=0)] | None = None
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None
    metrics: dict[str, float]
    fastest_on: tuple[FastestOn, ...] = ()

    @model_validator(mode="after")
    def _has_scores_in_range(self) -> Self:
        for metric, value in self.metrics.items():
            if metric in METRICS:
                METRICS[metric].check(value)
        return self


class Selection(BaseModel):
    """The content of the file `selected.json`.

    Attributes:
        selected: the selected operators, the best first.
        none_because: why no operator was selected; "" if one was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    selected: tuple[Selected, ...]
    none_because: str = ""


def write_selected(chosen: list[Selected], file: Path, none_because: str = "") -> list[Selected]:
    """Write a selection; returns it. Where it is empty, `none_because` says why."""
    content = [one.model_dump(mode="json", exclude=None if one.fastest_on else {"fastest_on"}) for one in chosen]
    reason = {"none_because": none_because} if none_because else {}
    write_whole(file, json_with_checksum({"selected": content, **reason}))
    return chosen


def read_selected(file: Path) -> list[Selected]:
    """Return the selected operators in a file; see `read_selection`."""
    return list(read_selection(file).selected)


def read_selection(file: Path) -> Selection:
    """Return the selection in a file.

    Raises SpecError if the file does not exist, holds something else, or does not agree with its checksum.
    """
    try:
        found = Selection.model_validate(cleaned(read_json(file)))
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror}; `{_maker(file)}` makes it") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise _refused(file, f"{place}: {first['msg']}") from error
    except ValueError as error:
        raise _refused(file, str(error)) from error
    keys = [one.key for one in found.selected]
    if len(set(keys)) < len(keys):
        raise _refused(file, f"{next(key for key in keys if keys.count(key) > 1)} is in it twice")
    return found


def why_none(selection: Selection) -> str | None:
    """Return in a sentence why no operator is selected; None if one is."""
    reason = selection.none_because
    return f"No operator is selected, since {reason.rstrip('.')}." if reason else None


def check_in_store(selected: Sequence[Selected], folder: Path) -> None:
    """Raise SpecError if the operator store in a folder of results lacks an operator that was selected."""
    store = OperatorStore(folder)
    for one in selected:
        if not (store.path / f"{one.key}.txt").is_file():
            raise SpecError(
                f"{store.path} has no operator {one.key}, which {folder / SELECTED} has as {one.name}; run `syno freeze` if "
                "the operator's file was lost, or `syno select` again if the key was changed"
            )


def _refused(file: Path, problem: str) -> SpecError:
    return SpecError(f"{file} holds no selection: {problem}; delete it and run `{_maker(file)}` again")


def _maker(file: Path) -> str:
    """Return the command that writes this file of a selection, for messages."""
    return "syno shortlist" if file.name == SHORTLIST else "syno select"
