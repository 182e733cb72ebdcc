"""The options' page shows the options as they are."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from syno.base.text_tables import markdown
from syno.config import AnyExperiment, Experiment
from syno.config.dependencies import After
from syno.config.files import ExperimentGroup
from syno.config.groups import OperatorChoice, Original, RelativeBudget
from syno.config.kinds import experiment_kinds
from syno.config.options import options_table
from syno.config.stages import DeviceChoice, MixtureSettings
from syno.data.settings import DATA_SETTINGS, GLYPH_PRESETS, AugmentationSettings, GlyphSettings
from syno.measure.devices import SshSettings
from syno.measure.tvm.targets import DeviceSettings
from syno.search.goal import Goal
from syno.search.halving import HalvingSettings
from syno.search.policies import POLICIES
from syno.search.reward import REWARDS
from syno.space import OperatorSpec, preset
from syno.space.presets import PRESETS
from syno.train.settings import MILESTONES, RECIPES, TrainingSettings, WorkloadSettings

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
NAMED = [*(POLICIES[name].Settings for name in POLICIES), *(REWARDS[name] for name in REWARDS)]
MODELS = [
    *(*experiment_kinds(), ExperimentGroup, WorkloadSettings, TrainingSettings, GlyphSettings, *DATA_SETTINGS.values()),
    *(
        AugmentationSettings,
        HalvingSettings,
        Goal,
        MixtureSettings,
        RelativeBudget,
        After,
        Original,
        OperatorChoice,
        DeviceChoice,
        DeviceSettings,
        SshSettings,
        OperatorSpec,
    ),
    *dict.fromkeys(NAMED),
]
HEAD = """# Options

Every option of an experiment and of a spec, as the code has it. A file names only what differs from the default.
Names that are not listed here are errors, and the error lists what is allowed.

