"""Names that others use are nouns: no pronoun names an argument, an attribute, a function or a class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from product_sources import trees

PRONOUNS = {"one", "found", "given", "those", "what"}
STORED = {  # fields that stored files and settings have under these names
    "Headline.what",  # a column of the table of headline numbers
    "Problem.what",  # in artifact.json
    "SavingsReward.what",  # an option
    "Task.given",  # in the pickled call of `syno.speed_up`
}


def pronouns(tree: ast.AST) -> Iterator[str]:
    """The pronouns among the public names of a module: of functions, their parameters, classes, and annotated fields."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") or node.name == "__init__":
                own = node.args
                every = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
                yield from (f"{node.name}({arg.arg})" for arg in every if arg is not None and arg.arg in PRONOUNS)
            if node.name in PRONOUNS:
                yield node.name
        elif isinstance(node, ast.ClassDef):
            if node.name.lower() in PRONOUNS:
                yield node.name
            fields = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
            yield from (f"{node.name}.{field.id}" for field in fields if isinstance(field, ast.Name) and field.id in PRONOUNS)
            yield from (f"{node.name}.{name}" for name in pronouns(ast.Module(node.body, [])))
        else:
            yield from pronouns(node)


def test_no_public_name_is_a_pronoun() -> None:
    named = {f"{file}: {name}" for file, tree in trees().items() for name in pronouns(tree)}
    assert {name for name in named if name.rpartition(": ")[2] not in STORED} == set()
    assert {name.rpartition(": ")[2] for name in named} == STORED, "a stored name that nobody has any more"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def draw(given, *, size): ...", ["draw(given)"]),
        ("def _draw(given): ...", []),
        ("class Walk:\n    found: int\n    def step(self, one): ...", ["Walk.found", "Walk.step(one)"]),
        ("class Walk:\n    def found(self): ...", ["Walk.found"]),
        ("def draw(walk):\n    found = walk\n    return found", []),
    ],
)
def test_pronouns_are_found_where_others_see_them(text: str, names: list[str]) -> None:
    assert list(pronouns(ast.parse(text))) == names
