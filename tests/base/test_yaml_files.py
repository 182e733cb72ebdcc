"""Reading YAML: plain data, or one line that says what is wrong, and soon."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from syno.base.errors import SpecError
from syno.base.validation import MOST_BYTES, read_yaml
from syno.base.yaml_text import DEEPEST, parse_yaml
from syno.cli import app

LETTERS = "abcdefghij"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{letter}: &{letter} [{', '.join([f'*{before}'] * 9)}]\n" for before, letter in pairwise(LETTERS)
)
REFUSED = {
    "aliases that grow ninefold nine times": (BOMB, "more than 10000 values, with aliases written out in line 5"),
    "an alias in itself": ("a: &a\n  b: *a\n", r'"\*a" stands inside its own value in line 2'),
    "5,000 brackets": ("[" * 5_000, f"more than {DEEPEST} mappings and lists inside each other in line 1"),
    "400 levels": ("".join(f"{'  ' * level}a:\n" for level in range(200)), f"more than {DEEPEST} mappings and lists"),
    "50,000 values": ("[" + "1," * 49_000 + "]", "more than 10000 values"),
    "a key twice": ("depth: 3\nname: a\ndepth: 4\n", '"depth" is given twice in line 3'),
    "a key twice, inside": ("budget: {flops: 1, flops: 2}\n", '"flops" is given twice in line 1'),
    "a number of 5,000 digits": (f"depth: {'9' * 5_000}\n", "a number of 5000 characters; at most 40"),
    "a number of 5,000 hexadecimal digits": (f"depth: 0x{'f' * 5_000}\n", "a number of 5002 characters; at most 40"),
    "a date that is none": ("name: 2026-99-99\n", "month must be in 1..12"),
    "a wrong whole number": ("depth: !!int x\n", "invalid literal"),
    "an empty whole number": ("depth: !!int ''\n", "cannot be read as YAML"),
    "a wrong truth value": ("depth: !!bool x\n", "cannot be read as YAML"),
    "a wrong time": ("depth: !!timestamp x\n", "cannot be read as YAML"),
    "a call": ("!!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
    "NUL": ("name: a\0b\n", "special characters are not allowed"),
    "two documents": ("a: 1\n---\nb: 2\n", "expected a single document"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_settings_file_is_one_clear_line(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=message) as error:
        read_yaml(file)
    said = str(error.value)
    assert said.startswith(f"{file}: cannot be read as YAML: ")
    assert len(said.splitlines()) == 1 and len(said) < 800 and "<unicode string>" not in said


@pytest.mark.parametrize("content", [b"#" * (MOST_BYTES + 1), b"name: \xff\n"], ids=["too large", "no UTF-8"])
def test_other_files_are_one_clear_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    for given in (file, tmp_path, tmp_path / "none.yaml", tmp_path / ("a" * 300), tmp_path / "a\0b"):
        with pytest.raises(SpecError, match="cannot be read as YAML"):
            read_yaml(given)


@pytest.mark.parametrize(
    "text",
    ["a: &a {x: 1, y: [1, 2]}\nb:\n  <<: *a\n  x: 2\nc: *a\n", "\ufeffname: a\n", "a: 1_000\nb: 0x1F\nc: 1e3\nd: .inf\n",
     "# only\n", "- &x [1]\n- *x\n- *x\n", "&a a: 1\nb: *a\n"],
)  # fmt: skip
def test_other_yaml_is_read_as_before(text: str) -> None:
    assert parse_yaml(text, "mine.yaml") == yaml.safe_load(text)


def test_every_file_of_settings_is_read() -> None:
    for file in sorted((Path(__file__).parents[2] / "config").glob("*.yaml")):
        assert read_yaml(file) == yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["[" * 5_000, "1: a\n", "name: a\nx" + "y" * 5_000 + ": 1\n", BOMB])
def test_commands_say_it_in_one_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(text, encoding="utf-8")
    for command in (["spec", "mine.yaml"], ["data", "mine.yaml"]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
        assert len(result.stderr) < 12_000


def test_nothing_else_reads_yaml() -> None:
    sources = {file: file.read_text(encoding="utf-8") for file in (Path(__file__).parents[2] / "syno").rglob("*.py")}
    reading = [
        file.name for file, text in sources.items() if any(f"yaml.{way}(" in text for way in ("safe_load", "load", "parse"))
    ]
    assert reading == ["yaml_text.py"]
