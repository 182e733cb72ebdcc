"""How far an output may be from double precision: what simulated rounding says of it, and with which inputs that is seen."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from quick_cases import quick_cases
from torch import Tensor, nn
from torch.nn import functional

from syno.base.errors import SpecError, WrongOutputError
from syno.measure.output_check import MOST_DEVIATIONS, Deviation, OutputCheck, SimulatedRounding, unit_roundoff
from syno.measure.reference import CORNER_GAIN, in_double, telling_inputs, vary_constants

SINGLE = 2.0**-24


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def simulated(function: Callable[[Tensor], Tensor], x: Tensor, unit: float = SINGLE) -> float:
    """The root mean square of the errors that simulated rounding makes."""
    exact = function(x.double())
    with SimulatedRounding(unit, seed=0):
        rounded = function(x.double().clone())
    return float((rounded - exact).square().mean().sqrt())


def one_after_another(x: Tensor) -> Tensor:
    """[N, K] -> [N]: the sum of each row, in single precision, as a loop makes it."""
    total = torch.zeros(len(x))
    for column in x.float().unbind(1):
        total = total + column
    return total


CONVOLUTION = nn.Conv2d(64, 32, 3, padding=1, bias=False)
OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "convolution": (lambda x: functional.conv2d(x, CONVOLUTION.weight.to(x.dtype)), drawn(2, 64, 16, 16)),
    "grouped": (lambda x: functional.conv2d(x, CONVOLUTION.weight[:, :4].to(x.dtype), groups=16), drawn(2, 64, 16, 16)),
    "product": (lambda x: x @ x.T, drawn(64, 1000)),
    "mean": (lambda x: x.square().mean((2, 3)), drawn(8, 16, 56, 56)),
    "pooling": (lambda x: functional.avg_pool2d(x, 4), drawn(8, 16, 56, 56)),
    "softmax": (lambda x: x.softmax(-1), drawn(64, 1000)),
    "normalization": (lambda x: functional.layer_norm(x, x.shape[-1:]), drawn(64, 1000)),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), drawn(2, 4, 64, 32)),
    "activation": (functional.gelu, drawn(1000)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_simulated_errors_are_those_of_single_precision_or_somewhat_larger(name: str) -> None:
    operation, x = OPERATIONS[name]
    with torch.no_grad():
        real = float((operation(x).double() - operation(x.double())).square().mean().sqrt())
        assert real < 1.5 * simulated(operation, x) < 100 * real


@pytest.mark.parametrize("mean", [0.0, 1.0], ids=["random signs", "one sign"])
def test_they_are_those_of_sums_that_are_taken_one_after_another(mean: float) -> None:
    """Which compilers without tuned schedules do: the worst order there is."""
    x = mean + drawn(500, 2000)
    real = float((one_after_another(x).double() - x.double().sum(1)).square().mean().sqrt())
    assert real < 2 * simulated(lambda y: y.sum(1), x) < 8 * real


def test_views_and_infinite_numbers_are_exact() -> None:
    x = torch.tensor([[1.0, float("-inf")]])
    with SimulatedRounding(SINGLE, seed=0):
        y = x.double()
        assert torch.equal(y.T.reshape(2)[1:], torch.tensor([float("-inf")]).double())
        assert not y.isnan().any()


def test_the_precision_is_that_of_the_module() -> None:
    assert unit_roundoff(nn.ReLU()) == unit_roundoff(nn.Linear(2, 2)) == unit_roundoff(nn.Linear(2, 2).double()) == SINGLE
    assert unit_roundoff(nn.Linear(2, 2).bfloat16()) == 2.0**-8
    assert unit_roundoff(nn.Linear(2, 2), tf32=True) == 2.0**-11


class TestCheck:
    @pytest.mark.parametrize("place", ["large", "usual"])
    def test_every_element_counts(self, place: str) -> None:
        """One of many elements is wrong by a small share of the largest: of that itself, or of another."""
        x = drawn(100, 100)
        x[0, 0] = 1e4

        def wrong(x: Tensor) -> Tensor:
            y = x * 2
            where = (0, 0) if place == "large" else (5, 5)
            y[where] += y[where].abs() * (1e-5 if place == "large" else 1e-1)
            return y

        check = OutputCheck(lambda x: x * 2, [(x,)])
        assert check.of(lambda x: x * 2).of_allowed == 0
        assert check.of(wrong).of_allowed > 1 and check.of(wrong).relative < 2e-5

    def test_an_output_that_is_as_wrong_as_rounding_makes_it_passes(self) -> None:
        x, weight = drawn(16, 256), drawn(256, 64)
        check = OutputCheck(lambda x: x @ weight.to(x.dtype), [(x,)])
        found = check.require(check.of(lambda x: x @ weight))
        assert 0 < found.of_allowed < 1 / 3 and found.rounding is not None and found.rounding < 1e-5
        assert check.of(lambda x: x @ weight * (1 + 2 * MOST_DEVIATIONS * found.rounding)).of_allowed > 1
        with pytest.raises(WrongOutputError, match="an element by .* times what is allowed for it; rounding alone changes it"):
            check.require(check.of(lambda x: x @ weight.bfloat16().float()))

    def test_no_more_than_a_thousandth_is_allowed_however_it_is_computed(self) -> None:
        unsteady = OutputCheck(lambda x: x.sign() * 1e9 - 1e9 * x.div(x.abs()) + x, [(drawn(100),)])
        assert unsteady.of(lambda x: x * 1.01).of_allowed > 1

    def test_a_tolerance_stands_in_place_of_it(self) -> None:
        check = OutputCheck(lambda x: x, [(torch.ones(3),)], tolerance=0.1)
        assert check.of(lambda x: x * 1.05) == Deviation(pytest.approx(0.5), pytest.approx(0.05), None)
        with pytest.raises(WrongOutputError, match="differs from its reference by 0.2 of .*; at most 0.1 is allowed"):
            check.require(check.of(lambda x: x * 1.2))

    @pytest.mark.parametrize("tolerance", [None, 1e-3])
    def test_of_a_large_batch_some_samples_are_compared_the_first_and_the_last_among_them(
        self, tolerance: float | None
    ) -> None:
        computed: list[int] = []

        def reference(x: Tensor) -> Tensor:
            computed.append(len(x))
            return x * 2

        def wrong(sample: int) -> Callable[[Tensor], Tensor]:
            return lambda x: x * 2 + 0.1 * (torch.arange(len(x)) == sample)[:, None]

        check = OutputCheck(reference, [(drawn(100, 8),)], tolerance=tolerance, most_samples=4)
        assert check.of(lambda x: x * 2).of_allowed == 0 and set(computed) == {4}
        assert [sample for sample in range(100) if check.of(wrong(sample)).of_allowed > 1] == [0, 33, 66, 99]
        assert check.of_output(wrong(99)(drawn(100, 8)), (drawn(100, 8),)).of_allowed > 1
        assert check.of(lambda x: 2 * x[:99]).of_allowed == float("inf")  # a batch of another length
        assert check.of(lambda x: 2 * x.sum()).of_allowed == float("inf")

    def test_what_has_no_double_precision_is_one_clear_error_or_compared_with_itself(self) -> None:
        weight = torch.eye(3)
        given = [(torch.ones(2, 3),)]

        def single(x: Tensor) -> Tensor:
            return x @ weight

        with pytest.raises(SpecError, match="cannot be computed in double precision on the CPU.*or set a tolerance"):
            OutputCheck(single, given, fallback=single).of(single)
        assert OutputCheck(single, given, fallback=single, tolerance=1e-3).of(single).of_allowed == 0

    def test_tensors_that_a_module_makes_are_in_double_precision_too(self) -> None:
        assert OutputCheck(lambda x: x @ torch.eye(3), [(torch.ones(2, 3),)]).of(lambda x: x).of_allowed == 0
        assert torch.get_default_dtype() == torch.float32


class Peaked(nn.Module):
    """A small trained-like network with two classes that are about equally likely, and an ending that makes errors large."""

    def __init__(self, ending: Callable[[Tensor], Tensor], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.ending, self.mix = ending, nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Linear(16, (4, 10, 100)[seed % 3])
        for parameter in self.parameters():
            parameter.data.normal_(0, parameter[0].numel() ** -0.5, generator=generator)
        with torch.no_grad():
            self.head.bias -= self.scores(drawn(32, 3, 8, 8)).mean(0)
            self.head.bias[:2] += 2 * self.scores(drawn(32, 3, 8, 8)).std()

    def scores(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] -> [N, classes]."""
        y: Tensor = self.head(self.mix(x).relu().mean((2, 3)))
        return y

    def forward(self, x: Tensor) -> Tensor:
        return self.ending(self.scores(x))


