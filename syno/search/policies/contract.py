"""Checks that a policy keeps the guarantees of `Policy`, for tests of users' own policies.

Each check takes a policy's class, and raises AssertionError if the policy breaks a guarantee. With pytest:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_policy(check):
        check(MyPolicy)

>>> from syno.search.policies import RandomWalk
>>> for check in CHECKS: check(RandomWalk)
"""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from pydantic import ConfigDict

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import Settings
from syno.ir.graph import PGraph
from syno.ir.text import parse_stored
from syno.search.goal import Goal
from syno.search.reward import Failure, Outcome, Reward
from syno.search.tree import Action, Tree, TreeStep, actions
from syno.search.walks import LIMIT, Draws, Walks
from syno.space.space import Space
from syno.space.spec import OperatorSpec

__all__ = ["EXHAUSTED", "POLICIES", "STOPPED", "Candidate", "Exhausted", "LayerError", "Policy", "PolicySettings", "Proposal"]

# Operators as policies identify them (candidates), and the proposals of policies.


@dataclass(frozen=True)
class Candidate:
    """An operator as policies identify it: by its path and fingerprint.

    Attributes:
        path: the actions from the root to the operator, the last one a Finalize.
        fingerprint: equal for operators that compute the same.
        text: the operator's text, if known.
    """

    path: tuple[Action, ...]
    fingerprint: str
    text: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    def parsed(self) -> PGraph | None:
        """Return the operator, parsed from its text, which is faster than walking its path; None if the text is unknown."""
        return None if self.text is None else parse_stored(self.text)


@dataclass(frozen=True)
class Proposal(Candidate):
    """A candidate with its operator, proposed for evaluation."""

    operator: PGraph

    def parsed(self) -> PGraph:
        """Return the operator of the proposal, which is known without parsing."""
        return self.operator


class Exhausted(Enum):
    """The answer of a policy when its tree has no operator left. It is final, even while trials are running."""

    EXHAUSTED = "exhausted"


EXHAUSTED: Final = Exhausted.EXHAUSTED


STOPPED: Final = 0.0  # the reward of an operator whose evaluation was stopped, for policies that learn from rewards alone


LayerError: TypeAlias = Callable[[PGraph], float]


