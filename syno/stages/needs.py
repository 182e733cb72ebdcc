"""What a run needs before its first job, and whether it is there: data, devices, compilers, packages, disk space, memory.

All needs are probed at the same time, with short time limits. Nothing is written, and no code that experiments name is
imported. Only jobs whose files are not there yet have needs.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from syno.base.devices import require_device, visible_gpus
from syno.base.errors import DeviceError, MissingPackageError, SynoError, one_line
from syno.base.record import versions
from syno.base.registry import is_path
from syno.base.release import pip_install
from syno.base.text_tables import Row, in_bytes, plural
from syno.config import AnyExperiment, Experiment
from syno.config.left_out import devices_file, leaving_out, undecided
from syno.data.files import DataFound, look_for
from syno.lower.tvm.installed import VERSIONS
from syno.measure.compilers import as_reached, compiler_facts, cpp_version
from syno.measure.devices import SshSettings
from syno.measure.native.build import compiler as cpp
from syno.measure.native.build import compiler_version
from syno.measure.ssh import status_by_ssh
from syno.measure.tvm.targets import DeviceSettings, is_here
from syno.measure.tvm.tracker import status_of
from syno.stages.kinds import kind_of
from syno.stages.measurements import KINDS
from syno.stages.places import SELECTED, SHORTLIST, compiler_in_files, device_named
from syno.stages.plan import data_to_make, plans, workload_of
from syno.stages.restore import keys_in
from syno.stages.targets import check_source
from syno.stages.train import settings_of_training
from syno.stages.workflow_stages import STAGES, Wildcards

CONNECT_SECONDS = 5  # in which a machine or a database answers
AT_ONCE = 16  # things that are tried; most of the time, they wait for other machines
READS_DATA = ("data", "worker", "choose", "train", "rival", "speed")  # stages
PLAIN = "eager"  # the compiler that needs nothing but PyTorch
POSTGRESQL_PORT = 5432
TVM = pip_install("tvm")
MIB = 2**20

State: TypeAlias = Literal["missing", "left out", "not known", "ok"]
STATES: tuple[str, ...] = get_args(State)  # in the order of the table
Jobs: TypeAlias = Mapping[str, Sequence[Wildcards]]  # the wildcards of jobs, by stage
Pair: TypeAlias = tuple[str, str]  # compiler, device


class ProbeResult(NamedTuple):
    """Result of one probe: what is installed, or how to install it, in words."""

    text: str
    state: State = "ok"


@dataclass(frozen=True)
class Probe:
    """A check of one need of experiments, such as a device or a package.

    Attributes:
        subject: the need, for the table.
        look: the function that checks; raises a SynoError, which says what to do, if the need is missing.
        settings: what else the check depends on. Probes with equal subject and settings run once.
        optional: the name of the optional device that is checked; "" for a need that must be there.
    """

    subject: str
    look: Callable[[], ProbeResult] = field(compare=False)
    settings: str = ""
    optional: str = ""


@dataclass(frozen=True)
class Need:
    """A need of experiments, such as a device or a package, and whether it is there.

    Attributes:
        subject: what is needed.
        state: whether the need is met.
        text: what is installed, or what to do.
        experiments: the names of the experiments that have the need.
        device: the name of the optional device that is left out if the need is not met; "" for other needs.
    """

    subject: str
    state: State
    text: str
    experiments: tuple[str, ...]
    device: str = ""


def needs(experiments: Iterable[AnyExperiment], *, elsewhere: bool = False) -> list[Need]:
    """Return the needs of the jobs whose files are not there yet. Devices are tried, which takes seconds.

    Args:
        experiments: all experiments of the run.
        elsewhere: whether the jobs run on the nodes of a cluster, whose devices are not tried.
    """
    asked = list(experiments)
    left = {experiment.name: jobs_left(experiment) for experiment in asked}
    running = [experiment for experiment in asked if left[experiment.name]]
    folders = {str(experiment.folder) for experiment in asked}
    tried = _tried({one.name: list(_probes(one, left[one.name], folders, elsewhere)) for one in running})
    out = [need for experiment in running for need in _left_out(experiment)]
    able = _with_those_there(running, tried)
    left = {experiment.name: jobs_left(experiment) for experiment in able}
    return [*tried, *out, *_room(able, left), *([] if elsewhere else _memory(able, left))]


def with_devices(
    experiments: Iterable[AnyExperiment], needed: Iterable[Need] | None = None, *, elsewhere: bool = False
) -> list[AnyExperiment]:
    """Return the experiments without the optional devices that are missing; earlier decisions to leave out devices stay.

    Args:
        experiments: the experiments.
        needed: the result of `needs` for these experiments; by default, devices are probed now.
        elsewhere: as for `needs`.

    Raises SpecError if an experiment selects by latency, and none of its devices is there.
    """
    asked = list(experiments)
    if needed is None:
        several = [one for one in asked if isinstance(one, Experiment) and undecided(one)]
        needed = _tried({one.name: _of_undecided(one, elsewhere) for one in several})
    reasons: dict[str, dict[str, str]] = {}
    for need in needed:
        for name in need.experiments if need.device else ():
            reasons.setdefault(name, {}).setdefault(need.device, need.text)
    return [
        leaving_out(one, {**one.left_out, **reasons[one.name]}) if isinstance(one, Experiment) and one.name in reasons else one
        for one in asked
    ]


def _with_those_there(experiments: Iterable[AnyExperiment], needed: Sequence[Need]) -> list[AnyExperiment]:
    """Return the experiments without the devices that `needed` leaves out; unchanged where an experiment cannot run without."""
    able: list[AnyExperiment] = []
    for experiment in experiments:
        try:
            able += with_devices([experiment], needed)
        except SynoError:  # the run says so
            able.append(experiment)
    return able


def _of_undecided(experiment: Experiment, elsewhere: bool) -> list[Probe]:
    """Return the probes of an experiment's optional devices that no record of a decision names yet."""
    names, left = undecided(experiment), jobs_left(experiment)
    pairs = [pair for pair in _pairs(experiment, left) if pair[1] in names]
    return [probe for probe in _devices(experiment, {}, pairs, elsewhere) if probe.optional]


