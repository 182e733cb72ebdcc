"""The joined table: the measurements of several experiments, imports and the paper as one table, and what it lacks.

It has the columns of the table of measurements and four more. `experiment` is the name of the experiment or of the folder that
a row is from, or "paper". `data_role` is "proxy" for the data set on which operators are compared first (the paper's CIFAR-100
and lm1b), "final" for the one of the final training (ImageNet), or missing. `device_stands_for` and `compiler_stands_for` are
the names under which figures compare the row (`tune: stands_for`), or missing where these are its own.

- An operator has one name in it: the library's, else the published one, else that of the first experiment that has it. A name
  has one operator: others of the same name get digits of their id. A network with it in 8-bit integers is another one.
- A network of another width is another network: `resnet18@0.125`.
- The published ResNeXt-29 was searched with a head for 1000 classes; its scores and costs are those of `resnext29_2x64d`.
- Rows of own records that an experiment no longer uses (without a role) are left out, and each row is in it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from syno.base.files import ORIGINAL
from syno.model.networks import Network
from syno.paper.numbers import LANGUAGE_DATA, SEARCH_DATA, SEARCHED_WITH, TEST_DATA, told
from syno.run.table import COLUMNS, LOSS_COLUMNS, TYPES, loss_table, measurement_table

if TYPE_CHECKING:
    import pandas

PROXY, FINAL = "proxy", "final"
ROLES = {SEARCH_DATA: PROXY, LANGUAGE_DATA: PROXY, TEST_DATA: FINAL}  # of data sets, where an experiment says nothing else
PAPER = "paper"  # in place of an experiment's name, for numbers that only the paper has
STANDS_FOR = ("device_stands_for", "compiler_stands_for")
JOINED_COLUMNS = (*COLUMNS, "experiment", "data_role", *STANDS_FOR)
IDENTITY = (  # of a measurement: a row that is equal in these is the same one
    "operator", "model", "data", "layer", "device", "device_setting", "compiler", "batch", "threads", "metric", "value", "seed",
    "when", "origin", "source",
)  # fmt: skip
DIGITS = 6  # of an id, in the name of the second operator of a name

Operator: TypeAlias = tuple[str, str]  # the identity of an operator: ("library", name), ("id", id) or ("name", name)


@dataclass(frozen=True)
class Part:
    """The results of one experiment, of an import, or of a join.

    Attributes:
        name: The name in the column `experiment`.
        rows: Its table of measurements; a joined one has names and roles already, which it keeps.
        losses: Its loss curves (`LOSS_COLUMNS`).
        data: The data set of all its networks, for latencies, whose rows name none; None for an import or a join.
        width: The width of its network.
        stands_for: Other names of its devices, as its settings name them, and of its compilers.
    """

    name: str
    rows: pandas.DataFrame
    losses: pandas.DataFrame
    data: str | None = None
    width: float = 1.0
    stands_for: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Renamed:
    """An operator whose name in the joined table is not that of an experiment.

    Attributes:
        experiment: The experiment.
        operator: The name there.
        operator_id: The id of the operator's graph; None if it is unknown.
        name: The name in the joined table.
    """

    experiment: str
    operator: str
    operator_id: str | None
    name: str


@dataclass(frozen=True)
class Joined:
    """The joined table, the loss curves, and the operators whose names in both differ from their names in the experiments."""

    rows: pandas.DataFrame
    losses: pandas.DataFrame
    renamed: tuple[Renamed, ...]


def joined(parts: Sequence[Part], role: Callable[[str], str | None] = lambda _: None, *, with_paper: bool = True) -> Joined:
    """Return the results of several experiments as one table.

    Args:
        parts: The experiments, in the order in which their names have priority.
        role: Returns the role of an experiment's data set by the experiment's name; None: it follows from the data set.
        with_paper: Whether to add the numbers that only the paper has, where no part has them.
    """
    import pandas

    told_rows = [Part(PAPER, measurement_table(told()), pandas.DataFrame(columns=list(LOSS_COLUMNS)))] if with_paper else []
    rows = pandas.concat([_rows(part, role) for part in (*parts, *told_rows)], ignore_index=True)
    losses = pandas.concat([_losses(part) for part in parts], ignore_index=True)
    names = _names(rows)
    renamed = _renamed(rows, names)
    rows, losses = (
        table.assign(operator=[names.get(_operator(*pair), pair[0]) for pair in _pairs(table)]) for table in (rows, losses)
    )
    rows = rows.drop_duplicates(list(IDENTITY), ignore_index=True)
    losses = losses.drop_duplicates([name for name in LOSS_COLUMNS if name != "experiment"], ignore_index=True)
    rows = rows.astype(TYPES).assign(when=pandas.to_datetime(rows["when"], utc=True))
    points = [{str(column): value for column, value in point.items()} for point in losses.to_dict("records")]
    return Joined(rows, loss_table(points), renamed)


def with_roles(rows: pandas.DataFrame, name: str) -> pandas.DataFrame:
    """Return a table of measurements with the columns `experiment` and `data_role`; one that has them stays as it is.

    Args:
        rows: The table.
        name: The name of its experiment or folder.
    """
    import pandas

    if {"experiment", "data_role"} <= set(rows.columns):
        return rows
    experiments = [PAPER if origin == PAPER else name for origin in rows["origin"]]
    roles = pandas.Series([ROLES.get(data) for data in rows["data"]], rows.index, dtype=object)
    return rows.assign(experiment=pandas.Series(experiments, rows.index, dtype=object), data_role=roles)


def with_names(rows: pandas.DataFrame, stands_for: Mapping[str, str]) -> pandas.DataFrame:
    """Return a table of measurements with the columns `STANDS_FOR`; one that has them stays as it is.

    Args:
        rows: The table.
        stands_for: Other names of devices, as the settings of their experiment name them, and of compilers.
    """
    import pandas

    if set(STANDS_FOR) <= set(rows.columns):
        return rows
    found = {
        column: pandas.Series([stands_for.get(name) for name in rows[named]], rows.index, dtype=object)
        for column, named in zip(STANDS_FOR, ("device_setting", "compiler"), strict=True)
    }
    return rows.assign(**found)


def _rows(part: Part, role: Callable[[str], str | None]) -> pandas.DataFrame:
    import pandas

    rows = part.rows[(part.rows["origin"] != "measured") | part.rows["role"].notna()]
    is_new = "data_role" not in rows.columns
    rows = with_names(with_roles(rows, part.name), part.stands_for).reindex(columns=list(JOINED_COLUMNS))
    roles: list[str | None] = []
    for name, known, data in zip(rows["experiment"], rows["data_role"], rows["data"], strict=True):
        named = data if isinstance(data, str) else part.data  # latencies name no data set
        told_so = None if name == PAPER else role(name)
        roles.append(told_so or (known if isinstance(known, str) else ROLES.get(str(named)) if is_new else None))
    models = [
        SEARCHED_WITH.get(model, model) if metric != "latency" else model
        for model, metric in zip(rows["model"], rows["metric"], strict=True)
    ]
    data_roles = pandas.Series(roles, rows.index, dtype=object)
    return rows.astype(object).assign(data_role=data_roles, model=[_wide(model, part.width) for model in models])


def _losses(part: Part) -> pandas.DataFrame:
    losses = part.losses.reindex(columns=list(LOSS_COLUMNS)).astype(object)
    names = losses["experiment"].where(losses["experiment"].notna(), part.name)
    return losses.assign(experiment=names, model=[_wide(model, part.width) for model in losses["model"]])


def _wide(model: Any, width: float) -> Any:
    """Return the name of a network of some width; what is missing stays missing."""
    return f"{model}@{width:g}" if isinstance(model, str) and width != 1 else model


def _names(rows: pandas.DataFrame) -> dict[Operator, str]:
    """Return the one name of each operator."""
    wanted: dict[Operator, list[str]] = {}
    published = rows[rows["origin"] != "measured"]
    for table in (published, rows):
        for name, operator_id in dict.fromkeys(_pairs(table)):
            wanted.setdefault(_operator(name, operator_id), []).append(name)
    order = ("library", "name", "id")  # those that are known by their name alone must keep it
    names: dict[Operator, str] = {}
    taken = {ORIGINAL}
    for operator in sorted(wanted, key=lambda operator: order.index(operator[0])):
        name = operator[1] if operator[0] == "library" else wanted[operator][0]
        if name in taken:
            name = f"{name}_{operator[1][:DIGITS]}"
        names[operator] = name
        taken.add(name)
    return {operator: name for operator, name in names.items() if operator != ("name", ORIGINAL)}


def _operator(name: str, operator_id: str | None) -> Operator:
    """Return the unique identity of an operator."""
    by_id = _library()
    if operator_id is not None and (precision := Network.parse(name).precision) is not None:
        return ("id", Network(operator_id, precision).key)  # the records of both have the id
    if operator_id in by_id:
        return ("library", by_id[operator_id])
    if operator_id is not None:
        return ("id", operator_id)
    return ("library", name) if name in by_id.values() else ("name", name)


def _library() -> dict[str | None, str]:
    """Return the names of known operators by id, and by the id of the normal form, in which searches find them."""
    if not _LIBRARY:
        from syno.ir.library import OPERATORS
        from syno.ir.rewriting import normal_form

        for name, make in OPERATORS.items():
            graph = make()
            _LIBRARY.setdefault(graph.id, name)
            _LIBRARY.setdefault(normal_form(graph).id, name)
    return _LIBRARY


_LIBRARY: dict[str | None, str] = {}  # filled on first use


def _pairs(table: pandas.DataFrame) -> Iterator[tuple[str, str | None]]:
    """Yield each row's operator as a pair of its name and its id; the id is None if it is missing."""
    for name, operator_id in zip(table["operator"], table["operator_id"], strict=True):
        yield name, operator_id if isinstance(operator_id, str) else None


def _renamed(rows: pandas.DataFrame, names: dict[Operator, str]) -> tuple[Renamed, ...]:
    triples = dict.fromkeys(zip(rows["experiment"], _pairs(rows), strict=True))
    return tuple(
        Renamed(experiment, *pair, names[_operator(*pair)])
        for experiment, pair in triples
        if names.get(_operator(*pair), pair[0]) != pair[0]
    )
