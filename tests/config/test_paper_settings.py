"""Every setting of the paper's experiments, with its source: no changed default changes an experiment of config/paper.yaml.

An experiment resolves to these values, no more and no fewer: a new option is here, too, with why the paper's experiments have
that value. The sources: `paper`, its text; `script`, the settings with which the authors' program was started for its data;
`program`, its defaults and class constants; `data`, what its results show; `here`, what is ours, with the reason.

What results depend on is in the file itself, or in a recipe, a curve or a preset that it names, which are complete. `DEFAULTS`
lists the rest, and says why a default may decide there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syno.base.errors import SpecError
from syno.base.validation import read_mapping
from syno.config import Experiment, load_experiments
from syno.config.specs import merged
from syno.data.settings import DATA_SETTINGS, AugmentationSettings, PictureSettings
from syno.data.settings import RECIPES as AUGMENTATIONS
from syno.paper.numbers import A100, MOBILE_CPU, MOBILE_GPU
from syno.search.policies.mcts import PRESETS, MctsSettings
from syno.space.options import OptionGroup
from syno.space.spec import OperatorSpec
from syno.train.settings import MILESTONES, RECIPES, TrainingSettings

CONFIG = Path(__file__).parents[2] / "config"
FILE = read_mapping(CONFIG / "paper.yaml", "an experiment", Experiment)
EXPERIMENTS = load_experiments(CONFIG / "paper.yaml")
WITH_NETWORK = [
    name for name, experiment in EXPERIMENTS.items() if isinstance(experiment, Experiment) and experiment.workload is not None
]
SEARCHES = [name for name, experiment in EXPERIMENTS.items() if experiment.searches]
OF_NETWORK = ("name", "input", "output", "layers", "bound_axes", "causal", "budget")  # of a spec: test_paper_config.py
# Nothing that is found, trained or timed depends on these; rivals need a goal, which the paper has not.
OF_NONE = ("name", "output", "ablations", "artifact", "join", "code", "rivals", "mixtures")
OF_SEARCHES = ("policy", "spec", "relative_budget", "evaluate", "reward", "study", "goal", "warm_start", "original")


class Of(NamedTuple):
    """A value, its source, and other values, by patterns of the experiments' names."""

    value: Any
    source: str
    others: Mapping[str, Any] = {}

    def of(self, name: str) -> Any:
        """The value in an experiment."""
        return next((other for pattern, other in self.others.items() if fnmatch(name, pattern)), self.value)


RESNEXT, EFFICIENT, FINAL, GPT2 = "resnext29_2x64d", "efficientnet_v2_s", "imagenet-*", "gpt2*"
SEARCHED = ("resnet18", "densenet121", RESNEXT, EFFICIENT)
PROCESSES = "here: how the work is divided among processes, which changes no value"
NONE = "here: beyond the paper, so off"

