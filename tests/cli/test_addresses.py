"""Passwords in addresses of databases: no message and no page shows them, and the file that keeps them is the owner's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from command_lines import Run, one_line

from syno.base.addresses import without_passwords
from syno.base.errors import StorageError, SynoError, UnknownNameError
from syno.base.errors import one_line as in_one_line
from syno.base.text_tables import markdown
from syno.config import Experiment
from syno.search.faults import fault_of
from syno.search.storage.view import StudyView
from syno.stages.provenance import read_kept, write_kept

URL = "postgresql+psycopg://me:se:cr/et@127.0.0.1:1/none"
SHOWN = "postgresql+psycopg://me:***@127.0.0.1:1/none"
ORIGINAL = {"flops": 20000, "parameters": 1600}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (f"study: {{storage: {URL}}}, and {URL}", f"study: {{storage: {SHOWN}}}, and {SHOWN}"),
        ("postgresql://h/d?user=me&password=secret", "postgresql://h/d?user=me&password=***"),
        (
            "postgresql://me@host/d, https://host/a@b:c, sqlite:///a:b.db",
            "postgresql://me@host/d, https://host/a@b:c, sqlite:///a:b.db",
        ),
    ],
)
def test_only_passwords_are_hidden(given: str, shown: str) -> None:
    assert without_passwords(given) == shown


def test_errors_show_characters_that_hide_text() -> None:
    hostile = "a\x00b\u202ec\x1b[31m\u200bd\u2028e"
    shown = "a\\x00b\\u202ec\\x1b[31m\\u200bd\\u2028e"
    for error in (SynoError(hostile), UnknownNameError(hostile)):
        assert str(error) == shown and in_one_line(error) == shown
    assert in_one_line(ValueError(hostile)) == fault_of(SynoError(hostile)).cause == shown
    assert shown in fault_of(ValueError(hostile)).message and shown in markdown([{"name": hostile}])


def test_errors_show_no_password() -> None:
    with pytest.raises(StorageError, match="cannot be reached") as found:
        StudyView(URL, "study").read()
    assert SHOWN in str(found.value) and "cr/et" not in str(found.value)
    assert "cr/et" not in str(UnknownNameError(URL))


def test_commands_show_no_password(run: Run, folder: Path) -> None:
    text = f"spec: small.yaml\noriginal: {ORIGINAL}\nstudy: {{storage: '{URL}'}}\n"
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    for command in (["watch", "a.yaml", "--once"], ["freeze", "a.yaml"]):
        assert SHOWN in one_line(run(*command, code=75))


def test_the_kept_file_has_the_password_for_jobs_and_is_its_owner_s(tmp_path: Path) -> None:
    fields = {"name": "a", "output": tmp_path / "a", "spec": {"preset": "resnet18"}, "original": ORIGINAL}
    open_to_all = write_kept(Experiment.model_validate(fields))
    before = stat.S_IMODE(open_to_all.stat().st_mode)
    file = write_kept(Experiment.model_validate({**fields, "study": {"storage": URL}}))
    kept = read_kept(tmp_path / "a")
    assert kept is not None and kept.storage == URL and stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(before)  # as earlier versions wrote it
    assert stat.S_IMODE(write_kept(kept).stat().st_mode) == 0o600
