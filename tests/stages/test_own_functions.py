"""Networks and data sets of one's own: what is wrong with them is one line before anything takes long."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import own_functions
import pytest
import torch
import yaml
from click.testing import Result
from command_lines import one_line, one_line_at_end
from typer.testing import CliRunner

from syno.base import user_code
from syno.base.errors import DataError, SpecError, UserCodeError
from syno.cli import app
from syno.config import Experiment
from syno.data import DataSet
from syno.data.contract import majority_of
from syno.notebook.training import Training
from syno.stages.data import data_text, look
from syno.stages.search import search

WORKLOAD: dict[str, Any] = {"model": "network", "data": "pictures", "training": {"epochs": 1, "batch": 16}}


def config(**workload: Any) -> str:
    """The file of an experiment; the model and the data are functions of `own_functions`."""
    merged = {**WORKLOAD, **workload}
    merged |= {key: f"own_functions:{merged[key]}" for key in ("model", "data")}
    spec = {
        "depth": 4,
        "reads": "none",
        "occurrences": merged.pop("occurrences", {"reductions": 1}),
        "budget": merged.pop("spec_budget", {}),
    }
    shares = merged.pop("budget", None)
    fields = {"workload": merged, "relative_budget": shares, "spec": spec, "reward": {"name": "accuracy"}}
    fields["train"] = {"seeds": [1]}
    Path("own.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    return "own.yaml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def line_of(function: str) -> str:
    """FILE, line N, in FUNCTION: where `own_functions` raises."""
    source = Path(own_functions.__file__).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(source) if line.startswith(f"def {function}("))
    return f"own_functions.py, line {at + 2}, in {function}: {source[at + 1].strip()}"


@pytest.mark.parametrize("command", ["data", pytest.param("baseline", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"model": "network_of_more_settings"}, r"missing a required .*argument: 'blocks'"),
        ({"model": "no_network"}, r"returned an int; it must return the network, an nn\.Module"),
        ({"model": "network_of_wrong_channels"}, r"shape \[16, 3, 8, 8\], failed: RuntimeError: .* to have 4 channels"),
        ({"model": "network_that_raises"}, "IndexError: no such layer .*" + re.escape(line_of("network_that_raises"))),
        ({"model": "network_of_few_outputs"}, r"output has the shape \[16, 3\]; for 4 classes it must be \[16, 4\]"),
        ({"model": "network_of_two_outputs"}, r"the network returned a tuple; it must return one tensor .*such as output\[0\]"),
        ({"model": "network_of_named_outputs"}, r"returned a _Named; it must return one tensor .* such as output\.logits"),
        (
            {"model": "network", "model_settings": {"depth": 3}},
            r"\(workload: model_settings\) is called with .*depth=3.*'depth'",
        ),
        (
            {"data": "values_of_pictures"},
            r"train_labels is float32 with values such as 0\.01\d+, no whole numbers: a regression",
        ),
        ({"data": "pair_of_tensors"}, r"returned a tuple, which has no name, classes, .*; return a DataSet"),
        ({"data": "data_that_raises"}, "FileNotFoundError: .*" + re.escape(line_of("data_that_raises"))),
        ({"data_settings": {"folder": "here"}}, r"data_settings.* got an unexpected keyword argument 'folder'"),
        ({"data_settings": {"offset": 1}}, r"train_labels is from 1 to 4; with 4 classes, labels must be from 0 to 3"),
        ({"data_settings": {"dtype": "float64"}}, r"train_images is float64; it must be float32"),
        ({"data_settings": {"broken": True}}, r"train_images has values that are not finite"),
        ({"data": "streamed", "data_settings": {"offset": 1}}, r"batch of labels is from 1 to 4; with 4 classes"),
        ({"data": "streamed", "data_settings": {"dtype": "float64"}}, r"a batch of images is float64"),
        ({"model": "absent"}, r'own_functions .* has no "absent"'),
    ],
)
def test_a_mistake_is_one_line(command: str, workload: dict[str, Any], message: str) -> None:
    line = one_line(run(command, config(**workload), code=2))
    assert re.search(message, line), line
    assert not Path("results/own/data.json").exists()


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"layers": "blocks.*.conv1"}, r'the pattern "blocks\.\*\.conv1" takes no layer of Sequential; its layers: 0, 2, 6'),
        (
            {"model": "pointwise_network"},
            r"no layer to replace \(1 and 8 more: it has 8 groups; 2 and 8 more: its kernel is 1x1; 0: it is the first "
            r"convolution\); add `layers: pointwise`",
        ),
    ],
)
def test_a_rule_that_takes_no_layer(workload: dict[str, Any], message: str) -> None:
    line = one_line(run("data", config(**workload), code=2))
    assert re.search(message, line), line


def test_what_fails_in_training_only_is_found_before_a_search() -> None:
    line = one_line(run("data", config(model="network_that_fails_in_training"), code=2))
    assert "KeyError: 'drop path'" in line and "own_functions.py, line" in line and "syno --debug" in line
    raised = CliRunner().invoke(app, ["--debug", "data", "own.yaml"]).exception
    assert isinstance(raised, UserCodeError) and isinstance(raised.__cause__, KeyError)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("network_that_fails_later", r"run on a batch of pictures, failed: .*own_functions\.py, line \d+, in forward: return"),
        (
            "network_whose_gradient_fails",
            r"backward pass of the network .*failed: ArithmeticError: no gradient \(.*in backward",
        ),
    ],
)
def test_what_fails_in_the_middle_of_a_training_is_one_line(model: str, message: str) -> None:
    line = one_line_at_end(run("baseline", config(model=model, training={"epochs": 9, "batch": 16}), code=2))
    assert re.search(message, line), line


class TestWeights:
    """What becomes of the weights that a user's own function makes."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("training", "is_kept", "said"),
        [
            ({}, True, r"makes \d\d% of the weights equal for every seed, .*; every training begins with them"),
            ({"recipe": "paper-cifar"}, True, "the recipe paper-cifar draws all .* anew, and in yours only operators'; "),
            ({"recipe": "paper-cifar", "initialization": "keep"}, True, "every training begins with them"),
            (
                {"recipe": "paper-cifar", "initialization": "paper-everywhere"},
                False,
                "warning: the function .* draws them anew",
            ),
        ],
    )
    def test_a_recipe_draws_only_what_it_is_told_to(self, training: dict[str, Any], is_kept: bool, said: str) -> None:
        cheap = {"device": "cpu", "compile": False, "epochs": 1, "batch": 16}
        file = config(model="trained_network", training={**training, **cheap})
        network = Experiment.load(Path(file)).network
        given, used = network.model(3), network.network(None, 3)
        assert torch.equal(given[2].weight, used[2].weight) == is_kept
        assert re.search(said, run("data", file).stdout)

    def test_the_papers_networks_are_drawn_as_before(self) -> None:
        workload = Experiment(
            name="paper", workload={"data_settings": {"preset": "micro"}, "training": {"initialization": "paper"}}
        )
        given, used = workload.network.model(3), workload.network.network(None, 3)
        first = next(module for module in used.modules() if isinstance(module, torch.nn.Conv2d))
        assert not torch.equal(next(given.parameters()), first.weight) and abs(float(first.weight.detach().std()) - 0.1) < 0.02


