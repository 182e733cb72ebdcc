"""Checksums of a folder's trials, in a file beside them: TVM appends lines to its files, and looks at none of them again.

Lines that were there when a tuning ended are compared when the folder is opened the next time. Lines behind them come from a
process that was killed, and a last line that is not whole was torn (see `database.repair`).
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from syno.base.errors import SpecError
from syno.base.files import checksum, json_with_checksum, read_json, write_whole

FILE = "checksums.json"
CHECKSUMS = TypeAdapter(dict[str, list[str]])  # of the lines of each file


def write_checksums(folder: Path, names: tuple[str, ...]) -> None:
    """Write the checksums of the lines in these files of a folder, as they are now."""
    write_whole(folder / FILE, json_with_checksum({name: [checksum(line) for line in _lines(folder / name)] for name in names}))


def check_lines(folder: Path, names: tuple[str, ...]) -> None:
    """Raise SpecError if a line of these files has changed since it was written. Older folders have no checksums."""
    if not (folder / FILE).exists():
        return
    try:
        written = CHECKSUMS.validate_python(read_json(folder / FILE))
    except (OSError, ValueError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise SpecError(f"{folder / FILE} holds no checksums: {said}; delete the folder, and tune again") from error
    for name in names:
        lines, checksums = _lines(folder / name), written.get(name, [])
        whole = sum(line.endswith(b"\n") for line in lines)
        if whole < len(checksums) - 1:  # a process that is killed tears one at most
            raise SpecError(
                f"{folder / name} has {whole} lines of the {len(checksums)} that were written; delete the folder and tune again"
            )
        for number, (line, expected) in enumerate(zip(lines, checksums, strict=False), 1):
            if line.endswith(b"\n") and checksum(line) != expected:
                raise SpecError(
                    f"line {number} of {folder / name} is damaged: it has changed since it was written; delete the folder, and "
                    "tune again"
                )


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []
