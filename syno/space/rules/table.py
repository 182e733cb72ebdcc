"""Canonicalization rules as rows of a table, and the set of rules that a space applies.

A rule rejects a step whose result is also reached by another path, exactly or nearly. Each row has a reason, can be switched
off, and counts its rejections.

Paper: section 5.3 (canonicalization).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from syno.base.errors import SpecError, suggestion
from syno.base.registry import Registry, is_path
from syno.base.user_code import user_code
from syno.space.steps import KINDS, CandidateStep, StepKind

GivenKinds = StepKind | str | tuple[StepKind | str, ...]
Predicate = Callable[[CandidateStep], bool]
ALL = "all"  # stands for every built-in rule
REST = "p"  # suffix of the id of a rule's inexact part


@dataclass(frozen=True)
class Rule:
    """A canonicalization rule: a row of the table. `rules_on: ["package.module:name"]` adds a user's own to a space.

    Attributes:
        id: name of the rule in settings and counts. Built-in ids begin with V for views, C for contractions and order, U for
            unordered channels, S for symmetry.
        kinds: the kinds of steps that the rule checks, from `KINDS`, or their names; a single kind needs no tuple.
        forbids: the pair of primitives, bottom first.
        reason: the form that the rejected operator equals, or nearly equals, in words.
        rejects: function that returns whether the rule rejects a step; it must depend on the step alone. A step's `kind` is an
            object of `KINDS`, not a name: compare `step.kind.name == "Split"`.
        exact: whether the rejected operator equals another in every element; otherwise it may be only nearly equal, or
            different.
        source: the clause of the paper, or the published system.
        on: whether the rule is on by default.
        against: the rule that must be off if this one is on; together they would reject both of two equal forms.
        rest_of: the exact rule that this inexact one completes to the published rule.
        looks_at: `kinds` as objects of `KINDS`.
        published: the predicate of the published rule; for a rule in two rows, the union of both.

    Raises:
        SpecError: `kinds` contains no kind of step, or `rejects` is not callable.
    """

    id: str
    kinds: GivenKinds
    forbids: str
    reason: str
    rejects: Predicate
    exact: bool = False
    source: str = "own"
    on: bool = True
    against: str | None = None
    rest_of: str | None = None
    published: Predicate | None = None
    looks_at: tuple[StepKind, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kinds = self.kinds if isinstance(self.kinds, tuple | list) else (self.kinds,)
        names = [str(kind) for kind in kinds]
        for name in names:
            if name not in KINDS:
                raise SpecError(
                    f'rule "{self.id}" looks at steps of kind "{name}"; there are: {", ".join(KINDS)}.{suggestion(name, KINDS)}'
                )
        if not names or not callable(self.rejects):
            raise SpecError(f'rule "{self.id}" needs a kind of step to look at, and a function `rejects` of a step')
        object.__setattr__(self, "looks_at", tuple(KINDS[name] for name in names))


@dataclass(frozen=True)
class Rest:
    """The inexact part of a published rule: steps whose result no other path reaches.

    Attributes:
        exact_if: function that returns whether another path reaches the result of a rejected step.
        forbids, reason: forbidden pair and reason of the inexact row.
        also: further steps that this part rejects: detours around the exact part.
    """

    exact_if: Predicate
    forbids: str
    reason: str
    also: Predicate = lambda step: False


RULES: Registry[Rule] = Registry("rule", accepts=lambda found: isinstance(found, Rule), needed="a syno.space.rules.Rule")


def rule(
    id: str,  # noqa: A002  (the field's name)
    kinds: GivenKinds,
    forbids: str,
    reason: str,
    *,
    exact: bool,
    source: str = "published system",
    on: bool = True,
    against: str | None = None,
    rest: Rest | None = None,
) -> Callable[[Predicate], Predicate]:
    """Register the decorated predicate as a rule. With `rest`, it becomes two rows: the exact and the inexact part."""

    def enter(rejects: Predicate) -> Predicate:
        row = Rule(id, kinds, forbids, reason, rejects, exact, source, on, against, None, rejects)
        if rest is None:
            RULES.register(id)(row)
            return rejects
        exact_if, also = rest.exact_if, rest.also
        RULES.register(id)(replace(row, rejects=lambda step: rejects(step) and exact_if(step)))
        RULES.register(id + REST)(
            Rule(
                id + REST,
                kinds,
                rest.forbids,
                rest.reason,
                lambda step: not exact_if(step) if rejects(step) else also(step),
                source=source,
                on=on,
                rest_of=id,
            )
        )
        return rejects

    return enter


class RuleSet:
    """The active rules of one space, with counts of their rejections.

    Args:
        off: ids of rules to switch off; "all" for every built-in rule.
        on: ids of rules to switch on that are off by default, and paths `package.module:name` of rules of a user's own.

    Attributes:
        rules: the active rows, a user's own last.
        rejections: number of rejected steps by rule id.

    Raises:
        SpecError: a rule does not exist, is switched both on and off, has the id of another rule, or excludes another active
            rule.
    """

    def __init__(self, off: Iterable[str] = (), on: Iterable[str] = ()) -> None:
        off, on = tuple(off), tuple(on)
        known = {name: _row(name) for name in (*off, *on) if name != ALL}
        excluded, included = ({known[name].id for name in names if name != ALL} for names in (off, on))
        for name in sorted(excluded & included):
            raise SpecError(f"rule {name} is in rules_off and in rules_on; take it out of one of them")
        own = {name: row for name, row in known.items() if is_path(name) and name in on}
        _check_ids(own)
        self._enter(
            row
            for row in (*RULES.values(), *(_with_named_errors(name, row) for name, row in own.items()))
            if row.id in included or (row.on and row.id not in excluded and ALL not in off)
        )
        for row in self.rules:
            if row.against in self._active:
                raise SpecError(
                    f"rules {row.against} and {row.id} are both on: each rejects one of two equal forms, so that both would be "
                    f"lost; add one of them to rules_off"
                )

    def _enter(self, rows: Iterable[Rule]) -> None:
        self.rules = tuple(rows)
        self._active = {row.id for row in self.rules}
        self._whole = self._active - {row.rest_of for row in RULES.values() if row.rest_of and row.id not in self._active}
        self._published = {name: row.published for name, row in RULES.items() if name in self._whole and row.published}
        self._by_kind = {kind: tuple((row.id, row.rejects) for row in self.of(kind)) for kind in KINDS.values()}
        self.rejections: Counter[str] = Counter()

    def exact(self) -> RuleSet:
        """Return a rule set with the exact rules among these."""
        exact = copy(self)
        exact._enter(row for row in self.rules if row.exact)
        return exact

    def reject(self, step: CandidateStep) -> str | None:
        """Return the id of the first rule that rejects the step, and count the rejection; None if all rules accept it."""
        for name, rejects in self._by_kind[step.kind]:
            if rejects(step):
                self.rejections[name] += 1
                return name
        return None

    def of(self, kind: StepKind) -> tuple[Rule, ...]:
        """Return the active rules for steps of this kind."""
        return tuple(row for row in self.rules if kind in row.looks_at)

    def is_on(self, name: str) -> bool:
        """Return whether the published form of the rule is on; for a rule in two rows, whether both are on."""
        return name in self._whole

    def forbids(self, name: str, step: CandidateStep) -> bool:
        """Return whether the rule's published form is on and rejects the step, for every size that the step may have."""
        published = self._published.get(name)
        return published is not None and published(step)

    @property
    def table(self) -> Mapping[str, Rule]:
        """The active rules by their ids."""
        return {row.id: row for row in self.rules}


def _row(name: str) -> Rule:
    if is_path(name) or name in RULES:
        return RULES.find(name)
    raise SpecError(
        f'no rule "{name}"; there are: {", ".join(RULES)}, and "{ALL}".{suggestion(name, RULES)} '
        'Your own is "package.module:name"'
    )


def _check_ids(own: Mapping[str, Rule]) -> None:
    """Raise SpecError if a user's own rule has the id of another rule."""
    paths: dict[str, str] = {}
    for path, row in own.items():
        other = "a built-in rule" if row.id in RULES or row.id == ALL else f'"{paths[row.id]}"' if row.id in paths else None
        if other is not None:
            raise SpecError(f'the rule "{path}" has the id "{row.id}", which {other} has already; give it another id')
        paths[row.id] = path


def _with_named_errors(path: str, row: Rule) -> Rule:
    """Return the user's own rule with a predicate whose exceptions name the rule."""

    def rejects(step: CandidateStep) -> bool:
        with user_code(f'the rule "{path}"'):
            return bool(row.rejects(step))

    return replace(row, rejects=rejects)
