"""SVG documents as parts of one HTML page, where ids and styles of one must not reach another."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from syno.base.errors import SpecError

SVG, XLINK, XML = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/XML/1998/namespace"
DROPPED = {"metadata"}
FORBIDDEN = {"script", "foreignObject", "iframe", "animate", "set"}
ID_LISTS = {"aria-labelledby", "aria-describedby"}
_REFERENCE = re.compile(r"url\(\s*(['\"]?)#([^'\")]+)\1\s*\)")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


def inline_svg(document: str, prefix: str) -> str:
    """Return the document as an `<svg>` element in which every id begins with `prefix`, and whose styles apply to nothing else.

    Raises SpecError if it is no SVG, holds a script, or refers to anything outside itself.
    """
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise SpecError(f"not an SVG document: {error}; it begins: {document[:60]!r}") from error
    if root.tag not in ("svg", f"{{{SVG}}}svg"):
        raise SpecError(f"an SVG document begins with <svg>; given: <{root.tag}>")
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child.tag) in DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _inline(element, prefix)
    root.set("id", prefix)
    return ElementTree.tostring(root, encoding="unicode").strip()


def _inline(element: ElementTree.Element, prefix: str) -> None:
    element.tag = _name(element.tag)
    if element.tag in FORBIDDEN:
        raise SpecError(f"an SVG picture on the page holds no <{element.tag}>")
    given = dict(element.attrib)
    element.attrib.clear()
    for name, value in given.items():
        element.set(_name(name), _attribute(_name(name), value, prefix))
    if element.tag == "style":
        element.text = _scoped(element.text or "", prefix)


def _name(name: str) -> str:
    """Return the name in HTML of `{namespace}name`."""
    space, _, local = name.rpartition("}")
    return f"xml:{local}" if space == f"{{{XML}" else local


def _attribute(name: str, value: str, prefix: str) -> str:
    if name.lower().startswith("on"):
        raise SpecError(f'an SVG picture on the page holds no script; given: {name}="{value[:60]}"')
    if name == "id":
        return f"{prefix}-{value}"
    if name in ID_LISTS:
        return " ".join(f"{prefix}-{word}" for word in value.split())
    if name in ("href", "src") and not value.startswith("data:image/png"):
        if not value.startswith("#"):
            raise SpecError(f'an SVG picture on the page refers to nothing outside itself; given: {name}="{value[:60]}"')
        return f"#{prefix}-{value[1:]}"
    return _local(value, prefix)


def _scoped(styles: str, prefix: str) -> str:
    """Return style rules that apply within the picture only."""
    if "@" in styles:
        raise SpecError(f"styles of an SVG picture on the page have no @ rules; given: {styles.strip()[:60]!r}")
    rules = [
        f"{', '.join(f'#{prefix} {selector.strip()}' for selector in selectors.split(','))} {{{_local(body, prefix)}}}"
        for selectors, body in _RULE.findall(re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL))
    ]
    return "\n".join(rules)


def _local(text: str, prefix: str) -> str:
    """Return the text with its references to ids renamed. SpecError for other references."""
    renamed = _REFERENCE.sub(lambda found: f"url(#{prefix}-{found[2]})", text)
    if renamed.lower().count("url(") != len(_REFERENCE.findall(text)):
        raise SpecError(f"an SVG picture on the page refers to nothing outside itself; given: {text.strip()[:60]!r}")
    return renamed
