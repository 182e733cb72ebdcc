"""The paper's headline numbers, compared with those computed from the table of measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any, Literal, NamedTuple, TypeAlias

import pandas

from syno.base.files import ORIGINAL
from syno.base.text_tables import Row
from syno.model.networks import INT8
from syno.paper.figures.language import Perplexity, curves, perplexities, scores, training_speedups
from syno.paper.figures.mixture import PREFERRED, TARGET, accuracies, ordered, percent, ready, scored, timed
from syno.paper.figures.networks import (
    CASE_OPERATOR,
    MOST_LOST_FINALLY,
    ON_PROXY,
    best_over_best,
    case_study,
    fastest,
    fewest,
    geometric_mean,
    largest,
    layers,
    means,
    shares,
    trade_offs,
)
from syno.paper.figures.titles import compiler_title, compilers_of, model_title, operator_title
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import (
    A100,
    ALPHA_NAS,
    ALPHA_NAS_TOLD,
    CASE,
    COMPILERS,
    DEVICES,
    GUARD,
    IN_CASE_STUDY,
    INDUCTOR,
    LOSS,
    MOBILE_CPU,
    MOBILE_GPU,
    MODELS,
    NAS_PTE_COSTS,
    PERPLEXITIES,
    PERPLEXITY_STEPS,
    STACKED,
    TEST_DATA,
    TRAINING_SPEEDUP,
    TVM,
)
from syno.paper.places import LAYERS, RESNET34
from syno.run.measurement import OK
from syno.run.rivals import KNOWN

# One headline number, beside the paper's.


UNKNOWN = "not in the data"
Verdict: TypeAlias = Literal["same", "differs", "holds", "does not hold", "unknown", "no number"]


class Headline(NamedTuple):
    """A headline number of the paper beside the number computed here.

    Attributes:
        figure: The number of the figure or the section in the paper.
        what: A description of the number.
        computed: The value from the measurements; None if they are not sufficient.
        paper: The value or bound that the paper prints; None where the paper prints no number.
        printed: The text that the paper prints; "" where it prints no number.
        verdict: "same" if both are equal to the digits that the paper prints (two at most), or "differs"; "holds" or "does not
            hold" for a bound; "unknown" if the number cannot be computed; "no number" if the
            paper prints none.
        origin: The origins of the computed value, such as "artifact"; "" if unknown.
        note: The reason for a difference or for an unknown value, from the data; other remarks.
    """

    figure: str
    what: str
    computed: float | None
    paper: float | None
    printed: str
    verdict: Verdict
    origin: str
    note: str

    @property
    def same(self) -> bool:
        """Whether the computed number agrees with the paper's number or bound."""
        return self.verdict in ("same", "holds")


def compared(
    figure: str,
    description: str,
    computed: float,
    paper: float | None,
    why: str = "",
    always: str = "",
    *,
    origin: str,
    places: int = 2,
    printed: str = "",
) -> Headline:
    """Return the headline of a computed number, compared with the paper's number (if any) to `places` decimals.

    Args:
        figure: As in `Headline`; also `description` (the field `what`), `computed`, `paper` and `origin`.
        why: The note if both values differ.
        always: The note in any case.
        places: The number of decimals that are compared.
        printed: The text that the paper prints, if it is not the number itself.
    """
    if paper is None:
        return Headline(figure, description, computed, None, printed, "no number", origin, always)
    same = f"{computed:.{places}f}" == f"{paper:.{places}f}"
    note = "; ".join(filter(None, ["" if same else why, always]))
    return Headline(figure, description, computed, paper, printed or _text(paper), "same" if same else "differs", origin, note)


def below(figure: str, description: str, computed: float, bound: float, always: str = "", *, origin: str) -> Headline:
    """Return the headline of a computed number that the paper states to be less than `bound`."""
    verdict: Verdict = "holds" if computed < bound else "does not hold"
    return Headline(figure, description, computed, bound, f"< {bound:g}", verdict, origin, always)


