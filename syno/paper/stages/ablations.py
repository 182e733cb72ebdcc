"""The stage of ablations: measures each with the experiment's settings, and writes a table and a record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime

from syno.base.errors import SpecError, SynoError
from syno.base.record import Amount, Count, Name, Record, versions
from syno.config import AnyExperiment, Experiment, load_any
from syno.config.specs import find_spec
from syno.ir.text import parse_stored
from syno.measure.machine import device_name
from syno.paper.ablations.settings import Ablations
from syno.paper.artifact.imported import ImportRecord, is_published
from syno.paper.experiments import PublishedData, ablations_of
from syno.paper.places import ABLATION, RECORD, ablation_table
from syno.run.parquet import read_parquet
from syno.run.table import write_table
from syno.space.spec import OperatorSpec
from syno.stages.places import FROZEN, SELECTED, TABLE
from syno.stages.selection import read_selected
from syno.stages.store import OperatorStore
from syno.stages.study import read_frozen

if TYPE_CHECKING:
    import pandas

    from syno.base.progress import Display
    from syno.paper.ablations.ablation import Measured
    from syno.paper.ablations.page_part import AblationPart
    from syno.paper.ablations.patterns import FoundOperators

NAMES = tuple(Ablations.model_fields)
PUBLISHED_SPACE = "resnet18"  # the space of most published operators


class AblationRecord(Record):
    """The record of an ablation.

    Attributes:
        name: canonical, distance, patterns or requirements.
        settings: the ablation's settings.
        space, space_id: name and id of the spec.
        of: for patterns, the source of the operators, in words.
        rows: number of rows of its table.
        cpu_seconds: CPU-seconds of the process that finished it.
        machine: name of the processor.
        versions, date: versions of the software, and the time.
    """

    kind_of_record = "record of an ablation"
    again = "run `syno ablate run`"
    passing = frozenset({"date", "cpu_seconds"})
    name: Name
    settings: dict[str, Any]
    space: str
    space_id: str
    of: str = ""
    rows: Count
    cpu_seconds: Amount
    machine: str
    versions: dict[str, str]
    date: AwareDatetime

    @property
    def notes(self) -> list[str]:
        """Lines on the origin of the numbers: date, machine, space, operators, settings and versions."""
        settings = ", ".join(f"{name} {_text(value)}" for name, value in self.settings.items() if value not in (None, []))
        return [
            f"measured on {self.date:%Y-%m-%d}, one process, on {self.machine}: space {self.space}, id {self.space_id}",
            *([f"operators: {self.of}"] if self.of else []),
            f"settings: {settings}; versions: {', '.join(f'{name} {version}' for name, version in self.versions.items())}",
        ]


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def run_ablation(experiment: AnyExperiment, name: str, display: Display | None = None) -> AblationRecord:
    """Measure an ablation with the experiment's settings, and write its tables and its record; return the record.

    An interrupted ablation continues after its finished parts.

    Raises SpecError if there is no such ablation, or the operators that it needs are missing.
    """
    if name not in NAMES:
        raise SpecError(f'there is no ablation "{name}"; there are: {", ".join(NAMES)}')
    settings, parts = ablations_of(experiment.use_code()).settings(name), experiment.folder / "ablations" / name
    began = time.process_time()
    spec = space_of(experiment, settings.get("space"))
    if name == "patterns":
        found, source = operators_found(experiment)
        measured = measure_patterns(found, spec, settings, display, parts)
    else:
        source, measured = "", _measure(name, spec, settings, display, parts)
    record = AblationRecord(
        name=name,
        settings=_plain(settings),
        space=spec.name,
        space_id=spec.id,
        of=source,
        rows=len(measured.rows),
        cpu_seconds=time.process_time() - began,
        machine=device_name("cpu"),
        versions=versions(["numpy", "scipy"]),
        date=datetime.now(UTC),
    )
    write_table(_frame(measured.rows), experiment.folder, ablation_table(name))
    record.write(experiment.folder / ABLATION.format(name=name))
    _remove(parts)
    return record


def _measure(name: str, spec: OperatorSpec, settings: Any, display: Display | None, parts: Path) -> Measured:
    from syno.paper.ablations.ablation import canonical, distance, requirements

    if name == "distance":
        return distance(spec, **settings, display=display, parts=parts)
    if name == "requirements":
        return requirements(spec, **settings, display=display, parts=parts)
    rules = tuple(dict.fromkeys((*spec.rules_on, *settings["rules"])))
    others = {key: value for key, value in settings.items() if key != "rules"}
    return canonical(spec.with_(rules_on=rules), **others, display=display, parts=parts)


def measure_patterns(
    operators: FoundOperators, spec: OperatorSpec, settings: Any, display: Display | None, parts: Path
) -> Measured:
    """Count the patterns in operators, in the best of them, and in random operators of a space, with these settings."""
    from syno.paper.ablations.ablation import patterns

    others = {key: value for key, value in settings.items() if key != "space"}
    return patterns(operators, spec, **others, display=display, parts=parts)


def _remove(parts: Path) -> None:
    from syno.paper.ablations.parts import Parts

    Parts(parts).remove()


def _plain(settings: Any) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}


def _frame(rows: Sequence[Any]) -> pandas.DataFrame:
    import pandas

    table = pandas.DataFrame(list(rows))
    counts = [name for name in table if all(row[name] is None or type(row[name]) is int for row in rows)]
    return table.astype(dict.fromkeys(counts, "Int64"))  # whole numbers, some of which may be unknown


def space_of(experiment: AnyExperiment, place: str | None = None) -> OperatorSpec:
    """Return the space of an ablation: of the preset or file `place`, else the experiment's; for published data ResNet-18's."""
    if place is None and isinstance(experiment, Experiment):
        return experiment.operator_spec.with_(name=experiment.name)
    return find_spec(place or PUBLISHED_SPACE)


def operators_found(experiment: AnyExperiment) -> tuple[FoundOperators, str]:
    """Return the operators of an experiment, and their source in words: published, complete trials, or selected.

    Raises SpecError if there are no operators yet.
    """
    from syno.paper.ablations.patterns import FoundOperators

    folder = experiment.folder
    if is_published(folder):
        keys = [one.key for one in ImportRecord.read(folder / RECORD).operators if one.key is not None]
        found = FoundOperators(tuple(map(OperatorStore(folder).get, keys)))
        source = f"{len(keys)} published with their graph"
    elif isinstance(experiment, Experiment) and experiment.searches and (folder / FROZEN).is_file():
        trials = read_frozen(experiment)
        done = trials[(trials["outcome"] == "complete") & trials["reward"].notna()].drop_duplicates("operator")
        operators = tuple(parse_stored(text) for text in done["operator"])
        found, source = FoundOperators(operators, tuple(map(float, done["reward"]))), f"of {len(done)} complete trials"
    elif (folder / SELECTED).is_file():
        keys = [one.key for one in read_selected(folder / SELECTED)]
        found, source = FoundOperators(tuple(map(OperatorStore(folder).get, keys))), f"{len(keys)} selected"
    else:
        raise SpecError(f"{folder} has no operators yet: neither trials nor a selection; run `syno search` first")
    if not found.operators:
        raise SpecError(f"{folder} has no operator to look for patterns in")
    return found, f"{source}, in {folder}"


def experiment_of_results(place: str) -> AnyExperiment:
    """Return the experiment of a config or of a folder of results, which may be an import without a config.

    Raises SpecError if there is none.
    """
    try:
        return load_any(place)
    except SynoError:
        if not is_published(Path(place)):
            raise
    folder = Path(place)
    return PublishedData(name=folder.resolve().name, artifact=folder, output=folder)


def read_ablation(folder: Path, name: str) -> tuple[list[dict[str, Any]], AblationRecord]:
    """Return the rows of an ablation's table, and its record. Raises SpecError if they do not exist."""
    import pandas

    made_by = f"syno ablate run CONFIG {name}"
    table = read_parquet(folder / TABLE.format(name=ablation_table(name), ending="parquet"), made_by, ("space", "origin"))
    rows = [{str(key): None if pandas.isna(value) else value for key, value in row.items()} for row in table.to_dict("records")]
    return rows, AblationRecord.read(folder / ABLATION.format(name=name))


def draw_ablation(folder: Path, figure: str, formats: Sequence[str]) -> list[Path]:
    """Draw the figure `ablation-NAME` in all formats; return the files. Raises SpecError if it was not measured."""
    from syno.paper.ablations.drawing import draw
    from syno.report.figures import save

    name = figure.removeprefix(ablation_table(""))
    rows, record = read_ablation(folder, name)
    return save(draw(name, rows, record.notes), folder / "figures" / figure, formats)


def page_parts(folder: Path) -> list[AblationPart]:
    """Return the parts of the report page for the ablations whose tables exist."""
    from syno.paper.ablations.page_part import page_part

    there = [name for name in NAMES if (folder / ABLATION.format(name=name)).is_file()]
    found = [(name, *read_ablation(folder, name)) for name in there]
    return [page_part(name, rows, record.notes) for name, rows, record in found]
