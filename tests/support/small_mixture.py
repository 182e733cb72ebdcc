"""Made-up own measurements, as joined results hold them beside an import: a table of measurements and loss curves."""

from __future__ import annotations

from typing import Any

import pandas

from syno.run.measurement import Measurement
from syno.run.table import measurement_table

DEVICE = "Intel(R) Xeon(R) Processor"
SMALL = "resnet18@0.125"
FAILED = "no schedule was found"


def joined(published: pandas.DataFrame, own: pandas.DataFrame) -> pandas.DataFrame:
    """The table of joined results: of an import, and own rows with the columns `experiment` and `data_role`."""
    roles = published["data"].map({"cifar100": "proxy", "imagenet": "final"})
    names = published["origin"].map({"paper": "paper"}).fillna("published")
    return pandas.concat([published.assign(data_role=roles, experiment=names), own], ignore_index=True)


def own_rows() -> pandas.DataFrame:
    """Two networks with three compilers on one CPU, one of which is trained here, too, on data sets of this project."""
    rows = [
        # latencies of a published network, whose accuracies are the artifact's
        *latencies("latencies", "final", "resnet18", {"original": 40.0, "operator_1": 20.0, "good_baseline": 30.0}),
        *latencies("latencies", "final", "resnet18", {"original": 36.0, "operator_1": 24.0}, "inductor-max-autotune"),
        *latencies("latencies", "final", "resnet18", {"original": 25.0}, "inductor-int8"),
        *latencies("latencies", "final", "resnet18", {"original": 90.0, "operator_1": None}, "tvm"),
        # a search, and training and latencies of what it found on the final data
        *accuracies("small", "proxy", SMALL, {"original": (0.90, 0.92), "found_1": (0.905, 0.907), "found_2": (0.70, 0.71)}),
        *accuracies("large", "final", SMALL, {"original": (0.80,), "found_1": (0.795,), "good_baseline": (0.78,)}),
        *latencies("large", "final", SMALL, {"original": 4.0, "found_1": 2.0, "found_2": 1.0, "good_baseline": 3.0}),
        *latencies("small", "proxy", SMALL, {"original": 1.0, "found_1": 1.0}),  # smaller pictures: no bar
    ]
    return pandas.concat([one(*row) for row in rows], ignore_index=True)


def one(experiment: str, data_role: str | None, measurement: Measurement) -> pandas.DataFrame:
    """A row of joined results."""
    return measurement_table([measurement]).assign(experiment=experiment, data_role=data_role)


def measured(metric: Any, value: float | None, operator: str, **fields: Any) -> Measurement:
    """A number measured here."""
    roles = {"original": "original", "good": "baseline", "pruned": "rival"}
    role = roles.get(operator.partition("_")[0], "found")
    failed = {} if value is not None else {"status": "failed", "reason": FAILED}
    return Measurement.of(
        metric, value, operator=operator, key=operator, role=role, origin="measured", source="x.json", **failed, **fields
    )


def latencies(
    experiment: str, role: str | None, model: str, values: dict[str, float | None], compiler: str = "inductor", **fields: Any
) -> list[tuple[str, str | None, Measurement]]:
    """Latencies of a network on one device."""
    place = {"device": DEVICE, "device_setting": "cpu", "compiler": compiler, "batch": 1, "threads": 2}
    return [
        (experiment, role, measured("latency", value, name, model=model, **{**place, **fields}))
        for name, value in values.items()
    ]


def accuracies(
    experiment: str, role: str | None, model: str, values: dict[str, tuple[float, ...]], data: str = "glyphs"
) -> list[tuple[str, str | None, Measurement]]:
    """Accuracies of a network, with a seed for each."""
    return [
        (experiment, role, measured("accuracy", value, name, model=model, data=data, seed=seed))
        for name, several in values.items()
        for seed, value in enumerate(several, 1)
    ]


def own_losses(steps: int = 10) -> pandas.DataFrame:
    """Loss curves of GPT-2 as it is, two seeds, and with an operator, one seed."""
    rows = [
        {
            "step": 10 * step, "minutes": step / 2, "loss": 4.0 + 2.0 / step + 0.02 * seed - below, "operator": operator,
            "model": "gpt2", "data": "pydoc", "seed": seed, "origin": "measured", "experiment": "gpt2",
        }
        for operator, seeds, below in (("original", (1, 2), 0.0), ("found_3", (1,), 0.5))
        for seed in seeds
        for step in range(1, steps + 1)
    ]  # fmt: skip
    return pandas.DataFrame(rows)
