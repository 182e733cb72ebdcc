"""The stage `data`: it loads or generates the data, and checks it with the network, so that errors show before a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, SerializerFunctionWrapHandler, model_serializer, model_validator

from syno.base.addresses import visible
from syno.base.errors import SpecError, SynoError
from syno.base.gpu_leases import leased
from syno.base.identity import OWN_CODE, version_of_code
from syno.base.record import Amount, Count, Number, Record, versions
from syno.base.text_tables import markdown, plural
from syno.config import Experiment
from syno.data.settings import ImagenetSettings, samples_in_words
from syno.measure.subjects import GivenInputs, GivenTensor
from syno.model.layer_row import LayerRow, as_table
from syno.run.story import SAYS_LITTLE, WARNED_MAJORITY, fastest_possible, majority_text
from syno.space.options import Budget
from syno.space.reads import AUTO
from syno.stages.places import DATA
from syno.train.metric import METRICS, MetricKey

if TYPE_CHECKING:
    from syno.train.settings import WorkloadSettings


IMAGENET = "imagenet"


class DataRecord(Record):
    """The record of a data set of pictures or of text, and of the network on it.

    Attributes:
        data: name of the data set.
        hash: hash of the pictures and labels, or of the tokens; a user's own network or data adds its code and content.
        own_code: a checksum of the user's own code in the network and the data; "" if there is none.
        metric: the key of the score's metric of a task of one's own; None for classification and text.
        inputs: for a user's own task: the inputs with which the network is called; None for other data.
        classes: number of classes; for text, number of different tokens; None for a task of one's own.
        train_images, test_images: number of pictures, other samples, or sequences of tokens; None for a task of one's own.
        image_shape: [channels, height, width] of a picture as the network gets it, or [channels, ...] of another sample; None
            for text, and for a task of one's own whose network takes anything else than one tensor of numbers.
        label_shape: the shape of a sample's labels; () if it has one, and for text.
        length: tokens of a sequence; None for pictures.
        model: name of the backbone.
        placed: layers that have an operator already, each with the operator's name.
        layers: names of the layers that operators replace.
        layers_that_stay: the other replaceable layers, each with the reason why it isn't replaced.
        layers_with_bias: replaced layers with a bias, which stays and is added after the operator.
        table: all layers that do multiply-adds.
        time_shares: the share of a forward pass that each layer takes in plain PyTorch on this machine's processor; not of
            layers that are not called.
        flops: multiply-adds of the network, for one picture or sequence.
        attention_flops: multiply-adds of products of activations, which do not count, for one picture or sequence.
        not_counted: functions whose multiply-adds are not known, each with the modules that call it.
        parameters: parameters of the network.
        shared_memory: names of different parameters and buffers in the same memory, as slices of one tensor, by the memory.
        fixed_weights: share of the weights of a user's own network that its function makes equal for every seed, such as those
            that it loads; vectors do not count; None for other networks.
        majority: the share of the most frequent label among the test data's labels; None if it is not known.
        majority_label: the most frequent label.
        repeated_tests: the number of test samples that are also training samples; None if not known.
        rest_flops, rest_parameters: FLOPs and parameters of the layers that are not replaced.
        inputs_to_measure: inputs for latencies, for a network whose execution path depends on values; else None.
        paths: a sentence about the different execution paths; "" if there is only one.
        versions, date: versions of the software, and the time.
    """

    kind_of_record = "data record"
    again = "run `syno data`"
    passing = frozenset({"date", "time_shares"})
    data: str
    hash: str
    own_code: str = ""
    classes: Count | None = None
    train_images: Number | None = None
    test_images: Number | None = None
    image_shape: tuple[Count, ...] | None = None
    label_shape: tuple[Count, ...] = ()
    length: Count | None = None
    metric: MetricKey | None = None
    inputs: GivenInputs | None = None
    model: str
    placed: Mapping[str, str] = {}
    layers: tuple[str, ...]
    layers_that_stay: Mapping[str, str] = {}
    layers_with_bias: tuple[str, ...] = ()
    table: tuple[LayerRow, ...] = ()
    time_shares: Mapping[str, Amount] = {}
    flops: Amount
    attention_flops: Amount = 0.0
    not_counted: tuple[str, ...] = ()
    parameters: Number
    shared_memory: tuple[tuple[str, ...], ...] = ()
    fixed_weights: Amount | None = None
    majority: Amount | None = None
    repeated_tests: Number = 0
    majority_label: Number | None = None
    rest_flops: Amount
    rest_parameters: Number
    inputs_to_measure: GivenInputs | None = None
    paths: str = ""
    versions: dict[str, str]
    date: AwareDatetime

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> DataRecord:
        if self.metric is None and (not self.image_shape) == (self.length is None):
            raise ValueError("a record of pictures has an image_shape, one of a text has a length, and none has both")
        if self.metric is None and None in (self.classes, self.train_images, self.test_images):
            raise ValueError(
                "a record of pictures or of a text has a number of classes, and of samples to train and to test on"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the record without empty paths and, for classification and text, without the fields of own tasks."""
        absent = {name for name in ("inputs_to_measure", "paths", "own_code", "repeated_tests") if not getattr(self, name)}
        absent |= {"metric", "inputs"} if self.metric is None else set()
        found: dict[str, Any] = write(self)
        return {name: one for name, one in found.items() if name not in absent}

    @property
    def shapes(self) -> list[str]:
        """The input tensors of a network with a task of its own, each as dtype and shape, such as "float32 [8, 3, 16]"."""
        leaves = () if self.inputs is None else self.inputs.leaves
        return [f"{one.dtype} {list(one.shape)}" for one in leaves if isinstance(one, GivenTensor)]

    @property
    def samples(self) -> str:
        """What a sample is called in messages, in the plural."""
        if self.metric is not None:
            return "inputs"
        return "tokens" if self.image_shape is None else samples_in_words(self.image_shape)


