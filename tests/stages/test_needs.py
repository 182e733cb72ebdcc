"""What a run needs before its first job: what is there, what is missing, and what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from small_experiment import FIELDS
from typer.testing import CliRunner

from syno.base.errors import MissingDeviceError, SpecError
from syno.cli import app
from syno.config import Experiment, load_experiments
from syno.config.left_out import DevicesRecord, record_devices
from syno.measure.protocol import About
from syno.measure.ssh import SshStatus
from syno.measure.tvm.tracker import DeviceStatus, Servers
from syno.stages import needs as module
from syno.stages import results
from syno.stages.fastest import compared_measurements
from syno.stages.needs import Need, jobs_left, need_rows, needs, with_devices
from syno.stages.workflow.command import runs_elsewhere
from syno.stages.workflow_stages import STAGES

JETSON: dict[str, Any] = {"kind": "ssh", "host": "jetson", "compilers": ["inductor", "tvm"]}
TRACKER: dict[str, Any] = {"target": {"kind": "llvm"}, "tracker": "10.0.0.2:9190"}
BOARD = About(device="Orin", python="3.11", torch="2.13", tvm="", free_mib=4000, cpp="g++ 12")
DEVICES: dict[str, Any] = {
    "compilers": ["inductor", "tvm"],
    "devices": ["cuda", "jetson", "phone"],
    "remote_devices": {"jetson": {**JETSON, "tvm": TRACKER}, "phone": TRACKER},
    "stands_for": {"cuda": "A100"},
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What devices say that are asked: the board by ssh, servers at the tracker by device, and the GPU of this machine."""
    said: dict[str, Any] = {"board": BOARD, "jetson": Servers(1, 1), "phone": Servers(2, 0), "gpu": "NVIDIA A100-SXM4-80GB"}

    def by_ssh(name: str, device: Any, seconds: int) -> SshStatus:
        found = said["board"]
        return SshStatus(name, device, found) if isinstance(found, About) else SshStatus(name, device, fault=found)

    def at_tracker(name: str, device: Any) -> DeviceStatus:
        found = said[name]
        fault = "" if isinstance(found, Servers) else found
        return DeviceStatus(name, device.tracker, name, None if fault else found, fault)

    def gpu(name: str) -> None:
        if not said["gpu"]:
            raise MissingDeviceError("PyTorch finds no GPU here")

    monkeypatch.setattr(module, "status_by_ssh", by_ssh)
    monkeypatch.setattr(module, "status_of", at_tracker)
    monkeypatch.setattr(module, "require_device", gpu)
    monkeypatch.setattr(module, "visible_gpus", lambda: (SimpleNamespace(name="0", model=said["gpu"]),))
    return said


def experiment(**fields: Any) -> Experiment:
    return Experiment(**{**FIELDS, **fields})


def found(*experiments: Experiment, elsewhere: bool = False) -> dict[str, Need]:
    return {need.subject: need for need in needs(experiments, elsewhere=elsewhere)}


def states(found: dict[str, Need]) -> dict[str, str]:
    return {what: need.state for what, need in found.items() if what.startswith("device")}


