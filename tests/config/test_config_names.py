"""Names become parts of paths and words of shell commands: nothing else is let in."""

from typing import Any

import pytest
from small_specs import matmul
from truth import Truth

from syno.base.errors import SpecError
from syno.base.files import LONGEST_NAME, check_name, name_from
from syno.config import Experiment, load_experiments


@pytest.mark.parametrize("given", ["conv2d", "my_4", "07720_108", "v1.2-b", "A" * LONGEST_NAME])
def test_ordinary_names_are_allowed(given: str) -> None:
    assert check_name(given, "a name") == given


@pytest.mark.parametrize(
    "given",
    ["", ".", "..", "../x", "/etc/x", "a/b", "a b", "-rf", ".hidden", "a$(touch pwned)b", "a;b", "a\0", "a\n", "aﬁ", "a²"],
)
def test_what_a_path_or_a_shell_would_read_otherwise_is_refused(given: str) -> None:
    with pytest.raises(SpecError, match="begins with a letter"):
        check_name(given, "an operator's name")


def test_a_long_name_is_refused_and_not_repeated_in_full() -> None:
    with pytest.raises(SpecError, match=r'^an operator\'s name has 300 characters \("x{20}\.\.\."\)'):
        check_name("x" * 300, "an operator's name")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a$(touch pwned)b"}, r"an experiment's name is 'a\$\(touch pwned\)b'; it has letters"),
        ({"name": "a b"}, "an experiment's name is 'a b'"),
        ({"output": "a{b}"}, "the folder of results is 'a{b}', which has '{', '}' in it"),
        ({"output": "a\nb"}, r"the folder of results is 'a\\nb', which has '\\n' in it"),
        ({"output": "-rf"}, "the folder of results is '-rf', which commands would read as an option"),
        ({"train": {"baselines": ["my operators/a b.txt"]}}, "or of its file without the ending, is 'a b'"),
    ],
)
def test_what_no_folder_of_results_should_be_called_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"name": "small", "workload": {}, "reward": {"name": "accuracy", "low": 0.0}, **changes}
    with pytest.raises(SpecError, match=message):
        Experiment(**given)


def test_experiments_of_a_group_have_such_names_too() -> None:
    for wrong in ({"name": "a;b", "experiments": {"a": {}}}, {"name": "a", "experiments": {"a;b": {}}}):
        with pytest.raises(SpecError, match="is 'a;b'; it has letters"):
            load_experiments(wrong)


def test_folders_may_have_spaces_and_signs() -> None:
    output = "my results/$HOME; 'a' & (b)"
    assert str(Experiment(name="small", workload={}, reward={"name": "accuracy", "low": 0.0}, output=output).folder) == output


@pytest.mark.parametrize(
    ("given", "name"),
    [("resnet18", "resnet18"), ("my space", "my_space"), ("../x", "_.._x"), ("-a", "_-a"), ("", "_"), ("\N{BOMB}", "_")],
)
def test_a_name_is_made_of_any_text(given: str, name: str) -> None:
    assert name_from(given) == check_name(name, "it")
    assert len(check_name(name_from("." + given * 300), "it")) <= 100


def test_operators_of_a_space_with_any_name_have_one() -> None:
    """A spec is named as its file is, or as people like; its operators' names are names of files."""
    assert Truth.of(matmul(name="my space, 3rd/4th")).operators == Truth.of(matmul()).operators != frozenset()