class PolicySettings(Settings):
    """Base class of policies' settings: a policy's subclass has a field for each of the policy's constants."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Policy(ABC):
    """A policy: decides which operator is evaluated next.

    A subclass defines `_choose`, and `Settings` if it has constants; it may override `_prepare`, `_adopt`, `_observe`,
    `_reported` and `_stopped` to learn from outcomes. Experiments name it as `policy: {name: "package.module:MyPolicy"}`.

    A policy sees three events. `ask` proposes an operator, which is outstanding until `tell` gives its outcome; any number may
    be outstanding, and outcomes come in any order. `adopt` records a proposal made elsewhere, by another worker or before a
    restart. `ask` is `propose`, which changes nothing, followed by `adopt`. With early stopping there are two more: `report`
    gives an intermediate value of an outstanding operator, and `stop` says that it will never be trained to its end; by
    default, policies ignore intermediate values, and give stopped operators the reward 0. In a search with a goal, `measure`
    gives metrics, and `screen_out` says that an operator cannot meet the goal; by default, its reward is 0. Every policy
    guarantees (`syno.search.policies.contract` checks it):

    * Its proposals depend only on the tree, the settings, the seed, the goal, the reward, the layer errors and the sequence of
      events. So a policy is rebuilt by replaying the stored events. If the tree caches dead ends, the replay repeats the
      proposals, too, on a tree with the same knowledge.
    * It proposes or adopts each fingerprint only once.
    * It proposes every operator of the tree sooner or later, then answers EXHAUSTED.
    * The operators of the warm start come first, in their order.
    * A failed evaluation is an outcome like any other.

    A `salt` gives another proposal in the same state. A worker whose proposal collides with another worker's uses a salt of its
    own from then on, so that the two diverge.

    Attributes:
        name: the name in experiments and in stored settings; by default the path `package.module:MyPolicy`.
        Settings: the class of its settings, which checks what an experiment gives.
        tree: the space.
        seed: seed of all its random numbers.
        settings: its constants, an instance of `Settings`.
        goal: the goal of the search; None if it has none.
        reward: the function whose values `tell` gets, in a search with a goal; None in other searches.
        layer_error: if operators are initialized by a fit to the trained original, a function that returns the error of an
            operator's fit to one layer (`syno.train.workload.Workload.layer_error`), in a fraction of a second; else None.
        walks: random walks in the tree that avoid dead ends and proposed operators.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]] = PolicySettings

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    def __init__(
        self,
        tree: Tree,
        seed: int = 0,
        *,
        settings: PolicySettings | None = None,
        warm_start: Sequence[Proposal] = (),
        limit: int = LIMIT,
        goal: Goal | None = None,
        reward: Reward | None = None,
        layer_error: LayerError | None = None,
    ) -> None:
        self.tree = tree
        self.goal = goal
        self.reward = reward
        self.layer_error = layer_error
        self.seed = seed
        self.settings = settings if settings is not None else self.Settings()
        if not isinstance(self.settings, self.Settings):
            raise SpecError(f'policy "{self.name}" takes {self.Settings.__name__}; given: {type(self.settings).__name__}')
        self.walks = Walks(tree, limit)
        self._warm_start = tuple(warm_start)
        self._outstanding: dict[str, Candidate] = {}
        self._proposed = 0  # by all workers
        self._prepare()

    def ask(self, salt: str = "") -> Proposal | Exhausted:
        """Return the next operator to evaluate, which becomes outstanding; or EXHAUSTED."""
        proposal = self.propose(salt)
        if isinstance(proposal, Proposal):
            self.adopt(proposal)
        return proposal

    def propose(self, salt: str = "") -> Proposal | Exhausted:
        """Return the answer of `ask` without changing the state.

        Raises SpecError if operators are too rare in the tree to be found.
        """
        draws = Draws(self.name, self.seed, self._proposed, salt)
        waiting = [proposal for proposal in self._warm_start if proposal.fingerprint not in self.walks.taken]
        if waiting:
            return draws.generator().choice(waiting) if salt else waiting[0]
        path = None if self.walks.is_closed(self.tree.root) else self._choose(draws)
        if path is None:
            return EXHAUSTED
        operator = path[-1].operator
        assert operator is not None, "a path ends in a Finalize"
        return Proposal(actions(path), self.walks.fingerprint(path[-1]), operator)

    @property
    def found_closed(self) -> list[str]:
        """Names of nodes in which this worker found no operators left, not yet passed to `hear_closed`."""
        return self.walks.found_closed

    def hear_closed(self, names: Iterable[str]) -> None:
        """Mark nodes as closed in which a worker found no operators left; that worker knew no more proposals than this policy.

        This saves time and changes no proposal.
        """
        self.walks.hear_closed(names)

    def adopt(self, candidate: Candidate) -> None:
        """Record that a worker proposed this operator and is evaluating it.

        Raises SpecError if its fingerprint was proposed before.
        """
        if candidate.fingerprint in self.walks.taken:
            raise SpecError(
                f"the operator with fingerprint {candidate.fingerprint} was proposed already; each is proposed once"
            )
        self.walks.taken.add(candidate.fingerprint)
        self._outstanding[candidate.fingerprint] = candidate
        self._proposed += 1
        self._adopt(candidate)

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record the outcome of an outstanding operator: its reward in [0, 1], or a Failure.

        Raises SpecError if it is not outstanding, or if the reward is out of range.
        """
        if isinstance(outcome, float | int) and not 0 <= outcome <= 1:
            raise SpecError(f"a reward is in [0, 1], or a Failure; given: {outcome}")
        self._observe(self._no_longer_outstanding(candidate), outcome)

    def report(self, candidate: Candidate, step: float, value: float) -> None:
        """Record an intermediate value of an operator at a step of its evaluation.

        The operator remains outstanding: its evaluation continues or pauses. Values at the same step are comparable (higher is
        better, -inf is worst); they are no rewards. Operators that are not outstanding are ignored.
        """
        if (adopted := self._outstanding.get(candidate.fingerprint)) is not None:
            self._reported(adopted, step, value)

    def stop(self, candidate: Candidate) -> None:
        """Record that the evaluation of an outstanding operator was stopped for good, because others are far ahead.

        Raises SpecError if it is not outstanding.
        """
        self._stopped(self._no_longer_outstanding(candidate))

    def measure(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:
        """Record metrics of an outstanding operator by name, before its outcome or an intermediate value."""
        if metrics and (adopted := self._outstanding.get(candidate.fingerprint)) is not None:
            self._measured(adopted, metrics)

    def screen_out(self, candidate: Candidate) -> None:
        """Record that an outstanding operator cannot meet the goal and is not evaluated.

        Raises SpecError if it is not outstanding.
        """
        self._screened(self._no_longer_outstanding(candidate))

    def _no_longer_outstanding(self, candidate: Candidate) -> Candidate:
        adopted = self._outstanding.pop(candidate.fingerprint, None)
        if adopted is None:
            known = "told already" if candidate.fingerprint in self.walks.taken else "neither proposed nor adopted"
            raise SpecError(f"the operator with fingerprint {candidate.fingerprint} is not outstanding: it was {known}")
        return adopted

    def _prepare(self) -> None:  # noqa: B027  (optional)
        """Set up the policy's state before the first event."""

    @abstractmethod
    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return a path to an operator that was not proposed or adopted yet; None if there is none.

        Must not change the state.
        """

    def _adopt(self, candidate: Candidate) -> None:  # noqa: B027
        """Record a candidate that becomes outstanding."""

    def _observe(self, candidate: Candidate, outcome: Outcome) -> None:  # noqa: B027
        """Record the outcome of a candidate that is no longer outstanding."""

    def _reported(self, candidate: Candidate, step: float, value: float) -> None:  # noqa: B027
        """Record the intermediate value of an outstanding candidate at a step."""

    def _measured(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:  # noqa: B027
        """Record metrics of an outstanding candidate."""

    def _screened(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, cannot meet the goal. Default: the reward 0."""
        self._observe(candidate, STOPPED)

    def _stopped(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, was stopped for good. Default: the reward 0."""
        self._observe(candidate, STOPPED)


def _is_policy(value: object) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Policy)
        and not inspect.isabstract(value)
        and issubclass(value.Settings, PolicySettings)
    )


POLICIES: Registry[type[Policy]] = Registry(
    "search policy",
    accepts=_is_policy,
    needed="a subclass of syno.search.policies.Policy with a method _choose, whose Settings, if any, are PolicySettings",
)


MakeTree: TypeAlias = Callable[[], Tree]


class Event(NamedTuple):
    """An event in the life of a policy: a proposal, or the outcome of a proposal."""

    proposal: Proposal
    outcome: Outcome | None = None


def small_space() -> Space:
    """Return a new space of 24 operators with some dead ends: `[N, M] -> [N, K]` in at most four primitives."""
    return Space(
        OperatorSpec(
            name="matmul",
            input="N, M",
            output="N, K",
            variables="N:0, M:2, K:2; s=2:2",
            layers=[{"N": 4, "M": 64, "K": 32}],
            bound_axes=[(0, 0)],
            occurrences={"tensors": 3},
            contractions={"least_elements": 4},
            depth=4,
        )
    )


def outcome_of(proposal: Proposal) -> Outcome:
    """Return an artificial outcome of a proposal, the same for equal operators. One in seven is a failure."""
    number = int(proposal.operator.id, 16)
    return Failure("made up") if number % 7 == 0 else number % 101 / 100


def drive(policy: Policy, count: int, at_once: int = 1, seed: int = 0) -> list[Event]:
    """Ask a policy for `count` proposals, or until the tree is exhausted, and tell it outcomes in random order.

    Up to `at_once` proposals are outstanding at a time. Returns the events. At the end, fewer than `at_once` proposals are
    outstanding.
    """
    order, happened, waiting = random.Random(seed), list[Event](), list[Proposal]()
    for _ in range(count):
        proposal = policy.ask()
        if not isinstance(proposal, Proposal):
            break
        happened.append(Event(proposal))
        waiting.append(proposal)
        while len(waiting) >= at_once:
            told = waiting.pop(order.randrange(len(waiting)))
            happened.append(Event(told, outcome_of(told)))
            policy.tell(told, outcome_of(told))
    return happened


def replay(policy: Policy, happened: list[Event]) -> None:
    """Rebuild a policy as a worker does from stored trials: by paths and fingerprints, without operators."""
    for proposal, outcome in happened:
        candidate = Candidate(proposal.path, proposal.fingerprint)
        if outcome is None:
            policy.adopt(candidate)
        else:
            policy.tell(candidate, outcome)


def check_seed(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 15) -> None:
    """Check that equal seeds give equal proposals, and different seeds give different proposals."""
    first, again, other = (drive(kind(make_tree(), seed), count) for seed in (1, 1, 2))
    assert first == again, "two policies with equal seeds made different proposals"
    assert first != other, "two policies with different seeds made the same proposals"


def check_rebuilt(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 15, at_once: int = 3) -> None:
    """Check that a policy that is rebuilt from stored events makes the same proposals, on a tree that learns the same."""
    happened, rebuilt = drive(kind(make_tree(), 3), count, at_once), kind(make_tree(), 3)
    for event in happened:
        if event.outcome is None:
            assert rebuilt.propose() == event.proposal, (
                "a policy rebuilt from adopted and told trials proposed another operator"
            )
        replay(rebuilt, [event])


def check_paused(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 12) -> None:
    """Check that a policy that receives intermediate values and stops can be rebuilt, and continues to propose."""
    policy, again = kind(make_tree(), 8), kind(make_tree(), 8)
    for number in range(count):
        proposal = policy.ask()
        assert isinstance(proposal, Proposal) and proposal == again.propose(), "a rebuilt policy proposed another operator"
        candidate = Candidate(proposal.path, proposal.fingerprint, text=str(proposal.operator))
        again.adopt(candidate)
        for told_policy, operator in ((policy, proposal), (again, candidate)):
            told_policy.report(operator, 1, int(proposal.operator.id, 16) % 101 / 100)
            if number % 3 == 0:
                told_policy.tell(operator, outcome_of(proposal))
            elif number % 3 == 1:
                told_policy.stop(operator)


def check_proposing_changes_nothing(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 8) -> None:
    """Check that repeated calls of `propose` return the same proposal, once all dead ends on the way are known."""
    policy = kind(make_tree(), 4)
    drive(policy, count)
    proposals = [policy.propose() for _ in range(8)]
    assert proposals[-2] == proposals[-1] == policy.ask() != policy.propose(), "a call of propose changed the next one"


def check_paths(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that each proposal is a path of the tree to its operator."""
    tree = make_tree()
    policy = kind(tree)
    while isinstance(proposal := policy.ask(), Proposal):
        node, operator = tree.root, None
        for action in proposal.path:
            step = next((step for step in tree.steps(node) if Action(step.kind, step.id) == action), None)
            assert step is not None, f"{action} is no step of the tree"
            node, operator = step.node, step.operator
        assert operator == proposal.operator, "the path leads to another operator"
        assert proposal.fingerprint == tree.fingerprint(proposal.operator), "the fingerprint is of another operator"


def check_every_operator_once(kind: type[Policy], make_tree: MakeTree = small_space, at_once: int = 3) -> None:
    """Check that every operator of the tree is proposed once, after which the policy stays exhausted."""
    fingerprints = _all_fingerprints(make_tree())
    policy = kind(make_tree(), 7)
    happened = drive(policy, len(fingerprints) + 1, at_once)
    proposed = [event.proposal.fingerprint for event in happened if event.outcome is None]
    assert len(proposed) == len(set(proposed)), "an operator was proposed twice"
    assert set(proposed) == fingerprints, f"{len(proposed)} of {len(fingerprints)} operators were proposed"
    assert policy.ask() is EXHAUSTED and policy.ask() is EXHAUSTED, "the policy went on when no operator was left"


def check_adopted(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that an operator that another worker proposed is not proposed again."""
    adopted = [event.proposal for event in drive(kind(make_tree(), 1), 8) if event.outcome is None]
    policy = kind(make_tree(), 2)
    for proposal in adopted:
        policy.adopt(Candidate(proposal.path, proposal.fingerprint))
    proposed = {event.proposal.fingerprint for event in drive(policy, 1000)}
    assert proposed.isdisjoint(proposal.fingerprint for proposal in adopted), "an adopted operator was proposed again"


def check_failures(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that the policy proposes every operator even if all evaluations fail."""
    policy, count = kind(make_tree()), 0
    while isinstance(proposal := policy.ask(), Proposal):
        policy.tell(proposal, Failure("made up"))
        count += 1
    assert count == len(_all_fingerprints(make_tree())), "operators were left out after failures"


def check_screened(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that the policy proposes every operator even if all are screened out, and that a rebuilt policy proposes the
    same.
    """
    first, rebuilt, count = kind(make_tree(), goal=Goal(speedup=2.0)), kind(make_tree(), goal=Goal(speedup=2.0)), 0
    while isinstance(proposal := first.ask(), Proposal):
        assert rebuilt.propose() == proposal, "a policy that was told the same proposes something else"
        rebuilt.adopt(proposal)
        for told_policy in (first, rebuilt):
            told_policy.measure(proposal, {"speedup": 1 + int(proposal.operator.id, 16) % 101 / 101})
            told_policy.screen_out(proposal)
        count += 1
    assert count == len(_all_fingerprints(make_tree())), "operators were left out after others were screened"


def check_salt(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that a salt changes the proposal, and that equal salts give equal proposals."""
    policy = kind(make_tree())
    assert len({policy.propose(salt) for salt in map(str, range(12))}) > 1, "all salts gave the same proposal"
    assert policy.propose("1") == policy.propose("1"), "the same salt gave two proposals"


def check_warm_start(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Check that operators of the warm start come first, in order, except those that another worker has proposed."""
    start = [event.proposal for event in drive(kind(make_tree(), 5), 4) if event.outcome is None]
    policy = kind(make_tree(), 6, warm_start=start)
    policy.adopt(start[0])
    assert [policy.ask() for _ in start[1:]] == start[1:], "the warm start did not come first"


def _all_fingerprints(tree: Tree) -> set[str]:
    """Return the fingerprints of all operators of a tree."""
    fingerprints, seen, pending = set[str](), {tree.root}, [tree.root]
    while pending:
        for step in tree.steps(pending.pop()):
            if step.operator is not None:
                fingerprints.add(tree.fingerprint(step.operator))
            elif step.node not in seen:
                seen.add(step.node)
                pending.append(step.node)
    return fingerprints


CHECKS: tuple[Callable[[type[Policy]], None], ...] = (
    check_seed,
    check_rebuilt,
    check_paused,
    check_proposing_changes_nothing,
    check_paths,
    check_every_operator_once,
    check_adopted,
    check_failures,
    check_screened,
    check_salt,
    check_warm_start,
)
