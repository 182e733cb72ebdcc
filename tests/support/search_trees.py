"""Small explicit trees for tests of search: sets of operations that may be added in any order that their needs allow."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import combinations

from syno.base.errors import UnreachableError
from syno.ir.builder import Builder
from syno.ir.graph import PGraph

KINDS = ("Reduce", "Split", "Merge", "Shift", "Unfold", "Contraction")
Chosen = frozenset[int]


@dataclass(frozen=True)
class MockStep:
    kind: str
    id: str
    node: Hashable
    operator: PGraph | None = None


@dataclass(frozen=True)
class MockDraft:
    kind: str
    id: str
    look: Callable[[], MockStep | None]


def _itself(step: MockStep) -> MockStep:
    return step


@cache
def operator_of(chosen: Chosen) -> PGraph:
    """A real operator, another one for every set: a shift by the number whose bits are the set."""
    build = Builder("H", name="set_" + "_".join(map(str, sorted(chosen))))
    (axis,) = build.output("H")
    return build.finish([build.shift(axis, 1 + sum(1 << number for number in chosen))])


def chosen_of(operator: PGraph) -> Chosen:
    """The set that an operator stands for."""
    operation = operator.input[0].operation
    assert operation is not None and isinstance(operation.parameter, int)
    bits = operation.parameter - 1
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


@dataclass
class MockTree:
    """Complete operators are the sets of `sizes` operations out of `operations` without a forbidden pair.

    Attributes:
        operations: how many there are; operation number n is of kind n modulo 6.
        sizes: how many of them a complete operator has; operators of more are above those of fewer.
        needs: what must be there before an operation can be added.
        forbidden: pairs that can be added, but never become complete: what holds one is a dead end.
        meaning: two sets for which it is equal mean the same.
        forgets: whether known dead ends vanish from `steps`.
    """

    operations: int = 7
    sizes: tuple[int, ...] = (3,)
    needs: Mapping[int, int] = field(default_factory=dict)
    forbidden: frozenset[tuple[int, int]] = frozenset()
    meaning: Callable[[Chosen], Hashable] = sorted  # type: ignore[assignment]
    forgets: bool = True

    def __post_init__(self) -> None:
        self.root: Hashable = frozenset()
        self.dead: set[Hashable] = set()
        self.looked_at = 0
        self._steps: dict[Hashable, tuple[MockStep, ...]] = {}

    def steps(self, node: Hashable) -> Sequence[MockStep]:
        if node not in self._steps:
            self.looked_at += 1
            self._steps[node] = tuple(self._find(node))
        alive = tuple(step for step in self._steps[node] if not self.forgets or step.node not in self.dead)
        if not alive and isinstance(node, frozenset):
            self.dead.add(node)
        return alive

    def drafts(self, node: Hashable) -> Iterator[MockDraft]:
        return (MockDraft(step.kind, step.id, partial(_itself, step)) for step in self.steps(node))

    def step(self, node: Hashable, kind: str, id_: str) -> MockStep | None:
        return next((step for step in self.steps(node) if step.kind == kind and step.id == id_), None)

    def _find(self, node: Hashable) -> Iterator[MockStep]:
        if not isinstance(node, frozenset):
            return
        if len(node) < max(self.sizes):
            for number in range(self.operations):
                if number not in node and self.needs.get(number, number) in node | {number}:
                    yield MockStep(KINDS[number % len(KINDS)], f"add {number}", node | {number})
        if len(node) in self.sizes and not any(pair in self.forbidden for pair in combinations(sorted(node), 2)):
            operator = operator_of(node)
            yield MockStep("Finalize", f"finalize {operator.id}", operator, operator)

    def walk(self, node: Hashable, random: random.Random, *, by_kind: bool = True) -> tuple[MockStep, ...] | None:
        path: list[MockStep] = []
        while steps := self.steps(node):
            if by_kind:
                kind = random.choice(sorted({step.kind for step in steps}))
                steps = [step for step in steps if step.kind == kind]
            path.append(random.choice(steps))
            node = path[-1].node
        return tuple(path) if path and path[-1].operator is not None else None

    def path(self, operator: PGraph) -> tuple[MockStep, ...]:
        left, path = set(chosen_of(operator)), []
        node: Hashable = self.root
        while left:
            step = next((s for s in self.steps(node) if s.kind != "Finalize" and int(s.id.split()[1]) in left), None)
            if step is None:
                raise UnreachableError(f"{operator.name}: operation {min(left)} can't be added to {sorted(node)}")  # type: ignore[call-overload]
            left.remove(int(step.id.split()[1]))
            path.append(step)
            node = step.node
        last = next((s for s in self.steps(node) if s.operator is not None), None)
        if last is None:
            raise UnreachableError(f"{operator.name} is not complete: it needs {self.sizes} operations, no forbidden pair")
        return (*path, last)

    def name(self, node: Hashable) -> str:
        return " ".join(map(str, sorted(node))) if isinstance(node, frozenset) else str(node)

    def fingerprint(self, operator: PGraph) -> str:
        return f"means {self.meaning(chosen_of(operator))}"

    def leaves(self) -> list[PGraph]:
        """All complete operators, one for each meaning."""
        found: dict[str, PGraph] = {}
        seen, pending = {self.root}, [self.root]
        while pending:
            for step in self.steps(pending.pop()):
                if step.operator is not None:
                    found.setdefault(self.fingerprint(step.operator), step.operator)
                elif step.node not in seen:
                    seen.add(step.node)
                    pending.append(step.node)
        return list(found.values())


def small_tree() -> MockTree:
    """Dead ends, needs, two sizes, and operators that mean the same."""

    def meaning(chosen: Chosen) -> Hashable:
        return sorted(number - number % 2 if number < 2 else number for number in chosen)

    return MockTree(7, (2, 3), {3: 1, 5: 0}, frozenset({(1, 2), (0, 4), (2, 6)}), meaning)


def wide_tree() -> MockTree:
    """8,216 operators, dead ends among them."""
    return MockTree(20, (4, 5), {7: 2, 11: 5, 13: 2}, frozenset({(0, 1), (2, 9), (4, 15), (8, 16)}))


def vast_tree() -> MockTree:
    """71,673 operators: more than any search here asks for."""
    return MockTree(24, (5, 6), {7: 2, 11: 5, 13: 2}, frozenset({(0, 1), (2, 9), (4, 15), (8, 16)}))


def hard_tree() -> MockTree:
    """170 operators in a maze of dead ends, many of them deep: what was learnt about them makes a difference."""
    pairs = list(combinations(range(14), 2))
    return MockTree(14, (6,), forbidden=frozenset(random.Random(0).sample(pairs, 16)))


def hidden_family_reward(family: Chosen, power: float = 2.0) -> Callable[[PGraph], float]:
    """Rewards operators by the share of the family's operations that they have."""

    def reward(operator: PGraph) -> float:
        return (len(family & chosen_of(operator)) / len(family)) ** power

    return reward
