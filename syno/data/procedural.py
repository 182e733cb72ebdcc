"""Pictures that a program draws."""

from __future__ import annotations

from typing import Any

from syno.data.contract import DATASETS, content_hash
from syno.data.glyphs import GLYPH_PRESETS, make_glyphs
from syno.data.pictures import DataSet


@DATASETS.register("glyphs")
def glyphs(preset: str = "quick", **changes: Any) -> DataSet:
    """Procedural pictures, made when asked for; see `syno.data.glyphs`.

    Args:
        preset: a name in GLYPH_PRESETS.
        changes: fields of GlyphSettings that differ from the preset's.

    Raises UnknownNameError or SpecError for settings that there are not.
    """
    settings = GLYPH_PRESETS[preset].with_(**changes)
    train, test = make_glyphs(settings)
    return DataSet(f"glyphs {preset}", *train, *test, settings.classes, content_hash(*train, *test))
