"""A search on a table: the policy proposes, and the table answers in place of a training."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias

from syno.base.errors import SpecError
from syno.paper.replay.entries import PARTS, TableEntry
from syno.paper.replay.stopping import TableTree
from syno.paper.replay.table import OperatorTable, Subset
from syno.search.halving import HalvingSettings, Rungs
from syno.search.policies.contract import STOPPED, Policy, PolicySettings, Proposal
from syno.search.reward import AccuracyReward, Failure, Outcome, Reward

REWARD = AccuracyReward(low=0.2, high=1.0, power=4)  # no operator reaches 1, so that all are told apart
SEARCH_SEED = 0  # of the trainings that a search sees

Stops: TypeAlias = Callable[[Sequence[float], Sequence[Sequence[float]]], bool]
"""A stopping rule. It is called after each epoch but the last with the accuracies of the training so far, and with those of all
trials that ended before, in the order of their ends; it returns whether the training ends now."""


@dataclass(frozen=True)
class ReplayedTrial:
    """One trial of a replay.

    Attributes:
        number: the number of the proposal, from 0.
        entry: the operator's row of the table.
        accuracies: accuracy after each epoch that was trained.
        stopped: whether a stopping rule ended the training.
        reward: the reward told to the policy, or the reason why there is none.
        cpu_seconds: CPU-seconds of the training.
        finished: seconds from the start of the search to the end of the training. With one worker: the CPU-seconds of all
            trials so far.
        begun: number of trials begun by then.
    """

    number: int
    entry: TableEntry
    accuracies: tuple[float, ...]
    stopped: bool
    reward: Outcome
    cpu_seconds: float
    finished: float
    begun: int

    @property
    def accuracy(self) -> float:
        """The accuracy after the last epoch that was trained; 0 if none was trained to its end."""
        return self.accuracies[-1] if self.accuracies else 0.0


def milestones(bounds: Mapping[int, float]) -> Stops:
    """Return the stopping rule that ends a training whose accuracy is below an epoch's bound; epochs count from 1."""

    def stops(curve: Sequence[float], ended: Sequence[Sequence[float]]) -> bool:
        return curve[-1] < bounds.get(len(curve), 0.0)

    return stops


def never(curve: Sequence[float], ended: Sequence[Sequence[float]]) -> bool:
    """Return False: the stopping rule that ends no training."""
    return False


def replay(
    table: OperatorTable,
    policy: type[Policy] | Callable[[TableTree, int], Policy],
    *,
    seed: int = 0,
    trials: int = 100,
    tree: TableTree | None = None,
    settings: PolicySettings | None = None,
    reward: Reward = REWARD,
    stops: Stops = never,
    stopping: HalvingSettings | None = None,
    workers: int = 1,
) -> list[ReplayedTrial]:
    """Return the trials of a search on the table, in the order of their ends. Equal arguments give equal trials.

    A search sees the accuracies of one training seed, as a live one does. Each of the simulated workers proposes an operator,
    spends the CPU-seconds of its training, and tells the reward.

    Args:
        table: the table.
        policy: a policy's class, or a function that makes a policy of a tree and a seed.
        seed: the seed of the policy.
        trials: the largest number of trials; a replay ends earlier if the policy has no operator left.
        tree: the tree of operators that may be proposed; by default all of the table.
        settings: settings of the policy, if it is a class.
        reward: computes the reward from accuracy and costs.
        stops: the stopping rule. A stopped training takes CPU-seconds in proportion to its epochs.
        stopping: as `study: stopping`; trials still paused at the end come last, with `stopped` true.
        workers: number of simulated workers, which train at the same time.
    """
    tree = table.tree(Subset.ALL) if tree is None else tree
    made = partial(policy, settings=settings) if isinstance(policy, type) else policy
    proposing = made(tree, seed)
    if stopping is not None:
        assert stops is never, "one stopping rule at a time"
        return _Halved(table, proposing, tree, reward, stopping).run(trials, workers)
    running: list[tuple[float, int, Proposal, ReplayedTrial]] = []
    ended, asked, now = list[ReplayedTrial](), 0, 0.0
    while True:
        while len(running) < workers and asked < trials:
            proposal = proposing.ask()
            if not isinstance(proposal, Proposal):
                break
            entry = tree.operators[proposal.operator.id]
            trial = _trained(table, entry, asked, now, reward, stops, [one.accuracies for one in ended])
            heappush(running, (trial.finished, asked, proposal, trial))
            asked += 1
        if not running:
            return ended
        now, _, proposal, trial = heappop(running)
        proposing.tell(proposal, trial.reward)
        ended.append(replace(trial, begun=asked))


