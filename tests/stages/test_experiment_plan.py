"""`syno plan`: what experiments will take, counted as the workflow counts, and estimated from what is assumed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.base.text_tables import Row
from syno.cli import app
from syno.config import Experiment, load_experiment, load_experiments
from syno.paper.figures.catalogue import PAPER_FIGURES
from syno.paper.places import HOURS
from syno.stages.opening import keep_config
from syno.stages.plan import (
    TRIAL_HOURS,
    Assumptions,
    WorkflowPlan,
    day_rows,
    plan,
    plan_text,
    plans,
    published_rows,
    stage_rows,
    storage_rows,
    training_hours,
    workload_of,
)
from syno.stages.workflow_stages import STAGES, jobs
from syno.train.settings import TrainingSettings

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "config" / "paper.yaml"
PUBLISHED = ROOT / "config" / "published.yaml"
PAGE = ROOT / "docs" / "plan.md"
SPEED = Assumptions(pictures_per_second=1000, mixed_precision=2, steps_per_second=5)


def of_the_paper(**assumed: float) -> list[WorkflowPlan]:
    return plans(load_experiments(PAPER).values(), Assumptions(**assumed))


def stage(found: WorkflowPlan, rule: str) -> Any:
    (one,) = [one for one in found.stages if one.rule == rule]
    return one


class TestHoursOfATraining:
    @pytest.mark.parametrize(
        ("settings", "pictures", "hours"),
        [
            ({"epochs": 72, "batch": 100}, 50_000, 1.0),  # 3.6 million pictures, 1000 a second
            ({"epochs": 72, "batch": 100, "precision": "bfloat16"}, 50_000, 0.5),
            ({"epochs": 72, "batch": 100}, 50_099, 1.0),  # what is left of an epoch is left out
            ({"epochs": 72, "batch": 100, "most_steps": 18_000}, 50_000, 0.5),
            ({"epochs": 72, "batch": 100, "most_minutes": 6}, 50_000, 0.1),
            ({"epochs": 72, "batch": 100, "most_minutes": 600}, 50_000, 1.0),
            ({"most_steps": 9_000}, None, 0.5),  # 5 steps a second
            ({"most_steps": 9_000, "most_minutes": 15}, None, 0.25),
            ({}, None, None),
        ],
    )
    def test_on_a_gpu(self, settings: dict[str, Any], pictures: int | None, hours: float | None) -> None:
        found = training_hours(TrainingSettings(device="cuda", **settings), pictures, SPEED)
        assert found == (None if hours is None else pytest.approx(hours))

    def test_on_a_processor_are_none_of_a_gpu(self) -> None:
        assert training_hours(TrainingSettings(epochs=100), 50_000, SPEED) == 0


class TestStages:
    def experiment(self, *, milestones: Mapping[int, float] | None = None, **fields: Any) -> Experiment:
        workload = {"model": "resnet18", "data": "cifar100", "training": {"device": "cuda", "epochs": 72, "batch": 100}}
        workload |= {} if milestones is None else {"milestones": milestones}
        fields = {"workload": workload, "study": {"n_trials": 10, "workers": 2}, "select": {"count": 2}, **fields}
        fields = {"reward": {"name": "accuracy"}, "tune": {"compilers": ["eager"], "devices": ["cuda"]}, **fields}
        return Experiment(name="small", **fields)

    def test_a_search_without_milestones_trains_every_operator_to_its_end(self) -> None:
        assert stage(plan(self.experiment(), SPEED), "worker").gpu_hours == pytest.approx(10)

    def test_bad_trials_are_shorter_where_something_ends_them(self) -> None:
        pruned = self.experiment(milestones={1: 0.1})
        assert stage(plan(pruned, SPEED), "worker").gpu_hours == pytest.approx(10 * TRIAL_HOURS)
        share = SPEED.model_copy(update={"search_share": 0.25})
        assert stage(plan(pruned, share), "worker").gpu_hours == pytest.approx(2.5)

    def test_no_trial_is_longer_than_a_whole_training(self) -> None:
        pruned = self.experiment(milestones={1: 0.1})
        fast = SPEED.model_copy(update={"pictures_per_second": 50_000})
        assert stage(plan(pruned, fast), "worker").gpu_hours == pytest.approx(10 * 72 * 50_000 / 50_000 / 3600)

    def test_a_search_that_trains_nothing_takes_no_gpu(self) -> None:
        counted = Experiment(
            name="counted", spec={"preset": "resnet18"}, evaluate="cost", original={"flops": 2e11, "parameters": 1e7}
        )
        assert plan(counted).gpu_hours("worker") == plan(counted).gpu_hours("train") == 0

    def test_trainings_and_measurements(self) -> None:
        found = plan(self.experiment(train={"seeds": [1, 2], "baselines": ["conv1x1"]}), SPEED)
        assert (stage(found, "train").jobs, stage(found, "train").gpu_hours) == (8, pytest.approx(8))
        assert (stage(found, "tune").jobs, stage(found, "tune").gpu_hours) == (4, pytest.approx(4 * 5 / 60))
        assert found.tuning_hours == {"cuda": pytest.approx(4 * 5 / 60)}

    def test_tuning_ends_at_its_limit_of_time(self) -> None:
        def hours(**tvm: float) -> float:
            one = self.experiment()
            settings = one.tune.model_copy(update={"compilers": ("tvm",), "time_limit_seconds": 3600.0})
            return plan(one.model_copy(update={"tune": settings}), Assumptions(**tvm)).tuning_hours["cuda"]

        assert hours(kernels=10, schedules_per_second=1) == pytest.approx(3 * 640 / 3600)
        assert hours(kernels=1000) == pytest.approx(3)


class TestShared:
    """ImageNet's files for FFCV are made once for all experiments."""

    def test_a_file_that_several_need_is_counted_with_the_first(self) -> None:
        found = [one for one in of_the_paper() if one.experiment.name.startswith("imagenet")]
        assert [[stage.jobs for stage in one.stages if stage.rule == "convert"] for one in found] == [[2], [], [], [], []]

    def test_by_itself_every_one_of_them_needs_it(self) -> None:
        one = load_experiments(PAPER)["imagenet-resnet34"]
        assert (stage(plan(one), "convert").jobs, stage(plan(one), "convert").bytes) == (2, 0)

    def test_pictures_from_folders_need_no_conversion(self) -> None:
        one = load_experiments(PAPER)["imagenet-resnet34"]
        assert one.workload is not None
        read = one.workload.model_copy(update={"data_settings": {"reader": "torch"}})
        assert "convert" not in jobs(one.model_copy(update={"workload": read}))


