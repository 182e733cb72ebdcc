"""Records of a stranger, with source, quotes, paths, terminal codes and endless lines in every text: reading does no harm."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from test_damaged_records import KINDS
from typer.testing import CliRunner

from syno.base.addresses import LONGEST, LONGEST_MESSAGE, OPERATORS, visible
from syno.base.errors import SynoError
from syno.base.files import json_with_checksum, read_json
from syno.base.quoting import comment, docstring
from syno.base.record import Record
from syno.cli import app
from syno.config import Experiment, load_experiment
from syno.config.files import RUN_HERE
from syno.export.network_source import NetworkSource
from syno.run.parquet import write_parquet
from syno.stages.restore import Manifest, ManifestEntry, reader_of, restore_times
from syno.stages.restore import checksum as sha256

TRACE = "it_ran"
TEXTS = {
    "python": f'x"""\nopen("{TRACE}", "w")\nx = """',
    "a backslash": f'x\\"""\nopen("{TRACE}", "w")\n"""\\',
    "c++": f'x\n__attribute__((constructor)) void f() {{ fopen("{TRACE}", "w"); }}\\\n??/',
    "shell": f"x'; touch {TRACE}; $(touch {TRACE}) `touch {TRACE}` #",
    "quotes": "'\"'''\"\"\"\\",
    "lines": "a\r\n\nb\x85c\u2028d",
    "a path": f"../../{TRACE}",
    "an absolute path": f"/tmp/{TRACE}",
    "an option": "--output=/",
    "a terminal": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "bidi": "\u202etxt.exe\u2066\u200b",
    "nul": "a\x00b",
    "html": "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "markdown": "| [a](javascript:x) | $\\frac$ | {0} %s {x.y}",
    "half a character": "\ud800",
    "100,000 characters": "x" * 100_000,
    "100,000 lines": "x\n" * 100_000,
    "nothing": "",
}
# Fields and columns that are compared with the settings, or have a few values: with other ones, commands end early.
OF_SETTINGS = {
    "workload", "subject", "settings", "operator_id", "operator", "key", "role", "metric", "unit", "data", "model", "name",
    "layers", "data_hash", "hash", "study", "outcome", "fingerprint", "path", "steps", "status", "kind", "compiler",
    "device_setting", "origin", "weights", "versions",
}  # fmt: skip
QUICK = [["top", "gift"], ["tables", "results/gift"], ["get", "results/gift", "separable_conv2d"]]
READERS = [
    *QUICK,
    ["watch", "results/gift", "--once", "--page", "page.html"],
    ["report", "results/gift"],
    ["figure", "results/gift", "score-speedup"],
    ["plan", "results/gift/experiment.yaml"],
    ["freeze", "results/gift"],
    ["select", "results/gift"],
    ["measurements", "results/gift"],
    ["join", "join.yaml"],
]


@pytest.fixture
def gift(done: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder results/gift of a stranger, in a folder to work in."""
    shutil.copytree(done.folder, tmp_path / "work" / "results" / "gift")
    monkeypatch.chdir(tmp_path / "work")
    Path("join.yaml").write_text("{name: joined, join: {of: [results/gift]}}")
    return Path("results/gift")


