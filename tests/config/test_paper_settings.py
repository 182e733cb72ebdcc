"""Every setting of the paper's searches, with its source: no changed default changes an experiment of config/paper.yaml unseen.

A search resolves to these values, no more and no fewer: a new option is here, too, with why the published search has that
value. The sources: `paper`, its text; `script`, the settings with which the authors' program was started for its data;
`program`, its defaults and class constants; `data`, what its results show; `here`, what is ours, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syno.config import Experiment, load_experiments
from syno.data.settings import DATA_SETTINGS, PictureSettings
from syno.space.options import OptionGroup
from syno.space.spec import OperatorSpec
from syno.train.settings import MILESTONES

CONFIG = Path(__file__).parents[2] / "config"
EXPERIMENTS = load_experiments(CONFIG / "paper.yaml")
SEARCHES = [name for name, experiment in EXPERIMENTS.items() if experiment.searches]
OF_NETWORK = ("name", "input", "output", "layers", "bound_axes", "causal", "budget")  # of a spec: test_paper_config.py
NOT_OF_A_SEARCH = ("name", "output", "tune", "ablations")  # nothing that is found, selected or trained depends on them


class Of(NamedTuple):
    """A value, its source, and other values, by search."""

    value: Any
    source: str
    others: Mapping[str, Any] = {}


RESNEXT, EFFICIENT = "resnext29_2x64d", "efficientnet_v2_s"
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
    "workload.model": Of("resnet18", "paper, section 8.1; script", {
        "densenet121": "densenet121", RESNEXT: "resnext29_2x64d_1000", EFFICIENT: EFFICIENT, "gpt2": "gpt2"}),
    "workload.width": Of(1.0, "paper, section 8.1: the networks as they are"),
    "workload.layers": Of("paper", "program; data: 58, 10, 10 and 12 layers", {"resnet18": "paper-3x3"}),  # data: 16 layers
    "workload.data": Of("cifar100", "paper, section 8.1", {"gpt2": "lm1b"}),
    "workload.seed": Of(0, "here: runs can be repeated; the program draws its seeds"),
    # ---- the training: paper, section 8.1, and the recipe in the program
    "workload.training.recipe": Of("paper-cifar", "here: the name of what follows", {"gpt2": "paper-gpt2"}),
    "workload.training.device": Of("cuda", "paper, section 8.1"),
    "workload.training.epochs": Of(100, "paper, section 8.1; program", {"gpt2": 1}),
    "workload.training.most_steps": Of(None, "program: by epochs; GPT-2 by time, of at most one pass", {"gpt2": 100_000}),
    "workload.training.most_minutes": Of(None, "paper, section 8.1: half an hour for GPT-2", {"gpt2": 30.0}),
    "workload.training.most_epoch_seconds": Of(None, "here: the program's 60 s make results depend on the machine's speed"),
    "workload.training.round_steps": Of(None, "here: how often GPT-2 is tested, for milestones", {"gpt2": 1000}),
    "workload.training.most_tests": Of(None, "here: how much GPT-2 is tested on, for milestones", {"gpt2": 100}),
    "workload.training.batch": Of(128, "program", {"gpt2": 1}),
    "workload.training.optimizer": Of("sgd", "program", {"gpt2": "adamw"}),
    "workload.training.learning_rate": Of(0.1, "program", {"gpt2": 3e-4}),
    "workload.training.schedule": Of("cosine-by-epoch", "program", {"gpt2": "constant"}),
    "workload.training.final_learning_rate": Of(1e-5, "program", {"gpt2": 0.0}),
    "workload.training.peak_epoch": Of(2.0, "not used by these schedules"),
    "workload.training.momentum": Of(0.9, "program"),
    "workload.training.betas": Of([0.9, 0.95], "program, of GPT-2"),
    "workload.training.weight_decay": Of(1e-3, "program", {"gpt2": 0.1}),
    "workload.training.decay": Of("matrices", "program: not on biases and vectors"),
    "workload.training.label_smoothing": Of(0.0, "program"),
    "workload.training.clip": Of(5.0, "program", {"gpt2": 1.0}),
    "workload.training.initialization": Of("paper", "program: truncated normal, 0.1; GPT-2: ours", {"gpt2": "fan-in"}),
    "workload.training.score": Of("best", "program: best epoch; GPT-2: the last 20 % of the losses", {"gpt2": "tail"}),
    "workload.training.flip_tests": Of(False, "program: on ImageNet only"),
    "workload.training.precision": Of("float32", "paper, section 8.1: FP32"),
    "workload.training.tf32": Of(True, "program"),
    "workload.training.compile": Of(True, "program: each kernel; it changes speed alone", {"gpt2": False}),
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
    "study.pruner": Of(None, "program: milestones alone"),
    "study.stopping": Of(None, NONE),
    "study.check_gradients": Of(False, NONE),
    "select.by": Of("pareto", "paper: the front of accuracy and FLOPs"),
    "select.count": Of(20, "here: how many are trained again", {"gpt2": 5}),
    "select.least_accuracy": Of(0.0, "here: the front decides alone"),
    "select.shortlist": Of(10, "not used by this selection"),
    "train.seeds": Of([1, 2, 3], "here: trained again with other seeds than the search's"),
    "train.weights": Of("all", "here: which files are kept"),
    "train.int8": Of(False, "paper: on ImageNet only"),
} | dict.fromkeys(("goal", "warm_start", "original", "after", "artifact", "join", "code", "workload.placed", "select.most_loss",
                   "select.source", "select.within", "select.operators", "train.baselines", "train.training"), Of(None, NONE))
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
    "data.length": Of(2048, "paper, section 8.1; program"),
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


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values in groups of settings, by their names with dots."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from flat(one, f"{name}.{key}" if name else str(key))
    else:
        yield name, None if value in ([], {}) and not name.startswith(("spec.", "train.seeds")) else value


def resolved(experiment: Experiment) -> dict[str, Any]:
    """All settings of a search, with the defaults of its groups, of its policy, of its spec and of its data."""
    whole = experiment.model_dump(mode="json")
    assert isinstance(experiment.spec, Mapping) and experiment.workload is not None
    spec = {}
    for name, field in OperatorSpec.model_fields.items():
        given = experiment.spec.get(name, {} if isinstance(field.default, OptionGroup) else field.default)
        spec[name] = type(field.default)(**given).model_dump() if isinstance(field.default, OptionGroup) else given
    data = DATA_SETTINGS[experiment.workload.data].of(**experiment.workload.data_settings)
    more = {"augmentation": data.augmented.model_dump()} if isinstance(data, PictureSettings) else {}
    whole |= {
        "spec": {
            name: list(value) if isinstance(value, tuple) else value for name, value in spec.items() if name not in OF_NETWORK
        },
        "data": data.model_dump(mode="json") | more,
        "policy": {"name": experiment.policy["name"], **experiment.policy_settings.model_dump()},
        "reward": experiment.make_reward().settings(),
        "workload": {"placed": None, **whole["workload"]},
    }
    del whole["workload"]["milestones"], whole["workload"]["data_settings"]
    found = dict(flat({name: value for name, value in whole.items() if name not in NOT_OF_A_SEARCH}))
    return {name: value for name, value in found.items() if name not in FILES}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_of_a_search_is_that_of_the_paper(name: str) -> None:
    table = {**TABLE, **(OF_TEXT if name == "gpt2" else OF_PICTURES)}
    expected = {key: one.others.get(name, one.value) for key, one in table.items()}
    found = resolved(EXPERIMENTS[name])
    assert found.keys() == expected.keys(), "give a new option, its value in the published search, and the source"
    assert {key: value for key, value in found.items() if value != expected[key]} == {}


@pytest.mark.parametrize("name", SEARCHES)
def test_milestones_are_those_of_the_paper(name: str) -> None:
    workload = EXPERIMENTS[name].workload
    assert workload is not None and dict(workload.milestones) == CURVES[name] == dict(MILESTONES[name])


def test_the_searches_are_those_of_the_paper() -> None:
    assert sorted(SEARCHES) == sorted(CURVES)
    assert all(one.source for one in [*TABLE.values(), *OF_PICTURES.values(), *OF_TEXT.values()])
    values = {key: Of(*one) for key, one in TABLE.items()}
    assert {name for one in values.values() for name in one.others} <= set(SEARCHES)


def test_the_small_paper_searches_by_the_same_policy() -> None:
    small = [one for one in load_experiments(CONFIG / "paper-small.yaml").values() if one.searches]
    assert len(small) == len(SEARCHES)
    policies = {repr(sorted(one.policy.items())) for one in (*small, *(EXPERIMENTS[name] for name in SEARCHES))}
    assert len(policies) == 1 and "'mcts'" in policies.pop()


def test_no_default_of_a_policy_reaches_it() -> None:
    """What `published` names is written into the experiment, all of it."""
    experiment = EXPERIMENTS["resnet18"]
    assert set(experiment.policy) == {"name", *type(experiment.policy_settings).model_fields}
