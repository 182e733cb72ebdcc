"""An experiment of seconds."""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, Any] = {
    "name": "small",
    "workload": {
        "width": 0.25,
        "data_settings": {"preset": "micro", "train": 128, "test": 64},
        "training": {"epochs": 1, "batch": 32},
    },
    "spec": {"depth": 4},
    "reward": {"name": "accuracy", "low": 0.0},
    "policy": {"name": "random"},
    "study": {"n_trials": 4},
    "select": {"count": 2},
    "train": {"seeds": [1, 2], "baselines": ["separable_conv2d"]},
    "tune": {"compilers": ["eager"], "latency": {"least_ms": 1, "warm_up_ms": 0, "most_repeats": 6, "least_repeats": 6}},
}
