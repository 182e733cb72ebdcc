"""Identity of an experiment's networks: names, keys and texts are parsed in this module only, without loading torch.

>>> Network.parse("pruned_0.5_int8").precision.words
'8-bit integers'
>>> replacement_named("pruned_0.5")
NarrowerNetwork(kind='pruned', share=0.5)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Self, cast, get_args

from syno.base.errors import ParseError, UnknownNameError
from syno.base.files import ORIGINAL, check_name
from syno.base.registry import is_path
from syno.ir.text import parse
from syno.model.replacements import (
    MODULE_BASELINES,
    AnyOperator,
    Kind,
    KnownKind,
    KnownLayer,
    Mixture,
    ModuleBaseline,
    NarrowerLayer,
    NarrowerNetwork,
    Replacement,
    no_known_layer,
)

INT8 = "int8"  # key of the original in 8-bit integers
NUMBER = r"[0-9]*\.?[0-9]+"  # a share in a name


@dataclass(frozen=True)
class NumberFormat:
    """A number format of lower precision. A trained network converted to it is tested and timed as a separate network.

    Attributes:
        name: the format's name, such as "int8"; also the key of the converted original.
        words: the format in words, such as "8-bit integers".
        note: a note beside the scores of converted networks.
        compilers: names of the compilers that compute in this format, which end with its name; the first one times rivals.
    """

    name: str
    words: str
    note: str
    compilers: tuple[str, ...]


NUMBER_FORMATS = {
    precision.name: precision
    for precision in (
        NumberFormat(
            INT8,
            "8-bit integers",
            "quantized to 8-bit integers after training",
            ("inductor-int8", "openvino-int8", "onnxruntime-int8"),
        ),
        NumberFormat("bfloat16", "bfloat16", "computed in bfloat16 after training", ("inductor-bfloat16",)),
    )
}


def has_lower_precision(compiler: str) -> bool:
    """Return whether a compiler with this name computes in lower precision than networks are trained in."""
    return any(compiler.endswith(f"-{name}") for name in NUMBER_FORMATS)


class Role(StrEnum):
    """The role of a network in an experiment, such as original, operator or rival."""

    ORIGINAL = ORIGINAL
    BASELINE = "baseline"
    RIVAL = "rival"
    FOUND = "found"  # with a synthesized operator, also in a mixture


@dataclass(frozen=True)
class Network:
    """A network of an experiment: the original or a network with a replacement, as trained or converted to lower precision.

    >>> network = Network.parse("pruned_0.5_int8")
    >>> network.name, network.key, network.as_trained.key
    ('pruned_0.5', 'pruned_0.5_int8', 'pruned_0.5')
    >>> Network.parse("int8").name, Network("original").in_precision(NUMBER_FORMATS["bfloat16"]).key
    ('original', 'bfloat16')

    Attributes:
        name: name of the trained network in paths: "original", the name of a baseline, a rival or a mixture, or the key of an
            operator in the store.
        precision: the number format to which the trained network is converted; None: not converted.
        role: the network's role in the experiment; None if it has none, or only its key is known.
        replacement: the replacement of its layers; None for the original, and if only its key is known.
    """

    name: str
    precision: NumberFormat | None = None
    role: Role | None = None
    replacement: AnyOperator | None = None

    @classmethod
    def parse(cls, key: str | Self) -> Self:
        """Return the network with this key, which has its name, precision and, for the original, its role.

        A `Network` stays as is.
        """
        if not isinstance(key, str):
            return key
        for precision in NUMBER_FORMATS.values():
            if key == precision.name:
                return cls(ORIGINAL, precision, Role.ORIGINAL)
            if key.endswith(f"_{precision.name}"):
                return cls(key.removesuffix(f"_{precision.name}"), precision)
        return cls(key, role=Role.ORIGINAL if key == ORIGINAL else None)

    @property
    def key(self) -> str:
        """The network's name in paths and in tables, including its precision: "pruned_0.5_int8"."""
        if self.precision is None:
            return self.name
        return self.precision.name if self.is_original else f"{self.name}_{self.precision.name}"

    @property
    def is_original(self) -> bool:
        """Whether it is the original network, in any precision."""
        return self.name == ORIGINAL

    @property
    def columns(self) -> dict[str, str | None]:
        """The network's values in the columns `key` and `role` of tables."""
        return {"key": self.key, "role": None if self.role is None else self.role.value}

    @property
    def begins_trained(self) -> bool:
        """Whether it is a pruned network: its training begins with the trained original's weights whatever the settings say."""
        return re.fullmatch(rf"pruned_{NUMBER}", self.name) is not None

    @property
    def as_trained(self) -> Self:
        """The network as it was trained, before conversion to lower precision."""
        return replace(self, precision=None)

    def in_precision(self, precision: NumberFormat) -> Self:
        """Return the trained network converted to a number format."""
        return replace(self, precision=precision)