class TestDevices:
    ALL = ("device cuda as A100", "device jetson (ssh jetson)", "device jetson (tracker 10.0.0.2:9190)")
    PHONE = "device phone (tracker 10.0.0.2:9190)"

    def test_each_is_asked_in_each_way_in_which_it_is_reached(self, boards: dict[str, Any]) -> None:
        there = found(experiment(tune=DEVICES))
        assert states(there) == dict.fromkeys((*self.ALL, self.PHONE), "ok")
        assert there[self.ALL[1]].text.startswith("Orin; torch 2.13, g++ 12, ")
        assert there[self.PHONE].text == "2 servers"

    @pytest.mark.parametrize(
        ("changes", "what", "state", "text"),
        [
            ({"board": "there is no such host"}, ALL[1], "missing", "there is no such host"),
            ({"board": BOARD.model_copy(update={"cpp": ""})}, ALL[1], "missing", "no C++ compiler, for inductor: install g++"),
            ({"phone": "the tracker does not answer"}, PHONE, "missing", "the tracker does not answer"),
            ({"gpu": ""}, ALL[0], "missing", "PyTorch finds no GPU"),
            (
                {"gpu": "NVIDIA H200"},
                ALL[0],
                "not known",
                "1 x NVIDIA H200; is it the A100? If not, leave it out of",
            ),
        ],
    )
    def test_one_that_is_not_as_it_must_be(
        self, changes: dict[str, Any], what: str, state: str, text: str, boards: dict[str, Any]
    ) -> None:
        boards.update(changes)
        there = found(experiment(tune=DEVICES))
        assert (there[what].state, text in there[what].text) == (state, True), there[what]
        assert set(states(there).values()) == {"ok", state}

    def test_tvm_must_be_there_where_it_tunes_there(self, boards: dict[str, Any]) -> None:
        tune = {"compilers": ["inductor", "tvm"], "devices": ["jetson"], "remote_devices": {"jetson": JETSON}}
        need = found(experiment(tune=tune))[self.ALL[1]]
        assert need.state == "missing" and "TVM is not installed there, for tvm: python3 -m pip install" in need.text

    def test_a_runtime_that_is_not_installed_is_left_out(self, boards: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.measure.compilers.find_spec", lambda package: None)
        need = found(experiment(tune={"compilers": ["eager", "openvino"]}))["compiler openvino"]
        assert need.state == "left out" and "syno-operators[openvino]" in need.text

    def test_a_cluster_s_nodes_are_not_asked(self, boards: dict[str, Any]) -> None:
        boards["gpu"] = ""
        there = found(experiment(tune=DEVICES), elsewhere=True)
        assert there[self.ALL[0]].state == "not known" and "memory" not in there

    def test_a_training_needs_its_gpu(self, boards: dict[str, Any]) -> None:
        boards["gpu"] = ""
        workload = {**FIELDS["workload"], "training": {"device": "cuda:1"}}
        assert found(experiment(workload=workload))["GPU to train on (cuda:1)"].state == "missing"


class TestData:
    def of(self, **settings: Any) -> dict[str, Need]:
        return found(experiment(workload={"model": "resnet18", "data": "cifar100", "data_settings": settings}))

    def test_missing_data_says_how_to_get_it(self) -> None:
        need = self.of()["data cifar100: pictures"]
        assert need.state == "missing" and "hf download uoft-cs/cifar100" in need.text

    def test_data_that_is_there_has_a_size(self, place: Path) -> None:
        (place / "pickles" / "cifar-100-python").mkdir(parents=True)
        for split in ("train", "test"):
            (place / "pickles" / "cifar-100-python" / split).write_bytes(b"x" * 1000)
        need = self.of(folder=str(place / "pickles"))["data cifar100: pictures"]
        assert need.state == "ok" and need.text == f"2 kB in {place / 'pickles' / 'cifar-100-python'}"

    def test_whether_a_download_will_work_is_not_known(self) -> None:
        there = self.of(download=True)
        assert there["data cifar100: pictures"].state == there["token of the Hub"].state == "not known"
        assert "143 MB will be downloaded" in there["data cifar100: pictures"].text

    def test_imagenet_and_text_need_packages_and_files(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = experiment(workload={"model": "resnet18", "data": "imagenet"})
        text = {"model": "gpt2", "data": "lm1b", "data_settings": {"tokenizer": "gpt2", "download": True}}
        monkeypatch.setattr("syno.data.files.version", {"ffcv": "1.0.2"}.__getitem__)
        for split in ("train", "val"):
            (place / "data" / "imagenet" / split).mkdir(parents=True)
        there = found(one, experiment(name="text", workload=text, spec={"depth": 4}, reward={"name": "loss", "maximum": 6.9}))
        assert {what: need.state for what, need in there.items() if what.startswith("data")} == {
            "data imagenet: pictures": "ok",
            "data imagenet: FFCV": "ok",
            "data lm1b: text": "not known",
            "data lm1b: tokenizer": "missing",
        }


class TestRoom:
    def test_results_must_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
        need = found(experiment())["room on the disk"]
        assert need.state == "missing" and need.text.startswith("1 kB are free") and "(output)" in need.text

    def test_what_is_made_once_is_counted_once(self) -> None:
        workload = {"model": "resnet18", "data": "cifar100"}
        both = [experiment(name=name, workload=workload) for name in ("a", "b")]
        assert "results take about 184 MB" in found(*both)["room on the disk"].text


def finish(one: Experiment, *but: str) -> None:
    """Let the files of all jobs be there, but for those of some stages."""
    from syno.stages.selection import write_selected

    write_selected([], one.folder / "selected.json")
    for name, stage in STAGES.items():
        for file in stage.paths(one, stage.networks(one, [])) if name not in but else ():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


class TestWhatIsLeft:
    def test_finished_results_need_nothing(self) -> None:
        one = experiment(workload={"model": "resnet18", "data": "cifar100"})
        assert set(jobs_left(one)) >= {"data", "worker", "select", "train", "tune", "tables"}
        finish(one)
        assert needs([one]) == []

    def test_what_is_only_measured_needs_no_data(self) -> None:
        one = experiment(workload={"model": "resnet18", "data": "cifar100"}, tune={"compilers": ["inductor"]})
        finish(one, "tune")
        assert list(found(one)) == ["compiler inductor", "room on the disk", "memory"]

    def test_a_small_machine_may_run_small_networks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=8e9))
        need = found(experiment(workload={"model": "resnet8"}))["memory"]
        assert need.state == "not known" and need.text.startswith("the machine has 8 GB, and the largest job asks for 16.8 GB")

    def test_room_is_not_asked_for_what_a_missing_device_would_have_measured(self, boards: dict[str, Any]) -> None:
        optional = [{"device": name, "optional": True} for name in ("cuda", "jetson", "phone")]
        with_optional = experiment(tune={**DEVICES, "devices": ["cpu", *optional]})
        boards.update(gpu="", board="there is no such host", phone="the tracker does not answer")
        alone = experiment(tune={**DEVICES, "devices": ["cpu"], "stands_for": {}})
        assert found(with_optional)["room on the disk"].text == found(alone)["room on the disk"].text