def _left_out(experiment: AnyExperiment) -> Iterator[Need]:
    """Yield a need for each optional device that the experiment's existing results have left out."""
    for name, reason in experiment.left_out.items():
        text = f"{reason}; it was not there at first: delete {devices_file(experiment)} to look again"
        yield Need(f"device {name}", "left out", text, (experiment.name,))


def _tried(probes: Mapping[str, Sequence[Probe]]) -> list[Need]:
    """Run the probes, which are listed by the experiment's name, and return the needs. Equal probes run once."""
    users: dict[Probe, list[str]] = {}
    for name, several in probes.items():
        for probe in dict.fromkeys(several):
            users.setdefault(probe, []).append(name)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        results = list(threads.map(_look, users))
    return [
        Need(probe.subject, "left out", text, tuple(names), probe.optional)
        if state == "missing" and probe.optional
        else Need(probe.subject, state, text, tuple(names))
        for (probe, names), (text, state) in zip(users.items(), results, strict=True)
    ]


def need_rows(needed: Iterable[Need]) -> list[Row]:
    """Return the rows of the table that `syno check` prints, one for each need."""
    listed = sorted(needed, key=lambda need: STATES.index(need.state))
    everyone = list(dict.fromkeys(name for need in listed for name in need.experiments))
    return [
        {
            "needed": need.subject,
            "for": _in_short(need.experiments, everyone),
            "state": need.state,
            "what there is, or what to do": need.text,
        }
        for need in listed
    ]


def _in_short(names: Sequence[str], everyone: Sequence[str]) -> str:
    """Return names of experiments in short: "all" for `everyone`, "imagenet-*" for all names that begin with "imagenet-"."""
    if len(everyone) > 1 and set(names) == set(everyone):
        return "all"
    shown = []
    for name in names:
        beginning = f"{name.partition('-')[0]}-"
        alike = {other for other in everyone if other.startswith(beginning)}
        shown.append(f"{beginning}*" if name in alike and len(alike) > 1 and alike <= set(names) else name)
    return ", ".join(dict.fromkeys(shown))


