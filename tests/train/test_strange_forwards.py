"""Networks written in two ways: scores, fits and losses are the same, or what cannot be done is said in a line.

A plain network is compared with others that compute the same, but change their input in place, return other things in
evaluation mode, have numbers among their outputs, or are called through hooks and wrappers.
"""

from __future__ import annotations

import inspect
import pickle
import types
from collections import namedtuple
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from torch import fx, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

import syno
from syno.base.errors import SpecError
from syno.config import Experiment
from syno.data import PictureData
from syno.data.language import TokenSet
from syno.measure.measuring import prepared
from syno.measure.network_subject import NetworkSubject
from syno.measure.protocol import Request
from syno.measure.timing import LatencySettings
from syno.model.calls import mode_of_loss, steady_training_mode
from syno.model.extraction import evaluation_mode
from syno.model.shared_memory import copy_of
from syno.notebook.speed_up import Classification
from syno.notebook.training import OwnWorkload
from syno.train import layer_fit
from syno.train.layer_fit import fit_layers, output_difference
from syno.train.micro_batches import add_gradients
from syno.train.settings import TrainingSettings, WorkloadSettings
from syno.train.tasks import task_of
from syno.train.training import train
from syno.train.trial_step import try_step

CLASSES, LENGTH, TOKENS = 3, 6, 7
SHAPES = {"pictures": (2, 6, 6), "contiguous pictures": (2, 6, 6), "sound": (2, 12), "volumes": (2, 4, 4, 4)}
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMALIZATIONS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
MEAN, DEVIATION = 0.3, 0.5
CPU = torch.device("cpu")
Both = namedtuple("Both", "main auxiliary")


@dataclass
class Output:
    """An output with a name."""

    logits: torch.Tensor


class Plain(nn.Module):
    """A network for samples of some axes, with a layer to replace."""

    def __init__(self, axes: int = 2, channels: int = 2) -> None:
        super().__init__()
        self.stem = CONVOLUTIONS[axes](channels, 4, 1)
        self.layer = CONVOLUTIONS[axes](4, 4, 3, padding=1)
        self.norm = NORMALIZATIONS[axes](4)
        self.head = nn.Linear(4, CLASSES)

    def prepare(self, x: Any) -> torch.Tensor:
        return (x - MEAN) / DEVIATION

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(self.stem(x))).relu().flatten(2).mean(2))

    def answer(self, logits: torch.Tensor) -> Any:
        return logits

    def forward(self, x: torch.Tensor) -> Any:
        return self.answer(self.logits(self.prepare(x)))


class OfTokens(Plain):
    """The same for tokens: [n, length] -> [n, length, vocabulary]."""

    def __init__(self) -> None:
        super().__init__(1, 4)
        self.embedding, self.head = nn.Embedding(TOKENS + 1, 4), nn.Linear(4, TOKENS)

    def prepare(self, x: Any) -> torch.Tensor:
        return x + 1

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(self.stem(self.embedding(x).movedim(2, 1)))).relu().movedim(1, 2))


Make = Callable[..., nn.Module]


def changed(kind: type[Plain] = Plain, **methods: Any) -> Make:
    """Return what makes a network of the class with other methods."""
    return lambda *args: type("Strange", (kind,), methods)(*args)


# ---- ways to write a network ---------------------------------------------------------------------------------------------


def normalized(x: torch.Tensor) -> torch.Tensor:
    return x.sub_(MEAN).div_(DEVIATION)


def as_it_is(self: Plain, x: torch.Tensor) -> torch.Tensor:
    return x


def by_assignment(self: Plain, x: torch.Tensor) -> torch.Tensor:
    x[:] = (x - MEAN) / DEVIATION
    return x


def by_channel(self: Plain, x: torch.Tensor) -> torch.Tensor:
    for channel in x.unbind(1):
        normalized(channel)
    return x


