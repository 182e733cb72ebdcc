"""A pGraph in the dialect of the published `graph.dot`, with node names and an order of lines that mean nothing."""

from __future__ import annotations

import random

from syno.ir.dim import Dim
from syno.ir.graph import PGraph
from syno.paper.artifact.dot_file import SIDES


def published_dot(graph: PGraph, seed: int) -> str:
    """Text that `read_dot` must read as `graph`. It says nothing of how far a Shift goes: that must be +1."""
    chance = random.Random(seed)
    addresses = chance.sample(range(0x5600_0000_0000, 0x5700_0000_0000), 500)
    node: dict[Dim, str] = {dim: f"out_{index}" for index, dim in enumerate(graph.output)}
    labels = [f'out_{index} [label="{dim.size}({index})", shape=none];' for index, dim in enumerate(graph.output)]
    side_above: dict[Dim, str] = {}
    for dim in graph.reduces:
        node[dim] = f"reduce_{addresses.pop():#x}"
        labels.append(f'{node[dim]} [label="Sum", shape=box];')
    source: dict[Dim, tuple[str, str]] = {}  # who reads a dim, and as which of the dims below it
    for operation in graph.operations:
        name = f"op_{addresses.pop():#x}"
        labels.append(f'{name} [label="{operation.primitive}"];')
        for dim, side in zip(operation.bottoms, SIDES[len(operation.bottoms)], strict=True):
            source[dim] = (name, side)
        for dim, side in zip(operation.tops, SIDES[len(operation.tops)], strict=True):
            node[dim], side_above[dim] = name, side
    clusters = []
    for tensor, dims in enumerate((graph.input, *graph.weights)):
        axes = [f'in_{tensor}_{axis} [label="{dim.size}({axis})", shape=none];' for axis, dim in enumerate(dims)]
        chance.shuffle(axes)
        clusters.append(f'subgraph cluster_in_{tensor} {{ label = "Input {tensor}"; {" ".join(axes)} }}')
        source |= {dim: (f"in_{tensor}_{axis}", "") for axis, dim in enumerate(dims)}
    edges = []
    for dim, (name, side) in source.items():
        above = side_above.get(dim, "")
        arrow = f" ({side}->{above})" if side or above else ""
        edges.append(f'{name} -> {node[dim]} [label="{dim.size}{arrow}"];')
    same_rank = f"{{ rank = same; {' '.join(f'{name};' for name in dict.fromkeys(node.values()) if name.startswith('out'))} }}"
    lines = [*labels, *clusters, *edges, same_rank]
    chance.shuffle(lines)
    return "\n".join(["digraph kernel {", "newrank = true;", *lines, "}"]) + "\n"