def jobs_left(experiment: AnyExperiment) -> dict[str, list[Wildcards]]:
    """Return the wildcards of jobs whose files are missing, by stage; before a selection, for the largest possible selection.

    Stages that only draw figures are left out, since they need nothing.
    """
    files = (experiment.folder / SELECTED, experiment.folder / SHORTLIST)
    selected, shortlisted = (keys_in(file) if file.is_file() else None for file in files)
    found: dict[str, list[Wildcards]] = {}
    for name, stage in STAGES.items():
        if stage.is_page:
            continue
        root = Path() if stage.is_shared else experiment.folder
        jobs = stage.jobs(experiment, stage.networks(experiment, selected, shortlisted))
        found[name] = [job for job in jobs if not (root / stage.files[0].format(**job)).is_file()]
    return {name: jobs for name, jobs in found.items() if jobs}


def _look(probe: Probe) -> ProbeResult:
    try:
        return probe.look()
    except SynoError as error:
        return ProbeResult(one_line(error), "missing")
    except OSError as error:  # such as a file that may not be read
        return ProbeResult(one_line(error), "not known")


def _probes(experiment: AnyExperiment, left: Jobs, folders: Collection[str], elsewhere: bool) -> Iterator[Probe]:
    """Yield a probe for each thing that the jobs of an experiment need: data, packages, devices, compilers."""
    yield from _results_of_others(experiment, folders)
    if (kind := kind_of(experiment)) is not None:
        for what, look in kind.needs(experiment, left).items():
            yield Probe(what, partial(_said, look), str(experiment.folder))
    if not isinstance(experiment, Experiment):
        return
    yield from _data(experiment, left)
    pairs = _pairs(experiment, left)
    yield from _devices(experiment, left, pairs, elsewhere)
    yield from _compilers(experiment, pairs, elsewhere)
    if "worker" in left and "://" in experiment.storage and not experiment.storage.startswith("sqlite"):
        yield Probe("database of the study", partial(_database, experiment.storage), experiment.storage)


def _said(look: Callable[[], str]) -> ProbeResult:
    return ProbeResult(look())


def _results_of_others(experiment: AnyExperiment, folders: Collection[str]) -> Iterator[Probe]:
    named = (*experiment.sources, *experiment.goes_first)
    if others := [str(folder) for folder in named if str(folder) not in folders]:
        yield Probe(f"results in {', '.join(others)}", partial(_there, experiment, folders))


def _there(experiment: AnyExperiment, folders: Collection[str]) -> ProbeResult:
    check_source(experiment, folders)
    return ProbeResult("they are there")


def _data(experiment: Experiment, left: Jobs) -> Iterator[Probe]:
    workload = experiment.workload
    if workload is None or not any(stage in left for stage in READS_DATA):
        return
    name, settings = workload.data, repr(workload.data_settings)
    if is_path(name):
        yield Probe(f"data {name}", partial(ProbeResult, "your own function loads it", "not known"))
    for part, look in look_for(name, workload.data_settings).items():
        yield Probe(f"data {name}: {part}", partial(_of_data, look), settings)
    if workload.data_settings.get("download"):
        yield Probe("token of the Hub", _token)


def _of_data(look: Callable[[], DataFound]) -> ProbeResult:
    found = look()
    return ProbeResult(found.text, "ok" if found.is_known else "not known")


def _token() -> ProbeResult:
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    file = Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser()
    if os.environ.get("HF_TOKEN") or file.is_file():
        return ProbeResult("there is one")
    return ProbeResult("there is none, and public repositories need none; for others, `hf auth login`", "not known")


def _pairs(experiment: Experiment, left: Jobs) -> list[tuple[str, str]]:
    """Return the pairs (compiler, device) of the measurements still to do; the compiler is "" where PyTorch trains."""
    goal, of_search = experiment.goal, list[tuple[str, str]]()
    if goal is not None and goal.measures and "worker" in left:
        of_search = [(compiler, goal.device) for compiler in (goal.screening_compiler, goal.compiler)]
    found = [
        (compiler_in_files(experiment, job["compiler"]) if "compiler" in job else "", device_named(experiment, job["device"]))
        for stage in (*KINDS, "speedup")
        for job in left.get(stage, ())
    ]
    return list(dict.fromkeys([*of_search, *found]))