def by_numpy(self: Plain, x: torch.Tensor) -> torch.Tensor:
    numbers = x.numpy()
    numbers -= MEAN
    numbers /= DEVIATION
    return x


def by_data(self: Plain, x: torch.Tensor) -> torch.Tensor:
    normalized(x.data)
    return x


def by_hook(*args: Any, **options: Any) -> nn.Module:
    network = changed(prepare=as_it_is)(*args)
    network.register_forward_pre_hook(lambda module, args: (normalized(args[0]),), **options)
    return network


def by_own_call(self: Plain, x: torch.Tensor) -> Any:
    return nn.Module.__call__(self, normalized(x))


class Wrapper(nn.Module):
    """A module around a network, which prepares its input in place."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        self.inner = changed(prepare=as_it_is)(*args)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(normalized(x))


class Registered(Plain):
    """A network whose subclasses are noted, each of which must have a name of its own."""

    names: ClassVar[set[str]] = set()

    def __init_subclass__(cls, **options: Any) -> None:
        assert cls.__name__ not in Registered.names
        Registered.names.add(cls.__name__)


def with_another_forward(*args: Any) -> nn.Module:
    network = changed(prepare=lambda self, x: normalized(x))(*args)
    network.forward = types.MethodType(Plain.forward, network)
    return network


IN_PLACE: dict[str, Make] = {
    "sub_": changed(prepare=lambda self, x: normalized(x)),
    "copy_": changed(prepare=lambda self, x: x.copy_((x - MEAN) / DEVIATION)),
    "an assignment": changed(prepare=by_assignment),
    "out": changed(prepare=lambda self, x: torch.div(torch.sub(x, MEAN, out=x), DEVIATION, out=x)),
    "data": changed(prepare=by_data),
    "NumPy": changed(prepare=by_numpy),
    "views": changed(prepare=by_channel),
    "a clone behind": changed(prepare=lambda self, x: normalized(x).clone()),
    "its own call": changed(prepare=as_it_is, __call__=by_own_call),
    "a hook": by_hook,
    "the first hook": lambda *args: by_hook(*args, prepend=True),
    "a wrapper": Wrapper,
}
WRAPPED: dict[str, Make] = {
    "DataParallel": lambda *args: nn.DataParallel(IN_PLACE["sub_"](*args)),
    "AveragedModel": lambda *args: AveragedModel(IN_PLACE["sub_"](*args)),
    "Sequential": lambda *args: nn.Sequential(nn.Identity(), IN_PLACE["sub_"](*args)),
    "fx": lambda *args: fx.symbolic_trace(IN_PLACE["sub_"](*args)),
    "a registry": lambda *args: Registered(*args),
    "another forward": with_another_forward,
}

# ---- what is compared ----------------------------------------------------------------------------------------------------


@cache
def data_of(kind: str) -> PictureData | TokenSet:
    generator = torch.Generator().manual_seed(0)
    if kind == "text":
        tokens = torch.randint(TOKENS, (2, 200), generator=generator).numpy().astype("uint16")
        return TokenSet("text", *tokens, vocabulary=TOKENS, length=LENGTH, hash="")
    x, y = torch.rand(40, *SHAPES[kind], generator=generator), torch.arange(40) % CLASSES
    return syno.DataSet(kind, x[:24], y[:24], x[24:], y[24:], CLASSES)


def outcome(make: Make, data: Any, *args: Any, **settings: Any) -> list[float]:
    """Fit an operator to the layer, compare outputs, and train with distillation; return all numbers."""
    torch.manual_seed(0)
    original = make(*args)
    name = next(name for name, _ in original.named_modules() if name.rpartition(".")[2] == "layer")
    network, layer = copy_of(original), original.get_submodule(name)
    torch.manual_seed(1)
    network.set_submodule(name, nn.Sequential(type(layer)(4, 4, 3, padding=1, groups=4), type(layer)(4, 4, 1)))
    given = TrainingSettings(**{"batch": 8, "epochs": 1, "learning_rate": 0.02, "distill": {}, "clip": 10.0, **settings})
    task = task_of(data, given, 1, CPU)
    (fit,) = fit_layers(network, original, [name], task)
    difference = output_difference(network, original, task_of(data, given, 1, CPU))
    result = train(network, data, given, seed=1, teacher=original)
    statistics = [float(one.sum()) for name, one in network.named_buffers() if "running" in name]
    return [fit.before, fit.after, difference, *result.losses, *result.scores, *statistics]


@cache
def outcome_of_plain(kind: str) -> list[float]:
    return outcome_of(Plain if kind != "text" else OfTokens, kind)


def outcome_of(make: Make, kind: str) -> list[float]:
    data = data_of(kind)
    if isinstance(data, TokenSet):
        return outcome(make, data)
    before = data.test_images.clone()
    found = outcome(make, data, len(SHAPES[kind]) - 1, channels_last=kind == "pictures")
    assert torch.equal(data.test_images, before)
    return found


@pytest.fixture(autouse=True)
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_fit, "ROUNDS", 1)
    monkeypatch.setattr(layer_fit, "STEPS", 5)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("way", ["sub_", "a clone behind"])
def test_a_network_that_changes_its_input_learns_what_another_does(way: str, kind: str) -> None:
    assert outcome_of(IN_PLACE[way], kind) == pytest.approx(outcome_of_plain(kind), rel=1e-4)


@pytest.mark.parametrize("way", [*IN_PLACE, *WRAPPED])
def test_however_it_is_written_and_called(way: str) -> None:
    assert outcome_of({**IN_PLACE, **WRAPPED}[way], "contiguous pictures") == pytest.approx(
        outcome_of_plain("contiguous pictures"), rel=1e-4
    )


def test_a_network_of_tokens_that_changes_them_does_not_change_what_it_is_to_predict() -> None:
    found = outcome_of(changed(OfTokens, prepare=lambda self, x: x.add_(1)), "text")
    assert found == pytest.approx(outcome_of_plain("text"), rel=1e-4)


# ---- tasks of one's own --------------------------------------------------------------------------------------------------

Pick = Callable[[Any], torch.Tensor]


def own_task(loss: Callable[..., torch.Tensor], score: Callable[[nn.Module], float] | None = None) -> syno.Task:
    """Return a task whose batches are a list in memory."""
    data = data_of("sound")
    assert isinstance(data, syno.DataSet)
    pairs = [(data.train_images[at : at + 8].clone(), data.train_labels[at : at + 8].clone()) for at in (0, 8, 16)]
    return syno.Task(pairs, [(data.test_images, data.test_labels)], loss=loss, score=score, name="own")


def cross_entropy(pick: Pick = lambda output: output) -> Callable[..., torch.Tensor]:
    return lambda model, batch: functional.cross_entropy(pick(model(batch[0])), batch[1])


def twice(model: nn.Module, batch: Any) -> torch.Tensor:
    return (functional.cross_entropy(model(batch[0]), batch[1]) + functional.cross_entropy(model(batch[0]), batch[1])) / 2


def by_forward(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model.forward(batch[0]), batch[1])


def with_a_target_of_its_input(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.mse_loss(model(batch[0])[:, 0], batch[0].mean((1, 2)))


def that_changes_labels(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1].add_(1).remainder_(CLASSES))


def with_new_noise(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0] + 0.1 * torch.randn_like(batch[0])), batch[1])


def that_reads_the_signature(model: nn.Module, batch: Any) -> torch.Tensor:
    known = inspect.signature(model.forward).parameters
    given = {name: value for name, value in {"x": batch[0], "y": batch[1]}.items() if name in known}
    return functional.cross_entropy(model(**given), batch[1])


def beside_a_copy(model: nn.Module, batch: Any) -> torch.Tensor:
    pickle.loads(pickle.dumps(model))
    frozen = deepcopy(model).requires_grad_(False)
    return functional.cross_entropy(model(batch[0]), batch[1]) + functional.mse_loss(model(batch[0]), frozen(batch[0].clone()))


OF_INPUTS = (twice, by_forward, with_a_target_of_its_input, that_changes_labels, with_new_noise)
LOSSES = {loss.__name__: loss for loss in (*OF_INPUTS, that_reads_the_signature, beside_a_copy)}


class InPlace(Plain):
    """A network that changes its input, and can be pickled."""

    def prepare(self, x: Any) -> torch.Tensor:
        return normalized(x)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_ones_own(name: str) -> None:
    task = own_task(LOSSES[name])
    before = [[one.clone() for one in batch] for batch in task.train]
    plain, found = (outcome(make, task, 1) for make in (Plain, InPlace))
    assert found == pytest.approx(plain, rel=1e-4)
    assert all(
        torch.equal(one, other) for of, to in zip(before, task.train, strict=True) for one, other in zip(of, to, strict=True)
    )


def with_results(self: Plain, batch: dict[str, Any]) -> None:
    batch["made"] = self.logits(normalized(batch["x"]))


@pytest.mark.parametrize(
    ("forward", "call"),
    [
        (lambda self, x, y: Plain.forward(self, x) + 0 * y[:, None], lambda model, x, y: model(x, y)),
        (lambda self, x, *, y: Plain.forward(self, x) + 0 * y[:, None], lambda model, x, y: model(x=x, y=y)),
        (lambda self, given: Plain.forward(self, given["x"]), lambda model, x, y: model({"x": x, "y": y})),
        (lambda self, given: Plain.forward(self, given[0]), lambda model, x, y: model([x, y])),
        (lambda self, given: Plain.forward(self, given.main), lambda model, x, y: model(Both(x, y))),
        (lambda self, given: Plain.forward(self, given.logits), lambda model, x, y: model(Output(x))),
    ],
    ids=["two", "by name", "a dict", "a list", "a named tuple", "an object"],
)
def test_inputs_of_every_kind(forward: Any, call: Any) -> None:
    task = own_task(lambda model, batch: functional.cross_entropy(call(model, *batch), batch[1]))
    found = outcome(changed(prepare=lambda self, x: normalized(x), forward=forward), task, 1)
    assert found == pytest.approx(outcome(Plain, own_task(cross_entropy()), 1), rel=1e-4)


def test_what_a_network_writes_into_its_dict_reaches_the_loss() -> None:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        given = {"x": batch[0]}
        model(given)
        return functional.cross_entropy(given["made"], batch[1])

    task = own_task(loss)
    network = changed(forward=with_results)(1)
    assert train(network, task, TrainingSettings(most_steps=1, learning_rate=0.02)).losses[0] > 0


def in_training(training: Callable[[torch.Tensor], Any], evaluation: Callable[[torch.Tensor], Any] = lambda y: y) -> Make:
    return changed(answer=lambda self, y: training(y) if self.training else evaluation(y))


def in_both(answer: Callable[[Plain, torch.Tensor], Any]) -> Make:
    return changed(answer=answer)


# By name: the network, and where its logits are in training mode.
HEADS: dict[str, tuple[Make, Pick]] = {
    "softmax": (in_training(lambda y: y, lambda y: y.softmax(1)), lambda out: out),
    "sigmoid": (in_training(lambda y: y, torch.sigmoid), lambda out: out),
    "log_softmax": (in_training(lambda y: y, lambda y: y.log_softmax(1)), lambda out: out),
    "classes": (in_training(lambda y: y, lambda y: y.argmax(1)), lambda out: out),
    "auxiliary": (in_training(lambda y: Both(y, y)), lambda out: out.main),
    "deep supervision": (in_training(lambda y: [y, y]), lambda out: (out[0] + out[1]) / 2),
    "a dict": (in_training(lambda y: {"out": y}), lambda out: out["out"]),
    "a dataclass": (in_training(Output), lambda out: out.logits),
    "decoded": (in_training(lambda y: y, lambda y: (y.softmax(1), y)), lambda out: out),
    "boxes": (in_training(lambda y: y, lambda y: [{"boxes": one[one > 0]} for one in y]), lambda out: out),
    "an early exit": (in_training(lambda y: (y, y), lambda y: y if y.max() > 0 else 2 * y), lambda out: out[0]),
    "a loss": (in_both(lambda self, y: (y.square().mean(), y)), lambda out: out[1]),
    "a loss in training": (
        in_training(lambda y: {"loss": y.mean(), "logits": y}, lambda y: {"logits": y}),
        lambda out: out["logits"],
    ),
    "a scale": (in_both(lambda self, y: {"scale": self.norm.weight[0].exp(), "logits": y}), lambda out: out["logits"]),
    "a loss of each device": (in_both(lambda self, y: (y.mean()[None], y)), lambda out: out[1]),
    "a constant": (in_both(lambda self, y: (y, torch.full((len(y), 4), 7.0))), lambda out: out[0]),
    "indices": (in_both(lambda self, y: (y, y.argmax(1))), lambda out: out[0]),
    "nothing": (in_both(lambda self, y: (None, y, "text")), lambda out: out[1]),
    "a mask": (in_both(lambda self, y: torch.cat([y, torch.full_like(y[:, :1], -torch.inf)], 1)), lambda out: out[:, :CLASSES]),
}


@cache
def outcome_of_plain_task() -> list[float]:
    return outcome(Plain, own_task(cross_entropy(), lambda model: 0.5), 1)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_outputs_that_differ_between_modes_and_numbers_among_them(head: str) -> None:
    make, pick = HEADS[head]
    found = outcome(make, own_task(cross_entropy(pick), lambda model: 0.5), 1)
    assert found == pytest.approx(outcome_of_plain_task(), rel=1e-4)


def test_the_mean_loss_of_tests_is_that_of_what_the_loss_was_written_for() -> None:
    scores = []
    for make, pick in ((Plain, lambda output: output), HEADS["softmax"], HEADS["auxiliary"]):
        torch.manual_seed(0)
        with torch.no_grad():
            scores.append(own_task(cross_entropy(pick)).score(make(1).eval()))
    assert scores == pytest.approx([scores[0]] * 3)


def test_pictures_and_text_with_a_softmax_in_evaluation_mode_are_taught_and_scored_by_logits() -> None:
    answer = in_training(lambda y: y, lambda y: y.softmax(1))
    assert outcome_of(answer, "pictures") == pytest.approx(outcome_of_plain("pictures"), rel=1e-4)
    of_tokens = changed(OfTokens, answer=lambda self, y: y if self.training else y.softmax(2))
    assert outcome_of(of_tokens, "text") == pytest.approx(outcome_of_plain("text"), rel=1e-4)


class DropPath(nn.Module):
    """A path that is left out at random, as people write it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.new_empty(len(x), 1, 1).bernoulli_(0.8) / 0.8 if self.training else x


