"""A folder of operators of one space: a text file for each, one table, and the spec.

resnet18_0c5d1a2b3c4d.txt   an operator, named after its fingerprint
operators.csv               a row for each: file, ids, size, cost in the whole model
spec.yaml                   the space that they are from
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from syno.base.errors import SpecError
from syno.base.files import name_from, write_whole
from syno.base.text_tables import csv_text
from syno.ir.graph import PGraph
from syno.ir.primitives import EXPAND, SHARE
from syno.ir.text import parse
from syno.space.space import Space
from syno.space.spec import OperatorSpec

TABLE, SPEC = "operators.csv", "spec.yaml"
NAME_DIGITS = 12  # of the fingerprint; two of a million operators share them with a chance of 0.2 %


class OperatorFolder:
    """A folder of operators. Files are written whole, so it can be opened again after any interruption.

    Attributes:
        path: the folder.
        space: the space that its operators are from.
        operators: the operators in the folder, by fingerprint.
    """

    def __init__(self, path: Path, space: Space) -> None:
        """Open a folder, or prepare a new one.

        Raises SpecError if it holds operators of another spec, ParseError if one of its files holds no operator.
        """
        self.path, self.space = path, space
        self.operators: dict[str, PGraph] = {}
        self._rows: dict[str, Mapping[str, object]] = {}
        self._check_spec()
        known = self._stored_rows()
        for file in sorted(path.glob("*.txt")):
            operator = parse(file.read_text(encoding="utf-8"), str(file))
            row = known.get(file.name)
            if row is None or row["id"] != operator.id:
                row = self._row(file.name, operator, space.fingerprint(operator))
            self.operators[str(row["fingerprint"])] = operator
            self._rows[str(row["fingerprint"])] = row

    def __len__(self) -> int:
        return len(self.operators)

    def add(self, operator: PGraph, fingerprint: str) -> Path:
        """Write an operator's file, named after its space and its fingerprint, and return its path."""
        name = f"{name_from(self.space.spec.name).replace('.', '_')}_{fingerprint[:NAME_DIGITS]}"
        file = self.path / f"{name}.txt"
        if not self.operators:
            write_whole(self.path / SPEC, self.space.spec.dump())
        named = operator.renamed(name)
        write_whole(file, str(named))
        self.operators[fingerprint] = named
        self._rows[fingerprint] = self._row(file.name, named, fingerprint)
        return file

    def write_table(self) -> Path:
        """Write the table of all operators in the folder, and return its path."""
        file = self.path / TABLE
        write_whole(file, csv_text(list(self._rows.values())))
        return file

    def _row(self, file: str, operator: PGraph, fingerprint: str) -> Mapping[str, object]:
        price = self.space.completion.cost(operator)
        return {
            "file": file,
            "id": operator.id,
            "fingerprint": fingerprint,
            "primitives": primitives(operator),
            "reductions": len(operator.reduces),
            "weights": len(operator.weights),
            "flops": round(price.flops),
            "parameters": round(price.parameters),
            "memory_bytes": price.memory_bytes,
        }

    def _check_spec(self) -> None:
        file = self.path / SPEC
        if file.exists() and OperatorSpec.load(file).id != self.space.id:
            raise SpecError(
                f'{self.path} holds operators of another spec than "{self.space.spec.name}" is now; give another folder '
                f"(--output), or go on with that spec: {file}"
            )

    def _stored_rows(self) -> dict[str, Mapping[str, object]]:
        file = self.path / TABLE
        if not file.exists():
            return {}
        with file.open(encoding="utf-8", newline="") as stream:
            return {row["file"]: row for row in csv.DictReader(stream) if row.get("file") and row.get("fingerprint")}


def primitives(operator: PGraph) -> int:
    """Return the size of an operator as depth counts it: a contraction and the Expands of its outer axes are one primitive."""
    views = 0
    for operation in operator.operations:
        below = operation.bottoms[0].operation if operation.bottoms else None
        in_contraction = operation.primitive is EXPAND and below is not None and below.primitive is SHARE
        views += operation.primitive is not SHARE and not in_contraction
    return len(operator.reduces) + len(operator.weights) + views
