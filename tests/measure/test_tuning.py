"""Tuning: each way to fail is a record, limits hold, and records survive their files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import tuned_modules
from command_lines import HANGS_AFTER
from pydantic import ValidationError
from quick_cases import quick_cases
from small_values import small_values

from syno.base.errors import DeviceError, SizeError, SpecError, UnknownNameError
from syno.ir.library import OPERATORS
from syno.measure import measuring_process
from syno.measure.latency import relative_error
from syno.measure.machine import Peak
from syno.measure.measuring import findings
from syno.measure.measuring_process import LocalProcess, MeasuringProcess, place_of_caches
from syno.measure.network_subject import NetworkWithInputs
from syno.measure.protocol import Findings, Request
from syno.measure.subjects import GivenInputs, ModelSubject, OperatorSubject
from syno.measure.timing import LatencySettings
from syno.measure.tuning import tune
from syno.measure.tuning_record import AnySubject

FAST = LatencySettings(warm_up_ms=1, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
CONV2D = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})


def model(function: str, **rest: object) -> ModelSubject:
    return ModelSubject.model_validate({"factory": f"tuned_modules:{function}", "input_shape": (4,), **rest})


def python(code: str, monkeypatch: pytest.MonkeyPatch, **limits: float) -> Findings:
    """Return what is found of a process that runs this code in place of measuring, and is not tried again."""
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-c", code))
    monkeypatch.setattr(measuring_process, "MOST_DEATHS", 1)
    request = Request(subject=CONV2D, compiler="eager", device="cpu", settings=FAST, **{"time_limit_s": 30.0, **limits})
    with MeasuringProcess() as process:
        return process.findings(request)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS_AFTER
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc file system")


SAYS = "import json, os, signal, subprocess, sys, time\nprint('syno:findings', json.dumps({0}), flush=True)\n"
BUILDING, DONE = SAYS.format({"phase": "building"}), SAYS.format({"phase": "measuring", "status": "ok"})


class TestLimits:
    def test_what_it_says_last_is_the_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert python(BUILDING + DONE, monkeypatch) == Findings(phase="measuring", status="ok")

    @pytest.mark.parametrize(
        ("ends", "reason"),
        [
            ("print('bye', file=sys.stderr)", "the process ended; its last words: bye"),
            ("os._exit(7)", "the process ended with exit code 7"),
            (
                "os.kill(os.getpid(), 9)",
                "the process was ended by signal 9 (Killed); the system does that where memory is short",
            ),
            ("import ctypes; ctypes.string_at(0)", "the process was ended by signal 11 (Segmentation fault)"),
        ],
    )
    def test_an_end_without_an_answer(self, ends: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
        found = python(BUILDING + ends, monkeypatch)
        assert found.status == "crashed" and found.reason.startswith(f"building: {reason}")

    @pytest.mark.parametrize("apart", [False, True], ids=["in its group", "in a session of its own"])
    @needs_proc
    def test_timeout_kills_what_it_started_too(self, tmp_path: Path, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "child"
        code = (
            f"child = subprocess.Popen(['sleep', '1000'], start_new_session={apart})\n"
            f"print(child.pid, file=open({str(file)!r}, 'w'), flush=True)\n"
            "time.sleep(1000)"
        )
        start = time.monotonic()
        found = python(BUILDING + code, monkeypatch, time_limit_s=1.0)
        assert (found.status, found.reason) == ("timeout", "building: it was stopped at its time limit of 1 s")
        assert time.monotonic() - start < 500
        wait_until(lambda: not is_alive(int(file.read_text(encoding="utf-8"))))

    @pytest.mark.parametrize("answers", [BUILDING, DONE], ids=["without an answer", "with an answer"])
    @needs_proc
    def test_what_it_leaves_running_is_killed(self, tmp_path: Path, answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Though that has its output open."""
        file = tmp_path / "child"
        code = f"print(subprocess.Popen(['sleep', '1000']).pid, file=open({str(file)!r}, 'w'))\n"
        found = python(SAYS.format({}) + code + answers, monkeypatch)
        assert found.status == ("ok" if answers == DONE else "crashed")
        wait_until(lambda: not is_alive(int(file.read_text(encoding="utf-8"))))

    @needs_proc
    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = python("import time; held = b'x' * (200 * 2**20); time.sleep(1000)", monkeypatch, memory_limit_mib=100)
        assert found.status == "out_of_memory" and "more than its limit of 100 MiB" in found.reason

    def test_what_was_asked_before_is_measured_in_its_order_and_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that dies takes what it was asked with it, and a new one is asked again."""
        answers = "for count, line in enumerate(sys.stdin, 1):\n    limit = json.loads(line)['time_limit_s']\n"
        answers += "    print('syno:findings', json.dumps({'status': 'ok', 'reason': f'{limit:g} as {count}'}), flush=True)\n"
        dies = "    if limit == 2 and count == 2: sys.exit(1)\n"
        request = Request(subject=CONV2D, compiler="eager", device="cpu", settings=FAST, measured="network")
        first, second, third = (request.model_copy(update={"time_limit_s": float(number)}) for number in (1, 2, 3))
        monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.0)
        for code, reasons in (
            (answers, ["3 as 3", "1 as 1", "2 as 2"]),
            (answers.replace("    print", f"{dies}    print"), ["3 as 1", "1 as 1", "2 as 1"]),
        ):
            monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-c", f"import json, sys\n{code}"))
            with MeasuringProcess() as process:
                for one in (first, second):
                    process.ask(one)
                assert [process.findings(one).reason for one in (third, first, second)] == reasons

    def test_an_interruption_leaves_no_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-c", "import time; time.sleep(1000)"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        numbers: list[int] = []

        def interrupt(found: Findings) -> None:
            numbers.append(process._local.process.pid if process._local is not None else 0)
            raise KeyboardInterrupt

        process = MeasuringProcess()
        with pytest.raises(KeyboardInterrupt):
            process.findings(Request(subject=CONV2D, compiler="eager", device="cpu", settings=FAST), interrupt)
        assert not is_alive(*numbers) and list(tmp_path.iterdir()) == []


class TestTune:
    @pytest.mark.slow
    def test_an_operator(self) -> None:
        record = tune(CONV2D, settings=FAST, time_limit_s=60)
        assert (record.status, record.reason) == ("ok", "")
        assert record.latency_ms is not None and record.latency_low_ms is not None and record.latency_high_ms is not None
        assert 0 < record.latency_low_ms <= record.latency_ms <= record.latency_high_ms
        assert (record.name, record.operator_id) == ("conv2d", OPERATORS["conv2d"]().id)
        assert (record.flops, record.parameters) == (2 * 4 * 4 * 36 * 9, 4 * 4 * 9)
        assert record.checked and record.reference == "interpreter"
        assert record.largest_relative_error is not None and record.largest_relative_error < 1e-5
        assert record.device.kind == "cpu" and record.device.name and record.device.threads == 1
        assert record.date.tzinfo is not None and {"syno", "torch", "python"} <= record.versions.keys()

    @pytest.mark.slow
    def test_a_process_that_dies_again_and_again_is_a_record(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0)
        record = tune(model("crash"), settings=FAST, time_limit_s=60)
        assert record.status == "crashed" and record.latency_ms is None
        said = "building: the process ended with exit code 3; its last words: about to leave"
        assert record.reason == f"{said}; it ended so 3 times, each time as a new process"

    @pytest.mark.slow
    def test_a_process_that_is_killed_once_is_tried_again_and_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        (tmp_path / "temporary").mkdir()
        killed = ModelSubject(
            factory="tuned_modules:killed_once", input_shape=(4,), arguments={"starts": str(tmp_path / "starts")}
        )
        record = tune(killed, settings=FAST, time_limit_s=60)
        assert (record.status, record.reason) == ("ok", "")
        assert len((tmp_path / "starts").read_text(encoding="utf-8").split()) == 2
        assert list((tmp_path / "temporary").iterdir()) == []

    def test_a_process_that_cannot_start_is_the_fault_of_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0)
        monkeypatch.setattr(measuring_process, "COMMAND", ("false",))
        with pytest.raises(DeviceError, match="cannot start .*exit code 1; it ended so 3 times"):
            tune(model("small"), settings=FAST)

    def test_a_timeout_is_a_record(self) -> None:
        record = tune(model("sleep"), settings=FAST, time_limit_s=0.1)
        assert record.status == "timeout" and record.reason.endswith("it was stopped at its time limit of 0.1 s")

    @needs_proc
    def test_it_does_not_outlive_who_asked_for_it(self, tmp_path: Path) -> None:
        process = tmp_path / "process"
        code = (
            "import os\n"
            "from syno.measure.tuning import ModelSubject, tune\n"
            f"arguments = {{'process': {str(process)!r}}}\n"
            "tune(ModelSubject(factory='tuned_modules:sleep', input_shape=(1,), arguments=arguments))"
        )
        path = os.pathsep.join(sys.path)
        asking = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)})
        try:
            wait_until(lambda: process.exists() and bool(process.read_text(encoding="utf-8")))
        finally:
            asking.kill()
            asking.wait()
        wait_until(lambda: not is_alive(int(process.read_text(encoding="utf-8"))))

    @needs_proc
    def test_memory_is_limited(self) -> None:
        record = tune(model("sleep"), settings=FAST, time_limit_s=60, memory_limit_mib=8)
        assert record.status == "out_of_memory" and "more than its limit of 8 MiB" in record.reason

    def test_what_means_nothing_is_an_error(self) -> None:
        with pytest.raises(UnknownNameError, match='unknown compiler "inducto".*inductor'):
            tune(CONV2D, "inducto")
        with pytest.raises(SpecError, match='the device is "tpu"'):
            tune(CONV2D, device="tpu")
        with pytest.raises(SpecError, match="time_limit_s is 0"):
            tune(CONV2D, time_limit_s=0)
        with pytest.raises(SpecError, match="memory_limit_mib is -1"):
            tune(CONV2D, memory_limit_mib=-1)
        with pytest.raises(ValidationError, match="a function that can be imported"):
            ModelSubject(factory="module", input_shape=(1,))
        with pytest.raises(SizeError):
            OperatorSubject.of(OPERATORS["operator_1"](), {"C_in": 5, "C_out": 7, "H": 6})

    @pytest.mark.slow
    @pytest.mark.parametrize("subject", [CONV2D, model("linear")], ids=["operator", "model"])
    def test_inductor(self, subject: AnySubject) -> None:
        record = tune(subject, "inductor", settings=FAST, time_limit_s=300)
        assert (record.status, record.reason) == ("ok", "")
        assert record.checked and record.compile_seconds is not None and record.compile_seconds > 0.1


@pytest.fixture(autouse=True)
def quick_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.measure.machine.peak", lambda *_, **again: Peak(1e15, 1e15))


def measured(subject: AnySubject, tmp_path: Path, compiler: str = "eager", settings: LatencySettings = FAST) -> Findings:
    """What the process finds, in this process."""
    request = Request(subject=subject, compiler=compiler, device="cpu", settings=settings, folder=tmp_path)
    return findings(request)


class TestMeasuring:
    def test_a_model(self, tmp_path: Path) -> None:
        found = measured(model("linear", arguments={"features": 8}, input_shape=(5, 8)), tmp_path)
        assert (found.status, found.fields["flops"], found.fields["parameters"]) == ("ok", 2 * 5 * 8 * 8, 64)
        assert found.fields["checked"] and found.fields["reference"] == "eager module"  # in double precision
        assert found.fields["share_of_allowed"] < 1

    @pytest.mark.parametrize(("on_second_look", "suspicious"), [(1e15, False), (1.0, True)])
    def test_a_peak_is_measured_again_before_a_latency_is_doubted(
        self, on_second_look: float, suspicious: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[object, ...]] = []

        def peak(*given: object, again: bool = False) -> Peak:
            asked.append((*given, again))
            return Peak(*[on_second_look if again else 1.0] * 2)

        monkeypatch.setattr("syno.measure.machine.peak", peak)
        assert measured(CONV2D, tmp_path).fields["suspicious"] is suspicious
        assert asked == [("cpu", 1, "float32", False), ("cpu", 1, "float32", True)]
        tolerant = FAST.model_copy(update={"tolerance": 0.1})  # as for a compiler that computes in bfloat16
        assert not measured(CONV2D, tmp_path, settings=tolerant).fields["suspicious"] and len(asked) == 2

    def test_a_model_of_symbols(self, tmp_path: Path) -> None:
        assert measured(model("embedding", arguments={"symbols": 3}, symbols=3), tmp_path).status == "ok"

    def test_a_wrong_output(self, tmp_path: Path) -> None:
        for subject in (CONV2D, model("linear")):
            found = measured(subject, tmp_path, "test-doubles")
            assert found.status == "wrong_output" and "differs from its reference" in found.reason
            assert "latency_ms" not in found.fields

    def test_a_model_with_a_random_output_has_no_time(self, tmp_path: Path) -> None:
        assert measured(model("changing"), tmp_path, "test-doubles").status == "wrong_output"

    def test_a_compiler_that_refuses(self, tmp_path: Path) -> None:
        found = measured(CONV2D, tmp_path, "test-refuses")
        assert found.status == "compile_failed"
        assert found.reason == "compiling: RuntimeError: an operation that is not supported"

    @pytest.mark.parametrize(
        ("function", "reason"),
        [
            ("broken", "building: RuntimeError: no such weights"),
            ("not_a_module", "returned int; it must return an nn.Module"),
            ("absent", 'tuned_modules.py) has no "absent"'),
        ],
    )
    def test_a_factory_that_makes_no_module(self, tmp_path: Path, function: str, reason: str) -> None:
        found = measured(model(function), tmp_path)
        assert found.status == "failed" and reason in found.reason

    @pytest.mark.parametrize("mode", ["fused", "literal"])
    def test_a_large_operator_is_compared_with_its_other_form(self, tmp_path: Path, mode: str) -> None:
        subject = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 32, "C_out": 32, "H": 12}, mode=mode)
        found = measured(subject, tmp_path)
        assert found.status == "ok" and found.fields["checked"]
        assert found.fields["reference"] == {"fused": "literal module", "literal": "fused module"}[mode]

    def test_the_reference_is_computed_sample_by_sample(self) -> None:
        conv2d = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 32, "C_out": 32, "H": 12})
        material = conv2d.make("cpu", 3)
        (x,) = material.make_inputs()
        assert x.shape[0] == 3 and material.reference is not None
        with torch.no_grad():
            assert relative_error(material.module(x), material.reference(x)) < 1e-5

    @pytest.mark.parametrize("name", quick_cases(OPERATORS, {"conv2d", "operator_1", "gpt2_projection"}.__contains__))
    def test_every_known_operator_agrees_with_its_reference(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.measure.subjects.INTERPRETED_STEPS", 0)
        graph = OPERATORS[name]()
        material = OperatorSubject.of(graph, dict(small_values(graph))).make("cpu", 1)
        with torch.no_grad():
            (x,) = material.make_inputs()
            assert material.reference is not None
            assert relative_error(material.module(x), material.reference(x)) < 1e-4

    def test_modules_are_made_from_these_factories(self) -> None:
        assert tuned_modules.linear(3).in_features == 3


def test_compiled_code_lies_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where temporary files cannot be executed: PyTorch then says to set this variable."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert place_of_caches() is None
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    with LocalProcess(1) as process:
        process.send(Request(subject=CONV2D, compiler="eager", device="cpu", settings=FAST).model_dump_json())
        next(kind for kind, _ in process.messages() if kind)  # before, the system may know no variables of it
        variables = Path(f"/proc/{process.process.pid}/environ").read_bytes().split(b"\0")
    (folder,) = [one.decode().partition("=")[2] for one in variables if one.startswith(b"TORCHINDUCTOR_CACHE_DIR=")]
    assert Path(folder).is_relative_to(tmp_path / "caches")
    assert list((tmp_path / "caches").iterdir()) == []  # nothing is left there


@pytest.mark.parametrize(
    "compiler",
    ["eager", *(pytest.param(one, marks=pytest.mark.slow) for one in ("inductor", "native"))],
)
def test_a_network_of_several_inputs_is_compiled_and_checked(compiler: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "x": torch.zeros(2, 3, 8, 8),
        "places": torch.randint(5, (2, 3), generator=generator),
        "keep": torch.rand(2, 1, 8, 8, generator=generator) < 0.9,
        "scale": 0.5,
    }
    made = NetworkWithInputs(
        model="own_functions:network_of_several_inputs", inputs=GivenInputs.of(inputs), operator=str(OPERATORS["conv1x1"]())
    )
    subject = NetworkWithInputs.model_validate_json(made.model_dump_json())
    assert torch.equal(subject.example(2)["keep"], inputs["keep"]) and subject.example(3)["places"].shape == (3, 3)
    found = measured(subject, tmp_path, compiler, FAST.model_copy(update={"batch": 3}))
    assert (found.status, found.fields["checked"]) == ("ok", True), found.reason
    assert found.fields["flops"] == 3 * 8 * 8 * (3 * 8 * 9 + 8 * 8)


def test_a_full_folder_of_temporary_files_is_named() -> None:
    """Not the last line, which PyTorch adds to every error."""
    with LocalProcess(1) as process:
        process.process.kill()
        process.process.wait()
        process._log.write_text("OSError: [Errno 28] No space left on device: 'a.cpp'\nSet TORCHDYNAMO_VERBOSE=1 for more\n")
        said = process.death
    assert said.startswith("there is no room in ") and "No space left on device: 'a.cpp'); make room, or set TMPDIR" in said