@pytest.mark.parametrize(
    ("make", "is_as_in_evaluation"),
    [
        (Plain, True),
        (in_training(functional.dropout), True),
        (changed(prepare=lambda self, x: functional.dropout(x, 0.1, self.training)), True),
        (changed(prepare=lambda self, x: DropPath().train(self.training)(x)), True),
        (changed(forward=lambda self, x: nn.Dropout(0.5).train(self.head.training)(Plain.forward(self, x))), True),
        (in_training(lambda y: y, lambda y: y.softmax(1)), False),
        (in_training(lambda y: functional.dropout(y, 0.1), lambda y: y.softmax(1)), False),
        (in_training(lambda y: y, lambda y: y / 4), False),
        (in_training(lambda y: (y,)), False),
        (in_training(lambda y: y, lambda y: 1 / 0), False),
    ],
)
def test_the_mode_in_which_a_network_answers_its_loss(make: Make, is_as_in_evaluation: bool) -> None:
    torch.manual_seed(0)
    network, x = make(1).train(), torch.rand(8, 2, 12)
    before, random = {name: one.clone() for name, one in network.state_dict().items()}, torch.get_rng_state()
    expected = evaluation_mode if is_as_in_evaluation else steady_training_mode
    assert mode_of_loss(network, lambda network: network(x)) is expected
    assert network.training and all(torch.equal(one, before[name]) for name, one in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("make", "loss", "said"),
    [
        (
            in_training(lambda y: {"loss": y.square().mean()}),
            lambda model, batch: model(batch[0])["loss"],
            "the output of the network is a dict with numbers only, such as a loss: there is nothing to learn from the "
            "trained original's; leave out distill (in Python distill=None), or write a method difference(self, output, "
            "taught) of your task",
        ),
        (
            Plain,
            lambda model, batch: functional.cross_entropy(model.logits(batch[0]), batch[1]),
            'the loss of the task "own" calls parts of the network only, not the network itself, as in model(batch[0]), so '
            "that there is nothing to learn from the trained original's output; leave out distill (in Python distill=None)",
        ),
    ],
    ids=["numbers only", "parts only"],
)
def test_where_there_is_nothing_to_learn_from_a_line_says_so(make: Make, loss: Any, said: str) -> None:
    task = own_task(loss, lambda model: 0.5)
    settings = TrainingSettings(most_steps=1, learning_rate=0.02)
    with pytest.raises(SpecError) as raised:
        train(make(1), task, settings.model_copy(update={"distill": TrainingSettings(distill={}).distill}), teacher=make(1))
    assert str(raised.value) == said
    network = make(1)
    (fit,) = fit_layers(network, copy_of(network), ["layer"], task_of(task, settings, 0, CPU))
    assert fit.after < 1e-6 and train(network, task, settings).steps == 1


