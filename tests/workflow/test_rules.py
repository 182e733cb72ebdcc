"""The workflow's files: in which folder they run, and what every rule has."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest
from dry_run import dry_run
from small_run import FIELDS, ROOT, planned, run_snakemake, write_config

from syno.config import load_experiments
from syno.config.left_out import record_devices
from syno.measure.tvm.targets import is_here
from syno.paper.experiments import ablations_of
from syno.stages import figures
from syno.stages.data import files_to_convert
from syno.stages.measurements import KINDS
from syno.stages.plan import plans, stage_rows
from syno.stages.workflow_stages import STAGES

RULES = {
    match[1]: match[0]
    for file in sorted((ROOT / "workflow" / "rules").glob("*.smk"))
    for match in re.finditer(r"^(?:rule|checkpoint) (\w+):\n(?:(?: .*)?\n)*", file.read_text(encoding="utf-8"), re.MULTILINE)
}


def part(rule: str, directive: str) -> str:
    """What a rule says under a directive; empty if it has none."""
    found = re.search(rf"^    {directive}:(.*\n(?: {{8}}.*\n)*)", RULES[rule], re.MULTILINE)
    return found[1] if found else ""


def paths(rule: str, directive: str) -> list[str]:
    """The files with wildcards under a directive."""
    return re.findall(r'"(\{(?:folder|images)\}/[^"]*)"', part(rule, directive))


def all_jobs(config: Path, *names: str) -> dict[str, int]:
    """How many jobs of each rule the experiments of these names take, or all of them, if as many are selected as may be."""
    jobs: Counter[str] = Counter()
    to_convert: set[Path] = set()  # experiments share them
    for name, experiment in load_experiments(config).items():
        if names and name not in names:
            continue
        if experiment.option in ("artifact", "join"):
            jobs.update([experiment.option, "headlines", "report"], figure=len(figures.names(experiment)))
            continue
        jobs.update(["report", "select"], figure=len(figures.names(experiment)), ablate=len(ablations_of(experiment).names))
        if experiment.searches:
            jobs.update(worker=experiment.study.workers, freeze=1)
        if experiment.workload is not None:
            select, pairs, baselines = experiment.select, len(experiment.tune.pairs), len(experiment.baselines)
            listed, chosen = select.most, select.most
            if experiment.compares_latencies:  # each pair has one fastest
                most = pairs if select.by == "latency" else select.count
                listed, chosen = select.shortlist, min(select.count, select.shortlist, most)
                jobs.update(["shortlist"])
            beside = baselines if experiment.tune.baselines else 0
            jobs.update(speed=(chosen + beside) * sum(map(is_here, experiment.tune.device_names)) * experiment.tune.training)
            parts = sum(is_here(device) for _, device in experiment.tune.pairs) * experiment.tune.breakdown
            jobs.update(breakdown=(chosen + beside) * parts)
            to_convert |= set(files_to_convert(experiment))
            jobs.update(speedup=experiment.goal_pair is not None)
            # A narrower network by pruning and one from new weights for each share. Mixtures are evaluated like rivals.
            rivals = experiment.rivals
            if experiment.goal_pair is not None and experiment.searches and experiment.train.seeds and rivals != "none":
                shares = 2 if rivals.shares == "auto" else len(rivals.shares)
                converted = (1 + chosen * (rivals.int8 == "all")) if rivals.int8 and experiment.goal.device == "cpu" else 0
                narrower = shares * (rivals.pruning + rivals.narrowing)
                mixtures = 0 if experiment.mixtures == "none" else experiment.mixtures.count
                jobs.update(rival=narrower + len(rivals.operators) + converted + mixtures, choose=int(mixtures > 0))
            jobs.update(["data", "tables"], train=(1 + chosen + baselines) * len(experiment.train.seeds))
            layers = experiment.tune.layers
            of_original = len(experiment.tune.original_pairs)
            jobs.update(tune=0 if layers == "only" else (1 + listed + beside) * pairs + of_original)
            jobs.update(layers=(1 + chosen + beside) * pairs + of_original if layers else 0)
    jobs["convert"] = len(to_convert)
    return {rule: count for rule, count in jobs.items() if count}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(file, id=file.stem, marks=[] if file.stem == "quickstart" else pytest.mark.slow)
        for file in sorted((ROOT / "config").glob("*.yaml"))
    ],
)
def test_every_config_can_be_planned_in_an_empty_folder(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for experiment in load_experiments(config).values():
        record_devices(experiment)  # as if its optional devices were there
    written = [file.name for file in tmp_path.iterdir()]
    found = planned(tmp_path, config)
    assert found == all_jobs(config)
    assert found == {row["stage"]: row["jobs"] for row in stage_rows(plans(load_experiments(config).values()))[:-1]}
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([".snakemake", *written])


def test_the_page_says_how_many_jobs_the_paper_takes() -> None:
    jobs = all_jobs(ROOT / "config" / "paper.yaml")
    counts = f"{sum(jobs.values()):,} jobs, {jobs['train']} of them trainings and {jobs['tune']:,} measurements"
    assert counts in (ROOT / "docs" / "workflow.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_of_several_takes_with_it_only_what_it_needs(tmp_path: Path) -> None:
    paper = ROOT / "config" / "paper.yaml"
    needed = all_jobs(paper, "imagenet-resnet18", "resnet18")
    needed.pop("ablate")  # only the page of the source shows them
    shown = all_jobs(paper, "resnet18")  # of the source, its tables are needed, but no figures
    assert planned(tmp_path, paper, "imagenet-resnet18") == {
        **needed, "figure": needed["figure"] - shown["figure"], "report": 1
    }  # fmt: skip


def test_a_search_waits_for_the_rivals_that_it_begins_with(tmp_path: Path) -> None:
    goal = {"speedup": 2, "compiler": "eager"}
    changes = {"goal": goal, "rivals": {"shares": [0.5], "operators": [], "int8": False}, "reward": {"name": "gain"}}
    config = write_config(tmp_path / "gain.yaml", changes, {**FIELDS, "reward": {}})
    jobs = dry_run(tmp_path, config, "workflow/profiles/local", "--cores", "2", "--quiet", "host")
    (worker,) = (job for job in jobs if job.rule == "worker")
    rivals = {job.outputs for job in jobs if job.rule == "rival"}
    assert len(rivals) == 2 and rivals < set(worker.inputs.split(", ")), "those of the selection come later"
    assert all("trials" not in job.inputs for job in jobs if job.rule == "rival")


@pytest.mark.parametrize("file", ["Snakefile", "workflow/Snakefile"])
def test_snakemake_finds_nothing_to_improve(file: str, tmp_path: Path) -> None:
    done = run_snakemake(tmp_path, ["--snakefile", str(ROOT / file), "--lint"])
    assert done.returncode == 0, done.stdout


FILES = (ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *sorted((ROOT / "workflow" / "rules").glob("*.smk")))


def bound_names(file: Path) -> Iterator[tuple[str, str]]:
    """The names that a file of rules binds for all of them, each with what it stands for."""
    from snakemake.parser import parse

    source = SimpleNamespace(get_path_or_uri=lambda secret_free: str(file))
    python, _ = parse(source, SimpleNamespace(sourcecache=SimpleNamespace(open=lambda _: file.open(encoding="utf-8"))), {})
    scopes = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    left: list[ast.AST] = [ast.parse(python)]
    while left:
        node = left.pop()
        here = f"{file.name}, line {getattr(node, 'lineno', 0)} of its Python"
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", "")
            yield from ((alias.asname or alias.name.partition(".")[0], f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not node.name.startswith("__rule_"):  # Snakemake numbers the rules of all files
                yield node.name, here
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, here
        for inner in ast.walk(node) if isinstance(node, scopes) else ():
            if isinstance(inner, ast.Global):
                yield from ((name, here) for name in inner.names)
        left += () if isinstance(node, scopes) else ast.iter_child_nodes(node)


def clashes(files: Iterable[Path]) -> dict[str, list[str]]:
    """The names that stand for several things, in files of rules and in Snakemake's own program, which share their names."""
    importlib.import_module("snakemake.cli")  # the order in which its modules can be imported
    from snakemake import ioflags, ioutils, workflow

    given = dict.fromkeys(("workflow", "shell", "config", "rules", "checkpoints", "storage", "scatter", "gather"))
    ioutils.register_in_globals(given)
    ioflags.register_in_globals(given)
    given |= vars(workflow)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        for name, meaning in bound_names(file):
            found[name].add(meaning)
            if name in given and (" " in meaning or resolve_name(meaning.strip(".")) is not given[name]):
                found[name].add("Snakemake's")
    return {name: sorted(meanings) for name, meanings in found.items() if len(meanings) > 1}


