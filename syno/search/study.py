"""Studies: searches whose trials are stored, that any number of workers share and that go on where they stopped.

>>> study = Study(space, space_id="resnet18 paper", name="resnet18", storage="sqlite:///trials.db", policy="mcts", seed=0)
>>> study.run(evaluate, n_trials=200)
>>> study.best(3)
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from optuna import TrialPruned
from optuna.pruners import BasePruner

from syno.errors import SpecError, StorageError, SynoError
from syno.ir.graph import PGraph
from syno.search.dispatch import Dispatch, Task
from syno.search.garbage import keeping
from syno.search.policies import POLICIES, Policy, PolicySettings, Proposal
from syno.search.progress import Display, Start
from syno.search.records import Record, Result, best_records, table
from syno.search.reward import AccuracyReward, Failure, Reward
from syno.search.settings import agree, study_settings
from syno.search.storage import TrialStore, open_storage, understood
from syno.search.tree import Tree, arcs

if TYPE_CHECKING:
    import pandas

LONGEST_MESSAGE = 2000  # characters that are kept of a traceback, from its end


class Report(Protocol):
    """Reports how an evaluation is going, at increasing steps such as epochs. Higher values are better.

    Raises TrialPruned if the study's pruner stops the trial, to be let through; or catch it and return what was measured.
    """

    def __call__(self, step: int, value: float) -> None:  # noqa: D102  (the class says it)
        ...


Evaluate: TypeAlias = Callable[[PGraph, Report], Mapping[str, float]]


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
            name: of the study in its storage.
            storage: see `open_storage`.
            policy, policy_settings: how operators are chosen: a name in `POLICIES`, and its constants.
            seed: of the policy.
            reward: from metrics to what the policy climbs; the accuracy reward by default.
            warm_start: operators to begin with, in this order.
            pruner: an Optuna pruner, which sees what evaluations report; none by default.
            most_attempts: after so many workers died over an operator, it counts as failed.
            heartbeat_seconds, grace_seconds: how often a worker says that it is alive, and after which silence it is not.

        Raises SpecError if the study is there with other settings (it says which), or for a storage that cannot be opened;
        UnknownNameError for a policy that is not registered.
        """
        self.name = name
        self.reward = reward or AccuracyReward()
        self.rejected: list[Rejected] = []
        kind = POLICIES[policy]
        proposals = self._proposals(tree, warm_start)
        self.policy: Policy = kind(tree, seed, settings=policy_settings, warm_start=proposals)
        self.settings = study_settings(space_id, self.policy, self.reward, proposals, most_attempts)
        with understood(storage):
            self._store = TrialStore(*open_storage(storage, heartbeat_seconds, grace_seconds), name, pruner, storage)
            agree(self._store, self.settings, storage)
        self._dispatch = Dispatch(self._store, self.policy, most_attempts)

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

        Finished are trials that are complete, pruned or failed; those that were interrupted or turned out to be duplicates
        are not. There are never more than `n_trials`, whatever the number of workers.

        Args:
            evaluate: from an operator to its metrics. An exception in it fails the trial, with its message, and not the study.
            n_trials: the study's total.
            display: is shown how it goes, after every trial.
            notes: more to be shown there, by name, such as what the space has rejected.
            alone: there are no other workers: trials that seem to be running are of workers that died. Those that died on this
                machine are recognised anyway; others when their grace is over.
            wait: when nothing is left to begin with, stay until the last trials of other workers have ended, in case they are
                interrupted.
            poll_seconds: how often to look, then.

        KeyboardInterrupt and SystemExit are let through; the trial at hand is retried by whoever goes on with the study.
        """
        if n_trials < 0:
            raise SpecError(f"n_trials={n_trials}; it is the study's total, 0 or more")
        dispatch, start = self._dispatch, Start()
        dispatch.end_dead(alone=alone)
        with keeping(), display or nullcontext():
            while True:
                task = dispatch.next(n_trials)
                if display is not None:
                    display.show(start.progress(dispatch.ledger, self.name, n_trials, notes()))
                if task is not None:
                    self._evaluate(task, evaluate)
                elif wait and dispatch.ledger.is_open(n_trials):
                    time.sleep(poll_seconds)
                else:
                    return

    def _evaluate(self, task: Task, evaluate: Evaluate) -> None:
        began = time.monotonic()

        def ended(kind: str, **more: Any) -> Result:
            return Result(kind, seconds=round(time.monotonic() - began, 3), **more)  # type: ignore[arg-type]

        try:
            with self._store.leases.kept(task.trial_id):
                metrics = evaluate(task.operator, self._report(task))
                measured = {str(name): float(value) for name, value in metrics.items()}
                reward = self.reward(measured)
                if isinstance(reward, Failure):
                    result = ended("failed", metrics=measured, message=reward.reason)
                else:
                    result = ended("complete", metrics=measured, reward=reward)
        except TrialPruned as error:
            result = ended("pruned", message=str(error))
        except StorageError:  # no fault of the operator: whoever goes on with the study evaluates it again
            raise
        except SynoError as error:  # says all there is to say
            result = ended("failed", message=str(error))
        except Exception as error:
            result = ended("failed", message="".join(traceback.format_exception(error))[-LONGEST_MESSAGE:].strip())
        except BaseException:
            self._dispatch.finish(task, ended("interrupted", message="the worker was told to stop"))
            raise
        if not self._dispatch.finish(task, result):
            warnings.warn(
                f"the result of trial {task.number} came too late: no sign of life for longer than the grace, so the trial is "
                "retried. Raise grace_seconds if evaluations block the whole process",
                stacklevel=2,
            )

    def _report(self, task: Task) -> Report:
        def report(step: int, value: float) -> None:
            if self._store.report(task.trial_id, step, value):
                raise TrialPruned(f"pruned at step {step}, where {value:g} was reported")

        return report

    # ---- what there is --------------------------------------------------------------------------------------------

    @property
    def trials(self) -> pandas.DataFrame:
        """All trials as a table; `records.table` says which columns it has."""
        return table(self._store.trials())

    def best(self, count: int = 1) -> list[Record]:
        """The complete trials of the highest rewards, best first; the earlier first of equals."""
        return best_records(self._store.trials(), count)
