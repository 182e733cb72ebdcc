"""Latency on the device: events, compilers in processes of their own, rounding, and limits of memory."""

from __future__ import annotations

import subprocess
import sys
import time
import unittest

import torch
from on_gpu import OnGpu

import syno
from syno.measure.compilers import LOW_PRECISION_TOLERANCE
from syno.measure.latency import pinned
from syno.measure.machine import cache_bytes, device_name, peak
from syno.measure.timing import LatencySettings, stopwatch_of
from syno.measure.tuning import OperatorSubject, tune
from syno.measure.tuning_record import TuningRecord

QUICK = LatencySettings(batch=2, warm_up_ms=10, least_ms=20)
LAYER = {"C_in": 64, "C_out": 64, "H": 14}
CYCLES = 50_000_000  # of a GPU's clock, which is below 3 GHz
OVER_LIMIT = """
import torch
from syno.measure.measuring import take_gpu
take_gpu("cuda", 256)
torch.empty(2**28, device="cuda")
"""


class Latency(OnGpu):
    def measured(self, compiler: str) -> TuningRecord:
        subject = OperatorSubject.of(syno.OPERATORS["operator_1"](), LAYER)
        record = tune(subject, compiler, self.device, QUICK, time_limit_s=120)
        self.assertEqual((record.status, record.reason), ("ok", ""))
        self.assertTrue(record.checked)
        self.assertFalse(record.suspicious)
        self.assertEqual((record.device.kind, record.device.name), (torch.device(self.device).type, device_name(self.device)))
        return record

    def test_eager(self) -> None:
        self.assertEqual(self.measured("eager").settings.tf32, False)

    def test_inductor(self) -> None:
        self.need_gpu()  # tests/measure has it on the CPU
        self.assertGreater(self.measured("inductor").compile_seconds or 0.0, 0.1)

    def test_inductor_max_autotune(self) -> None:
        """It replays a graph of CUDA, whose output the next call overwrites."""
        self.need_gpu()
        self.measured("inductor-max-autotune")

    def test_inductor_in_bfloat16(self) -> None:
        """It computes in lower precision than the reference, and so may differ."""
        self.need_gpu()
        self.assertEqual(self.measured("inductor-bfloat16").settings.tolerance, LOW_PRECISION_TOLERANCE)

    def test_one_of_several_gpus(self) -> None:
        if torch.cuda.device_count() < 2:
            self.skipTest("there are no two GPUs")
        subject = OperatorSubject.of(syno.OPERATORS["conv2d"](), LAYER)
        self.assertEqual(tune(subject, "inductor", "cuda:1", QUICK, time_limit_s=120).status, "ok")

    def test_the_stopwatch_sees_work_that_is_only_queued(self) -> None:
        work = (lambda: time.sleep(0.02)) if self.device == "cpu" else (lambda: torch.cuda._sleep(CYCLES))
        self.assertGreater(stopwatch_of(self.device)(work), 10.0)

    def test_earlier_work_is_not_timed(self) -> None:
        self.need_gpu()
        torch.cuda._sleep(10 * CYCLES)
        self.assertLess(stopwatch_of(self.device)(lambda: None), 10.0)

    def test_tf32_is_on_or_off_as_the_settings_say(self) -> None:
        one, other = (torch.rand(512, 512, dtype=torch.float64) for _ in range(2))
        exact = one @ other
        errors = {}
        for tf32 in (False, True):
            with pinned(LatencySettings(tf32=tf32)):
                product = one.float().to(self.device) @ other.float().to(self.device)
            errors[tf32] = float((product.cpu().double() - exact).abs().max() / exact.abs().max())
        self.assertLess(errors[False], 1e-5)
        self.assertLess(errors[True], 1e-2)
        if self.device != "cpu" and torch.cuda.get_device_capability()[0] >= 8:
            self.assertGreater(errors[True], 3 * errors[False])

    def test_the_peak_and_the_cache_are_known(self) -> None:
        found = peak(self.device, 1)
        self.assertGreater(min(found.flops_per_second, found.bytes_per_second), 1e6)
        self.assertGreater(cache_bytes(torch.device(self.device)), 2**16)

    def test_the_limit_of_memory_holds_on_the_gpu(self) -> None:
        self.need_gpu()
        done = subprocess.run([sys.executable, "-c", OVER_LIMIT], capture_output=True, text=True, check=False)
        self.assertIn("OutOfMemoryError", done.stderr)


class LatencyWithTvm(OnGpu):
    def test_tuned_for_the_gpu(self) -> None:
        self.need_gpu()
        try:
            import tvm
        except ImportError:
            self.skipTest("TVM is not installed")
        if not tvm.cuda().exist:
            self.skipTest("TVM has been built without CUDA")
        from syno.measure.tvm.targets import TvmSettings

        subject = OperatorSubject.of(syno.OPERATORS["conv2d"](), LAYER)
        record = tune(subject, "tvm", self.device, QUICK, time_limit_s=120, tvm=TvmSettings(trials_per_task=4))
        self.assertIn(record.status, ("ok", "partial"))


if __name__ == "__main__":
    unittest.main()