# fmt: off
TABLE: Mapping[str, Of] = {
    # ---- the policy: MCTS in the paper; its constants are in the program alone
    "policy.name": Of("mcts", "paper; script: algorithm MCTS"),
    "policy.exploration": Of(4 * math.sqrt(2), "program: class constant c"),
    "policy.virtual_loss": Of(0.3, "program: class constant"),
    "policy.widening": Of(0.8, "program: class constant b"),
    "policy.local_rave": Of(3.0, "program: class constant c_l"),
    "policy.reveal_noise": Of(0.3, "program: class constant rho"),
    "policy.suppress_visits": Of(30, "program: the score of a child, n > 30"),
    "policy.suppress_deviation": Of(0.001, "program: the score of a child, sigma <= 0.001"),
    "policy.failure_reward": Of(None, "program: a negative reward marks the operator as dead, and is not propagated"),
    "policy.share_values": Of(False, "program: update-descent, statistics of the path that was taken"),
    # ---- the space
    "spec.variables": Of("N:0, C_in:2, C_out:4, H:0; k_1=3:2, k_2=7:2, s=2:2, g=32:3", "script",
                         {"gpt2": "N:0, seq_len:0, H_in:4; k_1=2:3, k_2=5:2, t=3:3, g=32:3"}),
    "spec.depth": Of(12, "script", {"gpt2": 7}),
    "spec.finalizations": Of(2, "script"),
    "spec.occurrences.reductions": Of(5, "script"),
    "spec.occurrences.tensors": Of(3, "script"),
    "spec.occurrences.shares": Of(None, "program: no limit"),
    "spec.occurrences.merges": Of(1, "script", {RESNEXT: 2, "gpt2": 2}),
    "spec.occurrences.splits": Of(3, "script", {"gpt2": 2}),
    "spec.occurrences.shifts": Of(2, "script"),
    "spec.occurrences.strides": Of(0, "script"),
    "spec.occurrences.unfolds": Of(None, "program: no limit"),
    "spec.occurrences.expands": Of(None, "program: no limit"),
    "spec.occurrences.chain_length": Of(6, "script", {"gpt2": 5}),
    "spec.sizes.enumerations_per_variable": Of(5, "program"),
    "spec.sizes.variables": Of(3, "program"),
    "spec.sizes.powers": Of(16, "program"),
    "spec.sizes.exact_division": Of(True, "program"),
    "spec.sizes.count_coefficients_in_weights": Of(False, "program"),
    "spec.sizes.count_merges": Of(True, "here: a mended bug; the program means to count them, and does not"),
    "spec.sizes.drop_ones": Of(True, "here: a mended bug; the program searches loops of length 1"),
    "spec.reductions.multiple": Of(4.0, "script"),
    "spec.reductions.largest_pooling": Of(8.0, "program"),
    "spec.windows.odd": Of(True, "program"),
    "spec.windows.largest": Of(30, "program"),
    "spec.windows.least_ratio": Of(2.3, "script"),
    "spec.windows.largest_strided": Of(30, "program"),
    "spec.windows.shift_pattern": Of(2.0, "script"),
    "spec.contractions.least_elements": Of(100, "script", {"gpt2": 100_000}),
    "spec.contractions.largest_outer": Of(2048, "script",
                                          {"densenet121": 5120, RESNEXT: 4096, EFFICIENT: 6144, "gpt2": 6144}),
    "spec.contractions.least_low_rank": Of(8, "script"),
    "spec.contractions.most_low_rank": Of(8, "script", {EFFICIENT: 24}),
    "spec.repeats.largest": Of(1, "script", {"gpt2": 5}),
    "spec.repeats.tile": Of(False, "script", {"gpt2": True}),
    "spec.rules_off": Of([], "paper, section 5.3: all canonicalization rules"),
    "spec.rules_on": Of([], "paper, section 5.3: no others"),
    "spec.distance": Of("exact", "here: a mended bug; the program's distance loses operators that are within the depth"),
    "spec.reads": Of("none", "program: it asks nothing of what operators read"),
    "relative_budget.least_flops": Of(0.15, "script", {EFFICIENT: 0.5, "gpt2": 0.1}),
    "relative_budget.most_flops": Of(0.9, "script", {"densenet121": 1.0, RESNEXT: 0.95, "gpt2": 1.2}),
    "relative_budget.least_parameters": Of(0.0, "program: no limit"),
    "relative_budget.most_parameters": Of(None, "program: no limit"),
    # ---- the network and its data
    "workload.model": Of("resnet18", "paper; script", {
        "*resnet34": "resnet34", "*densenet121": "densenet121", f"*{EFFICIENT}": EFFICIENT, GPT2: "gpt2",
        RESNEXT: f"{RESNEXT}_1000", f"imagenet-{RESNEXT}": RESNEXT}),  # searched with a head for 1000 classes
    "workload.width": Of(1.0, "paper: the networks as they are"),
    "workload.layers": Of("paper", "program; data: 58, 10, 10 and 12 layers", {"resnet18": "paper-3x3"}),  # data: 16 layers
    "workload.data": Of("cifar100", "paper", {FINAL: "imagenet", GPT2: "lm1b", "layers-*": "shapes"}),
    "workload.seed": Of(0, "here: runs can be repeated; the program draws its seeds"),
    # ---- the training: paper, and the recipes in the program
    "workload.training.recipe": Of("paper-cifar", "here: the name of what follows", {
        FINAL: "paper-imagenet", GPT2: "paper-gpt2"}),
    "workload.training.device": Of("cuda", "paper"),
    "workload.training.epochs": Of(100, "paper; program", {FINAL: 90, GPT2: 1}),
    "workload.training.most_steps": Of(None, "program: by epochs; GPT-2 of 100,000 sequences", {GPT2: 100_000}),
    "workload.training.most_minutes": Of(None, "paper: half an hour for GPT-2 in the search", {"gpt2": 30.0}),
    "workload.training.most_epoch_seconds": Of(None, "here: the program's 60 s make results depend on the machine's speed"),
    "workload.training.round_steps": Of(None, "here: how often GPT-2 is tested, for milestones", {GPT2: 1000}),
    "workload.training.most_tests": Of(None, "here: how much GPT-2 is tested on, for milestones", {GPT2: 100}),
    "workload.training.batch": Of(128, "program", {FINAL: 1024, GPT2: 1}),
    "workload.training.optimizer": Of("sgd", "program", {GPT2: "adamw"}),
    "workload.training.learning_rate": Of(0.1, "program", {FINAL: 0.5, GPT2: 3e-4}),
    "workload.training.schedule": Of("cosine-by-epoch", "program", {FINAL: "triangle", GPT2: "constant"}),
    "workload.training.final_learning_rate": Of(1e-5, "program", {FINAL: 0.0, GPT2: 0.0}),
    "workload.training.peak_epoch": Of(2.0, "program: linear up to epoch 2, on ImageNet; not used by the other schedules"),
    "workload.training.momentum": Of(0.9, "program"),
    "workload.training.betas": Of([0.9, 0.95], "program, of GPT-2"),
    "workload.training.weight_decay": Of(1e-3, "program", {FINAL: 5e-5, GPT2: 0.1}),
    "workload.training.decay": Of("matrices", "program: not on biases and vectors"),
    "workload.training.label_smoothing": Of(0.0, "program", {FINAL: 0.1}),
    "workload.training.clip": Of(5.0, "program", {FINAL: 1.0, GPT2: 1.0}),
    "workload.training.initialization": Of("paper", "program: truncated normal, 0.1; on ImageNet N(0, 1); GPT-2: ours",
                                           {FINAL: "normal", GPT2: "fan-in"}),
    "workload.training.score": Of("best", "program: best epoch; ImageNet: the last; GPT-2: the last 20 % of the losses",
                                  {FINAL: "last", GPT2: "tail"}),
    "workload.training.flip_tests": Of(False, "program: on ImageNet only", {FINAL: True}),
    # The paper, says FP32 for training and inference.
    "workload.training.precision": Of("float32", "program; ImageNet under autocast, not FP32", {FINAL: "float16"}),
    "workload.training.tf32": Of(True, "program, where the paper has FP32"),
    "workload.training.compile": Of(True, "program: each kernel; it changes speed alone", {FINAL: False, GPT2: False}),
    "workload.training.channels_last": Of(True, "here: a memory format, equal up to rounding"),
    "workload.training.threads": Of(1, "here: of a processor"),
    # ---- the reward
    "evaluate": Of("training", "paper: operators are trained"),
    "reward.name": Of("accuracy", "script: target accuracy, and loss", {"gpt2": "loss"}),
    "reward.power": Of(4, "script"),
    # ---- the study and the selection
    "study.n_trials": Of(3000, "paper: about 300 GPU hours of about 0.1 for a trial"),
    "study.seed": Of(0, "here: runs can be repeated; the program draws its seed"),
    "study.storage": Of("journal", PROCESSES),
    "study.workers": Of(8, PROCESSES),
    "study.most_attempts": Of(3, PROCESSES),
    "study.heartbeat_seconds": Of(60.0, PROCESSES),
    "study.grace_seconds": Of(180.0, PROCESSES),
    "study.stopping": Of(None, NONE),
    "study.check_gradients": Of(False, NONE),
    "select.by": Of("pareto", "paper: the front of accuracy and FLOPs; Figure 6: and latency", {FINAL: "front"}),
    "select.count": Of(20, "here: how many are trained again; paper, Figure 6: at most 12 of a network",
                       {FINAL: 12, "gpt2": 5, "gpt2-final": 1}),
    "select.least_accuracy": Of(0.0, "here: the front decides alone"),
    "select.most_loss": Of(None, NONE),
    "select.within": Of(None, "paper, Figure 6: operators that lose up to 0.016 on CIFAR-100", {FINAL: 0.016}),
    "select.shortlist": Of(10, "here: all that are trained again; not used by the other selections", {FINAL: 20}),
    "select.source": Of(None, "paper: ResNet-34 has ResNet-18's operators; trained and timed where they were found", {
        "gpt2-final": "results/paper/gpt2", "resnet34": "results/paper/resnet18",
        **{f"imagenet-{name}": f"results/paper/{name}" for name in (*SEARCHED, "resnet34")}}),
    "select.operators": Of(None, "paper, Figure 9", {
        "layers-*": [{"operator": "operator_1", "rename": {}}, {"operator": "operator_2", "rename": {}}]}),
    "train.seeds": Of([1, 2, 3], "here: trained again with other seeds than the search's",
                      {FINAL: [1], "gpt2-final": [1], "layers-*": []}),
    "train.weights": Of("all", "here: which files are kept"),
    "train.int8": Of(False, "paper: of ResNet-18 on ImageNet only", {"imagenet-resnet18": True}),
    "train.baselines": Of(None, "paper, Figures 8 and 9: the case study, and the sequences of NAS-PTE", {
        "imagenet-resnet18": [{"operator": name, "rename": {}} for name in ("stacked_convolution", "operator_1", "operator_2")],
        "layers-*": [{"operator": f"nas_pte_{number}", "rename": {}} for number in (1, 2, 3)]}),
} | dict.fromkeys(("goal", "warm_start", "original", "after", "workload.placed", "train.training"), Of(None, NONE))
# Of one kind of search alone.
OF_PICTURES = {
    "reward.low": Of(0.4, "script", {"densenet121": 0.3, RESNEXT: 0.2, EFFICIENT: 0.3}),
    "reward.high": Of(0.7, "script"),
    "data.recipe": Of("paper", "here: the name of what follows"),
    "data.augmentation.pad": Of(2, "program"),
    "data.augmentation.flip": Of(True, "program"),
    "data.augmentation.cutout": Of(3, "program"),
    "data.augmentation.size": Of(224, "program"),
}
OF_TEXT = {
    "reward.maximum": Of(6.9, "script"),
    "data.tokenizer": Of("data/gpt2", "program: GPT-2's"),
    "data.vocabulary": Of(50257, "program: GPT-2's"),
    "data.most_train_tokens": Of(205_000_000, "program: 100,000 sequences"),
    "data.length": Of(2048, "paper; program"),
}
OF_IMAGENET = {
    "data.reader": Of("ffcv", "program"),
    "data.size": Of(224, "program"),
    "data.least_area": Of(0.08, "program: random resized crops"),
    "data.test_ratio": Of(0.875, "program: 224 of 256 pixels"),
    "data.workers": Of(4, PROCESSES),
    "workload.training.micro_batch": Of("auto", "here: three of the five networks do not fit; BatchNorm sees parts of a batch"),
}
OF_SHAPES = {
    "data.classes": Of(1000, "paper, Figure 9: layers of the network for ImageNet"),
    "data.size": Of(224, "paper, Figure 9: layers of the network for ImageNet"),
    "data.channels": Of(3, "paper, Figure 9: layers of the network for ImageNet"),
}
GPU_COMPILERS = ["inductor", "inductor-max-autotune", "tvm"]
JETSON = {
    "jetson-cpu": [GPU_COMPILERS, {"kind": "ssh", "device": "cpu", "tvm": {"kind": "cpu", "target": "jetson-orin-nano-cpu"}}],
    "jetson-gpu": [GPU_COMPILERS, {"kind": "ssh", "device": "cuda", "tvm": {"kind": "cuda", "target": "jetson-orin-nano-gpu"}}],
}
TIMING = "here: how long is timed; docs/evaluation.md has the errors that are left"
OF_TUNING = {
    "tune.compilers": Of(["inductor", "inductor-max-autotune", "tvm"], "paper: TorchInductor with max-autotune, and TVM",
                         {"gpt2-final": ["eager", "inductor"]}),
    "tune.original_compilers": Of(None, "paper, Figure 8: INT8", {"imagenet-resnet18": ["inductor-int8"]}),
    "tune.devices": Of(["cpu", "cuda", "jetson-cpu", "jetson-gpu"], "paper: A100 and Jetson; here: the processor",
                       {"gpt2-final": ["cuda"]}),
    "tune.remote_devices": Of(JETSON, "paper: a Jetson Orin Nano", {"gpt2-final": {}}),
    "tune.baselines": Of(True, "paper, Figures 8 and 9"),
    "tune.stands_for": Of(dict(zip(("cuda", "jetson-cpu", "jetson-gpu"), (A100, MOBILE_CPU, MOBILE_GPU), strict=True)),
                          "paper: its devices", {"gpt2-final": None}),
    "tune.layers": Of(False, "paper, Figure 9: of ResNet-34", {"layers-*": "only"}),
    "tune.breakdown": Of(False, NONE),
    "tune.training": Of(False, "paper: of GPT-2", {"gpt2-final": True}),
    "tune.latency.batch": Of(1, "paper; data"),
    "tune.latency.threads": Of(1, "here: latencies of a processor do not depend on its number of cores"),
    "tune.latency.tf32": Of(False, "paper: FP32"),
    "tune.latency.tolerance": Of(None, "here: outputs are checked as strictly as rounding allows"),
    "tune.latency.warm_up_ms": Of(100.0, TIMING),
    "tune.latency.least_repeats": Of(20, TIMING),
    "tune.latency.most_repeats": Of(1000, TIMING),
    "tune.latency.least_ms": Of(500.0, TIMING),
    "tune.tvm.target": Of(None, "here: that of each device"),
    "tune.tvm.trials_per_task": Of(500, "here: hundreds for a fair figure; the paper gives 700 hours for a device"),
    "tune.tvm.trials_per_iteration": Of(16, "here: how the search of schedules is divided"),
    "tune.tvm.cost_model": Of("xgb", "program: TVM's default"),
    "tune.tvm.seed": Of(0, "here: of the search for schedules"),
    "tune.tvm.builders": Of(1, PROCESSES),
    "tune.tvm.build_seconds": Of(60.0, PROCESSES),
    "tune.tvm.run_seconds": Of(30.0, PROCESSES),
    "tune.tvm.least_ms": Of(50, TIMING),
    "tune.tvm.share": Of(0.75, PROCESSES),
    "tune.speed.steps": Of(20, TIMING),
    "tune.speed.turns": Of(11, TIMING),
    "tune.speed.batch": Of(None, "here: as in the training"),
    "tune.time_limit_seconds": Of(86400.0, "here: 500 schedules for each of dozens of kernels", {"gpt2-final": 600.0}),
    "tune.memory_limit_mib": Of(None, PROCESSES),
}
# What the file leaves to the defaults, and why they may decide: none of these changes what is found, or what a number means.
DEFAULTS: Mapping[str, str] = {
    **dict.fromkeys(("goal", "warm_start", "original", "after", "workload.placed"), "parts of experiments that these have not"),
    **dict.fromkeys(("study.most_attempts", "study.*_seconds", "data.workers", "train.weights"), PROCESSES),
    **dict.fromkeys(("select.source", "select.operators"), "an experiment without them searches, or takes no others"),
    "select.shortlist": "of a selection by latency, and those give it",
    "tune.remote_devices": "an experiment without them has no such device",
    "tune.stands_for": "names beside which figures put the numbers",
    **dict.fromkeys(("tune.breakdown", "tune.training"), "more measurements, which change no other"),
    **dict.fromkeys(("tune.latency.*_ms", "tune.latency.*_repeats", "tune.tvm.least_ms", "tune.speed.*"), TIMING),
    **dict.fromkeys(("tune.*_seconds", "tune.tvm.builders", "tune.tvm.share", "tune.memory_limit_mib"), "limits and processes"),
}
FILES = ("data.folder", "data.download", "data.repository", "data.prepared")  # where the data lies
# The program has these files; its search ran without them. Of GPT-2 it has the first alone; docs/training.md has the others.
CURVES: Mapping[str, Mapping[int, float]] = {
    "resnet18": {1: 0.1, 2: 0.1, 3: 0.2, 5: 0.25, 10: 0.3, 30: 0.5, 60: 0.6},
    "densenet121": {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.35, 5: 0.4, 8: 0.45, 15: 0.5, 30: 0.55, 45: 0.6},
    RESNEXT: {1: 0.08, 2: 0.16, 3: 0.2, 4: 0.24, 5: 0.28, 10: 0.35, 15: 0.4, 20: 0.45},
    EFFICIENT: {1: 0.05, 2: 0.1, 3: 0.2, 6: 0.3, 10: 0.4, 15: 0.45},
    "gpt2": {1: 6.9, 2: 6.4, 3: 6.3, 4: 6.25, 5: 6.2, 6: 6.15},
}
# fmt: on


