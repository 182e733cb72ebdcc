"""Other settings for a study: taken before a trial has succeeded, refused afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from small_studies import Metrics, diverging, evaluate, sound, stop, study

from syno.base.errors import SpecError
from syno.ir.graph import PGraph
from syno.train.contract import Report


class TestSettings:
    def test_before_a_success_others_are_taken(self, journal: str) -> None:
        stop(study(journal), diverging, 4)
        with pytest.warns(UserWarning, match=r"takes other settings, as no trial has succeeded .*: seed is 1 there, 2 here$"):
            found = study(journal, seed=2)
        found.run(evaluate, 6)
        whole = study(seed=2)
        whole.run(evaluate, 6)
        kept = found.trials[found.trials.outcome != "withdrawn"]
        assert list(kept.operator) == list(whole.trials.operator)
        with pytest.raises(SpecError, match="Trial 4 has succeeded with those"):
            study(journal)

    def test_not_while_another_worker_evaluates(self, journal: str) -> None:
        def opening(operator: PGraph, report: Report) -> Metrics:
            with pytest.raises(SpecError, match=r"seed is 1 there, 2 here\. Trial 0 is being evaluated with those, by "):
                study(journal, seed=2)
            return {"accuracy": 0.5}

        study(journal).run(opening, 1)

    def test_a_worker_with_those_before_stops(self, journal: str) -> None:
        old = study(journal)
        with pytest.warns(UserWarning, match="takes other settings"):
            study(journal, seed=2)
        assert "given other settings by another worker: seed is 2 there, 1 here" in stop(old, sound)

    def test_the_options_of_a_space_are_named(self, journal: str) -> None:
        layers = [{"C_in": 64, "C_out": 64}] * 10
        spec: dict[str, Any] = {"depth": 4, "layers": layers, "budget": {"most_flops": 1e9, "rest_flops": 5.0}}
        study(journal, space_id="a", more_settings={"spec": spec, "workload": {"width": 1.0}}).run(sound, 1)
        for changes, expected in (
            (
                {"spec": {**spec, "depth": 5, "budget": {"most_flops": 2e9, "rest_flops": 5.0}}},
                ["spec.depth is 4 there, 5 here", "most_flops"],
            ),
            ({"spec": {**spec, "layers": layers[:-1]}}, ["spec.layers is [{'C_in': 64"]),
            (
                {"spec": {**spec, "layers": [], "budget": {"most_flops": 1e9, "rest_flops": 2.0}}, "workload": {"width": 0.5}},
                ["workload.width is 1.0 there, 0.5 here"],
            ),
        ):
            with pytest.raises(SpecError) as error:
                study(journal, space_id="b", more_settings={"spec": spec, "workload": {"width": 1.0}, **changes})
            said = str(error.value)
            assert said.count(" there, ") == len(expected) and all(part in said for part in expected) and len(said) < 500
