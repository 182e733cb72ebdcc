"""Files of a finished experiment are taken away, cut off or changed: the next run restores the results, or names the file."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas
import pytest
from finished_run import Done
from small_run import planned, snakemake

from syno.stages.selection import read_selected
from syno.train.training_record import TrainingRecord

CASES, MOST_DAMAGED = 1, 6
OF_THE_RUN = ("log", "benchmark")  # what happened, and no results


def results(folder: Path) -> Mapping[str, Any]:
    """What a finished experiment has found. Latencies may be measured anew."""
    scores = pandas.read_parquet(folder / "tables" / "scores.parquet").drop(columns=["score_std"])
    trials = pandas.read_parquet(folder / "trials.parquet")
    return {
        "operators": {file.name: file.read_text(encoding="utf-8") for file in (folder / "operators").glob("*.txt")},
        "selected": [(one.key, one.reward, one.metrics) for one in read_selected(folder / "selected.json")],
        "scores": scores.fillna("").to_dict("records"),
        "table": (folder / "tables" / "scores.csv").read_text(encoding="utf-8"),
        "trials": trials[["number", "outcome", "fingerprint", "reward"]].to_dict("records"),
        "trainings": {
            str(file.relative_to(folder)): TrainingRecord.read(file).scores for file in sorted(folder.glob("train/*/*.json"))
        },
        "files": sorted(str(file.relative_to(folder)) for file in files_of(folder) if file.name != "trials.db"),
    }


def files_of(folder: Path) -> list[Path]:
    """The files of results."""
    found = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return [file for file in found if file.relative_to(folder).parts[0] not in OF_THE_RUN and file.suffix != ".damaged"]


def damage(file: Path, how: str, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    match how:
        case "delete":
            file.unlink()
        case "truncate":
            file.write_bytes(content[: rng.randrange(len(content))])
        case "flip":
            content[rng.randrange(len(content))] ^= 0x80
            file.write_bytes(content)


def named(printed: str, folder: Path) -> list[Path]:
    """The files of results that errors name."""
    errors = "\n".join(re.findall(r"^ *(?:\w+: )?error: (.*)$", printed, re.MULTILINE))
    return [
        file for file in files_of(folder) if re.search(rf"{re.escape(str(file.relative_to(folder.parent)))}(?![\w.])", errors)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES))
def test_any_damage_is_made_good_or_named(seed: int, done: Done) -> None:
    rng, before = random.Random(seed), results(done.results)
    chosen = rng.sample(files_of(done.results), rng.randint(1, MOST_DAMAGED))
    hurt = []
    for file in chosen:
        # A changed byte in a database is for its own tests: SQLite does not see all of them, and nothing reads it here.
        how = rng.choice(["delete", "truncate"] if file.name == "trials.db" else ["delete", "truncate", "flip"])
        damage(file, how, rng)
        hurt.append(f"{how} {file.relative_to(done.results)}")
    for _ in range(len(chosen) + 1):
        ended = snakemake(done.folder, done.config)
        if ended.returncode == 0:
            break
        assert "Traceback" not in ended.stdout, ended.stdout
        files = named(ended.stdout, done.results)
        assert files, f"{hurt}: no file is named: {ended.stdout}"
        assert re.search("delete|take it away", ended.stdout), ended.stdout
        for file in files:  # what the message says
            file.unlink()
    assert ended.returncode == 0, f"{hurt}: {ended.stdout}"
    assert results(done.results) == before, hurt
    assert planned(done.folder, done.config) == {}, hurt
