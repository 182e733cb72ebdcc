"""The operators of an experiment: the trained and measured operators, and recovery of operators that the store has lost.

A lost operator's text is also in the frozen table, in the store of the experiment it came from, and in records of trainings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from syno.base.errors import MisfitError, SpecError, SynoError, UnknownNameError
from syno.base.files import ORIGINAL, write_whole
from syno.base.text_tables import plural
from syno.config import AnyExperiment, Experiment
from syno.config.stages import listed
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS as KNOWN
from syno.ir.text import parse_stored, read_operator_file, with_checksum
from syno.model.networks import Network, Role, replacement_named
from syno.model.replacements import AnyOperator, Mixture, as_replacement
from syno.run.table import trials_in
from syno.stages.kinds import kind_of
from syno.stages.mixtures import choice_of, mixture_of
from syno.stages.places import FROZEN, OPERATORS, SELECTED
from syno.stages.selection import check_in_store, read_selected
from syno.stages.store import ID_DIGITS, OperatorStore, find_stored
from syno.stages.study import read_frozen, shown_trials

if TYPE_CHECKING:
    from syno.train.workload import Workload


def compared_networks(experiment: Experiment) -> list[Network]:
    """Return the original network, the baselines, the rivals, and the networks with selected operators, by key and role.

    Raises SpecError if nothing was selected yet, or the operator store lacks one of the operators.
    """
    selected = read_selected(experiment.folder / SELECTED)
    check_in_store(selected, experiment.folder)
    choice = choice_of(experiment)
    return [
        Network(ORIGINAL, role=Role.ORIGINAL),
        *(Network(name, role=Role.BASELINE) for name in experiment.baselines),
        *(replace(Network.parse(name), role=Role.RIVAL) for name in experiment.rival_names),
        *(Network(one.key, role=Role.FOUND) for one in selected),
        *(_with_mixture(experiment, chosen.replacement) for chosen in (() if choice is None else choice.mixtures)),
    ]


def _with_mixture(experiment: Experiment, mixture: Mixture) -> Network:
    """Return the network with a mixture. A mixture of known layers only is a rival, since nothing in it was synthesized."""
    file = experiment.folder / SELECTED
    selected = {one.key for one in read_selected(file)} if file.is_file() else set()
    is_found = any(part.id[:ID_DIGITS] in selected for part in mixture.layers.values())
    return Network(mixture.name, role=Role.FOUND if is_found else Role.RIVAL, replacement=mixture)


def network_of(experiment: Experiment, name: str | Network) -> Network:
    """Return the network of a key, or of the id, name or file of an operator, with its replacement.

    A network that the experiment does not compare, such as `pruned_0.3`, has no role.

    Raises UnknownNameError if there is none.
    """
    if isinstance(name, Network):
        return name
    if name == ORIGINAL:
        return Network(ORIGINAL, role=Role.ORIGINAL)
    if name in experiment.mixture_names:
        return _with_mixture(experiment, mixture_of(experiment, name))
    choices = {**experiment.rival_operators, **experiment.baselines}
    known = choices[name].replacement() if name in choices else replacement_named(name)
    if known is not None:
        key = name if name in choices else known.name
        roles = {**dict.fromkeys(experiment.rival_names, Role.RIVAL), **dict.fromkeys(experiment.baselines, Role.BASELINE)}
        return Network(key, role=roles.get(key), replacement=known)
    operator = _stored(experiment, name)
    return Network(operator.id[:ID_DIGITS], role=Role.FOUND, replacement=operator)


def _stored(experiment: Experiment, name: str) -> PGraph:
    """Return the operator of a key, id, name or file, from a store; if the store has lost it, from other files of results."""
    try:
        return find_stored(name, experiment.folder)
    except UnknownNameError as error:
        if (lost := find_lost(experiment, name)) is not None:
            return lost
        hint = "; `syno freeze` writes the operators of a study there" if experiment.searches else ""
        raise UnknownNameError(f"{error}{hint}") from None


def operators_by_hand(experiment: Experiment, workload: Workload, *, is_selected: bool = True) -> dict[str, AnyOperator | None]:
    """Return the operator of each layer that the settings of mixtures name (`keep`, `fix`); None for a layer that stays.

    Args:
        experiment: an experiment with mixtures.
        workload: the workload, with the network.
        is_selected: whether operators are selected; before that, only known operators are returned, and None for the others.

    Raises SpecError if there is no such layer or operator, or an operator does not fit.
    """
    assert experiment.mixtures != "none"
    given = experiment.mixtures.by_hand({layer.name: layer.names for layer in workload.layers})
    found: dict[str, AnyOperator | None] = dict.fromkeys(given)
    for name in dict.fromkeys(given.values()):
        if name is not None and (is_selected or name in experiment.rival_operators or name in KNOWN or replacement_named(name)):
            layers = tuple(layer for layer, other in given.items() if other == name)
            found |= dict.fromkeys(layers, _fitting(experiment, name, layers, workload))
    return found


def _fitting(experiment: Experiment, name: str, layers: tuple[str, ...], workload: Workload) -> AnyOperator:
    """Return the named operator, checked to fit these layers of the network. SpecError if it does not exist or fit."""
    file, where = experiment.folder / SELECTED, f"mixtures: fix: {name} in {listed(layers)}"
    selected = [one.name for one in read_selected(file)] if file.is_file() else []
    allowed = f"there are: {', '.join([*selected, *(experiment.rival_operators or KNOWN)])}"
    try:
        found = network_of(experiment, name).replacement
    except SynoError as error:
        raise SpecError(f"{where}: {error}; {allowed}") from error
    if found is None or as_replacement(found).is_whole:
        raise SpecError(f"{where}: this is a whole network, and no operator; {allowed}")
    try:
        workload.network(Mixture(name, ((found, layers),)), workload.settings.seed)
    except SynoError as error:
        raise SpecError(f"{where} does not fit: {error}; give other layers or another operator; {allowed}") from error
    return found


def check_fit(experiment: Experiment, option: str, name: str, find: Callable[[], AnyOperator]) -> None:
    """Raise SpecError if an operator does not fit the layers that it is to replace.

    The operator must fit all replaced layers, since networks are trained with it in all of them; if only layers are measured,
    one.

    Args:
        experiment: the experiment, with the network.
        option: the option of the experiment that names the operator.
        name: the operator's name in this option.
        find: returns the operator; its errors are raised as errors of the option.
    """
    from syno.model.substitution import why_it_does_not_fit  # imports torch

    workload, advice = experiment.network, "take another operator, another width, or other layers (workload: layers)"
    try:
        operator = find()
        if experiment.train.seeds or experiment.tune.layers != "only":
            workload.network(operator, workload.settings.seed)
        elif not as_replacement(operator).is_whole:
            reasons = [why_it_does_not_fit(operator, layer, workload.model()) for layer in workload.layers]
            if reasons and None not in reasons:
                raise MisfitError(f"it fits none of the {plural(len(reasons), 'layer')}: {reasons[0]}")
    except MisfitError as error:
        raise SpecError(f"{option}: {name}: {error}; {advice}") from None
    except SynoError as error:
        raise SpecError(f"{option}: {error}") from None


def keep_operator(experiment: Experiment, network: Network) -> None:
    """Add the operator of a network to the store, where readers of the network's records look for it."""
    if network.role is Role.FOUND and isinstance(network.replacement, PGraph):
        OperatorStore(experiment.folder).add(network.replacement)