def test_what_is_done_otherwise_is_in_the_table_of_deviations() -> None:
    page = (CONFIG.parent / "docs" / "deviations.md").read_text(encoding="utf-8")
    otherwise = (
        "mended bug",
        "FP32",
        "program draws",
        "the program's 60 s",
        "GPU hours",
        "Figure 6",
        "GPT-2: ours",
        "hundreds",
    )
    settings = [
        name.rpartition(".")[2]
        for name, one in {**TABLE, **OF_TUNING}.items()
        if any(text in one.source for text in otherwise) and name not in ("tune.latency.tf32", "select.by")
    ]
    assert len(settings) > 10 and [name for name in settings if name not in page] == []


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values in groups of settings, by their names with dots."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from flat(one, f"{name}.{key}" if name else str(key))
    else:
        yield name, None if value in ([], {}) and not name.startswith(("spec.", "train.seeds")) else value


def resolved(experiment: Experiment) -> dict[str, Any]:
    """All settings of an experiment, with the defaults of its groups, and of its policy, spec and data."""
    whole = experiment.model_dump(mode="json")
    assert isinstance(experiment.spec, Mapping) and experiment.workload is not None
    spec = {}
    for name, field in OperatorSpec.model_fields.items():
        given = experiment.spec.get(name, {} if isinstance(field.default, OptionGroup) else field.default)
        spec[name] = type(field.default)(**given).model_dump() if isinstance(field.default, OptionGroup) else given
    data = DATA_SETTINGS[experiment.workload.data].of(**experiment.workload.data_settings)
    more = {"augmentation": data.augmented.model_dump()} if isinstance(data, PictureSettings) else {}
    remote = {
        name: [list(getattr(device, "compilers", None) or ()), experiment.tune.made_for(name)]
        for name, device in experiment.tune.remote_devices.items()
    }
    whole |= {
        "spec": {
            name: list(value) if isinstance(value, tuple) else value for name, value in spec.items() if name not in OF_NETWORK
        },
        "data": data.model_dump(mode="json") | more,
        "policy": {"name": experiment.policy["name"], **experiment.policy_settings.model_dump()},
        "reward": experiment.make_reward().settings(),
        "workload": {"placed": None, **whole["workload"]},
        "tune": {name: value for name, value in whole["tune"].items() if name not in ("remote_devices", "stands_for")},
    }
    del whole["workload"]["milestones"], whole["workload"]["data_settings"]
    left_out = (*OF_NONE, *(() if experiment.searches else OF_SEARCHES), *(() if experiment.tune.all_compilers else ("tune",)))
    found = dict(flat({name: value for name, value in whole.items() if name not in left_out}))
    if experiment.tune.all_compilers:
        found |= {"tune.remote_devices": remote, "tune.stands_for": dict(experiment.tune.stands_for) or None}
    return {name: value for name, value in found.items() if name not in FILES}


