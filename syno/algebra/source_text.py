"""Source text of coordinate expressions, for Python and for C."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from syno.algebra.atoms import Atom, Guard, Half, Iterator, Quotient, Remainder
from syno.algebra.size import ONE, Size

if TYPE_CHECKING:
    from syno.algebra.expression import Expression

SizeText = Callable[[Size], str]


def source_text(expression: Expression, size_text: SizeText, divide: str) -> str:
    """The text of a sum. `size_text` writes a size; `divide` is "//" for Python, "/" for C."""
    if not expression.terms:
        return "0"
    if (only := expression.only_atom) is not None:
        text = _atom_text(only, size_text, divide)
        return text[1:-1] if text.startswith("(") and not isinstance(only, Half) else text
    pieces: list[str] = []
    for count, size, atom in expression.terms:
        piece = _term_text(abs(count), size, atom, size_text, divide)
        if count < 0 and not pieces and isinstance(atom, Half):  # -k//2 would be (-k)//2
            piece = f"({piece})"
        sign = "-" if count < 0 else "+"
        pieces.append(f" {sign} {piece}" if pieces else piece if count > 0 else f"-{piece}")
    return "".join(pieces)


def _term_text(count: int, size: Size, atom: Atom | None, size_text: SizeText, divide: str) -> str:
    factors = [str(count)] if count != 1 else []
    if size is not ONE:
        factors.append(_parenthesized(size_text(size)))
    if atom is not None:
        inner = _atom_text(atom, size_text, divide)
        factors.append(f"({inner})" if factors and isinstance(atom, Half) else inner)
    return "*".join(factors) or "1"


def _atom_text(atom: Atom, size_text: SizeText, divide: str) -> str:
    match atom:
        case Iterator(name, _):
            return name
        case Half(size):
            return f"{_parenthesized(size_text(size))}{divide}2"
        case Quotient(numerator, divisor):
            if divide == "/" and _may_be_negative(numerator):
                return f"floor_div({source_text(numerator, size_text, divide)}, {size_text(divisor)})"
            left = _operand(numerator, size_text, divide)
            return f"({left}{divide}{_parenthesized(size_text(divisor))})"
        case Remainder(numerator, divisor):
            if divide == "/" and _may_be_negative(numerator):
                return f"floor_mod({source_text(numerator, size_text, divide)}, {size_text(divisor)})"
            left = _operand(numerator, size_text, divide)
            return f"({left}%{_parenthesized(size_text(divisor))})"
        case Guard(index, _):
            return f"({source_text(index, size_text, divide)})"


def _may_be_negative(expression: Expression) -> bool:
    return any(
        count < 0 or (isinstance(atom, Quotient) and _may_be_negative(atom.numerator)) for count, _, atom in expression.terms
    )


def _operand(expression: Expression, size_text: SizeText, divide: str) -> str:
    return _parenthesized(source_text(expression, size_text, divide))


def _parenthesized(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"
