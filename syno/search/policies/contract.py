"""The contract of a search policy: ask, adopt, tell."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import ConfigDict

from syno.base.errors import SpecError
from syno.base.registry import Registry
from syno.base.validation import Settings
from syno.search.goal import Goal
from syno.search.policies.candidates import EXHAUSTED, Candidate, Exhausted, Proposal
from syno.search.reward import Outcome
from syno.search.tree import Tree, TreeStep, actions
from syno.search.walks import LIMIT, Draws, Walks

__all__ = ["EXHAUSTED", "POLICIES", "STOPPED", "Candidate", "Exhausted", "Policy", "PolicySettings", "Proposal"]

STOPPED: Final = 0.0  # the reward of an operator whose evaluation was stopped, for policies that learn from rewards alone


class PolicySettings(Settings):
    """Base of the settings of policies: a policy's own subclass has a field for each constant."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Policy(ABC):
    """Decides which operator is evaluated next.

    A subclass has `_choose`, and `Settings` if it has constants; it may override `_prepare`, `_adopted`, `_told`,
    `_reported` and `_stopped` to learn from outcomes. Experiments give it as `policy: {name: "package.module:MyPolicy"}`.

    A policy sees three events. `ask` proposes an operator, which is outstanding until `tell` gives its outcome; any number may
    be outstanding, and outcomes come in any order. `adopt` records a proposal made elsewhere, by another worker or before a
    restart. `ask` is `propose`, which changes nothing, followed by `adopt`. Where trials pause there are two more: `report`
    gives a value that an outstanding operator has reached on the way, and `stop` says that it is never trained to its end; by
    default, policies ignore values, and give an operator that was stopped the reward 0. Where a search has a goal, `measure`
    gives metrics, and `screen_out` says that an operator cannot meet the goal: by default, the reward 0. Every policy
    guarantees (`syno.search.policies.conformance` checks it):

    * Its proposals are a function of the tree, the settings, the seed and the events so far in their order, of nothing else.
      So a policy is rebuilt by adopting and telling what is stored. If the tree learns about dead ends, the policy also
      proposes again, on a tree that knows no more than the first one did.
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
    ) -> None:
        self.tree = tree
        self.goal = goal
        self.seed = seed
        self.settings = settings if settings is not None else self.Settings()
        if not isinstance(self.settings, self.Settings):
            raise SpecError(f'policy "{self.name}" takes {self.Settings.__name__}; given: {type(self.settings).__name__}')
        self.walks = Walks(tree, limit)
        self._warm_start = tuple(warm_start)
        self._outstanding: dict[str, Candidate] = {}
        self._proposed = 0  # by all workers
        self._prepare()

    # ---- the three events -----------------------------------------------------------------------------------------

    def ask(self, salt: str = "") -> Proposal | Exhausted:
        """Return the next operator to evaluate, which is then outstanding; or EXHAUSTED."""
        proposal = self.propose(salt)
        if isinstance(proposal, Proposal):
            self.adopt(proposal)
        return proposal

    def propose(self, salt: str = "") -> Proposal | Exhausted:
        """Return what `ask` would answer, without a change.

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
        self._adopted(candidate)

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record the outcome of an outstanding operator: its reward in [0, 1], or a Failure.

        Raises SpecError if it is not outstanding, or if the reward is out of range.
        """
        if isinstance(outcome, float | int) and not 0 <= outcome <= 1:
            raise SpecError(f"a reward is in [0, 1], or a Failure; given: {outcome}")
        self._told(self._no_longer_outstanding(candidate), outcome)

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

    # ---- for subclasses ---------------------------------------------------------------------------
    def _prepare(self) -> None:  # noqa: B027  (optional)
        """Set up the policy's memory before the first event."""

    @abstractmethod
    def _choose(self, draws: Draws) -> tuple[TreeStep, ...] | None:
        """Return a path to an operator that is not taken; None if there is none. Must not change what `_choose` depends on."""

    def _adopted(self, candidate: Candidate) -> None:  # noqa: B027
        """Record a candidate that is outstanding from now on."""

    def _told(self, candidate: Candidate, outcome: Outcome) -> None:  # noqa: B027
        """Record the outcome of a candidate that is no longer outstanding."""

    def _reported(self, candidate: Candidate, step: float, value: float) -> None:  # noqa: B027
        """Record a value that an outstanding candidate has reached after a step."""

    def _measured(self, candidate: Candidate, metrics: Mapping[str, float]) -> None:  # noqa: B027
        """Record metrics of an outstanding candidate."""

    def _screened(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, cannot meet the goal."""
        self._told(candidate, STOPPED)

    def _stopped(self, candidate: Candidate) -> None:
        """Record that a candidate, which is no longer outstanding, was stopped for good."""
        self._told(candidate, STOPPED)


def _is_policy(given: object) -> bool:
    return (
        isinstance(given, type)
        and issubclass(given, Policy)
        and not inspect.isabstract(given)
        and issubclass(given.Settings, PolicySettings)
    )


POLICIES: Registry[type[Policy]] = Registry(
    "search policy",
    accepts=_is_policy,
    needed="a subclass of syno.search.policies.Policy with a method _choose, whose Settings, if any, are PolicySettings",
)
