"""Estimates of how much rounding changes a network's output, and so how much it may differ from double precision.

The network runs in double precision, with a random error after each operation:

>>> weights = torch.ones(100, 100, dtype=torch.float64)
>>> exact = weights @ weights
>>> with SimulatedRounding(2.0**-24, seed=0):
...     rounded = weights @ weights
>>> 1e-8 < float(((rounded - exact) / exact).abs().max()) < 1e-5
True

The size of an error follows from the operation. Elementwise operations err by the unit roundoff u of each value. A sum of K
terms that is taken one after another errs by u * (sqrt(K)/3 * |sum| + 0.41 * sqrt(K) * root of the sum of squares): the partial
sums are those of terms of one sign, or of a random walk. Better orders err less, so the simulated error is rarely too small.

An element may differ from its exact value by `MOST_DEVIATIONS` standard deviations of its rounding error, which grow with the
depth of a network and the length of its sums, and by `SHARE_OF_UNIT` roundoffs of the largest value at most.

Sources: Parker 1997, Monte Carlo arithmetic; Higham and Mary 2019, a new approach to probabilistic rounding error analysis.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

MOST_DEVIATIONS = 16.0  # honest compilers stay below 6, small faults are above 200: docs/measured/check.md
SHARE_OF_UNIT = 2.0**14  # no element may differ by more than this many roundoffs of the largest: 1e-3 in float32
MOST_SHARE = 0.1  # of the largest value, however coarse the numbers are
SMALLEST = 1e-37  # values below may be zero in float32

TF32_UNIT = 2.0**-11
DRAWN = 1_000_003  # random numbers of deviation 1, which are used again: a prime, so that they never fall into step with axes
OF_ONE_SIGN, OF_RANDOM_SIGNS = 1 / 3, sqrt(1 / 6)  # of errors uniform in -u..u: sqrt(1/3) times sqrt(1/3), and times sqrt(1/2)
PRODUCTS = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.addmv, aten.mv, aten.dot)
POOLINGS = (aten.avg_pool2d, aten.avg_pool3d, aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d)
NORMALIZATIONS = (aten.native_batch_norm, aten.native_group_norm, aten.native_layer_norm, aten._softmax, aten._log_softmax)


class SimulatedRounding(TorchDispatchMode):  # type: ignore[misc]  # mypy does not look into torch
    """A context in which PyTorch's operations on tensors in double precision err as with this unit roundoff.

    Args:
        unit: the unit roundoff, such as 2**-24 for single precision.
        seed: of the errors.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return false, for PyTorch: nothing is compiled within, and importing the compiler takes seconds."""
        return False

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__()
        self._unit, self._generator = unit, torch.Generator().manual_seed(seed)
        self._attention = sdpa_kernel(SDPBackend.MATH)  # as products and a softmax, each of which errs

    def __enter__(self) -> SimulatedRounding:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._attention.__exit__(*raised)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do the operation and add errors to its new results. Views of existing tensors get none."""
        returned = function(*args, **(kwargs or {}))
        results = returned if isinstance(returned, tuple | list) else (returned,)
        for result, about in zip(results, function._schema.returns, strict=False):
            is_new = about.alias_info is None or about.alias_info.is_write
            if is_new and isinstance(result, Tensor) and result.dtype == torch.float64:
                self._err(result, _magnitude(function.overloadpacket, args, result))
        return returned

    def _err(self, result: Tensor, magnitude: Tensor) -> None:
        count = result.numel()
        start = int(torch.randint(DRAWN, (), generator=self._generator))
        errors = _random_errors()
        if start + count > DRAWN:
            errors = errors.repeat(-(-(start + count) // DRAWN))
        errors = errors[start : start + count].view(result.shape)
        if not bool(magnitude.sum().isfinite()):  # infinite numbers, as of attention's masks, are exact
            magnitude = magnitude.nan_to_num(nan=0.0, posinf=0.0)
        result.addcmul_(errors, magnitude, value=self._unit)


@functools.cache
def _random_errors() -> Tensor:
    """Return the random numbers that all errors are taken from, each operation's from a place of its own."""
    generator = torch.Generator().manual_seed(0)
    return torch.empty(DRAWN, dtype=torch.float64).uniform_(-sqrt(3), sqrt(3), generator=generator)


def _magnitude(operation: Any, args: Sequence[Any], result: Tensor) -> Tensor:
    """Return the standard deviation of the errors of an operation's result, in units of roundoff."""
    size = result.abs()
    if operation is aten.convolution:
        x, weight, _, *options, groups = args
        if options[3]:  # transposed: the kernel's axes are the other way round, and few networks have one
            return size + root_mean_square(result) * sqrt(weight[:, 0].numel())
        ones = torch.ones(groups, *weight.shape[1:], dtype=x.dtype)
        patches = aten.convolution(x.square(), ones, None, *options, groups).clamp_min_(0).sqrt_()
        lengths = weight.flatten(1).norm(dim=1).view(-1, *(1,) * (result.dim() - 2))
        norms = patches.repeat_interleave(weight.shape[0] // groups, dim=1).mul_(lengths)
        return size.mul_(OF_ONE_SIGN * sqrt(weight[0].numel())).add_(norms, alpha=OF_RANDOM_SIGNS)
    if operation in PRODUCTS:
        left, right = args[-2:]
        inner = left.shape[-1]
        right_norm = right.norm(dim=-2, keepdim=True) if right.dim() > 1 else right.norm()
        norms = left.norm(dim=-1, keepdim=right.dim() > 1) * right_norm
        return size.mul_(OF_ONE_SIGN * sqrt(inner)) + OF_RANDOM_SIGNS * norms
    if operation in (aten.sum, aten.mean, *POOLINGS):
        terms = args[0].numel() / max(result.numel(), 1)
        of_squares = operation(args[0].square(), *args[1:]).clamp_min_(0).sqrt_()
        random = sqrt(terms) if operation is aten.sum else 1.0  # a mean is divided by their number
        return size.mul_(1 + OF_ONE_SIGN * sqrt(terms)).add_(of_squares, alpha=OF_RANDOM_SIGNS * random)
    if operation in NORMALIZATIONS:  # of sums over an axis, and subtracted from each other
        return size.mul_(1 + OF_ONE_SIGN * sqrt(result.shape[-1])) + root_mean_square(result)
    return size


def unit_roundoff(module: nn.Module, *, tf32: bool = False) -> float:
    """Return the largest relative error of rounding one number in the coarsest of the module's types, float32 at least.

    Args:
        module: its parameters and buffers have the types.
        tf32: whether products are rounded to 10 bits of mantissa.
    """
    coarsest = getattr(torch, coarsest_type(module))
    return max(float(torch.finfo(coarsest).eps) / 2, TF32_UNIT if tf32 else 0.0)


def coarsest_type(module: nn.Module) -> str:
    """Return the name of the coarsest type of a module's parameters and buffers, float32 at least."""
    kinds = {tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()}
    return str(max((torch.float32, *kinds), key=lambda kind: float(torch.finfo(kind).eps))).removeprefix("torch.")


# ---- what elements of an output may differ by ----------------------------------------------------------------------------


def allowed_by_tolerance(exact: Tensor, tolerance: float) -> Tensor:
    """Return a share of the largest value, one number for all elements."""
    return torch.tensor(max(tolerance * _largest(exact), SMALLEST), dtype=torch.float64)


def allowed_by_rounding(exact: Tensor, squared_errors: Tensor, unit: float, by_real_run: float = 0.0) -> Tensor:
    """Return by how much each element may differ, where simulated rounding made errors of these squares.

    It is at most a share of the largest value, or what a real run makes plausible (`by_real_run`) if that is more: a simulation
    exaggerates where large numbers cancel that have no rounding errors.

    An element's standard deviation is the largest root mean square of the errors along any one of its axes, of all errors, and
    of its own: one error by itself may be small by chance, and errors may be large in a part of the output only.
    """
    variance = squared_errors.clamp(min=float(squared_errors.mean()) if squared_errors.numel() else 0.0)
    for axis in range(squared_errors.dim()):
        variance = torch.maximum(variance, squared_errors.mean(axis, keepdim=True))
    return _bounded(variance.sqrt_().mul_(MOST_DEVIATIONS), exact, unit, by_real_run)


def allowed_by_ratio(exact: Tensor, rounding: float, unit: float) -> Tensor:
    """Return by how much each element may differ, where errors are this share of it or of the root mean square if larger."""
    size = exact.abs().nan_to_num_(nan=0.0, posinf=0.0)
    return _bounded(size.clamp_(min=root_mean_square(exact)).mul_(MOST_DEVIATIONS * rounding), exact, unit)


def largest_error(found: Tensor, exact: Tensor) -> float:
    """Return the largest difference of two elements that are finite; 0 if there are none, or the shapes differ."""
    if found.shape != exact.shape:
        return 0.0
    return _largest((found - exact).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0))


def _bounded(allowed: Tensor, exact: Tensor, unit: float, by_real_run: float = 0.0) -> Tensor:
    largest = _largest(exact)
    most = min(max(SHARE_OF_UNIT * unit * largest, by_real_run), MOST_SHARE * largest)
    return allowed.clamp_(max=most).clamp_(min=SMALLEST)


def _largest(exact: Tensor) -> float:
    return float(exact.abs().nan_to_num_(nan=0.0, posinf=0.0).max()) if exact.numel() else 0.0


def root_mean_square(tensor: Tensor) -> float:
    """Return the root mean square of the finite numbers; 0 if there are none."""
    finite = tensor if bool(tensor.isfinite().all()) else tensor[tensor.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
