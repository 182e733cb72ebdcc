"""Studies: searches with stored trials, which any number of workers share and which can be resumed.

>>> study = Study(space, space_id="resnet18 paper", name="resnet18", storage="sqlite:///trials.db", policy="mcts", seed=0)
>>> study.run(evaluate, n_trials=200)
>>> study.best(3)
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from optuna import TrialPruned

from syno.base.collection import seldom_collected
from syno.base.errors import SearchStoppedError, SpecError, StorageError, SynoError
from syno.base.progress import Display, Progress
from syno.ir.graph import PGraph
from syno.search.faults import Fault, fault_of
from syno.search.goal import Goal
from syno.search.halving import OF_FIT, HalvingSettings
from syno.search.policies import POLICIES, LayerError, Policy, PolicySettings, Proposal
from syno.search.reward import AccuracyReward, Failure, Reward
from syno.search.scheduler import MACHINE_ATTEMPTS, Scheduler, Terminator, stopped_by_machine
from syno.search.settings import GOAL, KNOWN, agree, study_settings
from syno.search.storage.errors import database_errors
from syno.search.storage.opening import open_storage
from syno.search.storage.records import Kind, Result, TrialRecord, best_records, deaths_in_words, table
from syno.search.storage.store import SCREENING, TrialStore, screening_attribute, with_withdrawn
from syno.search.tree import Tree, actions
from syno.search.trials import RunningTrial, StudyState
from syno.train.contract import FIT_ERROR, Evaluate, Evaluation, Report, Screening, evaluation_of
from syno.train.progress import Paused

if TYPE_CHECKING:
    import pandas


class StudyProgress:
    """Computes the progress of a study since a worker began, for a display."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._finished_before: int | None = None

    def progress(self, state: StudyState, title: str, total: int, notes: Mapping[str, object]) -> Progress:
        """Return the progress of a study of `total` trials, for a display."""
        if self._finished_before is None:
            self._finished_before = state.finished
        seconds = time.monotonic() - self._start
        return Progress(
            title,
            state.finished,
            total,
            valid=state.ended["complete"] + state.ended["pruned"] + len(state.paused),
            running=state.running,
            best=state.best[0] if state.best else None,
            seconds=seconds,
            rate=(state.finished - self._finished_before) / seconds if seconds > 0 else 0.0,
            notes=notes,
            screened=state.screened,
            fastest=state.fastest_screened,
        )


@contextmanager
def unfrozen_afterwards() -> Iterator[None]:
    """Undo `gc.freeze` at the end of the block.

    A full garbage collection visits every object. With 10,000 trials it takes most of a second and finds nothing. So
    `Scheduler` freezes all objects from time to time; after the block, collections visit them again.
    """
    try:
        yield
    finally:
        gc.unfreeze()


TOLD_TO_STOP = Result("interrupted", message="the worker was told to stop")


@dataclass
class TrialReport(Report):
    """The report of one trial, which may pause its evaluation.

    Attributes:
        trial: the trial.
        scheduler: the worker's view of the study.
        by: the value by which trials are compared at rungs: "loss", if the evaluation reports it, or the reported "score".
        known: metrics known before the first step.
    """

    trial: RunningTrial
    scheduler: Scheduler
    by: Literal["loss", "score"] = "loss"
    known: Mapping[str, float] = field(default_factory=dict)
    _loss: tuple[float, float] | None = None  # step and value of the last recent loss

    @property
    def passed(self) -> float:  # type: ignore[override]
        """The step after which an earlier trial of this operator paused; 0 if none did."""
        return max(self.trial.passed, 0)

    @property
    def looks(self) -> tuple[float, ...]:  # type: ignore[override]
        """The fractional steps, in ascending order, at which the recent loss is needed as well."""
        keep = self.scheduler.state.keep if self.by == "loss" else {}
        return tuple(step for step in keep if not isinstance(step, int))

    def recent_loss(self, step: float, loss: float) -> None:
        """Store the recent loss of a training: before the report of the value at this step, or at a fractional step.

        Raises Paused at a fractional step if the trial has to pause.
        """
        self._loss = (step, loss)
        if step in self.looks:
            self._compare(step, -loss)

    def measured(self, metrics: Mapping[str, float]) -> None:
        """Store metrics that are known before the first step. Raises Paused if the operator's fit error is too large for its
        rung.
        """
        self.known = {**self.known, **metrics}
        self.scheduler.store.annotate(self.trial.trial_id, SCREENING, screening_attribute(self.known))
        if FIT_ERROR in metrics:
            self._compare(OF_FIT, -metrics[FIT_ERROR])

    def __call__(self, step: int, value: float) -> None:
        """Store the value of this step. Raises Paused if the trial has to pause."""
        self.scheduler.store.report(self.trial.trial_id, step, value)
        at, loss = self._loss or (None, 0.0)
        compared = -loss if self.by == "loss" and at == step else value
        self._compare(step, compared)

    def _compare(self, step: float, value: float) -> None:
        if not self.scheduler.goes_on(self.trial, step, value):
            place = "the fit" if step == OF_FIT else f"step {step:g}"
            raise Paused(f"paused after {place}: others are ahead", step)