"""


def first_paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def data_sets() -> str:
    """A table for each data set, and one for augmentation."""
    parts = [
        "## Data sets\n\n`workload: {data: NAME, data_settings: {...}}`; [data.md](data.md) says where they come from.",
        f"### `glyphs`\n\n{first_paragraph(GlyphSettings)} `preset` is one of {', '.join(GLYPH_PRESETS)}; by default quick. "
        f"The others differ from it.\n\n{options_table(GlyphSettings)}",
    ]
    parts += [f"### `{name}`\n\n{first_paragraph(model)}\n\n{options_table(model)}" for name, model in DATA_SETTINGS.items()]
    parts.append(f"### Augmentation\n\n{first_paragraph(AugmentationSettings)}\n\n{options_table(AugmentationSettings)}")
    return "\n\n".join(part.rstrip("\n") for part in parts)


def recipes() -> str:
    """What each recipe of training sets, and the curves of milestones."""
    names = [name for name in RECIPES if RECIPES[name]]
    settings = [field for field in TrainingSettings.model_fields if any(field in RECIPES[name] for name in names)]

    def text(value: object) -> object:
        return "null" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else value

    rows = [
        {"training": f"`{field}`", **{f"`{name}`": text(RECIPES[name].get(field, "")) for name in names}} for field in settings
    ]
    curves = [
        {
            "milestones": f"`{name}`",
            "least accuracy after epoch; gpt2: greatest loss": ", ".join(
                f"{epoch}: {least:g}" for epoch, least in curve.items()
            ),
        }
        for name, curve in ((name, MILESTONES[name]) for name in MILESTONES)
    ]
    return (
        "### Recipes of training\n\n`training: {recipe: NAME}`; what is not in a column is as in the table above: "
        f"`quick`. [training.md](training.md) says more.\n\n{markdown(rows, left=1 + len(names))}\n`workload: "
        f"{{milestones: NAME}}` takes one of these curves: those of the paper's code for CIFAR-100, and one for GPT-2, in nats "
        f"after rounds of 1,000 steps.\n\n{markdown(curves, left=2)}"
    )


def kinds() -> list[str]:
    """A section for each kind of experiments that extensions add, with its own options."""
    return [
        f"## Experiments with `{kind.option}`\n\n{first_paragraph(kind)}\n\n"
        + options_table(kind, Experiment if issubclass(kind, Experiment) else AnyExperiment)
        for kind in experiment_kinds()
        if kind is not Experiment
    ]


def page() -> str:
    """The whole page."""
    parts = [
        "## An experiment\n\n`snakemake --configfile FILE`, `syno search FILE` and the other stages; "
        "[config/quickstart.yaml](../config/quickstart.yaml) is one. `spec` is a preset's name "
        f"({', '.join(PRESETS)}), a spec file, or a mapping.\n\n" + options_table(Experiment),
        "## Several experiments\n\nA file with the key `experiments` has only these. `snakemake --configfile FILE` runs all of "
        "them, `snakemake NAME --configfile FILE` one and what it takes operators from; commands take `FILE:NAME`.\n\n"
        + options_table(ExperimentGroup),
        *kinds(),
        "## A workload\n\n`workload` of an experiment: the spec's layers, the budget's rest and the original's cost follow "
        "from it, and `evaluate` is `training`.\n\n" + options_table(WorkloadSettings),
        recipes(),
        data_sets(),
        "## Early stopping\n\n`study: stopping` of an experiment; [search.md](search.md#early-stopping) says more.\n\n"
        + options_table(HalvingSettings),
        "## A goal\n\n`goal` of an experiment; [search.md](search.md#a-goal) says more.\n\n" + options_table(Goal),
        "## Mixtures\n\n`mixtures` of an experiment; [search.md](search.md#mixtures) says more.\n\n"
        + options_table(MixtureSettings),
        "## A relative budget\n\n`relative_budget` of an experiment.\n\n" + options_table(RelativeBudget),
        "## An experiment that goes first\n\n`after` of an experiment, whose name alone is the `source`; "
        "[evaluation.md](evaluation.md#replacing-layers) says more.\n\n" + options_table(After),
        "## The original\n\n`original` of an experiment.\n\n" + options_table(Original),
        "## Operators\n\n`warm_start` and `train: baselines` of an experiment are lists of these.\n\n"
        + options_table(OperatorChoice),
        "## Devices\n\n`tune: devices` of an experiment is a list of names, or of these; "
        "[workflow.md](workflow.md#optional-devices) says more.\n\n" + options_table(DeviceChoice),
        "## Remote devices\n\n`tune: remote_devices` of an experiment names devices that TVM's RPC reaches, each with these; "
        "[devices.md](devices.md) shows how.\n\n" + options_table(DeviceSettings),
        "### By ssh\n\nOr machines that measure by themselves, each with these.\n\n" + options_table(SshSettings),
        "## A spec\n\n`syno spec PRESET > my.yaml` prints one to begin with.\n\n" + options_table(OperatorSpec),
        "## Policies\n\n`policy: {name: ..., ...}`",
    ]
    for name in POLICIES:
        settings = POLICIES[name].Settings
        table = options_table(settings) if settings.model_fields else "It has no options.\n"
        parts.append(f"### `{name}`\n\n{first_paragraph(POLICIES[name])}\n\n{table}")
    parts.append("## Rewards\n\n`reward: {name: ..., ...}`. All are clipped to [0, 1].")
    for name in REWARDS:
        parts.append(f"### `{name}`\n\n{first_paragraph(REWARDS[name])}\n\n{options_table(REWARDS[name])}")
    return HEAD + "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def test_the_page_is_up_to_date() -> None:
    text = page()
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("option", ["depth", "occurrences: tensors", "budget: most_flops", "rules_off"])
def test_the_page_has_options_of_every_group(option: str) -> None:
    assert f"| `{option}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_option_has_a_meaning(model: type[BaseModel]) -> None:
    assert [line for line in options_table(model).splitlines()[2:] if line.rstrip("| ").count("|") != 4] == []


@pytest.mark.parametrize("name", PRESETS)
def test_a_spec_prints_only_options_that_the_page_has(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for key, value in yaml.safe_load(preset(name).dump()).items():
        names = [f"{key}: {inner}" for inner in value] if isinstance(value, dict) else [key]
        assert all(f"| `{found}`" in text for found in names)
