"""The parts of an experiment's settings that the files of stages depend on."""

from __future__ import annotations

from typing import Any, Literal

Part = Literal["data", "search", "select", "train", "tune", "speed", "ablations", "join"]  # of the settings
NOT_OF_A_SEARCH = ("select", "train", "tune", "output", "study", "artifact", "join", "ablations", "code")
NOT_OF_TRIALS = ("workers", "storage", "check_gradients")  # of a study; the last one spares trainings that would be in vain


def parts(settings: dict[str, Any]) -> dict[Part, dict[str, Any]]:
    """Return the parts of an experiment's settings, which are given as for JSON: what the files of each stage depend on."""
    whole = {**settings, "select": dict(settings["select"]), "tune": dict(settings["tune"])}
    after = whole.pop("after")
    if after is not None:
        whole["workload"] = {**whole["workload"], "after": after["source"]}  # its operator may be named later
    if whole["goal"] is not None:
        whole["latency"] = whole["tune"]["latency"]
    of_study = {key: value for key, value in whole["study"].items() if key not in NOT_OF_TRIALS}
    if whole["select"]["by"] != "latency":
        del whole["select"]["shortlist"]  # nothing depends on it
    others = {name: whole["tune"].pop(name) for name in ("layers", "breakdown", "training", "original_compilers", "speed")}
    return {
        "data": {"workload": whole["workload"]},
        "search": {key: whole[key] for key in whole if key not in NOT_OF_A_SEARCH} | {"study": of_study},
        "select": {key: value for key, value in whole["select"].items() if key != "operators" or value},
        "ablations": {key: whole[key] for key in ("spec", "workload", "relative_budget", "artifact", "ablations")},
        "train": {"workload": whole["workload"], "training": whole["train"]["training"]},
        "speed": {"workload": whole["workload"], "training": whole["train"]["training"], "speed": others["speed"]},
        "join": whole["join"],
        "tune": {
            "workload": whole["workload"],
            "tune": {**whole["tune"], "compilers": None, "devices": None, "remote_devices": None, "baselines": None},
        },
    }