def unknown(figure: str, description: str, paper: float | None, why: str = UNKNOWN, *, printed: str = "") -> Headline:
    """Return the headline of a number of the paper that cannot be computed from the data, with the reason `why`."""
    return Headline(figure, description, None, paper, printed or ("" if paper is None else _text(paper)), "unknown", "", why)


def _text(paper: float) -> str:
    """Return a number of the paper as text, with at least two decimals."""
    return f"{paper:.{max(2, len(f'{paper:g}'.partition('.')[2]))}f}"


# The numbers in the paper's text, compared with those computed from the table of measurements.
#
# Source: paper, sections 9.2 to 9.4.


IN_WORDS, AS_A_BAR, NOT_IN_PAPER = "in words", "as a bar", "not in the paper"
LOST_BY_OPERATOR_2, SHARE_OF_OPERATOR_2 = 0.015, 0.25  # of accuracy, and of the parameters, in ResNet-18
BESIDE_NAS_PTE = {"flops": ("FLOPs", 1.76, 4.32), "parameters": ("parameters", 1.80, 9.50)}  # over ours
FEWER_FLOPS = {RESNET34: 0.63, "efficientnet_v2_s": 0.37}  # within 0.02 on ImageNet
FASTER = {RESNET34: {TVM: 0.56, INDUCTOR: 0.48}, "efficientnet_v2_s": {TVM: 0.12, INDUCTOR: 0.07}}  # on the A100
OF_CANONICAL = ("space", "variant", "primitives", "sampled", "canonical", "origin")  # columns of the table of the ablation
SAMPLES, DISTINCT, REDUNDANCY = 6_452, 86, 70  # random samples without canonicalization, and the operators among them


