"""The list of the workflow's stages; `tests/workflow/test_rules.py` compares it with the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from syno.base.errors import SynoError
from syno.config import Experiment
from syno.stages.networks import keys
from syno.stages.restore import derived_files, reader_of
from syno.stages.workflow_stages import MOST_MIB, STAGES, WorkflowStage, files_on_the_way, grown, jobs

STUDY = Experiment(name="study", workload={"model": "resnet8"}, tune={"compilers": ["eager"], "devices": ["cpu", "cuda:1"]})


@pytest.mark.parametrize(
    ("model", "data", "asked"),
    [
        ("resnet18", "cifar100", {"data": 4000, "worker": 8000, "train": 16_000, "speed": 4000}),
        ("resnet18", "imagenet", {"data": 8000, "worker": 8000, "train": 16_000, "speed": 8000}),
        ("gpt2", "lm1b", dict.fromkeys(("data", "worker", "train", "rival", "choose", "speed"), 32_000)),
    ],
)
def test_jobs_that_train_ask_for_the_memory_of_their_workload(model: str, data: str, asked: dict[str, int]) -> None:
    settings = {"tokenizer": "x"} if data == "lm1b" else {}
    one = Experiment(name="study", workload={"model": model, "data": data, "data_settings": settings})
    assert {name: STAGES[name].memory(one) for name in asked} == asked
    assert {STAGES[name].memory(one) for name in ("freeze", "tables", "figure", "report")} == {2000}
    assert [grown(asked["train"], attempt, MOST_MIB) for attempt in (1, 2, 9)] == [asked["train"], 2 * asked["train"], MOST_MIB]


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_a_stage_reads_files_of_earlier_stages_only(stage: WorkflowStage) -> None:
    order = list(STAGES)
    assert all(order.index(name) < order.index(stage.name) for name in stage.after)


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_readers_can_be_imported_and_refuse_damage(stage: WorkflowStage, tmp_path: Path) -> None:
    for pattern in stage.readers or ():
        (tmp_path / "damaged").write_text("{", encoding="utf-8")
        with pytest.raises(SynoError, match="damaged"):
            stage.check(tmp_path / "damaged", pattern)


def test_files_of_jobs_follow_from_the_settings() -> None:
    found = {
        name: [file.relative_to(STUDY.folder).as_posix() for file in files] for name, files in jobs(STUDY, ["ab12"]).items()
    }
    assert found["train"][:2] == ["train/original/seed1.json", "train/original/seed2.json"] and len(found["train"]) == 6
    assert found["tune"] == [f"tune/{key}/eager-{device}.json" for device in ("cpu", "cuda1") for key in ("original", "ab12")]
    assert found["worker"] == ["search/worker1.json"] and "convert" not in found and "artifact" not in found


def test_files_that_take_long_have_a_reader_and_others_are_derived() -> None:
    derived = {file.relative_to(STUDY.folder).as_posix() for file in derived_files(STUDY)}
    assert {"tables/scores.csv", "figures/speedup.pdf", "report.html"} <= derived
    assert {file.name for file in set(files_on_the_way(STUDY)) - set(derived_files(STUDY))} == {
        *("data.json", "worker1.json", "trials.parquet", "selected.json")
    }
    for name in ("train", "tune"):
        assert all(reader_of(STUDY, file) is not None for file in STAGES[name].paths(STUDY, keys(STUDY)))
