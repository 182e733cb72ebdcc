"""The table of truth: operators of ResNet-8's space (table.yaml), each trained to the end, with costs and latency.

    python benchmarks/table.py draw measure proxies --records results/table
    python benchmarks/table.py pack page --records results/table

`draw` lists the operators. `measure` writes a record for each training and each latency; its parts are `training-0`,
`training-1` and `latency`. `proxies` scores the untrained networks. Several processes may measure at the same time, and what
has a record is not measured again. `pack` makes the kept files of the records, in syno/paper/replay/resnet8,
and `page` writes docs/measured/table.md and its figure, which takes minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from table_draw import draw
from table_measure import latencies, trainings
from table_pack import pack
from table_page import page
from table_proxies import scores
from table_records import SEEDS, experiment, operators

from syno.paper.replay.table import FOLDER

MEASURE = (*(f"training-{seed}" for seed in SEEDS), "latency")
PARTS = ("draw", *MEASURE, "measure", "proxies", "pack", "page")


def lines(what: str, options: argparse.Namespace) -> Iterator[str]:
    """Do one part of the work; yields what is finished, in words."""
    records = options.records
    proxies = options.proxies or records / "proxies"
    if what == "measure":
        for part in MEASURE:
            yield from lines(part, options)
    elif what == "draw":
        yield from draw(records)
    elif what == "proxies":
        yield from scores(experiment().network, operators(records), proxies)
    elif what == "pack":
        yield pack(records, proxies, options.output)
    elif what == "page":
        yield from page(options.output, options.parts, options.processes)
    elif what == "latency":
        yield from latencies(experiment().network, operators(records), records)
    else:
        yield from trainings(experiment().network, operators(records), int(what.removeprefix("training-")), records)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", nargs="+", choices=PARTS)
    parser.add_argument("--records", type=Path, required=True, help="folder of the raw records")
    parser.add_argument("--proxies", type=Path, help="folder of the proxies' records; by default in that of the others")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the kept table")
    parser.add_argument("--parts", type=Path, default=Path("results/table"), help="folder of replays, which go on after a stop")
    parser.add_argument("--processes", type=int, default=1, help="of the replays")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for what in options.what:
        for line in lines(what, options):
            print(line, file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