def own_code_of(experiment: Experiment) -> str:
    """Return a checksum of the user's own code that makes the network and the data; "" if there is none. Imports the code."""
    workload = None if experiment.workload is None else experiment.workload.model_dump(mode="json")
    return version_of_code(workload).get(OWN_CODE, "")


def files_to_convert(experiment: Experiment) -> tuple[Path, ...]:
    """Return the files that `syno convert imagenet` writes and the data set reads; none for other data sets and readers."""
    workload = experiment.workload
    if workload is None or workload.data != IMAGENET:
        return ()
    settings = ImagenetSettings.of(**workload.data_settings)
    return settings.betons if settings.reader == "ffcv" else ()


def loading_processes(workload: WorkloadSettings) -> int:
    """Return the number of threads or processes that decode pictures for a training, beside its own threads."""
    return ImagenetSettings.of(**workload.data_settings).workers if workload.data == IMAGENET else 0


def prepare(experiment: Experiment, output: Path | None = None) -> DataRecord:
    """Load or generate the data, check it with the network, and write a record of both.

    Checks the layers to replace, the budget and the space as a search does, and, if anything is trained, runs one step of
    training on the device of the workload. If a check fails, no record is written.

    Raises:
        SpecError: there is no workload, no layer to replace, no operator within the budget or no such device, or the network
            does not take such data.
        UnknownNameError: there is no such network or data set.
        DataError: the data is missing or damaged, or cannot be trained on.
        ShapeError: the network's output does not fit the data, or the batch is larger than the data set.
        TrainingError: the device's memory does not suffice.
        UserCodeError: the user's own code failed.
    """
    from syno.measure.layer_shares import layer_shares
    from syno.stages.operators import operators_by_hand

    record = look(experiment.use_code())
    _check_known_operators(experiment)
    _check_that_operators_fit(experiment)
    if experiment.mixtures != "none":
        operators_by_hand(experiment, experiment.network, is_selected=False)  # raises now, not after a search
    shares = layer_shares(experiment.network.model(), experiment.network.example)
    known = {row.name: shares[row.name] for row in record.table if row.name in shares}
    record = record.model_copy(update={"time_shares": known})
    if experiment.searches:
        from syno.space.space import Space
        from syno.space.state_graph import check_not_empty

        check_not_empty(Space(experiment.operator_spec))
    if experiment.trains:
        from syno.train.trial_step import try_step

        with leased(experiment.network.settings.training.device, "training.device"):
            try_step(experiment.network, keeps_weights=experiment.train.weights != "none")
    record.write(output or experiment.folder / DATA)
    return record


def _check_known_operators(experiment: Experiment) -> None:
    """Raise SpecError if a baseline or a rival is no known operator, before hours are spent on a search."""
    for option, choices in (("train: baselines", experiment.baselines), ("rivals: operators", experiment.rival_operators)):
        for choice in choices.values():
            try:
                choice.replacement()
            except SynoError as error:
                raise SpecError(f"{option}: {error}") from None


def _check_that_operators_fit(experiment: Experiment) -> None:
    """Raise SpecError if an operator that the settings name does not fit the layers that it is to replace.

    Operators of a source that has no results yet are checked by the stage `select`.
    """
    from syno.stages.operators import check_fit
    from syno.stages.source import choose_from_source
    from syno.stages.store import OperatorStore

    for choice in experiment.select.operators:
        check_fit(experiment, "select: operators", choice.operator, choice.find)
    for name, baseline in experiment.baselines.items():
        check_fit(experiment, "train: baselines", name, baseline.replacement)
    if (source := experiment.select.source) is not None:
        try:
            taken = choose_from_source(experiment)
        except SynoError:  # the stage `select` reports it
            return
        for one in taken:
            check_fit(experiment, "select: source", one.name, partial(OperatorStore(source).get, one.key))


