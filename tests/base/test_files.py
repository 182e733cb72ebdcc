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
from syno.base.errors import SpecError
from syno.base.files import replaced, replaced_folder, write_whole

SMALL_DISK = ["unshare", "--user", "--map-root-user", "--mount"]  # where a file system can be mounted without being root
FILLS_THE_DISK = """
import sys
from pathlib import Path
from syno.base.errors import SpecError
from syno.base.files import write_whole
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


class TestPowerLoss:
    """No power is lost here: what counts is the order in which the system is asked to write to the disk."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        """What is written to the disk, and what is renamed, in order."""
        found: list[tuple[str, str]] = []
        fsync, replace = os.fsync, Path.replace

        def synced(descriptor: int) -> None:
            found.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
            fsync(descriptor)

        def renamed(path: Path, target: Path) -> Path:
            found.append(("rename", path.name))
            return replace(path, target)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(Path, "replace", renamed)
        return found

    def test_the_file_is_on_the_disk_before_it_has_its_name_and_its_folder_after(
        self, calls: list[tuple[str, str]], tmp_path: Path
    ) -> None:
        write_whole(tmp_path / "record.json", "new")
        temporary = calls[0][1]
        assert temporary.startswith(".record.json.")
        assert calls == [("fsync", temporary), ("rename", temporary), ("fsync", tmp_path.name)]

    def test_folders_that_are_made_for_it_are_there_too(self, calls: list[tuple[str, str]], tmp_path: Path) -> None:
        write_whole(tmp_path / "train" / "original" / "seed0.json", "new")
        assert [name for call, name in calls if call == "fsync"][1:] == ["original", "train", tmp_path.name]

    def test_a_file_that_is_cheap_to_make_again_is_not_waited_for(self, calls: list[tuple[str, str]], tmp_path: Path) -> None:
        write_whole(tmp_path / "report.html", "new", durable=False)
        assert [call for call, _ in calls] == ["rename"]

    def test_a_disk_that_is_full_when_the_file_is_written_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "record.json"
        write_whole(file, "old")

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(SpecError, match=r"record\.json cannot be written: No space left on device") as error:
            write_whole(file, "new")
        assert isinstance(error.value.__cause__, OSError) and error.value.__cause__.errno == errno.ENOSPC
        assert file.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [file]

    def test_a_file_system_that_writes_no_folders_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fsync = os.fsync

        def of_files(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").readlink().is_dir():
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", of_files)
        write_whole(tmp_path / "record.json", "new")
        assert (tmp_path / "record.json").read_text(encoding="utf-8") == "new"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_is_there_as_a_whole_or_not_at_all(tmp_path: Path, error: type[BaseException]) -> None:
    place = tmp_path / "taken"
    with pytest.raises(error), replaced_folder(place) as made:
        (made / "half").write_text("of it")
        raise error
    assert names_in(tmp_path) == []
    with replaced_folder(place) as made:
        write_whole(made / "old", "1")
        write_whole(made / "kept", "2")
        assert not place.exists()
    assert names_in(place) == ["kept", "old"]
    with pytest.raises(error), replaced_folder(place) as made:
        (made / "old").unlink()
        write_whole(made / "kept", "3")
        raise error
    assert names_in(place) == ["kept", "old"] and (place / "kept").read_text() == "2"
    with replaced_folder(place) as made:
        (made / "old").unlink()
        write_whole(made / "kept", "3")
    assert names_in(place) == ["kept"] and (place / "kept").read_text() == "3" and names_in(tmp_path) == ["taken"]


def test_a_folder_whose_exchange_fails_has_its_files_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "taken"
    place.mkdir()
    for name in ("a", "b"):
        (place / name).write_text("old")
    replace = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if self.name == "b" and self.parent.suffix == ".tmp":
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(SpecError, match="taken cannot be written: No space left"), replaced_folder(place) as made:
        for name in ("a", "b", "c"):
            (made / name).unlink(missing_ok=True)
            (made / name).write_text("new")
    assert [(place / name).read_text() for name in names_in(place)] == ["old", "old"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with replaced_folder(tmp_path / "taken") as made:
        (made / "file").write_text("")
        left = made.with_name(made.name.replace(str(os.getpid()), str(process.pid)))
    left.mkdir()
    with replaced_folder(tmp_path / "taken"):
        pass
    assert names_in(tmp_path) == ["taken"]
