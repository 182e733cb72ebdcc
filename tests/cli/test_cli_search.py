"""`syno search` and `syno ablate`: what they write, and how they go on."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from command_lines import Run, one_line, rows

from syno.ir.text import parse
from syno.search.evaluation import CountedCost

SEARCH = """
spec: small.yaml
original: {flops: 20000, parameters: 1600}
policy: {name: random}
study: {n_trials: 8}
"""


class TestSearch:
    def test_writes_trials_and_the_best(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        text = run("search", "quick.yaml", "--best", "2").stdout
        assert "8 trials (8 complete) in results/quick/trials.parquet" in text
        table = pandas.read_parquet(folder / "results/quick/trials.parquet")
        stored = {file.stem: parse(file.read_text(encoding="utf-8")) for file in (folder / "results/quick/operators").iterdir()}
        assert len(stored) == 8
        for number, operator in zip(table["number"], table["operator"], strict=True):
            key = parse(operator).id[:12]
            assert stored[key].id == parse(operator).id and stored[key].name == f"quick_{number}"
        best = max(range(8), key=lambda place: (table["reward"][place], -place))
        assert text.splitlines()[2].split()[1] == f"quick_{best}"
        assert run("search", "quick.yaml", "--best", "2").stdout == text  # all is done already

    @pytest.mark.slow
    def test_a_space_that_turns_out_to_be_empty_is_a_result(self, run: Run, folder: Path) -> None:
        """Its root is within the distance, so only the search shows that no walk ends in an operator."""
        shapes = 'input: "N, C: unordered, H, H", output: "N, C: unordered, H, H", variables: "N:0, C:2, H:0; k=3:2"'
        spec = f"{{{shapes}, layers: [{{N: 1, C: 16, H: 8}}], bound_axes: [[0, 0]], depth: 5}}"
        (folder / "empty.yaml").write_text(SEARCH.replace("small.yaml", spec), encoding="utf-8")
        *progress, line = run("search", "empty.yaml").stderr.splitlines()
        assert line.startswith('warning: study "empty" found no operator: the space "operator" holds') and "raise" in line
        assert all(shown.startswith("empty: 0/8") for shown in progress)
        assert "found no operator in its space" in run("select", "empty.yaml").stdout
        for figure in ("reward", "search-time"):
            run("figure", "empty.yaml", figure)
        page = Path(run("report", "empty.yaml").stdout.strip()).read_text(encoding="utf-8")
        assert "No operator is selected, since the search of" in page

    @pytest.mark.slow
    def test_a_search_goes_on_after_an_interruption(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        count, left = CountedCost.__call__, [4]

        def interrupted(self: CountedCost, *arguments: object) -> object:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return count(self, *arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(CountedCost, "__call__", interrupted)
            assert "the same command goes on" in run("search", "quick.yaml", code=130).stderr
        assert "9 trials (8 complete, 1 interrupted)" in run("search", "quick.yaml").stdout

    @pytest.mark.slow
    def test_two_workers_share_a_search(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(SEARCH, encoding="utf-8")
        assert "8 complete" in run("search", "quick.yaml", "--workers", "2").stdout

    def test_an_empty_space_is_an_error_before_the_search(self, run: Run, folder: Path) -> None:
        (folder / "quick.yaml").write_text(
            SEARCH.replace("spec: small.yaml", "spec: {preset: small.yaml, depth: 1}"), encoding="utf-8"
        )
        assert "raise depth to" in one_line(run("search", "quick.yaml", code=2))


class TestAblate:
    @pytest.mark.slow
    def test_canonical_writes_tables_and_figures(self, run: Run, folder: Path) -> None:
        arguments = ("--samples", "30", "--complete", "3", "--depth", "4", "--output", "out")
        text = run("ablate", "canonical", "small.yaml", *arguments).stdout
        assert "| primitives |" in text and "measured on" in text
        assert next(iter(rows(folder / "out/canonical.csv")))["graphs"] == "30"
        for name in ("canonical.svg", "canonical.png", "canonical-complete.csv"):
            assert (folder / "out" / name).stat().st_size > 100

    @pytest.mark.slow
    def test_distance_writes_tables_and_figures(self, run: Run, folder: Path) -> None:
        arguments = ("--trials", "30", "--seconds", "0.5", "--depth", "4")
        text = run("ablate", "distance", "small.yaml", *arguments).stdout
        assert "| exact     |" in text and "| published |" in text
        out = folder / "results/ablation/convolution"
        assert (out / "distance.csv").read_text(encoding="utf-8").startswith("# command: syno")
        assert (out / "distance.svg").exists() and (out / "distance.png").exists()