def of_larger_network(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield the number of ResNet-34 with the fastest operator that is more accurate than the original ResNet-18."""
    known = accuracies(rows, FINAL)
    found = known[(known["model"] == CASE) & (known["operator"] == ORIGINAL)]
    smaller = {(row["data"], row["accuracy_origin"]): row["accuracy"] for row in found.to_dict("records")}
    gains: dict[str, tuple[float, str]] = {}
    for row in scored(rows, FINAL).to_dict("records"):
        own, keys = row["accuracy_origin"], [(row["data"], origin) for origin in PREFERRED[row["accuracy_origin"]]]
        theirs = next((key for key in keys if key in smaller), None)
        if row["model"] == RESNET34 and row["operator"] != ORIGINAL and not row["is_baseline"] and theirs is not None:
            gains[row["operator"]] = row["accuracy"] - smaller[theirs], ", ".join(dict.fromkeys([own, theirs[1]]))
    times = timed(rows)
    originals = times[(times["model"] == CASE) & (times["operator"] == ORIGINAL)][[*TARGET, "latency_ms"]]
    ours = times[(times["model"] == RESNET34) & times["operator"].isin([name for name, (gain, _) in gains.items() if gain > 0])]
    both = ours.merge(originals.rename(columns={"latency_ms": "smaller_ms"}), on=TARGET)
    both = both.assign(ratio=both["smaller_ms"] / both["latency_ms"])
    name = f"{MODELS[RESNET34]} with an operator"
    for compiler in dict.fromkeys([TVM, INDUCTOR, *compilers_of(both["compiler"])]):
        what = f"{name}, {compiler_title(compiler)}: mean speedup over the less accurate original {MODELS[CASE]}"
        known = both[both["compiler"] == compiler]
        if known.empty:
            yield unknown("text", what, None, printed=IN_WORDS)
        for latency, own in known.groupby("latency_origin"):
            whole = own[own.groupby("operator")["place"].transform("nunique") == own["place"].nunique()]
            if whole.empty:
                yield unknown("text", what, None, printed=IN_WORDS)
                continue
            best = str(whole.groupby("operator")["ratio"].agg(lambda values: geometric_mean(list(values))).idxmax())
            found = whole[whole["operator"] == best]
            each = ", ".join(f"{row['ratio']:.2f} on the {row['place']}" for row in found.to_dict("records"))
            told, mean = f"{best}: {each}", geometric_mean(list(found["ratio"]))
            yield compared("text", what, mean, None, always=told, origin=str(latency), printed=IN_WORDS)
            gain, origin = gains[best]
            above = f"{name}, {compiler_title(compiler)}: accuracy on the final data set above the original {MODELS[CASE]}'s"
            yield compared("text", above, gain, None, always=best, origin=origin, printed=IN_WORDS)


def of_operator_2(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield two numbers of ResNet-18 with Operator 2: the lost accuracy, and the remaining share of parameters."""
    lost, left = f"Operator 2 in {MODELS[CASE]}: accuracy lost", f"Operator 2 in {MODELS[CASE]}: share of the parameters"
    losses = {}
    for role in (PROXY, FINAL):
        known = scored(rows, role)
        found = known[(known["model"] == CASE) & (known["operator"] == "operator_2")].dropna(subset=["original_accuracy"])
        if len(found):
            losses[role] = found.iloc[0]
    if PROXY in losses:
        row = losses[PROXY]
        other = losses.get(FINAL)
        more = "" if other is None else f"; on {other['data']} it is {other['original_accuracy'] - other['accuracy']:.4f}"
        origin = ", ".join(dict.fromkeys([row["accuracy_origin"], row["original_origin"]]))
        lost_there = row["original_accuracy"] - row["accuracy"]
        yield below("text", lost, lost_there, LOST_BY_OPERATOR_2, f"on {row['data']}{more}", origin=origin)
    else:
        yield unknown("text", lost, LOST_BY_OPERATOR_2, printed=f"< {LOST_BY_OPERATOR_2:g}")
    costs = shares(rows)
    found = costs[(costs["model"] == CASE) & (costs["operator"] == "operator_2")]
    if len(found):
        row = found.iloc[0]
        yield below("text", left, 1 - row["fewer_parameters"], SHARE_OF_OPERATOR_2, origin=row["cost_origin"])
    else:
        yield unknown("text", left, SHARE_OF_OPERATOR_2, printed=f"< {SHARE_OF_OPERATOR_2:g}")


def beside_nas_pte(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield ratios of ResNet-34's FLOPs and parameters: with NAS-PTE's sequences over those with Operator 2.

    These are whole networks for the final data set: the smallest and the largest number over the three sequences. The networks
    of NAS-PTE are counted here (`NAS_PTE_COSTS`), unless their costs were measured.
    """
    is_whole = (rows["model"] == RESNET34) & rows["layer"].isna() & (rows["status"] == OK) & (rows["data"] == TEST_DATA)
    for place, (metric, (name, least, most)) in enumerate(BESIDE_NAS_PTE.items()):
        known = rows[is_whole & (rows["metric"] == metric)]
        theirs = {sequence: float(costs[place]) for sequence, costs in NAS_PTE_COSTS.items()}
        ours = known[known["operator"] == "operator_2"].sort_values("origin", key=lambda origins: origins != "measured")
        if len(ours) and ours["origin"].iloc[0] == "measured":
            own = known[known["operator"].isin(list(theirs)) & (known["origin"] == "measured")]
            theirs |= dict(zip(own["operator"], own["value"], strict=True))
        for word, paper, chosen in (("smallest", least, min), ("largest", most, max)):
            what = f"{name} of {MODELS[RESNET34]} with NAS-PTE's sequences over those with Operator 2, {word}"
            if ours.empty:
                yield unknown("9", what, paper, f"the data has no {name} of {MODELS[RESNET34]} with Operator 2")
                continue
            sequence = chosen(theirs, key=lambda one: theirs[one])
            ratio, origin = theirs[sequence] / float(ours["value"].iloc[0]), str(ours["origin"].iloc[0])
            why = "the paper does not say which operator and which layers it counts"
            yield compared("9", what, ratio, paper, why, f"sequence {sequence[-1]}, counted here", origin=origin)


def of_language(rows: pandas.DataFrame, losses: pandas.DataFrame | None) -> Iterator[Headline]:
    """Yield GPT-2's perplexities at the end of training, and its speedup of training with the operator."""
    known: tuple[Perplexity | None, Perplexity | None] = (None, None)
    if losses is not None:
        every = curves(losses, rows)
        known = perplexities(every[~every["operator"].isin(rows.loc[rows["is_baseline"], "operator"])])
    for (name, paper), found in zip(PERPLEXITIES.items(), known, strict=True):
        what = f"GPT-2, {'original' if name == ORIGINAL else 'with the operator'}: perplexity at the end of its training"
        if found is None:
            yield unknown("10", what, paper, "the data has no curve of such a training", printed=f"{paper:g}")
            continue
        always = f"after {found.steps:,} steps (the paper: {PERPLEXITY_STEPS:,}), of the mean loss of the last fifth of them"
        yield compared("10", what, found.value, paper, always=always, origin=found.origin, places=0, printed=f"{paper:g}")
    what = "GPT-2 with the operator: speedup of its training"
    speeds = training_speedups(rows)
    if speeds.empty:
        yield unknown("10", what, TRAINING_SPEEDUP, "the data has no throughput of trainings", printed=str(TRAINING_SPEEDUP))
    for row in speeds.to_dict("records"):
        always, own = f"{row['operator']} on the {row['device']}", row["origin"]
        printed = str(TRAINING_SPEEDUP)
        yield compared("10", what, row["speedup"], TRAINING_SPEEDUP, always=always, origin=own, places=1, printed=printed)


def beside_alpha_nas(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield the share of FLOPs saved at a loss of at most 0.02 of accuracy on ImageNet, and the speedups."""
    known = scored(rows, FINAL)
    known = known[(known["operator"] != ORIGINAL) & ~known["is_baseline"]]
    within = known[known["original_accuracy"] - known["accuracy"] <= MOST_LOST_FINALLY]
    fewer = {row["model"]: row for row in fewest(within, shares(rows)).to_dict("records")}
    times, best = timed(rows), fastest(rows)
    times = times[times["device"] == A100]
    for model, paper in FEWER_FLOPS.items():
        what = f"{MODELS[model]}: share of FLOPs saved within {MOST_LOST_FINALLY:g} on ImageNet"
        if model in fewer:
            row = fewer[model]
            lost = row["original_accuracy"] - row["accuracy"]
            always = f"{row['operator']}, which loses {lost:.4f}"
            yield compared("αNAS", what, row["fewer_flops"], paper, always=always, origin=row["cost_origin"])
        else:
            yield unknown("αNAS", what, paper)
        for compiler, speed in FASTER[model].items():
            what = f"{MODELS[model]}, {compiler_title(compiler)}, A100: how much faster with the operator of Figure 5"
            found = best[(best["model"] == model) & (best["compiler"] == compiler) & (best["device"] == A100)]
            if found.empty:
                yield unknown("αNAS", what, speed)
            for bar in found.to_dict("records"):
                final = known[(known["model"] == model) & (known["operator"] == bar["operator"])]
                lost = "unknown" if final.empty else f"{(final['original_accuracy'] - final['accuracy']).iloc[0]:.4f}"
                always = f"{bar['operator']}; what it loses on ImageNet is {lost}"
                if model in fewer:
                    name = fewer[model]["operator"]
                    there = (times["place"] == bar["place"]) & (times["compiler"] == compiler)
                    same = times[there & (times["model"] == model) & (times["operator"] == name)]
                    always += "".join(f"; {name}, which saves the FLOPs, has a speedup of {x:.2f}" for x in same["speedup"][:1])
                yield compared("αNAS", what, bar["speedup"] - 1, speed, always=always, origin=bar["latency_origin"])
    (told, (share, _)), *_ = ALPHA_NAS_TOLD.items()
    abstract = ", ".join(f"{flops:.2f} for {network}" for network, (flops, _) in ALPHA_NAS.items())
    why = f"the data has nothing of αNAS; without any loss, the abstract of its paper has {abstract}"
    what = f"αNAS, {told}: share of FLOPs saved within {MOST_LOST_FINALLY:g} on ImageNet"
    yield unknown("αNAS", what, share, why)


def of_ablations(tables: Mapping[str, pandas.DataFrame]) -> Iterator[Headline]:
    """Yield the number of random graphs per canonical graph, over all sizes, for each space."""
    what = "Random samples without canonicalization for each distinct operator"
    printed = f"> {REDUNDANCY} ({SAMPLES:,} for {DISTINCT})"
    found = tables.get("ablation-canonical", pandas.DataFrame(columns=list(OF_CANONICAL)))
    if not set(OF_CANONICAL) <= set(found.columns):
        found = pandas.DataFrame(columns=list(OF_CANONICAL))
    found = found[(found["variant"] == "all rules") & (found["origin"] == "measured") & found["primitives"].isna()]
    rows = found[found["canonical"] > 0].to_dict("records")
    if not rows:
        yield unknown(
            "Table 3", what, REDUNDANCY, "no ablation is among the results (`syno ablate canonical`)", printed=printed
        )
    for row in rows:
        note = f"{row['sampled']:,.0f} random graphs in the space {row['space']}, {row['canonical']:,.0f} of them canonical"
        value = float(row["sampled"] / row["canonical"])
        verdict: Verdict = "holds" if value > REDUNDANCY else "does not hold"
        if row["sampled"] < SAMPLES:
            verdict, note = "no number", f"{note}; too few to compare with the paper's {SAMPLES:,}"
        yield Headline("Table 3", what, value, REDUNDANCY, printed, verdict, "measured", note)


PLACES = (MOBILE_CPU, MOBILE_GPU, A100)
FIGURE_5 = {TVM: (2.06, 1.72, 1.47), INDUCTOR: (1.37, 1.62, 1.60)}
FIGURE_9 = {TVM: (2.13, 1.68, 1.63), INDUCTOR: (0.83, 0.84, 1.38)}
OPERATORS = {"operator_1": (2.68, 2.04, 1.28), "operator_2": (6.19, 3.27, 2.61)}  # in ResNet-18, with TVM
ON_IMAGENET = {TVM: 4.73, INDUCTOR: 1.94}
MOST_LOST = 0.02  # of accuracy on ImageNet
OPERATOR_LOSS = 5.6756  # of GPT-2 with the operator


def headlines(
    rows: pandas.DataFrame, losses: pandas.DataFrame | None = None, ablations: Mapping[str, pandas.DataFrame] | None = None
) -> list[Headline]:
    """Return all headline numbers, computed from a table of measurements, also for devices that the paper lacks.

    Args:
        rows: The table.
        losses: The loss curves, if there are any.
        ablations: The tables of ablations, by name, if there are any.
    """
    rows = ready(rows)
    beside = [*_without_synthesis(rows)]
    return [
        *_end_to_end(rows),
        *_on_imagenet(rows),
        *(beside or [_no_rival(rows)]),
        *of_larger_network(rows),
        *_operator_headlines(rows),
        *_accuracy_headlines(rows),
        *_bars_of_case_study(rows),
        *of_operator_2(rows),
        *_layerwise(rows),
        *beside_nas_pte(rows),
        *_language(rows),
        *of_language(rows, losses),
        *beside_alpha_nas(rows),
        *of_ablations(ablations or {}),
    ]


def _targets(rows: pandas.DataFrame, printed: Mapping[str, tuple[float, ...]]) -> Iterator[tuple[str, str, float | None, Any]]:
    """Yield (compiler, place, the paper's number or None, row), for the paper's places and all others in the table."""
    known = {compiler: dict(zip(PLACES, numbers, strict=True)) for compiler, numbers in printed.items()}
    by_target: dict[tuple[str, str], list[Any]] = {}
    for row in rows.to_dict("records"):
        by_target.setdefault((row["compiler"], row["device"]), []).append(row)
    for compiler, numbers in known.items():
        for device, paper in numbers.items():
            for row in by_target.pop((compiler, device), [None]):
                yield compiler, DEVICES[device] if row is None else row["place"], paper, row
    for (compiler, _), others in by_target.items():
        for row in others:
            yield compiler, row["place"], None, row


def _end_to_end(rows: pandas.DataFrame) -> Iterator[Headline]:
    best = fastest(rows)
    for compiler, place, paper, row in _targets(means(best), FIGURE_5):
        what = f"{compiler_title(compiler)}, {place}: mean speedup of networks"
        if row is None:
            yield unknown("5", what, paper)
            continue
        own = best[(best["place"] == place) & (best["compiler"] == compiler)]
        is_whole = set(own["model"]) == set(MODELS)
        names = ", ".join(map(model_title, own["model"]))
        few = f"of {row['models']} of {len(MODELS)} networks only" if set(own["model"]) < set(MODELS) else f"of {names}"
        yield compared("5", what, float(row["speedup"]), paper, always="" if is_whole else few, origin=origin_of(own))


def _on_imagenet(rows: pandas.DataFrame) -> Iterator[Headline]:
    points = trade_offs(rows)
    points = points[(points["data"] == TEST_DATA) & points["model"].isin(list(MODELS))]  # nothing that only stands for them
    for compiler, paper in ON_IMAGENET.items():
        what = f"{COMPILERS[compiler]}: largest speedup that loses at most {MOST_LOST:g} on ImageNet"
        each = [(own, largest(own, compiler, MOST_LOST)) for _, own in points.groupby("latency_origin")]
        found = [(own, best) for own, best in each if best is not None]
        if not found:
            yield unknown("6", what, paper)
        for own, best in found:
            why = f"this is {_described(best)}"
            alike = own[(own["compiler"] == compiler) & (own["speedup"].round(2) == paper)]
            if not alike.empty:
                why += f"; {paper} is the speedup of " + ", and of ".join(_described(row) for _, row in alike.iterrows())
            yield compared("6", what, float(best["speedup"]), paper, why, origin=origin_of(points.loc[[best.name]]))


def _without_synthesis(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield the fastest networks without synthesis by the rules of Figures 5 and 6, beside operators by the same rules."""
    both = pandas.concat([fastest(rows, synthesized=one) for one in (True, False)], ignore_index=True)
    both = both.assign(lost=both["original_accuracy"] - both["accuracy"])
    yield from _rivals("5", f"largest speedup that loses less than {ON_PROXY}", both)
    points = trade_offs(rows)
    points = points[(points["data"] == TEST_DATA) & points["model"].isin(list(MODELS)) & (points["operator"] != ORIGINAL)]
    rule = f"largest speedup that loses at most {MOST_LOST:g} on ImageNet"
    yield from _rivals("6", rule, points[points["lost"] <= MOST_LOST])


def _bars_of_case_study(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield the fastest networks without synthesis of the paper's case study (Figure 8), beside Operator 1."""
    found = case_study(rows)
    found = found[found["model"] == CASE]
    keys = ["place", "compiler", "accuracy_origin"]
    originals = found[found["operator"] == ORIGINAL][[*keys, "accuracy"]].rename(columns={"accuracy": "original_accuracy"})
    both = found[found["operator"].isin([INT8, STACKED, CASE_OPERATOR])].merge(originals, on=keys, how="left")
    both = both.assign(lost=both["original_accuracy"] - both["accuracy"], is_baseline=both["operator"] != CASE_OPERATOR)
    within = both[(both["lost"] <= MOST_LOST) | ~both["is_baseline"]]
    yield from _rivals("8", f"largest speedup that loses at most {MOST_LOST:g} on ImageNet", within)


def _rivals(figure: str, rule: str, within: pandas.DataFrame) -> Iterator[Headline]:
    """Yield the fastest network without synthesis that a rule allows in each place, beside the fastest with an operator.

    Args:
        figure: The number of the figure that uses the rule.
        rule: The rule, as text.
        within: The rows of `timed` that the rule allows, with the column `lost` (of accuracy).
    """
    keys = ["model", "compiler", "place"]
    best = within.sort_values("speedup", kind="stable").drop_duplicates([*keys, "is_baseline"], keep="last")
    ours = {tuple(row[key] for key in keys): row for row in best[~best["is_baseline"]].to_dict("records")}
    known = best[best["is_baseline"]]
    for row in ordered(known, compiler=COMPILERS, device=DEVICES, model=MODELS).to_dict("records"):
        what = f"{model_title(row['model'])} without synthesis, {compiler_title(row['compiler'])}, {row['place']}: {rule}"
        other = ours.get(tuple(row[key] for key in keys))
        beside = "no operator is there" if other is None else f"{operator_title(other['operator'])} has {other['speedup']:.2f}"
        note = f"{operator_title(row['operator'])}, which loses {row['lost']:.4f}; {beside}"
        origin = origin_of(pandas.DataFrame([row]))
        printed = AS_A_BAR if figure == "8" and row["device"] in PLACES else NOT_IN_PAPER
        yield compared(figure, what, float(row["speedup"]), None, always=note, origin=origin, printed=printed)


def _no_rival(rows: pandas.DataFrame) -> Headline:
    """Return the headline that says why no network without synthesis is compared with operators."""
    why = "neither the paper nor its data has one, but INT8 and a stacked convolution in Figure 8 and layers in Figure 9"
    if rows["role"].isin(KNOWN).any():
        why = "those here have no latency beside the original's, or lose more"
    what = "Networks without synthesis (pruned, narrower, known layers, integers), within the same loss"
    return unknown("5", what, None, why, printed=NOT_IN_PAPER)


def _described(row: pandas.Series) -> str:
    return f"{row['operator']} in {model_title(row['model'])} on the {row['place']}, which loses {row['lost']:.4f}"


def _operator_headlines(rows: pandas.DataFrame) -> Iterator[Headline]:
    times = timed(rows)
    times = times[(times["model"] == CASE) & times["operator"].isin(list(OPERATORS))].dropna(subset=["speedup"])
    for operator, printed in OPERATORS.items():
        own = times[(times["operator"] == operator) & ((times["compiler"] == TVM) | ~times["device"].isin(PLACES))]
        for compiler, place, paper, row in _targets(own, {TVM: printed}):
            name = operator.replace("_", " ").capitalize()
            what = f"{name}, {compiler_title(compiler)}, {place}: speedup of {MODELS[CASE]}"
            if row is None:
                yield unknown("8", what, paper)
                continue
            why = f"{row['original_ms']:.4f} ms over {row['latency_ms']:.4f} ms is {row['speedup']:.4f}"
            yield compared("8", what, float(row["speedup"]), paper, why, origin=str(row["latency_origin"]))


def _accuracy_headlines(rows: pandas.DataFrame) -> Iterator[Headline]:
    known = scored(rows, FINAL)
    found = known[(known["model"] == CASE) & (known["operator"] == "operator_1") & (known["data"] == "imagenet")]
    what, paper = f"Operator 1: accuracy of {MODELS[CASE]} on ImageNet", IN_CASE_STUDY["operator_1"]
    if found.empty:
        yield unknown("8", what, paper)
    else:
        yield compared("8", what, float(found.iloc[0]["accuracy"]), paper, origin=str(found.iloc[0]["accuracy_origin"]))


def _layerwise(rows: pandas.DataFrame) -> Iterator[Headline]:
    over = best_over_best(layers(rows))
    for compiler, place, paper, row in _targets(over[over["model"] == RESNET34], FIGURE_9):
        what = f"{compiler_title(compiler)}, {place}: our best over NAS-PTE's best, mean over layers"
        if row is None:
            yield unknown("9", what, paper)
            continue
        why = f"it is {row['speedup_with_original']:.2f} if the convolution itself counts among NAS-PTE's candidates"
        always = "" if row["layers"] == len(LAYERS) else f"of {row['layers']} of {len(LAYERS)} layers only"
        yield compared("9", what, float(row["speedup"]), paper, why, always, origin=str(row["latency_origin"]))


def _language(rows: pandas.DataFrame) -> Iterator[Headline]:
    found = scores(rows)
    for what, value, paper in (
        ("GPT-2 as it is: loss after 30 minutes, from its log", found.logged, LOSS),
        ("GPT-2 with the operator: loss after 30 minutes", found.operator, OPERATOR_LOSS),
    ):
        yield unknown("10", what, paper) if value is None else compared("10", what, value, paper, origin="artifact")


def origin_of(table: pandas.DataFrame) -> str:
    """Return the origins of the latencies and accuracies in a table, as text."""
    latency, accuracy = (
        sorted({str(origin) for column in columns if column in table for origin in table[column].dropna()})
        for columns in (("latency_origin",), ("accuracy_origin", "original_origin"))
    )
    if not accuracy or latency == accuracy:
        return ", ".join(latency)
    return f"latency {', '.join(latency)}; accuracy {', '.join(accuracy)}"


def headline_table(headlines: list[Headline]) -> pandas.DataFrame:
    """Return the headlines as a table; numbers that were not computed, or that the paper does not print, are missing cells.

    The column `difference` is the difference from the paper's number in percent; it is missing beside a bound.
    """
    table = pandas.DataFrame(headlines, columns=list(Headline._fields)).astype({"computed": float, "paper": float})
    is_compared = table["verdict"].isin(["same", "differs"]) & (table["paper"] != 0)
    difference = percent(table["computed"], table["paper"]).where(is_compared)
    return table.assign(same=[one.same for one in headlines], difference=difference)


def has_own(table: pandas.DataFrame) -> bool:
    """Return whether any headline number in the table was computed from own measurements."""
    return bool(table["origin"].str.contains("measured").any())


def in_percent(difference: float) -> str:
    """Return a difference in percent as text, with its sign; "–" if it is unknown."""
    return "–" if isnan(difference) else f"{difference:+.1f} %"


def headline_texts(table: pandas.DataFrame) -> tuple[list[Row], list[str]]:
    """Return the headline numbers for printing: the rows of a table, and the notes below it."""
    found = table.to_dict("records")
    rows: list[Row] = [
        {
            "figure": row["figure"],
            "number": row["what"],
            "computed": "–" if isnan(row["computed"]) else digits(row["computed"], row),
            "paper": row["printed"] or "–",
            **({"difference": in_percent(row["difference"])} if has_own(table) else {}),
            "agrees": row["verdict"],
            "origin": row["origin"] or "–",
        }
        for row in found
    ]
    notes = [f"- {row['what']}: {row['note']}" for row in found if row["note"]]
    return rows, [*notes, *([f"- {GUARD}"] if (table["origin"].str.contains("artifact")).any() else [])]


def digits(value: float, row: Mapping[Any, Any]) -> str:
    """Return a computed value with the paper's number of decimals, at least two; four for small values the paper lacks."""
    if isnan(row.get("paper", nan)):
        return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.2f}"
    decimals = f"{row['paper']:g}".partition(".")[2]
    return f"{value:.{max(2, len(decimals))}f}"
