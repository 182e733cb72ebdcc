"""Mixtures: an operator of its own for each layer, from the choice to the network that is taken home."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import product, starmap
from math import inf, tanh
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from html_document import Document
from result_tables import read_tables, results
from small_experiment import FIELDS

from syno.base.errors import MisfitError, ParseError, SpecError, UnknownNameError
from syno.base.interval import Interval
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.measure import measuring_process
from syno.model.backbones import BACKBONES
from syno.model.module import OperatorModule
from syno.model.networks import Network, read_replacement
from syno.model.replacements import Mixture, NarrowerNetwork
from syno.model.substitution import substitute
from syno.report.figures import Picture
from syno.report.layer_tables import mixture_table
from syno.report.page import page
from syno.search.mixtures import CLOSE, LEAST_LOSS
from syno.stages import choice
from syno.stages.choice import choose_mixtures
from syno.stages.data import prepare
from syno.stages.mixtures import Alternative, ChoiceRecord, ChosenMixture
from syno.stages.operators import compared_networks, network_of, operators_by_hand
from syno.stages.places import SELECTED
from syno.stages.results import layer_choice, read
from syno.stages.rivals import evaluate_rival
from syno.stages.search import search
from syno.stages.selection import Selected, write_selected
from syno.stages.store import ID_DIGITS, OperatorStore
from syno.stages.study import freeze
from syno.stages.tables import make_tables
from syno.stages.take_home import take_network, trained_network
from syno.stages.train import train
from syno.train.metric import METRICS

SEPARABLE, GROUPED = OPERATORS["separable_conv2d"](), OPERATORS["grouped_conv2d"]()
EXAMPLE = torch.zeros(2, 3, 16, 16)
STAND_IN = Path(__file__).parents[1] / "support" / "speedup_stand_in.py"


def network() -> torch.nn.Module:
    return BACKBONES["resnet8"](classes=10, channels=3, width=1.0, seed=0)


def kinds(changed: torch.nn.Module) -> dict[str, str]:
    return {
        name.removesuffix(".0").removesuffix(".1"): part.graph.name
        for name, part in changed.named_modules()
        if isinstance(part, OperatorModule)
    }


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [None, NarrowerNetwork("pruned", 0.5)])
def test_operators_are_in_their_layers(base: NarrowerNetwork | None) -> None:
    mixture = Mixture("m", ((SEPARABLE, ("blocks.0.conv1", "blocks.2.conv2")), (GROUPED, ("blocks.1.conv2",))), base)
    changed = substitute(network(), mixture, EXAMPLE)
    found = kinds(changed)
    expected = {"blocks.0.conv1": "separable_conv2d", "blocks.2.conv2": "separable_conv2d", "blocks.1.conv2": "grouped_conv2d"}
    assert found == expected
    assert changed(EXAMPLE).shape == network()(EXAMPLE).shape
    narrower = network() if base is None else substitute(network(), base, EXAMPLE)
    assert changed.blocks[0].conv2.weight.shape == narrower.blocks[0].conv2.weight.shape
    assert read_replacement(str(mixture)) == mixture and mixture.structure.layers == mixture.layers


def test_what_is_no_mixture_of_a_network() -> None:
    with pytest.raises((SpecError, MisfitError), match=r"blocks\.9\.conv1"):
        substitute(network(), Mixture("m", ((SEPARABLE, ("blocks.9.conv1",)),)), EXAMPLE)
    with pytest.raises(ParseError, match="stands before the first line"):
        read_replacement("mixture m\noperator x\n")
    with pytest.raises(ParseError, match="holds operators, and no whole networks"):
        read_replacement("mixture m\nlayers a\nnetwork pruned 0.5\n")
    with pytest.raises(ParseError, match="names no narrower network"):
        read_replacement("mixture m\non module nas_pte_1\n")


def test_the_id_is_that_of_what_is_where() -> None:
    one = Mixture("one", ((SEPARABLE, ("a",)), (GROUPED, ("b",))))
    assert one.id == Mixture("two", ((GROUPED, ("b",)), (SEPARABLE, ("a",)))).id
    exchanged = Mixture("one", ((SEPARABLE, ("b",)), (GROUPED, ("a",))))
    assert len({one.id, exchanged.id, Mixture("one", one.parts, NarrowerNetwork("pruned", 0.5)).id}) == 3


# ---- layers by hand ----------------------------------------------------------------------------------------------------

SIZES = (("a", "b", "c"), ("d", "e"))
SAVED = {"grouped_conv2d": (0.10, 0.06), "separable_conv2d": (0.14, 0.12), "low_rank_conv2d": (-0.03, 0.01)}  # by size
SAVED |= {"dropped": (0.2, 0.15), "narrower_0.5": (0.15, 0.13)}
LOST = {"grouped_conv2d": 1, "separable_conv2d": 3, "low_rank_conv2d": 2, "dropped": 5, "narrower_0.5": 2}


def saved(layer: str, operator: str) -> float:
    return SAVED[operator]["de".count(layer)]


def lost(layer: str, operator: str) -> float:
    return 0.002 * LOST[operator] * (1 + "dbeca".index(layer))


class SumsOfLayers:
    """A network of five layers whose time and score are sums over its layers, and what times it.

    The layers a and d can have fewer channels. If a has, b has other inputs and cannot be left out. Without any of its layers,
    the network learns nothing.
    """

    def __init__(self) -> None:
        self.trained_ids: list[str] = []
        self.begun: list[str] = []
        self.timed: list[str] = []

    settings = SimpleNamespace(seed=0, training=SimpleNamespace(device="cpu"))
    metric = METRICS["accuracy"]
    layers = tuple(SimpleNamespace(name=name, names=(name,)) for name in "abcde")

    def equal_layers(self, _: object) -> tuple[tuple[str, ...], ...]:
        return SIZES

    def network(self, mixture: Mixture, _: int) -> Mixture:
        if does_not_fit({layer: one.name for layer, one in mixture.layers.items()}):
            raise MisfitError("b has other inputs")
        return mixture

    def narrowable_layers(self, *_: object) -> tuple[str, ...]:
        return ("a", "d")

    def layers_behind(self, _: object, layer: str) -> tuple[str, ...]:
        return ("b",) if layer == "a" else ()

    def trained(self, _: int) -> None:
        return None

    def base_of(self, *_: object) -> None:
        return None

    def fit(self, network: Mixture, *_: object) -> list[Any]:
        return [SimpleNamespace(after=0.5) for one in network.layers.values() if one.name != "narrower_0.5"]

    def difference(self, network: Mixture, *_: object) -> float:
        return sum(lost(layer, one.name) for layer, one in network.layers.items())

    def train(self, mixture: Mixture, *, seed: int) -> Any:
        self.trained_ids.append(mixture.id)
        learns = sum(one.name == "dropped" for one in mixture.layers.values()) < len(self.layers)
        return SimpleNamespace(broken=False, score=0.9 - self.difference(mixture, seed) if learns else 0.1)

    def score_of_trained(self, _: int) -> float:
        return 0.9

    def begin(self, networks: Iterable[Mixture | NarrowerNetwork]) -> None:
        self.begun += [str(one) for one in networks]

    def of(self, mixture: Mixture | NarrowerNetwork, repeat: int = 0) -> Any:
        self.timed.append(str(mixture))
        if isinstance(mixture, NarrowerNetwork):
            return SimpleNamespace(status="failed")
        ratio = 1 / (1 - sum(saved(layer, one.name) for layer, one in mixture.layers.items()))
        return SimpleNamespace(status="ok", ratio=Interval(ratio, ratio, ratio))


def does_not_fit(layers: Mapping[str, str]) -> bool:
    return layers.get("a") == "narrower_0.5" and layers.get("b") == "dropped"


def chosen_by_sums(
    monkeypatch: pytest.MonkeyPatch,
    free: Sequence[str],
    speedup: float | None = 1.3,
    goal: Mapping[str, Any] = MappingProxyType({}),
    selected: Sequence[Selected] = (),
    **mixtures: Any,
) -> tuple[ChoiceRecord, SumsOfLayers]:
    network = SumsOfLayers()
    monkeypatch.setattr(choice, "read_selected", lambda _: list(selected))
    monkeypatch.setattr(choice, "beginning", lambda _: network)
    monkeypatch.setattr(choice, "screening_speedups", lambda *_: nullcontext(network))
    found = experiment(
        goal={"speedup": speedup, "lose_at_most": 0.5, "compiler": "eager", **goal},
        rivals={"shares": [0.5], "operators": free, "int8": False},
        mixtures={"margins": [1.0], **mixtures},
    )
    return choose_mixtures(found), network


@pytest.mark.parametrize(("rounds", "margins"), [(2, [1.0]), (1, [1.0, 1.1]), (1, [0.8, 0.9])])
def test_savings_that_add_up_to_too_much(monkeypatch: pytest.MonkeyPatch, rounds: int, margins: list[float]) -> None:
    """The next choice asks for as much more as the last one fell short; where none is fast enough, the fastest is taken."""
    of, timed = SumsOfLayers.of, list[float]()

    def less_together(self: SumsOfLayers, network: Mixture | NarrowerNetwork, **_: int) -> Any:
        found = of(self, network)
        if isinstance(network, Mixture) and len(network.parts) > 1:
            timed.append(1 / (1 - 0.7 * (1 - 1 / found.ratio.value)))
            found.ratio = Interval(timed[-1], timed[-1], timed[-1])
        return found

    monkeypatch.setattr(SumsOfLayers, "of", less_together)
    monkeypatch.setattr(choice, "ROUNDS", rounds)
    free = ["separable_conv2d", "grouped_conv2d"]
    record, _ = chosen_by_sums(monkeypatch, free, speedup=1.6, pruned=False, margins=margins)
    assert len(timed) == 2 and timed[0] < min(1.6, timed[1])
    assert (timed[1] >= 1.6) == (max(margins) >= 1)
    assert [one.speedup.value for one in (*record.mixtures, *record.others)] == timed[1:]


def test_an_operator_behind_a_layer_with_fewer_channels_saves_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two are timed together once, and what they save is right from then on."""
    monkeypatch.setitem(LOST, "narrower_0.5", 0)
    of, pairs = SumsOfLayers.of, list[set[str]]()

    def less_together(self: SumsOfLayers, network: Mixture | NarrowerNetwork, **_: int) -> Any:
        found = of(self, network)
        if isinstance(network, Mixture) and "a" in network.narrower.layers and "b" in network.layers:
            pairs.append({one.name for one in network.layers.values()} if len(network.layers) == 2 else set())
            found.ratio = Interval(*[1 / (1 / found.ratio.value + 0.1)] * 3)
        return found

    monkeypatch.setattr(SumsOfLayers, "of", less_together)
    free = ["separable_conv2d", "grouped_conv2d"]
    record, _ = chosen_by_sums(monkeypatch, free, speedup=2.0, margins=[1.0])
    found = record.mixtures[0]
    assert found.speedup.value >= 2.0 and found.expected == pytest.approx(found.speedup.value)
    alone = [one for one in pairs if one]
    assert 0 < len(alone) < len(pairs) and all(alone.count(one) == 1 for one in alone)


