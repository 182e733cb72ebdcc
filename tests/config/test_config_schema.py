"""The schema for editors is that of the models, and the configs of the project meet it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from syno.base.errors import SpecError
from syno.base.validation import Settings
from syno.config import Experiment
from syno.config.options import schema_text

CONFIGS = Path(__file__).parents[2] / "config"
SCHEMA = CONFIGS / "schema.json"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_schema_is_up_to_date() -> None:
    text = schema_text()
    if os.environ.get("UPDATE_GOLDEN"):
        SCHEMA.write_text(text, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.name)
def test_configs_meet_it(file: Path, validator: Draft202012Validator) -> None:
    assert [error.message for error in validator.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))] == []
    assert file.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n")


@pytest.mark.parametrize(
    "wrong",
    [
        {"nmae": "x"},
        {"study": {"n_trails": 2}},
        {"study": {"n_trials": "many"}},
        {"policy": {"name": "mcts", "explore": 1}},
        {"policy": {"name": "mtcs"}},
        {"reward": {"name": "accuracy", "lower": 0.1}},
        {"spec": {"deepth": 3}},
        {"spec": {"preset": "resnet19"}},
        {"select": {"by": "luck"}},
        {"warm_start": [{"operators": "conv2d"}]},
        {"experiments": {"a": {"study": {"n_trails": 2}}}},
        {"experiments": {"a": {}}, "common": {"reward": {"name": "luck"}}},
        {"experiments": {"a": {}}, "workload": {}},
        {"experiments": {"a b": {}}},
        {"after": {"operator": "conv2d"}},
    ],
)
def test_wrong_keys_and_values_do_not(wrong: dict[str, Any], validator: Draft202012Validator) -> None:
    assert not validator.is_valid(wrong)


@pytest.mark.parametrize("given", ["first", {"source": "results/first", "operator": "first_3"}, None])
def test_an_experiment_goes_on_after_a_name_or_a_mapping(given: object, validator: Draft202012Validator) -> None:
    assert validator.is_valid({"experiments": {"second": {"after": given}}})


def test_every_key_says_what_it_means(validator: Draft202012Validator) -> None:
    described = validator.schema["$defs"]["Experiment"]["properties"]
    assert described["relative_budget"]["description"].endswith("needs a workload")
    assert "its name in this file" in validator.schema["$defs"]["SelectSettings"]["properties"]["source"]["description"]
    assert "by all workers" in validator.schema["$defs"]["StudySettings"]["properties"]["n_trials"]["description"]


def _kinds(of: type[Settings] = Settings) -> Iterator[type[Settings]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_no_number_of_any_setting_is_a_boolean() -> None:
    """YAML reads `n_trials: yes` as true, which Python takes for 1."""
    checked = set()
    for kind in (kind for kind in _kinds() if kind.__module__.startswith("syno.")):
        for name, field in kind.model_fields.items():
            if type(field.default) in (int, float):
                with pytest.raises(ValidationError) as found:
                    kind.model_validate({name: True})
                wrong = [".".join(map(str, one["loc"])) + one["msg"] for one in found.value.errors()]
                assert any(name in one for one in wrong), (kind, name)
                checked.add(kind.__name__)
    assert checked >= {"StudySettings", "TrainingSettings", "OperatorSpec", "TvmSettings", "AccuracyReward"}
    with pytest.raises(SpecError, match=r"study\.n_trials: true and false \(in YAML also yes, no, on, off\) are no numbers"):
        Experiment(name="one", workload={}, study={"n_trials": True})
    with pytest.raises(SpecError, match=r"train\.seeds: true and false .*; given: \[1, True\]"):
        Experiment(name="one", workload={}, train={"seeds": [1, True]})
    assert Experiment(name="one", workload={}, tune={"layers": True}).tune.layers is True
