"""The documentation site, built in a process without a network, and what its pages load and link to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from documents import ROOT

NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise OSError("the documentation asks for the network")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = socket.socket.connect_ex = refuse
"""
LOADED = {  # attributes of elements, by which a browser loads something
    **dict.fromkeys(("script", "iframe", "video", "audio", "embed"), ("src",)),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    **dict.fromkeys(("link", "image", "use"), ("href",)),
    "object": ("data",),
}
NOT_LOADED = {"index", "search", "next", "prev", "canonical", "author", "help", "copyright"}  # links to other pages
OTHER_HOST = re.compile(r"(?:\w+:)?//")


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site in `folder/site` as `make docs` does; a use of the network fails."""
    (folder / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    path = os.pathsep.join([str(folder), str(ROOT)])
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", "docs/site", "-d", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(folder / "site")]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@dataclass
class Page(HTMLParser):
    """What a page loads, links to, and can be linked to by."""

    file: Path
    loaded: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.file.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if "href" in given and (tag == "a" or given.get("rel") in NOT_LOADED):
            self.linked.append(given["href"])
        else:
            self.loaded += [given[name] for name in LOADED.get(tag, ()) if name in given]
        self.loaded += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


class Site:
    """The pages of a built site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[Path, Page]:
        """The pages by their files."""
        return {file.resolve(): Page(file) for file in sorted(self.folder.rglob("*.html"))}

    def loaded_from_elsewhere(self) -> Iterator[str]:
        """Yield what pages and style sheets load from other hosts."""
        for file, page in self.pages.items():
            yield from (f"{file.name}: {target}" for target in page.loaded if OTHER_HOST.match(target))
        for sheet in self.folder.rglob("*.css"):
            text = sheet.read_text(encoding="utf-8")
            for target in re.findall(r"url\(['\"]?([^)]*)\)|@import\s+['\"]([^'\"]*)", text):
                if OTHER_HOST.match("".join(target)):
                    yield f"{sheet.name}: {target}"

    def broken(self) -> Iterator[str]:
        """Yield links and loads within the site that lead nowhere."""
        for file, page in self.pages.items():
            for target in [*page.linked, *page.loaded]:
                path, _, anchor = target.partition("#")
                if re.match(r"\w+:|//", target):
                    continue
                there = (file.parent / unquote(path.partition("?")[0])).resolve() if path else file
                if not there.exists():
                    yield f"{file.relative_to(self.folder)}: {target}"
                elif anchor and there in self.pages and unquote(anchor) not in self.pages[there].ids:
                    yield f"{file.relative_to(self.folder)}: {target}: no such place"