def _devices(experiment: Experiment, left: Jobs, pairs: Sequence[Pair], elsewhere: bool) -> Iterator[Probe]:
    for device in dict.fromkeys(_trained_on(experiment, left)):
        if device != "cpu":
            yield Probe(f"GPU to train on ({device})", _on_nodes if elsewhere else partial(_gpu, device, ""))
    settings, new = experiment.tune, undecided(experiment)
    of_goal = "" if experiment.goal_pair is None else experiment.goal_pair[1]
    for name in dict.fromkeys(device for _, device in pairs if device != "cpu"):
        meant = settings.stands_for.get(name, "")
        optional = name if name in new and name != of_goal else ""
        if is_here(name):
            what = f"device {name}{f' as {meant}' if meant else ''}"
            yield Probe(what, _on_nodes if elsewhere else partial(_gpu, name, meant), optional=optional)
            continue
        remote = settings.remote_devices[name]
        reached = {compiler: as_reached(compiler, remote) for compiler, device in pairs if device == name}
        by_ssh = tuple(compiler for compiler, place in reached.items() if isinstance(place, SshSettings))
        if isinstance(remote, SshSettings) and by_ssh:
            look = partial(_by_ssh, name, remote, by_ssh, meant)
            yield Probe(f"device {name} (ssh {remote.host})", look, repr((remote, by_ssh, meant)), optional)
        at_trackers = {repr(place): place for place in reached.values() if isinstance(place, DeviceSettings)}
        for settled, place in at_trackers.items():
            yield Probe(f"device {name} (tracker {place.tracker})", partial(_at_tracker, name, place), settled, optional)


def _trained_on(experiment: Experiment, left: Jobs) -> Iterator[str]:
    """Yield the devices of this machine on which jobs train."""
    if experiment.workload is None or not experiment.trains:
        return
    if "data" in left or "worker" in left:
        yield experiment.workload.training.device
    if "train" in left:
        yield settings_of_training(experiment).training.device


def _on_nodes() -> ProbeResult:
    return ProbeResult("jobs run on other machines, which are not asked", "not known")


def _gpu(name: str, meant: str) -> ProbeResult:
    require_device(name)
    models = Counter(gpu.model or gpu.name for gpu in visible_gpus())
    return _is_right(", ".join(f"{count} x {model}" for model, count in models.items()) or "PyTorch finds it", meant)


def _is_right(name: str, meant: str, more: str = "") -> ProbeResult:
    """Return the result for a device that answers; "not known" if `name` shares no word with `meant`."""
    words = {word.lower() for word in meant.split()} - {"cpu", "gpu"}
    if not words or any(word in name.lower() for word in words):
        return ProbeResult(f"{name}{more}")
    return ProbeResult(f"{name}{more}; is it the {meant}? If not, leave it out of stands_for", "not known")


def _by_ssh(name: str, device: SshSettings, compilers: Sequence[str], meant: str) -> ProbeResult:
    status = status_by_ssh(name, device, CONNECT_SECONDS)
    if (about := status.about) is None:
        raise DeviceError(status.fault)
    facts = {compiler: compiler_facts(compiler) for compiler in compilers}
    if not about.cpp and (lacking := [compiler for compiler, one in facts.items() if one.builds_cpp]):
        raise MissingPackageError(f"there is no C++ compiler, for {', '.join(lacking)}: install g++ or clang there")
    if not about.tvm and (lacking := [compiler for compiler, one in facts.items() if one.installed is not None]):
        raise MissingPackageError(f"TVM is not installed there, for {', '.join(lacking)}: {device.python} -m {TVM}")
    versions = (f"torch {about.torch}", about.tvm and f"TVM {about.tvm}", about.cpp, f"{in_bytes(about.free_mib * MIB)} free")
    return _is_right(about.device, meant, f"; {', '.join(filter(None, versions))}")


def _at_tracker(name: str, device: DeviceSettings) -> ProbeResult:
    status = status_of(name, device)
    if status.fault:
        raise DeviceError(status.fault)
    return ProbeResult("servers are made when needed" if status.servers is None else plural(status.servers.total, "server"))


