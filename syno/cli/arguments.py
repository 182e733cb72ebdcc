"""Arguments that several commands share, and functions that parse them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from syno.config import AnyExperiment, Experiment
    from syno.ir.graph import PGraph
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
    from syno.model.replacements import ModuleBaseline
    from syno.space.spec import OperatorSpec

CONFIG_HELP = "File of an experiment (YAML), such as config/quickstart.yaml; FILE:NAME for one of several."
Config = Annotated[str, typer.Argument(metavar="CONFIG", help=CONFIG_HELP)]
SPEC_HELP = "A preset's name (resnet18, gpt2 ...), a spec file or an experiment (YAML; FILE:NAME for one of several)."
Spec = Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP)]
OPERATOR_HELP = "A text file, the name of a known operator, the folder of a published one, or the name or id of a found one."
Operator = Annotated[str, typer.Argument(metavar="OP", help=OPERATOR_HELP)]
Seed = Annotated[int, typer.Option(help="Seed of the random walks.")]
Depth = Annotated[int | None, typer.Option(min=1, help="Most primitives, instead of the spec's depth.")]
Output = Annotated[Path | None, typer.Option(help="Folder of the results.")]
OutputFile = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="File to write, instead of one in the folder of results.")
]
Rename = Annotated[
    list[str] | None, typer.Option(metavar="OLD=NEW", help="Rename variables of the operator, to match the spec.")
]

# Options of networks for pictures and of language models, with their defaults.
OF_PICTURES: dict[str, Any] = {"classes": 1000, "image": "3x224x224", "channels_last": False}
OF_TEXT: dict[str, Any] = {"vocabulary": 50257, "length": 2048}


def experiment_of(config: str) -> Experiment:
    """Return the experiment of FILE or FILE:NAME; FILE may also be the name of an experiment bundled with Syno.

    Raises SpecError if the experiment is of a kind without operators.
    """
    from syno.config import Experiment

    return Experiment.checked(any_experiment_of(config))


def any_experiment_of(config: str) -> AnyExperiment:
    """Return the experiment of FILE or FILE:NAME, of any kind; otherwise as `experiment_of`."""
    from syno.config import load_any
    from syno.config.files import parted

    if not parted(config)[0].exists():
        from syno.stages.workflow.command import config_file, workflow_folder

        config = str(config_file(config, workflow_folder()))
    return load_any(config)


def spec_of(spec: str, depth: int | None = None) -> OperatorSpec:
    """Return the spec of a preset, a file or an experiment, with another depth if given.

    For results, imports of user code are forbidden until the command ends.
    """
    from syno.config import find_space

    read_if_result(spec)
    resolved = find_space(spec)
    return resolved if depth is None else resolved.with_(depth=depth)


def read_if_result(place: str) -> None:
    """Forbid imports of user code until the command ends, if a path lies in a folder of results."""
    from syno.base.registry import only_read
    from syno.config.files import is_result

    if is_result(place):
        only_read(f"the space of results ({place})")


def operator_of(operator: str, rename: list[str] | None = None) -> PGraph:
    """Return an operator by its name, id or file, with renamed variables."""
    from syno.ir.rewriting import with_variables
    from syno.stages.store import find_stored

    return with_variables(find_stored(operator), pairs(rename, "--rename"))


def replacement_of(replacement: str) -> PGraph | ModuleBaseline:
    """Return an operator by its name, id or file, or a baseline that is a PyTorch module."""
    from syno.model.networks import replacement_named
    from syno.model.replacements import ModuleBaseline

    named = replacement_named(replacement)
    return named if isinstance(named, ModuleBaseline) else operator_of(replacement)


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse `A=1 B=2` or `A=1,B=2` into a mapping. Raises BadParameter for other text."""
    assignments = [part.partition("=") for text in texts or () for part in text.split(",")]
    for name, equals, value in assignments:
        if not (name and equals and value):
            raise typer.BadParameter(f'"{name}{equals}{value}" is not NAME=VALUE', param_hint=option)
    return {name.strip(): value.strip() for name, _, value in assignments}


def sizes(texts: list[str] | None) -> dict[str, int]:
    """Parse the option `--set NAME=VALUE` into sizes by name."""
    values = pairs(texts, "--set")
    for name, value in values.items():
        if not value.isdecimal() or len(value) > 10:  # the largest sizes are checked with others, later
            raise typer.BadParameter(
                f'{name} is "{value[:20]}"; a size is a positive whole number, up to 2147483647', param_hint="--set"
            )
    return {name: int(value) for name, value in values.items()}


def image_shape(text: str, *, is_own: bool = False) -> tuple[int, ...]:
    """Parse `3x224x224` into channels, height and width; for a user's own model also `1x4000` into channels and length."""
    parts = text.split("x")
    if (len(parts) != 3 and not is_own) or not all(part.isdecimal() and int(part) for part in parts):
        kind = "; a model of your own may take CxL, such as 1x4000" if len(parts) != 3 else ""
        raise typer.BadParameter(f'"{text}" is no CxHxW, such as 3x224x224{kind}', param_hint="--image")
    return tuple(map(int, parts))


def network_subject(**options: Any) -> NetworkSubject | LanguageModelSubject:
    """Return the network for the options of `syno tune network`; an option that is None is not set.

    A user's own model takes text if a length is given. Raises BadParameter for options of the other kind of network.
    """
    from syno.base.registry import is_path
    from syno.measure.network_subject import LanguageModelSubject, NetworkSubject
    from syno.model.backbones import SEQUENCE_BACKBONES

    chosen = {name: value for name, value in options.items() if value is not None}
    model = chosen["model"]
    takes_text = model in SEQUENCE_BACKBONES or (is_path(model) and "length" in chosen)
    own, foreign = (OF_TEXT, OF_PICTURES) if takes_text else (OF_PICTURES, OF_TEXT)
    if wrong := [f"--{name.replace('_', '-')}" for name in foreign if name in chosen]:
        kinds = ("text", "pictures") if takes_text else ("pictures", "text; models of your own take it if there is a --length")
        raise typer.BadParameter(f"{model} takes {kinds[0]}, and this is for {kinds[1]}", param_hint=wrong[0])
    fields = {**own, **chosen}
    if takes_text:
        return LanguageModelSubject(**fields)
    fields["image_shape"] = image_shape(fields.pop("image"), is_own=is_path(model))
    fields["memory_format"] = "channels_last" if fields.pop("channels_last") else "contiguous"
    return NetworkSubject(**fields)


def command_line() -> str:
    """Return the command line as text, which is stored beside results."""
    return shlex.join(["syno", *sys.argv[1:]])
