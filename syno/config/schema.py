"""The JSON schema of a file with experiments, for editors: what every key may be, and what it means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from syno.base.files import LONGEST_NAME, PATTERN
from syno.config.experiment import Experiment
from syno.config.options import meanings
from syno.config.several import Several
from syno.search.evaluation import PRUNERS
from syno.search.policies import POLICIES
from syno.search.reward import REWARDS
from syno.space.presets import PRESETS
from syno.space.spec import OperatorSpec
from syno.train.recipes import MILESTONES, RECIPES

FORMAT = "https://json-schema.org/draft/2020-12/schema"
PATH = {"type": "string", "pattern": "^[^:]+:[^:]+$"}  # package.module:name
OWN = {"type": "object", "properties": {"name": PATH}, "required": ["name"]}  # of the user's own: any settings


def file_schema() -> dict[str, Any]:
    """The schema: of one experiment, or of several where there is the key `experiments`."""
    one, several = _experiment(), _described(Several)
    options = {"$ref": "#/$defs/Experiment"}
    several["properties"]["common"] |= options
    names = {"pattern": f"^{PATTERN}$", "maxLength": LONGEST_NAME}
    several["properties"]["experiments"] |= {"additionalProperties": options, "propertyNames": names}
    return {
        "$schema": FORMAT,
        "$defs": {**one.pop("$defs"), "Experiment": one, "Several": several},
        "if": {"required": ["experiments"]},
        "then": {"$ref": "#/$defs/Several"},
        "else": options,
    }


def _experiment() -> dict[str, Any]:
    """Of one. A name beside the file stands for `name`, so it need not be given."""
    schema = _described(Experiment)
    schema["required"] = [name for name in schema.get("required", []) if name != "name"]
    properties = schema["properties"]
    spec = _described(OperatorSpec)
    schema["$defs"] |= spec.pop("$defs", {})
    options = {name: _loose(rule) for name, rule in spec["properties"].items() if name != "layers"}
    options |= {"preset": {"type": "string", "enum": list(PRESETS)}, "layers": {}}
    properties["spec"] = {
        "description": properties["spec"].get("description", ""),
        "anyOf": [{"type": "string"}, {"type": "object", "properties": options, "additionalProperties": False}],
    }
    properties["policy"] |= {"anyOf": [_named(name, POLICIES[name].Settings) for name in POLICIES] + [OWN]}
    properties["reward"] |= {"anyOf": [_named(name, REWARDS[name]) for name in REWARDS] + [OWN]}
    schema["$defs"]["StudySettings"]["properties"]["pruner"]["anyOf"][0] = {
        "type": "object",
        "properties": {"name": {"anyOf": [{"enum": list(PRUNERS)}, PATH]}},
        "required": ["name"],
    }
    schema["$defs"]["TrainingSettings"]["properties"]["recipe"]["enum"] = list(RECIPES)
    workload = schema["$defs"]["WorkloadSettings"]["properties"]
    workload["milestones"] = {
        "description": workload["milestones"].pop("description", ""),
        "anyOf": [{"type": "string", "enum": list(MILESTONES)}, workload["milestones"]],
    }
    choice = schema["$defs"]["OperatorChoice"]
    schema["$defs"]["OperatorChoice"] = {"anyOf": [{"type": "string"}, choice]}
    return schema


def schema_text() -> str:
    """The schema as the file `config/schema.json` has it."""
    return json.dumps(file_schema(), indent=1) + "\n"


def _described(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema, with what its options mean."""
    schema = model.model_json_schema()
    for part in _models(model):
        target = schema if part is model else schema.get("$defs", {}).get(part.__name__)
        if target is None:
            continue
        for name, text in meanings(part).items():
            if name in target["properties"]:
                target["properties"][name]["description"] = text
    return schema


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and those in its fields."""
    from syno.base.validation import submodel

    found = [model]
    for field in model.model_fields.values():
        inner = submodel(field.annotation)
        if inner is not None:
            found += [part for part in _models(inner) if part not in found]
    return found


def _named(name: str, model: type[BaseModel]) -> Mapping[str, Any]:
    """The settings of something that is chosen by name."""
    inner = _described(model)
    properties = {"name": {"const": name}, **{key: rule for key, rule in inner.get("properties", {}).items() if key != "name"}}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _loose(rule: Mapping[str, Any]) -> dict[str, Any]:
    """An option of a spec: files write some of them as text, so only what they mean is said."""
    return {key: rule[key] for key in ("description", "title") if key in rule}
