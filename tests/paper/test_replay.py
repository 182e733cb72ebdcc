"""The table of truth, its tree, and replays of searches on it."""

from functools import cache, partial

import pytest

from syno.base.errors import SpecError, UnreachableError
from syno.ir.library import OPERATORS
from syno.paper.replay import OperatorTable, TableTree, milestones, replay
from syno.paper.replay.stopping import halving
from syno.search.halving import HalvingSettings
from syno.search.policies import POLICIES, Evolution, RandomWalk
from syno.search.policies.contract import CHECKS, small_space
from syno.search.policies.surrogate import SurrogateSettings
from syno.search.tree import Tree
from syno.search.walks import Draws
from syno.space.sample import all_orders
from syno.space.space import Space

kept = cache(OperatorTable.read)


@cache
def small_tree() -> TableTree:
    """The tree of all operators of a small space, as `benchmarks/table.py pack` makes it."""
    space = small_space()
    numbers: dict[object, int] = {space.root: 0}
    steps, entries, like = set(), {}, next(iter(kept().entries.values()))
    for _, operator in space.enumerate():
        for state, step in all_orders(space, operator):
            before, after = (numbers.setdefault(node, len(numbers)) for node in (state, step.node))
            steps.add((before, step.kind, step.id, after))
            if step.operator is not None:
                values = {"id": operator.id, "fingerprint": space.fingerprint(operator), "text": str(operator)}
                entries[after] = like.__class__(**{**vars(like), **values})
    return TableTree(entries, steps)


def paths(tree: Tree, node: object) -> set[tuple[str, ...]]:
    """The ids of the steps of all paths from a node to an operator."""
    return {
        (step.id, *rest) for step in tree.steps(node) for rest in (paths(tree, step.node) if step.operator is None else [()])
    }


def test_the_tree_of_all_operators_is_the_space() -> None:
    space: Space = small_space()
    assert paths(small_tree(), 0) == paths(space, space.root)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_policy_keeps_its_guarantees_on_the_tree(check) -> None:
    tree = small_tree()
    check(Evolution, lambda: tree)


def test_a_path_leads_to_its_operator_and_others_are_refused() -> None:
    tree = small_tree()
    for entry in tree.operators.values():
        path, node = tree.path(entry.operator), tree.root
        for step in path:
            assert tree.step(node, step.kind, step.id) is step
            node = step.node
        assert path[-1].operator is entry.operator
    with pytest.raises(UnreachableError, match="none of the 24 operators"):
        tree.path(OPERATORS["conv2d"]())


@pytest.mark.parametrize("count", [0, 5])
def test_random_walks_draw_all_operators_that_are_left_with_equal_chances(count) -> None:
    tree = small_tree()
    weigh, chances, waiting = tree.weighing(), dict[str, float](), [(tree.root, 1.0)]
    taken = {entry.fingerprint for entry in list(tree.operators.values())[:count]}
    while waiting:
        node, chance = waiting.pop()
        weights = {step: weigh(step, taken) for step in tree.steps(node)}
        for step, weight in weights.items():
            if step.entry is not None:
                chances[step.entry.fingerprint] = chances.get(step.entry.fingerprint, 0) + chance * weight / sum(
                    weights.values()
                )
            elif weight:
                waiting.append((step.node, chance * weight / sum(weights.values())))
    left = len({entry.fingerprint for entry in tree.operators.values()} - taken)
    for entry in tree.operators.values():
        assert chances.get(entry.fingerprint, 0) == pytest.approx(0 if entry.fingerprint in taken else 1 / left)


def test_a_weighed_order_draws_in_proportion_to_the_weights() -> None:
    weights = {"one": 1.0, "none": 0.0, "three": 3.0}
    orders = [Draws("test", number).weighed_order(weights, str, weights.__getitem__) for number in range(2000)]
    assert {order[-1] for order in orders} == {"none"}
    assert sum(order[0] == "three" for order in orders) == pytest.approx(1500, abs=60)  # three standard deviations


