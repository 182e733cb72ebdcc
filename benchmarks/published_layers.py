"""The paper's own latencies of ResNet-34's layers, read from its artifact: what Figure 9 is drawn from.

There, a layer with a stride is a convolution of stride 1 on the picture that is pooled already, and a 1x1 convolution is
replaced by windows of 3, in the originals of NAS-PTE, too. Everything is of batch 1.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from syno.errors import SpecError

PLACES = {  # (kind of device, compiler) -> the machine's folder, and the folder of its latencies
    ("cpu", "tvm"): ("mdev", "llvm"),
    ("cpu", "inductor"): ("mdev", "inductor-cpu"),
    ("cuda", "tvm"): ("a100", "cuda"),
    ("cuda", "inductor"): ("a100", "inductor-cuda"),
}
MACHINES = {"mdev": "the paper's mobile device", "a100": "the paper's A100"}
CANDIDATES = {  # operators of the library -> their folders; of ours, that of the search in which they were found
    "nas_pte_sequence_1": "nas-pte/seq_1",
    "nas_pte_sequence_2": "nas-pte/seq_2",
    "nas_pte_sequence_3": "nas-pte/seq_3",
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
    """
    if (kind, compiler) not in PLACES:
        return None
    machine, latencies = PLACES[kind, compiler]
    root = artifact / "vision" / machine
    folder = _folder(root, CANDIDATES[operator])
    before = _milliseconds(root / "baseline-latency" / latencies / "resnet34layers", f"{layer}-N=1", "-orig")
    after = folder and _milliseconds(folder / "perf" / latencies / "resnet34layers", f"{layer}-N=1", "")
    return before / after if before and after else None


def _folder(root: Path, given: str) -> Path | None:
    """Of an operator's latencies in ResNet-34."""
    if "/" in given:
        return root / given
    for file in sorted(root.glob("good-kernels-imagenet/resnet34/*/meta.json")):
        if json.loads(file.read_text(encoding="utf-8")).get("original_dir", "").endswith(given):
            return file.parent
    return None


def _milliseconds(folder: Path, name: str, suffix: str) -> float | None:
    """A latency as either compiler's script wrote it; None if there is none. SpecError if the file holds none."""
    table, text = folder / name / "benchmark_results.csv", folder / f"{name}{suffix}.txt"
    file = table if table.exists() else text
    if not file.exists():
        return None
    try:
        if file is text:
            return float(text.read_text(encoding="utf-8"))
        with table.open(encoding="utf-8", newline="") as lines:
            return 1e3 * float(next(row[1] for row in csv.reader(lines) if row and row[0] == "latency_mean"))
    except (ValueError, StopIteration, IndexError) as error:
        raise SpecError(f"{file} holds no latency: is {folder} of the paper's artifact, and whole?") from error