class TestPublished:
    def test_nothing_is_searched_trained_or_measured(self) -> None:
        published = load_experiments(PUBLISHED)["published"]
        assert {rule: len(files) for rule, files in jobs(published).items()} == {
            "artifact": 1, "headlines": 1, "figure": len(PAPER_FIGURES), "report": 1
        }  # fmt: skip
        found = plan(published)
        assert (found.gpu_hours("worker"), found.gpu_hours("train"), found.tuning_hours) == (0, 0, {})

    def test_its_operators_are_trained_by_another(self) -> None:
        found = plans(load_experiments(PUBLISHED).values())
        assert ("training", "resnet18") in [(row["what"], row["of"]) for row in published_rows(found)]
        assert {row["stage"] for row in stage_rows(found)} >= {"artifact", "headlines", "train", "tune"}
        assert "| published " in plan_text(found, Assumptions())

    def test_the_row_of_trainings_names_those_that_train(self) -> None:
        found = plans(load_experiments(ROOT / "config" / "paper-from-published.yaml").values())
        rows = [row for row in published_rows(found) if row["what"] == "training"]
        assert [row["of"] for row in rows if "latency" in str(row["of"]) or "layers" in str(row["of"])] == []
        assert any("cifar-resnet18" in str(row["of"]) for row in rows)


