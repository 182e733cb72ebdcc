"""Figures and tables of single layers: their latencies, and the operators that mixtures have in each layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from syno.base.files import ORIGINAL
from syno.measure.layers_record import numbered
from syno.report.figures import BLUE, GREEN, INK, ORANGE, finish, nothing
from syno.report.page_tables import NOTHING, OF_LIMIT, Cell, Table, latency, of_limit, share, word
from syno.run.run import LayerOption, MixtureLayers, Run
from syno.run.story import not_taken
from syno.run.values import Latency, last_of_each

TITLE = "Speedup of single layers"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00", "#777777")  # of operators; the palette of Okabe and Ito
SPACE = 0.8  # the share of a group that its bars fill
INCHES = 0.11  # of a bar
LEAST_WIDTH = 7.0  # inches
SHORT = 8  # letters of a name that is written across
FAILED = ("x", "failed")
MARKS = {"misfit": ("_", "does not fit"), "failed": FAILED}


def layer_figure(layers: Sequence[Latency], notes: Sequence[str] = ()) -> Figure:
    """Draw the speedup of each layer over the original layer: a panel for each device and compiler, a colour for each operator.

    A layer without a bar has a mark: the operator does not fit it, or it could not be compiled or measured.
    """
    own = [row for row in layers if row.role != ORIGINAL]
    rows = last_of_each(own, lambda row: (row.operator, row.target, row.layer))
    if not rows:
        return nothing(TITLE, "No operator's layers were measured.", notes)
    names, operators = list(dict.fromkeys(row.layer for row in rows)), list(dict.fromkeys(row.operator for row in rows))
    places = list(dict.fromkeys(row.target for row in rows))
    width = max(LEAST_WIDTH, 1 + len(names) * (len(operators) + 2) * INCHES)
    figure = Figure(figsize=(width, 1.4 + 2.5 * len(places)), layout="constrained")
    panels = list(figure.subplots(len(places), 1, sharex=True, squeeze=False).flat)
    for axes, (device, compiler) in zip(panels, places, strict=True):
        _bars(axes, [row for row in rows if row.target == (device, compiler)], names, operators)
        axes.set_title(f"{compiler} on {device}", fontsize=9, parse_math=False)
        axes.set_ylabel("times as fast")
    marked = [status for status in MARKS if status in {_mark(row.status) for row in rows}]
    for number, operator in enumerate(operators):
        panels[0].bar([0], [0], color=COLOURS[number % len(COLOURS)], label=operator)
    for status in marked:
        panels[0].add_line(Line2D([], [], linestyle="", marker=MARKS[status][0], color=INK, label=MARKS[status][1]))
    panels[-1].set_xticks(range(len(names)), [numbered(name) for name in names], fontsize=7.5, rotation=30, ha="right")
    finish(figure, panels, TITLE, notes, columns=min(4, len(operators) + len(marked)))
    for axes in panels:
        axes.grid(False, axis="x")
    return figure


def _bars(axes: Axes, rows: Sequence[Latency], names: Sequence[str], operators: Sequence[str]) -> None:
    thickness = SPACE / len(operators)
    for row in rows:
        number = operators.index(row.operator)
        middle = names.index(row.layer) + (number - (len(operators) - 1) / 2) * thickness
        if row.speedup is None:
            shape, _ = MARKS.get(_mark(row.status), FAILED)
            axes.plot([middle], [0.06], shape, color=INK, markersize=4, transform=axes.get_xaxis_transform(), zorder=4)
        else:
            axes.bar(middle, row.speedup, width=0.9 * thickness, color=COLOURS[number % len(COLOURS)], zorder=2)
    axes.axhline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.spines.right.set_visible(False)


def draw_latencies(axes: Axes, rows: Sequence[Latency]) -> None:
    """Draw the latency of each layer with its 95 % interval into a panel: a group of bars for each layer, the original first.

    Args:
        axes: the panel.
        rows: latencies of layers with one compiler and device, at least one. Failed measurements have a mark.
    """
    timed = sorted(rows, key=lambda row: row.role != ORIGINAL)
    names, operators = list(dict.fromkeys(row.layer for row in timed)), list(dict.fromkeys(row.operator for row in timed))
    thickness = SPACE / len(operators)
    looks = [INK if name == ORIGINAL else COLOURS[number % len(COLOURS)] for number, name in enumerate(operators)]
    for number, (operator, colour) in enumerate(zip(operators, looks, strict=True)):
        own = last_of_each([row for row in timed if row.operator == operator], lambda row: row.layer)
        shift = (number - (len(operators) - 1) / 2) * thickness
        known = [row for row in own if row.is_ok]
        below, above = ([_length(end) for end in ends] for ends in (
            [row.ms.value - row.ms.low for row in known], [row.ms.high - row.ms.value for row in known],
        ))  # fmt: skip
        axes.bar(
            [names.index(row.layer) + shift for row in known], [row.ms.value for row in known], 0.9 * thickness, color=colour,
            label=operator, zorder=2, yerr=[below, above], error_kw={"elinewidth": 0.9, "capsize": 2},
        )  # fmt: skip
        for row in own:
            if not row.is_ok:
                shape, _ = MARKS[_mark(row.status)]
                place = names.index(row.layer) + shift
                axes.plot([place], [0.03], shape, color=INK, markersize=4, transform=axes.get_xaxis_transform(), zorder=4)
    is_long = max(map(len, names)) > SHORT
    axes.set_xticks(range(len(names)), [numbered(name) for name in names], fontsize=7.5)
    for label in axes.get_xticklabels():
        label.set(rotation=30 if is_long else 0, horizontalalignment="right" if is_long else "center")
    axes.set_xlabel("layer")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel("latency/ms")
    axes.spines.right.set_visible(False)


def _length(end: float) -> float:
    """Return the length of one side of an error bar; 0 if the interval's end is unknown."""
    return 0.0 if isnan(end) else max(0.0, end)


