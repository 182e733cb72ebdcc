"""Texts of operators that are too large, too deep or grow beyond all bounds, and what is said of each."""

from __future__ import annotations


def shifts(count: int) -> str:
    lines = [f"d{n + 1}:H = Shift(d{n}, +1)" for n in range(count)]
    return "\n".join(["operator shifts", "variables H", "output d0:H", *lines, f"input d{count}:H"]) + "\n"


def views(count: int, *, swapped: bool = False) -> str:
    """Merge, then Split again: as it was, or with both axes swapped, so that each coordinate is written out twice."""
    axis, group = ("k*H", "H") if swapped else ("H", "k^-1*H")
    lines = []
    for n in range(count):
        bottoms = f"m{n}, q{n}" if swapped else f"q{n}, m{n}"
        lines += [f"q{n}:{group}, m{n}:k = Merge(d{n}, k)", f"d{n + 1}:{axis} = Split({bottoms})"]
    return "\n".join(["operator views", "variables H; k=2", f"output d0:{axis}", *lines, f"input d{count}:{axis}"]) + "\n"


def axes(count: int) -> str:
    row = ", ".join(f"a{n}:H" for n in range(count))
    return f"operator axes\nvariables H\noutput {row}\ninput {row}\n"


def reductions(count: int) -> str:
    lines = [f"r{n}:H = Reduce()" for n in range(count)]
    row = ", ".join(f"r{n}:H" for n in range(count))
    return "\n".join(["operator reductions", "variables H", "output a:H", *lines, f"input a:H, {row}"]) + "\n"


def weights(count: int) -> str:
    lines = [f"a{n + 1}:H = Share(a{n}, w{n + 1}[0])" for n in range(count)]
    return "\n".join(["operator weights", "variables H", "output a0:H", *lines, f"input a{count}:H"]) + "\n"


def sums_with_weights(count: int) -> str:
    lines = [f"r{n}:H = Reduce()\ns{n}:H = Share(r{n}, w{n + 1}[0])" for n in range(count)]
    row = ", ".join(f"s{n}:H" for n in range(count))
    return "\n".join(["operator sums", "variables H", "output a:H", *lines, f"input a:H, {row}"]) + "\n"


def primitives(count: int) -> str:
    """Next to each other, as no path may have so many."""
    columns, each = 5, count // 5
    lines = [f"c{column}_{n + 1}:H = Shift(c{column}_{n}, +1)" for column in range(columns) for n in range(each)]
    rows = [", ".join(f"c{column}_{n}:H" for column in range(columns)) for n in (0, each)]
    return "\n".join(["operator many", "variables H", f"output {rows[0]}", *lines, f"input {rows[1]}"]) + "\n"


ONE = shifts(1)
REFUSED: dict[str, tuple[str, str]] = {
    "300 Shifts": (shifts(300), "at most 64 may lie above each other"),
    "5,000 Shifts": (shifts(5_000), "an operator's text has at most 100000"),
    "60 Merges and Splits": (views(60), "at most 64 may lie above each other"),
    "210 primitives": (primitives(210), "one primitive more than the 200 that an operator has at most"),
    "60 axes": (axes(60), "60 output axes and reductions; at most 32"),
    "40 reductions": (reductions(40), "41 output axes and reductions; at most 32"),
    "120 weights": (weights(120), "weight 17; an operator has at most 16 weights"),
    "a Shift of 3,000 digits": (ONE.replace("+1", "1" * 3_000), "it is by at most 2147483647 positions"),
    "a Shift of 11 digits": (ONE.replace("+1", "-99999999999"), "it is by at most 2147483647 positions"),
    "a default of 5,000 digits": (ONE.replace("variables H", "variables H=" + "9" * 5_000), "a line has at most 4000"),
    "a default of 3,000 digits": (ONE.replace("variables H", "variables H=" + "9" * 3_000), "does not declare a variable"),
    "a default of 11 digits": (ONE.replace("variables H", "variables H=99999999999"), "H is larger than 2147483647"),
    "an exponent of 3,000 digits": (ONE.replace("d0:H", "d0:H^" + "9" * 3_000), "is not a size"),
    "an exponent of 4 digits": (ONE.replace("d0:H", "d0:H^1000"), "beyond the limit of 63"),
    "a weight of 14 digits": (f"{ONE}weight w{'9' * 14}[H]\n", "a weight is declared as"),
    "a name of 300 characters": (ONE.replace("shifts", "s" * 300), "an operator's name has 300 characters"),
    "a dim of 300 characters": (ONE.replace("d0", "d" * 300), "a name has at most 100"),
    "a variable of 300 characters": (ONE.replace("H", "H" * 300), "it has 300 characters"),
    "1,000 variables": (ONE.replace("variables H", "variables " + ", ".join(f"V{n}" for n in range(500))),
                        "more than 32 variables are declared"),
    "4 megabytes": (ONE + "# x\n" * 1_000_000, "4000072 characters"),
    "a line of 90,000 characters": (ONE + "x" * 90_000, "a line has at most 4000"),
    "an unknown dim of 3,900 characters": (f"{ONE}z:H = Shift({'q' * 3_900}, 1)\n", "is not defined above"),
    "a name with NUL": (ONE.replace("shifts", "a\0b"), "an operator's name is"),
    "a name with a ligature": (ONE.replace("shifts", "a\N{LATIN SMALL LIGATURE FI}"), "an operator's name is"),
    "a name with a superscript": (ONE.replace("shifts", "a\N{SUPERSCRIPT TWO}"), "an operator's name is"),
    "a name that leads elsewhere": (ONE.replace("shifts", "../sec/precious"), "an operator's name is"),
    "an absolute name": (ONE.replace("shifts", "/abs"), "an operator's name is"),
    "no name": (ONE.replace("operator shifts", "operator"), "an operator's name is ''"),
    "a variable with a ligature": (ONE.replace("H", "a\N{LATIN SMALL LIGATURE FI}"), "does not declare a variable"),
    "a variable with a superscript": (ONE.replace("H", "a\N{SUPERSCRIPT TWO}"), "does not declare a variable"),
    "a dim with a ligature": (ONE.replace("d1", "\N{LATIN SMALL LIGATURE FI}"), "is not \"name:size\""),
    "a number in other digits": (ONE.replace("+1", "\N{ARABIC-INDIC DIGIT THREE}"), "is not a number of positions"),
}  # fmt: skip
