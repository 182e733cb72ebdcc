"""The spec of a search: a preset, a file, or options that override a preset's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syno.algebra.limits import shortened
from syno.base.errors import SpecError, suggestion
from syno.base.files import is_file
from syno.config.stages import WHICH_MEASUREMENTS
from syno.space.presets import PRESETS, preset
from syno.space.spec import OperatorSpec

NOT_OF_A_SEARCH = ("select", "train", "rivals", "mixtures", "tune", "output", "study", "code")
BY_HAND = ("keep", "fix")  # options of mixtures
NOT_OF_TRIALS = (
    "workers",
    "storage",
    "check_gradients",
)  # options of a study that change no trial; the last only skips hopeless trainings


def parts(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts of an experiment's JSON settings on which the files of each stage depend, by name."""
    whole = {**settings, "select": dict(settings["select"]), "tune": dict(settings["tune"])}
    after = whole.pop("after")
    if after is not None:
        whole["workload"] = {**whole["workload"], "after": after["source"]}  # without its operator, which may be set later
    if whole["goal"] is not None:
        whole["latency"] = whole["tune"]["latency"]
    of_study = {key: value for key, value in whole["study"].items() if key not in NOT_OF_TRIALS}
    of_study["pruner"] = None  # an option of earlier versions, whose searches remain valid
    if whole["select"]["by"] not in ("latency", "front"):
        del whole["select"]["shortlist"]  # unused by this selection
    if isinstance(mixtures := whole.get("mixtures"), dict):  # unset, these options do not change the records' key
        whole["mixtures"] = {key: value for key, value in mixtures.items() if key not in BY_HAND or value}
    others = {name: whole["tune"].pop(name) for name in WHICH_MEASUREMENTS}
    return {
        "data": {"workload": whole["workload"]},
        "search": {key: whole[key] for key in whole if key not in NOT_OF_A_SEARCH} | {"study": of_study},
        "select": {key: value for key, value in whole["select"].items() if key != "operators" or value},
        "train": {"workload": whole["workload"], "training": whole["train"]["training"]},
        "speed": {"workload": whole["workload"], "training": whole["train"]["training"], "speed": others["speed"]},
        "rivals": {key: whole.get(key) for key in ("workload", "goal", "rivals", "latency")}
        | {"training": whole["train"]["training"]},
        "choice": {key: whole.get(key) for key in ("workload", "goal", "rivals", "mixtures", "latency", "train")},
        "tune": {
            "workload": whole["workload"],
            "tune": {**whole["tune"], "compilers": None, "devices": None, "remote_devices": None, "baselines": None},
        },
    }


def find_spec(place: str, kind: str = "spec file") -> OperatorSpec:
    """Return the spec of a preset or of a YAML file.

    Args:
        place: the preset's name, or the file's path.
        kind: noun for the file in messages.

    Raises SpecError if it is neither, or the file is no valid spec.
    """
    if place in PRESETS:
        return preset(place)
    file = Path(place)
    if not is_file(file):
        raise SpecError(
            f'"{shortened(place)}" is neither a {kind} nor a preset; presets are: {", ".join(PRESETS)}.'
            f"{suggestion(place, PRESETS)}"
        )
    return OperatorSpec.load(file)


def make_spec(spec: str | Mapping[str, Any]) -> OperatorSpec:
    """Return the spec of a preset, a file or a mapping of options; with `preset`, the mapping overrides the preset's."""
    if isinstance(spec, str):
        return find_spec(spec)
    if "preset" not in spec:
        return OperatorSpec(**spec)
    changes = {key: value for key, value in spec.items() if key != "preset"}
    return OperatorSpec(**merged(find_spec(str(spec["preset"])).model_dump(), changes))


def check_names(options: Mapping[str, Any]) -> None:
    """Raise SpecError if `options` has a name that is no option of a spec, or that the network determines."""
    allowed = [name for name in OperatorSpec.model_fields if name != "layers"]
    for name in options:
        if name not in allowed:
            raise SpecError(
                f"spec.{name}: there is no such option for the layers of a workload; there are: {', '.join(allowed)}."
                f"{suggestion(name, allowed)}"
            )


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` merged in: mappings at every level; other values are replaced."""
    groups = [key for key in changes if isinstance(base.get(key), Mapping) and isinstance(changes[key], Mapping)]
    return {**base, **changes, **{key: merged(base[key], changes[key]) for key in groups}}
