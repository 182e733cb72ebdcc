"""The table of backbones in the documentation is what the code counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from syno.model.backbones import BACKBONES, SEQUENCE_BACKBONES
from syno.model.counting import model_cost, published_flops, published_parameters
from syno.model.extraction import replaceable

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+): ", re.MULTILINE)


@pytest.mark.slow
def test_the_table_of_backbones_has_the_counted_costs() -> None:
    shown = {name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in ROW.findall(PAGE.read_text())}
    counted = {}
    for name in (*BACKBONES, *SEQUENCE_BACKBONES):
        if name not in ("resnet6", "resnet8", "gpt_tiny"):
            with torch.device("meta"):
                if name in BACKBONES:
                    model, example = BACKBONES[name](classes=100), torch.zeros(1, 3, 224, 224)
                else:
                    model = SEQUENCE_BACKBONES[name](vocabulary=50257, context=2048)
                    example = torch.zeros(1, 2048, dtype=torch.long)
            flops, plain = published_flops(model, example), model_cost(model, example).flops
            counted[name] = [published_parameters(model), flops, plain, len(replaceable(model, example, "paper"))]
    assert shown == counted
