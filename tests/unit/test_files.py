"""Files that are written whole, also when the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import syno
from syno.errors import SpecError
from syno.files import replaced, write_whole

SMALL_DISK = ["unshare", "--user", "--map-root-user", "--mount"]  # where a file system can be mounted without being root
FILLS_THE_DISK = """
import sys
from pathlib import Path
from syno.errors import SpecError
from syno.files import write_whole
file = Path(sys.argv[1]) / "record.json"
write_whole(file, "old")
try:
    write_whole(file, "new" * 1_000_000)
except SpecError as error:
    print(error)
print(file.read_text(), *sorted(path.name for path in file.parent.iterdir()))
"""


def test_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "record.json"
    for content in ("old", b"new"):
        write_whole(file, content)
    assert file.read_text(encoding="utf-8") == "new"
    assert list(file.parent.iterdir()) == [file]


def test_a_disk_that_gets_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "record.json"
    write_whole(file, "old")
    write_bytes = Path.write_bytes

    def half(path: Path, data: bytes) -> int:
        write_bytes(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(SpecError, match=r"record\.json cannot be written: No space left on device"):
        write_whole(file, "new")
    assert file.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_block_that_ends_early_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    with replaced(file) as temporary:
        temporary.write_bytes(b"old")
        assert not file.exists()
    with pytest.raises(KeyError), replaced(file) as temporary:
        temporary.write_bytes(b"ne")
        raise KeyError
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_real_disk_that_gets_full(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*SMALL_DISK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody else mount a file system")
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && "$2" -c "$3" "$1"'
    command = [*SMALL_DISK, "sh", "-ec", script, "sh", str(tmp_path), sys.executable, FILLS_THE_DISK]
    folder = Path(syno.__file__).parents[1]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/record.json cannot be written: No space left on device",
        "old record.json",
    ], done.stderr