def test_an_input_that_is_changed_in_place_is_said_once(recwarn: pytest.WarningsRecorder) -> None:
    settings = WorkloadSettings(model="network", training=TrainingSettings(batch=8, channels_last=False))
    for make in (Plain, IN_PLACE["sub_"]):
        try_step(OwnWorkload(settings, data_of("pictures"), make()))
    assert [str(one.message) for one in recwarn] == [
        'the model "network" changes its input in place, as x.sub_(mean) does, so each call gets a copy, the time of which is '
        "in its latency; x = x - mean leaves the input as it is"
    ]


# ---- measuring -----------------------------------------------------------------------------------------------------------


def plain_network() -> nn.Module:
    return Plain()


def in_place_network() -> nn.Module:
    return IN_PLACE["sub_"]()


def clamping_network() -> nn.Module:
    return changed(prepare=lambda self, x: x.clamp_(-1, 1))()


@pytest.mark.parametrize(
    ("compiler", "model"),
    [
        ("eager", "in_place_network"),
        ("eager", "clamping_network"),
        pytest.param("inductor", "in_place_network", marks=pytest.mark.slow),
    ],
)
def test_a_network_that_changes_its_input_is_timed_with_right_outputs(compiler: str, model: str) -> None:
    subject = NetworkSubject(model=f"{__name__}:{model}", classes=CLASSES, image_shape=SHAPES["pictures"])
    settings = LatencySettings(warm_up_ms=0, least_repeats=6, most_repeats=6, least_ms=0, batch=2)
    with torch.no_grad():
        found = prepared(Request(subject=subject, compiler=compiler, device="cpu", settings=settings), subject, lambda _: None)
        for _ in range(5):
            found()
    assert found.deviation.worse(found.check_last()).of_allowed < 1