class TestOneFrequentLabel:
    def test_data_warns(self) -> None:
        text = run("data", config(data="imbalanced_pictures")).stdout
        assert "warning: 96.9% of the test data's labels are 0, so that always answering 0 has the accuracy 0.969: " in text
        record = look(Experiment.load(Path("own.yaml")))
        assert (record.majority, record.majority_label) == (31 / 32, 0)
        assert "warning" not in run("data", config(data="imbalanced_pictures", data_settings={"share": 0.8})).stdout

    def test_a_search_warns_where_the_original_is_no_better(self) -> None:
        training = Training(own_functions.network(classes=4), own_functions.imbalanced_pictures(), epochs=1, batch=16)
        with pytest.warns(UserWarning, match=r"accuracy of 0\.\d+ is not above that of always answering 0"):
            training.train_original()

    def test_labels_of_a_data_set_of_ones_own_are_counted(self) -> None:
        assert majority_of(own_functions.streamed()) == (0, 0.25)
        assert majority_of(own_functions.pictures()) == (0, 0.25)


def test_a_search_that_counts_needs_no_cost_of_the_original() -> None:
    experiment = Experiment.load(Path(config())).model_dump(include={"name", "workload", "spec"})
    counted = Experiment(**experiment, evaluate="cost", study={"n_trials": 2})
    assert list(search(counted).trials["outcome"]) == ["complete", "complete"]
    assert counted.select.by == "reward"  # there are no scores to make a front of
    with pytest.raises(SpecError, match=r'evaluate: cost measures flops, .* the reward "accuracy" needs accuracy'):
        Experiment(**experiment, evaluate="cost", reward={"name": "accuracy"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_device_that_is_not_there() -> None:
    line = one_line(run("data", config(training={"epochs": 1, "batch": 16, "device": "cuda"}), code=2))
    assert 'training.device is "cuda", but PyTorch finds no GPU here' in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"budget": {"most_flops": 70}}, r"most_flops is 70, .* shares are fractions: 0\.7 for 70 %"),
        (
            {"budget": {"most_flops": 0.001}},
            r"most_flops is 0\.001 of the original's flops, and what is not replaced has 0\.\d+",
        ),
        (
            {"budget": {"most_parameters": 0.01}},
            r"most_parameters is 0\.01 of the original's parameters, .* has 0\.\d+ of them",
        ),
        ({"budget": {"least_flops": 0.6, "most_flops": 0.5}}, r"no model fits; raise most_flops"),
        ({"spec_budget": {"most_flops": 70}}, r"most_flops is 70, but the model outside the replaced layers has .* raise it"),
        ({"occurrences": {"reductions": 0}}, r"holds no operator of at most 4 primitives; raise occurrences: reductions"),
    ],
)
def test_a_budget_that_no_search_accepts(workload: dict[str, Any], message: str) -> None:
    lines = {one_line_at_end(run(command, config(**workload), code=2)) for command in ("data", "search")}
    assert len(lines) == 1 and re.search(message, lines.copy().pop()), lines
    assert not Path("results/own/data.json").exists()