def _compilers(experiment: Experiment, pairs: Sequence[Pair], elsewhere: bool) -> Iterator[Probe]:
    """Yield the compilers that work on this machine; for a device at a tracker, TVM does."""
    made_here: dict[str, bool] = {}  # whether they make code for this machine
    for compiler, device in pairs:
        remote = experiment.tune.remote_devices.get(device)
        if compiler and not isinstance(as_reached(compiler, remote), SshSettings):
            made_here[compiler] = made_here.get(compiler, False) or is_here(device)
    for compiler, is_for_here in made_here.items():
        if is_path(compiler):
            yield Probe(f"compiler {compiler}", partial(ProbeResult, "it is your own", "not known"))
        elif compiler != PLAIN:
            others = "" if is_for_here else ", for other machines"
            builds_cpp = is_for_here and compiler_facts(compiler).builds_cpp
            look = partial(_compiler, compiler, builds_cpp, elsewhere, compiler in (experiment.goal_pair or ()))
            yield Probe(f"compiler {compiler}{others}", look)


def _compiler(name: str, builds_cpp: bool, elsewhere: bool, is_of_goal: bool) -> ProbeResult:
    facts = compiler_facts(name)
    try:
        facts.require()
    except MissingPackageError as error:
        if is_of_goal or not facts.may_be_missing:
            raise
        return ProbeResult(f"{error}; without it, its rows of the tables say so", "left out")
    found = versions((*facts.requires, *(VERSIONS if facts.installed is not None else ("torch",))))
    texts = [f"{package} {version}" for package, version in found.items() if package not in ("python", "syno")]
    if builds_cpp and elsewhere and not cpp_version():
        return ProbeResult("there is no C++ compiler here, and the other machines are not asked", "not known")
    if builds_cpp:
        texts.append(compiler_version(cpp()))
    return ProbeResult(", ".join(texts))


def _database(url: str) -> ProbeResult:
    place = urlsplit(url)
    if place.scheme.startswith("postgresql") and find_spec("psycopg") is None:
        raise MissingPackageError(f"psycopg is not installed: {pip_install('postgresql')}")
    host, port = place.hostname or "localhost", place.port or POSTGRESQL_PORT
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return ProbeResult(f"{host}:{port} answers")
    except OSError as error:
        raise DeviceError(f"{host}:{port} does not answer ({one_line(error)}): start it, or look at study: storage") from None


def _room(running: Sequence[AnyExperiment], left: Mapping[str, Jobs]) -> list[Need]:
    """Return a need for each disk: the space for the files that the remaining jobs write, as `syno plan` estimates it."""
    wanted: dict[int, float] = {}
    places: dict[int, list[AnyExperiment]] = {}
    made: set[str] = set()
    for found in plans(one for one in running if isinstance(one, Experiment)):  # others write little
        experiment = found.experiment
        disk = _existing(experiment.folder).stat().st_dev
        for stage in found.stages:
            share = min(1.0, len(left[experiment.name].get(stage.rule, ())) / stage.jobs)
            wanted[disk] = wanted.get(disk, 0.0) + stage.bytes * share
        places.setdefault(disk, []).append(experiment)
        if "data" in left[experiment.name] and (workload := workload_of(experiment)) is not None:
            key = f"{workload.data} {workload.data_settings}"
            wanted[disk] += 0 if key in made else data_to_make(workload)
            made.add(key)
    return [_room_on(_existing(users[0].folder), wanted[disk], users) for disk, users in places.items()]


def _existing(folder: Path) -> Path:
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())


def _room_on(place: Path, wanted: float, users: Sequence[AnyExperiment]) -> Need:
    free, names = shutil.disk_usage(place).free, tuple(one.name for one in users)
    text = f"{in_bytes(free)} are free in {place}, and results take about {in_bytes(wanted)}"
    if free >= wanted:
        return Need("room on the disk", "ok", text, names)
    return Need("room on the disk", "missing", f"{text}: make room, or give a folder on another disk (output)", names)


def _memory(running: Sequence[AnyExperiment], left: Mapping[str, Jobs]) -> list[Need]:
    """Return the need of memory on this machine: the memory of the largest remaining job, in its first attempt."""
    import psutil

    asked = [STAGES[stage].memory(one) for one in running for stage in left[one.name]]
    if not asked:
        return []
    wanted = MIB * max(asked)
    total, names = psutil.virtual_memory().total, tuple(one.name for one in running)
    text = f"the machine has {in_bytes(total)}, and the largest job asks for {in_bytes(wanted)} at first"
    # What a job asks for is what a cluster reserves for any network; a small one needs far less.
    return [Need("memory", "ok" if total >= wanted else "not known", text, names)]
