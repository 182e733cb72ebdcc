"""Steps that are found without finding out what becomes of those beside them: by their id, or one that leads on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from random import Random

import pytest
from small_specs import convolution, matmul

from syno.search.policies import POLICIES, Candidate, Proposal
from syno.search.tree import actions
from syno.search.walks import Draws, Walks
from syno.space.space import Space
from syno.space.spec import OperatorSpec
from syno.space.steps import Draft, Step

SPECS = [convolution(), matmul()]


def paths(space: Space, count: int = 12) -> list[tuple[Step, ...]]:
    found = [space.walk(space.root, Random(number)) for number in range(count)]
    return [path for path in found if path is not None]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
class TestStep:
    def test_it_is_the_one_that_a_walk_took(self, spec: OperatorSpec) -> None:
        known, fresh = Space(spec), Space(spec)
        walked = paths(known)
        assert len(walked) > 3
        for path in walked:
            node = fresh.root
            for step in path:
                assert fresh.step(node, step.kind, step.id) == step
                node = step.node

    def test_it_is_one_of_all_steps(self, spec: OperatorSpec) -> None:
        space, fresh = Space(spec), Space(spec)
        for path in paths(space, 4):
            for node in (space.root, *(step.node for step in path)):
                for step in space.steps(node):
                    assert fresh.step(node, step.kind, step.id) == space.step(node, step.kind, step.id) == step
        assert not fresh._steps

    def test_there_is_none_that_adds_something_else(self, spec: OperatorSpec) -> None:
        space = Space(spec)
        (first, *_), last = paths(space)[0], paths(space)[0][-1]
        for looked_through in (False, True):
            if looked_through:
                space.steps(space.root)
            assert space.step(space.root, first.kind, "unknown") is None
            assert space.step(space.root, "Finalize", first.id) is None
        assert space.step(last.node, last.kind, last.id) is None  # an operator is complete

    @pytest.mark.parametrize("policy", list(POLICIES))
    def test_a_policy_learns_of_others_proposals_without_going_through_the_space(self, spec: OperatorSpec, policy: str) -> None:
        fresh = Space(spec)
        learning = POLICIES[policy](fresh, 0)
        candidates = {fresh.fingerprint(path[-1].operator): actions(path) for path in paths(Space(spec)) if path[-1].operator}
        for fingerprint, path in candidates.items():
            candidate = Candidate(path, fingerprint)
            learning.adopt(candidate)
            learning.tell(candidate, 0.5)
        assert not fresh._steps and not fresh.rules.rejections


class Eager(Space):
    """One that finds out about all steps at once."""

    def drafts(self, node: Hashable) -> Iterator[Draft]:
        return (Draft(step.kind, step.id, step.itself) for step in self.steps(node))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
class TestDrafts:
    def test_those_that_lead_on_are_all_steps(self, spec: OperatorSpec) -> None:
        space, fresh = Space(spec), Space(spec)
        for path in paths(Space(spec), 4):
            for node in (space.root, *(step.node for step in path)):
                steps = set(space.steps(node))
                for drafting in (fresh, fresh, space):  # once more what was looked at, and where all steps are known
                    assert {draft.look() for draft in drafting.drafts(node)} - {None} == steps
        assert not fresh._steps

    def test_a_random_operator_is_found_without_going_through_the_nodes_on_the_way(self, spec: OperatorSpec) -> None:
        space = Space(spec)
        assert Walks(space).anywhere(Draws("some")) is not None
        assert not space._steps

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", list(POLICIES))
    def test_proposals_are_the_same_as_where_all_is_known(self, spec: OperatorSpec, policy: str) -> None:
        proposed = []
        for tree in (Space(spec), Eager(spec)):
            found: list[Proposal] = []
            searching = POLICIES[policy](tree, 3)
            while len(found) < 25 and isinstance(proposal := searching.ask(), Proposal):
                found.append(proposal)
                searching.tell(proposal, len(found) % 7 / 7)
            proposed.append([(one.path, one.fingerprint) for one in found])
        assert len(proposed[0]) > 5 and proposed[0] == proposed[1]
