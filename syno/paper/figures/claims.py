"""The numbers in the paper's text, compared with those computed from the table of measurements.

Source: paper, sections 9.2 to 9.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas

from syno.base.files import ORIGINAL
from syno.paper.figures.comparisons import MOST_LOST_FINALLY, OF_NAS_PTE, fewest, shares
from syno.paper.figures.headline import Headline, Verdict, below, compared, unknown
from syno.paper.figures.language import curves, perplexities, training_speedups
from syno.paper.figures.mixture import PREFERRED, TARGET, accuracies, scored, timed
from syno.paper.figures.networks import fastest, geometric_mean
from syno.paper.figures.titles import compiler_title, compilers_of
from syno.paper.joined import FINAL, PROXY
from syno.paper.numbers import A100, ALPHA_NAS, ALPHA_NAS_TOLD, CASE, MODELS, PERPLEXITIES, PERPLEXITY_STEPS, TRAINING_SPEEDUP
from syno.results.layers import LAYERED, LAYERS
from syno.results.measurement import OK

IN_WORDS = "in words"
LOST_BY_OPERATOR_2, SHARE_OF_OPERATOR_2 = 0.015, 0.25  # of accuracy, and of the parameters, in ResNet-18
BESIDE_NAS_PTE = {"flops": ("FLOPs", 1.76, 4.32), "parameters": ("parameters", 1.80, 9.50)}  # least and largest, over layers
FEWER_FLOPS = {LAYERED: 0.63, "efficientnet_v2_s": 0.37}  # within 0.02 on ImageNet
FASTER = {LAYERED: {"tvm": 0.56, "inductor": 0.48}, "efficientnet_v2_s": {"tvm": 0.12, "inductor": 0.07}}  # on the A100
OF_CANONICAL = ("space", "variant", "primitives", "sampled", "canonical", "origin")  # columns of the table of the ablation
SAMPLES, DISTINCT, REDUNDANCY = 6_452, 86, 70  # random samples without canonicalization, and the operators among them


def of_larger_network(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield ResNet-34 with the operator of the largest mean speedup over the original ResNet-18, among those more accurate."""
    known = accuracies(rows, FINAL)
    found = known[(known["model"] == CASE) & (known["operator"] == ORIGINAL)]
    smaller = {(row["data"], row["accuracy_origin"]): row["accuracy"] for row in found.to_dict("records")}
    gains: dict[str, tuple[float, str]] = {}
    for row in scored(rows, FINAL).to_dict("records"):
        own, keys = row["accuracy_origin"], [(row["data"], origin) for origin in PREFERRED[row["accuracy_origin"]]]
        theirs = next((key for key in keys if key in smaller), None)
        if row["model"] == LAYERED and row["operator"] != ORIGINAL and not row["is_baseline"] and theirs is not None:
            gains[row["operator"]] = row["accuracy"] - smaller[theirs], ", ".join(dict.fromkeys([own, theirs[1]]))
    times = timed(rows)
    originals = times[(times["model"] == CASE) & (times["operator"] == ORIGINAL)][[*TARGET, "latency_ms"]]
    ours = times[(times["model"] == LAYERED) & times["operator"].isin([name for name, (gain, _) in gains.items() if gain > 0])]
    both = ours.merge(originals.rename(columns={"latency_ms": "smaller_ms"}), on=TARGET)
    both = both.assign(ratio=both["smaller_ms"] / both["latency_ms"])
    name = f"{MODELS[LAYERED]} with an operator"
    for compiler in dict.fromkeys(["tvm", "inductor", *compilers_of(both["compiler"])]):
        what = f"{name}, {compiler_title(compiler)}: mean speedup over the less accurate original {MODELS[CASE]}"
        own = both[both["compiler"] == compiler]
        whole = own[own.groupby("operator")["place"].transform("nunique") == own["place"].nunique()]
        if whole.empty:
            yield unknown("text", what, None, printed=IN_WORDS)
            continue
        best = str(whole.groupby("operator")["ratio"].agg(lambda values: geometric_mean(list(values))).idxmax())
        found = whole[whole["operator"] == best]
        each = ", ".join(f"{row['ratio']:.2f} on the {row['place']}" for row in found.to_dict("records"))
        latency = ", ".join(sorted(set(found["latency_origin"])))
        told = f"{best}: {each}"
        yield compared("text", what, geometric_mean(list(found["ratio"])), None, always=told, origin=latency, printed=IN_WORDS)
        gain, origin = gains[best]
        what = f"{name}, {compiler_title(compiler)}: accuracy on the final data set above the original {MODELS[CASE]}'s"
        yield compared("text", what, gain, None, always=best, origin=origin, printed=IN_WORDS)


