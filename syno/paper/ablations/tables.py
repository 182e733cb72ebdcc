"""The ablations as tables, with the paper's numbers beside them. A row says where its number comes from (`origin`).

All have the columns `space` (its name), `space_id` (the id of the spec), `depth`, `seed`, `seconds` (CPU-seconds of one
process) and `origin` ("measured" or "paper").

ablation-canonical
    variant             "all rules", "exact rules", "order drawn" (all rules, without looking for another order of the steps),
                        "built-in rules" (where the spec has rules of the user's own); for complete operators "complete"; for
                        all graphs of 8 or more primitives, which the paper's Table 3 has in one, "all rules, 8 or more"
    primitives          the size of the graphs; missing in sums over sizes; for "complete", the largest size
    sampled             random graphs; for "complete", all complete operators without the rules
    canonical           graphs or operators that the rules accept
    rate, low, high     the share of canonical graphs, with its 95 % interval (Wilson)
    paper_rate          the paper's share by all rules: of a size from 2 to 7, of 8 or more, and in the sum over all sizes

ablation-distance
    distance            "exact", "paper", "published" or "none" (`syno.paper.distances.published`); what the paper prints is of
                        "paper" and "none", and its CPU-seconds are the seconds of all its cores together
    walks, ended        random walks, and those that ended in an operator
    ended_share         their share
    operators           different operators found
    per_second          operators per CPU-second
    limit               the depth limit at which all operators were gone through
    complete, lost      operators within that limit, and those of them that the distance loses
    random, random_lost random operators of the whole space, and those of them that the distance loses

ablation-patterns
    see `syno.paper.ablations.patterns`

ablation-requirements
    see `syno.paper.ablations.requiring`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syno.base.text_tables import Row
from syno.paper.ablations.canonical import Complete, Rate, own_rules
from syno.paper.ablations.guided import Loss, Run
from syno.paper.ablations.parts import wilson
from syno.paper.numbers import (
    CANONICAL_GRAPHS,
    CANONICAL_RATES,
    LARGEST,
    RANDOM_GRAPHS,
    REDUNDANCY,
    WALKING_CORES,
    WALKS_WITH_DISTANCE,
    WALKS_WITHOUT_DISTANCE,
)
from syno.space.spec import OperatorSpec

AblationRow = dict[str, object]
ALL_RULES, EXACT_RULES, IN_ORDER, BUILT_IN, COMPLETE = "all rules", "exact rules", "order drawn", "built-in rules", "complete"
LARGE = f"{ALL_RULES}, {LARGEST} or more"  # primitives
CANONICAL_COLUMNS = (
    "space", "space_id", "depth", "variant", "primitives", "sampled", "canonical", "rate", "low", "high", "paper_rate", "seed",
    "seconds", "origin",
)  # fmt: skip
DISTANCE_COLUMNS = (
    "space", "space_id", "depth", "distance", "walks", "ended", "ended_share", "operators", "per_second", "limit", "complete",
    "lost", "random", "random_lost", "seed", "seconds", "origin",
)  # fmt: skip
MEASURED, PAPER = "measured", "paper"


def of_space(spec: OperatorSpec, seed: int, seconds: float | None) -> AblationRow:
    """Return the cells that rows of all ablations have: space, depth, seed, seconds, origin."""
    used = None if seconds is None else round(seconds, 2)
    return {
        "space": spec.name,
        "space_id": spec.id,
        "depth": spec.depth,
        "seed": seed,
        "seconds": used,
        "origin": MEASURED,
    }


def canonical_rows(
    spec: OperatorSpec, rates: Sequence[Rate], whole: Sequence[Complete], seed: int, seconds: float
) -> list[AblationRow]:
    """Return the rows of `ablation-canonical`; `seconds` is the CPU time of the whole ablation."""
    base = of_space(spec, seed, seconds)
    counts = {ALL_RULES: "canonical", EXACT_RULES: "exact", IN_ORDER: "in_order"}
    if own_rules(spec):
        counts[BUILT_IN] = "built_in"
    paper = CANONICAL_GRAPHS / RANDOM_GRAPHS
    rows = []
    for variant, field in counts.items():
        found = [(rate.size, rate.graphs, int(getattr(rate, field))) for rate in rates]
        printed = CANONICAL_RATES if variant == ALL_RULES else {}
        rows += [
            base
            | {"variant": variant}
            | _share(sampled, hits, size)
            | {"paper_rate": printed.get(size) if size < LARGEST else None}
            for size, sampled, hits in found
            if sampled
        ]
        large = [
            sum(counts) for counts in zip(*((sampled, hits) for size, sampled, hits in found if size >= LARGEST), strict=True)
        ]
        if printed and large and large[0]:
            rows.append(base | {"variant": LARGE} | _share(large[0], large[1], None) | {"paper_rate": printed[LARGEST]})
        total = _share(sum(sampled for _, sampled, _ in found), sum(hits for *_, hits in found), None)
        rows.append(base | {"variant": variant} | total | {"paper_rate": paper if variant == ALL_RULES else None})
    rows += [base | {"variant": COMPLETE} | _share(one.graphs, one.canonical_graphs, one.size) for one in whole if one.graphs]
    of_paper: AblationRow = {"space": spec.name, "variant": ALL_RULES, "origin": PAPER}
    rows.append(of_paper | {"paper_rate": paper} | _share(RANDOM_GRAPHS, CANONICAL_GRAPHS, None))
    rows += [
        of_paper | ({"primitives": size} if size < LARGEST else {"variant": LARGE}) | {"rate": rate, "paper_rate": rate}
        for size, rate in CANONICAL_RATES.items()
    ]
    return _complete(rows, CANONICAL_COLUMNS)


def _share(sampled: int, canonical: int, primitives: int | None) -> AblationRow:
    low, high = wilson(canonical, sampled)
    rate = canonical / sampled if sampled else None
    return {"primitives": primitives, "sampled": sampled, "canonical": canonical, "rate": rate, "low": low, "high": high}


def beside_the_paper(rates: Sequence[Rate]) -> list[Row]:
    """Return rows that compare the number of random graphs per canonical graph, at the largest size, with the paper's numbers.

    No rows if no graph was canonical. Source of the paper's numbers: its canonicalization ablation, with Table 3.
    """
    found = [rate for rate in rates if rate.canonical]
    if not found:
        return []
    rate = max(found, key=lambda rate: rate.size)
    low, high = rate.interval
    return [
        {
            "graphs per canonical graph": f"{1 / rate.share:.1f}",
            "95 %": f"{1 / high:.1f} to {1 / low:.1f}",
            "of": f"{rate.graphs:,} random graphs of {rate.size} primitives",
            "origin": "measured",
        },
        {
            "graphs per canonical graph": f"more than {REDUNDANCY}",
            "95 %": "",
            "of": "its random graphs",
            "origin": "paper",
        },
        {
            "graphs per canonical graph": "; ".join(
                f"{1 / rate:,.1f}" if rate else "none" for rate in CANONICAL_RATES.values()
            ),
            "95 %": "",
            "of": f"its random graphs of {_sizes()} primitives",
            "origin": "paper",
        },
    ]


def _sizes() -> str:
    """Return the numbers of primitives in the paper's Table 3 in words: `2 to 7, and of 8 or more,`."""
    return f"{min(CANONICAL_RATES)} to {LARGEST - 1}, and of {LARGEST} or more,"


