"""Drawings: what they show, that nothing in them collides, and that they are the same everywhere."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from functools import cache

import golden_files
import pydot
import pytest

from syno.ir.builder import Builder
from syno.ir.drawing import to_dot, to_svg
from syno.ir.drawing.diagram import Family, diagram
from syno.ir.drawing.layout import SMALL, TEXT, Box, Layout, layout, text_width
from syno.ir.graph import PGraph
from syno.ir.library import OPERATORS

SVG = "{http://www.w3.org/2000/svg}"


def identity() -> PGraph:
    build = Builder("N, C", name="identity")
    return build.finish(build.output("N, C"))


def total() -> PGraph:
    build = Builder("C, H", name="total")
    return build.finish(build.reduce("C, H"))


def broadcast() -> PGraph:
    build = Builder("C, H", name="broadcast")
    for axis in build.output("C, H"):
        build.expand(axis)
    return build.finish([])


def nothing() -> PGraph:
    return Builder("", name="nothing").finish([])


def shifted() -> PGraph:
    build = Builder("C_quite_a_long_name, H; k=3", name="shifted")
    channel, row = build.output("k*C_quite_a_long_name, H")
    quotient, remainder = build.merge(channel, "k")
    return build.finish([build.split(remainder, quotient), build.shift(build.shift(row, 1), -2)])


OWN = [identity, total, broadcast, nothing, shifted]
NAMES = [*OPERATORS, *(function.__name__ for function in OWN)]
every_operator = pytest.mark.parametrize("name", NAMES)
SOME = ["conv2d", "operator_1", "pixel_shuffle", "shift_rows_conv1x1", *(function.__name__ for function in OWN)]
some_operators = pytest.mark.parametrize("name", SOME)  # for what takes longer


@cache
def graph_of(name: str) -> PGraph:
    own = {function.__name__: function for function in OWN}
    return own[name]() if name in own else OPERATORS[name]()


@cache
def layout_of(name: str) -> Layout:
    return layout(graph_of(name))


def overlap(one: Box, other: Box) -> bool:
    return one.left < other.right and other.left < one.right and one.top < other.bottom and other.top < one.bottom


# ---- what is shown ------------------------------------------------------------------------------------------------------


def expected_nodes(graph: PGraph) -> int:
    axes = len(graph.output) + len(graph.input) + sum(map(len, graph.weights))
    return axes + len(graph.operations) + len(graph.reduces)


def parsed(text: str) -> pydot.Dot:
    graphs = pydot.graph_from_dot_data(text)
    assert graphs is not None and len(graphs) == 1
    return graphs[0]


def dot_nodes(graph: pydot.Graph) -> set[str]:
    names = {node.get_name() for node in graph.get_nodes()} - {"node", "edge"}
    return names.union(*map(dot_nodes, graph.get_subgraphs()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")
@some_operators
def test_dot_has_every_node_and_each_dim_as_one_edge(name: str) -> None:
    graph = graph_of(name)
    picture = parsed(to_dot(graph))
    assert len(dot_nodes(picture)) == expected_nodes(graph)
    sizes = [edge.get_label().strip('"').split(" ")[0] for edge in picture.get_edges()]
    assert sizes == [dim.size.fraction_text for dim in graph.labels]
    ends = {end.strip('"') for edge in picture.get_edges() for end in (edge.get_source(), edge.get_destination())}
    assert ends == {node.strip('"') for node in dot_nodes(picture)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pydot")
def test_dot_groups_axes_and_names_roles() -> None:
    text = to_dot(graph_of("pixel_shuffle"))
    clusters = {graph.get_label() for graph in parsed(text).get_subgraphs() if "cluster" in graph.get_name()}
    assert clusters == {'"input x"', '"output y"'}
    assert "(minor -> remainder)" in text
    assert 'label="Merge s"' in text
    conv2d = to_dot(graph_of("conv2d"))
    assert 'subgraph "cluster_w1"' in conv2d
    assert "k (window -> data)" in conv2d
    assert 'label="Share w1"' in conv2d


def test_text_of_parameters() -> None:
    texts = {node.text for node in diagram(graph_of("shifted")).operations}
    assert texts == {"Merge k", "Split", "Shift +1", "Shift -2"}
    assert "Stride s" in {node.text for node in diagram(graph_of("dilated_conv2d")).operations}


@every_operator
def test_node_names_are_unique(name: str) -> None:
    picture = diagram(graph_of(name))
    names = [node.name for node in picture.nodes]
    assert len(set(names)) == len(names) == expected_nodes(graph_of(name))


@some_operators
def test_svg_is_well_formed_and_shows_every_size(name: str) -> None:
    graph = graph_of(name)
    root = ElementTree.fromstring(to_svg(graph))
    assert root.tag == f"{SVG}svg"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text == f"{graph.name} {graph.id[:8]}"
    assert description is not None and description.text
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    words = {word for text in texts for word in text.split()}
    assert {dim.size.fraction_text for dim in graph.labels} <= words
    assert min(float(text.get("font-size", TEXT)) for text in root.iter() if "font-size" in text.attrib) >= 11
    background = root.find(f"{SVG}rect")
    assert background is not None and background.get("fill") == "#FFFFFF"
    assert (background.get("width"), background.get("height")) == (root.get("width"), root.get("height"))


def test_a_size_is_written_on_every_edge_whose_ends_do_not_say_it() -> None:
    for edge in layout_of("operator_1").edges:
        assert edge.label or edge.edge.upper.family.is_end or edge.edge.lower.family.is_end


# ---- where it is --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_operator
def test_nothing_overlaps(name: str) -> None:
    placed = layout_of(name)
    labels = [edge.label for edge in placed.edges if edge.label]
    boxes = [*(node.box for node in placed.nodes), *labels]
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    groups = [box for _, box in placed.groups]
    assert not [pair for pair in itertools.combinations(groups, 2) if overlap(*pair)]
    members = {node for group, _ in placed.groups for node in group.nodes}
    others = [*(node.box for node in placed.nodes if node.node not in members), *labels]
    assert not [pair for pair in itertools.product(groups, others) if overlap(*pair)]


@every_operator
def test_everything_is_inside(name: str) -> None:
    placed = layout_of(name)
    boxes = [*(node.box for node in placed.nodes), *(box for _, box in placed.groups)]
    boxes += [edge.label for edge in placed.edges if edge.label]
    boxes += [Box(x, top, 0, bottom - top) for edge in placed.edges for x, top, bottom in edge.pieces]
    for box in boxes:
        assert box.left >= 10 and box.top >= 10 and box.right <= placed.width - 10 and box.bottom <= placed.height - 10
    for group, frame in placed.groups:
        for node in placed.nodes:
            if node.node in group.nodes:
                assert frame.left < node.box.left and node.box.right < frame.right
                assert frame.top < node.box.top and node.box.bottom < frame.bottom


@every_operator
def test_text_fits_into_its_node(name: str) -> None:
    for node in layout_of(name).nodes:
        assert text_width(node.node.text, TEXT, bold=True) < node.box.width
        for roles in (node.roles_above, node.roles_below):
            spans = [(middle - text_width(role, SMALL) / 2, middle + text_width(role, SMALL) / 2) for role, middle in roles]
            assert all(node.box.left < left and right < node.box.right for left, right in spans)
            assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))


@every_operator
def test_edges_run_down_and_through_no_node_or_label(name: str) -> None:
    """Curves lie between the levels, where nothing else is; the straight pieces have a column of their own."""
    placed = layout_of(name)
    labels = [(edge.edge, edge.label) for edge in placed.edges if edge.label]
    for edge in placed.edges:
        assert all(top <= bottom for _, top, bottom in edge.pieces)
        gaps = [(above[2], below[1]) for above, below in itertools.pairwise(edge.pieces)]
        assert all(bottom - top >= 20 for top, bottom in gaps)
        ends = (edge.edge.upper, edge.edge.lower)
        obstacles = [node.box for node in placed.nodes if node.node not in ends]
        obstacles += [box for other, box in labels if other is not edge.edge]
        for box in obstacles:
            assert not [gap for gap in gaps if gap[0] < box.bottom and box.top < gap[1]]
            for x, top, bottom in edge.pieces:
                assert not (box.left <= x <= box.right and top < box.bottom and box.top < bottom)


@every_operator
def test_inputs_are_at_the_top_and_outputs_at_the_bottom(name: str) -> None:
    placed = layout_of(name)
    tops = {node.box.top for node in placed.nodes if node.node.family in (Family.INPUT, Family.WEIGHT)}
    bottoms = {node.box.top for node in placed.nodes if node.node.family in (Family.OUTPUT, Family.REDUCE)}
    assert len(tops) <= 1 and len(bottoms) <= 1
    for node in placed.nodes:
        assert all(node.box.top >= top for top in tops) and all(node.box.top <= bottom for bottom in bottoms)


@every_operator
def test_axes_of_a_tensor_keep_their_order(name: str) -> None:
    placed = layout_of(name)
    left = {node.node.name: node.box.left for node in placed.nodes}
    for group, _ in placed.groups:
        places = [left[node.name] for node in group.nodes]
        assert places == sorted(places)


def test_an_axis_that_passes_is_straight() -> None:
    straight = [edge for edge in layout_of("conv2d").edges if len({x for x, _, _ in edge.pieces}) == 1]
    assert "i0" in {edge.edge.label for edge in straight}
    assert len(straight) > len(layout_of("conv2d").edges) // 2


# ---- the same everywhere ------------------------------------------------------------------------------------------------


def test_golden_dot() -> None:
    golden_files.check("conv2d.dot", to_dot(graph_of("conv2d")))


def test_golden_svg() -> None:
    golden_files.check("conv2d.svg", to_svg(graph_of("conv2d")))


PRINT = """
from syno.algebra import VariableTable
VariableTable.parse("{first}").sizes("{first}")  # sizes get other numbers inside, objects other addresses
from syno.ir.drawing import to_dot, to_svg
from syno.ir.library import OPERATORS
for name in ("conv2d", "operator_1", "pixel_shuffle"):
    print(to_dot(OPERATORS[name]()), to_svg(OPERATORS[name]()))
"""


def test_two_processes_draw_the_same() -> None:
    texts = []
    for seed, first in (("1", "N, C_in, H"), ("2", "s, k, H, C_out, C_in")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PRINT.format(first=first)]
        texts.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert texts[0] == texts[1]
    assert texts[0].count("</svg>") == 3


def test_a_notebook_shows_the_picture_of_an_operator() -> None:
    graph = OPERATORS["operator_1"]()
    assert graph._repr_svg_() == to_svg(graph)