class TestTable:
    def test_experiments_are_named_in_short(self) -> None:
        names = ("resnet18", "imagenet-a", "imagenet-b", "gpt2", "gpt2-final")
        given = [Need("x", "ok", "", names), Need("y", "ok", "", names[1:3]), Need("z", "missing", "", names[1:2])]
        assert [row["for"] for row in need_rows(given)] == ["imagenet-a", "all", "imagenet-*"]  # what is missing comes first


@pytest.fixture
def file(place: Path) -> Path:
    common = {key: value for key, value in FIELDS.items() if key != "name"}
    pictures = {"model": "resnet18", "data": "cifar100", "data_settings": {"recipe": "paper"}}
    group = {"one": common, "other": {**common, "workload": pictures}, "published": {"artifact": "nowhere"}}
    (place / "mine.yaml").write_text(yaml.safe_dump({"experiments": group}), encoding="utf-8")
    return place / "mine.yaml"


class TestCommand:
    def test_it_prints_a_table_and_ends_with_1_if_something_is_missing(self, file: Path) -> None:
        done = CliRunner().invoke(app, ["check", str(file)])
        assert done.exit_code == 1 and not (file.parent / "results").exists()
        lines = done.stdout.splitlines()
        assert lines[0].split() == ["needed", "for", "state", "what", "there", "is,", "or", "what", "to", "do"]
        assert any(line.split()[:5] == ["published", "data", "published", "missing", "nowhere"] for line in lines)

    def test_of_one_experiment_only_what_it_needs(self, file: Path) -> None:
        done = CliRunner().invoke(app, ["check", f"{file}:one"])
        assert done.exit_code == 0 and "cifar100" not in done.stdout and "room on the disk" in done.stdout
        assert CliRunner().invoke(app, ["check", f"{file}:two"]).exit_code == 2

    @pytest.mark.slow
    def test_it_loads_neither_torch_nor_tvm(self, file: Path) -> None:
        fields = yaml.safe_load(file.read_text(encoding="utf-8"))
        fields["experiments"]["one"]["tune"] = {"compilers": ["tvm"], "devices": ["cpu", "cuda"]}
        file.write_text(yaml.safe_dump(fields), encoding="utf-8")
        run = "syno.cli.app(['check', sys.argv[1]], standalone_mode=False)"
        code = f"import sys, syno.cli; {run}; print({{'torch', 'tvm'}} & {{*sys.modules}})"
        done = subprocess.run([sys.executable, "-c", code, f"{file}:one"], capture_output=True, text=True, check=True)
        assert "PyTorch finds no GPU here" in done.stdout or "device cuda" in done.stdout
        assert done.stdout.splitlines()[-1] == "set()"


