"""Recipes of training: defaults of all other settings, by name; and the milestones of training curves, by network.

Source of the paper's: the published training code as it ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from syno.base.registry import Registry

QUICK = "quick"
RECIPES: Registry[Mapping[str, Any]] = Registry("recipe of training")
MILESTONES: Registry[Mapping[int, float]] = Registry("curve of milestones")


def _recipe(name: str, **settings: Any) -> None:
    RECIPES.register(name)(MappingProxyType(settings))


_recipe(QUICK)  # small networks on small data, in minutes on one CPU core: the defaults of the settings
_recipe(  # the same for text
    "quick-text",
    epochs=2,
    batch=32,
    optimizer="adamw",
    learning_rate=3e-3,
    weight_decay=0.1,
    decay="matrices",
    clip=1.0,
)
_recipe(  # CIFAR-100. Weights are drawn as in the published code, and the score is that of the best epoch.
    "paper-cifar",
    device="cuda",
    epochs=100,
    batch=128,
    learning_rate=0.1,
    schedule="cosine-by-epoch",
    final_learning_rate=1e-5,
    weight_decay=1e-3,
    decay="matrices",
    clip=5.0,
    initialization="paper",
    score="best",
    tf32=True,
    compile=True,
)
_recipe(  # ImageNet
    "paper-imagenet",
    device="cuda",
    epochs=90,
    batch=1024,
    learning_rate=0.5,
    schedule="triangle",
    peak_epoch=2,
    weight_decay=5e-5,
    decay="matrices",
    label_smoothing=0.1,
    clip=1.0,
    precision="float16",
    tf32=True,
    initialization="normal",
    flip_tests=True,
)
_recipe(  # GPT-2 on lm1b: half an hour, as in the search; most_minutes: null is the long run
    "paper-gpt2",
    device="cuda",
    epochs=1,
    most_steps=100_000,
    most_minutes=30,
    round_steps=1000,
    most_tests=100,
    batch=1,
    optimizer="adamw",
    learning_rate=3e-4,
    schedule="constant",
    weight_decay=0.1,
    decay="matrices",
    clip=1.0,
    tf32=True,
    score="tail",
)

# Least accuracies after some of the epochs, for CIFAR-100. The published code has them, but its search ran without.
for _name, _curve in {
    "resnet18": {1: 0.1, 2: 0.1, 3: 0.2, 5: 0.25, 10: 0.3, 30: 0.5, 60: 0.6},
    "resnet34": {1: 0.05, 2: 0.1, 3: 0.15, 4: 0.2, 5: 0.23, 6: 0.28, 7: 0.3, 8: 0.37, 9: 0.4, 10: 0.45},
    "densenet121": {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.35, 5: 0.4, 8: 0.45, 15: 0.5, 30: 0.55, 45: 0.6},
    "resnext29_2x64d": {1: 0.08, 2: 0.16, 3: 0.2, 4: 0.24, 5: 0.28, 10: 0.35, 15: 0.4, 20: 0.45},
    "efficientnet_v2_s": {1: 0.05, 2: 0.1, 3: 0.2, 6: 0.3, 10: 0.4, 15: 0.45},
}.items():
    MILESTONES.register(_name)(MappingProxyType(_curve))
