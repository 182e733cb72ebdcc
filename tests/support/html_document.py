"""An HTML document, read for tests."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "img", "link"}


class Document(HTMLParser):
    """The elements of a page, and the text it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.shown: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.shown.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.shown).split())

    def having(self, name: str) -> list[str]:
        """The values of an attribute."""
        return [value or "" for _, attributes in self.elements if (value := attributes.get(name)) is not None]

    def cards(self) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == "article"]