class TestRun:
    @pytest.fixture
    def begun(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        """The commands that have taken the place of `syno run`."""
        found: list[list[str]] = []
        monkeypatch.setattr("os.execv", lambda program, arguments: found.append(arguments))
        return found

    def test_it_stops_before_snakemake_if_something_is_missing(self, file: Path, begun: list[list[str]]) -> None:
        done = CliRunner().invoke(app, ["run", str(file)])
        assert done.exit_code == 1 and not begun and "hf download uoft-cs/cifar100" in " ".join(done.stdout.split())
        assert done.stderr.startswith(
            "error: 2 things that jobs of this run need are missing: data cifar100: pictures, published"
        )

    @pytest.mark.parametrize("more", [["--no-check"], ["-n"], ["one"], ["one", "--executor=local"]])
    def test_it_goes_on_if_nothing_is_missing_that_jobs_need(self, more: list[str], file: Path, begun: list[list[str]]) -> None:
        done = CliRunner().invoke(app, ["run", str(file), *more])
        assert (done.exit_code, done.output, len(begun)) == (0, "", 1)
        assert "--no-check" not in begun[0]

    def test_what_is_finished_needs_nothing(self, file: Path, begun: list[list[str]]) -> None:
        for one in load_experiments(file).values():
            finish(one)
        assert CliRunner().invoke(app, ["run", str(file)]).exit_code == 0 and begun

    def test_jobs_run_elsewhere_with_an_executor(self) -> None:
        assert [runs_elsewhere(name) for name in ("local", "slurm")] == [False, True]
        assert runs_elsewhere("local", ["--executor", "slurm"]) and not runs_elsewhere("local", ["--executor", "local"])


class TestOptionalDevices:
    """One that is not there when an experiment first runs is left out for good, and nothing waits for it."""

    REASON = "there is no such host"

    @pytest.fixture
    def group(self, place: Path, boards: dict[str, Any]) -> Path:
        boards["board"] = self.REASON
        remote = {"jetson": JETSON, "phone": TRACKER}
        devices = ["cpu", {"device": "jetson", "optional": True}, {"device": "phone", "optional": True}]
        tune = {"compilers": ["inductor", "tvm"], "devices": devices, "remote_devices": remote}
        fields = {**FIELDS, "tune": tune, "select": {"by": "latency"}}
        (place / "mine.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
        return place / "mine.yaml"

    def load(self, file: Path) -> Experiment:
        (one,) = load_experiments(file).values()
        return one

    def test_it_is_left_out_and_the_others_are_needed(self, group: Path, boards: dict[str, Any]) -> None:
        one = self.load(group)
        there = states(found(one))
        assert there == {"device jetson (ssh jetson)": "left out", "device phone (tracker 10.0.0.2:9190)": "ok"}
        (made,) = with_devices([one])
        assert made.tune.left_out == {"jetson": self.REASON} and made.tune.present_devices == ("cpu", "phone")
        assert {device for _, device in made.tune.pairs} == {"cpu", "phone"}
        assert made.model_dump() == one.model_dump()  # the file beside the results has all devices

    def test_what_was_decided_stays_when_an_experiment_continues(self, group: Path, boards: dict[str, Any]) -> None:
        (made,) = with_devices([self.load(group)])
        record_devices(made)
        boards.update(board=BOARD.model_copy(update={"tvm": "0.27"}), phone="it does not answer")
        again = self.load(group)
        assert again.tune.pairs == made.tune.pairs and with_devices([again]) == [again]
        there = found(again)
        assert there["device phone (tracker 10.0.0.2:9190)"].state == "missing"  # it was there
        jetson = there["device jetson"]
        assert jetson.state == "left out" and "results/small/devices.json to look again" in jetson.text
        Path("results/small/devices.json").unlink()
        assert with_devices([self.load(group)])[0].tune.present_devices == ("cpu", "jetson")

    def test_nothing_waits_for_it(self, group: Path) -> None:
        (made,) = with_devices([self.load(group)])
        files = [str(file) for stage in STAGES.values() for file in stage.paths(made, stage.networks(made))]
        assert any("tvm-phone" in file for file in files) and not any("jetson" in file for file in files)
        assert not any("jetson" in str(file) for file in compared_measurements(made, ["key"]))

    def test_results_list_it(self, group: Path) -> None:
        (made,) = with_devices([self.load(group)])
        notes = results.so_far(made, [], 0).notes
        assert f"left out: device jetson, which was not there: {self.REASON}" in notes

    def test_without_any_device_there_is_no_fastest(self, group: Path, boards: dict[str, Any]) -> None:
        one = self.load(group)
        tune = one.tune.model_dump() | {"devices": [{"device": "jetson", "optional": True}]}
        with pytest.raises(SpecError, match=f"selects by latency, and none of its devices is there: jetson: {self.REASON}"):
            with_devices([experiment(tune=tune, select={"by": "latency"})])

    def test_syno_run_writes_what_it_decides(self, group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.execv", lambda *given: None)
        done = CliRunner().invoke(app, ["run", str(group)])
        assert done.exit_code == 0 and done.stderr == f"left out: device jetson (ssh jetson), for small: {self.REASON}\n"
        assert DevicesRecord.read(Path("results/small/devices.json")).there == ("phone",)

    def test_a_wrong_choice_is_one_error(self) -> None:
        with pytest.raises(SpecError, match=r"devices: optinal: there is no such option; .*Did you mean \"optional\""):
            experiment(tune={"devices": [{"device": "cpu", "optinal": True}]})