def is_converted(key: str) -> bool:
    """Return whether a key is that of a network converted to lower precision, such as "pruned_0.5_int8"."""
    return Network.parse(key).precision is not None


def replacement_named(name: str) -> Replacement | None:
    """Return the module baseline, known layer or narrower network with this name; None for any other name.

    A user's own module baseline is named by its path `package.module:name`, which is not imported here.

    >>> replacement_named("grouped_4"), replacement_named("narrower_0.5"), replacement_named("conv2d")
    (KnownLayer(kind='grouped', divisor=4), NarrowerLayer(share=0.5), None)

    Raises UnknownNameError for a number that is not allowed, as in "grouped_1" or "pruned_1.5".
    """
    if name in MODULE_BASELINES or is_path(name):
        return module_baseline(name)
    if match := re.fullmatch(rf"({'|'.join(get_args(Kind))})_({NUMBER})", name):
        return NarrowerNetwork(cast(Kind, match[1]), float(match[2]))
    if match := re.fullmatch(rf"narrower_({NUMBER})", name):
        return NarrowerLayer(float(match[1]))
    if match := re.fullmatch(rf"({'|'.join(get_args(KnownKind))})(?:_([0-9]+))?", name):
        try:
            return KnownLayer(cast(KnownKind, match[1]), int(match[2] or 1))
        except UnknownNameError:
            raise UnknownNameError(no_known_layer(name)) from None
    return None


def module_baseline(name: str) -> ModuleBaseline:
    """Return a module baseline by its name in `MODULE_BASELINES`, or the user's own by its path.

    UnknownNameError if unknown.
    """
    return ModuleBaseline(name_of_operator(name), name) if is_path(name) else MODULE_BASELINES[name]


def name_of_operator(name: str) -> str:
    """Return the name in paths of an operator that settings give as a known name, a text file, or an import path.

    >>> [name_of_operator(name) for name in ("narrower_0.5", "operators/mine.txt", "my_package.layers:block")]
    ['narrower_0.5', 'mine', 'my_package.layers.block']
    """
    if re.fullmatch(rf"narrower_{NUMBER}", name):  # the share is no ending of a file
        return name
    return name.replace(":", ".") if is_path(name) else Path(name).stem


def read_replacement(text: str) -> AnyOperator:
    """Return the operator, baseline or mixture that a text, written by `str(replacement)`, describes.

    Raises ParseError if the text has no such form, UnknownNameError if there is no such baseline.
    """
    if text.startswith(Mixture.beginning):
        return _read_mixture(text)
    if text.startswith(ModuleBaseline.beginning):
        try:
            return module_baseline(text.removeprefix(ModuleBaseline.beginning).strip())
        except UnknownNameError as error:
            raise UnknownNameError(f"{error} The record may be of another version of Syno") from None
    for kinds, what, example in (
        ((NarrowerNetwork,), "narrower network", NarrowerNetwork("pruned", 0.5)),
        ((KnownLayer, NarrowerLayer), "known layer", KnownLayer("grouped", 4)),
    ):
        beginning = kinds[0].beginning
        if text.startswith(beginning):
            found = replacement_named(text.removeprefix(beginning).strip().replace(" ", "_"))
            if not isinstance(found, kinds):
                raise ParseError(f'"{text.strip()}" is no {what}; it is as in "{str(example).strip()}"')
            return found
    return parse(text)


def _read_mixture(text: str) -> Mixture:
    """Return the mixture that a text describes. Raises ParseError if it is no mixture, SpecError for an invalid name."""
    head, *rest = text.strip().splitlines()
    name = check_name(head.removeprefix(Mixture.beginning).strip(), "a mixture's name")
    base, texts = None, list[tuple[str, list[str]]]()
    for line in rest:
        if line.startswith(Mixture.on) and not texts:
            around = read_replacement(line.removeprefix(Mixture.on))
            if not isinstance(around, NarrowerNetwork):
                raise ParseError(f'"{line}" names no narrower network; it is as in "on network pruned 0.5"')
            base = around
        elif line.startswith(Mixture.in_layers):
            texts.append((line.removeprefix(Mixture.in_layers), []))
        elif texts:
            texts[-1][1].append(line)
        else:
            raise ParseError(f'"{line}" in a mixture stands before the first line "layers ..."')
    parts = tuple((read_replacement("\n".join(lines)), tuple(names.split(", "))) for names, lines in texts)
    if any(isinstance(part, Replacement) and part.is_whole for part, _ in parts):
        raise ParseError("a mixture holds operators, and no whole networks")
    return Mixture(name, parts, base)
