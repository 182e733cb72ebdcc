"""Canonicalization rules as rows, and the loop that applies them.

A rule rejects a step whose result another path also reaches, exactly or nearly. Every row says why; every row can be
switched off; every row counts what it rejects.

Paper: section 5.3 (canonicalization).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from syno.base.errors import SpecError, suggestion
from syno.space.steps import KINDS, CandidateStep


@dataclass(frozen=True)
class Rule:
    """A row.

    Attributes:
        id: V for views, C for contractions and order, U for unordered channels, S for symmetry.
        kinds: which steps it looks at.
        forbids: the pair of primitives, bottom first.
        reason: what the rejected operator equals, or nearly equals.
        exact: whether it equals it in every element; else nearly.
        source: the clause of the paper, or the published system.
        rejects: the predicate.
        on: whether it is on unless a spec says otherwise.
        against: the rule that must be off if this one is on: together they would cut off both of two equal forms.
        rest_of: the exact rule that this one completes to the published rule.
        published: the predicate of the published rule; of a rule in two rows, what both reject together.
    """

    id: str
    kinds: tuple[str, ...]
    forbids: str
    reason: str
    exact: bool
    source: str
    rejects: Callable[[CandidateStep], bool]
    on: bool = True
    against: str | None = None
    rest_of: str | None = None
    published: Callable[[CandidateStep], bool] | None = None


@dataclass(frozen=True)
class Rest:
    """The part of a published rule that is not exact: steps whose result is reached in no other way.

    Attributes:
        exact_if: whether the result of a rejected step is reached in another way.
        forbids, reason: as of a Rule, where it is not.
        also: what this part rejects beside, so that with the exact part off no other form gets around it.
    """

    exact_if: Callable[[CandidateStep], bool]
    forbids: str
    reason: str
    also: Callable[[CandidateStep], bool] = lambda step: False


REST = "p"  # ends the id of the row that holds the rest of a rule: a policy
RULES: dict[str, Rule] = {}


def rule(
    id: str,  # noqa: A002  (the field's name)
    kinds: str | tuple[str, ...],
    forbids: str,
    reason: str,
    *,
    exact: bool,
    source: str = "published system",
    on: bool = True,
    against: str | None = None,
    rest: Rest | None = None,
) -> Callable[[Callable[[CandidateStep], bool]], Callable[[CandidateStep], bool]]:
    """Enter the decorated predicate as a row; with `rest`, as two: where the rule is exact, and where it is not."""

    def enter(rejects: Callable[[CandidateStep], bool]) -> Callable[[CandidateStep], bool]:
        assert id not in RULES
        names = (kinds,) if isinstance(kinds, str) else kinds
        row = Rule(id, names, forbids, reason, exact, source, rejects, on, against, None, rejects)
        if rest is None:
            RULES[id] = row
            return rejects
        exact_if, also = rest.exact_if, rest.also
        RULES[id] = replace(row, rejects=lambda step: rejects(step) and exact_if(step))
        RULES[id + REST] = Rule(
            id + REST,
            names,
            rest.forbids,
            rest.reason,
            False,
            source,
            lambda step: not exact_if(step) if rejects(step) else also(step),
            on,
            None,
            id,
        )
        return rejects

    return enter


@dataclass(frozen=True)
class Held:
    """A rule that the language or the generator keeps by itself: nothing could break it, so it cannot be switched off."""

    id: str
    forbids: str
    reason: str
    source: str


BY_CONSTRUCTION = (
    Held(
        "C2", "a view of a weight's axis", "weights can be laid out anew offline: the language has no such views", "section 5.3"
    ),
    Held(
        "C3",
        "Share above the weight's side of a Share",
        "products commute: chains of Shares grow on the data's side",
        "section 5.3",
    ),
    Held("C4", "the Shares of one weight in several steps", "they come at once, in one order", "published system"),
)


class RuleSet:
    """The rules of one space, and how often each has rejected a step."""

    def __init__(self, off: Iterable[str] = (), on: Iterable[str] = ()) -> None:
        off, on = tuple(off), tuple(on)
        for name in (*off, *on):
            if name not in RULES and name != "all":
                raise SpecError(f'no rule "{name}"; there are: {", ".join(RULES)}, and "all".{suggestion(name, RULES)}')
        for name in set(off) & set(on):
            raise SpecError(f"rule {name} is in rules_off and in rules_on; take it out of one of them")
        self.rules = tuple(row for row in RULES.values() if row.id in on or (row.on and row.id not in off and "all" not in off))
        self._active = {row.id for row in self.rules}
        self._whole = self._active - {row.rest_of for row in RULES.values() if row.rest_of and row.id not in self._active}
        for row in self.rules:
            if row.against in self._active:
                raise SpecError(
                    f"rules {row.against} and {row.id} are both on: each rejects one of two equal forms, so that both would be "
                    f"lost; add one of them to rules_off"
                )
        self._by_kind = {kind: tuple((row.id, row.rejects) for row in self.rules if kind in row.kinds) for kind in KINDS}
        self.rejections: Counter[str] = Counter()

    def reject(self, candidate: CandidateStep) -> str | None:
        """The id of the first rule that rejects the step, or None; counted."""
        for name, rejects in self._by_kind[candidate.kind]:
            if rejects(candidate):
                self.rejections[name] += 1
                return name
        return None

    def of(self, kind: str) -> tuple[Rule, ...]:
        """The rules that look at such steps."""
        return tuple(row for row in self.rules if kind in row.kinds)

    def is_on(self, name: str) -> bool:
        """Whether the rule applies here in its published form; of a rule in two rows, whether both are on."""
        return name in self._whole

    def forbids(self, name: str, candidate: CandidateStep) -> bool:
        """Whether the rule is on in its published form and rejects the step, whatever the size that the step brings."""
        published = RULES[name].published
        return self.is_on(name) and published is not None and published(candidate)

    @property
    def table(self) -> Mapping[str, Rule]:
        """The active rows by id."""
        return {row.id: row for row in self.rules}