def table_of(name: str) -> Mapping[str, Of]:
    """The part of the table that is of one experiment."""
    experiment = EXPERIMENTS[name]
    assert experiment.workload is not None
    of_data = {"cifar100": OF_PICTURES, "lm1b": OF_TEXT, "imagenet": OF_IMAGENET, "shapes": OF_SHAPES}[experiment.workload.data]
    table = {**TABLE, **of_data, **(OF_TUNING if experiment.tune.all_compilers else {})}
    return {key: one for key, one in table.items() if experiment.searches or key.partition(".")[0] not in OF_SEARCHES}


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_every_setting_is_that_of_the_paper(name: str) -> None:
    expected = {key: one.of(name) for key, one in table_of(name).items()}
    found = resolved(EXPERIMENTS[name])
    assert found.keys() == expected.keys(), "give a new option, its value in the paper's experiments, and the source"
    assert {key: value for key, value in found.items() if value != expected[key]} == {}


def given_in_the_file(name: str) -> list[str]:
    """The settings that the file gives an experiment, also by the name of a recipe, a curve or a preset."""
    given = [key for key, _ in flat(merged(FILE["common"], FILE["experiments"][name]))]
    given += [key.replace("workload.data_settings", "data") for key in given]
    whole = {"workload.training.recipe": "workload.training", "data.recipe": "data.augmentation"}  # complete: see below
    return [*given, *(group for key, group in whole.items() if key in given)]