def test_networks_are_timed_in_the_order_in_which_they_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that is needed before those that were begun earlier would wait for them. Mixtures are not begun."""
    _, network = chosen_by_sums(monkeypatch, ["separable_conv2d", "grouped_conv2d"], pruned=True)
    assert network.timed.count(str(NarrowerNetwork("pruned", 0.5).structure)) == 1  # it fails, and is not tried again
    assert len(network.begun) > len(SIZES) and network.timed[: len(network.begun)] == network.begun


@pytest.mark.parametrize(
    ("keep", "fix", "pruned"),
    [
        *(([], {}, False), (["b", "e"], {}, False), ([], {"[bd]": "grouped_conv2d"}, False), ([], {}, True)),
        (["a"], {"c": "low_rank_conv2d", "d": "separable_conv2d"}, False),
        (["e"], {"a": "narrower_0.5"}, True),
    ],
)
@pytest.mark.parametrize("speedup", [1.3, 1.6])
def test_no_choice_that_obeys_loses_less(
    keep: list[str], fix: dict[str, str], pruned: bool, speedup: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    free = ["grouped_conv2d", "separable_conv2d"]
    record, network = chosen_by_sums(monkeypatch, free, speedup, pruned=pruned, keep=keep, fix=fix)
    (chosen,) = record.mixtures
    by_hand = {"b": fix["[bd]"], "d": fix["[bd]"]} if "[bd]" in fix else fix
    options = {layer: ["", *free, "dropped", *(["narrower_0.5"] if pruned and layer in "ad" else [])] for layer in "abcde"}
    answers = [[""] if layer in keep else [by_hand[layer]] if layer in by_hand else options[layer] for layer in "abcde"]
    obeying = [[(layer, one) for layer, one in zip("abcde", each, strict=True) if one] for each in product(*answers)]
    left_out = [[(layer, "dropped") for layer, one in each if one == "dropped"] for each in obeying]
    half = max(sum(starmap(saved, one)) for one in left_out) / 2
    few = min((one for one in left_out if sum(starmap(saved, one)) >= half), key=lambda one: sum(starmap(lost, one)))
    fast = [
        one
        for one, out in zip(obeying, left_out, strict=True)
        if sum(starmap(saved, one)) >= 1 - 1 / speedup
        and not does_not_fit(dict(one))
        and len(out) <= len(few)
        and (keep or fix or len(one) < 5 or len({name for _, name in one}) > 1)  # else it is no mixture
    ]
    least = min(sum(starmap(lost, one)) for one in fast)
    in_it = {layer: one.name for layer, one in chosen.replacement.layers.items()}
    assert sorted(in_it.items()) in obeying
    assert chosen.loss == pytest.approx(least) == pytest.approx(sum(starmap(lost, in_it.items())))
    assert len(network.trained_ids) == len(set(network.trained_ids))


@pytest.mark.parametrize(
    ("goal", "mixtures", "bases"),
    [
        ({"speedup": 1.5}, {}, 1),
        ({"speedup": 1.5}, {"margins": [1.0, 1.4]}, 2),
        ({"speedup": 2.5}, {}, 2),
        ({"speedup": 1.5, "find": "fastest"}, {}, 2),
        ({"speedup": 1.5}, {"fix": {"a": "grouped_conv2d"}}, 2),
    ],
)
def test_what_is_fast_enough_gets_no_operators(
    goal: dict[str, Any], mixtures: dict[str, Any], bases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators in a pruned network that meets the goal could only make it less accurate, unless they are fixed by hand.

    By the first measurement of that network alone, no operator would save time in it.
    """
    monkeypatch.chdir(tmp_path)
    of = SumsOfLayers.of

    def twice_as_fast(network: SumsOfLayers, one: Mixture | NarrowerNetwork, repeat: int = 0) -> Any:
        if isinstance(one, NarrowerNetwork):
            ratio = 1 / (0.44 if repeat == 0 else 0.52)
        else:
            ratio = of(network, one).ratio.value * (1 if one.base is None else 2)
        return SimpleNamespace(status="ok", ratio=Interval(ratio, ratio, ratio))

    monkeypatch.setattr(SumsOfLayers, "of", twice_as_fast)
    record, _ = chosen_by_sums(monkeypatch, ["grouped_conv2d"], goal=goal, **mixtures)
    skipped = [line.text for line in record.lines() if "pruned_0.5 is 2.00 times as fast by itself" in line.text]
    assert len({one.base for one in record.alternatives}) == bases and len(skipped) == len(record.fast_enough) == 2 - bases
    if "find" in goal:
        assert record.mixtures[0].replacement.base is not None and record.mixtures[0].speedup.value > 2


