"""The assumptions from which the hours and the storage of a plan follow."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from syno.base.validation import Settings

Above = Annotated[float, Field(gt=0)]
# The paper gives both, about: GPU hours of a sampled operator, and of the search of a model. Together they are 3,000 trials.
TRIAL_HOURS, SEARCH_HOURS = 0.1, 300


class Assumptions(Settings):
    """The assumptions of a plan. The defaults are round figures for the paper's networks on an A100."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    pictures_per_second: Above = 550
    """pictures per second in training on one GPU, in float32 or TF32: 100 epochs of CIFAR-100 in 2.5 hours (paper: 2 to 3)"""
    mixed_precision: Above = 2.5
    """how many times as fast a GPU trains in 16 bits"""
    steps_per_second: Above = 3.3
    """steps per second in training a language model on one GPU: GPT-2's published log has 99,859 steps in 8.3 hours"""
    trial_hours: Above = TRIAL_HOURS
    """GPU hours of a trial on average, if bad ones are stopped early, and at most those of a whole training: the paper's 0.1"""
    search_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """fraction of a training that such a trial takes; by default it follows from trial_hours"""
    kernels: Above = 25
    """kernels of one network that TVM tunes"""
    layers: Above = 10
    """layers of different sizes of one network, where layers are measured by themselves: ResNet-34 has ten"""
    layer_kernels: Above = 2
    """kernels of one layer that TVM tunes"""
    schedules_per_second: Above = 1
    """schedules per second that TVM builds and measures"""
    compile_minutes: Above = 5
    """minutes for one measurement with another compiler, or of the speed of training"""
    trial_kib: Above = 10
    """KiB of a trial: in the study, the table of trials and the operator store"""
    record_kib: Above = 8
    """KiB of the record of a training or measurement, and of other small files"""
    page_kib: Above = 1000
    """KiB of a report, and of a figure in its three formats"""
    schedule_kib: Above = 8
    """KiB of a schedule among TVM's trials"""
    built_mib: Above = 100
    """MiB of a network that TVM has built"""