def look(experiment: Experiment) -> DataRecord:
    """Return the record of `prepare` without training or writing a file. Raises the errors of `prepare`."""
    import torch

    from syno.data import TokenSet
    from syno.data.contract import label_shape_of, majority_of, repeated_tests
    from syno.model.counting import count
    from syno.model.extraction import replaceable, sorted_out
    from syno.model.layer_table import layer_rows
    from syno.model.shared_memory import shared_tensors
    from syno.train.own_task import Task

    network = experiment.network
    data, settings, pictures = network.data, network.settings, network.batch
    if experiment.goal is not None:
        experiment.goal.check_loss(network.metric)
    model, paths = network.model(), network.paths
    layers = replaceable(model, network.example, settings.layers)
    _, stay = sorted_out(model, network.example, settings.layers)
    rest, counted, most_frequent = network.rest, count(model, network.example), majority_of(data)
    shape: dict[str, Any]
    if isinstance(data, Task):
        is_one = isinstance(network.example, torch.Tensor) and network.example.dtype == torch.float32
        shape = {
            "metric": network.metric.key,
            "inputs": GivenInputs.of(network.example),
            "image_shape": tuple(network.example.shape[1:]) if is_one else None,
        }
    else:
        shape = {"length": data.length} if isinstance(data, TokenSet) else {"image_shape": data.image_shape}
        shape |= {"label_shape": label_shape_of(data)}
        shape |= {"classes": data.classes, "train_images": data.train_count, "test_images": data.test_count}
    return DataRecord(
        data=settings.data,
        hash=network.hash,
        own_code=own_code_of(experiment),
        **shape,
        model=settings.model,
        placed=network.placed_layers,
        layers=tuple(layer.name for layer in layers),
        layers_that_stay=stay,
        layers_with_bias=tuple(layer.name for layer in layers if layer.module.bias is not None),
        table=layer_rows(model, network.example, settings.layers),
        flops=counted.flops / pictures,
        attention_flops=counted.attention_flops / pictures,
        not_counted=counted.not_counted,
        parameters=int(network.original.parameters),
        shared_memory=tuple(map(tuple, shared_tensors(model))),
        fixed_weights=network.fixed_weights,
        repeated_tests=repeated_tests(data),
        majority=None if most_frequent is None else most_frequent.share,
        majority_label=None if most_frequent is None else most_frequent.label,
        rest_flops=rest.flops / pictures,
        rest_parameters=int(rest.parameters),
        inputs_to_measure=None if paths.samples is None else GivenInputs.of(paths.samples, with_values=True),
        paths=paths.description,
        versions=versions(["torch", "numpy"]),
        date=datetime.now(UTC),
    )


# Of the text that `syno data` prints.
MANY_REPEATED = 0.01  # share of test samples above which repeated ones are reported; some data sets have a few
LEAST_ATTENTION = 0.01  # of the FLOPs; less is not worth a line
MOST_NAMES = 8  # of layers in one line of text; data.json has all of them


def data_text(experiment: Experiment, record: DataRecord) -> str:
    """Return the text of `syno data`: the data, the network, and the shares of its cost that operators can reach."""
    return visible("".join(f"{line}\n" for line in _lines(experiment, record)))


