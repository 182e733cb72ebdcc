"""The operators that the paper's authors published: folders with a drawing, accuracy and costs, and the layers' sizes.

    07889_15252107013978896537/             accuracy times 10^4 (or loss times 10^3), and a hash
      graph.dot                             the operator
      meta.json                             its path in the published search, accuracy, loss, FLOPs, parameters of the model
      kernel_scheduler_dir/metadata.json    the valuation of each layer that it replaced

Source: the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from syno.algebra import Size, Valuation, VariableKind, VariableTable
from syno.base.errors import ParseError, SynoError
from syno.ir.graph import PGraph
from syno.ir.rewriting import normal_form
from syno.paper.artifact.dot_file import read_dot
from syno.paper.artifact.files import META, Meta, Published, PublishedFile, read_json

GRAPH_FILE = "graph.dot"
LAYERS_FILE = "kernel_scheduler_dir/metadata.json"
_DESCRIPTION = re.compile(r"Primary:\s*\{(?P<primary>[^{}]*)\},\s*Coefficient:?\s*\{(?P<coefficient>[^{}]*)\}")


class _Values(PublishedFile):
    """The values of a layer's variables, in the order of its description."""

    primary: tuple[int, ...]
    coefficient: tuple[int, ...]


class _Constants(PublishedFile):
    """The values of a layer's coefficients, before padding."""

    unpadded: _Values


class _Layer(PublishedFile):
    """A layer in `metadata.json` that the operator replaced."""

    description: Annotated[str, Field(alias="constsDescription")]
    constants: Annotated[_Constants, Field(alias="consts")]
    flops: int


class _Layers(PublishedFile):
    """The content of `metadata.json`: the layers that the operator replaced."""

    layers: Annotated[tuple[_Layer, ...], Field(alias="validPlaceholders", min_length=1)]
    indices: Annotated[tuple[int, ...], Field(alias="validPlaceholdersIndices")]
    inputs: Annotated[tuple[str, ...], Field(alias="inputsShapes")]
    output: Annotated[str, Field(alias="outputShape")]


@dataclass(frozen=True, eq=False)
class PublishedOperator:
    """One folder of the artifact: an operator in a backbone. FLOPs count one multiply-add as one.

    Attributes:
        folder: The folder that it was read from.
        path: Its path in the published search; folders with equal paths hold the same operator.
        graph: The operator, named after the folder's score. It is in normal form, because copies of one operator give
            the axes of its weights in different orders.
        variables: All variables of its search, used or not.
        valuations: The distinct valuations of the replaced layers, for the variables that occur in `graph`.
        layer_flops: Published FLOPs of the operator, for each of `valuations` (they include the sizes of its inputs).
        placeholders: The index of the valuation of each replaced layer.
        weight_shapes: The weights' sizes as the published kernels take them: the axes of `graph.weights`, perhaps in
            another order.
        accuracy: Accuracy of the whole model, in [0, 1]; 0 where the artifact has none.
        loss: Loss of the whole model; 0 or None where the artifact has none.
        flops: Multiply-adds of the whole model, for one sample.
        params: Parameters of the whole model.
    """

    folder: Path
    path: str
    graph: PGraph
    variables: VariableTable
    valuations: tuple[Valuation, ...]
    layer_flops: tuple[int, ...]
    placeholders: tuple[int, ...]
    weight_shapes: tuple[tuple[Size, ...], ...]
    accuracy: float
    loss: float | None
    flops: int
    params: int

    @property
    def with_constants(self) -> PGraph:
        """The operator with the values of its coefficients, which all layers share, as defaults."""
        variables, values = self.graph.variables, self.valuations[0]
        constants = {name: values[name] for name, variable in variables.items() if variable.kind is VariableKind.COEFFICIENT}
        return self.graph.renamed(self.graph.name, **constants)

    def __repr__(self) -> str:
        return f"<published {self.folder.parent.name}/{self.folder.name}: {self.graph!r}>"


def read_artifact(data: Path) -> list[PublishedOperator]:
    """Return every operator folder under the artifact's `data`, sorted by its path there.

    Raises ParseError if there are no operator folders, or one cannot be read.
    """
    folders = sorted((file.parent for file in data.rglob(GRAPH_FILE)), key=lambda folder: folder.relative_to(data).as_posix())
    if not folders:
        raise ParseError(f"{data}: no {GRAPH_FILE} in it or below it; give the data folder of the published artifact")
    return [read_folder(folder) for folder in folders]


