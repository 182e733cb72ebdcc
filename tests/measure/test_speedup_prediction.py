"""The prediction of speedups: which kernels an operator runs, and what is learnt from their times."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syno.base.errors import SpecError
from syno.base.interval import Interval
from syno.ir.builder import Builder
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS
from syno.measure.network_subject import NetworkSubject
from syno.measure.prediction.kernels import Kernel, Kind, kernels, native_kernels
from syno.measure.prediction.predictor import QUANTILE, SpeedupPredictor, TimeModel, describe, estimated_ms
from syno.measure.speedup_record import Conditions, SpeedupRecord
from syno.measure.timing import LatencySettings
from syno.measure.tuning_record import Device

LAYER = {"N": 2, "C_in": 8, "C_out": 16, "H": 8}
NAMES = (
    *("conv2d", "conv1x1", "grouped_conv2d", "grouped_conv2d_shared", "dilated_conv2d", "separable_conv2d", "low_rank_conv1x1"),
    *("low_rank_conv2d", "nas_pte_sequence_1", "nas_pte_sequence_3"),
)
FACTORS = {Kind.CONVOLUTION: 0.5, Kind.PRODUCT: 2.0, Kind.COPY: 3.0}  # true time / estimate
REST = 0.3
COMPILERS = ("native", "inductor")


def of_data(operator: PGraph) -> list[Kernel]:
    return [kernel for kernel in kernels(operator, LAYER) if not kernel.of_weights]


class TestKernels:
    def test_a_convolution_is_one_kernel_with_its_flops(self) -> None:
        convolution, reader = of_data(OPERATORS["conv2d"]())
        assert convolution.kind is Kind.CONVOLUTION and reader.kind is Kind.READER
        assert convolution.flops == 2 * 16 * 8 * 8 * 8 * 9
        assert (convolution.groups, convolution.channels, convolution.outputs, convolution.taps) == (1, 8, 16, 9)

    def test_groups_divide_the_channels(self) -> None:
        grouped = next(one for one in of_data(OPERATORS["grouped_conv2d"]()) if one.kind is Kind.CONVOLUTION)
        assert grouped.groups > 1 and grouped.groups * grouped.channels == LAYER["C_in"]

    def test_views_are_no_kernels_and_a_turned_output_costs_its_reader(self) -> None:
        build = Builder("N, C, H", name="turned")
        n, c, first, second = build.output("N, C, H, H")
        (kernel,) = kernels(build.finish([n, c, second, first]), {"N": 2, "C": 8, "H": 8})
        assert kernel.kind is Kind.READER and kernel.run == 1 and kernel.gap == LAYER["H"]

    def test_work_on_weights_alone_is_marked(self) -> None:
        found = kernels(OPERATORS["operator_1"](), {**LAYER, "C_in": 64, "C_out": 64})
        assert any(one.of_weights for one in found) and not all(one.of_weights for one in found)

    def test_features_are_sums_over_the_layers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The features of operators that the compared models read."""
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        conv2d, features = OPERATORS["conv2d"](), importlib.import_module("speedup_models").features
        once, twice = features(conv2d, [LAYER]), features(conv2d, [LAYER, LAYER])
        assert once["convolutions"] == 1 and twice == {name: 2 * value for name, value in once.items()}


class TestNativeKernels:
    def test_a_convolution_is_one_nest_whose_work_counts(self) -> None:
        (nest,) = native_kernels(OPERATORS["conv2d"](), LAYER)
        wanted = 2 * 16 * 8 * 8 * 8 * 9
        assert nest.kind is Kind.NEST and nest.channels == 8 * 9 and nest.cycles > 0
        assert nest.flops >= wanted and nest.share == wanted / nest.flops

    def test_an_operator_of_stages_is_a_nest_for_each(self) -> None:
        sizes = LAYER | {"N": 8, "C_in": 64, "C_out": 64}
        first, second = native_kernels(OPERATORS["low_rank_conv1x1"](), sizes)
        assert first.written == second.read and first.channels == sizes["C_in"]

    def test_more_work_takes_more_cycles(self) -> None:
        cycles = [native_kernels(OPERATORS["conv2d"](), LAYER | {"C_out": count})[0].cycles for count in (16, 32, 64)]
        assert cycles[0] < cycles[1] < cycles[2]

    def test_with_the_compiler_native_nests_are_what_is_learnt_from(self) -> None:
        fitted = {
            name: SpeedupPredictor().fit([record(*one, compiler=name) for one in measured_operators()]) for name in COMPILERS
        }
        kinds = {
            name: set(described.kinds) for name, one in fitted.items() if (described := one.described(OPERATORS["conv2d"]()))
        }
        assert kinds == {"native": {Kind.NEST}, "inductor": {Kind.CONVOLUTION, Kind.READER}}


def networks(count: int, kinds: list[Kind], seed: int = 0) -> list[tuple[int, list[Kernel]]]:
    """Networks of some kernels of random sizes, as `describe` takes them."""
    random = np.random.default_rng(seed)

    def kernel() -> Kernel:
        kind, size = kinds[random.integers(len(kinds))], int(2 ** random.integers(12, 20))
        return Kernel(kind, False, 16 * size, size, size, channels=16, positions=size, run=int(2 ** random.integers(5)))

    return [(1, [kernel() for _ in range(random.integers(2, 6))]) for _ in range(count)]


def times(found: list[tuple[int, list[Kernel]]], noise: float = 0.0) -> np.ndarray:
    """True times: `REST`, and the estimates times `FACTORS`."""
    random = np.random.default_rng(1)
    exact = [REST + sum(estimated_ms(one) * FACTORS[one.kind] for one in kernels) for _, kernels in found]
    return np.array([time * np.exp(noise * random.normal()) for time in exact])


