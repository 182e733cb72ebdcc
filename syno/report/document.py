"""Documents of HTML that need no other file and no network: the templates, with the styles and the script in them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def document(template: str, **values: Any) -> str:
    """A template as a whole document. All values appear as text, but for what is marked up."""
    environment = Environment(
        loader=PackageLoader("syno.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = _part(environment, "page.js")
    return environment.get_template(template).render(
        **values,
        styles=_part(environment, "page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _part(environment: Environment, name: str) -> Markup:
    loader = environment.loader
    assert loader is not None
    return Markup(loader.get_source(environment, name)[0].rstrip("\n"))
