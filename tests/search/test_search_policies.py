"""What every search policy promises: one suite for all of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest
from quick_cases import quick_cases
from search_trees import MockTree, chosen_of, hard_tree, hidden_family_reward, operator_of, small_tree, wide_tree

from syno.base.errors import SpecError, UnknownNameError
from syno.search.policies import EXHAUSTED, POLICIES, Candidate, Policy, PolicySettings, Proposal
from syno.search.policies import contract as conformance
from syno.search.policies.contract import drive, replay
from syno.search.policies.evolution import EvolutionSettings
from syno.search.policies.surrogate import Surrogate, SurrogateSettings
from syno.search.reward import Failure, Outcome
from syno.search.tree import Tree, actions

FAMILY = frozenset({2, 3, 7, 10, 13})
reward = hidden_family_reward(FAMILY)


@pytest.fixture(params=list(POLICIES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class SmallSettings(SurrogateSettings):
    trees: int = 4
    beginner_walks: int = 2
    walks: int = 2
    mutations: int = 2


class SmallSurrogate(Surrogate):
    """A model of few trees, and few candidates: what is promised holds for any number."""

    name = "surrogate"
    Settings = SmallSettings


def maze() -> MockTree:
    """99 operators among dead ends."""
    return MockTree(11, (5,), forbidden=frozenset(Random(0).sample([*combinations(range(11), 2)], 8)))


def kind_of(name: str) -> type[Policy]:
    return SmallSurrogate if name == "surrogate" else POLICIES[name]


def make(name: str, tree: Tree, seed: int = 0, **more: object) -> Policy:
    return kind_of(name)(tree, seed, **more)  # type: ignore[arg-type]


def outcome(proposal: Proposal) -> Outcome:
    """One in seven fails."""
    return Failure("broken") if int(proposal.operator.id, 16) % 7 == 0 else reward(proposal.operator)


def asked(policy: Policy) -> Proposal:
    proposal = policy.ask()
    assert isinstance(proposal, Proposal)
    return proposal


class TestEveryPolicy:
    def test_the_seed_decides(self, name: str) -> None:
        conformance.check_seed(kind_of(name), wide_tree, 60)

    @pytest.mark.slow
    @pytest.mark.parametrize("at_once", quick_cases([1, 5], (5).__eq__))
    def test_is_rebuilt_by_replaying_what_happened(self, name: str, at_once: int) -> None:
        """On a tree that has yet to learn what the first one had learnt: it is asked again on the way."""
        conformance.check_rebuilt(kind_of(name), hard_tree, 80, at_once)

    @pytest.mark.parametrize("at_once", [1, 5])
    def test_is_rebuilt_without_asking_if_nothing_is_to_be_learnt(self, name: str, at_once: int) -> None:
        tree = MockTree(20, (4,))
        happened = drive(make(name, tree, 3), 60, at_once)
        for cut in (index for index, event in enumerate(happened) if event.outcome is None and index % 5 == 0):
            rebuilt = make(name, MockTree(20, (4,)), 3)
            replay(rebuilt, happened[:cut])
            assert rebuilt.propose() == happened[cut].proposal

    def test_a_rebuilt_policy_goes_on_to_the_end(self, name: str) -> None:
        leaves = {small_tree().fingerprint(leaf) for leaf in small_tree().leaves()}
        happened = drive(make(name, small_tree(), 2), len(leaves))
        for cut in range(0, len(happened), 2):
            rebuilt = make(name, small_tree(), 2)
            replay(rebuilt, happened[:cut])
            before = {proposal.fingerprint for proposal, _ in happened[:cut]}
            after = {proposal.fingerprint for proposal, _ in drive(rebuilt, len(leaves) - len(before))}
            assert before | after == leaves and rebuilt.ask() is EXHAUSTED

    def test_proposing_changes_nothing(self, name: str) -> None:
        policy = make(name, wide_tree(), 4)
        drive(policy, 20)
        assert policy.propose() == policy.propose() == policy.ask() != policy.propose()

    def test_a_proposal_is_a_path_of_the_tree(self, name: str) -> None:
        conformance.check_paths(kind_of(name), small_tree)

    @pytest.mark.parametrize("at_once", [1, 4])
    def test_proposes_every_operator_once_then_says_so(self, name: str, at_once: int) -> None:
        conformance.check_every_operator_once(kind_of(name), small_tree, at_once)

    def test_an_empty_tree_is_exhausted_at_once(self, name: str) -> None:
        nothing = MockTree(3, (2,), forbidden=frozenset({(0, 1), (0, 2), (1, 2)}))
        assert make(name, nothing).ask() is EXHAUSTED

    def test_no_duplicates_with_many_outstanding(self, name: str) -> None:
        policy = make(name, wide_tree())
        proposed = [asked(policy).fingerprint for _ in range(100)]
        assert len(set(proposed)) == 100

    def test_what_others_propose_is_not_proposed_again(self, name: str) -> None:
        tree = small_tree()
        leaves = tree.leaves()
        policy = make(name, tree)
        for leaf in leaves[:-1]:
            policy.adopt(Candidate(actions(tree.path(leaf)), tree.fingerprint(leaf)))
        assert asked(policy).fingerprint == tree.fingerprint(leaves[-1])
        assert policy.ask() is EXHAUSTED

    @pytest.mark.slow
    def test_what_one_worker_finds_closed_others_need_not_look_at(self, name: str) -> None:
        leaves = {maze().fingerprint(leaf) for leaf in maze().leaves()}

        def nodes_looked_at(*, tell: bool) -> int:
            trees = [maze(), maze()]
            workers = [make(name, tree, seed) for seed, tree in enumerate(trees)]
            proposed: list[str] = []
            while isinstance(proposal := workers[len(proposed) % 2].propose(), Proposal):
                found = workers[len(proposed) % 2].found_closed
                proposed.append(proposal.fingerprint)
                for worker in workers:
                    worker.hear_closed(found if tell else [])
                    worker.adopt(proposal)
                    worker.tell(proposal, outcome(proposal))
            assert set(proposed) == leaves and len(proposed) == len(leaves)
            assert workers[0].ask() is workers[1].ask() is EXHAUSTED
            return sum(tree.looked_at for tree in trees)

        assert nodes_looked_at(tell=True) < 0.9 * nodes_looked_at(tell=False)

    def test_what_is_closed_is_found_once(self, name: str) -> None:
        policy = make(name, maze())
        found: list[str] = []
        while isinstance(proposal := policy.propose(), Proposal):
            found += policy.found_closed
            policy.hear_closed(policy.found_closed)
            assert policy.found_closed == []
            policy.adopt(proposal)
            policy.tell(proposal, 0.5)
        assert found and len(found) == len(set(found))

    def test_failures_only(self, name: str) -> None:
        conformance.check_failures(kind_of(name), small_tree)

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_equal_rewards_only(self, name: str, value: float) -> None:
        policy = make(name, MockTree(8, (4,)))
        count = 0
        while isinstance(proposal := policy.ask(), Proposal):
            policy.tell(proposal, value)
            count += 1
        assert count == 70

    def test_a_salt_makes_another_proposal(self, name: str) -> None:
        policy = make(name, wide_tree())
        assert len({policy.propose(salt) for salt in ("", "1", "2", "3")}) == 4
        assert policy.propose("1") == policy.propose("1")

    def test_starts_from_given_operators_in_their_order(self, name: str) -> None:
        tree = wide_tree()
        given = [operator_of(frozenset(chosen)) for chosen in ({2, 3, 7, 10}, {3, 5, 6, 10, 11}, {2, 3, 7, 10, 13})]
        start = [Proposal(actions(tree.path(operator)), tree.fingerprint(operator), operator) for operator in given]
        policy = make(name, tree, warm_start=start)
        assert [asked(policy).operator for _ in given] == given
        for proposal in start:
            policy.tell(proposal, outcome(proposal))
        assert asked(policy).operator not in given

    def test_a_start_that_somebody_proposed_is_left_out(self, name: str) -> None:
        tree = wide_tree()
        given = [operator_of(frozenset(chosen)) for chosen in ({2, 3, 7, 10}, {3, 5, 6, 10, 11})]
        start = [Proposal(actions(tree.path(operator)), tree.fingerprint(operator), operator) for operator in given]
        policy = make(name, tree, warm_start=start)
        policy.adopt(start[0])
        assert asked(policy) == start[1]

    def test_misuse_is_an_error(self, name: str) -> None:
        policy = make(name, wide_tree())
        proposal = asked(policy)
        with pytest.raises(SpecError, match="was proposed already"):
            policy.adopt(proposal)
        with pytest.raises(SpecError, match="neither proposed nor adopted"):
            policy.tell(Candidate((), "unheard of"), 0.5)
        with pytest.raises(SpecError, match=r"a reward is in \[0, 1\], or a Failure; given: 1.5"):
            policy.tell(proposal, 1.5)
        policy.tell(proposal, 0.5)
        with pytest.raises(SpecError, match="it was told already"):
            policy.tell(proposal, 0.5)

    def test_settings_of_another_policy_are_an_error(self, name: str) -> None:
        class Foreign(PolicySettings):
            pass

        if POLICIES[name].Settings is not PolicySettings:
            with pytest.raises(SpecError, match=f'policy "{name}" takes .*Settings; given: Foreign'):
                make(name, wide_tree(), settings=Foreign())

    def test_a_space_with_next_to_nothing_in_it_is_an_error(self, name: str) -> None:
        """All pairs are forbidden but those of the last operations: the way there is long."""
        forbidden = frozenset((a, b) for a in range(16) for b in range(a + 1, 16) if b < 12)
        with pytest.raises(SpecError, match="among 20 partial operators looked at"):
            make(name, MockTree(16, (6,), forbidden=forbidden), limit=20).ask()


def test_an_unknown_policy_is_an_error_that_lists_them() -> None:
    with pytest.raises(
        UnknownNameError,
        match='unknown search policy "mtcs"; there are: evolution, mcts, random, surrogate. Did you mean "mcts"?',
    ):
        POLICIES["mtcs"]


class TestRandomWalk:
    def test_kinds_are_equally_likely_first(self) -> None:
        """Of 7 operations, numbers 0 and 6 are of one kind: as likely together as each of the others."""
        first = [asked(make("random", MockTree(7, (1,)), seed)).operator for seed in range(600)]
        counts = [sum(chosen_of(operator) == {number} for operator in first) for number in range(7)]
        assert all(70 <= count <= 130 for count in counts[1:6])
        assert all(30 <= count <= 70 for count in (counts[0], counts[6]))


class TestEvolution:
    def test_children_keep_the_beginning_of_a_parent(self) -> None:
        settings = EvolutionSettings(population=1, tournament=1, beginners=1, fresh=0.0)
        kept = 0
        for seed in range(40):
            policy = make("evolution", wide_tree(), seed, settings=settings)
            parent = asked(policy)
            policy.tell(parent, 1.0)
            kept += asked(policy).path[:2] == parent.path[:2]
        assert kept >= 15  # random walks agree in two steps once in some hundred times

    def test_the_best_of_a_tournament_is_the_parent(self) -> None:
        better = 0
        for seed in range(10):
            settings = EvolutionSettings(population=50, tournament=50, beginners=50, fresh=0.0)
            policy = make("evolution", wide_tree(), seed, settings=settings)
            told: list[tuple[float, Proposal]] = []
            for _ in range(50):
                proposal = asked(policy)
                policy.tell(proposal, reward(proposal.operator))
                told.append((reward(proposal.operator), proposal))
            best = max(value for value, _ in told)
            child = asked(policy)
            parents = [proposal for value, proposal in told if value == best]
            better += any(child.path[0] == parent.path[0] for parent in parents)
        assert better >= 6

    def test_failures_are_no_parents(self) -> None:
        settings = EvolutionSettings(population=5, tournament=5, beginners=0, fresh=0.0)
        policy = make("evolution", wide_tree(), settings=settings)
        same = make("random", wide_tree())
        for _ in range(5):
            policy.tell(asked(policy), Failure("broken"))
            same.tell(asked(same), Failure("broken"))
        assert policy._population == type(policy._population)(maxlen=5)  # type: ignore[attr-defined]


def test_policies_need_no_more_than_the_protocol() -> None:
    assert isinstance(wide_tree(), Tree)
    kinds: list[Callable[..., Policy]] = list(POLICIES.values())
    assert len(kinds) >= 3