@pytest.mark.slow
@pytest.mark.parametrize(("speedup", "is_lucky"), [(None, False), (1.02, False), (1.02, True)])
@pytest.mark.parametrize("lose_at_most", [0.008, 0.02, 0.05, 0.2])
def test_the_fastest_that_loses_little_is_looked_for(
    speedup: float | None, is_lucky: bool, lose_at_most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the goal's speed and the margins are, as far as two speeds that are tried are from each other.

    A mixture whose one training is lucky does not win by that, where its operators lose too much by themselves.
    """
    monkeypatch.chdir(tmp_path)
    train = SumsOfLayers.train

    def trained(network: SumsOfLayers, mixture: Mixture, *, seed: int) -> Any:
        is_mixed = len(mixture.layers) < 5 or len(mixture.parts) > 1
        return SimpleNamespace(broken=False, score=0.9) if is_lucky and is_mixed else train(network, mixture, seed=seed)

    monkeypatch.setattr(SumsOfLayers, "train", trained)
    free, goal = ["grouped_conv2d", "separable_conv2d"], {"find": "fastest", "lose_at_most": lose_at_most}
    record, _ = chosen_by_sums(monkeypatch, free, speedup, goal, pruned=False)
    answers = product(["", *free], repeat=5)  # some of those with layers that are left out may be faster
    all_of = [[(layer, one) for layer, one in zip("abcde", each, strict=True) if one] for each in answers]
    fastest = max(1 / (1 - sum(starmap(saved, one))) for one in all_of if sum(starmap(lost, one)) <= lose_at_most)
    assert record.mixtures[0].loss <= lose_at_most and record.mixtures[0].speedup.value >= fastest / CLOSE
    too_lossy = [one.score < 0.9 - lose_at_most for one in (*record.mixtures, *record.others)]
    assert too_lossy == sorted(too_lossy), "a faster one that loses too much comes before one that meets the goal"


@pytest.mark.parametrize("most", [0.8, 0.9])
def test_the_fastest_is_found_where_savings_add_up_to_too_much(
    most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operator by itself saves more than it does among others, and all together more than there is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SAVED, "separable_conv2d", (0.35, 0.3))
    monkeypatch.setitem(SAVED, "grouped_conv2d", (0.3, 0.25))
    monkeypatch.setitem(LOST, "separable_conv2d", 0.01)  # so little that more of them than needed are as good a choice
    monkeypatch.setitem(LOST, "grouped_conv2d", 0.0)

    def ratio(operators: Collection[tuple[str, str]]) -> float:
        return 1 / (1 - most * tanh(sum(starmap(saved, operators)) / most))

    def of(_: SumsOfLayers, mixture: Mixture, **__: int) -> Any:
        found = ratio([(layer, one.name) for layer, one in mixture.layers.items()])
        return SimpleNamespace(status="ok", ratio=Interval(found, found, found))

    monkeypatch.setattr(SumsOfLayers, "of", of)
    free, goal = ["grouped_conv2d", "separable_conv2d"], {"find": "fastest", "lose_at_most": 0.06}
    record, _ = chosen_by_sums(monkeypatch, free, 2.0, goal, pruned=False)
    answers = product(["", *free], repeat=5)
    mixed = [[(layer, one) for layer, one in zip("abcde", each, strict=True) if one] for each in answers]
    mixed = [one for one in mixed if len({name for _, name in one}) == 2 and sum(starmap(lost, one)) <= 0.06]
    assert record.mixtures[0].speedup.value >= max(map(ratio, mixed)) / CLOSE


def test_the_search_for_the_fastest_ends_where_savings_add_up_to_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SAVED, "separable_conv2d", (0.3, 0.3))
    timed = []

    def of(_: SumsOfLayers, mixture: Mixture, **__: int) -> Any:
        timed.append(mixture)
        saves = min(0.8, sum(saved(layer, one.name) for layer, one in mixture.layers.items()))
        return SimpleNamespace(status="ok", ratio=Interval(*[1 / (1 - saves)] * 3))

    monkeypatch.setattr(SumsOfLayers, "of", of)
    goal = {"find": "fastest", "lose_at_most": 0.9}
    record, _ = chosen_by_sums(monkeypatch, ["separable_conv2d"], 2.0, goal, pruned=False)
    assert record.mixtures[0].speedup.value == pytest.approx(5.0)
    assert inf in [one.expected for one in record.others] and len(timed) < 20


def test_what_does_not_fit_together_is_not_chosen_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record, _ = chosen_by_sums(monkeypatch, [], 1.4, keep=["c", "d", "e"], fix={"a": "narrower_0.5", "b": "dropped"})
    assert not record.mixtures and record.apart == ("narrower_0.5 in a and dropped in b do not fit together",)
    assert f"1.4 times as fast; {record.apart[0]}: 0 of 1" in record.reason


def test_a_mixture_that_was_trained_for_its_price_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record, network = chosen_by_sums(monkeypatch, [], 1.35, keep=["b", "c", "e"])
    assert {one.name for one in record.mixtures[0].replacement.layers.values()} == {"narrower_0.5"}
    assert record.mixtures[0].replacement.id in network.trained_ids and len(network.trained_ids) == 2


@pytest.mark.parametrize("keep", [[], ["e"]])
@pytest.mark.parametrize("trial", [3, None])
def test_an_operator_in_all_layers_has_the_score_of_the_search(
    keep: list[str], trial: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless layers are kept, or it was not found by a search of this network."""
    monkeypatch.chdir(tmp_path)
    key, of = "0" * ID_DIGITS, choice.network_of
    found = SEPARABLE.renamed("small_7")
    network = Network(key, replacement=found)
    monkeypatch.setattr(choice, "network_of", lambda given, name: network if name == key else of(given, name))
    monkeypatch.setitem(SAVED, "small_7", (0.1, 0.1))
    monkeypatch.setitem(LOST, "small_7", 1)
    selected = [Selected(key="0" * ID_DIGITS, name="small_7", trial=trial, metrics={"accuracy": 0.6})]
    record, sums = chosen_by_sums(monkeypatch, [], selected=selected, pruned=False, keep=keep)
    known = trial is not None and not keep
    everywhere = Mixture("", ((found, tuple(one for one in "abcde" if one not in keep)),))
    assert (everywhere.id in sums.trained_ids) == (not known)
    losses = sum(one.loss or 0.0 for one in record.alternatives if one.operator == "small_7")
    assert losses == pytest.approx(0.3 if known else sum(lost(layer, "small_7") for layer in "abcde" if layer not in keep))


def test_layers_that_are_left_out_are_charged_with_what_a_few_of_them_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record, _ = chosen_by_sums(monkeypatch, [], 8.0, pruned=False)
    for one in record.alternatives:  # without all of them, the network learns nothing
        assert one.loss == pytest.approx(lost(one.layer, "dropped"))
    assert not record.mixtures and "8 times as fast" in record.reason  # which all of them together are not allowed to be


def test_errors_decide_where_trainings_show_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SumsOfLayers, "train", lambda *_, **__: SimpleNamespace(broken=False, score=0.95))
    record, _ = chosen_by_sums(monkeypatch, ["grouped_conv2d"], pruned=False)
    assert all(one.loss == pytest.approx(LEAST_LOSS * one.error) for one in record.alternatives)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_hand", "message"),
    [
        ({"keep": ["blocks.9.*"]}, r'keep: "blocks\.9\.\*": no layer .* there are: blocks\.0\.conv1, '),
        ({"fix": {"blocks.0.conv3": "grouped_conv2d"}}, r'fix: "blocks\.0\.conv3".* Did you mean "blocks\.0\.conv[12]"'),
        (
            {"keep": ["blocks.0.*"], "fix": {"*.conv2": "grouped_conv2d"}},
            r'layer blocks\.0\.conv2 is in keep: "blocks\.0\.\*" and in fix: "\*\.conv2": grouped_conv2d',
        ),
        ({"keep": ["*"]}, "keep has all layers that can be replaced: "),
        (
            {"fix": {"*.conv2": "narrower_0.5"}},
            r"fix: narrower_0\.5 in .* does not fit: blocks\.0\.conv2 cannot keep 0\.5 of its",
        ),
        ({"fix": {"*.conv2": "no_such"}}, r"fix: no_such in blocks\.0\.conv2, .* there are: grouped_conv2d"),
        ({"fix": {"*.conv2": "pruned_0.5"}}, "whole network, and no operator; there are: grouped_conv2d"),
        (
            {"fix": {"*.conv2": "sum_pool2d"}},
            r"fix: sum_pool2d in blocks\.0\.conv2, .* does not fit: .* there are: grouped_conv2d",
        ),
    ],
)
def test_layers_by_hand_that_cannot_be(
    by_hand: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = experiment(mixtures=by_hand)
    with pytest.raises(SpecError, match=message):
        operators_by_hand(found, found.network)
    if not {"no_such", "pruned_0.5"} & set(by_hand.get("fix", {}).values()):  # these may be what a search finds
        with pytest.raises(SpecError, match=message):
            prepare(found)


def test_records_without_layers_by_hand_do_not_depend_on_them() -> None:
    assert "keep" not in experiment().part("choice") and "fix" not in experiment().part("choice")
    assert experiment(mixtures={"keep": ["a"]}).part("choice") != experiment(mixtures={}).part("choice")


def test_the_page_says_what_is_in_each_layer() -> None:
    def alternative(base: str, layer: str, operator: str, saving: float) -> Alternative:
        return Alternative(base=base, layer=layer, operator=operator, saving=saving, error=0.1, fit=0.25, loss=0.004)

    first = Mixture("mixture_1", ((SEPARABLE, ("a", "b")),))
    second = Mixture("mixture_2", ((GROUPED, ("b",)),), NarrowerNetwork("pruned", 0.5))
    speed = Interval(1.5, 1.4, 1.6)
    record = ChoiceRecord(
        alternatives=(
            alternative("original", "a", "separable_conv2d", 0.125),
            alternative("original", "a", "grouped_conv2d", 0.0625),
            alternative("original", "b", "separable_conv2d", -0.03),
            alternative("pruned_0.5", "b", "grouped_conv2d", 0.02),
        ),
        mixtures=tuple(
            ChosenMixture(mixture=str(one), expected=2, speedup=speed, loss=0.1, score=0.9) for one in (first, second)
        ),
        by_hand={"b": "separable_conv2d", "c": ""},
        metric="accuracy",
        seconds=1,
        versions={},
        date="2026-01-01T00:00:00Z",
    )
    shown = results(choice=layer_choice(record, {"a": 0.3, "b": 0.1, "c": None, "d": 0.2}))
    table = mixture_table(shown)
    assert table.columns[:6] == ("layer", "time", "mixture_1", "saves, mixture_1", "loses, mixture_1", "fit error, mixture_1")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["a", "30 %", "separable_conv2d", "12.5 %", "0.4 points", "0.25", "as in pruned_0.5", "–", "–", "–"],
        ["b", "10 %", "separable_conv2d (by hand)", "-3 %", "0.4 points", "0.25",
         "grouped_conv2d (by hand)", "2 %", "0.4 points", "0.25"],
        ["c", "–", "stays (by hand)", "–", "–", "–", "as in pruned_0.5 (by hand)", "–", "–", "–"],
        ["d", "20 %", "stays", "–", "–", "–", "as in pruned_0.5", "–", "–", "–"],
    ]  # fmt: skip
    assert table.rows[0][2].note == "not taken: grouped_conv2d (saves 6.25 %, loses 0.4 points)"
    assert table.rows[3][2].note == "no operator saves time here"
    text = Document(page(shown, [Picture("Accuracy against speedup", "<svg/>")])).text
    assert "mixture_2 is in the network pruned_0.5, and would be 2.00 times as fast" in text
    assert "Accuracy against speedup has the mixtures beside single operators and rivals" in text


