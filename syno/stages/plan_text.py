"""A plan as Markdown tables: by stage, by experiment, and beside the hours that the paper gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from syno.base.text_tables import Row, markdown
from syno.config import Experiment
from syno.stages.assumptions import SEARCH_HOURS, Assumptions
from syno.stages.plan import MIB, WorkflowPlan
from syno.stages.workflow_stages import STAGES

# GPU hours in the paper: search and training again for a model, tuning for a device.
PAPER: Mapping[str, float] = {"search": SEARCH_HOURS, "training": 900, "tuning": 700}
UNKNOWN = "unknown"
WHY_UNKNOWN = "CPU hours are unknown until a first trial was timed: begin with `syno search`, then plan again.\n"


def plan_text(plans: Sequence[WorkflowPlan], assumed: Assumptions) -> str:
    """Return all tables in Markdown."""
    parts = [
        markdown(stage_rows(plans)),
        markdown(experiment_rows(plans)),
        markdown(paper_rows(plans), left=2),
        f"Assumed (`--assume NAME=VALUE`):\n\n{markdown(assumption_rows(assumed), left=2)}",
    ]
    if any(stage.cpu_hours is None for one in plans for stage in one.stages):
        parts.insert(3, WHY_UNKNOWN)
    return "\n".join(parts)


def stage_rows(plans: Iterable[WorkflowPlan]) -> list[Row]:
    """Return a row for each stage of all experiments together, and one for their sum."""
    stages = [stage for one in plans for stage in one.stages]
    rows: list[Row] = []
    for name in [*sorted({stage.rule for stage in stages}, key=list(STAGES).index), "all"]:
        found = [stage for stage in stages if name in (stage.rule, "all")]
        row = {
            "stage": name,
            "jobs": sum(stage.jobs for stage in found),
            "GPU hours": _sum(stage.gpu_hours for stage in found),
            "CPU hours": _summed(stage.cpu_hours for stage in found),
            "hours of other devices": _rounded(sum(stage.device_hours for stage in found)),
            "files": sum(stage.files for stage in found),
            "MiB": _rounded(sum(stage.bytes for stage in found) / MIB),
        }
        rows.append(row)
    return rows


def experiment_rows(plans: Iterable[WorkflowPlan]) -> list[Row]:
    """Return a row for each experiment."""
    return [
        {
            "experiment": one.experiment.name,
            "jobs": sum(stage.jobs for stage in one.stages),
            "GPU hours: search": _rounded(one.gpu_hours("worker")),
            "training": _rounded(one.gpu_hours("train")),
            "tuning": _sum(one.gpu_hours(rule) for rule in ("tune", "layers", "breakdown", "speedup")),
            "CPU hours": _summed(stage.cpu_hours for stage in one.stages),
            "hours of other devices": _rounded(sum(stage.device_hours for stage in one.stages)),
            "files": sum(stage.files for stage in one.stages),
            "MiB": _rounded(sum(stage.bytes for stage in one.stages) / MIB),
        }
        for one in plans
    ]


def paper_rows(plans: Sequence[WorkflowPlan]) -> list[Row]:
    """Return rows for each search, the trainings of its operators, and each device, beside the paper's hours."""
    roots = _roots([one.experiment for one in plans])
    rows: list[Row] = []
    for one in plans:
        if one.experiment.searches and one.experiment.workload is not None:
            rows.append(_beside("search", one.experiment.name, one.hours("worker")))
    for root in dict.fromkeys(roots.values()):
        found = [one for one in plans if roots[one.experiment.folder] == root and one.experiment.workload is not None]
        if found:
            names = ", ".join(one.experiment.name for one in found)
            rows.append(_beside("training", names, _sum(one.hours("train") for one in found)))
    devices: dict[str, float] = {}
    for one in plans:
        for device, hours in one.tuning_hours.items():
            devices[device] = devices.get(device, 0.0) + hours
    return [*rows, *(_beside("tuning", device, hours) for device, hours in devices.items())]


def assumption_rows(assumed: Assumptions) -> list[Row]:
    """Return a row for each assumption."""
    fields = Assumptions.model_fields
    return [{"name": name, "what": fields[name].description, "value": value} for name, value in assumed.model_dump().items()]


def _beside(what: str, of: str, hours: float | None) -> Row:
    return {"what": what, "of": of, "hours": _summed([hours]), "the paper's": PAPER[what]}


def _summed(hours: Iterable[float | None]) -> float | str:
    """Return the sum, with two digits where it is small; "unknown" if one of the hours is."""
    found = list(hours)
    known = [one for one in found if one is not None]
    total = sum(known)
    return UNKNOWN if len(known) < len(found) else float(f"{total:.2g}") if total < 1 else _rounded(total) or 0


def _roots(experiments: Iterable[Experiment]) -> dict[Path, Path]:
    """Return the folder of the search that the operators come from, for the folder of each experiment."""
    sources = {experiment.folder: experiment.select.source for experiment in experiments}

    def root(folder: Path) -> Path:
        source = sources.get(folder)
        return folder if source is None else root(source)

    return {folder: root(folder) for folder in sources}


def _sum(hours: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of the hours is unknown."""
    found = list(hours)
    known = [one for one in found if one is not None]
    return _rounded(sum(known)) if len(known) == len(found) else None


def _rounded(value: float | None) -> float | int | None:
    """Round to whole numbers from ten on, to one digit below."""
    if value is None:
        return None
    return round(value) if value >= 10 else round(value, 1)
