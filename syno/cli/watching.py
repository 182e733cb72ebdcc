"""The command that watches a search."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno.base.errors import SynoError
from syno.cli.app import INTERRUPTED, RESULTS, app

if TYPE_CHECKING:
    from syno.search.snapshot import Snapshot
    from syno.stages.watch import Watch

PAUSES = 4  # times the time that writing a page took, before it is written again


@app.command(rich_help_panel=RESULTS)
def watch(
    experiment: Annotated[str, typer.Argument(metavar="CONFIG", help="An experiment's file, folder of results, or name.")],
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="Seconds between two looks.")] = 5,
    once: Annotated[bool, typer.Option("--once", help="Print how the search is now, and end.")] = False,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the page of the search so far.")] = None,
) -> None:
    """Watch a search from any machine that reaches its storage, until it is finished. Nothing is changed or locked."""
    from syno.stages.watch import Watch

    watched = Watch(experiment)
    try:
        if once:
            snapshot = watched.look()
            typer.echo(watched.text(snapshot))
            if page is not None:
                watched.write_page(snapshot, page)
        elif sys.stdout.isatty():
            _on_terminal(watched, every, page)
        else:
            _in_log(watched, every, page)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _looks(watched: Watch, every: float, page: Path | None) -> Iterator[tuple[Snapshot, str]]:
    """Yield (snapshot of the search, error of the last read or "") at intervals, until the search is over.

    The first read must succeed. Later, a storage may be unreachable for a while. The page is written after the first read, at
    the end, and when trials have begun or ended, but not so often that writing takes most of the time.
    """
    snapshot, error, shown, due = watched.look(), "", "", 0.0
    while True:
        began = time.monotonic()
        if page is not None and not error and _state(snapshot) != shown and (snapshot.is_over or began >= due):
            watched.write_page(snapshot, page, every)
            shown, ended = _state(snapshot), time.monotonic()
            due = ended + PAUSES * (ended - began)
        yield snapshot, error
        if snapshot.is_over and not error:
            return
        time.sleep(every)
        try:
            snapshot, error = watched.look(), ""
        except SynoError as problem:
            error = " ".join(str(problem).split())


def _state(snapshot: Snapshot) -> str:
    """Return a text about the search that changes when a trial begins or ends."""
    outcomes = " ".join(snapshot.trials["outcome"]) if len(snapshot.trials) else ""
    return f"{outcomes} {snapshot.is_over} {snapshot.withdrawn}"


def _on_terminal(watched: Watch, every: float, page: Path | None) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        for snapshot, error in _looks(watched, every, page):
            note = f"\n\nas of {snapshot.now:%H:%M:%S}; the storage cannot be read now: {error}" if error else ""
            live.update(Text(f"{watched.text(snapshot)}{note}", no_wrap=True, overflow="ellipsis"), refresh=True)


def _in_log(watched: Watch, every: float, page: Path | None) -> None:
    """Print the full text at the beginning and at the end, and one line whenever something has changed in between."""
    last = ""
    for snapshot, error in _looks(watched, every, page):
        line = f"the storage cannot be read now: {error}" if error else watched.line(snapshot)
        if not last or (snapshot.is_over and not error):
            typer.echo(watched.text(snapshot))
        elif line != last:
            typer.echo(line)
        last = line