def texts_in(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all texts."""
    if isinstance(content, str):
        yield place
    elif isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from texts_in(value, (*place, key))


def with_text(content: Any, place: tuple[Any, ...], text: str) -> Any:
    if not place:
        return text
    changed = dict(content) if isinstance(content, dict) else list(content)
    changed[place[0]] = with_text(changed[place[0]], place[1:], text)
    return changed


def all_texts(content: Any, name: object = None) -> Iterator[tuple[object, str]]:
    if isinstance(content, str):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from [(None, key), *all_texts(value, key)]
    elif isinstance(content, list):
        for value in content:
            yield from all_texts(value, name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_record_says_can_be_shown(kind: type[Record], tmp_path: Path) -> None:
    """Every text of a record is put in every field: it is refused in one line, or read as one that can be shown."""
    file = tmp_path / "record.json"
    content = {**KINDS[kind], "versions": {"python": "3.11"}}
    taken = 0
    for place in texts_in(content):
        for text in TEXTS.values():
            for changed in (with_text(content, place, text), {**content, "versions": {text: "1"}}):
                file.write_text(json.dumps(changed))
                try:
                    record = kind.read(file)
                except SynoError as error:
                    assert len(str(error)) < 5_000 and visible(str(error)) == str(error)
                    continue
                taken += 1
                for name, read in all_texts(json.loads(record.model_dump_json())):
                    assert visible(read) == read and (name in OPERATORS or ("\n" not in read and len(read) <= LONGEST)), place
        record.write(file)
        assert kind.read(file) == record
    assert taken > 100


def test_the_name_in_a_record_is_a_name() -> None:
    """Of every kind of record: it becomes a title, and the name of a folder."""
    kinds = [kind for kind in Record.__subclasses__() for kind in (kind, *kind.__subclasses__()) if "name" in kind.model_fields]
    assert len(kinds) >= 6
    for kind in kinds:
        checks = kind.model_fields["name"].metadata
        for given in TEXTS.values():
            with pytest.raises(ValueError, match="a name"):
                checks[0].func(given)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_in_source_is_a_text(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (only,) = ast.parse(docstring(text)).body
    assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant)
    source = NetworkSource("", "class Network:\n    pass", {})
    titled, other = (ast.parse(source.text(title)).body for title in (text, "a title"))
    assert [ast.dump(part) for part in titled[1:]] == [ast.dump(part) for part in other[1:]]
    for line in comment(text, "//").split("\n"):
        assert line.startswith("//" if text else "") and not line.endswith(("\\", "??/")) and len(line.splitlines()) <= 1
    assert not Path(TRACE).exists()


def test_a_name_with_source_is_neither_run_nor_written(gift: Path) -> None:
    """It would be in the docstring of network.py, in the first comment of native.cpp, and the name of the folder."""
    records = {file: read_json(file) for file in gift.glob("train/separable_conv2d/*.json")}
    for text in TEXTS.values():
        for file, record in records.items():
            file.write_text(json.dumps({**record, "name": text}))
        before = set(Path("..").rglob("*"))
        done = CliRunner().invoke(app, ["get", "results/gift", "separable_conv2d"])
        assert done.exit_code == 2 and re.fullmatch(
            r"error: .*holds no training record: (name: .*a name|it is not JSON).*\n", done.stderr
        )
        assert set(Path("..").rglob("*")) == before and not Path(f"/tmp/{TRACE}").exists()


def hostile(folder: Path, first: int, *, only_free: bool = True) -> None:
    """Put a hostile text in place of every text of a folder of results that its reader takes, in turn from this number on."""
    experiment, texts, number = load_experiment(folder), list(TEXTS.values()), first
    left_out = OF_SETTINGS if only_free else set()
    for file in sorted(folder.rglob("*.json")):
        found, content = reader_of(experiment, file), read_json(file)
        for place in list(texts_in(content)):
            if left_out.isdisjoint(place):
                number += 1
                changed = with_text(content, place, texts[number % len(texts)])
                file.write_text(json.dumps(changed))
                with suppress(SynoError):
                    if found is not None:
                        found[0].check(file, found[1])
                    content = changed
        file.write_bytes(json_with_checksum(content, None).encode("utf-8", "replace"))
    for file in sorted(folder.rglob("*.parquet")):
        table = pandas.read_parquet(file)
        for column in table.select_dtypes(["object", "str"]).columns:
            if column in left_out or (file.stem == "trials" and column in ("operator", "path")):
                continue
            table[column] = table[column].astype("object")
            for row in [row for row in range(len(table)) if isinstance(table.loc[row, column], str)]:
                number += 1
                table.loc[row, column] = texts[number % len(texts)].replace("\ud800", "")
        write_parquet(table, file)


def harm(command: list[str]) -> str:
    """Run a command in a folder, and return what is wrong with what it does; "" if nothing is."""
    done = CliRunner().invoke(app, command)
    out = done.stdout + done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return "".join(traceback.format_exception(done.exception))
    if done.exit_code not in (0, 2) or (done.exit_code == 2 and len(done.stderr.strip().splitlines()) != 1):
        return f"exit code {done.exit_code}: {out[:1000]!r}"
    if visible(out) != out or max(map(len, out.splitlines()), default=0) > 20 * LONGEST_MESSAGE:
        return f"it prints {out[:1000]!r}"
    if Path(f"/tmp/{TRACE}").exists() or any(Path("..").rglob(f"*{TRACE}*")):
        return "it ran, or wrote elsewhere"
    return ""


def test_commands_read_such_results(gift: Path) -> None:
    hostile(gift, 0)
    for command in QUICK:
        assert harm(command) == ""
    assert {type(node).__name__ for node in ast.parse(Path("separable_conv2d/network.py").read_text()).body} <= {
        "Expr", "Import", "ImportFrom", "ClassDef", "FunctionDef", "Assign",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("only_free", [True, False])
@pytest.mark.parametrize("first", [0, 9])
def test_every_command_reads_such_results(first: int, only_free: bool, gift: Path, tmp_path: Path) -> None:
    hostile(gift, first, only_free=only_free)
    shutil.copytree(gift, tmp_path / "kept")
    for command in READERS:
        assert harm(command) == "", command
        shutil.rmtree(gift)
        shutil.copytree(tmp_path / "kept", gift)


def with_settings(gift: Path, is_kept: bool = True, **settings: Any) -> None:
    file = gift / "experiment.yaml"
    head, _, text = file.read_text().partition("\n")
    file.write_text(f"{head if is_kept else '# mine'}\n{yaml.safe_dump(yaml.safe_load(text) | settings)}")


@pytest.mark.parametrize(
    "storage",
    [
        "sqlite:///../elsewhere.db", "sqlite:///results/gift/../../../elsewhere.db", "sqlite:////tmp/elsewhere.db",
        "sqlite:///file:../elsewhere.db?uri=true", "sqlite+pysqlite:///results/gift/trials.db",
        "journal:../elsewhere.log", "../elsewhere.log", "results/gift/linked.log", "postgresql://me@elsewhere.example/trials",
    ],
)  # fmt: skip
def test_a_storage_elsewhere_is_not_opened(storage: str, gift: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there is opened or made, unless the user runs the experiment, or gives a file of one's own."""
    (gift / "linked.log").symlink_to(Path("../elsewhere.log").absolute())
    (gift / "trials.parquet").unlink()
    with sqlite3.connect("../elsewhere.db"):
        pass
    with_settings(gift, study={"n_trials": 4, "storage": storage})
    before = set(Path("..").rglob("*"))
    for command in (["freeze", "results/gift"], ["watch", "results/gift", "--once"], ["plan", "results/gift/experiment.yaml"]):
        done = CliRunner().invoke(app, command)
        if command[0] != "plan":
            assert (
                done.exit_code == 2 and len(done.stderr.splitlines()) == 1 and "give the experiment's own file" in done.stderr
            )
            assert f"names the storage {storage}, which lies outside of that folder" in done.stderr
    assert set(Path("..").rglob("*")) == before
    assert load_experiment(gift).use_code().storage == storage
    monkeypatch.setenv(RUN_HERE, f"/nowhere{os.pathsep}{gift.absolute()}")
    assert load_experiment(gift).storage == storage
    monkeypatch.delenv(RUN_HERE)
    shutil.copy(gift / "experiment.yaml", "own.yaml")
    assert load_experiment("own.yaml").storage == storage


def test_storages_in_the_folder_are_opened(gift: Path) -> None:
    assert load_experiment(gift).storage == "sqlite:///results/gift/trials.db"
    for storage in ("journal:results/gift/a.log", "journal", "sqlite:///results/gift/other.db", "memory:"):
        with_settings(gift, study={"n_trials": 4, "storage": storage})
        assert load_experiment(gift).storage.startswith(storage)


@pytest.mark.parametrize("is_kept", [True, False])
def test_results_are_written_into_the_folder_alone(is_kept: bool, gift: Path) -> None:
    with_settings(gift, is_kept, output="../elsewhere")
    assert load_experiment(gift).folder == gift
    assert harm(["measurements", "results/gift"]) == "" and not Path("../elsewhere").exists()
    (gift / "tables").rename("../elsewhere")
    (gift / "tables").symlink_to(Path("../elsewhere").absolute())
    done = CliRunner().invoke(app, ["measurements", "results/gift"])
    assert done.exit_code == 2 and re.fullmatch(r"error: results/gift/tables leads to .*elsewhere, out of .*\n", done.stderr)


def test_a_manifest_changes_no_file_elsewhere(tmp_path: Path) -> None:
    folder, secret = tmp_path / "gift", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("mine")
    (folder / "link").symlink_to(secret)
    (folder / "here").write_text("mine")
    entry = ManifestEntry(sha256=sha256(secret), modified=10**18, settings="")
    Manifest(files=dict.fromkeys(("../secret", str(secret), "link", "here"), entry)).write(folder / "manifest.json")
    restore_times(folder)
    assert (folder / "here").stat().st_mtime_ns == 10**18 != secret.stat().st_mtime_ns
