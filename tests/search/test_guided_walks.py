"""Walks in a tree with a guide: most find what the guide reaches, and all operators are found in the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from search_trees import MockTree, chosen_of, small_tree

from syno.search.policies import EXHAUSTED, POLICIES, Policy, Proposal
from syno.search.walks import SHORT, Draws, Walks


@dataclass
class Guided(MockTree):
    """A tree whose guide reaches the operators of two operations, and not those of three."""

    @property
    def guide(self) -> MockTree:
        return replace(small_tree(), sizes=(2,))

    @property
    def unguided(self) -> float:
        return 1 / 32


def tree() -> Guided:
    return Guided(**{name: value for name, value in vars(small_tree()).items() if name in Guided.__dataclass_fields__})


def proposals(policy: Policy, count: int) -> list[Proposal]:
    found = []
    while len(found) < count and (proposal := policy.ask()) is not EXHAUSTED:
        assert isinstance(proposal, Proposal)
        policy.tell(proposal, 0.5)
        found.append(proposal)
    return found


@pytest.mark.parametrize("name", list(POLICIES))
def test_all_operators_are_found_in_the_end(name: str) -> None:
    by_guide = {tree().fingerprint(operator) for operator in tree().guide.leaves()}
    everything = {tree().fingerprint(operator) for operator in tree().leaves()}
    assert len(by_guide) == 8 and by_guide < everything
    found = [proposal.fingerprint for proposal in proposals(POLICIES[name](tree(), seed=0), 100)]
    assert len(found) == len({*found}) and {*found} == everything
    assert name != "random" or sum(one in by_guide for one in found[:8]) >= 7, "what the guide reaches comes first"


def test_other_workers_hear_what_is_closed_in_the_guide() -> None:
    one, other = Walks(tree()), Walks(tree())
    while (path := one._guide.complete(tree().root, Draws("some"), SHORT)) is not None:  # type: ignore[union-attr]
        one.taken.add(one.fingerprint(path[-1]))
    assert "guide " in one.found_closed, "the root, whose name is empty"
    assert all(name.startswith("guide ") for name in one.found_closed)
    other.hear_closed(one.found_closed)
    assert other._guide is not None and other._guide.is_closed(tree().root) and not other.is_closed(tree().root)
    assert other.complete(tree().root, Draws("some")) is not None


def test_every_walk_keeps_to_the_guide_while_it_has_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guided, "unguided", 0.0)
    walks = Walks(tree())
    paths = [walks.complete(walks.tree.root, Draws(number)) for number in range(30)]
    assert {len(chosen_of(path[-1].operator)) for path in paths if path} == {2}  # type: ignore[arg-type]
