"""Compare search policies with random search at equal trials: do they find a hidden family of operators sooner?

    python benchmarks/search.py --space resnet18 --hidden operator_1 --trials 200 --seeds 20
    python benchmarks/search.py --space mock

The hidden operator is taken from the library or drawn from the space. The reward of an operator is the square of the share of
the hidden operator's steps that it has, so that similar operators have higher rewards. For each policy the report has, over all
seeds: the mean reward of all proposals and of the last quarter, the best reward, how many proposals are in the family
(reward of 1/4 or more), the p-value of the one-sided Mann-Whitney test that mean rewards are above those of random search, and
the time for an ask and a tell, on a space that remembers the steps it has found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import reports
from scipy.stats import mannwhitneyu

from syno.ir.library import OPERATORS
from syno.search.policies import POLICIES, PolicySettings, Proposal
from syno.search.policies.mcts import PRESETS
from syno.search.tree import Action, Tree, actions
from syno.search.walks import Draws, Walks

MOCK = "mock"
FAMILY = 0.25  # reward from which on an operator is of the family


@dataclass(frozen=True)
class Contestant:
    """A policy with its settings, and its name in the report."""

    name: str
    policy: str
    settings: PolicySettings | None = None


CONTESTANTS = (
    Contestant("random", "random"),
    Contestant("mcts", "mcts"),
    Contestant("mcts-focused", "mcts", PRESETS["focused"]),
    Contestant("evolution", "evolution"),
)


@dataclass(frozen=True)
class Run:
    """The run of one policy with one seed: rewards of its proposals in order, and seconds for an ask and a tell."""

    rewards: tuple[float, ...]
    seconds: float

    @property
    def last_quarter(self) -> float:
        return mean(self.rewards[-max(len(self.rewards) // 4, 1) :])


def load(name: str) -> Tree:
    """Return a space by name: "mock", or a model of the paper."""
    if name == MOCK:
        sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
        from search_trees import wide_tree

        return wide_tree()
    from syno.space.presets import preset
    from syno.space.space import Space

    return Space(preset(name))


def hidden(tree: Tree, which: str, candidates: int = 30) -> frozenset[Action]:
    """Return the actions of the hidden operator without the Finalize: of a known one, or of the longest of some random ones."""
    if not which.isdigit():
        return frozenset(actions(tree.path(OPERATORS[which]()))[:-1])
    walks = Walks(tree)
    paths = [actions(path) for draw in range(candidates) if (path := walks.anywhere(Draws("hidden", which, draw))) is not None]
    return frozenset(max(paths, key=len)[:-1])


def reward(path: Sequence[Action], target: frozenset[Action]) -> float:
    return (len(target & set(path)) / len(target)) ** 2


def run(tree: Tree, contestant: Contestant, seed: int, trials: int, target: frozenset[Action]) -> Run:
    """Ask and tell `trials` times, or until no operator is left."""
    policy = POLICIES[contestant.policy](tree, seed, settings=contestant.settings)
    rewards = []
    start = time.perf_counter()
    for _ in range(trials):
        proposal = policy.ask()
        if not isinstance(proposal, Proposal):
            break
        rewards.append(reward(proposal.path, target))
        policy.tell(proposal, rewards[-1])
    return Run(tuple(rewards), (time.perf_counter() - start) / max(len(rewards), 1))


def row(contestant: Contestant, runs: Sequence[Run], blind: Sequence[Run]) -> str:
    means = [mean(one.rewards) for one in runs]
    p_value = mannwhitneyu(means, [mean(one.rewards) for one in blind], alternative="greater").pvalue
    cells = (
        contestant.name,
        f"{mean(means):.4f}",
        f"{mean(one.last_quarter for one in runs):.4f}",
        f"{mean(max(one.rewards) for one in runs):.3f}",
        f"{mean(sum(value >= FAMILY for value in one.rewards) for one in runs):.1f}",
        "–" if contestant.policy == "random" else f"{p_value:.1e}",
        f"{mean(one.seconds for one in runs) * 1e3:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the report, and return the exit status."""
    names = [contestant.name for contestant in CONTESTANTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--space", default="resnet18", help='"mock", or a model of the paper')
    parser.add_argument("--trials", type=int, default=200, help="of each run")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each policy")
    parser.add_argument("--hidden", default="0", help="which operator is hidden: its name in the library, or a number for any")
    parser.add_argument("--policies", default=",".join(names), help="which to run, random first")
    options = reports.parse(parser, arguments)
    chosen = [contestant for contestant in CONTESTANTS if contestant.name in options.policies.split(",")]
    if not chosen or chosen[0].policy != "random":
        parser.error(f"--policies {options.policies}: random, and any of {', '.join(names[1:])}")
    tree = load(options.space)
    target = hidden(tree, options.hidden)
    title = f"{options.space}: {options.trials} trials, {options.seeds} seeds; hidden: {options.hidden}, {len(target)} steps"
    command = f"benchmarks/search.py --space {options.space} --hidden {options.hidden} --trials {options.trials}"
    lines = reports.heading(title, f"{command} --seeds {options.seeds} --policies {options.policies}")
    lines += [
        "",
        "| policy | mean reward | last quarter | best | in the family | p, mean above random | ms per ask and tell |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    blind: list[Run] = []
    for contestant in chosen:
        runs = []
        for seed in range(options.seeds):
            runs.append(run(tree, contestant, seed, options.trials, target))
            print(f"{contestant.name}, seed {seed}: mean reward {mean(runs[-1].rewards):.4f}", file=sys.stderr)
        blind = blind or runs
        lines.append(row(contestant, runs, blind))
    reports.deliver(lines, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
