"""What networks save, beside αNAS, of a small artifact made here. Of the authors' data: test_paper_numbers.py."""

from __future__ import annotations

import pandas
import pytest
import torch
from small_artifact import imported_once

from syno.model.backbones import BACKBONES
from syno.model.counting import published_flops, published_parameters
from syno.model.replacements import MODULE_BASELINES
from syno.model.substitution import substitute
from syno.paper.figures.headlines import beside_nas_pte
from syno.paper.figures.mixture import ready
from syno.paper.figures.networks import ALPHA_NAS_NAME, ON_PROXY, OURS, savings
from syno.paper.numbers import ALPHA_NAS, COSTS, NAS_PTE_COSTS
from syno.paper.places import RESNET34
from syno.run.measurement import Measurement
from syno.run.table import measurement_table

pytestmark = pytest.mark.slow  # the figures and tables of the whole published artifact

CLASSES = {"cifar100": 100, "imagenet": 1000}
AS_PUBLISHED = {"resnext29_2x64d": "resnext29_2x64d_1000"}
every_cost = pytest.mark.parametrize(("data", "model"), [(data, model) for data, models in COSTS.items() for model in models])


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pandas.DataFrame:
    return pandas.read_parquet(imported_once(tmp_path_factory) / "tables" / "measurements.parquet")


def ours(table: pandas.DataFrame) -> pandas.DataFrame:
    """Syno's rows: of the operators that are accurate enough on the data set of the search."""
    return table[(table["system"] == OURS) & (table["within"] == ON_PROXY)].set_index("network")


@every_cost
def test_costs_of_the_networks_as_they_are_are_those_that_we_count(data: str, model: str) -> None:
    with torch.device("meta"):
        network = BACKBONES[AS_PUBLISHED.get(model, model)](classes=CLASSES[data])
        picture = torch.zeros(1, 3, 224, 224)
    assert COSTS[data][model] == (published_flops(network, picture), published_parameters(network))


@pytest.mark.slow
def test_costs_with_the_sequences_of_nas_pte_are_those_that_we_count() -> None:
    picture, network = torch.zeros(1, 3, 224, 224), BACKBONES[RESNET34](classes=CLASSES["imagenet"])
    for name, costs in NAS_PTE_COSTS.items():
        changed = substitute(network, MODULE_BASELINES[name], picture, where="paper").to("meta")
        assert costs == (published_flops(changed, picture.to("meta")), published_parameters(changed))


def test_costs_beside_nas_pte_are_of_whole_networks() -> None:
    """Published costs of Operator 2 beside counted ones, and own ones beside own; those of layers count nowhere."""
    named = {"model": RESNET34, "data": "imagenet", "operator": "operator_2", "origin": "artifact", "source": "x"}
    published = [Measurement.of("flops", 1e9, **named), Measurement.of("parameters", 1e7, **named)]
    layer = Measurement.of("flops", 1.0, **named, layer="conv_i64_o64")
    own = [
        Measurement.of("flops", value, **{**named, "operator": operator, "origin": "measured"})
        for operator, value in (("operator_2", 2e9), *((name, 3e9) for name in NAS_PTE_COSTS))
    ]
    for rows, flops in (([*published, layer], (1.521, 3.833)), ([*published, *own], (1.5, 1.5))):
        found = [one.computed for one in beside_nas_pte(ready(measurement_table(rows)))]
        assert found == pytest.approx([*flops, 0.903, 4.581], abs=1e-3)
    assert [one.verdict for one in beside_nas_pte(ready(measurement_table([layer])))] == ["unknown"] * 4


def test_the_fewest_flops_of_those_that_are_accurate_enough(rows: pandas.DataFrame) -> None:
    found = ours(savings(rows))
    assert list(found.index) == ["ResNet-18", "ResNet-34", "DenseNet-121", "ResNeXt-29", "EfficientNet-V2-S"]
    first = found.loc["ResNet-18"]
    assert (first["operator"], first["data"]) == ("published_07801", "cifar100")  # Operator 1 has half as many FLOPs more
    assert first["fewer_flops"] == pytest.approx(1 - 1000 / COSTS["cifar100"]["resnet18"][0], rel=1e-12)
    assert first["fewer_parameters"] == pytest.approx(1 - 100 / COSTS["cifar100"]["resnet18"][1], rel=1e-12)
    assert (first["lost_proxy"], first["lost_final"]) == (pytest.approx(0.78836 - 0.785), pytest.approx(0.70835 - 0.69))
    assert (first["least_speedup"], first["largest_speedup"]) == (pytest.approx(3), pytest.approx(3))
    assert found.loc["ResNet-34", ["operator", "data"]].tolist() == ["operator_1", "imagenet"]  # the other loses too much there


def test_inaccurate_operators_save_nothing(rows: pandas.DataFrame) -> None:
    assert ours(savings(rows, most_lost=-0.05)).empty  # a network would have to gain five points


def test_beside_it_is_what_the_other_paper_tells(rows: pandas.DataFrame) -> None:
    theirs = savings(rows)[lambda table: table["system"] == ALPHA_NAS_NAME].set_index("network")
    told = {name: (row["fewer_flops"], row["fewer_parameters"]) for name, row in theirs.iterrows()}
    assert {name: told[name] for name in ALPHA_NAS} == ALPHA_NAS
    assert {name: told[name][0] for name in set(told) - set(ALPHA_NAS)} == {"ResNet-50 and EfficientNet-B0": 0.25}
    assert theirs["operator"].isna().all() and theirs["largest_speedup"].isna().all()
