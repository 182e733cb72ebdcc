"""Rivals of a search: what a user would do without synthesis, with the recipe, the seeds and the stopwatch of the operators."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from statistics import mean, variance
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from result_tables import made_tables, read_tables
from small_experiment import FIELDS

from syno.base.errors import SpecError
from syno.base.files import write_whole
from syno.base.interval import Interval
from syno.config import Experiment
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.measure import measuring_process
from syno.model.networks import Network, Role, replacement_named
from syno.model.replacements import KnownLayer, Mixture
from syno.run.measurement import Measurement
from syno.run.speedups import IN_TURNS
from syno.run.table import measurement_table
from syno.search.reward import GainReward, from_settings
from syno.space.space import Space
from syno.stages import rivals as stage
from syno.stages.data import prepare
from syno.stages.mixtures import REPEATS
from syno.stages.opening import open_study
from syno.stages.places import SELECTED, training_file
from syno.stages.results import StoredRun
from syno.stages.rivals import (
    RivalRecord,
    evaluate_rival,
    rival_file,
    rivals_of,
    speeds_of_rivals,
    trained_rivals,
    with_latencies,
)
from syno.stages.selection import Selected, write_selected
from syno.stages.speedups import speedups_of
from syno.stages.store import OperatorStore
from syno.stages.tables import make_tables
from syno.stages.take_home import take_network
from syno.stages.train import settings_of_training, train
from syno.stages.workflow_stages import jobs
from syno.train.training_record import TrainingRecord

STAND_IN = Path(__file__).parents[1] / "support" / "speedup_stand_in.py"
GOAL = {"speedup": 1.5, "lose_at_most": 0.5, "compiler": "eager"}
RIVALS = {"shares": [0.5], "operators": ["grouped_conv2d", "gpt2_projection"], "int8": False}


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with a stand-in, after which everything is twice as fast."""
    monkeypatch.setattr(measuring_process, "COMMAND", (sys.executable, "-S", str(STAND_IN)))
    monkeypatch.setattr(measuring_process, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("SYNO_MEASURED", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)


def experiment(name: str = "small", **changes: Any) -> Experiment:
    rest = {key: value for key, value in FIELDS.items() if key not in ("reward", "policy", "name")}
    given = {"goal": GOAL, "rivals": RIVALS, "train": {"seeds": [1, 2]}, **changes}
    return Experiment.model_validate({**rest, "name": name, **given})


def trained(found: Experiment) -> Experiment:
    for seed in found.train.seeds:
        train(found, "original", seed)
    return found


def test_which_rivals_an_experiment_has() -> None:
    assert experiment().rival_names == ("pruned_0.5", "narrow_0.5", "grouped_conv2d", "gpt2_projection")
    usual = experiment(rivals={})
    assert usual.rival_names == (
        "pruned_0.82", "narrow_0.82", "pruned_0.61", "narrow_0.61", "separable", "grouped_2", "low_rank_2", "shift_conv1x1",
        "int8",
    )  # fmt: skip
    for found, more in ((usual, []), (experiment(rivals={"int8": "all"}), ["0123456789ab_int8"])):
        assert [file.stem for file in jobs(found, selected=["0123456789ab"])["rival"]] == [*usual.rival_names, *more]
    assert "int8" not in experiment(rivals={}, goal={**GOAL, "compiler": "inductor", "device": "cuda"}).rival_names
    assert "separable_conv2d" not in experiment(rivals={}, train={"baselines": ["separable_conv2d"]}).rival_names
    for without in (
        {"rivals": "none"},
        {"goal": None},
        {"train": {"seeds": []}},
        {"select": {"operators": ["conv1x1"]}, "goal": None},
    ):
        assert experiment(**without).rival_names == () and "rival" not in jobs(experiment(**without))


@pytest.mark.slow
def test_pruning_goes_on_from_the_trained_original_and_narrowing_begins_anew() -> None:
    found = trained(experiment())
    pruned, _ = (evaluate_rival(found, name) for name in ("pruned_0.5", "narrow_0.5"))
    assert (pruned.state, pruned.speed.ratio, pruned.speed.timed, pruned.seeds) == (
        "ok",
        Interval(2.0, 1.9, 2.1),
        IN_TURNS,
        (1, 2),
    )
    records = [TrainingRecord.read(training_file(found, name, 2)) for name in ("pruned_0.5", "narrow_0.5", "original")]
    assert [record.workload.weights for record in records] == [
        str(training_file(found, "original", 2).with_suffix(".safetensors")), None, None,
    ]  # fmt: skip
    assert records[0].workload.training.learning_rate == records[1].workload.training.learning_rate / 2
    assert records[0].parameters == records[1].parameters < records[2].parameters
    assert records[0].operator == "network pruned 0.5\n"
    write_selected([], found.folder / SELECTED, "the search found no operator")
    found.folder.rename("elsewhere")  # the records name weights in the folder that it was
    moved, original = found.model_copy(update={"output": Path("elsewhere")}), Path("elsewhere/train/original")
    assert {score.key for score in make_tables(moved).scores} == {"original", "pruned_0.5", "narrow_0.5"}
    (original / "seed1.safetensors").write_bytes((original / "seed2.safetensors").read_bytes())
    with pytest.raises(SpecError, match=r"0\.5/seed1\.json is of other settings than the experiment: workload\.weights is"):
        make_tables(moved)
    Path("elsewhere").rename(found.folder)
    with pytest.raises(SpecError, match=r"workload\.weights: the content of results/small/train/.* has changed since then"):
        make_tables(found)


@pytest.mark.slow
def test_what_fails_is_a_row_with_its_reason_and_what_is_slow_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(experiment())
    misfit = evaluate_rival(found, "gpt2_projection")
    assert misfit.state == "failed" and "does not fit" in misfit.reason
    weights = training_file(found, "original", 2).with_suffix(".safetensors")
    weights.unlink()
    lost = evaluate_rival(found, "pruned_0.5")
    assert lost.state == "failed" and str(weights) in lost.reason
    monkeypatch.setattr(stage, "_speed", lambda *_: {"state": "slow", "reason": "not faster than the original"})
    assert evaluate_rival(found, "grouped_conv2d").seeds == ()
    assert not training_file(found, "grouped_conv2d", 1).exists()
    write_selected([], found.folder / SELECTED, "the search found no operator")
    make_tables(found)
    lines = StoredRun(found).answer
    assert [line.split(":")[0] for line in lines[-3:]] == [
        f"The rival {name} is missing" for name in ("pruned_0.5", "grouped_conv2d", "gpt2_projection")
    ]
    with pytest.raises(SpecError, match='has no rival "pruned_0.7"; there are: pruned_0.5, narrow_0.5'):
        evaluate_rival(found, "pruned_0.7")


@pytest.mark.slow
def test_an_interrupted_job_and_another_experiment_train_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(experiment())
    done: list[tuple[str, int]] = []
    real = stage.train

    def interrupted_once(given: Experiment, network: Network, seed: int) -> TrainingRecord:
        done.append((network.key, seed))
        if len(done) == 2:
            raise KeyboardInterrupt
        return real(given, network, seed)

    monkeypatch.setattr(stage, "train", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        evaluate_rival(found, "pruned_0.5")
    first = evaluate_rival(found, "pruned_0.5")
    assert done == [("pruned_0.5", 1), ("pruned_0.5", 2), ("pruned_0.5", 2)]
    other = trained(experiment("other"))
    second = evaluate_rival(other, "pruned_0.5")
    assert len(done) == 3 and second.seeds == first.seeds
    record = TrainingRecord.read(training_file(other, "pruned_0.5", 1))
    assert record.workload == settings_of_training(other, "pruned_0.5", 1)  # with its own original's weights
    assert record.score == TrainingRecord.read(training_file(found, "pruned_0.5", 1)).score
    longer = trained(experiment("longer", workload={**FIELDS["workload"], "seed": 7}))
    evaluate_rival(longer, "narrow_0.5")
    assert len(done) > 3


@pytest.mark.slow
def test_tables_judge_rivals_like_operators_and_the_page_begins_with_the_best_of_all() -> None:
    found = trained(experiment())
    for name in found.rival_names:
        evaluate_rival(found, name)
    write_selected([], found.folder / SELECTED, "the search found no operator")
    scores = made_tables(found).scores.set_index("key")
    assert dict(scores["role"]) == {
        "original": "original",
        "pruned_0.5": "rival",
        "narrow_0.5": "rival",
        "grouped_conv2d": "rival",
    }
    assert scores.loc["narrow_0.5", "goal_speedup"] == 2.0 and scores.loc["narrow_0.5", "verdict"] in ("meets", "may meet")
    assert speeds_of_rivals(rivals_of(found))["grouped_conv2d"] == (IN_TURNS, Interval(2.0, 1.9, 2.1))
    lines = StoredRun(found).answer
    assert lines[1].startswith("The best of all networks: ") and ", without synthesis, " in lines[1]
    assert RivalRecord.read(rival_file(found, "narrow_0.5")) == rivals_of(found)["narrow_0.5"]


def test_joined_results_have_the_latencies_of_rivals_in_the_place_of_the_originals() -> None:
    found, when = experiment(), datetime(2030, 1, 1, tzinfo=UTC)
    times = stage.RivalSpeed(
        ratio=Interval(2.0, 1.9, 2.1), timed=IN_TURNS, latency_ms=Interval(3.0, 2.9, 3.1), original_ms=Interval(6.0, 5.9, 6.1)
    )
    in_integers = stage.InLowerPrecision(scores={1: 0.9}, speed=times)
    for name in ("pruned_0.5", "narrow_0.5"):  # the latter was not trained
        RivalRecord(
            name=name,
            operator=name,
            state="ok",
            speed=times,
            formats={"int8": in_integers},
            seconds=1.0,
            versions={},
            date=when,
        ).write(rival_file(found, name))
    place = {"device": "a processor", "device_setting": "cpu", "compiler": "eager", "batch": 1, "threads": 2}
    shared = {"model": "resnet8", "origin": "measured", "source": "x"}
    rows = [Measurement.of("latency", 6.2, operator="original", key="original", role="original", **place, **shared)]
    for key in ("pruned_0.5", "pruned_0.5_int8"):
        rows.append(Measurement.of("accuracy", 0.9, operator=key, operator_id="1" * 32, key=key, role="rival", **shared))
    joined = with_latencies(measurement_table(rows), found)
    (added,) = joined[3:].to_dict("records")  # none in integers: there is no latency of the original by TorchInductor
    assert {name: added[name] for name in place} == place and (added["operator"], added["role"]) == ("pruned_0.5", "rival")
    assert (added["value"], added["low"], added["high"], added["note"]) == (3.0, 2.9, 3.1, "timed in turns")
    assert added["source"] == "rivals/pruned_0.5.json" and joined[:3].equals(measurement_table(rows).astype(joined.dtypes))


@pytest.mark.slow
def test_in_lower_precision_networks_are_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(experiment(rivals={**RIVALS, "operators": [], "int8": "all", "bfloat16": True}))
    key = OperatorStore(found.folder).add(OPERATORS["grouped_conv2d"]().renamed("small_0"))
    write_selected([Selected(key=key, name="small_0", metrics={})], found.folder / SELECTED)
    for seed in found.train.seeds:
        train(found, key, seed)
    monkeypatch.setattr(stage, "_converted_score", lambda given, network, seed: 0.5 + seed / 100)
    latencies = {"original": 6.0, key: 2.0}
    monkeypatch.setattr(stage, "_latency", lambda given, network, *_: Interval(*[latencies.get(network.key, 0.5)] * 3))
    for name in (*found.rival_names, f"{key}_int8", f"{key}_bfloat16"):
        assert evaluate_rival(found, name).state == "ok"
    make_tables(found)
    rows = read_tables(found).scores.set_index("key")
    for numbers, note in (("int8", "quantized to 8-bit integers"), ("bfloat16", "computed in bfloat16")):
        names = {
            numbers: numbers,
            f"pruned_0.5_{numbers}": f"pruned_0.5_{numbers}",
            f"{key}_{numbers}": f"small_0_{numbers}",
        }
        assert {one: rows.loc[one, "operator"] for one in names} == names
        assert [rows.loc[one, "role"] for one in names] == ["rival", "rival", "found"]
        assert all(rows.loc[one, "score"] == pytest.approx(0.515) for one in names)
        # The original takes 2 ms beside the pruned network, and is not measured again; in these numbers, it takes 6 ms.
        assert [rows.loc[one, "goal_speedup"] for one in names] == pytest.approx([1 / 3, 4.0, 1.0])
        with pytest.raises(SpecError, match=rf"pruned_0.5_{numbers} is pruned_0.5, {note} after training, and only"):
            take_network(found, f"pruned_0.5_{numbers}")
    assert {"narrow_0.5_bfloat16"} == {one for one in rows.index if one.startswith("narrow_0.5_")}


def test_pruned_networks_and_mixtures_are_quantized_and_known_layers_are_not() -> None:
    found, pruned = experiment(rivals={**RIVALS, "int8": True}), replacement_named("pruned_0.5")
    mixtures = [Mixture("mixture_1", ((KnownLayer("dropped"), ("blocks.0.conv1",)),), base) for base in (None, pruned)]
    formats = [stage._precisions(found, Network("", replacement=one)) for one in (pruned, *mixtures, KnownLayer("separable"))]
    assert [[one.name for one in each] for each in formats] == [["int8"], ["int8"], ["int8"], []]


@pytest.mark.slow
def test_a_mixture_is_timed_again_after_its_choice_and_a_rival_that_was_not_chosen_is_not(tmp_path: Path) -> None:
    found, pruned = experiment(), replacement_named("pruned_0.5")
    mixture = Mixture("mixture_1", ((KnownLayer("separable"), ("blocks.0.conv1",)),), pruned)
    with speedups_of(found, *found.goal_pair) as speedups:  # as the choice does
        for repeat in range(REPEATS):
            for one in (mixture, pruned):
                speedups.of(one.structure, repeat=repeat)
        log = tmp_path / "log"
        before = len(log.read_text().splitlines())
        for timed, one in ((1, mixture), (1, mixture), (1, pruned)):
            assert stage._speed(found, Network("", replacement=one))["speed"].ratio == Interval(2.0, 1.9, 2.1)
            assert len(log.read_text().splitlines()) == before + timed


@pytest.mark.parametrize("role", ["rival", "found"])
def test_a_mixture_in_lower_precision_is_what_the_mixture_is(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of known layers only is a rival: nothing in it was synthesized."""
    found = trained(experiment(rivals={**RIVALS, "bfloat16": True}))
    monkeypatch.setattr(stage, "compared_networks", lambda _: [Network("mixture_1", role=Role(role))])
    file, when = stage.training_file(found, "mixture_1", 1), datetime(2030, 1, 1, tzinfo=UTC)
    write_whole(file, stage.training_file(found, "original", 1).read_bytes())
    formats = {"bfloat16": stage.InLowerPrecision(scores={1: 0.5})}
    record = RivalRecord(name="mixture_1", operator="x", state="ok", formats=formats, seconds=1.0, versions={}, date=when)
    monkeypatch.setattr(stage, "rivals_of", lambda _: {"mixture_1": record})
    rows = list(stage.rows_of_rivals(found))
    assert rows and {(one.key, one.role) for one in rows} == {("mixture_1_bfloat16", role)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rivals": {"operators": ["grouped"]}}, r'rivals: operators: "grouped" is no known layer: give separable, '),
        ({"rivals": {"operators": ["conv2"]}}, r'rivals: operators: "conv2" is neither a file.* Did you mean "conv2d"'),
        ({"train": {"baselines": ["low_rank_1"]}}, r'train: baselines: "low_rank_1" is no known layer'),
    ],
)
def test_a_name_that_is_not_known_is_an_error_before_the_search(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        prepare(experiment(**fields))


class TestSearchBesideRivals:
    """A search with the reward `gain` begins with the front of its rivals."""

    policy: ClassVar = {"name": "surrogate", "beginners": 1, "beginner_walks": 2, "walks": 2, "mutations": 2}

    def begun(self, name: str = "small", **changes: Any) -> Experiment:
        """An experiment whose original and rivals are trained, all with the same speed."""
        found = trained(experiment(name, reward={"name": "gain"}, policy=self.policy, **changes))
        for rival in found.rival_names:
            evaluate_rival(found, rival)
        return found

    @pytest.mark.slow
    def test_the_study_keeps_the_front_of_the_records(self) -> None:
        found = self.begun(rivals={**RIVALS, "operators": []})
        space = Space(found.operator_spec)
        open_study(
            experiment(policy=self.policy, rivals={**RIVALS, "operators": []}), space
        )  # with the usual reward, and no trial
        with pytest.warns(UserWarning, match="takes other settings"):
            study = open_study(found, space)
        assert isinstance(study.reward, GainReward) and (study.reward.find, study.reward.speedup) == ("most_accurate", 1.5)
        scores = {
            name: [TrainingRecord.read(training_file(found, name, seed)).score for seed in (1, 2)]
            for name in ("original", *found.rival_names)
        }
        best = max(found.rival_names, key=lambda name: mean(scores[name]))
        ahead = [("original", 1.0), (best, 2.0)] if mean(scores["original"]) > mean(scores[best]) else [(best, 2.0)]
        assert [(point.name, point.speedup, point.score) for point in study.reward.front] == [
            (name, speedup, mean(scores[name])) for name, speedup in ahead
        ]
        assert study.reward.deviation == pytest.approx(sqrt(mean([variance(scores[name]) for name, _ in ahead])))
        assert study.reward.front[0].deviation == pytest.approx(study.reward.deviation / sqrt(2))
        assert from_settings(study.settings["reward"]) == study.reward == study.policy.reward

        for name in found.rival_names:
            rival_file(found, name).unlink()
        assert open_study(found, space).reward == study.reward, "it goes on with its front"

    @pytest.mark.slow
    def test_what_is_missing_is_one_sentence_and_what_failed_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = experiment(reward={"name": "gain"})
        with pytest.raises(
            SpecError, match=r"pruned_0.5.json is not there; run `syno baseline CONFIG original`, and `syno rival"
        ) as error:
            open_study(found, Space(found.operator_spec))
        assert f"for {', '.join(found.rival_names)}; or run all with `syno run CONFIG`" in str(error.value)
        monkeypatch.setattr(stage, "_trainings", lambda *_: {"state": "failed", "reason": "no memory"})
        found = self.begun()
        with pytest.warns(UserWarning, match="no rival was timed and trained, so the reward is that of `goal`"):
            study = open_study(found, Space(found.operator_spec))
        assert isinstance(study.reward, GainReward) and study.reward.front == ()
        training = {**FIELDS["workload"]["training"], "momentum": 0.5}
        changed = experiment(reward={"name": "gain"}, workload={**FIELDS["workload"], "training": training})
        with pytest.raises(SpecError, match=r"original/seed1\.json is of other settings than the search, so delete"):
            trained_rivals(changed)

    @pytest.mark.slow
    def test_known_operators_of_the_space_are_known_and_not_trained_again(self) -> None:
        rivals = {**RIVALS, "pruning": False, "narrowing": False, "operators": ["conv2d", "grouped_4", "separable"]}
        spec = {**FIELDS["spec"], "depth": 9, "rules_off": ["all"]}  # the text of grouped convolutions is not canonical
        found = self.begun(warm_start="known", rivals=rivals, spec=spec, train={"seeds": [1]})
        space = Space(found.operator_spec)
        study = open_study(found, space)
        known = {parse(one["operator"]): one["metrics"] for one in study.settings["known"]}  # separable ones are in no space
        assert [(operator.name, "k_1" in operator.variables) for operator in known] == [("conv2d", True), ("grouped_4", True)]
        for operator, metrics in known.items():
            score = TrainingRecord.read(training_file(found, operator.name, 1)).score
            assert (metrics["accuracy"], metrics["speedup"], metrics["speedup_low"]) == (score, 2.0, 1.9)
            assert space.fingerprint(operator) in study.policy.walks.taken
        assert study.trials.empty
        rival_file(found, "conv2d").unlink()
        assert open_study(found, space).settings == study.settings, "it goes on with what it knows"

    @pytest.mark.parametrize("changes", [{"rivals": "none"}, {"train": {"seeds": []}}, {"evaluate": "cost"}])
    def test_it_needs_rivals(self, changes: dict[str, Any]) -> None:
        for beginning, option in (
            ({"reward": {"name": "gain"}}, "reward: gain"),
            ({"warm_start": "known"}, "warm_start: known"),
        ):
            with pytest.raises(ValidationError, match=f"{option} compares trials with rivals, and there are none: give a goal"):
                experiment(**changes, **beginning)

    def test_it_needs_rivals_of_the_same_training(self) -> None:
        with pytest.raises(ValidationError, match="which train: training would train in another way"):
            experiment(reward={"name": "gain"}, train={"seeds": [1], "training": {"epochs": 2}})