# ---- stages ----------------------------------------------------------------------------------------------------------


def experiment(**changes: Any) -> Experiment:
    rest = {key: value for key, value in FIELDS.items() if key not in ("reward", "policy", "name")}
    workload = {**FIELDS["workload"], "training": {"epochs": 1, "batch": 32, "initialization": "fit", "distill": {}}}
    given = {
        "goal": {"speedup": 1.5, "lose_at_most": 0.5, "compiler": "eager"},
        "rivals": {"shares": [0.5], "narrowing": False, "operators": ["grouped_conv2d"], "int8": False},
        "mixtures": {"count": 2, "margins": [1.05]},
        "train": {"seeds": [1]},
        **changes,
    }
    return Experiment(**{**rest, "name": "small", "workload": workload, **given})


@pytest.fixture
def twice_as_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with a stand-in, after which everything is twice as fast."""
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-S", str(STAND_IN)))
    monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("SYNO_MEASURED", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)


def selected(found: Experiment) -> Experiment:
    """Return an experiment whose search trained the original, and found separable convolutions."""
    search(found)
    freeze(found)
    key = OperatorStore(found.folder).add(SEPARABLE.renamed("small_7"))
    write_selected([Selected(key=key, name="small_7", metrics={})], found.folder / SELECTED)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("twice_as_fast")
def test_from_the_choice_to_the_network_that_is_taken_home() -> None:
    by_hand = {"blocks.1.conv1": "narrower_0.5", "blocks.1.conv2": "small_7"}
    found = selected(experiment(study={"n_trials": 1}, mixtures={"count": 2, "margins": [1.05], "fix": by_hand}))
    record = choose_mixtures(found)
    assert record == ChoiceRecord.read(found.folder / "choice.json") and record.mixtures
    assert {(one.base, one.operator) for one in record.alternatives} == {
        *(("original", name) for name in ("small_7", "narrower_0.5", "dropped", "grouped_conv2d")),
        ("pruned_0.5", "small_7"),  # by hand; others save nothing more there, and the layer before has too few channels
    }
    narrower = {one.layer for one in record.alternatives if one.operator == "narrower_0.5"}
    assert narrower == {"blocks.1.conv1", "blocks.2.conv1"}  # 4 channels, as in the first block, are too few
    first = record.mixtures[0].replacement
    assert first.name == "mixture_1" and len(first.layers) < 6  # each saves half of the time, whatever it is in
    assert {layer: first.layers[layer].name for layer in by_hand} == by_hand
    train(found, "original", 1)
    evaluated = evaluate_rival(found, "mixture_1")
    assert evaluated.state == "ok" and evaluated.seeds == (1,) and evaluated.operator == str(first)
    missing = evaluate_rival(found, "mixture_2")
    assert missing.state == ("ok" if len(record.mixtures) > 1 else "failed")
    is_found = any(part.name == "small_7" for part in first.layers.values())
    assert ("mixture_1", "found" if is_found else "rival") in [(one.key, one.role) for one in compared_networks(found)]
    make_tables(found)
    scores = read_tables(found).scores.set_index("key")
    assert scores.loc["mixture_1", "verdict"] in ("meets", "may meet", "misses") and scores.loc["mixture_1", "seeds"] == 1
    shown = read(found)
    assert shown.choice is not None and [one.name for one in shown.choice.mixtures][:1] == ["mixture_1"]
    assert len(shown.choice.layers) == 6
    assert "mixture_1" in {row.operator for row in shown.speedups}  # in the figure of scores and speedups
    taken = trained_network(found, "mixture_1")
    assert sorted(kinds(taken)) == sorted(first.layers.keys() - first.narrower.layers.keys())
    assert [block.conv1.out_channels for block in taken.blocks[:2]] == [4, 4]
    (line,) = take_network(found, "mixture_1", Path("home"))
    assert "as recorded" in line


@pytest.mark.usefixtures("twice_as_fast")
def test_what_has_no_mixtures_says_so() -> None:
    with pytest.raises(SpecError, match=r"initialization: fit"):
        experiment(workload=FIELDS["workload"])
    with pytest.raises(SpecError, match="give a goal with speedup"):
        experiment(train={"seeds": []})
    with pytest.raises(SpecError, match="asks for no mixtures"):
        choose_mixtures(experiment(mixtures="none"))
    with pytest.raises(UnknownNameError, match="`syno choose` makes it"):
        network_of(experiment(), "mixture_1")
    with pytest.raises(SpecError, match="selected.json"):
        choose_mixtures(experiment())
