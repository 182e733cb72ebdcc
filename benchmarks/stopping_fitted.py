"""Stopping rules that are fitted on the table: a trial stops for good if it is unlikely to end among the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from syno.paper.replay.entries import PARTS, TableEntry
from syno.paper.replay.stopping import Work

FOLDS = 10
Entries = Sequence[TableEntry]
OTHER = {"natural": "required", "required": "natural"}


def features(entries: Entries, seed: int, epoch: int) -> np.ndarray:
    """[operators, features]: accuracies and losses up to an epoch."""
    return np.array(
        [
            [*entry.accuracies[seed][:epoch], *entry.losses[seed][:epoch], *entry.recent_losses[seed][: epoch * PARTS]]
            for entry in entries
        ]
    )


class Fitted:
    """The rule, fitted on some operators: it loses none of the best among them."""

    def __init__(self, entries: Entries, best: Sequence[bool], seed: int) -> None:
        self.models, self.least = [], []
        for epoch in range(1, len(entries[0].accuracies[seed])):
            found = features(entries, seed, epoch)
            model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
            model.fit(found, best)
            self.models.append(model)
            self.least.append(model.predict_proba(found)[np.array(best), 1].min())

    def epochs(self, entries: Entries, seed: int) -> list[int]:
        """How many epochs of each operator are trained."""
        found = [len(entry.accuracies[seed]) for entry in entries]
        for epoch in range(len(self.models), 0, -1):
            likely = self.models[epoch - 1].predict_proba(features(entries, seed, epoch))[:, 1]
            found = [now if one >= self.least[epoch - 1] else epoch for one, now in zip(likely, found, strict=True)]
        return found


def fitted(
    parts: Mapping[str, Entries], name: str, best_of: Callable[[Entries, int], float], seed: int = 0
) -> dict[str, Callable[[Entries, int], Work]]:
    """The fitted rules of one part of the table: on folds of it, and on the other part."""
    entries = parts[name]
    least = best_of(entries, seed)
    order = np.random.default_rng(0).permutation(len(entries))
    found: dict[str, int] = {}
    for fold in range(FOLDS):
        out = set(order[fold::FOLDS].tolist())
        seen = [entry for index, entry in enumerate(entries) if index not in out]
        rule = Fitted(seen, [entry.accuracy(seed) >= least for entry in seen], seed)
        unseen = [entries[index] for index in sorted(out)]
        found |= {entry.id: epochs for entry, epochs in zip(unseen, rule.epochs(unseen, seed), strict=True)}
    rules = {"fitted on other operators of this part": _known(found)}
    if name in OTHER:
        seen = parts[OTHER[name]]
        rule = Fitted(seen, [entry.accuracy(seed) >= best_of(seen, seed) for entry in seen], seed)
        epochs = dict(zip((entry.id for entry in entries), rule.epochs(entries, seed), strict=True))
        rules["fitted on the other part"] = _known(epochs)
    return rules


def _known(epochs: Mapping[str, int]) -> Callable[[Entries, int], Work]:
    def run(entries: Entries, seed: int) -> Work:
        work = Work([0] * len(entries))
        for trial, entry in enumerate(entries):
            for _ in range(epochs[entry.id]):
                work.train(trial)
        return work

    return run
