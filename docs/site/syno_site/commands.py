"""The page of all commands, docs/commands.md, from the commands themselves. `UPDATE_GOLDEN=1` and its test write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from syno.cli import app

HEAD = """# Commands

All commands, their arguments and options, as `--help` prints them. `syno COMMAND --help` shows those of one command. Errors in
the input end a command with exit code 2, interruptions with 130. [workflow.md](workflow.md) describes the stages,
[options.md](options.md) what an experiment's file may hold.
"""


def page() -> str:
    """Return the page in Markdown."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="syno")
    names = list(group.list_commands(context))
    panels: dict[str, list[str]] = {}
    for name in names:
        panels.setdefault(str(group.commands[name].rich_help_panel), []).append(name)
    parts = [HEAD.rstrip()]
    for panel, shown in panels.items():
        parts += [f"## {panel}", *(part for name in shown for part in _command(group.commands[name], f"syno {name}", context))]
    parts += ["## Options of all commands", _options(group, context)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _command(command: Any, name: str, parent: Any) -> Iterator[str]:
    """Yield the parts of a command and of the commands below it."""
    context = typer.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f"### {name}"
    yield _prose(command.help or "")
    below = [(one, found) for one, found in getattr(command, "commands", {}).items() if not found.hidden]
    if not below:
        yield f"```\n{name}{_usage(command, context)}\n```"
    yield _options(command, context)
    for one, found in below:
        yield from _command(found, f"{name} {one}", context)


def _usage(command: Any, context: Any) -> str:
    """Return the line after the command's name."""
    pieces = [re.sub(r"[{}]", "", piece) for piece in command.collect_usage_pieces(context)]
    return "".join(f" {piece.replace('[[', '[').replace(']]', ']').replace('......', '...')}" for piece in pieces)


def _prose(text: str) -> str:
    """Return a help text as Markdown, whose angle brackets are text."""
    return re.sub(r"<(?=[a-z])", r"\\<", " \n".join(line.strip() for line in text.strip().splitlines()).replace(" \n", "\n"))


def _options(command: Any, context: Any) -> str:
    """Return the table of arguments and options; "" if there are none."""
    rows = [_row(parameter, context) for parameter in command.get_params(context) if parameter.name != "help"]
    rows = [row for row in rows if row]
    return "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""


def _row(parameter: Any, context: Any) -> str:
    """Return a row of the table: an argument's name or an option's, its kind of value, its meaning and default."""
    record = parameter.get_help_record(context)
    if record is None:  # it is hidden
        return ""
    names, text = record
    text, _, extra = text.rpartition("  [") if text.endswith("]") and "  [" in text else (text, "", "")
    titles = names.strip().replace(" range>", ">").replace("|", r"\|")
    return f"| `{titles}` | {_cell(text, [extra.rstrip(']')] if extra else [])} |"


def _cell(text: str, notes: list[str]) -> str:
    text = " ".join(_prose(text).split())
    noted = f"{text} ({'; '.join(notes)})" if notes else text
    return noted.replace("|", r"\|").strip()