def run_trial(
    trial: RunningTrial, evaluate: Evaluation, reward: Reward, scheduler: Scheduler, by: Literal["loss", "score"] = "loss"
) -> Fault | None:
    """Evaluate the trial's operator, store the result and end the trial. Return the fault if the evaluation raised an error.

    If the machine is at fault, the trial is interrupted and thereby requeued. KeyboardInterrupt and SystemExit also interrupt
    it, and are raised.

    Args:
        trial: the trial, which this worker has just created.
        evaluate: returns the metrics of an operator.
        reward: the study's reward.
        scheduler: the worker's view of the study.
        by: value by which trials are compared; see `TrialReport`.
    """
    began, fault, report = time.monotonic(), None, TrialReport(trial, scheduler, by, trial.screening or {})

    def finish(result: Result) -> bool:
        seconds = round(time.monotonic() - began, 3)
        return scheduler.finish(trial, replace(result, seconds=seconds, metrics={**report.known, **result.metrics}))

    try:
        with scheduler.store.leases.kept(trial.trial_id):
            screening = _screening(trial, evaluate, scheduler)
            report.known = screening.metrics
            if screening.unmet is None:
                metrics = evaluate(trial.operator, report)
                measured = {str(name): float(value) for name, value in {**report.known, **metrics}.items()}
                result = _result(measured, reward(measured))
            else:
                result = Result("screened", message=screening.unmet, cause=screening.kind)
    except TrialPruned as error:
        result = Result("pruned", message=str(error))
    except Paused as error:
        result = Result("paused", message=str(error), step=error.step)
    except StorageError:  # nothing can be stored now; the next worker evaluates the operator again
        raise
    except Exception as error:
        fault = fault_of(error)
        kind: Kind = "interrupted" if fault.kind == "machine" else "failed"
        result = Result(kind, message=fault.message, fault=fault.kind, cause=fault.cause)
    except BaseException:
        finish(TOLD_TO_STOP)
        raise
    if finish(result):
        return fault
    warnings.warn(
        f"the result of trial {trial.number} came too late: no sign of life for longer than the grace, so the trial is "
        "retried. Raise grace_seconds if evaluations block the whole process",
        stacklevel=2,
    )
    return None


def _screening(trial: RunningTrial, evaluate: Evaluation, scheduler: Scheduler) -> Screening:
    """Return the screening of a trial's operator. A passed screening is stored, so that retries do not repeat it."""
    if trial.screening is not None:
        return Screening(trial.screening)
    screening = evaluate.screen(trial.operator)
    if screening is None:
        return Screening()
    if screening.unmet is None:
        scheduler.store.annotate(trial.trial_id, SCREENING, screening_attribute(screening.metrics))
    return screening


def _result(measured: Mapping[str, float], reward: float | Failure) -> Result:
    """Return the result of an evaluation with these metrics and this reward."""
    if isinstance(reward, Failure):
        return Result("failed", metrics=measured, message=reward.reason, fault=reward.fault, cause=reward.reason)
    return Result("complete", metrics=measured, reward=reward)


@dataclass(frozen=True)
class KnownResult:
    """An operator whose metrics are known before the search, so that it is not evaluated."""

    operator: PGraph
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Rejected:
    """An operator of the warm start that is not used, with the reason."""

    operator: PGraph
    reason: str


def _proposal(tree: Tree, operator: PGraph) -> Proposal:
    """Return the proposal of a known operator. Raises a SynoError if it is not in the tree."""
    return Proposal(actions(tree.path(operator)), tree.fingerprint(operator), operator)


