"""The data that the paper's authors published, and the paper's numbers of it."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from made_once import made_once

from syno.paper.artifact import RECORD
from syno.paper.artifact.imported import MADE_BY, ImportRecord
from syno.paper.figures.headlines import Headline, headlines
from syno.paper.figures.networks import ON_FINAL, ON_PROXY, OURS, savings
from syno.paper.stages.artifact import import_artifact
from syno.paper.stages.figures import read_numbers
from syno.run.table import read_measurements

pytestmark = pytest.mark.slow  # most of a minute

DIFFERENT = {  # and what the data says instead
    "TorchInductor: largest speedup that loses at most 0.02 on ImageNet": (2.50, "1.94 is the speedup of"),
    "Operator 1, TVM, mobile GPU: speedup of ResNet-18": (2.03, "is 2.0347"),
    "TorchInductor, mobile GPU: our best over NAS-PTE's best, mean over layers": (1.37, "it is 0.84 if the convolution itself"),
    **{
        f"{what} of ResNet-34 with NAS-PTE's sequences over those with Operator 2, {which}": (value, f"sequence {sequence}")
        for what, least, most in (("FLOPs", 1.832, 4.618), ("parameters", 1.825, 9.262))
        for which, value, sequence in (("smallest", least, 1), ("largest", most, 3))
    },
}


NOT_THERE = (  # no rival, no training of GPT-2 with the operator, no ablation, nothing of αNAS
    "Networks without synthesis (pruned, narrower, known layers, integers), within the same loss",
    "GPT-2, with the operator: perplexity at the end of its training",
    "GPT-2 with the operator: speedup of its training",
    "αNAS, ResNet-50 and EfficientNet-B0: share of FLOPs saved within 0.02 on ImageNet",
    "Random samples without canonicalization for each distinct operator",
)
TOLD = {  # in the paper's text: as it prints them, and whether they agree
    "Operator 2 in ResNet-18: accuracy lost": ("< 0.015", "holds"),
    "Operator 2 in ResNet-18: share of the parameters": ("< 0.25", "holds"),
    "GPT-2, original: perplexity at the end of its training": ("111", "same"),
    "ResNet-34: share of FLOPs saved within 0.02 on ImageNet": ("0.63", "same"),
    "ResNet-34, TVM, A100: how much faster with the operator of Figure 5": ("0.56", "same"),
    "ResNet-34, TorchInductor, A100: how much faster with the operator of Figure 5": ("0.48", "same"),
    "EfficientNet-V2-S: share of FLOPs saved within 0.02 on ImageNet": ("0.37", "same"),
    "EfficientNet-V2-S, TVM, A100: how much faster with the operator of Figure 5": ("0.12", "same"),
    "EfficientNet-V2-S, TorchInductor, A100: how much faster with the operator of Figure 5": ("0.07", "same"),
}


@pytest.fixture(scope="module")
def folder(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an import writes."""
    return made_once(tmp_path_factory, "authors", lambda made: import_artifact(artifact, made))


@pytest.fixture(scope="module")
def authors(folder: Path) -> dict[str, Headline]:
    return {one.what: one for one in headlines(*read_numbers(folder))}


def test_the_authors_data_is_whole_but_for_one_latency(folder: Path) -> None:
    record, rows = ImportRecord.read(folder / RECORD), read_measurements(folder, MADE_BY)
    known = ("efficientnet_v2_s/08064", "gpt_orig_losses.log")  # the log is absent in some checkouts
    assert all(any(name in problem.place for name in known) for problem in record.problems), record.problems
    assert (rows["metric"] == "latency").sum() == 665


def test_the_authors_operators(folder: Path) -> None:
    names = [one.name for one in ImportRecord.read(folder / RECORD).operators]
    assert len(names) == len(set(names)) == 34 and {"operator_1", "operator_2", "gpt2_projection"} < set(names)
    assert len(list((folder / "operators").glob("*.txt"))) == 18  # whose graphs were published


def test_the_papers_numbers_come_of_the_authors_data(authors: dict[str, Headline]) -> None:
    assert [what for what, one in authors.items() if one.verdict == "unknown" and "its log" not in what] == [
        what for what in authors if what in NOT_THERE
    ]
    for what, headline in authors.items():
        if what in DIFFERENT:
            value, note = DIFFERENT[what]
            assert headline.computed == pytest.approx(value, abs=0.005) and note in headline.note, headline
        else:
            assert headline.verdict in ("same", "holds", "no number", "unknown"), headline
    assert set(authors) >= {*DIFFERENT, *NOT_THERE}


def test_numbers_of_the_papers_text(authors: dict[str, Headline]) -> None:
    assert {what: (authors[what].printed, authors[what].verdict) for what in TOLD} == TOLD
    faster = authors["ResNet-34 with an operator, TVM: mean speedup over the less accurate original ResNet-18"]
    assert faster.computed == pytest.approx(1.90, abs=0.005) and faster.note.startswith(
        "published_07747: 3.08 on the mobile CPU"
    )
    other = authors["ResNet-34, TVM, A100: how much faster with the operator of Figure 5"].note
    assert (
        other
        == "published_07883; what it loses on ImageNet is 0.0119; published_07795, which saves the FLOPs, has a speedup of 2.23"
    )


def test_losses_of_gpt2(authors: dict[str, Headline]) -> None:
    assert authors["GPT-2 with the operator: loss after 30 minutes"].computed == pytest.approx(5.6756, abs=1e-4)


def test_savings_of_networks(folder: Path) -> None:
    table = savings(pandas.read_parquet(folder / "tables" / "measurements.parquet"))
    found = table[(table["system"] == OURS) & (table["within"] == ON_PROXY)]
    assert found["operator"].tolist() == [
        "published_07795", "operator_1", "published_08016", "published_07947", "published_07984_1002",
    ]  # fmt: skip
    assert found["fewer_flops"].round(2).tolist() == [0.59, 0.41, 0.36, 0.44, 0.46]
    finally_enough = table[table["within"] == ON_FINAL].set_index("model")
    assert finally_enough.loc[["resnet34", "efficientnet_v2_s"], "fewer_flops"].round(2).tolist() == [0.63, 0.37]