@pytest.mark.parametrize("name", WITH_NETWORK)
def test_no_default_decides_about_results(name: str) -> None:
    given = given_in_the_file(name)
    of_defaults = [
        key for key in table_of(name) if not any(f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in given)
    ]
    assert [key for key in of_defaults if not any(fnmatch(key, one) for one in DEFAULTS)] == [], "give it in config/paper.yaml"


def test_each_reason_for_a_default_has_a_setting() -> None:
    names = [key for name in WITH_NETWORK for key in table_of(name)]
    assert [one for one in DEFAULTS if not any(fnmatch(key, one) for key in names)] == []


def test_recipes_and_presets_of_the_paper_leave_nothing_to_defaults() -> None:
    for recipe in ("paper-cifar", "paper-imagenet", "paper-gpt2"):
        assert {*RECIPES[recipe], "recipe"} == set(TrainingSettings.model_fields), recipe
    assert AUGMENTATIONS["paper"].model_fields_set == set(AugmentationSettings.model_fields)
    assert PRESETS["published"].model_fields_set == set(MctsSettings.model_fields)


def test_the_papers_fp32_and_the_constants_of_syno_are_one_line_away() -> None:
    """As the head of the file says."""
    training = {**FILE["common"]["workload"]["training"], "precision": "float32", "tf32": False}
    common = {**FILE["common"], "policy": "mcts", "workload": {**FILE["common"]["workload"], "training": training}}
    changed = load_experiments({**FILE, "common": common})
    for name in WITH_NETWORK:
        old, new = resolved(EXPERIMENTS[name]), resolved(changed[name])
        differ = {key for key in old if old[key] != new[key]}
        expected = {"workload.training.tf32"} | ({"workload.training.precision"} if name.startswith("imagenet") else set())
        expected |= {"policy.failure_reward", "policy.share_values"} if EXPERIMENTS[name].searches else set()
        assert differ == expected, name


