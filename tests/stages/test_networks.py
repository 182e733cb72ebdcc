"""Names of networks: of each kind that an experiment can have, with its files and its meaning."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import ValidationError
from small_experiment import FIELDS

from syno.base.errors import SpecError, UnknownNameError
from syno.base.interval import Interval
from syno.config import Experiment
from syno.config.groups import OperatorChoice
from syno.ir.library import OPERATORS
from syno.model import networks, replacements
from syno.model.networks import Network
from syno.stages.mixtures import ChoiceRecord, ChosenMixture
from syno.stages.operators import compared_networks, network_of
from syno.stages.places import CHOICE, SELECTED, training_file
from syno.stages.rivals import rival_file
from syno.stages.selection import Selected, write_selected
from syno.stages.store import OperatorStore
from syno.stages.take_home import take_network
from syno.stages.workflow_stages import jobs

FOUND = OPERATORS["grouped_conv2d"]().renamed("small_3")
KEY = FOUND.id[:12]
RIVALS = {  # each name with the beginning of the replacement's text
    "pruned_0.5": "network pruned 0.5\n",
    "narrow_0.5": "network narrow 0.5\n",
    "pruned_0.25": "network pruned 0.25\n",
    "narrow_0.25": "network narrow 0.25\n",
    "separable": "known layer separable\n",
    "grouped_4": "known layer grouped_4\n",
    "low_rank_2": "known layer low_rank_2\n",
    "narrower_0.5": "known layer narrower_0.5\n",
    "dropped": "known layer dropped\n",
    "shift_conv1x1": "operator shift_conv1x1\n",
}
BASELINES = {
    "conv2d": "operator conv2d\n",
    "nas_pte_1": "module nas_pte_1\n",
    "own_layers.block": "module own_layers:block\n",
    "mine": "operator of_my_own\n",  # a text file, mine.txt
    "grouped_8": "known layer grouped_8\n",
}
MIXTURES = {
    "mixture_1": f"mixture mixture_1\non network pruned 0.5\nlayers blocks.0.conv1\n{FOUND}",
    "mixture_2": "mixture mixture_2\nlayers blocks.0.conv1, blocks.1.conv1\nknown layer separable\n",
}
FORMATS = ("int8", "bfloat16")
GIVEN = {  # what a user may give in place of a key
    KEY[:6]: KEY,
    FOUND.id: KEY,
    "small_3": KEY,
    "own_layers:block": "own_layers.block",
    "nas_pte_2": "nas_pte_2",
    "pruned_0.3": "pruned_0.3",
    "narrow_0.70": "narrow_0.7",
    "narrower_0.3": "narrower_0.3",
    "low_rank_16": "low_rank_16",
    "mine.txt": OPERATORS["conv1x1"]().id[:12],
    "conv1x1": OPERATORS["conv1x1"]().id[:12],
}


class Meaning(NamedTuple):
    """What a key means: the network as it was trained, the number format, the role, and the beginning of its text."""

    trained: str
    precision: str | None
    role: str | None
    text: str


TRAINED = {
    "original": Meaning("original", None, "original", "None"),
    **{name: Meaning(name, None, "baseline", text) for name, text in BASELINES.items()},
    **{name: Meaning(name, None, "rival", text) for name, text in RIVALS.items()},
    KEY: Meaning(KEY, None, "found", "operator small_3\n"),
    "mixture_1": Meaning("mixture_1", None, "found", MIXTURES["mixture_1"]),
    "mixture_2": Meaning("mixture_2", None, "rival", MIXTURES["mixture_2"]),
}
CONVERTED = {
    name if key == "original" else f"{key}_{name}": meaning._replace(precision=name)
    for key, meaning in TRAINED.items()
    for name in FORMATS
}
NAMES = TRAINED | CONVERTED


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment with every kind of network, after the selection and the choice."""
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(str(OPERATORS["conv1x1"]().renamed("of_my_own")))
    rest = {key: value for key, value in FIELDS.items() if key not in ("reward", "policy")}
    workload = {**FIELDS["workload"], "training": {**FIELDS["workload"]["training"], "initialization": "fit"}}
    paths = {"mine": "mine.txt", "own_layers.block": "own_layers:block"}
    fields = {
        "workload": workload,
        "goal": {"speedup": 1.5, "lose_at_most": 0.5, "compiler": "eager"},
        "rivals": {
            "shares": [0.5, 0.25],
            "operators": [paths.get(name, name) for name in RIVALS][4:],
            "int8": "all",
            "bfloat16": True,
        },
        "mixtures": {"count": 2},
        "train": {"seeds": [1], "baselines": [paths.get(name, name) for name in BASELINES]},
    }
    found = Experiment.model_validate(rest | fields)
    OperatorStore(found.folder).add(FOUND)
    write_selected([Selected(key=KEY, name="small_3", metrics={})], found.folder / SELECTED)
    ChoiceRecord(
        alternatives=(),
        mixtures=tuple(
            ChosenMixture(mixture=text, expected=2.0, speedup=Interval(2.0, 1.9, 2.1), loss=0.0, score=0.9)
            for text in MIXTURES.values()
        ),
        metric="accuracy",
        seconds=1.0,
        versions={},
        date=datetime.now(UTC),
    ).write(found.folder / CHOICE)
    return found


