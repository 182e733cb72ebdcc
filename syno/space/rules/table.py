"""Canonicalization rules as rows of a table, and the set of rules that a space applies.

A rule rejects a step whose result another path also reaches, exactly or nearly. Each row has a reason, can be switched off,
and counts what it rejects.

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
REST = "p"  # ends the id of the row that holds the rest of a rule: a policy


@dataclass(frozen=True)
class Rule:
    """A row of the table. A rule of a user's own is one, too: `rules_on: ["package.module:name"]` adds it to a space.

    Attributes:
        id: the name in settings and counts. Built-in: V for views, C for contractions and order, U for unordered channels, S
            for symmetry.
        kinds: the kinds of steps that it looks at, or their names, of `KINDS`; one may be given as it is.
        forbids: the pair of primitives, bottom first.
        reason: what the rejected operator equals, or nearly equals.
        rejects: returns whether it rejects a step. The answer may depend on the step alone. A step's `kind` is an object of
            `KINDS`, not a name: compare `step.kind.name == "Split"`.
        exact: whether the rejected operator equals another in every element; else nearly, or not at all.
        source: the clause of the paper, or the published system.
        on: whether it is on unless a spec says otherwise.
        against: the rule that must be off if this one is on: together they would cut off both of two equal forms.
        rest_of: the exact rule that this one completes to the published rule.
        looks_at: the kinds that `kinds` names.
        published: the predicate of the published rule; of a rule in two rows, what both reject together.

    Raises:
        SpecError: `kinds` holds something that is no kind of step, or `rejects` cannot be called.
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
        given = self.kinds if isinstance(self.kinds, tuple | list) else (self.kinds,)
        names = [str(kind) for kind in given]
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
    """The part of a published rule that is not exact: steps whose result is reached in no other way.

    Attributes:
        exact_if: returns whether the result of a rejected step is reached in another way.
        forbids, reason: as those of a Rule, where it is not.
        also: what this part rejects in addition, so that with the exact part off no other form gets around it.
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
    """Enter the decorated predicate as a row; with `rest`, as two: where the rule is exact, and where it is not."""

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
    """The rules of one space, and how often each has rejected a step.

    Args:
        off: ids of rules to switch off; "all" for every built-in rule.
        on: ids of rules to switch on that are off by default, and paths `package.module:name` of rules of a user's own.

    Attributes:
        rules: the rows that are on, a user's own last.
        rejections: how often each has rejected a step, by id.

    Raises:
        SpecError: a rule does not exist, is switched both on and off, has an id that another has, or goes against another.
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
        """Return the set of those rules of this set that are exact."""
        found = copy(self)
        found._enter(row for row in self.rules if row.exact)
        return found

    def reject(self, step: CandidateStep) -> str | None:
        """Return the id of the first rule that rejects the step, and count it; None if all accept it."""
        for name, rejects in self._by_kind[step.kind]:
            if rejects(step):
                self.rejections[name] += 1
                return name
        return None

    def of(self, kind: StepKind) -> tuple[Rule, ...]:
        """Return the rules that look at steps of this kind."""
        return tuple(row for row in self.rules if kind in row.looks_at)

    def is_on(self, name: str) -> bool:
        """Return whether the rule applies here in its published form; of a rule in two rows, whether both are on."""
        return name in self._whole

    def forbids(self, name: str, step: CandidateStep) -> bool:
        """Return whether the rule is on in its published form and rejects the step, whatever the size that the step brings."""
        published = self._published.get(name)
        return published is not None and published(step)

    @property
    def table(self) -> Mapping[str, Rule]:
        """The active rows by id."""
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
    """Return the user's own row with a predicate whose exceptions name the rule."""

    def rejects(step: CandidateStep) -> bool:
        with user_code(f'the rule "{path}"'):
            return bool(row.rejects(step))

    return replace(row, rejects=rejects)