def test_data_says_which_shares_can_be_reached() -> None:
    """The rest: the stem and the head. [8, 8] pictures, 8 channels: stem 8*27*64, middle 8*72*64, head 8*4."""
    rest, middle = 8 * 27 * 64 + 8 * 4, 8 * 72 * 64
    text = run("data", config(budget={"most_flops": 0.9})).stdout
    share = f"{rest / (rest + middle):.1%}"
    assert f"reachable: more than {share} of the FLOPs ({rest:,}) and " in text
    assert f"budget of the search: more than {share} and at most 90.0% of the FLOPs, more than " in text
    assert re.search(r"2 +\| 3x3 convolution +\| 8x8x8 +\| 8x8x8 +\| replaced +\| +[0-9.]+% ", text) and "bias" not in text
    assert re.search(r"0 +\| 3x3 convolution +\| 3x8x8 .* stays: it is the first convolution", text)
    assert re.search(r"\| linear .* stays: the rule takes no such layer", text)
    assert text.endswith("one step of training and one of testing work on cpu\n")


@pytest.mark.slow
def test_data_tells_no_limit_where_there_is_none() -> None:
    """The budget without a limit is a number, some 100,000 times the FLOPs of this network."""
    workload = {"width": 2, "data": "shapes", "data_settings": {"size": 48}, "training": {"batch": 32}}
    large = Experiment(name="large", workload=workload, evaluate="cost", reward={"name": "savings"}, train={"seeds": []})
    assert re.search(
        r"budget of the search: more than [\d.]+% of the FLOPs, more than [\d.]+% of the par", data_text(large, look(large))
    )


def test_data_says_whose_bias_stays() -> None:
    text = run("data", config(model="biased_network", layers="own_functions:any_layer")).stdout
    assert "the bias of these layers stays, and is added after the operator: 2\n" in text


def test_the_example_of_user_code() -> None:
    assert doctest.testmod(user_code).failed == 0


class TestDataSet:
    def test_its_hash_is_worked_out(self) -> None:
        one, same, other = own_functions.pictures(), own_functions.pictures(), own_functions.pictures(dtype="float32", offset=0)
        assert len(one.hash) == 32 and one.hash == same.hash == other.hash
        images, labels = one.train_images, one.train_labels
        assert DataSet("other", images, labels.flip(0), images, labels, own_functions.CLASSES).hash != one.hash

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"train_images": torch.zeros(4)}, r"train_images has the shape \[4\]; it must be \[n, channels, \.\.\.\]"),
            ({"train_images": torch.zeros(4, 8, 8)}, r"test_images has the shape \[4, 3, 8, 8\]; it must be \[n, 8, 8\]"),
            ({"test_images": torch.zeros(4, 1, 8, 8)}, r"test_images has the shape \[4, 1, 8, 8\]; it must be \[n, 3, 8, 8\]"),
            ({"test_labels": torch.zeros(3, dtype=torch.int64)}, r"test_labels has the shape \[3\]; it must be \[4\]"),
            ({"train_labels": torch.zeros(4)}, r"train_labels is float32; it must be int64"),
            ({"train_labels": torch.full((4, 1), 0.3)}, r"train_labels is float32 with values such as 0.3, .*: a regression"),
            ({"train_labels": torch.eye(4)[:, :2]}, r"one label for each position; several labels for one sample"),
            ({"train_labels": torch.eye(2).repeat(2, 1)}, r"these are one-hot: labels\.argmax\(1\) is the class"),
            ({"train_labels": torch.zeros(4, 1)}, r"leave out the last axis, as with labels\.squeeze\(1\)"),
            ({"train_labels": torch.tensor([0, 1, 255, 1])}, r"if 255 means that there is no label, .*ignore_index=255"),
            ({"train_labels": torch.tensor([1, 2, 1, 2])}, r"from 0 to 1; count classes from 0, as with labels - 1"),
            ({"test_labels": torch.full((4,), 255), "ignore_index": 255}, r"is 255 everywhere, which is the ignore_index"),
            ({"train_images": torch.zeros(4, 3, 8, 8).numpy()}, r"train_images is a ndarray; give a torch\.Tensor"),
            ({"train_images": torch.zeros(4, 3, 8, 8, dtype=torch.uint8)}, r"train_images is uint8; it must be float32"),
        ],
    )
    def test_what_it_refuses(self, change: dict[str, Any], message: str) -> None:
        images, labels = torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
        fields = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
        with pytest.raises(DataError, match=message):
            DataSet(name="mine", classes=2, **{**fields, **change})