def peaked_normalization(y: Tensor) -> Tensor:
    near = 1 + y / 300
    return (near - near.mean(-1, keepdim=True)) / near.std(-1, keepdim=True)


ENDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    **{f"softmax x{gain}": lambda y, gain=gain: (y * gain).softmax(-1) for gain in (10, 100, 3000)},
    **{f"sigmoid x{gain}": lambda y, gain=gain: (y * gain).sigmoid() for gain in (100, 1000)},
    "tanh": lambda y: (y * 1000).tanh(),
    "exp": lambda y: (y * 20).exp(),
    "logsumexp": lambda y: (y * 100).logsumexp(-1, keepdim=True),
    "normalization by small variances": peaked_normalization,
    "expected class": lambda y: (y * 300).softmax(-1) @ torch.arange(y.shape[-1], dtype=y.dtype)[:, None],
}


class TestPeakedOutputs:
    """Fifty networks few of whose outputs have errors that matter."""

    @pytest.mark.parametrize("ending", quick_cases(ENDINGS, {"softmax x100", "tanh"}.__contains__))
    def test_honest_computations_are_not_refused_and_wrong_ones_are(self, ending: str) -> None:
        for seed in range(5):
            network = Peaked(ENDINGS[ending], seed).eval()
            generator = torch.Generator().manual_seed(seed)
            given = telling_inputs((4, 3, 8, 8), generator)
            check = OutputCheck(in_double(network), [(x,) for x in given], fallback=network)

            def channels_last(x: Tensor, network: nn.Module = network) -> Tensor:
                y: Tensor = network(x.contiguous(memory_format=torch.channels_last))
                return y

            def one_by_one(x: Tensor, network: nn.Module = network) -> Tensor:
                return torch.cat([network(sample) for sample in x.split(1)])

            def slightly_larger(x: Tensor, network: nn.Module = network) -> Tensor:
                y: Tensor = network(x)
                return y * 1.01

            def one_number(x: Tensor, network: nn.Module = network) -> Tensor:
                y: Tensor = network(x).clone()
                y[1, 0] += 0.01 * y.abs().max()
                return y

            with torch.no_grad():
                timed = [torch.rand(4, 3, 8, 8, generator=generator) - 0.5 for _ in range(3)]
                for honest in (network, channels_last, one_by_one):
                    assert check.of(honest).of_allowed <= 1, seed
                    assert max(check.of_output(honest(x), (x,)).of_allowed for x in timed) <= 1, seed
                for wrong in (slightly_larger, one_number):
                    assert check.of(wrong).of_allowed > 1, (seed, wrong)
                    assert check.of_output(wrong(timed[0]), (timed[0],)).of_allowed > 1, (seed, wrong)

    def test_the_estimate_of_one_run_is_not_trusted_alone(self) -> None:
        """Two elements of many matter, and their simulated error is small by chance in some of the runs."""
        refused = []
        for place in range(0, 200, 2):
            x = torch.full((1, 201), -9.0)
            x[0, place : place + 2] = 2.0
            check = OutputCheck(lambda x: (x * 100).softmax(-1), [(x,)])

            def rounded_otherwise(x: Tensor, place: int = place) -> Tensor:
                scaled = x * 100
                scaled[0, place] *= 1 + 2.0**-23  # the next number in single precision
                return scaled.softmax(-1)

            if check.of(rounded_otherwise).of_allowed > 1:
                refused.append(place)
        assert refused == []

    def test_more_than_a_thousandth_is_allowed_where_the_function_itself_errs_so_much(self) -> None:
        near = drawn(64, 1) + 1e-6 * drawn(64, 2, seed=1)

        def sharp(x: Tensor) -> Tensor:
            return (1e4 * (x @ near.to(x.dtype))).softmax(-1)

        x = drawn(50, 64)
        check = OutputCheck(sharp, [(x,)], fallback=sharp)
        assert check.of(sharp).relative > 2e-3 and check.of(sharp).of_allowed <= 1
        assert check.of(lambda x: sharp(x) * 0.8).of_allowed > 1