@pytest.mark.parametrize("config", sorted((ROOT / "config").glob("*.yaml")), ids=lambda file: file.stem)
def test_jobs_are_of_known_rules_in_their_order(config: Path) -> None:
    for experiment in load_experiments(config).values():
        found = jobs(experiment)
        assert list(found) == [rule for rule in STAGES if rule in found] and all(found.values())


class TestPaper:
    def test_jobs_are_those_of_the_workflow(self) -> None:
        rows: dict[object, Row] = {row["stage"]: row for row in stage_rows(of_the_paper())}
        page = (ROOT / "docs" / "workflow.md").read_text(encoding="utf-8")  # which is compared with a dry run
        every, trained, tuned = (rows[name]["jobs"] for name in ("all", "train", "tune"))
        counts = f"{every:,} jobs, {trained} of them trainings and {tuned:,} measurements"
        assert counts in page

    def test_searches_have_as_many_trials_as_the_papers_hours_make(self) -> None:
        """0.1 GPU hours for a sample and 300 for a network: trials times hours of a trial."""
        searches = [one for one in of_the_paper() if one.experiment.searches]
        assert [one.experiment.name for one in searches] == [
            *("resnet18", "densenet121", "resnext29_2x64d", "efficientnet_v2_s", "gpt2")
        ]
        for one in searches:
            assert one.experiment.study.n_trials * TRIAL_HOURS == pytest.approx(HOURS["search"])
            assert one.gpu_hours("worker") == pytest.approx(HOURS["search"])

    def test_every_search_device_and_family_is_beside_the_papers_hours(self) -> None:
        rows = [(row["what"], row["of"]) for row in published_rows(of_the_paper())]
        searched = [one.name for one in load_experiments(PAPER).values() if one.searches]
        assert [of for what, of in rows if what == "search"] == searched
        assert ("training", "resnet18, resnet34, imagenet-resnet18, imagenet-resnet34") in rows
        assert [of for what, of in rows if what == "tuning"] == ["cpu", "cuda", "jetson-cpu", "jetson-gpu"]

    def test_the_papers_hours_of_training_again_are_of_all_networks_together(self) -> None:
        rows = [row for row in published_rows(of_the_paper()) if row["what"] == "training"]
        assert [(row["of"], row["the paper's"]) for row in rows if row["the paper's"] is not None] == [("all", 900)]
        assert rows[-1]["hours"] == pytest.approx(sum(float(str(row["hours"])) for row in rows[:-1]), rel=0.01)

    def test_storage_has_the_data_that_must_be_got_and_what_is_made_of_it(self) -> None:
        sizes = {(row["storage"], row["of"]): row["size"] for row in storage_rows(of_the_paper())}
        assert sizes["data imagenet", "to get, as the paper says"] == "500 GB"
        assert (sizes["data cifar100", "to get"], sizes["data cifar100", "made of it"]) == ("143 MB", "184 MB")
        assert (sizes["data lm1b", "to get"], sizes["data lm1b", "made of it"]) == ("1.8 GB", "410 MB")


