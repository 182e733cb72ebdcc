"""The operators that the paper's authors published: folders with a drawing, quality figures, and the layers' sizes.

    07889_15252107013978896537/             accuracy times 10^4 (or loss times 10^3), and a hash
      graph.dot                             the operator
      meta.json                             its path in the published search, accuracy, loss, FLOPs, parameters of the model
      kernel_scheduler_dir/metadata.json    the valuation of each layer that it replaced

Source: the artifact of the paper (ASPLOS'25).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syno.algebra import Size, Valuation, VariableTable
from syno.algebra.limits import MOST_JSON_BYTES
from syno.artifact.dot_reader import read_dot
from syno.base.errors import ParseError, SynoError, suggestion
from syno.ir.graph import PGraph
from syno.ir.rewriting import normal_form

GRAPH_FILE = "graph.dot"
META_FILE = "meta.json"
LAYERS_FILE = "kernel_scheduler_dir/metadata.json"
_DESCRIPTION = re.compile(r"Primary:\s*\{(?P<primary>[^{}]*)\},\s*Coefficient:?\s*\{(?P<coefficient>[^{}]*)\}")


@dataclass(frozen=True, eq=False)
class PublishedOperator:
    """One folder of the artifact: an operator in a backbone. FLOPs count one multiply-add as one.

    Attributes:
        folder: where it was read.
        path: its path in the published search; folders with equal paths hold the same operator.
        graph: the operator, named after the folder's score. It is in normal form, because copies of one operator give
            the axes of its weights in different orders.
        variables: all variables of its search, used or not.
        valuations: the distinct valuations of the layers that it replaced, of the variables that occur in `graph`.
        layer_flops: published FLOPs of the operator, for each of `valuations` (they include the sizes of its inputs).
        placeholders: for each replaced layer, the index of its valuation.
        weight_shapes: the weights' sizes as the published kernels take them: the axes of `graph.weights`, perhaps in
            another order.
        accuracy: of the whole model, in [0, 1]; 0 where the artifact has none.
        loss: of the whole model; 0 or None where the artifact has none.
        flops: of the whole model, for one sample.
        params: of the whole model.
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

    def __repr__(self) -> str:
        return f"<published {self.folder.parent.name}/{self.folder.name}: {self.graph!r}>"


def read_artifact(data: Path) -> list[PublishedOperator]:
    """Every operator folder under the artifact's `data`, sorted by its path there.

    Raises ParseError if there is none, or if one of them cannot be read.
    """
    folders = sorted((file.parent for file in data.rglob(GRAPH_FILE)), key=lambda folder: folder.relative_to(data).as_posix())
    if not folders:
        raise ParseError(f"{data}: no {GRAPH_FILE} in it or below it; give the data folder of the published artifact")
    return [read_folder(folder) for folder in folders]


def distinct(operators: Iterable[PublishedOperator]) -> list[PublishedOperator]:
    """The first of the operators that share a path, in the order given."""
    first: dict[str, PublishedOperator] = {}
    for operator in operators:
        first.setdefault(operator.path, operator)
    return list(first.values())


def read_folder(folder: Path) -> PublishedOperator:
    """The operator in one folder of the artifact.

    Raises ParseError that names the file: one is missing or broken, or they do not belong together.
    """
    meta = _Object.read(folder / META_FILE)
    layers = _Object.read(folder / LAYERS_FILE)
    path = meta.text("path")
    if not path:
        raise ParseError(f'{meta.where}: "path" is empty; it must be the path of the operator in its search')
    kernels = layers.objects("validPlaceholders")
    if not kernels:
        raise ParseError(f'{layers.where}: "validPlaceholders" is empty; an operator replaces at least one layer')
    described = [_constants(kernel) for kernel in kernels]
    variables = described[0][0]
    for kernel, (other, _) in zip(kernels, described, strict=True):
        if str(other) != str(variables):
            raise ParseError(f'{kernel.where}: its variables are "{other}", those of the first layer are "{variables}"')
    placeholders = layers.integers("validPlaceholdersIndices")
    for index in placeholders:
        if not 0 <= index < len(kernels):
            raise ParseError(
                f'{layers.where}: "validPlaceholdersIndices" has {index}; there are {len(kernels)} "validPlaceholders"'
            )
    score = "".join(re.findall("^[A-Za-z0-9]+", folder.name))
    graph = normal_form(read_dot(folder / GRAPH_FILE, variables, f"published_{score[:40]}"))
    used = set(graph.variables)
    return PublishedOperator(
        folder=folder,
        path=path,
        graph=graph,
        variables=variables,
        valuations=tuple(Valuation({name: value for name, value in values.items() if name in used}) for _, values in described),
        layer_flops=tuple(kernel.integer("flops") for kernel in kernels),
        placeholders=placeholders,
        weight_shapes=_weight_shapes(layers, graph, variables),
        accuracy=meta.number("accuracy"),
        loss=meta.number("loss") if "loss" in meta.entries else None,
        flops=meta.integer("flops"),
        params=meta.integer("params"),
    )


