"""The options of experiments' files, as Markdown tables and as a JSON schema for editors.

Both are generated from the settings classes. The text below a field explains the option.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from syno.base.files import LONGEST_NAME, PATTERN
from syno.base.text_tables import markdown
from syno.base.validation import submodel
from syno.config.experiment import Experiment
from syno.config.files import ExperimentGroup
from syno.config.kinds import AnyExperiment, experiment_kinds
from syno.search.policies import POLICIES
from syno.search.policies.presets import PRESETS as POLICY_PRESETS
from syno.search.reward import REWARDS
from syno.space.presets import PRESETS
from syno.space.spec import OperatorSpec
from syno.train.settings import MILESTONES, RECIPES

FORMAT = "https://json-schema.org/draft/2020-12/schema"
OWN_NAME: dict[str, Any] = {"type": "string", "pattern": ":"}  # path package.module:name of a user's own policy or reward
OWN = {"type": "object", "properties": {"name": OWN_NAME}, "required": ["name"]}
PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", NoneType: "null", Any: "value"}


def options_table(model: type[BaseModel], beside: type[BaseModel] | None = None) -> str:
    """Return a Markdown table with a row for each option: name (`group: option`), type and bounds, default, meaning.

    Options that the model `beside` has as well are omitted.
    """
    known = {} if beside is None else beside.model_fields
    return markdown(list(_rows({name: field for name, field in model.model_fields.items() if name not in known}, "")), left=4)


def meaning(field: FieldInfo) -> str:
    """Return the explanation of an option on one line; "" if it has none."""
    return " ".join((field.description or "").split())


def _rows(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[dict[str, object]]:
    for name, field in fields.items():
        group = submodel(field.annotation)
        if group is not None and isinstance(field.default, group):
            purpose = " ".join((inspect.getdoc(group) or "").split())
            yield {"option": f"`{prefix}{name}`", "is": "group", "default": "", "meaning": purpose}
            yield from _rows(group.model_fields, f"{prefix}{name}: ")
            continue
        yield {
            "option": f"`{prefix}{name}`",
            "is": " ".join([_kind(field.annotation), *_bounds(field)]),
            "default": "required" if field.is_required() else f"`{_yaml(field.default)}`",
            "meaning": meaning(field).replace("|", "\\|"),
        }


def _kind(annotation: Any) -> str:
    """Return the type of an option in words, as in the table."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return PLAIN[annotation]
    if origin is Annotated:
        return _kind(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_kind, inner))
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is tuple and inner[-1] is not ...:
        return "pair" if len(inner) == 2 else f"{len(inner)} values"
    if origin in (tuple, list):
        return f"list of {_kind(inner[0])}"
    return "mapping"


def _bounds(field: FieldInfo) -> list[str]:
    signs = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
    pairs = ((sign, getattr(bound, attribute, None)) for bound in field.metadata for attribute, sign in signs)
    return [f"{sign} {bound:g}" for sign, bound in pairs if bound is not None]


def _yaml(default: Any) -> str:
    """Return a default value as YAML text."""
    if isinstance(default, float):
        return f"{default:g}" if math.isfinite(default) else f".{default:g}"
    return json.dumps(str(default) if isinstance(default, Path) else default)