def test_the_examples_of_networks_and_replacements_are_true() -> None:
    assert doctest.testmod(networks).failed == doctest.testmod(replacements).failed == 0


def test_the_names_of_an_experiment_are_those_of_the_table(experiment: Experiment) -> None:
    assert [*experiment.baselines] == [*BASELINES]
    assert experiment.rival_names == (*RIVALS, *FORMATS)
    assert experiment.mixture_names == tuple(MIXTURES)
    found = {network.key: network.role for network in compared_networks(experiment)}
    assert found == {name: meaning.role for name, meaning in TRAINED.items()} | dict.fromkeys(FORMATS, "rival")
    files = jobs(experiment, selected=[KEY])
    assert [file.relative_to(experiment.folder).as_posix() for file in files["train"]] == [
        f"train/{key}/seed1.json" for key in ("original", *BASELINES, KEY)
    ]
    rivals = (*RIVALS, *FORMATS, *MIXTURES, *(f"{KEY}_{name}" for name in FORMATS))
    assert [file.relative_to(experiment.folder).as_posix() for file in files["rival"]] == [
        f"rivals/{name}.json" for name in rivals
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_name_means(experiment: Experiment, name: str) -> None:
    meaning, network = NAMES[name], Network.parse(name)
    precision = None if network.precision is None else network.precision.name
    assert (network.key, network.name, precision) == (name, meaning.trained, meaning.precision)
    trained = network_of(experiment, network.name)
    assert (trained.key, trained.role) == (meaning.trained, meaning.role)
    assert str(trained.replacement).startswith(meaning.text)
    assert Network.parse(trained) is trained is network_of(experiment, trained)
    assert training_file(experiment, network.name, 1) == experiment.folder / "train" / meaning.trained / "seed1.json"
    assert rival_file(experiment, name) == experiment.folder / f"rivals/{name}.json"


@pytest.mark.parametrize("given", GIVEN)
def test_what_a_user_may_give_in_place_of_a_key(experiment: Experiment, given: str) -> None:
    assert network_of(experiment, given).key == GIVEN[given]


@pytest.mark.parametrize("given", ["nothing", "pruned", "pruned_1.5", "grouped_1", "narrower_1", "mixture_3", "grouped"])
def test_what_names_no_network(experiment: Experiment, given: str) -> None:
    with pytest.raises(UnknownNameError):
        network_of(experiment, given)


@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_only_converted_cannot_be_taken_home(experiment: Experiment, name: str) -> None:
    with pytest.raises(SpecError, match=f"^{name} is {NAMES[name].trained}, .*; take {NAMES[name].trained}, and convert it"):
        take_network(experiment, name)


@pytest.mark.parametrize("name", ["mine_int8.txt", "int8", "own_layers:block_bfloat16"])
def test_no_operator_has_the_name_of_a_network_in_lower_precision(name: str) -> None:
    with pytest.raises(ValidationError, match=r"is the name of (mine in 8-bit|original in 8-bit|own_layers.block in bfloat16)"):
        OperatorChoice(operator=name)
