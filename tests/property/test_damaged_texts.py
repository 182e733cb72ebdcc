"""Damaged texts: each is read as a valid operator, or as plain settings, or gives one clear line; none takes long."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from text_damage import damaged

from syno.base.errors import ParseError, SynoError
from syno.base.yaml_text import parse_yaml
from syno.config import load_experiment
from syno.config.specs import find_spec
from syno.ir.library import OPERATORS
from syno.ir.text import MARK, parse, read_operator_file, with_checksum
from syno.lower.pytorch.source import to_source
from syno.paper.artifact.dot_file import parse_dot

MOST_SECONDS = 30  # a hang is found, a slow machine is none
CONFIG = Path(__file__).parents[2] / "config"
TEXTS = [str(make()) for make in OPERATORS.values()]


def outcome(read: Callable[[], object]) -> object:
    """What is read, or the error; anything but a short SynoError fails."""
    start = time.process_time()
    try:
        return read()
    except SynoError as error:
        said = str(error)
        assert len(said) < 12_000 and len(said.splitlines()) == 1, said
        return error
    finally:
        assert time.process_time() - start < MOST_SECONDS


def check_texts(count: int) -> Counter[str]:
    chance, seen = random.Random(0), Counter[str]()
    for number in range(count):
        text = damaged(chance.choice(TEXTS).encode(), chance).decode("utf-8", errors="replace")
        graph = outcome(lambda text=text: parse(text, "mine.txt"))  # type: ignore[misc]
        seen[type(graph).__name__] += 1
        if not isinstance(graph, SynoError):
            assert parse(str(graph)).id == graph.id, number  # type: ignore[attr-defined]
            given = [line for line in text.splitlines() if line.startswith("id ")]
            assert not given or graph.id in given[-1]  # type: ignore[attr-defined]
            source = outcome(lambda graph=graph: to_source(graph))  # type: ignore[misc]
            assert isinstance(source, SynoError) or compile(str(source), "<generated>", "exec")
    return seen


def check_settings(count: int, folder: Path) -> Counter[str]:
    chance, seen = random.Random(0), Counter[str]()
    files = [*sorted(CONFIG.glob("*.yaml")), folder / "spec.yaml"]
    files[-1].write_text(find_spec("resnet18").dump(), encoding="utf-8")
    for number in range(count):
        original = chance.choice(files)
        content = damaged(original.read_bytes(), chance)
        file = folder / "mine.yaml"
        file.write_bytes(content)
        read = find_spec if original.name == "spec.yaml" else load_experiment
        seen[type(outcome(lambda read=read, file=file: read(str(file)))).__name__] += 1  # type: ignore[misc]
        text = content.decode("utf-8", errors="replace")
        outcome(lambda text=text: parse_yaml(text, f"case {number}"))  # type: ignore[misc]  # noqa: B023
    return seen


def test_some_damaged_texts() -> None:
    seen = check_texts(80)
    assert seen["PGraph"] and seen["ParseError"]


def test_some_damaged_settings(tmp_path: Path) -> None:
    assert check_settings(25, tmp_path)["SpecError"]


@pytest.mark.slow
def test_many_damaged_texts() -> None:
    seen = check_texts(600)
    assert seen["PGraph"] and seen["ParseError"]


@pytest.mark.slow
def test_many_damaged_settings(tmp_path: Path) -> None:
    seen = check_settings(120, tmp_path)
    assert seen["SpecError"] and len(seen) >= 2


@pytest.mark.slow
def test_many_damaged_drawings() -> None:
    from published_dot import published_dot

    chance, seen = random.Random(0), Counter[str]()
    for _ in range(50):
        graph = OPERATORS[chance.choice(["conv2d", "operator_1", "conv1x1", "depthwise_conv2d"])]()
        text = damaged(published_dot(graph, 1).encode(), chance).decode("utf-8", errors="replace")
        found = outcome(lambda text=text, graph=graph: parse_dot(text, graph.variables))  # type: ignore[misc]
        seen[type(found).__name__] += 1
        assert isinstance(found, ParseError) or parse(str(found)).id == found.id  # type: ignore[attr-defined]
    assert seen["PGraph"] and seen["ParseError"]


@pytest.mark.slow
def test_many_damaged_files_of_a_program(tmp_path: Path) -> None:
    """With a checksum, nothing but the whole text is read."""
    chance, file = random.Random(0), tmp_path / "mine.txt"
    for _ in range(300):
        text = chance.choice(TEXTS)
        content = damaged(with_checksum(text).encode(), chance)
        file.write_bytes(content)
        found = outcome(lambda: read_operator_file(file, written_by_program=True))
        assert isinstance(found, ParseError) or content.decode() in (with_checksum(text), text)
        assert MARK in with_checksum(text)