class TestInputs:
    def test_values_grow_towards_the_corners(self) -> None:
        (x,) = telling_inputs((8, 16, 32, 32), torch.Generator().manual_seed(0))
        corner, middle, edge = (float(part.abs().mean()) for part in (x[..., 0, -1], x[..., 16, 16], x[..., 0, 16]))
        assert CORNER_GAIN * 0.8 < corner / middle < CORNER_GAIN * 1.25 and edge < 1.25 * middle

    def test_there_are_four_samples_unless_that_costs_much(self) -> None:
        generator = torch.Generator().manual_seed(0)
        for batch, flops, calls in ((1, 0, 4), (3, 0, 2), (64, 0, 1), (1, 4 * 10**9, 2), (1, 10**12, 1)):
            assert len(telling_inputs((batch, 2, 4, 4), generator, flops=flops)) == calls
        symbols = telling_inputs((1, 50), generator, symbols=7)
        assert len(symbols) == 4 and torch.cat(symbols).unique().tolist() == list(range(7))
        assert [x.shape for x in telling_inputs((), generator)] == [()]


class Residual(nn.Module):
    """A branch that training would begin with as if it were not there."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3))
        nn.init.zeros_(self.branch[1].weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class TestWeights:
    def test_a_branch_that_is_switched_off_is_switched_on(self) -> None:
        network, x = Residual().eval(), drawn(2, 3, 8, 8)
        assert torch.equal(network(x), x)
        vary_constants(network, x, seed=0)
        with torch.no_grad():
            share = float((network(x) - x).std() / x.std())
        assert 0.05 < share < 5
        norm = network.branch[1]
        assert all(len(values.unique()) == 3 for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var))

    def test_what_was_trained_stays(self) -> None:
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        network(drawn(4, 3, 8, 8))
        for parameter in network.parameters():
            nn.init.normal_(parameter)
        before = deepcopy(network.state_dict())
        vary_constants(network.eval(), drawn(2, 3, 8, 8), seed=0)
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())

    def test_equal_seeds_make_equal_networks(self) -> None:
        states = []
        for _ in range(2):
            network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
            for parameter in network[0].parameters():
                nn.init.ones_(parameter)
            vary_constants(network.eval(), drawn(2, 3, 8, 8), seed=3)
            states.append(network.state_dict())
        assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@dataclass
class _Outputs:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    name: str = "any"


def test_outputs_may_be_dataclasses_and_mappings() -> None:
    def network(x: torch.Tensor) -> _Outputs:
        return _Outputs(x.relu(), (x.exp(),))

    check = OutputCheck(network, [(torch.randn(4, 8),)])
    assert check.of(network).of_allowed <= 1
    assert check.of(lambda x: {"logits": x.relu(), "hidden": [x.exp()]}).of_allowed <= 1
    assert check.of(lambda x: _Outputs(x.relu(), (x.exp() * 1.01,))).of_allowed > 1