def test_no_file_of_rules_overwrites_a_name_of_another() -> None:
    """All of them share their names: a function reads what the last file that was included has made of a name."""
    assert clashes(FILES) == {}


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["from syno.stages.targets import MEASURED\n", "MEASURED = [1]\n"], "MEASURED"),
        (["from os import path as place\n", "from sys import path as place\n"], "place"),
        (["def made(wildcards):\n    return 1\n", "for made in ():\n    pass\n"], "made"),
        (["if True:\n    made = 1\n", "rule made:\n    output: 'a'\n\nwith open('b') as made:\n    pass\n"], "made"),
        (["made = 1\nmade = 2\n"], "made"),
        (["made = 1\n", "def change():\n    global made\n    made = 2\n"], "made"),
        (["if (made := 1):\n    pass\n", "class made:\n    pass\n"], "made"),
        (["shell = 1\n"], "shell"),
    ],
)
def test_an_overwritten_name_is_found(texts: list[str], name: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.smk" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    assert list(clashes(files)) == [name]


@pytest.mark.parametrize(
    "texts",
    [
        ["from pathlib import Path\n", "from pathlib import Path\nimport os\n"],
        ["def a(made):\n    return [made for made in made]\n", "made = 1\nb = [made for made in ()]\n"],
    ],
    ids=["imported twice", "of functions"],
)
def test_names_that_overwrite_nothing_are_no_clash(texts: list[str], tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.smk" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    assert clashes(files) == {}


def test_the_snakefile_is_short() -> None:
    assert len((ROOT / "workflow" / "Snakefile").read_text(encoding="utf-8").splitlines()) <= 40


def test_the_rules_are_the_stages() -> None:
    assert set(RULES) == set(STAGES)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_writes_the_files_of_its_stage(rule: str) -> None:
    stage = STAGES[rule]
    written = [file if stage.is_shared else f"{{folder}}/{file}" for file in (*stage.files, *stage.also)]
    assert paths(rule, "output") == written


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_has_a_log_and_its_times_if_they_are_recorded(rule: str) -> None:
    (log,) = paths(rule, "log")
    wildcards = re.compile(r"{(\w+)}")
    assert "{log:q}" in part(rule, "shell")
    assert set(wildcards.findall(log)) == set(wildcards.findall(paths(rule, "output")[0]))
    assert paths(rule, "benchmark") == [log.replace("/log/", "/benchmark/").replace(".log", ".tsv")] * STAGES[rule].is_timed


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_depends_on_the_settings_of_its_stage(rule: str) -> None:
    params = part(rule, "params")
    named = ["train"] if "training_settings" in params else re.findall(r'settings_of\("(\w+)"\)', params)
    assert named == ([] if STAGES[rule].settings is None else [STAGES[rule].settings])


@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_command_of_a_rule_is_one_of_ours(rule: str) -> None:
    shell = part(rule, "shell")
    command = KINDS[rule].again.removeprefix("syno ") if rule in KINDS else {"speedup": "tune selected"}.get(rule, rule)
    assert len(re.findall(rf"\bsyno (?:artifact )?{command}\b", shell)) == len(re.findall(r"\bsyno\b", shell)) == 1


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_asks_for_the_resources_of_its_stage(rule: str) -> None:
    assert set(re.findall(r'"(\w+)"', part(rule, "resources") + part(rule, "threads"))) == {rule}


def test_jobs_read_the_files_of_the_stages_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan and the checks of results go by the list of stages, and Snakemake by the rules."""
    monkeypatch.chdir(tmp_path)
    config = write_config(
        tmp_path / "all.yaml",
        {
            "goal": {"speedup": 2, "compiler": "eager"},
            "select": {"by": "latency", "shortlist": 2},
            "tune": {"layers": True, "breakdown": True, "training": True},
            "ablations": ["canonical"],
        },
    )
    (experiment,) = load_experiments(config).values()
    jobs = dry_run(tmp_path, config, "workflow/profiles/local", "--cores", "2", "--quiet", "host")
    assert {"shortlist", "speedup", "layers", "breakdown", "speed", "rival", "ablate"} < {job.rule for job in jobs}
    inputs = {file: job.inputs.split(", ") for job in jobs if job.rule in STAGES for file in job.outputs.split(", ")}

    def before(file: str) -> set[str]:
        """The files that a file is made from, and those that these are made from."""
        return {file}.union(*map(before, inputs.get(file, ())))

    for job in jobs:
        for stage in [STAGES[name] for name in STAGES[job.rule].after] if job.rule in STAGES else []:
            files = map(str, stage.paths(experiment, stage.networks(experiment)))
            assert set(files) <= before(job.outputs.split(", ")[0]), (job.rule, stage.name)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_quotes_what_it_gives_to_the_shell(rule: str) -> None:
    """Every value but a number: folders may have spaces and signs in their names that a shell would expand."""
    shell = part(rule, "shell")
    assert [value for value in re.findall(r"\{([^}]*)\}", shell) if value != "threads" and not value.endswith(":q")] == []
