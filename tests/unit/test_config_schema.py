"""The schema for editors is that of the models, and the configs of the project meet it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

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
        {"study": {"pruner": {"name": "medain"}}},
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