# ---- parts of a batch ----------------------------------------------------------------------------------------------------

IGNORED = 255


def ignoring(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], ignore_index=IGNORED)


def masked(model: nn.Module, batch: Any) -> torch.Tensor:
    counts = batch[1] != IGNORED
    each = functional.cross_entropy(model(batch[0]), batch[1].where(counts, 0), reduction="none")
    return (each * counts).sum() / counts.sum()


def by_class(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1] % CLASSES, weight=torch.tensor([1.0, 2.0, 3.0]))


def contrasted(model: nn.Module, batch: Any) -> torch.Tensor:
    features = functional.normalize(model(batch[0]), dim=1)
    return functional.cross_entropy(features @ features.T, torch.arange(len(features)))


def counted_labels(batch: Any) -> int:
    return int((batch[1] != IGNORED).sum())


@pytest.mark.parametrize(
    ("loss", "counted", "said"),
    [
        (ignoring, counted_labels, ""),
        (masked, counted_labels, ""),
        (cross_entropy(), None, ""),
        (
            ignoring,
            None,
            "is a mean over labels, of which those that are 255 do not count; give the task counted=..., a function",
        ),
        (masked, None, "for 4 samples, and the mean over their halves is"),
        (by_class, None, "is a mean with weights of the classes; give the task counted="),
        (
            contrasted,
            None,
            "it is no mean over samples: labels may not count, or samples be compared with each other; give the",
        ),
        (ignoring, lambda batch: -1, "counted of the task Task returned -1; it must be a number of at least 0"),
    ],
)
def test_labels_that_do_not_count_are_right_in_micro_batches_or_refused(loss: Any, counted: Any, said: str) -> None:
    x, y = data_of("sound").train_images[:12], torch.arange(12) % CLASSES  # type: ignore[union-attr]
    if loss in (ignoring, masked):
        y[[0, 1, 2, 8, 9, 10, 11]] = IGNORED  # among them all of a part
    torch.manual_seed(0)
    network, losses = Plain(1).eval(), []
    network.norm.eval()
    task = syno.Task([(x, y)], loss=loss, counted=counted, score=lambda model: 0.0)
    settings = TrainingSettings(learning_rate=0.1, most_steps=1, micro_batch=4)
    if said:
        with pytest.raises(syno.SynoError) as raised:
            train(network, task, settings)
        assert said in str(raised.value) and "\n" not in str(raised.value)
        return
    gradients = []
    for most in (None, 4):
        network.zero_grad()
        losses.append(float(add_gradients(task_of(task, settings, 0, CPU), network, (x, y), most)))
        gradients.append(torch.cat([one.grad.flatten() for one in network.parameters()]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and torch.allclose(*gradients, atol=1e-6)


def test_a_classification_of_speed_up_says_which_labels_count() -> None:
    task = Classification([], [], name="classification")
    assert task.counts and task.counted((torch.zeros(3, 1), torch.tensor([0, -1, 2]))) == 2


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"processes": 3}, {"epochs": 9, "batch": 9, "learning_rate": 0.3, "processes": 3}),
        ({"epochs": 1}, {"epochs": 1, "batch": 9, "learning_rate": 0.3}),
        ({"recipe": "quick", "processes": 2}, {"epochs": 4, "batch": 64, "learning_rate": 0.1, "processes": 2}),
    ],
)
def test_settings_of_the_last_trainings_change_only_what_is_given(given: dict[str, Any], found: dict[str, Any]) -> None:
    workload = {"training": {"epochs": 9, "batch": 9, "learning_rate": 0.3}}
    fields = {"name": "x", "workload": workload, "select": {"operators": ["conv1x1"]}, "train": {"training": given}}
    training = Experiment.model_validate(fields).train.training
    assert training is not None and training.model_dump(include=set(found)) == found
    with pytest.raises(ValueError, match="processes: 2 do not share a batch of 9 equally"):
        Experiment.model_validate(fields | {"train": {"training": {"processes": 2}}})