def _mark(status: str) -> str:
    """Return the mark for a layer without a speedup: one if the operator does not fit, another for failures."""
    return status if status in ("ok", "misfit") else "failed"


def layer_table(run: Run) -> Table:
    """Return a row for each layer, device and compiler: the original's latency, and each operator's with its speedup.

    After each latency is its share of the device's limit, if that is known.
    """
    operators = list(dict.fromkeys(row.operator for row in run.layers))
    found: dict[tuple[str, str, str], dict[str, Latency]] = {}
    for row in run.layers:
        found.setdefault((row.layer, row.device, row.compiler), {})[row.operator] = row
    limited = {row.operator for row in run.layers if row.of_limit is not None}
    lines = [
        (
            *(word(numbered(layer)), word(f"{compiler} on {device}")),
            *(
                cell
                for name in operators
                for cell in (_cell(of.get(name)), *((of_limit(of.get(name)),) if name in limited else ()))
            ),
        )
        for (layer, device, compiler), of in found.items()
    ]
    headings = (heading for name in operators for heading in (name, *((f"{OF_LIMIT}, {name}",) if name in limited else ())))
    return Table(("layer", "compiler", *headings), tuple(lines))


def _cell(row: Latency | None) -> Cell:
    """Return a cell with a latency and its speedup; without a latency, the status and the reason (a tooltip)."""
    if row is not None and row.status == "misfit":
        return Cell(NOTHING, note=row.reason)
    return latency(row)


def network_table(run: Run) -> Table:
    """Return a row for each kind of layer of the network: its size and share, and whether operators replace it, or why not."""
    if not run.network:
        return Table((), ())
    rows = tuple(
        tuple(
            Cell(text, float(text.rstrip("%")) / 100) if text.endswith("%") else word(text) for text in map(str, row.values())
        )
        for row in run.network
    )
    return Table(tuple(run.network[0]), rows)


def mixture_table(run: Run) -> Table:
    """Return a row for each replaceable layer: its share of the time, and for each mixture its operator with the reasons.

    The reasons are the operator's saving, its expected loss of score, and the error of its fit. The tooltip lists the other
    alternatives. Without mixtures, the table is empty.
    """
    choice = run.choice
    if choice is None or not choice.mixtures:
        return Table((), ())
    of = [f", {one.name}" if len(choice.mixtures) > 1 else "" for one in choice.mixtures]
    headings = (
        heading
        for one, which in zip(choice.mixtures, of, strict=True)
        for heading in (one.name, f"saves{which}", f"loses{which}", f"fit error{which}")
    )
    is_timed = any(time is not None for time in choice.layers.values())
    rows = tuple(
        (
            word(layer),
            *((share(time),) if is_timed else ()),
            *(cell for one in choice.mixtures for cell in _in_layer(run, one, layer, layer in choice.by_hand)),
        )
        for layer, time in choice.layers.items()
    )
    return Table(("layer", *(("time",) if is_timed else ()), *headings), rows)


def _in_layer(run: Run, mixture: MixtureLayers, layer: str, is_by_hand: bool) -> tuple[Cell, ...]:
    """Return the cells about a layer in a mixture: its operator, with saving, expected loss of score, and error of the fit."""
    name, hand = mixture.operators.get(layer, ""), " (by hand)" if is_by_hand else ""
    found = next((one for one in mixture.options.get(layer, ()) if one.operator == name), None)
    others = [not_taken(one, run.metric) for one in mixture.options.get(layer, ()) if one.operator != name]
    note = f"not taken: {', '.join(others)}" if others else "" if name or is_by_hand else "no operator saves time here"
    if found is None:
        stays = "stays" if mixture.base == ORIGINAL else f"as in {mixture.base}"
        return (word(f"{name or stays}{hand}", note=note), Cell(NOTHING), Cell(NOTHING), Cell(NOTHING))
    card = name if name in run.operators else ""
    return (
        word(f"{name}{hand}", card=card, note=note),
        share(found.saving),
        _loss(run, found),
        Cell(NOTHING) if found.fit is None else Cell(f"{found.fit:.2g}", found.fit),
    )


def _loss(run: Run, option: LayerOption) -> Cell:
    """Return a cell with an operator's expected loss of score in a layer."""
    metric = run.metric
    return Cell(NOTHING) if option.loss is None else Cell(metric.with_unit(f"{option.loss / metric.step:.2g}"), option.loss)
