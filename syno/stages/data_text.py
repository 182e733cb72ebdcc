"""The text that `syno data` prints: the data, the network, its layers, and what a search can reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syno.base.addresses import visible
from syno.base.text_tables import markdown
from syno.config import Experiment
from syno.model.layer_row import as_table
from syno.results.majority import SAYS_LITTLE, WARNED_MAJORITY, majority_text
from syno.space.options import Budget
from syno.space.reads import AUTO
from syno.stages.data import DataRecord

LEAST_ATTENTION = 0.01  # of the FLOPs; less is not worth a line
MOST_NAMES = 8  # of layers in one line of text; data.json has all of them


def data_text(experiment: Experiment, record: DataRecord) -> str:
    """Return what `syno data` prints: the data, the network, and which shares of its cost operators can reach."""
    return visible("".join(f"{line}\n" for line in _lines(experiment, record)))


def _lines(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    has_samples = record.train_images or record.test_images
    counts = f"{record.data}: {f'{record.train_images} + {record.test_images}' if has_samples else 'no'}"
    if record.image_shape is None:
        samples = f"sequences of {record.length} tokens, {record.classes} different ones"
    else:
        positions = f" at each of {' x '.join(map(str, record.label_shape))} positions" if record.label_shape else ""
        samples = f"{record.samples} of {' x '.join(map(str, record.image_shape))}, {record.classes} classes{positions}"
    yield (
        f"{counts} {samples}; "
        f"{record.model}: {len(record.layers)} layer{'' if len(record.layers) == 1 else 's'} to replace, "
        f"{record.flops:,.0f} FLOPs, {record.parameters:,} parameters"
    )
    for operator in dict.fromkeys(record.placed.values()):
        places = tuple(layer for layer, name in record.placed.items() if name == operator)
        yield f"these layers have the operator {operator} already, which the table does not show: {_names(places)}"
    yield f"\n{markdown(as_table(record.table, record.flops, record.time_shares), left=5)}"
    if record.not_counted:
        yield f"the FLOPs do not count {', '.join(record.not_counted)}, of which nothing is known"
    if record.attention_flops > LEAST_ATTENTION * record.flops:
        yield f"the FLOPs do not count products of activations, as in attention, which are {record.attention_flops:,.0f} more"
    if record.layers_with_bias:
        yield f"the bias of these layers stays, and is added after the operator: {_names(record.layers_with_bias)}"
    assert record.rest_flops is not None and record.rest_parameters is not None  # only old records have none
    flops, parameters = record.rest_flops / max(record.flops, 1), record.rest_parameters / record.parameters
    yield (
        f"reachable: more than {flops:.1%} of the FLOPs ({record.rest_flops:,.0f}) and {parameters:.1%} of the parameters "
        f"({record.rest_parameters:,}), which the rest of the network has; the original is 100%"
    )
    for names in record.shared_memory:
        yield f"these weights share memory, and do so in every training and copy: {_names(names)}"
    yield from _weights(experiment, record)
    yield from _fastest(experiment, record)
    if experiment.searches:
        yield f"budget of the search: {_budget(experiment)}"
        yield _requirement(experiment)
    if record.majority is not None and record.majority > WARNED_MAJORITY:
        yield f"warning: {majority_text(record.majority_label, record.majority)}: {SAYS_LITTLE}"
    if not experiment.trains:
        yield "nothing is trained, so no step of training was tried"
        return
    yield f"one step of training and one of testing work on {experiment.network.settings.training.device}"


def _weights(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    """Yield what becomes of the weights of a user's own network, where that is not plain."""
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
        case _ if loaded:
            yield f"{equal}; every training begins with them, and with new weights of operators"


def _fastest(experiment: Experiment, record: DataRecord) -> Iterator[str]:
    """Yield how fast the network can become, if a goal asks for speed."""
    least = None if experiment.goal is None else experiment.goal.least_speedup
    share = sum(record.time_shares.get(name, 0.0) for name in record.layers)
    if least is None or not 0 < share < 1:
        return
    most = 1 / (1 - share)
    line = (
        f"speed: the layers to replace take about {share:.0%} of the time in plain PyTorch on this machine's processor; "
        f"if they took none, the network would be {most:.2g} times as fast, and the goal is {least:g}"
    )
    yield (
        line if least < 1 / (1 - share) else f"{line}: replace more layers (workload: layers), or ask for less (goal: speedup)"
    )


def _budget(experiment: Experiment) -> str:
    budget, original = experiment.operator_spec.budget, experiment.network.original
    return ", ".join(
        (
            _bounds("FLOPs", budget, "flops", original.flops),
            _bounds("parameters", budget, "parameters", original.parameters),
        )
    )


def _requirement(experiment: Experiment) -> str:
    """Return what operators must read, and why."""
    from syno.model.requirement import in_words

    reads, found = experiment.operator_spec.reads, experiment.network.requirement
    if not isinstance(experiment.spec, Mapping) or experiment.spec.get("reads") != AUTO:
        return "requirement: none, as the spec says" if reads is None else f"requirement: {in_words(reads)}, as the spec says"
    if reads is None:
        return f"requirement: none, because {found.reason}"
    return f"requirement: {in_words(reads)}, because {found.reason}; `reads: none` under `spec` switches it off"


def _bounds(what: str, budget: Budget, name: str, original: float) -> str:
    """Return the range of shares of the original's cost that a search accepts, in words."""
    least, most, rest = (getattr(budget, f"{end}_{name}") for end in ("least", "most", "rest"))
    is_bounded = most < Budget.model_fields[f"most_{name}"].default
    low = f"at least {least / original:.1%}" if least > rest else f"more than {rest / original:.1%}"
    high = f" and at most {most / original:.1%}" if is_bounded else ""
    return f"{low}{high} of the {what}"


def _names(layers: tuple[str, ...]) -> str:
    more = len(layers) - MOST_NAMES
    return ", ".join(layers) if more <= 0 else f"{', '.join(layers[:MOST_NAMES])} and {more} more"