def test_all_data_that_can_be_downloaded_is_one_line_away() -> None:
    """As the head of the file says: `download` under `common` is for the data sets that have it alone."""

    def with_common(**data_settings: Any) -> Mapping[str, Experiment]:
        workload = {**FILE["common"]["workload"], "data_settings": data_settings}
        return load_experiments({**FILE, "common": {**FILE["common"], "workload": workload}})

    changed, misspelt = with_common(download=True), with_common(downlaod=True)
    for name in WITH_NETWORK:
        workload, before = changed[name].workload, EXPERIMENTS[name].workload
        assert workload is not None and before is not None
        found = DATA_SETTINGS[workload.data].of(**workload.data_settings).model_dump()
        expected = DATA_SETTINGS[before.data].of(**before.data_settings).model_dump()
        assert found == expected | ({"download": True} if workload.data in ("cifar100", "lm1b") else {}), name
        wrong = misspelt[name].workload
        assert wrong is not None
        with pytest.raises(SpecError, match="downlaod: there is no such option"):
            DATA_SETTINGS[wrong.data].of(**wrong.data_settings)


@pytest.mark.parametrize("name", SEARCHES)
def test_milestones_are_those_of_the_paper(name: str) -> None:
    workload = EXPERIMENTS[name].workload
    assert workload is not None and dict(workload.milestones) == CURVES[name] == dict(MILESTONES[name])


def test_the_searches_are_those_of_the_paper() -> None:
    assert sorted(SEARCHES) == sorted(CURVES)
    tables = (TABLE, OF_PICTURES, OF_TEXT, OF_IMAGENET, OF_SHAPES, OF_TUNING)
    every = [one for table in tables for one in table.values()]
    assert all(one.source for one in every)
    patterns = {pattern for one in every for pattern in one.others}
    assert [one for one in patterns if not any(fnmatch(name, one) for name in WITH_NETWORK)] == []


def test_the_small_paper_searches_by_the_same_policy() -> None:
    small = [one for one in load_experiments(CONFIG / "paper-small.yaml").values() if one.searches]
    assert len(small) == len(SEARCHES)
    policies = {repr(sorted(one.policy.items())) for one in (*small, *(EXPERIMENTS[name] for name in SEARCHES))}
    assert len(policies) == 1 and "'mcts'" in policies.pop()


def test_no_default_of_a_policy_reaches_it() -> None:
    """What `published` names is written into the experiment, all of it."""
    experiment = EXPERIMENTS["resnet18"]
    assert set(experiment.policy) == {"name", *type(experiment.policy_settings).model_fields}
