"""Tables, checkpoints and trials that were damaged after they were written: one clear error each, and never other content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from damage import damages

from syno.base.errors import DataError, SpecError
from syno.measure.tvm.search import RECORDS, WORKLOADS, check_lines, repair, write_checksums
from syno.run.parquet import read_parquet, write_parquet
from syno.train.checkpoint import Checkpoint

TABLE = pandas.DataFrame({
    "key": ["original", "00ff", None], "score": [0.5, float("nan"), 1.0], "number": [1, 2, 3],
    "ended": pandas.to_datetime(["2026-01-01"] * 3, utc=True),
})  # fmt: skip


class TestTables:
    def test_a_table_comes_back_and_pandas_reads_it_too(self, tmp_path: Path) -> None:
        file = tmp_path / "latency.parquet"
        for table in (TABLE, TABLE[:0]):
            write_parquet(table, file)
            pandas.testing.assert_frame_equal(read_parquet(file, "syno tables"), table)
            pandas.testing.assert_frame_equal(pandas.read_parquet(file), table)

    def test_equal_tables_give_equal_files(self, tmp_path: Path) -> None:
        write_parquet(TABLE, tmp_path / "one.parquet")
        write_parquet(TABLE.copy(), tmp_path / "other.parquet")
        assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()

    def test_every_flipped_byte_is_one_clear_line(self, tmp_path: Path) -> None:
        file = tmp_path / "latency.parquet"
        write_parquet(TABLE, file)
        content = file.read_bytes()
        for place in range(0, len(content), 11):
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(SpecError, match=r"latency\.parquet holds no table: .*run `syno tables` again") as error:
                read_parquet(file, "syno tables")
            assert "\n" not in str(error.value)

    def test_a_table_without_a_column_is_one_clear_line(self, tmp_path: Path) -> None:
        write_parquet(TABLE.drop(columns="score"), tmp_path / "scores.parquet")
        with pytest.raises(
            SpecError, match='scores.parquet holds no table with a column "score"; delete it and run `syno tables`'
        ):
            read_parquet(tmp_path / "scores.parquet", "syno tables", ("key", "score"))


class TestCheckpoints:
    STATE = {"weights": torch.arange(300.0), "progress": {"steps": 3}}  # noqa: RUF012

    def test_every_flipped_byte_is_one_clear_line(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(tmp_path / "seed0.checkpoint", "mine")
        checkpoint.write(self.STATE)
        content = checkpoint.file.read_bytes()
        for place in range(0, len(content), 13):
            checkpoint.file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(
                DataError, match=r"seed0\.checkpoint holds no checkpoint: .*; delete it, and training begins anew"
            ):
                checkpoint.read(torch.device("cpu"))

    def test_pytorch_reads_it_too(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(tmp_path / "seed0.checkpoint", "mine")
        checkpoint.write(self.STATE)
        assert torch.load(checkpoint.file, weights_only=True)["state"]["progress"] == {"steps": 3}


class TestTrialsOfTvm:
    """TVM takes whatever its files say: a changed digit is another latency, and another schedule is taken for the best."""

    TRIALS = "".join(f'[0,[[{seconds}],{{"kind":"llvm"}}]]\n' for seconds in (0.25, 0.5, 0.75))

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / WORKLOADS).write_text('["hash","module"]\n', encoding="utf-8")
        (tmp_path / RECORDS).write_text(self.TRIALS, encoding="utf-8")
        write_checksums(tmp_path, (WORKLOADS, RECORDS))
        return tmp_path

    def check(self, folder: Path) -> None:
        check_lines(folder, (WORKLOADS, RECORDS))
        repair(folder)

    def test_a_changed_digit_is_an_error(self, folder: Path) -> None:
        self.check(folder)
        (folder / RECORDS).write_text(self.TRIALS.replace("0.5", "0.1"), encoding="utf-8")
        with pytest.raises(SpecError, match=r"line 2 of .*record\.json is damaged: .*; delete the folder, and tune again"):
            self.check(folder)

    def test_lines_of_a_process_that_was_killed_are_kept_or_cut_off(self, folder: Path) -> None:
        (folder / RECORDS).write_text(self.TRIALS + "[0,[[1.0],{}]]\n[0,[[2.", encoding="utf-8")
        self.check(folder)
        assert (folder / RECORDS).read_text(encoding="utf-8") == self.TRIALS + "[0,[[1.0],{}]]\n"

    def test_lines_that_are_gone_are_an_error(self, folder: Path) -> None:
        (folder / RECORDS).write_text(self.TRIALS.partition("\n")[0] + "\n", encoding="utf-8")
        with pytest.raises(SpecError, match=r"record\.json has 1 lines of the 3 that were written"):
            self.check(folder)


def test_ways_of_damage_are_the_same_every_time() -> None:
    content = np.arange(256, dtype=np.uint8).tobytes()
    made = list(damages(content, 40))
    assert made == list(damages(content, 40)) and len({name.split()[0] for name, _ in made}) == 4
    assert all(other != content for _, other in made)
