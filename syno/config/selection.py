"""The check of `select`: which selections the other settings of an experiment allow."""

from __future__ import annotations

from syno.base.errors import SpecError
from syno.config.stages import SelectSettings, TrainSettings, TuneSettings
from syno.train.settings import WorkloadSettings


def check_selection(
    select: SelectSettings, train: TrainSettings, tune: TuneSettings, workload: WorkloadSettings | None, evaluation: str
) -> None:
    """Raise SpecError if the other settings of an experiment do not allow its selection."""
    if select.by == "latency" and (workload is None or not tune.pairs):
        lacking = "a workload" if workload is None else "compilers and devices to measure with (tune: compilers)"
        raise SpecError(f"select: by: latency needs {lacking}; give them, or select by pareto or reward")
    if select.within is None or select.source is not None:
        return
    if workload is None or evaluation != "training":
        raise SpecError(
            "select: within compares trials with the original network, so that trials must be trainings of a workload; leave "
            "it out, or give least_accuracy or most_loss"
        )
    if not train.seeds:
        raise SpecError("select: within compares trials with the trained original network; give train: seeds, or leave it out")
    training = train.training
    if training is not None and training != workload.training:
        raise SpecError(
            "select: within compares trials with the original network, which train: training would train in another way than "
            "the search trains operators; leave one of the two out, or train again in another experiment (select: source)"
        )
