"""Files of operators: a wrong character anywhere is noticed where a program wrote the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from syno.base.errors import ParseError
from syno.ir.library import OPERATORS, find_operator
from syno.ir.text import MARK, with_checksum
from syno.stages.store import OperatorStore, find_stored

OPERATOR = OPERATORS["conv1x1"]().renamed("my_4")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = OperatorStore(tmp_path)
    return store.path / f"{store.add(OPERATOR)}.txt"


def read(file: Path) -> object:
    return OperatorStore(file.parent.parent).get(file.stem)


def test_a_stored_operator_comes_back_with_its_name(stored: Path) -> None:
    found = OperatorStore(stored.parent.parent).get(stored.stem)
    assert (found, found.name) == (OPERATOR, "my_4")
    assert stored.read_text(encoding="utf-8") == with_checksum(str(OPERATOR))
    assert find_operator(str(stored)).name == find_stored("my_4", stored.parent.parent).name == "my_4"


def test_every_wrong_character_is_noticed(stored: Path) -> None:
    content = stored.read_bytes()
    for place in range(len(content)):
        for wrong in (content[place] ^ 1, ord("\n")):
            if wrong != content[place]:
                stored.write_bytes(content[:place] + bytes([wrong]) + content[place + 1 :])
                with pytest.raises(ParseError) as error:
                    read(stored)
                assert str(stored) in str(error.value) and len(str(error.value).splitlines()) == 1


def test_every_truncation_is_an_error(stored: Path) -> None:
    content = stored.read_bytes()
    for end in range(len(content)):
        stored.write_bytes(content[:end])
        with pytest.raises(ParseError):
            read(stored)


def test_lines_that_are_swapped_or_given_twice_are_noticed(stored: Path) -> None:
    lines = stored.read_text(encoding="utf-8").splitlines(keepends=True)
    for number in range(len(lines) - 1):
        swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        for changed in (swapped, [*lines[:number], lines[number], *lines[number:]]):
            stored.write_text("".join(changed), encoding="utf-8")
            with pytest.raises(ParseError):
                read(stored)


def test_an_operator_under_another_ones_key_is_noticed(stored: Path) -> None:
    stored.write_text(with_checksum(str(OPERATORS["conv2d"]())), encoding="utf-8")
    with pytest.raises(ParseError, match=r"named after.*`syno freeze`"):
        read(stored)


def test_files_written_by_hand_need_no_checksum(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    text = "".join(line for line in str(OPERATOR).splitlines(keepends=True) if not line.startswith("id "))
    for content in (text, text.replace("my_4", "other"), str(OPERATOR), with_checksum(text)):
        file.write_text(content, encoding="utf-8")
        assert find_operator(str(file)) == OPERATOR
    file.write_text(with_checksum(text).replace("my_4", "other"), encoding="utf-8")
    with pytest.raises(ParseError, match="if you edited it, remove the line"):
        find_operator(str(file))
    assert MARK.startswith("#")  # to the language it is a comment
