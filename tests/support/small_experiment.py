"""An experiment of seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FIELDS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