class Study:
    """A stored search.

    A trial is the evaluation of one operator. Every operator is evaluated once, by one of the workers; if that worker dies, the
    operator is requeued. A worker is a process with a Study of the same settings; there is no server. With one worker, a study
    that is killed and run again, on a fresh tree, proposes the same operators as an uninterrupted one. A Study must not be used
    by several threads at once.

    Attributes:
        name: name of the study in its storage.
        rejected: operators of the warm start that are not in the space, or compute the same as others, with reasons.
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
        known: Sequence[KnownResult] | None = None,
        stopping: HalvingSettings | None = None,
        rounds: int | None = None,
        goal: Goal | None = None,
        layer_error: LayerError | None = None,
        most_attempts: int = 3,
        heartbeat_seconds: float = 60,
        grace_seconds: float = 180,
    ) -> None:
        """Open or create a study.

        Args:
            tree: the space to search.
            space_id: identifies the space, such as the id of its spec.
            more_settings: other values that the trials depend on, by name, as JSON, such as the options of the spec.
            name: name of the study in its storage.
            storage: URL of the storage; see `syno.search.storage.opening.open_storage`.
            policy: a name in `POLICIES`, or `package.module:name`.
            policy_settings: constants of the policy; its defaults if None.
            seed: seed of the policy.
            reward: computes the reward in [0, 1] from metrics; the accuracy reward by default.
            warm_start: operators to begin with, in this order.
            known: operators of the space whose metrics the policy learns before its first proposal. They are no trials.
            stopping: early stopping: which trials pause, to be resumed if they enter the best share; by default none pauses.
            rounds: number of reports of an evaluation, if known, for validation of `stopping`.
            goal: the goal, which the policy follows; the evaluation screens by it (`syno.search.screening`).
            layer_error: function by which the policy may compare operators before a proposal; see `Policy`.
            most_attempts: number of workers that die during an operator's evaluation after which it counts as failed.
            heartbeat_seconds: interval at which a worker renews the lease on its trial.
            grace_seconds: time without renewal after which a worker counts as dead.

        If no trial has succeeded yet, the study takes other settings with a warning; see `syno.search.settings.agree`.

        Raises:
            SpecError: the study exists with other settings (the message names them), the storage cannot be opened, or a path
                names no policy.
            UnknownNameError: the policy is not registered.
        """
        if not 0 < 2 * heartbeat_seconds <= grace_seconds:
            raise SpecError(
                f"grace_seconds is {grace_seconds:g}, and heartbeat_seconds {heartbeat_seconds:g}: a worker that lives would "
                "lose its trial; give at least twice as many grace_seconds"
            )
        self.name = name
        self.reward = reward or AccuracyReward()
        self.rejected: list[Rejected] = []
        kind = POLICIES.find(policy)
        proposals = self._proposals(tree, warm_start)
        known_to_policy: dict[str, Any] = {} if goal is None else {"goal": goal, "reward": self.reward}
        if layer_error is not None:
            known_to_policy["layer_error"] = layer_error
        told = [(_proposal(tree, known_result.operator), dict(known_result.metrics)) for known_result in known or ()]
        new_policy = partial(kind, tree, seed, settings=policy_settings, warm_start=proposals, **known_to_policy)
        self._make_policy = partial(self._knowing, new_policy, told)
        self.policy: Policy = self._make_policy()
        more = dict(more_settings or {})
        if known is not None:
            more[KNOWN] = [
                {"operator": str(known_result.operator), "metrics": dict(known_result.metrics)} for known_result in known
            ]
        if goal is not None:
            more[GOAL] = goal.model_dump(mode="json", exclude={"most_screened"}, exclude_none=True)
        self._by, keep = "loss" if stopping is None else stopping.by, None
        if stopping is not None:
            keep = stopping.rungs(rounds)
            more["stopping"] = {"keep": {str(step): share for step, share in keep.items()}, "by": stopping.by}
        self.settings = study_settings(space_id, self.policy, self.reward, proposals, most_attempts, more)
        with database_errors(storage):
            self._store = TrialStore(*open_storage(storage, heartbeat_seconds, grace_seconds), name, storage)
            agree(self._store, self.settings, storage)
        self._terminator = Terminator(self._store, self.settings)
        self._make_scheduler = partial(
            Scheduler, self._store, most_attempts=most_attempts, terminator=self._terminator, keep=keep
        )
        self._scheduler = self._make_scheduler(self.policy)

    def _proposals(self, tree: Tree, operators: Sequence[PGraph]) -> list[Proposal]:
        proposals: dict[str, Proposal] = {}
        for operator in operators:
            try:
                proposal = _proposal(tree, operator)
            except SynoError as error:
                self.rejected.append(Rejected(operator, str(error)))
                continue
            if proposal.fingerprint in proposals:
                same = proposals[proposal.fingerprint].operator
                self.rejected.append(
                    Rejected(operator, f'it computes the same as "{same.name}" ({same.id[:8]}), which is earlier in the list')
                )
                continue
            proposals[proposal.fingerprint] = proposal
        for rejected in self.rejected:
            warnings.warn(f'warm start without "{rejected.operator.name}": {rejected.reason}', stacklevel=3)
        return list(proposals.values())

    def _knowing(self, new_policy: Callable[[], Policy], told: Sequence[tuple[Proposal, dict[str, float]]]) -> Policy:
        """Return a new policy that has learnt the metrics of these operators."""
        policy = new_policy()
        for proposal, metrics in told:
            policy.adopt(proposal)
            policy.measure(proposal, metrics)
            policy.tell(proposal, self.reward(metrics))
        return policy

    def run(
        self,
        evaluate: Evaluation | Evaluate,
        n_trials: int,
        most_screened: float = inf,
        *,
        display: Display | None = None,
        notes: Callable[[], Mapping[str, object]] = dict,
        alone: bool = False,
        wait: bool = True,
        poll_seconds: float = 1.0,
    ) -> None:
        """Run as a worker until the study has `n_trials` finished trials, or no operator is left.

        Trials of all workers and of earlier runs count. Finished trials are complete, pruned, paused or failed ones, not
        interrupted, screened-out, withdrawn or duplicate ones. An operator counts once, however often it paused. The number
        never exceeds `n_trials`, whatever the number of workers.

        Args:
            evaluate: returns the metrics of an operator. An exception fails the trial, and the study goes on (but see below).
            n_trials: the study's total number of trials.
            most_screened: number of screened-out operators after which no more are proposed.
            display: shows the progress after every trial.
            notes: returns further values to show by name, such as counts of rejected steps.
            alone: whether there are no other workers, so that running trials belong to dead workers. Workers that died on this
                machine are recognised anyway; others when their grace period is over.
            wait: whether to wait, when no trial is left to begin, for the last trials of other workers, in case they are
                interrupted. False: wait only for workers that are not visible, as on other machines; those of this machine are
                restarted by others.
            poll_seconds: interval of the checks during this wait.

        KeyboardInterrupt and SystemExit are raised; the current trial is retried by the next worker.

        Raises SearchStoppedError if failures are not caused by operators (`syno.search.faults` classifies them): the machine
        failed twice in a row, or the evaluation failed alike in several trials in a row, or in all. These trials do not count:
        the next run evaluates their operators again.
        """
        if n_trials < 0:
            raise SpecError(f"n_trials={n_trials}; it is the study's total, 0 or more")
        if self._terminator.is_outdated:
            self._forget()
        evaluation, scheduler, progress, machine_faults = evaluation_of(evaluate), self._scheduler, StudyProgress(), 0
        scheduler.begin(alone=alone)
        told = 0  # number of operators whose deaths were reported
        try:
            with unfrozen_afterwards(), display or nullcontext():
                while True:
                    with seldom_collected():
                        trial = scheduler.next(n_trials, most_screened)
                    for operator in scheduler.stopped_for_good():
                        evaluation.forget(operator)
                    for entry in scheduler.state.died[told:]:
                        warnings.warn(
                            f'study "{self.name}": the operator of trial {entry.number} counts as failed: '
                            f"{deaths_in_words(len(entry.numbers))}",
                            stacklevel=2,
                        )
                    told = len(scheduler.state.died)
                    try:
                        if display is not None:
                            display.show(progress.progress(scheduler.state, self.name, n_trials, notes()))
                    except BaseException:  # a display may tell the worker to stop; the trial has begun
                        if trial is not None:
                            scheduler.finish(trial, TOLD_TO_STOP)
                        raise
                    if trial is not None:
                        fault = run_trial(trial, evaluation, self.reward, scheduler, self._by)
                        machine_faults = machine_faults + 1 if fault is not None and fault.kind == "machine" else 0
                        if fault is None or not machine_faults:
                            continue
                        if fault.lasts or machine_faults >= MACHINE_ATTEMPTS:
                            raise stopped_by_machine(self.name, fault)
                    elif not scheduler.has_unfinished(n_trials, seen=wait):
                        break
                    time.sleep(poll_seconds)
            self._terminator.check_end(scheduler.state, n_trials)
        except SearchStoppedError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Start anew with a new policy, since the current one has learnt from withdrawn trials."""
        self.policy = self._make_policy()
        self._scheduler = self._make_scheduler(self.policy)

    def kept(self, name: str) -> Any:
        """Return the value that `keep` stored with the study under this name; None if there is none."""
        with database_errors(self._store.place):
            return self._store.attributes.get(f"kept {name}")

    def keep(self, name: str, value: object) -> None:
        """Store a value with the study, as JSON, in place of an earlier one."""
        with database_errors(self._store.place):
            self._store.describe(f"kept {name}", value)

    @property
    def trials(self) -> pandas.DataFrame:
        """All trials as a table, with the columns of `syno.search.storage.records.table`."""
        return table(with_withdrawn(self._store.trials(), self._store.attributes))

    def best(self, count: int = 1) -> list[TrialRecord]:
        """Return the complete trials with the highest rewards, best first; among equal rewards, the earlier first."""
        return best_records(self._store.trials(), count)
