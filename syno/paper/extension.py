"""What the paper's reproduction adds to Syno: its kinds of experiments, stages, figures, distances and commands.

Syno imports this module as an extension (`syno.base.extensions`), also to print a help page. So it imports little; its entries
import the rest when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.extensions import COMMANDS, EXPERIMENTS, READING_COMMANDS
from syno.ir.graph import PGraph
from syno.ir.library import FOLDERS
from syno.measure import NUMBERED_LAYERS
from syno.paper import places
from syno.space.distance import DISTANCES
from syno.stages.kinds import FIGURE_SETS, KINDS, PUBLISHED_HOURS, SOURCES, ExperimentKind, FigureSet, OperatorSource
from syno.stages.places import FORMATS, table_files
from syno.stages.workflow_stages import WorkflowStage, add_stage, one_job_if

if TYPE_CHECKING:
    from syno.algebra import Size
    from syno.config import AnyExperiment, Experiment
    from syno.space.candidates import Candidates
    from syno.space.distance import OtherDistance
    from syno.stages.selection import Selected

GRAPH_FILE = "graph.dot"  # of a published operator's folder
IMPORTED = (places.RECORD, *table_files(places.IMPORTED_TABLES))  # the files of an import

EXPERIMENTS.extend(f"syno.paper.experiments:{kind}" for kind in ("PublishedData", "JoinedResults", "AblatedExperiment"))
COMMANDS.append("syno.paper.cli")
READING_COMMANDS.extend(("join", "artifact"))


def _published_operator(folder: Path) -> PGraph:
    from syno.paper.artifact.published_operator import read_folder

    return read_folder(folder).with_constants


FOLDERS[GRAPH_FILE] = _published_operator


class _Import(OperatorSource):
    """An import of published data, from which experiments take operators."""

    operator_files = IMPORTED

    def includes(self, folder: Path) -> bool:
        return (folder / places.RECORD).is_file()

    def choose(self, experiment: Experiment) -> list[Selected]:
        from syno.paper.artifact.imported import best_scores
        from syno.stages.selection import Selected

        source, settings = experiment.select.source, experiment.select
        assert source is not None and experiment.workload is not None  # a source needs a workload
        scores = best_scores(source, experiment.workload.model, settings.count, settings.within)
        return [Selected(key=one.key, name=one.name, metrics=one.metrics) for one in scores]


SOURCES.append(_Import())


@DISTANCES.register("paper")
def _paper_distance(candidates: Candidates, wanted: tuple[Size, ...]) -> OtherDistance:
    from syno.paper.distances.published import PublishedDistance

    return PublishedDistance(candidates, wanted, "paper")


@DISTANCES.register("published")
def _published_distance(candidates: Candidates, wanted: tuple[Size, ...]) -> OtherDistance:
    from syno.paper.distances.published import PublishedDistance

    return PublishedDistance(candidates, wanted, "published")


class _PaperKind(ExperimentKind):
    """Experiments with the paper's figures."""

    def names(self, experiment: AnyExperiment) -> tuple[str, ...]:
        from syno.paper.figures.catalogue import PAPER_FIGURES

        return tuple(PAPER_FIGURES)

    def draw(self, experiment: AnyExperiment, name: str) -> list[Path]:
        from syno.paper.stages.figures import draw_paper

        return draw_paper(experiment.folder, [name])


class _PublishedData(_PaperKind):
    made_by = "syno artifact import"
    operator_files = IMPORTED

    def needs(self, experiment: AnyExperiment, left: Collection[str]) -> Mapping[str, Callable[[], str]]:
        def look() -> str:
            from syno.paper.artifact.places import find_data
            from syno.paper.experiments import PublishedData

            return f"the folder {find_data(PublishedData.checked(experiment).artifact)}"

        return {"published data": look} if "artifact" in left else {}

    def write_page(self, experiment: AnyExperiment, output: Path | None) -> Path:
        from syno.paper.stages.figures import write_page

        return write_page(experiment.folder, output)


class _JoinedResults(_PaperKind):
    made_by = "syno join"

    def write_page(self, experiment: AnyExperiment, output: Path | None) -> Path:
        from syno.paper.stages.figures import write_joined_page

        return write_joined_page(experiment, output)


class _Ablations(FigureSet):
    """The ablations of an experiment."""

    def names(self, experiment: AnyExperiment) -> tuple[str, ...]:
        from syno.paper.experiments import ablations_of

        return tuple(map(places.ablation_table, ablations_of(experiment).names))

    def draw(self, experiment: AnyExperiment, name: str) -> list[Path]:
        from syno.paper.stages.ablations import draw_ablation

        return draw_ablation(experiment.folder, name, FORMATS)

    def page_parts(self, experiment: AnyExperiment) -> Sequence[object]:
        from syno.paper.stages.ablations import page_parts

        return page_parts(experiment.folder)


NUMBERED_LAYERS[places.RESNET34, 1.0, places.IMAGE] = places.LAYERS
PUBLISHED_HOURS["the paper's"] = places.HOURS
KINDS.update(artifact=_PublishedData(), join=_JoinedResults())
FIGURE_SETS.append(_Ablations())

_IF_PUBLISHED = one_job_if(lambda experiment: experiment.option == "artifact")
_IF_JOINED = one_job_if(lambda experiment: experiment.option == "join")
_IF_EITHER = one_job_if(lambda experiment: experiment.option in KINDS)


def _ablations(experiment: AnyExperiment, networks: Sequence[str]) -> list[dict[str, str]]:
    from syno.paper.experiments import ablations_of

    return [{"name": name} for name in ablations_of(experiment).names]


add_stage(
    WorkflowStage(
        "artifact",
        (),
        _IF_PUBLISHED,
        files=IMPORTED,
        also=(places.NUMBERS, *table_files(places.IMPORTED_TABLES, "csv")),
        readers={
            places.RECORD: "syno.paper.stages.artifact:ImportRecord.read",
            places.NUMBERS: "syno.run.measurement:Measurements.read",
        },
    ),
    before="worker",
    read_by=("figure", "report"),
    read_elsewhere_by=("select", "shortlist"),
)
add_stage(
    WorkflowStage(
        "ablate",
        ("ablate",),
        _ablations,
        files=table_files((places.ABLATION_TABLE,)),
        also=(places.ABLATION, *table_files((places.ABLATION_TABLE,), "csv")),
        after=("data",),  # patterns come after the search or the import
        settings="ablations",
        is_timed=True,
        minutes=240,
        readers={places.ABLATION: "syno.paper.stages.ablations:AblationRecord.read"},
    ),
    before="figure",
    read_by=("figure", "report"),
)
add_stage(
    WorkflowStage(
        "join",
        ("join",),
        _IF_JOINED,
        files=(places.JOINED, *table_files(places.IMPORTED_TABLES)),
        elsewhere=("artifact", "tables", "ablate", "join"),
        also=table_files(places.IMPORTED_TABLES, "csv"),
        settings="join",
        readers={places.JOINED: "syno.paper.stages.join:JoinRecord.read"},
    ),
    before="figure",
    read_by=("figure", "report"),
)
add_stage(
    WorkflowStage(
        "headlines",
        (),
        _IF_EITHER,
        files=table_files((places.HEADLINES,)),
        also=table_files((places.HEADLINES,), "csv"),
        after=("artifact", "join"),
    ),
    before="figure",
    read_by=("report",),
)