def _constants(kernel: _Object) -> tuple[VariableTable, dict[str, int]]:
    """The variables of a layer, and their values before padding."""
    description = kernel.text("constsDescription")
    match = _DESCRIPTION.fullmatch(description.strip())
    if not match:
        example = "Primary: { H: 56 }, Coefficient { k: 3 }"
        raise ParseError(f'{kernel.where}: "constsDescription" is "{description}"; it must read as in "{example}"')
    names = {kind: re.findall(r"(\w+)\s*:", match[kind]) for kind in ("primary", "coefficient")}
    unpadded = kernel.object("consts").object("unpadded")
    values: dict[str, int] = {}
    for kind in names:
        given = unpadded.integers(kind)
        if len(given) != len(names[kind]):
            raise ParseError(f'{unpadded.where}: {len(given)} values in "{kind}", but "constsDescription" is "{description}"')
        values |= zip(names[kind], given, strict=True)
    try:
        variables = VariableTable.parse(f"{', '.join(names['primary'])}; {', '.join(names['coefficient'])}")
        return variables, dict(variables.valuation(values))
    except SynoError as error:
        raise ParseError(f"{kernel.where}: {error}") from error


def _weight_shapes(layers: _Object, graph: PGraph, variables: VariableTable) -> tuple[tuple[Size, ...], ...]:
    """The shapes in `metadata.json`; ParseError if they are not those of `graph`."""
    texts = [*layers.texts("inputsShapes"), layers.text("outputShape")]
    try:
        shapes = [tuple(variables.sizes(text.strip().removeprefix("[").removesuffix("]"))) for text in texts]
    except SynoError as error:
        raise ParseError(f"{layers.where}: {error}") from error
    drawn = [tuple(dim.size for dim in dims) for dims in (graph.input, *graph.weights, graph.output)]
    inner = slice(1, -1)  # the weights, whose axes the two files give in different orders
    same_weights = [sorted(shape) for shape in shapes[inner]] == [sorted(shape) for shape in drawn[inner]]
    if shapes[:1] != drawn[:1] or shapes[-1:] != drawn[-1:] or not same_weights:
        raise ParseError(f"{layers.where}: its shapes are {' '.join(texts)}, but {GRAPH_FILE} beside it draws {graph!r}")
    return tuple(shapes[inner])


@dataclass(frozen=True)
class _Object:
    """An object in a JSON file; its entries are read with the type that they must have."""

    where: str
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> _Object:
        try:
            with path.open("rb") as opened:
                text = opened.read(MOST_JSON_BYTES + 1)
            if len(text) > MOST_JSON_BYTES:
                raise ParseError(f"{path}: more than {MOST_JSON_BYTES} bytes, which are the most allowed")
            content = json.loads(text.decode("utf-8"))
        except ParseError:
            raise
        except RecursionError:
            raise ParseError(f"{path}: cannot be read as JSON: too many lists and objects inside each other") from None
        except (OSError, ValueError) as error:  # ValueError: not JSON, or not UTF-8
            raise ParseError(f"{path}: cannot be read as JSON: {error}") from error
        return cls._checked(content, str(path))

    @classmethod
    def _checked(cls, content: object, where: str) -> _Object:
        if not isinstance(content, dict):
            raise ParseError(f"{where}: it must be a JSON object; it is {_shortened(content)}")
        return cls(where, content)

    def _entry(self, name: str, wanted: str, *types: type) -> Any:
        if name not in self.entries:
            raise ParseError(f'{self.where}: no entry "{name}" ({wanted}).{suggestion(name, self.entries)}')
        return self._typed(name, self.entries[name], wanted, *types)

    def _typed(self, name: str, value: object, wanted: str, *types: type) -> Any:
        if not isinstance(value, types) or isinstance(value, bool):
            raise ParseError(f'{self.where}: "{name}" must be {wanted}; it has {_shortened(value)}')
        return value

    def text(self, name: str) -> str:
        return str(self._entry(name, "a text", str))

    def integer(self, name: str) -> int:
        return int(self._entry(name, "a whole number", int))

    def number(self, name: str) -> float:
        return float(self._entry(name, "a number", int, float))

    def object(self, name: str) -> _Object:
        return self._checked(self._entry(name, "an object", dict), f'{self.where}, "{name}"')

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._typed(name, item, "a list of texts", str) for item in self._entry(name, "a list of texts", list))

    def integers(self, name: str) -> tuple[int, ...]:
        wanted = "a list of whole numbers"
        return tuple(self._typed(name, item, wanted, int) for item in self._entry(name, wanted, list))

    def objects(self, name: str) -> tuple[_Object, ...]:
        items = self._entry(name, "a list of objects", list)
        return tuple(self._checked(item, f'{self.where}, "{name}" number {index}') for index, item in enumerate(items))


def _shortened(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
