"""The contract of a search policy: ask, adopt, tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.search.draws import Draws
from syno.search.reward import Outcome
from syno.search.tree import Arc, Step, Tree, arcs
from syno.search.walks import LIMIT, Walks


@dataclass(frozen=True)
class Candidate:
    """An operator on its way through a study, as far as a policy needs to know it.

    Attributes:
        path: steps from the root to it, the last one a Finalize.
        fingerprint: equal for operators that mean the same.
    """

    path: tuple[Arc, ...]
    fingerprint: str


@dataclass(frozen=True)
class Proposal(Candidate):
    """A candidate with its operator, to be evaluated."""

    operator: PGraph


class Exhausted(Enum):
    """The answer of a policy whose tree has no operator left. It is final, whatever trials are still running."""

    EXHAUSTED = "exhausted"


EXHAUSTED: Final = Exhausted.EXHAUSTED


class PolicySettings(BaseModel):
    """The constants of a policy."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Policy(ABC):
    """Decides which operator is evaluated next.

    A policy sees three events. `ask` proposes an operator, which is outstanding until `tell` gives its outcome, in any
    order; any number may be outstanding. `adopt` takes note of a proposal made elsewhere, by another worker or before a
    restart. `ask` is `propose`, which changes nothing, and `adopt` of what it proposes. Every policy keeps these promises:

    * What it proposes is a function of the tree, the settings, the seed and the events so far, in their order, and of
      nothing else. So a policy is rebuilt by adopting and telling what is stored; if the tree learns about dead ends, by
      proposing it again as well, on a tree that knows no more than the first one did.
    * It never proposes an operator whose fingerprint it has proposed or adopted.
    * It proposes every operator of the tree sooner or later, then answers EXHAUSTED.
    * The operators it is to start from (`warm_start`) come first, in their order.
    * An evaluation that failed is an outcome like any other.

    A `salt` makes another proposal in the same situation: a worker whose proposal another one made at the same moment asks
    with a salt of its own from then on, so that the two go different ways.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[PolicySettings]] = PolicySettings

    def __init__(
        self,
        tree: Tree,
        seed: int = 0,
        *,
        settings: PolicySettings | None = None,
        warm_start: Sequence[Proposal] = (),
        limit: int = LIMIT,
    ) -> None:
        self.tree = tree
        self.seed = seed
        self.settings = settings if settings is not None else self.Settings()
        if not isinstance(self.settings, self.Settings):
            raise SpecError(f'policy "{self.name}" takes {self.Settings.__name__}; given: {type(self.settings).__name__}')
        self.walks = Walks(tree, limit)
        self._warm_start = tuple(warm_start)
        self._outstanding: dict[str, Candidate] = {}
        self._proposed = 0  # by anyone
        self._prepare()

    # ---- the three events -----------------------------------------------------------------------------------------

    def ask(self, salt: str = "") -> Proposal | Exhausted:
        """The next operator to evaluate, which is then outstanding; or EXHAUSTED."""
        proposal = self.propose(salt)
        if isinstance(proposal, Proposal):
            self.adopt(proposal)
        return proposal

    def propose(self, salt: str = "") -> Proposal | Exhausted:
        """What `ask` would answer. Changes nothing.

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
        return Proposal(arcs(path), self.walks.fingerprint(path[-1]), operator)

    @property
    def found_closed(self) -> list[str]:
        """Names of nodes of the tree that turned out to have nothing left, since `hear_closed` last had them."""
        return self.walks.found_closed

    def hear_closed(self, names: Iterable[str]) -> None:
        """Take note of nodes that somebody, here or elsewhere, found to have nothing left, who knew of no more proposals.

        It saves the time to find it out, and changes nothing else.
        """
        self.walks.hear_closed(names)

    def adopt(self, candidate: Candidate) -> None:
        """Somebody, here or elsewhere, proposed this and evaluates it now.

        Raises SpecError if its fingerprint was proposed before.
        """
        if candidate.fingerprint in self.walks.taken:
            raise SpecError(
                f"the operator with fingerprint {candidate.fingerprint} was proposed already; each is proposed once"
            )
        self.walks.taken.add(candidate.fingerprint)
        self._outstanding[candidate.fingerprint] = candidate
        self._proposed += 1
        self._adopted(candidate)

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """What became of an outstanding operator: its reward in [0, 1], or a Failure.

        Raises SpecError if it is not outstanding, or if the reward is out of range.
        """
        adopted = self._outstanding.get(candidate.fingerprint)
        if adopted is None:
            known = "told already" if candidate.fingerprint in self.walks.taken else "neither proposed nor adopted"
            raise SpecError(f"the operator with fingerprint {candidate.fingerprint} is not outstanding: it was {known}")
        if isinstance(outcome, float | int) and not 0 <= outcome <= 1:
            raise SpecError(f"a reward is in [0, 1], or a Failure; given: {outcome}")
        del self._outstanding[candidate.fingerprint]
        self._told(adopted, outcome)

    # ---- what a policy is made of ---------------------------------------------------------------------------------

    def _prepare(self) -> None:  # noqa: B027  (a policy may have nothing to prepare)
        """Set up what the policy remembers, before the first event."""

    @abstractmethod
    def _choose(self, draws: Draws) -> tuple[Step, ...] | None:
        """A path to an operator that is not taken; None if there is none. Must not change what later choices depend on."""

    def _adopted(self, candidate: Candidate) -> None:  # noqa: B027  (a policy may have no use for it)
        """Take note of a candidate that is outstanding from now on."""

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:  # noqa: B027
        """Take note of the outcome of a candidate that is no longer outstanding."""
