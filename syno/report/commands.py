"""The commands and the lines of Python with which a reader of the page takes an operator or a trained network home."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from syno.base.errors import SynoError
from syno.base.files import ORIGINAL
from syno.ir.graph import PGraph
from syno.lower.pytorch.source import class_name, to_source
from syno.model.networks import Network
from syno.run.run import Run
from syno.run.story import Line

SIZE = 64  # of a layer, in the example


@dataclass(frozen=True)
class Usage:
    """A command that takes an operator or network home, and code that uses it.

    Attributes:
        heading: the heading on the page.
        command: the shell command.
        code: Python code for the folder in which the command was called.
        note: a note for the reader.
    """

    heading: str
    command: str
    code: str
    note: str = ""


def usages(run: Run, name: str) -> list[Usage]:
    """Return the commands that take an operator home, and if its weights were kept, those for the trained network with it."""
    found = []
    if name in run.kept.networks:
        found.append(_network_usage(run, name))
    if name in run.operators and (usage := _operator_usage(run, name)) is not None:
        found.append(usage)
    return found


def best_to_take(run: Run, verdict: Sequence[Line]) -> str | None:
    """Return the network to recommend: the first of the verdict with stored weights, else the best-scored one with an operator.

    If no weights are stored, it is the first operator of the verdict; None if there is none, or commands cannot find it.
    """
    kept = [name for name in run.kept.networks if name != ORIGINAL]
    # Of a network in lower precision than it was trained in, the trained one is kept.
    named = [name for line in verdict if (name := Network.parse(line.operator).name) in kept]
    if named:
        return named[0]
    scored = [row.operator for row in run.scores if row.operator in kept and row.role == "found"]
    alone = [line.operator for line in verdict if line.operator in run.operators and run.kept.experiment]
    return next(iter([*scored, *alone]), None)


def _network_usage(run: Run, name: str) -> Usage:
    folder = run.operators[name].name if name in run.operators else name
    return Usage(
        "The trained network",
        f"syno get {shlex.quote(run.kept.experiment)} {shlex.quote(name)}",
        f'import syno\n\nmodel = syno.load("{folder}").eval()\noutput = model(x)  # a batch as the data set prepares it',
        f"The command writes the folder {folder}, which needs nothing of Syno: inside it, import network and call "
        "network.load(). Its README.md says what the inputs and outputs are.",
    )


def _operator_usage(run: Run, name: str) -> Usage | None:
    """Return the command and code that use an operator as a layer; None if no code can be generated for it."""
    operator = run.operators[name]
    try:
        arguments = needed_arguments(operator)
    except SynoError:
        return None
    given = shlex.quote(run.kept.operators.get(name, name))
    module, option = operator.name, ""
    if not module.isidentifier():  # a file that Python can import
        module = "operator_" + "".join(letter if letter.isalnum() else "_" for letter in operator.name)
        option = f" --output {module}.py"
    kind = class_name(operator)
    sizes = ", ".join(f"{argument}={SIZE}" for argument in arguments)
    return Usage(
        "The operator as a layer",
        f"syno get {given}{option}",
        f"from {module} import {kind}\n\nlayer = {kind}({sizes})\noutput = layer(x)",
        f"The command writes {module}.py, which needs PyTorch only. Give the sizes of your layer; its weights are new.",
    )


def needed_arguments(operator: PGraph) -> list[str]:
    """Return the arguments of the generated module's constructor that have no default. LoweringError if there is no code."""
    tree = ast.parse(to_source(operator))
    kind = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name(operator))
    made = next(node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [argument.arg for argument in made.args.args[1:]]
    return names[: len(names) - len(made.args.defaults)]
