"""The paper's own latencies of ResNet-34's layers, read from its artifact: what Figure 9 is drawn from.

There, a layer with a stride is a convolution of stride 1 on the picture that is pooled already, and a 1x1 convolution is
replaced by windows of 3, in the originals of NAS-PTE, too. Everything is of batch 1.
"""

from __future__ import annotations

import json
from pathlib import Path

from syno.base.errors import ParseError, SpecError
from syno.paper.artifact.files import read_latency
from syno.paper.artifact.places import TARGETS
from syno.paper.numbers import A100, MOBILE_CPU, NAS_PTE, NAS_PTE_MODULES

DEVICES = {MOBILE_CPU: "cpu", A100: "cuda"}  # what is compared with which kind of device
PLACES = {(DEVICES[target.device], target.compiler): target for target in TARGETS if target.device in DEVICES}
MACHINES = {"mdev": "the paper's mobile device", "a100": "the paper's A100"}
CANDIDATES = {  # operators of the library -> their folders; of ours, that of the search in which they were found
    **{name: f"nas-pte/{folder}" for name, folder in (NAS_PTE | NAS_PTE_MODULES).items()},
    "operator_1": "07889_15252107013978896537",
    "operator_2": "07754_18091915762600937904",
}


def published_speedup(artifact: Path, kind: str, compiler: str, operator: str, layer: str) -> float | None:
    """How many times faster than the convolution the operator is there; None where the artifact does not say.

    Args:
        artifact: its data folder.
        kind: of device, "cpu" or "cuda".
        compiler: a name in `COMPILERS`.
        operator: a name in CANDIDATES.
        layer: such as "conv_io64".

    Raises SpecError if a file holds no latency.
    """
    if (kind, compiler) not in PLACES:
        return None
    target = PLACES[kind, compiler]
    folder = _folder(artifact / target.root, CANDIDATES[operator])
    before = _milliseconds(artifact / target.layer(target.originals, layer, is_original=True))
    if folder is None or before is None:
        return None
    timings = target.root / folder.relative_to(artifact / target.root).as_posix() / "perf" / target.folder
    after = _milliseconds(artifact / target.layer(timings, layer))
    return None if after is None else before / after


def _folder(root: Path, given: str) -> Path | None:
    """Of an operator's latencies in ResNet-34."""
    if "/" in given:
        return root / given
    for file in sorted(root.glob("good-kernels-imagenet/resnet34/*/meta.json")):
        if json.loads(file.read_text(encoding="utf-8")).get("original_dir", "").endswith(given):
            return file.parent
    return None


def _milliseconds(file: Path) -> float | None:
    """A latency; None if there is none."""
    if not file.exists():
        return None
    try:
        return read_latency(file).milliseconds
    except ParseError as error:
        raise SpecError(f"{file} {error}: is this the paper's artifact, and whole?") from error