def schema_text() -> str:
    """Return the text of `config/schema.json`."""
    return json.dumps(file_schema(), indent=1) + "\n"


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of a file: of one experiment, or of several if it has the key `experiments`."""
    kinds = {kind.__name__: kind for kind in experiment_kinds() if not issubclass(kind, Experiment)}
    groups, several = (
        {"Experiment": _experiment(), **{name: _of_kind(kind) for name, kind in kinds.items()}},
        _schema(ExperimentGroup),
    )
    options: dict[str, Any] = {"$ref": "#/$defs/Experiment"}
    several["properties"]["common"] |= options
    for name, kind in kinds.items():
        options = {"if": {"required": [kind.option]}, "then": {"$ref": f"#/$defs/{name}"}, "else": options}
    names = {"pattern": f"^{PATTERN}$", "maxLength": LONGEST_NAME}
    several["properties"]["experiments"] |= {"additionalProperties": options, "propertyNames": names}
    inner = {name: rule for group in groups.values() for name, rule in group.pop("$defs", {}).items()}
    return {
        "$schema": FORMAT,
        "$defs": {**inner, **groups, "Several": several},
        "if": {"required": ["experiments"]},
        "then": {"$ref": "#/$defs/Several"},
        "else": options,
    }


def _of_kind(kind: type[AnyExperiment]) -> dict[str, Any]:
    """Return the schema of a kind of experiments. `name` is not required, since it defaults to the file's name."""
    schema = _schema(kind)
    schema["required"] = [name for name in schema.get("required", []) if name != "name"]
    return schema


def _experiment() -> dict[str, Any]:
    """Return the schema of `Experiment`, with the options that extensions add to it."""
    schema = _of_kind(Experiment)
    for more in (_schema(kind) for kind in experiment_kinds() if kind is not Experiment and issubclass(kind, Experiment)):
        schema = {
            **schema,
            "properties": {**more["properties"], **schema["properties"]},
            "$defs": {**more["$defs"], **schema["$defs"]},
        }
    properties, groups = schema["properties"], schema["$defs"]
    spec = _schema(OperatorSpec)
    groups |= spec.pop("$defs", {})
    # Files write some options of a spec as text, so their types are omitted.
    options = {
        name: {key: rule[key] for key in ("description", "title") if key in rule}
        for name, rule in spec["properties"].items()
        if name != "layers"
    }
    options |= {"preset": {"type": "string", "enum": list(PRESETS)}, "layers": {}}
    properties["spec"] = {
        "description": properties["spec"].get("description", ""),
        "anyOf": [{"type": "string"}, {"type": "object", "properties": options, "additionalProperties": False}],
    }
    policies = [
        *(_schema_of_named(name, POLICIES[name].Settings) for name in POLICIES),
        *(_alone(name) for name in POLICY_PRESETS),
        OWN,
    ]
    del properties["policy"]["type"]  # a policy may be a plain text
    properties["policy"] |= {"anyOf": [{"anyOf": [{"enum": [*POLICIES, *POLICY_PRESETS]}, OWN_NAME]}, *policies]}
    for name in REWARDS:
        groups |= _schema(REWARDS[name]).get("$defs", {})
    properties["reward"] |= {"anyOf": [*(_schema_of_named(name, REWARDS[name]) for name in REWARDS), OWN]}
    groups["TrainingSettings"]["properties"]["recipe"]["enum"] = list(RECIPES)
    workload = groups["WorkloadSettings"]["properties"]
    workload["milestones"] = {
        "description": workload["milestones"].pop("description", ""),
        "anyOf": [{"type": "string", "enum": list(MILESTONES)}, workload["milestones"]],
    }
    for name in ("OperatorChoice", "After"):
        groups[name] = {"anyOf": [{"type": "string"}, groups[name]]}
    return schema


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model, with each explanation on one line."""
    schema = model.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        for rule in part.get("properties", {}).values():
            if "description" in rule:
                rule["description"] = " ".join(rule["description"].split())
    return schema


def _alone(name: str) -> Mapping[str, Any]:
    """Return the schema of a preset, which takes no settings."""
    return {"type": "object", "properties": {"name": {"const": name}}, "additionalProperties": False}


def _schema_of_named(name: str, model: type[BaseModel]) -> Mapping[str, Any]:
    """Return the schema of a policy's or reward's settings, which are selected by its name."""
    properties = _schema(model).get("properties", {})
    properties = {"name": {"const": name}, **{key: rule for key, rule in properties.items() if key != "name"}}
    return {"type": "object", "properties": properties, "additionalProperties": False}