class TestModel:
    def test_it_learns_the_factor_of_each_kind_from_sums(self) -> None:
        known, asked = networks(60, list(FACTORS)), networks(40, list(FACTORS), seed=1)
        model = TimeModel.fit([describe([one]) for one in known], times(known))
        found = np.array([np.exp(model.estimate(describe([one])).mean) for one in asked])
        assert np.median(np.abs(found / times(asked) - 1)) < 0.03

    def test_ninety_percent_of_noisy_times_are_in_their_intervals(self) -> None:
        known, asked = networks(80, list(FACTORS)), networks(200, list(FACTORS), seed=1)
        model = TimeModel.fit([describe([one]) for one in known], times(known, noise=0.2))
        estimates = [model.estimate(describe([one])) for one in asked]
        errors = [np.log(time) - one.mean for time, one in zip(times(asked, noise=0.2), estimates, strict=True)]
        inside = [abs(error) <= QUANTILE * one.deviation for error, one in zip(errors, estimates, strict=True)]
        assert 0.85 <= np.mean(inside) <= 0.95

    def test_it_is_less_sure_about_kernels_unlike_all_that_were_measured(self) -> None:
        known = networks(60, [Kind.COPY])
        model = TimeModel.fit([describe([one]) for one in known], times(known))
        alike, unlike = (model.estimate(describe(networks(1, [kind], seed=1))) for kind in (Kind.COPY, Kind.PRODUCT))
        assert unlike.deviation > 3 * alike.deviation


@cache
def measured_operators() -> list[tuple[PGraph, float]]:
    """Operators with speedups that follow from their FLOPs."""
    found = [OPERATORS[name]() for name in NAMES]
    return [(operator, 1 / (0.3 + sum(one.flops for one in of_data(operator)) / 1e6)) for operator in found]


class TestPredictor:
    def test_nothing_is_predicted_from_a_few_measurements(self) -> None:
        predictor = SpeedupPredictor([LAYER]).learn(measured_operators()[:3])
        assert predictor.predict(OPERATORS["conv2d"]()) is None and predictor.may_meet(OPERATORS["conv2d"](), 100)

    def test_the_order_of_measurements_does_not_matter(self) -> None:
        given, operator = measured_operators(), OPERATORS["shift_conv1x1"]()
        one, other = (SpeedupPredictor([LAYER]).learn(order).predict(operator) for order in (given, given[::-1]))
        assert one is not None and one == other and one.low < one.value < one.high

    def test_only_what_may_meet_the_goal_is_sent_to_measuring(self) -> None:
        predictor, operator = SpeedupPredictor([LAYER]).learn(measured_operators()), OPERATORS["conv2d"]()
        predicted = predictor.predict(operator)
        assert predicted is not None
        assert predictor.may_meet(operator, 0.99 * predicted.high) and not predictor.may_meet(operator, 1.01 * predicted.high)

    def test_an_operator_that_does_not_fit_is_left_to_measuring(self) -> None:
        assert SpeedupPredictor([LAYER]).learn(measured_operators()).predict(OPERATORS["matmul"]()) is None

    def test_the_parts_of_the_time_add_up_to_it(self) -> None:
        predictor, operator = SpeedupPredictor([LAYER]).learn(measured_operators()), OPERATORS["separable_conv2d"]()
        predicted = predictor.predict(operator)
        assert predicted is not None and sum(predictor.parts(operator).values()) == pytest.approx(1 / predicted.value)

    def test_a_speedup_must_be_positive(self) -> None:
        with pytest.raises(SpecError, match="must be a positive number"):
            SpeedupPredictor([LAYER]).learn([(OPERATORS["conv2d"](), 0.0)])


def record(operator: PGraph, speedup: float | None, compiler: str = "inductor") -> SpeedupRecord:
    conditions = Conditions(
        operator_id=operator.id,
        network=NetworkSubject(model="resnet8", classes=4, image_shape=(3, 8, 8)),
        measured="network",
        compiler=compiler,
        device=Device(kind="cpu", name="a processor", threads=1),
        machine="a machine",
        settings=LatencySettings(),
        versions={},
    )
    ok: dict[str, Any] = {"status": "failed", "reason": "no memory"}
    if speedup is not None:
        one, ratio = Interval(value=1, low=1, high=1), Interval(value=speedup, low=speedup, high=speedup)
        ok = {"status": "ok", "latency_ms": one, "original_ms": one, "ratio": ratio, "drift": 0.0}
    return SpeedupRecord(name=operator.name, operator=str(operator), conditions=conditions, date=datetime.now(UTC), **ok)


class TestRecords:
    def test_layers_come_from_the_network_of_the_records(self) -> None:
        predictor = SpeedupPredictor().fit([record(*one) for one in measured_operators()])
        predicted = predictor.predict(OPERATORS["conv1x1"]())
        assert predicted is not None and predicted.value > 0

    def test_a_record_without_a_speedup_tells_nothing(self) -> None:
        given = measured_operators()
        predictor = SpeedupPredictor().fit([record(*given[0]), *(record(operator, None) for operator, _ in given[1:])])
        assert predictor.predict(given[0][0]) is None

    def test_records_of_two_compilers_are_not_mixed(self) -> None:
        one, other = measured_operators()[:2]
        with pytest.raises(SpecError, match='"inductor" and "eager".*a predictor for each'):
            SpeedupPredictor().fit([record(*one), record(*other, compiler="eager")])