def test_a_part_of_the_table_leads_to_its_operators_only() -> None:
    table = kept()
    tree, found, waiting = table.tree("natural"), set(), [0]
    while waiting:
        for step in tree.steps(waiting.pop()):
            waiting.append(step.node)
            found |= {step.entry.id} if step.entry else set()
    assert found == set(table.subset("natural")) == {entry.id for entry in table.entries.values() if entry.natural}
    with pytest.raises(SpecError, match='"naturel" .*"natural"'):
        table.subset("naturel")


def test_the_table_that_comes_with_syno_agrees_with_itself() -> None:
    table = kept()
    fingerprints = {entry.fingerprint for entry in table.entries.values()}
    assert len(fingerprints) == len(table.entries) == table.about["operators"]
    for entry in list(table.entries.values())[::20]:
        assert entry.operator.id == entry.id
        assert len(entry.accuracies[0]) == len(table.original.accuracies[0])
        assert entry.natural or entry.meets
        assert entry.meets == (entry.twice.centred and entry.twice.channels == 16)
        assert 0.15 * table.original.flops <= entry.flops <= 0.6 * table.original.flops
    assert set(table.tree().operators) == set(table.entries)


def test_a_folder_without_a_table_is_refused(tmp_path) -> None:
    with pytest.raises(SpecError, match="holds no table of operators"):
        OperatorTable.read(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("workers", "stopping"), [(1, HalvingSettings()), (4, None)])
def test_a_replay_depends_on_the_seed_alone(policy, workers, stopping) -> None:
    table, settings = kept(), SurrogateSettings(trees=4, walks=2, mutations=2) if policy == "surrogate" else None
    run = partial(replay, table, POLICIES[policy], trials=8, workers=workers, stopping=stopping, settings=settings)
    first = run(seed=1)
    assert first == run(seed=1, tree=table.tree()) != run(seed=2)
    assert sorted(trial.number for trial in first) == list(range(8))


@pytest.mark.parametrize("by", ["loss", "score"])
def test_a_replay_pauses_the_trials_that_the_rule_does(by) -> None:
    """With the order of trials as the rule alone takes them, where the policy does not learn."""
    table, settings = kept(), HalvingSettings(by=by)
    whole = replay(table, RandomWalk, trials=40)
    curves = [one.entry.accuracies[0] if by == "score" else [-loss for loss in one.entry.recent_losses[0]] for one in whole]
    parts = 1 if by == "score" else 4
    work, halved = halving(settings.rungs(4), parts)(curves), replay(table, RandomWalk, trials=40, stopping=settings)
    assert {one.number: len(one.accuracies) for one in halved} == {n: done // parts for n, done in enumerate(work.epochs)}
    assert [one.stopped for one in halved] == sorted(one.stopped for one in halved)
    ends = [one for one in halved if not one.stopped]
    assert ends[-1].finished <= sum(one.cpu_seconds for one in halved) < 0.7 * whole[-1].finished
    assert [one.begun for one in ends] == sorted(one.begun for one in ends)


def test_workers_run_at_the_same_time() -> None:
    table = kept()
    one, four = (replay(table, RandomWalk, trials=12, workers=workers) for workers in (1, 4))
    assert one[-1].finished == pytest.approx(sum(trial.cpu_seconds for trial in one))
    assert max(trial.finished for trial in four) < one[-1].finished / 2


def test_a_stopped_trial_costs_the_epochs_it_had_and_has_no_reward() -> None:
    table, bound = kept(), {1: 0.13, 2: 0.35}
    whole, cut = (replay(table, RandomWalk, trials=20, stops=stops) for stops in (milestones({}), milestones(bound)))
    for before, after in zip(whole, cut, strict=True):
        assert after.entry == before.entry  # random search does not learn
        curve = before.accuracies
        epochs = 1 if curve[0] < bound[1] else 2 if curve[1] < bound[2] else 4
        assert after.accuracies == curve[:epochs] and after.stopped == (epochs < 4)
        assert after.reward == (0.0 if after.stopped else before.reward)
        assert after.cpu_seconds == pytest.approx(before.cpu_seconds * epochs / 4)
    assert any(trial.stopped for trial in cut) and not all(trial.stopped for trial in cut)
