"""Checks that a policy keeps the guarantees of `Policy`, for the tests of policies of a user's own.

Each check takes a policy's class, and raises AssertionError if the policy breaks a guarantee. With pytest:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_policy(check):
        check(MyPolicy)

>>> from syno.search.policies import RandomWalk
>>> for check in CHECKS: check(RandomWalk)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from syno.search.goal import Goal
from syno.search.policies.contract import EXHAUSTED, Candidate, Policy, Proposal
from syno.search.reward import Failure, Outcome
from syno.search.tree import Action, Tree
from syno.space.space import Space
from syno.space.spec import OperatorSpec

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
