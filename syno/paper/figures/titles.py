"""The names in print of networks, operators, compilers and origins: the paper's names if any, else the tables'."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from syno.base.files import ORIGINAL
from syno.model.networks import INT8
from syno.paper.numbers import COMPILERS, DEVICES, LANGUAGE_MODEL, MODELS, NAS_PTE, OF_THE_PAPER, STACKED

ORIGINS = {"measured": "measurements made here", "artifact": "the authors' published data", "paper": "the paper"}
SHORT_ORIGINS = {"measured": "measured here", "artifact": "artifact", "paper": "paper"}
NETWORKS = {**MODELS, LANGUAGE_MODEL: "GPT-2"}
OPERATORS = {
    ORIGINAL: "original",
    INT8: "INT8",
    STACKED: "stacked convolution",
    **{name: name.replace("_", " ").capitalize() for name in OF_THE_PAPER[:2]},
    **{name: f"NAS-PTE {number}" for number, name in enumerate(NAS_PTE, 1)},
}


def model_title(model: str) -> str:
    """Return the name in print of a network: `resnet18@0.125` is "ResNet-18, width 0.125"."""
    name, _, width = model.partition("@")
    return NETWORKS.get(name, name) + (f", width {width}" if width else "")


def compiler_title(compiler: str) -> str:
    """Return the name in print of a compiler: the paper's ("TorchInductor"), or another ("TorchInductor, default mode")."""
    if compiler in COMPILERS:
        return COMPILERS[compiler]
    family, _, mode = compiler.partition("-")
    known = {name.partition("-")[0]: title for name, title in COMPILERS.items()}
    return f"{known[family]}, {mode or 'default mode'}" if family in known else compiler


def operator_title(operator: str) -> str:
    """Return the name in print of an operator."""
    return OPERATORS.get(operator, operator)


def device_title(device: str, place: str) -> str:
    """Return the name in print of a place of measurements; for the paper's devices, the paper's name and the device."""
    return f"{place} ({device})" if DEVICES.get(device, device) != device else place


def models_of(column: pandas.Series) -> list[str]:
    """Return the networks in a column, those of the paper first, each followed by its other widths."""
    return sorted(present(tuple(MODELS), column), key=lambda model: _place(model, tuple(MODELS)))


def compilers_of(column: pandas.Series) -> list[str]:
    """Return the compilers in a column, those of the paper first, each followed by its other modes."""
    families = [name.partition("-")[0] for name in COMPILERS]
    return sorted(present(tuple(COMPILERS), column), key=lambda compiler: _place(compiler.replace("-", "@"), families))


def present(names: Sequence[str], column: pandas.Series) -> list[str]:
    """Return the names that occur in `column`, in the order of `names`, then all others that occur."""
    there = list(dict.fromkeys(map(str, column)))
    return [name for name in names if name in there] + [name for name in there if name not in names]


def places_of(table: pandas.DataFrame) -> dict[str, str]:
    """Return the places of measurements in a table and their titles, those of the paper first."""
    devices = dict(zip(table["place"], table["device"], strict=True))
    places = present(tuple(DEVICES.values()), table["place"])
    places.sort(key=lambda place: _place(str(devices[place]), tuple(DEVICES)))
    return {place: device_title(str(devices[place]), place) for place in places}


def panels_of(table: pandas.DataFrame) -> list[tuple[str, str, str]]:
    """Return the (network, compiler, place) of a table's rows: the paper's devices first, in the paper's order."""
    places = places_of(table)
    devices = dict(zip(table["place"], table["device"], strict=True))
    found = set(zip(table["model"], table["compiler"], table["place"], strict=True))
    return [
        (model, compiler, place)
        for is_paper in (True, False)
        for model in models_of(table["model"])
        for compiler in compilers_of(table["compiler"])
        for place in places
        if (model, compiler, place) in found and (devices[place] in DEVICES) == is_paper
    ]


def _place(name: str, known: Sequence[str]) -> int:
    first = name.partition("@")[0]
    return known.index(first) if first in known else len(known)
