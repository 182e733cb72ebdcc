"""Names become parts of paths and words of shell commands: nothing else is let in."""

import pytest

from syno.errors import SpecError
from syno.names import LONGEST_NAME, check_name


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