def distinct(operators: Iterable[PublishedOperator]) -> list[PublishedOperator]:
    """Return one operator (the first) for each path in the published search, in the order of `operators`."""
    first: dict[str, PublishedOperator] = {}
    for operator in operators:
        first.setdefault(operator.path, operator)
    return list(first.values())


def read_folder(folder: Path) -> PublishedOperator:
    """Return the operator in one folder of the artifact.

    Raises ParseError, naming the file, if a file is missing or damaged, or the files contradict each other.
    """
    meta = _read(folder / META, Meta)
    for name in ("accuracy", "flops", "params"):
        if name not in meta.model_fields_set:
            raise ParseError(f'{folder / META}: no entry "{name}"')
    file = folder / LAYERS_FILE
    content = _read(file, _Layers)
    places = [f"{file}: validPlaceholders: {number}" for number in range(len(content.layers))]
    described = [_constants(layer, place) for layer, place in zip(content.layers, places, strict=True)]
    variables = described[0][0]
    for place, (other, _) in zip(places, described, strict=True):
        if str(other) != str(variables):
            raise ParseError(f'{place}: its variables are "{other}", those of the first layer are "{variables}"')
    for index in content.indices:
        if not 0 <= index < len(described):
            raise ParseError(f'{file}: "validPlaceholdersIndices" has {index}; there are {len(described)} "validPlaceholders"')
    score = "".join(re.findall("^[A-Za-z0-9]+", folder.name))
    graph = normal_form(read_dot(folder / GRAPH_FILE, variables, f"published_{score[:40]}"))
    used = set(graph.variables)
    return PublishedOperator(
        folder=folder,
        path=meta.path,
        graph=graph,
        variables=variables,
        valuations=tuple(Valuation({name: value for name, value in values.items() if name in used}) for _, values in described),
        layer_flops=tuple(layer.flops for layer in content.layers),
        placeholders=content.indices,
        weight_shapes=_weight_shapes(content, graph, variables, file),
        accuracy=meta.accuracy,
        loss=meta.loss if "loss" in meta.model_fields_set else None,
        flops=meta.flops,
        params=meta.params,
    )


def _read(file: Path, kind: type[Published]) -> Published:
    """Return the object in a JSON file. ParseError names the file."""
    try:
        return read_json(file, kind)
    except ParseError as error:
        raise ParseError(f"{file}: {error}") from error


def _constants(layer: _Layer, place: str) -> tuple[VariableTable, dict[str, int]]:
    """Return a layer's table of variables, and the variables' values before padding."""
    match = _DESCRIPTION.fullmatch(layer.description.strip())
    if not match:
        example = "Primary: { H: 56 }, Coefficient { k: 3 }"
        raise ParseError(f'{place}: "constsDescription" is "{layer.description}"; it must read as in "{example}"')
    names = {kind: re.findall(r"(\w+)\s*:", match[kind]) for kind in ("primary", "coefficient")}
    given = layer.constants.unpadded.model_dump()
    values: dict[str, int] = {}
    for kind, known in names.items():
        if len(given[kind]) != len(known):
            described = f'"constsDescription" is "{layer.description}"'
            raise ParseError(f'{place}: {len(given[kind])} values in "{kind}", but {described}')
        values |= zip(known, given[kind], strict=True)
    try:
        variables = VariableTable.parse(f"{', '.join(names['primary'])}; {', '.join(names['coefficient'])}")
        return variables, dict(variables.valuation(values))
    except SynoError as error:
        raise ParseError(f"{place}: {error}") from error


def _weight_shapes(content: _Layers, graph: PGraph, variables: VariableTable, file: Path) -> tuple[tuple[Size, ...], ...]:
    """Return the shapes of the weights in `metadata.json`. ParseError if its shapes are not those of `graph`."""
    texts = [*content.inputs, content.output]
    try:
        shapes = [tuple(variables.sizes(text.strip().removeprefix("[").removesuffix("]"))) for text in texts]
    except SynoError as error:
        raise ParseError(f"{file}: {error}") from error
    drawn = [tuple(dim.size for dim in dims) for dims in (graph.input, *graph.weights, graph.output)]
    inner = slice(1, -1)  # the weights, whose axes the two files give in different orders
    same_weights = [sorted(shape) for shape in shapes[inner]] == [sorted(shape) for shape in drawn[inner]]
    if shapes[:1] != drawn[:1] or shapes[-1:] != drawn[-1:] or not same_weights:
        raise ParseError(f"{file}: its shapes are {' '.join(texts)}, but {GRAPH_FILE} beside it draws {graph!r}")
    return tuple(shapes[inner])
