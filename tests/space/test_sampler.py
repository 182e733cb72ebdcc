"""Random walks and the sampler."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
import small_specs

from syno.base.errors import SpecError
from syno.space import Sampler, Space
from syno.space.sample import sample

IDS = """
import sys
from random import Random
sys.path.insert(0, {tests!r})
import small_specs
from syno.space import Sampler, Space
sampler = Sampler(Space(small_specs.convolution()), Random(7))
while len(sampler.operators) < 5:
    sampler.draw()
print(*(operator.id for operator in sampler.operators))
"""


def drawn(seed: int, count: int) -> list[str]:
    sampler = Sampler(Space(small_specs.convolution()), Random(seed))
    while len(sampler.operators) < count:
        sampler.draw()
    return [operator.id for operator in sampler.operators]


def test_a_sampler_finds_every_operator_once_and_then_is_exhausted() -> None:
    space = Space(small_specs.convolution())
    sampler = Sampler(space, Random(0))
    while not sampler.is_exhausted:
        sampler.draw()
    found = [space.fingerprint(operator) for operator in sampler.operators]
    assert sorted(found) == sorted({space.fingerprint(operator) for _, operator in space.enumerate()})
    assert sampler.draw() is None


def test_an_enumeration_of_distinct_operators_has_each_meaning_once() -> None:
    space = Space(small_specs.matmul(depth=5))
    every, distinct = list(space.enumerate()), list(space.enumerate(distinct=True))
    fingerprints = [space.fingerprint(operator) for _, operator in distinct]
    assert len(set(fingerprints)) == len(fingerprints) < len(every)
    assert set(fingerprints) == {space.fingerprint(operator) for _, operator in every}
    assert set(distinct) <= set(every)
    assert list(space.distinct(operator for _, operator in every)) == [operator for _, operator in distinct]


def test_known_operators_are_not_found_again() -> None:
    space = Space(small_specs.convolution())
    (_, known), *_ = space.enumerate()
    sampler = Sampler(space, Random(0))
    sampler.know(known)
    while not sampler.is_exhausted:
        assert sampler.draw() != known


def test_equal_seeds_give_equal_operators_whatever_was_asked_before() -> None:
    assert drawn(3, 6) == drawn(3, 6)
    space = Space(small_specs.convolution())
    list(space.enumerate())
    assert [s.id for s in space.walk(space.root, Random(1)) or ()] == [
        s.id for s in Space(space.spec).walk(space.root, Random(1)) or ()
    ]


@pytest.mark.slow
def test_equal_seeds_give_equal_operators_in_every_process(pytestconfig) -> None:  # type: ignore[no-untyped-def]
    program = IDS.format(tests=str(pytestconfig.rootpath / "tests" / "support"))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_walk_ends_in_an_operator_or_says_so() -> None:
    space = Space(small_specs.convolution())
    for seed in range(20):
        path = space.walk(space.root, Random(seed))
        assert path is None or path[-1].operator is not None


def test_every_step_from_the_root_leads_on() -> None:
    space = Space(small_specs.convolution())
    for step in space.steps(space.root):
        assert space.steps(step.node)


class TestSample:
    def test_operators_are_those_of_the_sampler_each_once_with_names_of_their_own(self) -> None:
        space = Space(small_specs.convolution())
        found = sample(space, 6, seed=7)
        assert [operator.id for operator in found] == drawn(7, 6)
        assert [operator.id for operator in sample(space, 6, seed=7)] == drawn(7, 6)  # what the space remembers changes nothing
        assert len({space.fingerprint(operator) for operator in found}) == 6
        assert [operator.name for operator in found] == [f"convolution_{number}" for number in range(1, 7)]
        assert sample(space, 0) == []

    def test_a_space_with_fewer_operators_gives_all_of_them(self) -> None:
        space = Space(small_specs.two_ended())
        assert len(sample(space, 1000)) == len(list(space.enumerate(distinct=True)))

    def test_a_limit_of_walks_ends_the_sampler(self) -> None:
        space = Space(small_specs.convolution())
        assert 1 <= len(sample(space, 50, most_walks=5)) <= 5
        with pytest.raises(SpecError, match='0 random walks .*"convolution"'):
            sample(space, 1, most_walks=0)

    def test_what_has_no_operator_is_named(self) -> None:
        with pytest.raises(SpecError, match='"convolution" .*at most 1 primitives'):
            sample(Space(small_specs.convolution(depth=1)), 1)
        with pytest.raises(SpecError, match="count is -1"):
            sample(Space(small_specs.convolution()), -1)
