"""Choice of a plan: the one with the fewest FLOPs, or the one that runs fastest on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syno.algebra import Valuation
from syno.base.registry import Registry
from syno.ir.graph import PGraph
from syno.lower.plan import Plan, candidates, fewest_flops

CHOICES: Registry[Callable[[list[Plan], str, float], Plan]] = Registry("way to choose a plan")


@dataclass(frozen=True)
class TimedPlan:
    """A plan and the forward latency of its fused module at the first of its valuations, in milliseconds."""

    plan: Plan
    latency_ms: float


def plan(
    graph: PGraph,
    values: Mapping[str, int],
    *,
    inference: bool = False,
    choose: str = "flops",
    device: str = "cpu",
    seconds: float = 0.5,
) -> Plan:
    """Return the best plan of an operator: the order of its contractions, as stages with their costs.

    >>> import syno
    >>> print(syno.plan(syno.OPERATORS["low_rank_conv1x1"](), {"N": 1, "C_in": 64, "C_out": 64, "H": 8}))
    stage  weights  sums             FLOPs  memory/MiB  result
        1  w2       r0              32,768        0.02  [1, 8, 8, 8]
        2  w1       r1              32,768        0.02  [1, 64, 8, 8]
    total                           65,536        0.02  (r=8, N=1, C_in=64, C_out=64, H=8)

    Args:
        graph: the operator.
        values: values of its variables; those with defaults may be left out.
        inference: whether weights are constants, so that plans that contract two weights with each other are candidates, too.
        choose: "flops" for the plan with the fewest FLOPs, "measure" for the plan that runs fastest on `device`.
        device: the device of the measurements.
        seconds: duration of the measurement of each candidate.

    Raises:
        UnknownNameError: `choose` has another value. Other errors as in `candidates`.
    """
    return CHOICES[choose](candidates(graph, values, inference=inference), device, seconds)


@CHOICES.register("flops")
def _by_flops(plans: list[Plan], device: str, seconds: float) -> Plan:
    return fewest_flops(plans)


@CHOICES.register("measure")
def _by_measuring(plans: list[Plan], device: str, seconds: float) -> Plan:
    return measure(plans, device=device, seconds=seconds)[0].plan


def measure(plans: list[Plan], *, device: str = "cpu", seconds: float = 0.5) -> list[TimedPlan]:
    """Time the fused module of each plan on random data, without gradients, and return the plans, the fastest first.

    Each plan is timed for about `seconds` after a warm-up, with torch's number of threads. Latencies are medians.
    """
    return sorted((TimedPlan(plan, _latency_ms(plan, device, seconds)) for plan in plans), key=lambda row: row.latency_ms)


def _latency_ms(plan: Plan, device: str, seconds: float) -> float:
    import torch  # imported here, so that planning by FLOPs needs no torch
    from torch.utils.benchmark import Timer

    from syno.lower.pytorch.source import constructor_sizes, load_class, to_source

    valuation: Valuation = plan.valuations[0]
    sizes = constructor_sizes(plan.graph, valuation)
    options = {"seed": 0, "device": device} if plan.graph.weights else {}
    module = load_class(to_source(plan.graph, valuation, plan=plan), plan.graph)(**sizes, **options)
    if plan.composition is not None:
        module.freeze()
    x = torch.randn([valuation.integer(dim.size) for dim in plan.graph.input], device=device)
    timer = Timer("module(x)", globals={"module": module, "x": x}, num_threads=torch.get_num_threads())
    with torch.no_grad():
        return 1e3 * float(timer.blocked_autorange(min_run_time=seconds).median)
