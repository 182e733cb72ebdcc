"""Checks that a policy keeps the guarantees of `Policy`, for the tests of policies of a user's own.

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

# Operators as policies know them: candidates, and the proposals that policies make.


@dataclass(frozen=True)
class Candidate:
    """An operator as a policy knows it.

    Attributes:
        path: the actions from the root to it, the last one a Finalize.
        fingerprint: equal for operators with equal meaning.
        text: of the operator, if known.
    """

    path: tuple[Action, ...]
    fingerprint: str
    text: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    def parsed(self) -> PGraph | None:
        """Return the operator; None if its text is not known. This is faster than taking the steps of its path."""
        return None if self.text is None else parse_stored(self.text)


@dataclass(frozen=True)
class Proposal(Candidate):
    """A candidate with its operator, to be evaluated."""

    operator: PGraph

    def parsed(self) -> PGraph:
        """Return the operator."""
        return self.operator


class Exhausted(Enum):
    """The answer of a policy whose tree has no operator left. It is final, even while trials are running."""

    EXHAUSTED = "exhausted"


EXHAUSTED: Final = Exhausted.EXHAUSTED


STOPPED: Final = 0.0  # the reward of an operator whose evaluation was stopped, for policies that learn from rewards alone


LayerError: TypeAlias = Callable[[PGraph], float]


class PolicySettings(Settings):
    """Base of the settings of policies: a policy's own subclass has a field for each constant."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Policy(ABC):
    """Decides which operator is evaluated next.

    A subclass has `_choose`, and `Settings` if it has constants; it may override `_prepare`, `_adopt`, `_observe`,
    `_reported` and `_stopped` to learn from outcomes. Experiments give it as `policy: {name: "package.module:MyPolicy"}`.

    A policy sees three events. `ask` proposes an operator, which is outstanding until `tell` gives its outcome; any number may
    be outstanding, and outcomes come in any order. `adopt` records a proposal made elsewhere, by another worker or before a
    restart. `ask` is `propose`, which changes nothing, followed by `adopt`. Where trials pause there are two more: `report`
    gives a value that an outstanding operator has reached on the way, and `stop` says that it is never trained to its end; by
    default, policies ignore values, and give an operator that was stopped the reward 0. Where a search has a goal, `measure`
    gives metrics, and `screen_out` says that an operator cannot meet the goal: by default, the reward 0. Every policy
    guarantees (`syno.search.policies.contract` checks it):

    * Its proposals are a function of the tree, the settings, the seed, the goal, the reward, the layer errors and the events so
      far in their order, of nothing else. So a policy is rebuilt by adopting and telling what is stored. If the tree learns
      about dead ends, the policy also proposes again, on a tree that knows no more than the first one did.
    * It never proposes an operator whose fingerprint it has proposed or adopted.
    * It proposes every operator of the tree sooner or later, then answers EXHAUSTED.
    * The operators of the warm start come first, in their order.
    * A failed evaluation is an outcome like any other.

    A `salt` gives another proposal in the same situation. A worker whose proposal another worker made at the same moment uses a
    salt of its own from then on, so that the two diverge.

    Attributes:
        name: the name in experiments and in stored settings; by default the path `package.module:MyPolicy`.
        Settings: the class of its settings, which checks what an experiment gives.
        tree: the space.
        seed: of all its random numbers.
        settings: its constants, an instance of `Settings`.
        goal: the goal of the search; None if it has none.
        reward: of a search with a goal, the function whose values `tell` gets; None elsewhere.
        layer_error: where operators begin fitted to a trained network, a function that returns how far an operator is from one
            of its layers after a fit (`syno.train.workload.Workload.layer_error`); it takes a part of a second. None elsewhere.
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
        """Return the next operator to evaluate, which is then outstanding; or EXHAUSTED."""
        proposal = self.propose(salt)
        if isinstance(proposal, Proposal):
            self.adopt(proposal)
        return proposal

    def propose(self, salt: str = "") -> Proposal | Exhausted:
        """Return the answer of `ask`, without a change of state.

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
        """Names of nodes that were found to have no operators left and not yet passed to `hear_closed`."""
        return self.walks.found_closed

    def hear_closed(self, names: Iterable[str]) -> None:
        """Record nodes that some worker, with no more proposals than are known here, found to have no operators left.

        This saves time and changes no proposal.
        """
        self.walks.hear_closed(names)

    def adopt(self, candidate: Candidate) -> None:
        """Record that some worker proposed this operator and evaluates it now.

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
        """Record a value that an operator has reached after a step of its evaluation.

        It remains outstanding: its evaluation goes on, or pauses. Values of one step are comparable, more is better, -inf the
        worst; they are no rewards. Operators that are not outstanding are ignored.
        """
        if (adopted := self._outstanding.get(candidate.fingerprint)) is not None:
            self._reported(adopted, step, value)

    def stop(self, candidate: Candidate) -> None:
        """Record that the evaluation of an outstanding operator was stopped for good: others are far ahead at the same step.

        Raises SpecError if it is not outstanding.
        """
        self._stopped(self._no_longer_outstanding(candidate))

    def measure(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:
        """Record metrics of an outstanding operator, by name, before its outcome, or before a value that it has reached."""
        if metrics and (adopted := self._outstanding.get(candidate.fingerprint)) is not None:
            self._measured(adopted, metrics)

    def screen_out(self, candidate: Candidate) -> None:
        """Record that an outstanding operator cannot meet the goal of the search, so that it is not evaluated.

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
        """Set up the policy's memory before the first event."""

    @abstractmethod
    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return a path to an operator that is not taken; None if there is none. Must not change what `_choose` depends on."""

    def _adopt(self, candidate: Candidate) -> None:  # noqa: B027
        """Record a candidate that is outstanding from now on."""

    def _observe(self, candidate: Candidate, outcome: Outcome) -> None:  # noqa: B027
        """Record the outcome of a candidate that is no longer outstanding."""

    def _reported(self, candidate: Candidate, step: float, value: float) -> None:  # noqa: B027
        """Record a value that an outstanding candidate has reached after a step."""

    def _measured(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:  # noqa: B027
        """Record metrics of an outstanding candidate."""

    def _screened(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, cannot meet the goal."""
        self._observe(candidate, STOPPED)

    def _stopped(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, was stopped for good."""
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
    """A proposal that was made, or its outcome that was told."""

    proposal: Proposal
    outcome: Outcome | None = None


def small_space() -> Space:
    """Return a new space of 24 operators, some of its steps dead ends: `[N, M] -> [N, K]` in at most four primitives."""
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
    """Return a made-up outcome, the same for equal operators. One in seven is a failure."""
    number = int(proposal.operator.id, 16)
    return Failure("made up") if number % 7 == 0 else number % 101 / 100


def drive(policy: Policy, count: int, at_once: int = 1, seed: int = 0) -> list[Event]:
    """Ask `count` times, or until the tree is exhausted, with up to `at_once` outstanding proposals, told in random order.

    Returns what happened. At the end, fewer than `at_once` proposals are outstanding.
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
    """Equal seeds give equal proposals, another seed gives others."""
    first, again, other = (drive(kind(make_tree(), seed), count) for seed in (1, 1, 2))
    assert first == again, "two policies with equal seeds made different proposals"
    assert first != other, "two policies with different seeds made the same proposals"


def check_rebuilt(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 15, at_once: int = 3) -> None:
    """A policy that is rebuilt from what is stored proposes the same, on a tree that learns the same on the way."""
    happened, rebuilt = drive(kind(make_tree(), 3), count, at_once), kind(make_tree(), 3)
    for event in happened:
        if event.outcome is None:
            assert rebuilt.propose() == event.proposal, (
                "a policy rebuilt from adopted and told trials proposed another operator"
            )
        replay(rebuilt, [event])


def check_paused(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 12) -> None:
    """A policy that hears of values on the way, and of operators that were stopped, is rebuilt and goes on proposing."""
    policy, again = kind(make_tree(), 8), kind(make_tree(), 8)
    for number in range(count):
        proposal = policy.ask()
        assert isinstance(proposal, Proposal) and proposal == again.propose(), "a rebuilt policy proposed another operator"
        candidate = Candidate(proposal.path, proposal.fingerprint, text=str(proposal.operator))
        again.adopt(candidate)
        for one, operator in ((policy, proposal), (again, candidate)):
            one.report(operator, 1, int(proposal.operator.id, 16) % 101 / 100)
            if number % 3 == 0:
                one.tell(operator, outcome_of(proposal))
            elif number % 3 == 1:
                one.stop(operator)


def check_proposing_changes_nothing(kind: type[Policy], make_tree: MakeTree = small_space, count: int = 8) -> None:
    """Repeated calls of `propose` give the same proposal, once there is nothing left to learn about dead ends."""
    policy = kind(make_tree(), 4)
    drive(policy, count)
    proposals = [policy.propose() for _ in range(8)]
    assert proposals[-2] == proposals[-1] == policy.ask() != policy.propose(), "a call of propose changed the next one"


def check_paths(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """A proposal is a path of the tree to its operator."""
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
    """Every operator of the tree is proposed once, then the policy is exhausted for good."""
    found = _all_fingerprints(make_tree())
    policy = kind(make_tree(), 7)
    happened = drive(policy, len(found) + 1, at_once)
    proposed = [event.proposal.fingerprint for event in happened if event.outcome is None]
    assert len(proposed) == len(set(proposed)), "an operator was proposed twice"
    assert set(proposed) == found, f"{len(proposed)} of {len(found)} operators were proposed"
    assert policy.ask() is EXHAUSTED and policy.ask() is EXHAUSTED, "the policy went on when no operator was left"


def check_adopted(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """An operator that another worker proposed is not proposed again."""
    adopted = [event.proposal for event in drive(kind(make_tree(), 1), 8) if event.outcome is None]
    policy = kind(make_tree(), 2)
    for proposal in adopted:
        policy.adopt(Candidate(proposal.path, proposal.fingerprint))
    proposed = {event.proposal.fingerprint for event in drive(policy, 1000)}
    assert proposed.isdisjoint(proposal.fingerprint for proposal in adopted), "an adopted operator was proposed again"


def check_failures(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """If all evaluations fail, the policy still proposes every operator."""
    policy, count = kind(make_tree()), 0
    while isinstance(proposal := policy.ask(), Proposal):
        policy.tell(proposal, Failure("made up"))
        count += 1
    assert count == len(_all_fingerprints(make_tree())), "operators were left out after failures"


def check_screened(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """If all operators are screened out, the policy still proposes every one; a rebuilt policy proposes the same."""
    first, rebuilt, count = kind(make_tree(), goal=Goal(speedup=2.0)), kind(make_tree(), goal=Goal(speedup=2.0)), 0
    while isinstance(proposal := first.ask(), Proposal):
        assert rebuilt.propose() == proposal, "a policy that was told the same proposes something else"
        rebuilt.adopt(proposal)
        for one in (first, rebuilt):
            one.measure(proposal, {"speedup": 1 + int(proposal.operator.id, 16) % 101 / 101})
            one.screen_out(proposal)
        count += 1
    assert count == len(_all_fingerprints(make_tree())), "operators were left out after others were screened"


def check_salt(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """A salt gives another proposal, the same for the same salt."""
    policy = kind(make_tree())
    assert len({policy.propose(salt) for salt in map(str, range(12))}) > 1, "all salts gave the same proposal"
    assert policy.propose("1") == policy.propose("1"), "the same salt gave two proposals"


def check_warm_start(kind: type[Policy], make_tree: MakeTree = small_space) -> None:
    """Operators of the warm start come first, in their order, without those that another worker has proposed."""
    start = [event.proposal for event in drive(kind(make_tree(), 5), 4) if event.outcome is None]
    policy = kind(make_tree(), 6, warm_start=start)
    policy.adopt(start[0])
    assert [policy.ask() for _ in start[1:]] == start[1:], "the warm start did not come first"


def _all_fingerprints(tree: Tree) -> set[str]:
    """Return the fingerprints of all operators of a tree."""
    found, seen, pending = set[str](), {tree.root}, [tree.root]
    while pending:
        for step in tree.steps(pending.pop()):
            if step.operator is not None:
                found.add(tree.fingerprint(step.operator))
            elif step.node not in seen:
                seen.add(step.node)
                pending.append(step.node)
    return found


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
