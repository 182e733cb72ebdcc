"""What measuring says, on clocks that tests set: nothing here depends on the speed of the machine."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError

from syno.base.errors import SpecError, SynoError, WrongOutputError
from syno.measure import machine
from syno.measure.compilers import COMPILERS
from syno.measure.latency import Latency, LatencySettings, measure, relative_error
from syno.measure.machine import Peak, cache_bytes, device_name, peak
from syno.measure.output_check import OutputCheck
from syno.measure.timing import Timing, interval_of_median, stopwatch_of, time_calls

FAST = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=10, least_ms=0)


class Clock:
    """A stopwatch for calls that take given milliseconds, one after another; it stays at the last."""

    def __init__(self, *taken: float) -> None:
        self.taken = list(taken)
        self.calls = 0
        self.readings = 0

    def call(self) -> None:
        self.calls += 1

    def __call__(self, work: Callable[[], object]) -> float:
        before = self.calls
        work()
        self.readings += 1
        each = self.taken.pop(0) if len(self.taken) > 1 else self.taken[0]
        return each * max(self.calls - before, 1)


def timed(clock: Clock, **settings: float) -> Timing:
    return time_calls(clock.call, FAST.model_copy(update=settings), clock)


class TestInterval:
    @pytest.mark.parametrize(
        ("count", "low", "high"),
        [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (50, 18, 33), (100, 40, 61)],
    )
    def test_ranks_are_those_of_the_tables(self, count: int, low: int, high: int) -> None:
        """Of the sign test at 5 %, two-sided."""
        assert interval_of_median(range(1, count + 1)) == (low, high)

    def test_it_covers_the_median_in_95_percent_of_all_cases(self) -> None:
        draw = random.Random(0)
        covered = 0
        for _ in range(2000):
            low, high = interval_of_median(sorted(draw.expovariate(1) for _ in range(25)))
            covered += low <= 0.6931 <= high
        assert 0.945 <= covered / 2000 <= 0.98

    def test_too_few_are_an_error(self) -> None:
        with pytest.raises(SpecError, match="5 repeats have no 95 % interval of their median; it takes 6 or more"):
            interval_of_median([1.0] * 5)


class TestTiming:
    def test_median_minimum_and_interval(self) -> None:
        samples = [5.0, 3.0, 4.0, 9.0, 2.0, 8.0, 7.0, 6.0, 1.0, 10.0]
        found = timed(Clock(50.0, 50.0, *samples), least_repeats=10)
        assert (found.median_ms, found.minimum_ms, found.low_ms, found.high_ms) == (statistics.median(samples), 1.0, 2.0, 9.0)
        assert (found.repeats, found.calls_per_repeat) == (10, 1)

    def test_short_calls_are_repeated_until_a_repeat_is_long(self) -> None:
        clock = Clock(0.01)
        found = timed(clock)
        assert found.calls_per_repeat == 100 and clock.calls == 2 + 6 * 100
        assert found.median_ms == pytest.approx(0.01)

    def test_the_first_call_is_no_estimate(self) -> None:
        assert timed(Clock(500.0, 0.1, 0.1)).calls_per_repeat == 10

    def test_it_warms_up_as_long_as_asked(self) -> None:
        clock = Clock(2.0)
        timed(clock, warm_up_ms=100)
        assert clock.readings == 50 + 6

    def test_it_goes_on_until_the_least_time(self) -> None:
        assert timed(Clock(10.0), least_ms=75).repeats == 8

    def test_it_stops_at_the_most_repeats(self) -> None:
        assert timed(Clock(1.0), least_ms=1e9).repeats == 10
        assert timed(Clock(1.0), least_repeats=50).repeats == 10

    def test_a_clock_that_stands_still_ends(self) -> None:
        assert timed(Clock(0.0), warm_up_ms=0.01).median_ms == 0

    def test_the_clock_of_the_process_counts_milliseconds(self) -> None:
        assert 0 <= stopwatch_of("cpu")(lambda: None) < 1000


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.rand(4, 8),)


def measured(function: Callable[..., object], milliseconds: float = 2.0, **options: object) -> Latency:
    return measure(function, inputs, FAST, stopwatch=Clock(milliseconds), **options)  # type: ignore[arg-type]


def check_of(reference: Callable[..., object], value: float = 1.0, **options: float) -> OutputCheck:
    return OutputCheck(reference, [(torch.full((4, 8), value),)], **options)


class TestMeasure:
    def test_the_output_of_a_timed_call_is_checked(self) -> None:
        found = measured(lambda x: x * 2, check=check_of(lambda x: x + x))
        assert found.checked and found.largest_relative_error == 0 and found.median_ms == 2
        assert found.share_of_allowed == 0 and found.rounding_error is not None and 1e-8 < found.rounding_error < 1e-6

    def test_a_wrong_output_is_no_time(self) -> None:
        with pytest.raises(WrongOutputError, match="the output of a timed call differs from its reference by 1 of"):
            measured(lambda x: x * 2, check=check_of(lambda x: x))
        with pytest.raises(WrongOutputError, match="differs from its reference by 1 of .* at most 0.001 is allowed"):
            measured(lambda x: x * 2, check=check_of(lambda x: x, tolerance=1e-3))
        assert issubclass(WrongOutputError, SynoError)

    def test_an_output_that_is_wrong_for_a_checked_input_only_is_no_time(self) -> None:
        with pytest.raises(WrongOutputError, match="^the output differs"):
            measured(lambda x: x.clamp(max=1), check=check_of(lambda x: x, value=2.0))

    def test_an_output_that_goes_wrong_only_later_is_found(self) -> None:
        calls = iter(range(1000))
        with pytest.raises(WrongOutputError):
            measured(lambda x: x if next(calls) < 3 else x * 0, check=check_of(lambda x: x))

    def test_without_a_reference_nothing_is_checked(self) -> None:
        found = measured(lambda x: x)
        assert not found.checked and found.largest_relative_error is None

    def test_inputs_are_taken_in_turn(self) -> None:
        seen: list[int] = []
        found = measured(lambda x: seen.append(id(x)) or x)
        assert len(set(seen)) == len(seen) == 8 <= found.inputs
        assert not found.exceeds_cache  # tiny

    def test_inputs_exceed_the_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("syno.measure.latency.cache_bytes", lambda device: 1000)
        found = measured(lambda x: x)  # 128 bytes each
        assert found.exceeds_cache and found.inputs == 8

    def test_threads_are_pinned_and_restored(self) -> None:
        before = torch.get_num_threads()
        seen: set[int] = set()
        settings = FAST.model_copy(update={"threads": before + 1})
        found = measure(lambda x: seen.add(torch.get_num_threads()) or x, inputs, settings, stopwatch=Clock(2.0))
        assert (seen, found.threads, torch.get_num_threads()) == ({before + 1}, before + 1, before)

    def test_no_gradients_are_recorded(self) -> None:
        weight = torch.ones(8, requires_grad=True)
        seen: list[bool] = []
        measured(lambda x: seen.append((x * weight).requires_grad) or x)
        assert not any(seen)

    @pytest.mark.parametrize(("flops", "suspicious"), [(1000, False), (4500, False), (10**6, True)])
    def test_more_flops_than_the_machine_can_do_are_suspicious(self, flops: int, suspicious: bool) -> None:
        """The second is a convolution at the peak by Winograd: fewer multiplications are done than are counted."""
        found = measured(lambda x: x, flops=flops, peak=Peak(1e6, 1e12))
        assert found.suspicious is suspicious and found.flops_per_second == pytest.approx(flops * 500)

    def test_multiply_adds_that_read_padding_need_not_be_done(self) -> None:
        """A 3x3 window over one pixel at nearly the peak: 9 times as many multiply-adds are counted as are done."""
        given = {"flops": 17_000, "peak": Peak(1e6, 1e12)}
        assert measured(lambda x: x, **given).suspicious
        found = measured(lambda x: x, inside=1 / 9, **given)
        assert not found.suspicious and found.limit_ms == pytest.approx(1.889, rel=1e-3)

    def test_more_bytes_than_the_machine_can_move_are_suspicious(self) -> None:
        found = measured(lambda x: x, weight_bytes=744, peak=Peak(1e6, 1e5))
        assert found.bytes_per_second == pytest.approx(1000 * 500) and found.suspicious
        assert not measured(lambda x: x, weight_bytes=744, peak=Peak(1e6, 4.5e5)).suspicious  # peaks vary

    @pytest.mark.parametrize(("flops", "limit_ms"), [(1000, 1.0), (100, 0.5)])
    def test_the_limit_is_the_longer_of_computing_and_moving(self, flops: int, limit_ms: float) -> None:
        """1000 bytes are moved, as fast as memory of that size is."""
        peak = Peak(1e6, 1e9, ((500, 1e9), (2000, 2e6)))
        assert measured(lambda x: x, flops=flops, weight_bytes=744, peak=peak).limit_ms == pytest.approx(limit_ms)
        assert measured(lambda x: x, flops=flops).limit_ms is None


class TestPeak:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Work that takes no time, on a clock that a test sets, no compiler, and no peaks that other tests measured."""
        monkeypatch.setattr(machine, "_compiled_loops", lambda: None)
        for name, sizes in {"SIDES": (10,), "ROWS": (10,), "PICTURES": ((1, 2, 4),), "COPIED_BYTES": (400,)}.items():
            monkeypatch.setattr(machine, name, {"cpu": sizes})
        monkeypatch.setattr(machine, "_peaks", {})

    def clock(self, monkeypatch: pytest.MonkeyPatch, *taken: float) -> None:
        clock = Clock(*taken)
        monkeypatch.setattr(machine, "stopwatch_of", lambda device: clock)

    def test_it_is_that_of_the_fastest_kind_of_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        attempts = machine.PEAK_ATTEMPTS
        # the product of matrices, the convolution in two formats, the product with a vector, the copy
        self.clock(monkeypatch, *[ms for ms in (4.0, 9.0, 0.5, 1.0, 1.0) for _ in range(attempts)])
        found = peak("cpu", 1)
        assert (found.flops_per_second, found.bytes_per_second) == pytest.approx((9 * 2 * 2 * 16 * 2e3, 800e3))

    def test_the_best_of_many_counts_where_others_use_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock(monkeypatch, *[50.0] * (machine.PEAK_ATTEMPTS - 1), 1.0, 50.0)
        assert peak("cpu", 1).flops_per_second == pytest.approx(1e6)

    def test_it_is_measured_once_and_grows_when_it_is_measured_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock(monkeypatch, 4.0)
        before = peak("cpu", 1)
        self.clock(monkeypatch, 2.0)
        assert peak("cpu", 1) == before
        assert peak("cpu", 1, again=True) == peak("cpu", 1) == Peak(2 * before.flops_per_second, 2 * before.bytes_per_second)
        self.clock(monkeypatch, 8.0)
        assert peak("cpu", 1, again=True) == peak("cpu", 1)

    def test_a_type_of_numbers_has_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock(monkeypatch, 4.0)
        single = peak("cpu", 1)
        self.clock(monkeypatch, 1.0)
        assert peak("cpu", 1, "bfloat16").flops_per_second == 4 * single.flops_per_second

    def test_more_threads_are_no_slower_than_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stopwatch(work: Callable[[], object]) -> float:
            return float(torch.get_num_threads())

        monkeypatch.setattr(machine, "stopwatch_of", lambda device: stopwatch)
        before = torch.get_num_threads()
        assert peak("cpu", 2) == peak("cpu", 1) and torch.get_num_threads() == before


