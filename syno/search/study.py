"""Studies: searches whose trials are stored, that any number of workers share and that go on where they stopped.

>>> study = Study(space, space_id="resnet18 paper", name="resnet18", storage="sqlite:///trials.db", policy="mcts", seed=0)
>>> study.run(evaluate, n_trials=200)
>>> study.best(3)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from optuna.pruners import BasePruner

from syno.base.errors import SearchStoppedError, SpecError, SynoError
from syno.base.progress import Display, Start
from syno.ir.graph import PGraph
from syno.search.attempt import Attempt, Evaluate, Report
from syno.search.dispatch import Dispatch
from syno.search.garbage import keeping
from syno.search.policies import POLICIES, Policy, PolicySettings, Proposal
from syno.search.reward import AccuracyReward, Reward
from syno.search.settings import agree, study_settings
from syno.search.stopping import MACHINE_ATTEMPTS, Stopping, stopped_by_machine
from syno.search.storage.records import Record, best_records, table
from syno.search.storage.storage import TrialStore, open_storage, understood
from syno.search.storage.withdrawal import marked
from syno.search.tree import Tree, arcs

if TYPE_CHECKING:
    import pandas

__all__ = ["Evaluate", "Rejected", "Report", "Study"]


@dataclass(frozen=True)
class Rejected:
    """An operator given as a warm start that the search cannot start from, and why."""

    operator: PGraph
    reason: str


class Study:
    """A search, stored.

    A trial is the evaluation of one operator. Every operator is evaluated once, by whichever worker, unless the worker dies:
    then another one does it again. A worker is one process with a Study of the same settings; there is nothing else to start.
    With one worker, a study that is killed and run again, on a fresh tree, proposes what it would have proposed without. Not
    for use by several threads at once.

    Attributes:
        name: of the study in its storage.
        rejected: operators of the warm start that are not in the space, or mean the same as others, and why.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        space_id: str,
        more_settings: Mapping[str, Any] | None = None,
        name: str,
        storage: str = "sqlite:///trials.db",
        policy: str = "mcts",
        policy_settings: PolicySettings | None = None,
        seed: int = 0,
        reward: Reward | None = None,
        warm_start: Sequence[PGraph] = (),
        pruner: BasePruner | None = None,
        most_attempts: int = 3,
        heartbeat_seconds: float = 60,
        grace_seconds: float = 180,
    ) -> None:
        """Open a study, or make it.

        Args:
            tree: the space to search.
            space_id: what tells this space from others, such as the id of its spec.
            more_settings: what else the trials depend on, by name, as JSON, such as the options of the spec and the workload.
            name: of the study in its storage.
            storage: see `open_storage`.
            policy, policy_settings: how operators are chosen: a name in `POLICIES`, and its constants.
            seed: of the policy.
            reward: from metrics to what the policy climbs; the accuracy reward by default.
            warm_start: operators to begin with, in this order.
            pruner: an Optuna pruner, which sees what evaluations report; none by default.
            most_attempts: after so many workers died over an operator, it counts as failed.
            heartbeat_seconds, grace_seconds: how often a worker says that it is alive, and after which silence it is not.

        Where no trial has succeeded yet, the study takes other settings with a warning; see `syno.search.settings.agree`.

        Raises SpecError if the study is there with other settings (it says which), or for a storage that cannot be opened;
        UnknownNameError for a policy that is not registered.
        """
        self.name = name
        self.reward = reward or AccuracyReward()
        self.rejected: list[Rejected] = []
        kind = POLICIES[policy]
        proposals = self._proposals(tree, warm_start)
        self._make_policy = partial(kind, tree, seed, settings=policy_settings, warm_start=proposals)
        self.policy: Policy = self._make_policy()
        self.settings = study_settings(space_id, self.policy, self.reward, proposals, most_attempts, more_settings)
        with understood(storage):
            self._store = TrialStore(*open_storage(storage, heartbeat_seconds, grace_seconds), name, pruner, storage)
            agree(self._store, self.settings, storage)
        self._stopping = Stopping(self._store, self.settings)
        self._dispatch = Dispatch(self._store, self.policy, most_attempts, self._stopping)

    def _proposals(self, tree: Tree, operators: Sequence[PGraph]) -> list[Proposal]:
        found: dict[str, Proposal] = {}
        for operator in operators:
            try:
                path, fingerprint = tree.path(operator), tree.fingerprint(operator)
            except SynoError as error:
                self.rejected.append(Rejected(operator, str(error)))
                continue
            if fingerprint in found:
                same = found[fingerprint].operator
                self.rejected.append(Rejected(operator, f'it means the same as "{same.name}" ({same.id[:8]}), given before'))
                continue
            found[fingerprint] = Proposal(arcs(path), fingerprint, operator)
        for rejected in self.rejected:
            warnings.warn(f'warm start without "{rejected.operator.name}": {rejected.reason}', stacklevel=3)
        return list(found.values())

    # ---- running --------------------------------------------------------------------------------------------------

    def run(
        self,
        evaluate: Evaluate,
        n_trials: int,
        *,
        display: Display | None = None,
        notes: Callable[[], Mapping[str, object]] = dict,
        alone: bool = False,
        wait: bool = True,
        poll_seconds: float = 1.0,
    ) -> None:
        """Be a worker until the study has `n_trials` finished trials, all workers and earlier runs together, or no operator
        is left.

        Finished are trials that are complete, pruned or failed; those that were interrupted, withdrawn or turned out to be
        duplicates are not. There are never more than `n_trials`, whatever the number of workers.

        Args:
            evaluate: from an operator to its metrics. An exception in it fails the trial, with its message, and the study goes
                on; but see below.
            n_trials: the study's total.
            display: is shown how it goes, after every trial.
            notes: more to be shown there, by name, such as what the space has rejected.
            alone: there are no other workers: trials that seem to be running are of workers that died. Those that died on this
                machine are recognised anyway; others when their grace is over.
            wait: when nothing is left to begin with, stay until the last trials of other workers have ended, in case they are
                interrupted.
            poll_seconds: how often to look, then.

        KeyboardInterrupt and SystemExit are let through; the trial at hand is retried by whoever goes on with the study.

        Raises SearchStoppedError where no operator is to blame (`syno.search.faults` tells failures apart): the machine failed
        twice in a row; the evaluation failed alike in several trials in a row, or in all. The trials spent on that do not
        count: who runs the study again evaluates their operators again.
        """
        if n_trials < 0:
            raise SpecError(f"n_trials={n_trials}; it is the study's total, 0 or more")
        if self._stopping.is_outdated:
            self._forget()
        try:
            self._run(evaluate, n_trials, display, notes, alone, wait, poll_seconds)
        except SearchStoppedError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Begin with a new policy: this one heard of trials that don't count."""
        self.policy = self._make_policy()
        self._dispatch = Dispatch(self._store, self.policy, self._dispatch.ledger.most_attempts, self._stopping)

    def _run(
        self,
        evaluate: Evaluate,
        n_trials: int,
        display: Display | None,
        notes: Callable[[], Mapping[str, object]],
        alone: bool,
        wait: bool,
        poll_seconds: float,
    ) -> None:
        dispatch, start, machine_faults = self._dispatch, Start(), 0
        dispatch.begin(alone=alone)
        with keeping(), display or nullcontext():
            while True:
                task = dispatch.next(n_trials)
                if display is not None:
                    display.show(start.progress(dispatch.ledger, self.name, n_trials, notes()))
                if task is not None:
                    fault = Attempt(dispatch, self.reward, task).run(evaluate)
                    machine_faults = machine_faults + 1 if fault is not None and fault.kind == "machine" else 0
                    if fault is None or not machine_faults:
                        continue
                    if fault.lasts or machine_faults >= MACHINE_ATTEMPTS:
                        raise stopped_by_machine(self.name, fault)
                elif not (wait and dispatch.ledger.is_open(n_trials)):
                    break
                time.sleep(poll_seconds)
        self._stopping.check_end(dispatch.ledger, n_trials)

    # ---- what there is --------------------------------------------------------------------------------------------

    @property
    def trials(self) -> pandas.DataFrame:
        """All trials as a table; `records.table` says which columns it has."""
        return table(marked(self._store.trials(), self._store.attributes))

    def best(self, count: int = 1) -> list[Record]:
        """The complete trials of the highest rewards, best first; the earlier first of equals."""
        return best_records(self._store.trials(), count)