def _lines(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    has_samples = record.train_images or record.test_images
    counts = f"{record.data}: {f'{record.train_images} + {record.test_images}' if has_samples else 'no'}"
    if record.metric is not None:
        metric = METRICS[record.metric]
        counts = f"{record.data}: a task of your own, whose score is {metric.heading}, {metric.better} is better;"
        samples = f"inputs {', '.join(record.shapes)}"
    elif record.image_shape is None:
        samples = f"sequences of {record.length} tokens, {record.classes} different ones"
    else:
        positions = f" at each of {' x '.join(map(str, record.label_shape))} positions" if record.label_shape else ""
        samples = f"{record.samples} of {' x '.join(map(str, record.image_shape))}, {record.classes} classes{positions}"
    yield (
        f"{counts} {samples}; "
        f"{record.model}: {plural(len(record.layers), 'layer')} to replace, "
        f"{record.flops:,.0f} FLOPs, {record.parameters:,} parameters"
    )
    for operator in dict.fromkeys(record.placed.values()):
        places = tuple(layer for layer, name in record.placed.items() if name == operator)
        yield f"these layers have the operator {operator} already, which the table does not show: {_names(places)}"
    yield f"\n{markdown(as_table(record.table, record.flops, record.time_shares), left=5)}"
    if record.paths:
        yield f"warning: {record.paths}"
    if record.not_counted:
        yield f"the FLOPs do not count {', '.join(record.not_counted)}, of which nothing is known"
    if record.attention_flops > LEAST_ATTENTION * record.flops:
        yield f"the FLOPs do not count products of activations, as in attention, which are {record.attention_flops:,.0f} more"
    if record.layers_with_bias:
        yield f"the bias of these layers stays, and is added after the operator: {_names(record.layers_with_bias)}"
    flops, parameters = record.rest_flops / max(record.flops, 1), record.rest_parameters / record.parameters
    yield (
        f"reachable: more than {flops:.1%} of the FLOPs ({record.rest_flops:,.0f}) and {parameters:.1%} of the parameters "
        f"({record.rest_parameters:,}), which the rest of the network has; the original is 100%"
    )
    if (weights := experiment.network.settings.weights) is not None:
        training = (
            "is trained, too"
            if experiment.network.trains_original
            else "is only scored; training: {train_original: true} trains it"
        )
        yield f"every training begins with the weights in {weights}; the original {training}"
    for names in record.shared_memory:
        yield f"these weights share memory, and do so in every training and copy: {_names(names)}"
    yield from _weights(experiment, record)
    yield from _fastest(experiment, record)
    if experiment.searches:
        yield f"budget of the search: {_budget(experiment)}"
        yield _requirement(experiment)
    if record.majority is not None and record.majority > WARNED_MAJORITY:
        yield f"warning: {majority_text(record.majority_label, record.majority)}: {SAYS_LITTLE}"
    if record.test_images and record.repeated_tests > MANY_REPEATED * record.test_images:
        yield (
            f"warning: {record.repeated_tests:,} of the {record.test_images:,} {record.samples} to test on are also there to "
            "train on, so that a score says little; take them out of either"
        )
    if not experiment.trains:
        yield "nothing is trained, so no step of training was tried"
        return
    yield f"one step of training and one of testing work on {experiment.network.settings.training.device}"


def _weights(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    """Yield sentences on the weights of a user's own network, such as that some are not drawn anew."""
    training = experiment.network.settings.training
    if record.fixed_weights is None or not experiment.trains:
        return
    loaded = f"{record.fixed_weights:.0%} of the weights" if record.fixed_weights else ""
    equal = f"the function of the network makes {loaded} equal for every seed, as when it loads trained ones" if loaded else ""
    match training.initialization:
        case "paper":
            yield (
                f"{equal and f'{equal}; '}the recipe {training.recipe} draws all weights of the paper's networks anew, and in "
                "yours only operators'; training: {initialization: paper-everywhere} draws the others, too"
            )
        case "paper-everywhere" if loaded:
            yield f"warning: {equal}, and initialization: paper-everywhere draws them anew; initialization: keep keeps them"
        case "fit" if loaded:
            yield f"{equal}; every training begins with them, and operators are fitted to the layers that they replace"
        case _ if loaded:
            yield f"{equal}; every training begins with them, and with new weights of operators"


def _fastest(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    """Yield sentences on the largest possible speedup, from the replaced layers' share of time, if the goal has a speedup."""
    least = None if experiment.goal is None else experiment.goal.least_speedup
    share = sum(record.time_shares.get(name, 0.0) for name in record.layers)
    if least is None or not 0 < share < 1:
        return
    yield fastest_possible(share, least)


def _budget(experiment: Experiment) -> str:
    budget, original = experiment.operator_spec.budget, experiment.network.original
    return ", ".join(
        (
            _bounds("FLOPs", budget, "flops", original.flops),
            _bounds("parameters", budget, "parameters", original.parameters),
        )
    )


def _requirement(experiment: Experiment) -> str:
    """Return the requirement on operators in words, with its reason."""
    from syno.model.requirement import in_words

    reads, found = experiment.operator_spec.reads, experiment.network.requirement
    if not isinstance(experiment.spec, Mapping) or experiment.spec.get("reads") != AUTO:
        return "requirement: none, as the spec says" if reads is None else f"requirement: {in_words(reads)}, as the spec says"
    if reads is None:
        return f"requirement: none, because {found.reason}"
    return f"requirement: {in_words(reads)}, because {found.reason}; `reads: none` under `spec` switches it off"


def _bounds(quantity: str, budget: Budget, name: str, original: float) -> str:
    """Return the range of shares of the original's cost that a search accepts, in words."""
    least, most, rest = (getattr(budget, f"{end}_{name}") for end in ("least", "most", "rest"))
    is_bounded = most < Budget.model_fields[f"most_{name}"].default
    low = f"at least {least / original:.1%}" if least > rest else f"more than {rest / original:.1%}"
    high = f" and at most {most / original:.1%}" if is_bounded else ""
    return f"{low}{high} of the {quantity}"


def _names(layers: tuple[str, ...]) -> str:
    more = len(layers) - MOST_NAMES
    return ", ".join(layers) if more <= 0 else f"{', '.join(layers[:MOST_NAMES])} and {more} more"