def of_operator_2(rows: pandas.DataFrame) -> Iterator[Headline]:
    """Yield what Operator 2 loses in ResNet-18, and the share of the parameters that it leaves."""
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
    """Yield the smallest and the largest reduction of FLOPs and parameters of a layer, beside NAS-PTE's least."""
    is_layer = (rows["model"] == LAYERED) & rows["layer"].isin(list(LAYERS)) & (rows["status"] == OK)
    for metric, (name, least, largest) in BESIDE_NAS_PTE.items():
        known = rows[is_layer & (rows["metric"] == metric) & (rows["operator"] != ORIGINAL)]
        is_theirs = known["operator"].str.startswith(OF_NAS_PTE)
        theirs = known[is_theirs].groupby("layer")["value"].min()
        ours = known[~is_theirs & ~known["is_baseline"]].groupby("layer")["value"].min()
        ratios = (theirs / ours).dropna()
        origin, few = ", ".join(sorted(set(known["origin"]))), f"over {len(ratios)} of {len(LAYERS)} layers"
        for word, paper, found in (("smallest", least, ratios.min()), ("largest", largest, ratios.max())):
            what = f"{word.capitalize()} reduction of a layer's {name}, NAS-PTE's least over ours"
            if ratios.empty:
                yield unknown("9", what, paper, "the data has no costs of layers")
            else:
                yield compared("9", what, float(found), paper, always=few, origin=origin)


def of_language(rows: pandas.DataFrame, losses: pandas.DataFrame | None) -> Iterator[Headline]:
    """Yield GPT-2's perplexities at the end of its training, and how many times as fast it trains with the operator."""
    known = (None, None) if losses is None else perplexities(curves(losses, rows))
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
    """Yield the FLOPs that are saved within 0.02 of accuracy on ImageNet, and the speedups beside them."""
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
                continue
            (bar, *_) = found.to_dict("records")
            final = known[(known["model"] == model) & (known["operator"] == bar["operator"])]
            lost = "unknown" if final.empty else f"{(final['original_accuracy'] - final['accuracy']).iloc[0]:.4f}"
            always = f"{bar['operator']}; what it loses on ImageNet is {lost}"
            if model in fewer:
                name = fewer[model]["operator"]
                same = (times["model"] == model) & (times["operator"] == name) & (times["compiler"] == compiler)
                always += "".join(
                    f"; {name}, which saves the FLOPs, has a speedup of {x:.2f}" for x in times[same]["speedup"][:1]
                )
            yield compared("αNAS", what, bar["speedup"] - 1, speed, always=always, origin=bar["latency_origin"])
    (told, (share, _)), *_ = ALPHA_NAS_TOLD.items()
    abstract = ", ".join(f"{flops:.2f} for {network}" for network, (flops, _) in ALPHA_NAS.items())
    why = f"the data has nothing of αNAS; without any loss, the abstract of its paper has {abstract}"
    what = f"αNAS, {told}: share of FLOPs saved within {MOST_LOST_FINALLY:g} on ImageNet"
    yield unknown("αNAS", what, share, why)


def of_ablations(tables: Mapping[str, pandas.DataFrame]) -> Iterator[Headline]:
    """Yield how many random samples there are for each canonical one, of all sizes together, for each space."""
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