class TestDays:
    def group(self, **fields: Any) -> list[WorkflowPlan]:
        training = {"device": "cuda", "epochs": 72, "batch": 100}  # an hour
        first = {"workload": {"model": "resnet18", "data": "cifar100", "training": training}, "reward": {"name": "accuracy"}}
        first |= {"study": {"n_trials": 48, "workers": 2}, "train": {"seeds": [1, 2]}, "tune": {"compilers": []}}
        board = {"kind": "ssh", "host": "board"}
        tune = {
            "compilers": ["eager"],
            "devices": ["cpu", "board"],
            "remote_devices": {"board": board},
            "time_limit_seconds": 1e6,
        }
        second = {**first, "select": {"source": "first", "count": 1, **fields}, "tune": tune}
        found = load_experiments({"name": "x", "experiments": {"first": first, "second": second}}).values()
        return plans(found, SPEED.model_copy(update={"compile_minutes": 720}))

    def days(self, gpus: int, **fields: Any) -> dict[object, object]:
        return {row["what takes time"]: row["days"] for row in day_rows(self.group(**fields), gpus)}

    def test_jobs_share_the_gpus_and_measurements_run_alone(self) -> None:
        """48 hours of trials and 12 of trainings; four measurements of twelve hours, two on each device."""
        assert self.days(2)["jobs on 2 GPUs, and measurements on the processor"] == pytest.approx((60 / 2 + 24) / 24, rel=0.1)
        assert self.days(2)["measurements on board"] == 1.0

    def test_a_chain_waits_for_the_search_which_has_no_more_gpus_than_workers(self) -> None:
        chain = "the longest chain: first, then second"
        assert self.days(60)[chain] == pytest.approx((24 + 1 + 24) / 24, rel=0.05)
        assert self.days(60, by="latency", shortlist=1)[chain] == pytest.approx((24 + 1 + 24 + 1) / 24, rel=0.05)
        assert self.days(60)["all, at least"] == self.days(60)[chain]

    def test_twice_the_speed_is_half_the_hours(self) -> None:
        slow, fast = (of_the_paper(pictures_per_second=speed) for speed in (500, 1000))
        for one, other in zip(slow, fast, strict=True):
            if (workload := workload_of(one.experiment)) is not None and workload.data != "lm1b":
                assert one.gpu_hours("train") == pytest.approx(2 * (other.gpu_hours("train") or 0))


class TestCommand:
    @pytest.mark.parametrize(("given", "asked"), [("own.yaml", 1), ("results/own", 0)])
    def test_only_machines_of_an_experiment_s_own_file_are_asked(
        self, given: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        board = {"kind": "ssh", "host": "nowhere.invalid", "python": "python3", "compilers": ["eager"]}
        tune = {"devices": ["cpu", {"device": "board", "optional": True}], "remote_devices": {"board": board}}
        fields = {"workload": {"model": "resnet8"}, "tune": {"compilers": ["eager"], **tune}}
        Path("own.yaml").write_text(json.dumps({"name": "own", **fields}), encoding="utf-8")
        keep_config(load_experiment("own.yaml"))
        hosts: list[str] = []

        def refused(name: str, device: Any, seconds: float) -> Any:
            hosts.append(device.host)
            return SimpleNamespace(about=None, fault="there is no such host")

        monkeypatch.setattr("syno.stages.needs.status_by_ssh", refused)
        done = CliRunner().invoke(app, ["plan", given])
        assert (done.exit_code, len(hosts), "left out: device board, for own: " in done.stderr) == (0, asked, bool(asked))

    def test_the_page_shows_what_it_prints(self) -> None:
        printed = CliRunner().invoke(app, ["plan", str(PAPER), "--gpus", "8"]).stdout
        page = PAGE.read_text(encoding="utf-8")
        if os.environ.get("UPDATE_GOLDEN"):
            page = re.sub(r"(<!-- printed -->\n).*", lambda match: f"{match[1]}\n{printed}", page, flags=re.DOTALL)
            PAGE.write_text(page, encoding="utf-8")
        assert page.endswith(f"<!-- printed -->\n\n{printed}")

    def test_one_of_several(self) -> None:
        printed = CliRunner().invoke(app, ["plan", f"{PAPER}:gpt2"]).stdout
        assert "| gpt2 " in printed and "resnet18" not in printed

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("pictures=5", 'pictures: there is no such option; there are: pictures_per_second'),
            ("kernels=none", "kernels: .*valid number.*given: 'none'"),
            ("search_share=2", "search_share: .*less than or equal to 1"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_assumed(self, given: str, message: str) -> None:
        done = CliRunner().invoke(app, ["plan", str(PAPER), "--assume", given])
        assert done.exit_code == 2 and re.search(f"^error: --assume: {message}", done.stderr)

    @pytest.mark.slow
    def test_it_loads_no_framework(self) -> None:
        code = "import sys, syno.cli; syno.cli.app(['plan', sys.argv[1]], standalone_mode=False); print('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code, str(PAPER)], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "False"
