"""The operators of the published data. Folders with the same path in the search hold the same operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from syno.base.errors import ParseError
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.ir.rewriting import normal_form
from syno.paper.artifact.files import META, META_AGAIN, Meta, read_json
from syno.paper.artifact.places import LANGUAGE_OPERATORS, MACHINES, NETWORK_FOLDERS, VISION, Problem
from syno.paper.artifact.published_operator import GRAPH_FILE, read_folder
from syno.paper.numbers import LANGUAGE_DATA, LANGUAGE_MODEL, TEST_DATA

NAMED = ("operator_1", "operator_2", "gpt2_projection")  # of those that were published, what the library knows by name
HASH_DIGITS = 4  # of a folder's hash, where its score is that of another operator, too


@dataclass(frozen=True)
class Folder:
    """A folder of the published data: an operator in a network, trained on a data set.

    Attributes:
        place: The folder, in the data.
        file: The file of its accuracy and costs: of the second training, if there was one.
        machine: The machine of the latencies in the folder; "" if there are none.
        model, data: The network and the data set.
        meta: The content of `file`.
    """

    place: PurePosixPath
    file: PurePosixPath
    machine: str
    model: str
    data: str
    meta: Meta


@dataclass(frozen=True)
class PublishedEntry:
    """A published operator.

    Attributes:
        name: The library's name, or "published_" and the score of its search's folder, as "published_07835", with digits of the
            folder's hash where another operator has the same score.
        path: Its path in the search that found it.
        places: All its folders.
        graph: The library's graph, or the drawing's in normal form; None if no folder has a readable drawing.
    """

    name: str
    path: str
    places: tuple[PurePosixPath, ...]
    graph: PGraph | None

    @property
    def id(self) -> str | None:
        """The id of the operator's graph; None without a graph."""
        return None if self.graph is None else self.graph.id


def expected_folders(data: Path) -> list[tuple[PurePosixPath, str, str, str]]:
    """Return all expected folders of operators, as (folder, machine, network, data set).

    If one machine has an operator's folder, it is expected for the other machine, too; if neither has any, the parent folder
    is.
    """
    found: list[tuple[PurePosixPath, str, str, str]] = []
    for data_set, (kind, networks) in NETWORK_FOLDERS.items():
        for model_folder, model in networks.items():
            around = {machine: VISION / machine / kind / model_folder for machine in MACHINES}
            names = sorted({name for place in around.values() for name in _folders(data / place)})
            for machine, place in around.items():
                found += [(place / name, machine, model, data_set) for name in names] or [(place, machine, model, data_set)]
    names = _folders(data / LANGUAGE_OPERATORS)
    places = [LANGUAGE_OPERATORS / name for name in names] or [LANGUAGE_OPERATORS]
    return found + [(place, "", LANGUAGE_MODEL, LANGUAGE_DATA) for place in places]


def read_folders(data: Path, problems: list[Problem]) -> Iterator[Folder]:
    """Yield the folders whose `meta.json` can be read. Damaged ones, but not missing ones, are added to `problems`."""
    for place, machine, model, data_set in expected_folders(data):
        files = [place / name for name in (META_AGAIN, META) if (data / place / name).exists()]
        for file in files:
            try:
                yield Folder(place, file, machine, model, data_set, read_json(data / file, Meta))
                break
            except ParseError as error:
                problems.append(Problem(place=str(file), what=str(error)))


def entries(data: Path, folders: Sequence[Folder], problems: list[Problem]) -> dict[str, PublishedEntry]:
    """Return the published operators by their path in the search, in the order of the folders."""
    known = {normal_form(OPERATORS[name]()).id: name for name in NAMED}
    graphs = _graphs(data, folders, problems)
    homes: dict[str, Folder] = {}  # of each operator, where its search put it
    for folder in sorted(folders, key=lambda folder: folder.data == TEST_DATA):  # stable
        homes.setdefault(folder.meta.path, folder)
    names = _names(homes)
    found = {}
    for path in homes:
        graph = graphs.get(path)
        name = names[path] if graph is None else known.get(graph.id, names[path])
        if graph is not None:
            graph = OPERATORS[name]() if name in NAMED else graph.renamed(name)
        places = tuple(folder.place for folder in folders if folder.meta.path == path)
        found[path] = PublishedEntry(name, path, places, graph)
    return found


def _graphs(data: Path, folders: Iterable[Folder], problems: list[Problem]) -> dict[str, PGraph]:
    """Return the operators' graphs by search path. Coefficients' values, equal in all layers, become defaults."""
    graphs: dict[str, PGraph] = {}
    for folder in folders:
        place = folder.place / GRAPH_FILE
        if not (data / place).exists():
            continue
        try:
            published = read_folder(data / folder.place)
        except ParseError as error:
            problems.append(Problem(place=str(place), what=str(error).replace(f"{data}/", "")))
            continue
        graph = published.with_constants
        first = graphs.setdefault(folder.meta.path, graph)
        if first.id != graph.id:
            problems.append(Problem(place=str(place), what="draws another operator than other folders with its path"))
    return graphs


def _folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def _names(homes: Mapping[str, Folder]) -> dict[str, str]:
    """Return the shortest unique name for each path: the score, if needed with hash digits, the whole hash, the network."""
    forms = {path: _forms(folder) for path, folder in homes.items()}
    counts = Counter(form for some in forms.values() for form in some)
    return {path: next((form for form in some if counts[form] == 1), some[-1]) for path, some in forms.items()}


def _forms(folder: Folder) -> list[str]:
    score, _, digits = folder.place.name.partition("_")
    long = f"published_{score}_{digits}"
    return list(
        dict.fromkeys([f"published_{score}", f"published_{score}_{digits[:HASH_DIGITS]}", long, f"{long}_{folder.model}"])
    )