class TestRelativeError:
    @pytest.mark.parametrize(
        ("output", "expected", "error"),
        [
            ([1.0, 2.0], [1.0, 4.0], 0.5),
            ([1.0], [1.0, 1.0], float("inf")),
            ([float("nan")], [1.0], float("inf")),
            ([1.0, float("inf")], [1.0, float("inf")], 0.0),
            ([1.0, 2.0], [1.0, float("inf")], float("inf")),
            ([float("nan"), 1.0], [float("nan"), 2.0], 0.5),
            ([], [], 0.0),
        ],
    )
    def test_of_one_tensor(self, output: Sequence[float], expected: Sequence[float], error: float) -> None:
        assert relative_error(torch.tensor(output), torch.tensor(expected)) == error

    def test_of_several(self) -> None:
        one = torch.ones(2)
        assert relative_error({"a": one, "b": (one, one)}, [one, one, 2 * one]) == 0.5
        assert relative_error([one], [one, one]) == relative_error([], []) == float("inf")


class TestSettings:
    def test_fewer_repeats_than_an_interval_takes_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="least_repeats"):
            LatencySettings(least_repeats=5)

    def test_unknown_settings_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="repeats"):
            LatencySettings(repeats=5)  # type: ignore[call-arg]


def test_compilers() -> None:
    assert list(COMPILERS)[:3] == ["eager", "inductor", "inductor-max-autotune"]
    module = torch.nn.Linear(2, 2)
    assert COMPILERS["eager"](SimpleNamespace(module=module)) is module


def test_the_machine_has_a_name_and_a_cache() -> None:
    assert device_name("cpu") and cache_bytes(torch.device("cpu")) >= 2**15
