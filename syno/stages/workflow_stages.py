"""The list of the workflow's stages, with files, settings, commands and resources of each; paths are in `syno.stages.places`.

The rules of Snakemake, `syno plan`, the order of the commands, and the checks of results before a run follow from this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from syno.base.extensions import load_extensions
from syno.base.files import ORIGINAL
from syno.stages import places
from syno.stages.measurements import KINDS, MeasurementKind, speedup_jobs
from syno.stages.networks import converted, keys, shortlist_keys

if TYPE_CHECKING:  # commands import this list for the order on the help page, and settings take long to import
    from syno.config import AnyExperiment, Experiment

Wildcards: TypeAlias = Mapping[str, str]
FindJobs: TypeAlias = Callable[["AnyExperiment", Sequence[str]], Sequence[Wildcards]]  # of an experiment, by its networks' keys
A_DAY = 24 * 60  # minutes
# Host memory of each process of a training, in its first attempt. Measured with ResNet-18 at 224x224 (ru_maxrss): 241 MiB with
# PyTorch and the data loaded, and 6.7 MiB for each picture of a batch while its FLOPs are counted on the CPU: 860 MiB for the
# 128 of CIFAR-100, 6,900 for the 1,024 of ImageNet. On an H100, 1,800 for ResNet-18 at 32x32 and 25,000 for GPT-2. The rest
# is a guess for torch.compile and FFCV, which `make gpu` measures; a job that takes more starts again with twice as much.
SEARCHING_MIB, TRAINING_MIB = 8_000, 16_000
# What a job that trains asks for at least, where its workload was measured to take more than other jobs of its stage: by the
# network, and by the data set. `data` and `speed` train some steps, too.
MODEL_MIB, DATA_MIB = {"gpt2": 32_000}, {"imagenet": 8_000}
MOST_MIB = 8 * TRAINING_MIB  # of later attempts; partitions of clusters are made for it


@dataclass(frozen=True)
class WorkflowStage:
    """A stage of the workflow, for the plan, the check of results and the commands. Its rule is in `workflow/rules`.

    To add a stage: a rule, a row in the list below, a command, and a function that it calls. A stage that measures networks is
    a row in `syno.stages.measurements`.

    Attributes:
        name: name of the rule.
        commands: `syno` commands of the stage, in the order of the help page.
        jobs: returns the wildcards of each job of an experiment, by the keys of its networks; [] if it has no such stage.
        files: files that a job writes and later stages read: paths in the folder of results, with wildcards in braces.
        also: files that a job writes in addition, such as other formats.
        after: names of the stages whose `files` a job reads.
        elsewhere: names of the stages of other experiments (`sources`, `goes_first`) whose `files` a job reads.
        settings: the part of the experiment's settings that the files depend on.
        readers: for files that take long to make, functions (`module:name`) that read and check a file, by path pattern.
            Damaged files without a reader are made anew.
        is_timed: whether times and memory of a job are recorded.
        is_per_network: whether there are jobs for each network that is trained.
        is_of_shortlist: whether there are jobs for each network of the shortlist instead, if operators are selected by latency.
        is_shared: whether files are outside the folder of results.
        is_page: whether files are figures and pages, which are larger than records.
        is_training: whether jobs train, if only for some steps: they need the memory of the experiment's workload.
        memory_mib, minutes: memory and runtime of a job's first attempt, unless its workload is known to need more memory.
    """

    name: str
    commands: tuple[str, ...]
    jobs: FindJobs
    files: tuple[str, ...]
    also: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    settings: str | None = None
    readers: Mapping[str, str] | None = None
    is_timed: bool = False
    is_per_network: bool = False
    is_of_shortlist: bool = False
    is_shared: bool = False
    is_page: bool = False
    is_training: bool = False
    memory_mib: int = 2000
    minutes: int = 10

    def paths(
        self, experiment: AnyExperiment, networks: Sequence[str] = (), patterns: Iterable[str] | None = None
    ) -> list[Path]:
        """Return the files of all jobs of an experiment.

        Args:
            experiment: the experiment.
            networks: keys of the networks that are trained, as `keys` returns them.
            patterns: path patterns of the files of each job; by default those that later stages read.
        """
        root = Path() if self.is_shared else experiment.folder
        chosen = tuple(self.files if patterns is None else patterns)
        return [root / pattern.format(**job) for job in self.jobs(experiment, networks) for pattern in chosen]

    def networks(
        self, experiment: AnyExperiment, selected: Sequence[str] | None = None, shortlisted: Sequence[str] | None = None
    ) -> list[str]:
        """Return the keys of the networks of an experiment's jobs; none if it has no operators of its own.

        Args:
            experiment: the experiment.
            selected: keys of the selected operators; None before the selection: as many as may be selected.
            shortlisted: keys of the shortlist, for a selection by latency; None before it.
        """
        if not has_operators(experiment):
            return []
        is_listed = self.is_of_shortlist and experiment.compares_latencies
        return shortlist_keys(experiment, shortlisted) if is_listed else keys(experiment, selected)

    def memory(self, experiment: AnyExperiment) -> int:
        """Return the MiB of host memory that the first attempt of a job asks for; of a training, for each of its processes."""
        workload = experiment.workload if has_operators(experiment) else None
        if workload is None or not self.is_training:
            return self.memory_mib
        return max(self.memory_mib, MODEL_MIB.get(workload.model, 0), DATA_MIB.get(workload.data, 0))

    def check(self, file: Path, pattern: str) -> None:
        """Read a file with the reader of its path pattern. Raises a SynoError if it is damaged."""
        given = (self.readers or {}).get(pattern)
        if given is not None:
            resolve_name(given)(file)


def has_operators(experiment: AnyExperiment) -> TypeGuard[Experiment]:
    """Return whether an experiment has operators of its own, unlike those that extensions add."""
    from syno.config import Experiment

    return isinstance(experiment, Experiment)


def one_job_if(has_it: Callable[[AnyExperiment], bool]) -> FindJobs:
    """Return a function for `WorkflowStage.jobs`: one job without wildcards if `has_it(experiment)`, else none."""
    return lambda experiment, networks: [{}] if has_it(experiment) else []


def _of_operators(find: Callable[[Experiment, Sequence[str]], Sequence[Wildcards]]) -> FindJobs:
    """Return a function for `WorkflowStage.jobs` that calls `find`, or returns [] for experiments without own operators."""
    return lambda experiment, networks: find(experiment, networks) if has_operators(experiment) else ()


_ALWAYS = one_job_if(lambda experiment: True)
_IF_NETWORK = one_job_if(lambda experiment: has_operators(experiment) and experiment.workload is not None)
_IF_SEARCH = one_job_if(lambda experiment: experiment.searches)
_IF_BY_LATENCY = one_job_if(lambda experiment: has_operators(experiment) and experiment.compares_latencies)
_IF_MIXES = one_job_if(lambda experiment: has_operators(experiment) and bool(experiment.mixture_names))
_IF_SELECTS = one_job_if(has_operators)


@_of_operators
def _conversions(experiment: Experiment, networks: Sequence[str]) -> list[Wildcards]:
    from syno.stages.data import files_to_convert

    return [{"images": str(file.parent), "split": file.stem} for file in files_to_convert(experiment)]


@_of_operators
def _workers(experiment: Experiment, networks: Sequence[str]) -> list[Wildcards]:
    return [{"number": str(number + 1)} for number in range(experiment.study.workers)] if experiment.searches else []


@_of_operators
def _trainings(experiment: Experiment, networks: Sequence[str]) -> list[Wildcards]:
    trained = networks if experiment.workload is not None else ()
    return [{"key": key, "seed": str(seed)} for key in trained for seed in experiment.train.seeds]


@_of_operators
def _rivals(experiment: Experiment, networks: Sequence[str]) -> list[Wildcards]:
    known = (ORIGINAL, *experiment.baselines)
    others = converted(experiment, [key for key in networks if key not in known])
    names = (*experiment.rival_names, *experiment.mixture_names, *(network.key for network in others))
    return [{"rival": name} for name in names]


def _figures(experiment: AnyExperiment, networks: Sequence[str]) -> list[Wildcards]:
    from syno.stages.figures import names

    return [{"name": name} for name in names(experiment)]


def _measuring(kind: MeasurementKind) -> WorkflowStage:
    """Return the workflow stage that makes the records of a kind of measurements."""
    return WorkflowStage(
        kind.name,
        ("tune", "devices") if kind.is_of_shortlist else (),
        _of_operators(kind.jobs),
        files=(kind.pattern,),
        after=("data",),
        settings=kind.settings,
        is_timed=True,
        is_per_network=True,
        is_of_shortlist=kind.is_of_shortlist,
        readers={kind.pattern: f"{kind.record}.read"},
        is_training=not kind.has_compiler,
        memory_mib=4000,
        minutes=kind.minutes,
    )


# fmt: off
_LIST = (
    WorkflowStage(
        "convert", ("convert",), _conversions, files=("{images}/{split}.beton",), is_shared=True,
        memory_mib=4000, minutes=A_DAY),
    WorkflowStage(
        "data", ("data",), _IF_NETWORK, files=(places.DATA,), after=("convert",), elsewhere=("tables",), settings="data",
        is_timed=True, readers={places.DATA: "syno.stages.data:DataRecord.read"}, is_training=True, memory_mib=4000,
        minutes=120),
    WorkflowStage(  # its jobs read the records of rivals, too, if the search begins with those
        "worker", ("search", "worker"), _workers, files=(places.WORKER,), after=("data",), settings="search", is_timed=True,
        readers={places.WORKER: "syno.stages.search:WorkerRecord.read"}, is_training=True,
        memory_mib=SEARCHING_MIB, minutes=A_DAY),
    WorkflowStage(
        "freeze", ("freeze",), _IF_SEARCH, files=(places.FROZEN,), after=("worker",), is_timed=True,
        readers={places.FROZEN: "syno.stages.study:read_trials_table"}),
    WorkflowStage(
        "shortlist", ("shortlist",), _IF_BY_LATENCY, files=(places.SHORTLIST,), after=("freeze",), elsewhere=("tables",),
        settings="select",
        readers={places.SHORTLIST: "syno.stages.selection:read_selected"},  # the next stage reads measurements of it
        memory_mib=4000),
    WorkflowStage(
        "select", ("select",), _IF_SELECTS, files=(places.SELECTED,), after=("freeze", "shortlist"), elsewhere=("tables",),
        settings="select",
        readers={places.SELECTED: "syno.stages.selection:read_selected"},  # `select: source` reads files of another experiment
        memory_mib=4000),  # and tries its operators in the network
    WorkflowStage(  # what the operators were selected by is too high: that of the luckiest measurement
        "speedup", (), _of_operators(speedup_jobs), files=(places.SPEEDUPS,), after=("data", "select"), settings="tune",
        is_timed=True, readers={places.SPEEDUPS: "syno.stages.speedups:SelectedSpeedups.read"},
        memory_mib=4000),
    WorkflowStage(
        "train", ("train", "baseline"), _trainings, files=(places.TRAINING,), after=("data",), settings="train", is_timed=True,
        is_per_network=True, readers={places.TRAINING: "syno.train.training_record:TrainingRecord.read"},
        is_training=True, memory_mib=TRAINING_MIB, minutes=A_DAY),
    WorkflowStage(
        "choose", ("choose",), _IF_MIXES, files=(places.CHOICE,), after=("data", "select"), settings="choice", is_timed=True,
        readers={places.CHOICE: "syno.stages.mixtures:ChoiceRecord.read"}, is_training=True, memory_mib=TRAINING_MIB,
        minutes=A_DAY),
    WorkflowStage(  # its jobs read trainings of the original, too, since pruning begins with those
        "rival", ("rival",), _rivals, files=(places.RIVAL,), after=("data",), settings="rivals", is_timed=True,
        is_per_network=True,
        readers={places.RIVAL: "syno.stages.rivals:RivalRecord.read"}, is_training=True,
        memory_mib=TRAINING_MIB, minutes=A_DAY),
    *map(_measuring, KINDS.values()),
    WorkflowStage(
        "tables", ("tables",), _IF_NETWORK, files=places.table_files(places.TABLES),
        also=places.table_files(places.TABLES, "csv"),
        after=("select", "speedup", "choose", "train", "rival", *KINDS)),
    WorkflowStage(
        "figure", ("figure",), _figures, files=places.figure_files(places.FORMATS[:1]),
        also=places.figure_files(places.FORMATS[1:]), is_page=True, after=("freeze", "tables")),
    WorkflowStage(
        "report", ("report",), _ALWAYS, files=(places.REPORT,), is_page=True,
        after=("freeze", "select", "tables", "figure")),
)
# fmt: on
STAGES: dict[str, WorkflowStage] = {stage.name: stage for stage in _LIST}  # in their order; extensions add to it


def add_stage(stage: WorkflowStage, *, before: str, read_by: Sequence[str] = (), read_elsewhere_by: Sequence[str] = ()) -> None:
    """Add the stage of an extension.

    Args:
        stage: the stage. Its rule of Snakemake is in `workflow/rules`, or in a file that includes the Snakefile.
        before: the name of the stage before which it is inserted.
        read_by: names of later stages that read its files.
        read_elsewhere_by: names of stages of other experiments that read its files.

    Raises ValueError if there is a stage of this name.
    """
    if stage.name in STAGES:
        raise ValueError(f'there is a stage "{stage.name}" already')
    stages = list(STAGES.values())
    stages.insert(list(STAGES).index(before), stage)
    STAGES.clear()
    for other in stages:
        after = (*other.after, *([stage.name] if other.name in read_by else []))
        elsewhere = (*other.elsewhere, *([stage.name] if other.name in read_elsewhere_by else []))
        STAGES[other.name] = replace(other, after=after, elsewhere=elsewhere)


def grown(first: int, attempt: int, most: float = inf) -> int:
    """Return a resource that doubles with each attempt of a job, up to eight times the first amount, or to `most`."""
    return int(max(first, min(first * 2 ** min(attempt - 1, 3), most)))


def jobs(
    experiment: AnyExperiment, selected: Sequence[str] | None = None, shortlisted: Sequence[str] | None = None
) -> dict[str, list[Path]]:
    """Return the first file of each job of an experiment, by stage.

    Args:
        experiment: the experiment.
        selected, shortlisted: keys of the selected operators, and of the shortlist; None before there are any.
    """
    found: dict[str, list[Path]] = {}
    for name, stage in STAGES.items():
        found[name] = stage.paths(experiment, stage.networks(experiment, selected, shortlisted), stage.files[:1])
    return {name: files for name, files in found.items() if files}


def files_on_the_way(experiment: AnyExperiment) -> list[Path]:
    """Return all files of the stages without a job per network: Snakemake makes missing files only if they are requested."""
    stages = [stage for stage in STAGES.values() if not stage.is_per_network and not stage.is_shared]
    return [file for stage in stages for file in stage.paths(experiment, (), (*stage.files, *stage.also))]


load_extensions()  # last: they add to what is above
