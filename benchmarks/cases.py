"""What is measured: library and published operators, each at the shapes of layers that it can replace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syno.base.errors import SynoError, UnknownNameError, suggestion
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.paper.artifact.published_operator import PublishedOperator, distinct, read_artifact

ARTIFACT = "SYNO_ARTIFACT"  # names the environment variable with the published artifact's data folder
GPT2 = {"N": 1, "seq_len": 2048, "H_in": 768}  # the layer that the published operator for GPT-2 replaces
MATRICES = {"M": 2048, "K": 768, "N": 2304}  # the same layer as one matrix product


@dataclass(frozen=True)
class Layer:
    """A 3x3 convolution of a size x size picture, with stride 1 and zeros beyond the borders."""

    c_in: int
    c_out: int
    size: int

    @classmethod
    def parse(cls, text: str) -> Layer:
        """`64,128,28` as a layer. ValueError if it is not three positive integers."""
        parts = text.split(",")
        if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
            raise ValueError(f'"{text}" is no shape: give C_in,C_out,H as in "64,64,56"')
        return cls(*map(int, parts))


STAGES = (Layer(64, 64, 56), Layer(128, 128, 28), Layer(256, 256, 14), Layer(512, 512, 7))
TRANSITIONS = (Layer(64, 128, 28), Layer(128, 256, 14), Layer(256, 512, 7))


@dataclass(frozen=True)
class Operator:
    """An operator, and where it comes from.

    Attributes:
        name: what it is selected by.
        graph: the operator.
        layer: values of its variables for the first layer of its backbone, if it is a published one.
        backbone: the name of that backbone.
    """

    name: str
    graph: PGraph
    layer: Mapping[str, int] | None = None
    backbone: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.backbone})" if self.backbone else self.name


@dataclass(frozen=True)
class Case:
    """An operator with a value for each of its variables."""

    operator: Operator
    values: Mapping[str, int]

    @property
    def graph(self) -> PGraph:
        return self.operator.graph

    @property
    def shapes(self) -> tuple[list[int], list[int]]:
        """Of the input and of the output."""
        valuation = self.graph.variables.valuation(self.values)
        before, after = ([valuation.integer(dim.size) for dim in dims] for dims in (self.graph.input, self.graph.output))
        return before, after

    @property
    def label(self) -> str:
        """`64->64 56x56`; both shapes in full where the output is no picture of the input's size."""
        before, after = self.shapes
        if len(before) == 4 and [before[0], *before[2:]] == [after[0], *after[2:]]:
            return f"{before[1]}->{after[1]} {before[2]}x{before[3]}"
        return " -> ".join("x".join(map(str, shape)) for shape in (before, after))


@dataclass(frozen=True)
class Skipped:
    """A shape at which an operator is not measured."""

    operator: Operator
    shape: str
    reason: str


def artifact_folder() -> Path | None:
    """The folder that the environment names, if it does."""
    folder = os.environ.get(ARTIFACT)
    return Path(folder) if folder else None


def operators(artifact: Path | None, names: Sequence[str] = ()) -> list[Operator]:
    """The published operators, then the library's; with `names`, those of them only.

    Raises:
        UnknownNameError: there is no operator of that name.
    """
    published = [_published(entry) for entry in distinct(read_artifact(artifact))] if artifact else []
    known = {operator.name: operator for operator in published}
    known |= {name: Operator(name, function()) for name, function in OPERATORS.items()}
    for name in names:
        if name not in known:
            missing = "" if artifact else f" (the published operators are skipped, as {ARTIFACT} is not set)"
            raise UnknownNameError(f'no operator "{name}"; there are: {", ".join(known)}{missing}.{suggestion(name, known)}')
    return [known[name] for name in names or known]


def _published(entry: PublishedOperator) -> Operator:
    backbone = "gpt2" if "seq_len" in entry.graph.variables else entry.folder.parent.name
    return Operator(entry.graph.name, entry.graph, entry.valuations[0], backbone)


def cases(operator: Operator, layers: Sequence[Layer], batch: int, *, own_layer: bool) -> Iterator[Case | Skipped]:
    """The operator at each of the layers that it can replace.

    An operator on sequences is measured at one of GPT-2's layers. With `own_layer`, or if it fits none of `layers`, a
    published operator is also measured at the first layer of its backbone.
    """
    if "H" not in operator.graph.variables:
        sequence = operator.layer or (MATRICES if "M" in operator.graph.variables else GPT2)
        yield Case(operator, sequence)
        return
    found = []
    for layer in layers:
        given = _values(operator, layer, batch)
        reason = _reason(operator.graph, given)
        if reason is None:
            found.append(Case(operator, given))
            yield found[-1]
        else:
            yield Skipped(operator, f"{layer.c_in}->{layer.c_out} {layer.size}x{layer.size}", reason)
    if operator.layer is not None and (own_layer or not found):
        own = Case(operator, {**operator.layer, "N": batch})
        if own not in found:
            yield own


def _values(operator: Operator, layer: Layer, batch: int) -> dict[str, int]:
    """Values of the operator's variables there; coefficients are the published ones or the defaults."""
    values = {"N": batch, "C_in": layer.c_in, "C_out": layer.c_out, "H": layer.size}
    if layer.c_in == layer.c_out:
        values["C"] = layer.c_in
    return {name: value for name, value in {**(operator.layer or {}), **values}.items() if name in operator.graph.variables}


def _reason(graph: PGraph, values: Mapping[str, int]) -> str | None:
    """Why the operator cannot have these sizes; None if it can."""
    if "C" in graph.variables and "C" not in values:
        return "it keeps the number of channels"
    try:
        valuation = graph.variables.valuation(values)
        for dim in graph.labels:
            valuation.integer(dim.size)
    except SynoError as error:
        return str(error)
    return None