def repair_store(experiment: AnyExperiment, lost: Collection[str] | None) -> None:
    """Write the operators that are missing or damaged in the store of an experiment.

    Args:
        experiment: the experiment whose store is repaired.
        lost: keys of the lost operators. None if they are not known: then all files of the store are read, and missing
            operators of the frozen table are written.

    Raises SpecError, which names the file and the command that makes it, for an operator whose text is nowhere else. If the
    frozen table is missing, too, there is no error: the next `syno freeze` writes the operator.
    """
    folder = experiment.folder / OPERATORS
    damaged = [file for file in folder.glob("*.txt") if not _is_whole(folder, file.stem)] if lost is None else []
    missing = {file.stem for file in damaged} if lost is None else set(lost)
    if lost is not None and not missing:
        return
    for operator in _kept_elsewhere(experiment):
        key = operator.id[:ID_DIGITS]
        if key in missing or (lost is None and not (folder / f"{key}.txt").exists()):
            write_whole(folder / f"{key}.txt", with_checksum(str(operator)))
            missing.discard(key)
        if lost is not None and not missing:
            return
    kind = kind_of(experiment)
    for key in sorted(missing):
        file = folder / f"{key}.txt"
        if experiment.searches and not (experiment.folder / FROZEN).exists():
            if file.exists():  # else `syno freeze` would keep it
                file.rename(file.with_suffix(".damaged"))
            continue
        again = "syno freeze" if kind is None else kind.made_by
        raise SpecError(f"{file} is missing or damaged, and its text is nowhere else; delete it and run `{again}` again")


def find_lost(experiment: AnyExperiment, name: str) -> PGraph | None:
    """Return the lost operator of this key or name, and add it to the store again; None if no file has its text."""
    for operator in _kept_elsewhere(experiment):
        if name in (operator.name, operator.id[:ID_DIGITS]):
            OperatorStore(experiment.folder).add(operator)
            return operator
    return None


def _kept_elsewhere(experiment: AnyExperiment) -> Iterator[PGraph]:
    """Yield the operators whose texts are in other files of results. Files that cannot be read are skipped."""
    if isinstance(experiment, Experiment) and experiment.searches and (experiment.folder / FROZEN).is_file():
        with suppress(SynoError):
            for trial in shown_trials(experiment, trials_in(read_frozen(experiment))):
                yield from _read(trial.operator, f"{experiment.name}_{trial.number}")
    for source in experiment.sources:
        for file in sorted((source / OPERATORS).glob("*.txt")):
            if _is_whole(file.parent, file.stem):
                yield read_operator_file(file)
    for choice in experiment.select.operators if isinstance(experiment, Experiment) else ():
        with suppress(SynoError):
            yield choice.find()
    for record in sorted(experiment.folder.glob("train/*/*.json")):
        try:
            content = json.loads(record.read_bytes())
            text, name = content["operator"], content["name"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        yield from _read(text, name)


def _read(text: object, name: str) -> Iterator[PGraph]:
    """Yield the operator that a text defines; nothing if the text is not a valid operator."""
    if isinstance(text, str):
        with suppress(SynoError):
            yield parse_stored(text, name=name)


def _is_whole(folder: Path, key: str) -> bool:
    """Return whether the store's file of a key is undamaged and holds the operator with this key."""
    try:
        return read_operator_file(folder / f"{key}.txt", written_by_program=True).id.startswith(key)
    except (OSError, SynoError):
        return False
