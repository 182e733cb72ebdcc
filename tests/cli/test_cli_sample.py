"""`syno sample`: what it writes, how it goes on, and where it stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import Run, one_line, one_line_at_end, rows
from small_specs import convolution

from syno.ir.text import parse
from syno.report.operators.folder import primitives
from syno.space import Sampler, Space

HOLDS = 20  # operators asked for, out of some more


class TestSample:
    def test_writes_a_file_for_each_operator_and_a_table(self, run: Run, folder: Path) -> None:
        result = run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found")
        assert f"{HOLDS} operators in found" in result.stdout
        space = Space(convolution(depth=5))
        table = rows(folder / "found" / "operators.csv")
        assert len(table) == HOLDS == len({row["fingerprint"] for row in table})
        for row in table:
            operator = parse((folder / "found" / row["file"]).read_text(encoding="utf-8"))
            assert (operator.id, space.fingerprint(operator)) == (row["id"], row["fingerprint"])
            assert primitives(operator) == int(row["primitives"]) <= 5
            assert round(space.completion.cost(operator).flops) == int(row["flops"])

    def test_equal_seeds_draw_equal_operators(self, run: Run, folder: Path) -> None:
        for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
            run("sample", "small.yaml", "-n", "5", "--seed", seed, "--output", name)
        names = [sorted(file.name for file in (folder / name).iterdir()) for name in "abc"]
        assert names[0] == names[1] != names[2]

    def test_goes_on_and_draws_nothing_again(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "5", "--output", "found")
        before = {file: file.stat().st_mtime_ns for file in (folder / "found").glob("*.txt")}
        run("sample", "small.yaml", "-n", "12", "--output", "found")
        assert len(rows(folder / "found" / "operators.csv")) == 12
        assert {file: file.stat().st_mtime_ns for file in before} == before

    def test_goes_on_after_an_interruption(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        draw, left = Sampler.draw, [9]

        def interrupted(sampler: Sampler) -> object:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return draw(sampler)

        with monkeypatch.context() as patch:
            patch.setattr(Sampler, "draw", interrupted)
            stopped = run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found", code=130)
        count = len(rows(folder / "found" / "operators.csv"))
        assert 0 < count < HOLDS
        assert f"stopped: {count} of {HOLDS} operators are in found; the same command goes on" in stopped.stderr
        run("sample", "small.yaml", "-n", str(HOLDS), "--output", "found")
        assert len(rows(folder / "found" / "operators.csv")) == HOLDS == len(list((folder / "found").glob("*.txt")))

    def test_a_table_that_was_not_written_is_made_anew(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "6", "--output", "found")
        table = folder / "found" / "operators.csv"
        text = table.read_text(encoding="utf-8")
        table.unlink()
        run("sample", "small.yaml", "-n", "6", "--output", "found")
        assert sorted(table.read_text(encoding="utf-8").splitlines()) == sorted(text.splitlines())

    def test_stops_when_nothing_is_left(self, run: Run) -> None:
        result = run("sample", "small.yaml", "-n", "100000", "--depth", "4", "--by", "all")
        assert "the space holds no more" in result.stdout and "results/samples/convolution" in result.stdout

    def test_without_distance_finds_some_too(self, run: Run, folder: Path) -> None:
        run("sample", "small.yaml", "-n", "3", "--depth", "4", "--without-distance", "--output", "blind")
        assert len(rows(folder / "blind" / "operators.csv")) == 3

    def test_a_folder_of_another_spec_is_left_alone(self, run: Run) -> None:
        run("sample", "small.yaml", "-n", "2", "--output", "found")
        line = one_line(run("sample", "small.yaml", "-n", "3", "--depth", "4", "--output", "found", code=2))
        assert "found holds operators of another spec" in line and "--output" in line

    def test_an_empty_space_ends_at_once_with_what_to_change(self, run: Run, folder: Path) -> None:
        line = one_line(run("sample", "small.yaml", "--depth", "1", code=2))
        assert 'the space "convolution" holds no operator of at most 1 primitives; raise depth to ' in line
        tight = convolution(budget={"most_flops": 10})
        (folder / "tight.yaml").write_text(tight.dump(), encoding="utf-8")
        assert "raise most_flops, which is 10" in one_line_at_end(run("sample", "tight.yaml", code=2))
        text = convolution(occurrences={"tensors": 3, "shifts": 1}).dump()
        (folder / "no_weights.yaml").write_text(text.replace("tensors: 3", "tensors: 1"), encoding="utf-8")
        line = one_line(run("sample", "no_weights.yaml", code=2))
        assert "occurrences.tensors: 1 leaves no weight beside the input, and an operator has at least one; give 2 to 4" in line

    def test_progress_has_rate_valid_walks_and_rejections(self, run: Run) -> None:
        lines = run("sample", "small.yaml", "-n", "5", "--output", "found").stderr.splitlines()
        assert lines[-1].startswith("sample convolution: 5/5, ") and "% valid" in lines[-1] and "rejected by " in lines[-1]