def _trained(
    table: OperatorTable,
    entry: TableEntry,
    number: int,
    start: float,
    reward: Reward,
    stops: Stops,
    ended: Sequence[Sequence[float]],
) -> ReplayedTrial:
    whole = entry.accuracies[SEARCH_SEED]
    epochs = next((epoch for epoch in range(1, len(whole)) if stops(whole[:epoch], ended)), len(whole))
    stopped = epochs < len(whole)
    outcome: float | Failure = STOPPED if stopped else reward(table.metrics(entry, SEARCH_SEED))
    seconds = entry.cpu_seconds[SEARCH_SEED] * epochs / len(whole)
    return ReplayedTrial(number, entry, whole[:epochs], stopped, outcome, seconds, start + seconds, number + 1)


class _Halved:
    """A simulated search with `stopping`: trials pause at rungs, and the best are resumed, as in a study."""

    def __init__(
        self, table: OperatorTable, policy: Policy, tree: TableTree, reward: Reward, stopping: HalvingSettings
    ) -> None:
        self.table, self.policy, self.tree, self.reward, self.by = table, policy, tree, reward, stopping.by
        self.last = len(table.original.accuracies[SEARCH_SEED])
        self.rungs = Rungs(stopping.rungs(self.last))
        if other := [step for step in self.rungs.keep if step * PARTS % 1]:
            raise SpecError(f"stopping: keep has {other[0]:g}, and a table has losses of quarters of epochs only, such as 0.25")
        self.steps = [*self.rungs.keep, self.last]
        self.asked: list[tuple[Proposal, TableEntry]] = []
        self.epochs: list[float] = []  # of each trial
        self.paused: dict[int, float] = {}  # since when
        self.stopped: dict[int, float] = {}

    def run(self, trials: int, workers: int) -> list[ReplayedTrial]:
        ended, running, now = list[ReplayedTrial](), list[tuple[float, int]](), 0.0
        while True:
            while len(running) < workers and (number := self._next(trials)) is not None:
                heappush(running, (now + self._seconds(number), number))
            if not running:
                left = sorted((since, number) for number, since in (self.paused | self.stopped).items())
                return ended + [self._ended(number, since) for since, number in left]
            now, number = heappop(running)
            self.epochs[number] = self._next_step(number)
            if self.epochs[number] == self.last:
                ended.append(self._ended(number, now))
                self.policy.tell(self.asked[number][0], ended[-1].reward)
            elif self._goes_on(number, now):
                heappush(running, (now + self._seconds(number), number))

    def _next(self, trials: int) -> int | None:
        """Return the number of the trial to resume or begin next; None if there is none."""
        if best := self.rungs.best({number: self.epochs[number] for number in self.paused}):
            del self.paused[best[0]]
            return best[0]
        proposal = self.policy.ask() if len(self.asked) < trials else None
        if not isinstance(proposal, Proposal):
            return None
        self.asked.append((proposal, self.tree.operators[proposal.operator.id]))
        self.epochs.append(0)
        return len(self.asked) - 1

    def _next_step(self, number: int) -> float:
        return self.steps[bisect_right(self.steps, self.epochs[number])]

    def _seconds(self, number: int) -> float:
        """Return the CPU-seconds of a trial up to its next rung, or to the end of its training."""
        return self._cpu_seconds(number, self._next_step(number) - self.epochs[number])

    def _cpu_seconds(self, number: int, epochs: float) -> float:
        return self.asked[number][1].cpu_seconds[SEARCH_SEED] / self.last * epochs

    def _goes_on(self, number: int, now: float) -> bool:
        step, (proposal, entry) = self.epochs[number], self.asked[number]
        loss = self.by == "loss"
        value = -entry.recent_loss(SEARCH_SEED, step) if loss else entry.accuracies[SEARCH_SEED][int(step) - 1]
        self.rungs.enter(number, step, value)
        self.policy.report(proposal, step, self.rungs.value(number, step))
        if goes_on := self.rungs.goes_on(number, step):
            return goes_on
        self.paused[number] = now
        for other in [other for other in self.paused if self.rungs.is_overtaken(other, self.epochs[other])]:
            self.stopped[other] = self.paused.pop(other)
            self.policy.stop(self.asked[other][0])
        return False

    def _ended(self, number: int, now: float) -> ReplayedTrial:
        epochs, entry = self.epochs[number], self.asked[number][1]
        stopped = epochs < self.last
        outcome: Outcome = STOPPED if stopped else self.reward(self.table.metrics(entry, SEARCH_SEED))
        accuracies, seconds = entry.accuracies[SEARCH_SEED][: int(epochs)], self._cpu_seconds(number, epochs)
        return ReplayedTrial(number, entry, accuracies, stopped, outcome, seconds, now, len(self.asked))
