"""One headline number, beside the paper's."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

UNKNOWN = "not in the data"
Verdict: TypeAlias = Literal["same", "differs", "holds", "does not hold", "unknown", "no number"]


class Headline(NamedTuple):
    """A number of the paper.

    Attributes:
        figure: The number of the figure or the section in the paper.
        what: A description of the number.
        computed: Its value from the measurements; None if they are not sufficient.
        paper: Its value, or its bound, as printed; None where the paper prints no number.
        printed: What the paper prints, as text; "" where it prints no number.
        verdict: "same" if both are equal to the digits that the paper prints (two at most), or "differs"; "holds" or "does not
            hold" for a bound; "unknown" if the number cannot be computed; "no number" if the
            paper prints none.
        origin: Where the computed value comes from; "" if it is unknown.
        note: If they differ, an explanation from the data; why a value is unknown; what else a reader must know.
    """

    figure: str
    what: str
    computed: float | None
    paper: float | None
    printed: str
    verdict: Verdict
    origin: str
    note: str

    @property
    def same(self) -> bool:
        """Whether the number agrees with the paper's."""
        return self.verdict in ("same", "holds")


def compared(
    figure: str,
    what: str,
    computed: float,
    paper: float | None,
    why: str = "",
    always: str = "",
    *,
    origin: str,
    places: int = 2,
    printed: str = "",
) -> Headline:
    """Return a number beside the paper's, compared to `places` decimals, or alone if the paper has none.

    Args:
        figure: As in `Headline`, and so are `what`, `computed`, `paper` and `origin`.
        why: The note if both values differ.
        always: The note in any case.
        places: The decimals that are compared.
        printed: What the paper prints, if that is not the number itself.
    """
    if paper is None:
        return Headline(figure, what, computed, None, printed, "no number", origin, always)
    same = f"{computed:.{places}f}" == f"{paper:.{places}f}"
    note = "; ".join(filter(None, ["" if same else why, always]))
    return Headline(figure, what, computed, paper, printed or _text(paper), "same" if same else "differs", origin, note)


def below(figure: str, what: str, computed: float, bound: float, always: str = "", *, origin: str) -> Headline:
    """Return a number of which the paper says that it is less than `bound`."""
    verdict: Verdict = "holds" if computed < bound else "does not hold"
    return Headline(figure, what, computed, bound, f"< {bound:g}", verdict, origin, always)


def unknown(figure: str, what: str, paper: float | None, why: str = UNKNOWN, *, printed: str = "") -> Headline:
    """Return a number that cannot be computed from the data."""
    return Headline(figure, what, None, paper, printed or ("" if paper is None else _text(paper)), "unknown", "", why)


def _text(paper: float) -> str:
    """Return a number as the paper prints it, with two decimals at least."""
    return f"{paper:.{max(2, len(f'{paper:g}'.partition('.')[2]))}f}"