def distance_rows(
    spec: OperatorSpec, runs: Sequence[Run], lost: Sequence[Loss], sampled: Sequence[Loss], seed: int
) -> list[AblationRow]:
    """Return the rows of the table `ablation-distance`, from walks and losses with each distance."""
    rows = []
    for run in runs:
        whole, drawn = _of(lost, run.name), _of(sampled, run.name)
        ended = run.walks - run.dead_ends
        rows.append(of_space(spec, seed, run.used) | {
            "distance": run.name,
            "walks": run.walks,
            "ended": ended,
            "ended_share": run.valid_share,
            "operators": len(run.trials),
            "per_second": len(run.trials) / run.used if run.used else None,
            "limit": whole[0].depth if whole else None,
            "complete": sum(one.operators for one in whole) if whole else None,
            "lost": sum(one.lost for one in whole) if whole else None,
            "random": sum(one.operators for one in drawn) if drawn else None,
            "random_lost": sum(one.lost for one in drawn) if drawn else None,
        })  # fmt: skip
    for distance, printed in (("paper", WALKS_WITH_DISTANCE), ("none", WALKS_WITHOUT_DISTANCE)):
        used = printed.seconds * WALKING_CORES
        row = {"space": spec.name, "distance": distance, "walks": printed.walks, "operators": printed.operators}
        rows.append({**row, "per_second": printed.operators / used, "seconds": round(used, 2), "origin": PAPER})
    return _complete(rows, DISTANCE_COLUMNS)


def _of(losses: Iterable[Loss], distance: str) -> list[Loss]:
    return [one for one in losses if one.distance == distance]


def _complete(rows: Iterable[AblationRow], columns: Sequence[str]) -> list[AblationRow]:
    """Return the rows with all of the columns, in order; unknown cells are None."""
    return [{name: row.get(name) for name in columns} for row in rows]
