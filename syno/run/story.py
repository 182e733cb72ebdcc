"""A run in words: all sentences about its networks, as the page, `syno top`, `syno watch` and `syno.speed_up` show them.

`syno.run.goal`, `syno.run.rivals` and `syno.run.speedups` have the numbers. `syno.base.interval.times_as_fast` words speedups.

>>> from syno.run.goal import judge
>>> goal = Goal(speedup=1.5, lose_at_most=0.01)
>>> verdict_text(judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004, -0.001, 0.009)))
'meets: 1.73 times as fast (1.70 to 1.76); accuracy -0.4 points (-0.9 to +0.1)'
>>> verdict_text(judge(goal, ACCURACY, Interval(1.41, 1.38, 1.44), Interval(0.004)))
'misses by 0.09 in speedup: 1.41 times as fast (1.38 to 1.44); accuracy -0.4 points'
>>> verdict_text(judge(goal, ACCURACY, Interval(1.52, 1.47, 1.57), Interval(0.004, -0.001, 0.009))).split(":")[0]
'may meet (the interval of the speedup contains the goal)'
>>> verdict_text(judge(goal, ACCURACY, Interval(1.73, 1.70, 1.76), Interval(0.004), seeds=1))
'may meet (one seed: no interval of the accuracy): 1.73 times as fast (1.70 to 1.76); accuracy -0.4 points'
>>> verdict_text(judge(Goal(lose_at_most=0.01), ACCURACY, None, Interval(0.14, -0.11, 0.39))).split(":")[0]
'may meet (the interval of the accuracy contains the goal, though the measured accuracy misses it)'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite, isinf, isnan
from typing import NamedTuple

from syno.base.files import ORIGINAL
from syno.base.interval import NONE_FASTER, Interval, times_as_fast
from syno.base.text_tables import plural
from syno.model.networks import has_lower_precision, is_converted
from syno.run.goal import (
    ROUNDING,
    SCREENED,
    Screened,
    nearest_screened,
    order_of_trial,
    speedup_in,
    verdict_on_trial,
)
from syno.run.rivals import FOUND, Comparison, best_of, compared
from syno.run.run import LayerChoice, LayerOption, Run
from syno.run.speedups import APART, IN_SEARCH, IN_TURNS, BestAgainstBest, best_against_best
from syno.run.values import SCORE, SPEED, STATES, Latency, Part, Score, Speedup, Target, Trial, Verdict, best_first, by_target
from syno.search.goal import COST_WORDS, COSTS, Goal
from syno.train.metric import ACCURACY, METRICS, OF_ORIGINAL, Metric, score_of

SELECTED_BY = "the speedup is the one of the search, by which it was selected, and may be too high"
TRAINED = ("complete", "pruned", "paused")  # outcomes of trials whose operators may meet the goal
WITHIN = 0.01  # share of the original's score that may be lost, where neither a goal nor the metric says it
WARNED_MAJORITY = 0.9  # share of the labels, above which a network that learnt nothing is near any other one
SAYS_LITTLE = (
    "an operator that makes a network learn nothing loses little accuracy; balance the data, leave out the most frequent label "
    "(ignore_index), or score operators in a function of your own"
)
FINDS = {"most_accurate": "the most accurate", "fastest": "the fastest", "front": "the best trade-offs of score and speed"}
KINDS = {FOUND: "with a synthesized operator", "rival": "without synthesis", "baseline": "with a known operator"}
VERBS = {  # of one trial, and of several
    "meets": ("meets it", "meet it"), "may meet": ("may meet it",) * 2, "misses": ("misses it", "miss it"),
    "unknown": ("is uncertain", "are uncertain"),
}  # fmt: skip


class Line(NamedTuple):
    """A sentence in three parts: text, the name of a network (a link to its card on the page; may be ""), and more text."""

    before: str
    operator: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The whole sentence, without a link."""
        return "".join(self)


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in words: its state, the shortfalls or doubts, and the measured numbers."""
    misses = [_miss(part, verdict) for part in verdict.parts if part.state == "misses"]
    missed = f" by {' and '.join(misses)}" if misses and verdict.state == "misses" else ""
    measured = "; ".join(_measured(part, verdict.metric) for part in verdict.parts)
    return f"{verdict.state}{missed}{doubts(verdict)}: {measured}"


def doubts(verdict: Verdict) -> str:
    """Return a clause in brackets: why the goal may be met, for the state "may meet"; "" in other states."""
    if verdict.state != "may meet":
        return ""
    open_parts = [part for part in verdict.parts if part.state != "meets"]
    unknown = [_no_interval(part, verdict) for part in open_parts if not part.measured.is_certain]
    around = [_name(part, verdict.metric) for part in open_parts if part.measured.is_certain]
    missed = [_name(part, verdict.metric) for part in verdict.parts if part.missing > ROUNDING]
    but = f", though the measured {' and '.join(missed)} misses it" if missed else ""
    contains = [f"the interval of the {' and of the '.join(around)} contains the goal{but}"] if around else []
    return f" ({'; '.join([*contains, *unknown])})"


def reason(network: Score) -> str:
    """Return the verdict on a network in words, with the reasons to doubt its numbers; "" without a verdict."""
    verdict = network.verdict
    if verdict is None:
        return ""
    text = verdict_text(verdict)
    if network.timed == IN_SEARCH and any(part.name == SPEED for part in verdict.parts):
        text += f"; {SELECTED_BY}"
    return text if verdict.among == 1 else f"{text}; chosen among {verdict.among} networks, which the intervals count"


def _name(part: Part, metric: Metric) -> str:
    return metric.name if part.name == SCORE else COST_WORDS.get(part.name, part.name)


def _measured(part: Part, metric: Metric) -> str:
    name, value = _name(part, metric), part.measured.value
    if part.name == SPEED:
        return times_as_fast(part.measured) if isfinite(value) else "speedup not measured"
    if part.name != SCORE:
        return f"{value:.2f} of the {name}" if isfinite(value) else f"{name} unknown"
    if isnan(value) or value == -inf:
        return f"{name} not known"
    sign = -1 if metric.more_is_better else 1
    shown, *ends = (metric.steps_text(sign * end, "+z") for end in part.measured)
    low, high = ends if sign > 0 else ends[::-1]
    return f"{name} {metric.with_unit(shown)}" + (f" ({low} to {high})" if part.measured.is_certain else "")


def _miss(part: Part, verdict: Verdict) -> str:
    """Return the shortfall of a missed requirement in words, such as `0.09 in speedup`."""
    name, metric, excess = _name(part, verdict.metric), verdict.metric, part.measured.value - (part.required or 0.0)
    if part.name == SPEED:
        return f"{-excess:.2f} in speedup"
    if part.name != SCORE:
        return f"{excess:.2f} of the original's {name}"
    doubt = f" ({_no_interval(part, verdict)})" if verdict.seeds == 1 and not part.measured.is_certain else ""
    return f"{metric.with_unit(metric.steps_text(excess))} of {name}{doubt}"


def _no_interval(part: Part, verdict: Verdict) -> str:
    """Return the reason why a measured number has no confidence interval, in words."""
    name, seeds = _name(part, verdict.metric), verdict.seeds
    if part.name == SPEED:
        return "no interval of the speedup"
    if seeds == 1:
        return f"one seed: no interval of the {name}"
    why = ", as with one seed" if seeds is None else f": the scores of {seeds} seeds are equal, or the original's are too few"
    return f"no interval of the {name}{why}"


def speed_text(speedup: Interval) -> str:
    """Return a speedup with its 95 % interval in words, and a note if the interval contains 1."""
    return times_as_fast(speedup, level="95 %: ", doubt="; the interval contains 1" if speedup.low <= 1 <= speedup.high else "")


def goal_speedup(network: Score) -> str:
    """Return the speedup of a network's verdict in words, with its interval; "" if it is not known.

    A speedup that was measured only in the search says so.
    """
    when = " in the search" if network.timed == IN_SEARCH else ""
    return "" if isnan(network.speedup.value) else f"{times_as_fast(network.speedup, 'x')}{when}"


def none_is_faster(speedups: Iterable[Speedup]) -> list[str]:
    """Return a sentence for each compiler and device with which no synthesized operator is faster than the original."""
    known: dict[Target, list[Speedup]] = {}
    for one in speedups:
        if one.role == FOUND and not isnan(one.ratio.value):
            known.setdefault(one.target, []).append(one)
    bests = [max(rows, key=lambda one: one.ratio.value) for rows in known.values()]
    return [_none_faster(one.operator, one.ratio, f"{one.compiler} on {one.device}") for one in bests if one.ratio.value <= 1]


def _none_faster(name: str, speedup: Interval, place: str) -> str:
    doubt = ", an interval that contains 1" if speedup.is_certain and speedup.high > 1 else ""
    return f"{NONE_FASTER.capitalize()} with {place}: the fastest, {name}, is {times_as_fast(speedup)}{doubt}."


def fastest_in_selection(compiler: str, device: str, latency_ms: float, speedup: float | None) -> str:
    """Return a clause: a selected operator is the fastest with this compiler and device, or no operator is faster there."""
    first = f"{NONE_FASTER}; the fastest" if speedup is not None and speedup <= 1 else "the fastest"
    fast = "" if speedup is None else f", {times_as_fast(speedup)} as the original"
    return f"{first} with {compiler} on {device}: {latency_ms:.4g} ms{fast}"


def best_compilers(pair: BestAgainstBest) -> Line:
    """Return the comparison of the fastest network with the original, each with the compiler that suits it best."""
    none = "" if pair.speedup.value > 1 else f"{NONE_FASTER}: "
    return Line(
        f"On {pair.device}, the original is faster with {pair.compiler} ({pair.original_ms:.4g} ms) than with "
        f"{' and '.join(pair.slower)} ({pair.slower_ms:.4g} ms). Best compiler against best compiler, {none}",
        pair.operator,
        f" with {pair.own_compiler} is {times_as_fast(pair.speedup)}.",
    )


def goal_text(goal: Goal, metric: Metric | None = None) -> str:
    """Return a goal in words, with the unit of the score for a metric of a user's own task."""
    wanted = []
    if goal.speedup is not None:
        wanted.append(f"at least {times_as_fast(goal.speedup, form='g')} as the original with {goal.place}")
    if goal.lose_at_most is not None:
        is_own = metric is not None and metric.margin is None
        wanted.append(
            f"at most {metric.amount(goal.lose_at_most)} of the {metric.name} lost"
            if metric is not None and is_own
            else f"at most {goal.lose_at_most:g} of the score lost"
        )
    wanted += [f"at most {most:g} of the {COST_WORDS[COSTS[option]]}" for option, most in goal.limits.items()]
    find = FINDS[goal.find or "front"]
    return f"{find} network, {', '.join(wanted)}" if wanted else find


def answer(goal: Goal, judged: Sequence[Score], metric: Metric | None = None, networks: Sequence[Score] = ()) -> list[str]:
    """Return the answer to the goal, in sentences: the operators that meet it, or the nearest operator and advice.

    Args:
        goal: the goal.
        judged: the networks, with their verdicts.
        metric: the metric of the scores; None if it is not known.
        networks: all trained networks. With rivals, the answer begins with the best network and the gain of synthesis.
    """
    own = [one for one in judged if one.role == FOUND]
    lines = [f"Goal: {goal_text(goal, metric)}."]
    if metric is not None:
        lines += [line.text for line in beside_rivals(goal, metric, networks)]
    if not own:
        return [*lines, "No operator was trained and measured yet."]
    fastest = max((one for one in own if not isnan(one.speedup.value)), key=lambda one: one.speedup.value, default=None)
    if fastest is not None and not fastest.speedup.value > 1:
        lines.append(_none_faster(fastest.operator, fastest.speedup, goal.place))
    for state in STATES[:2]:
        lines += [f"{one.operator} {reason(one)}." for one in own if one.state == state]
    if not any(one.state == "meets" for one in own):
        nearest = min(own, key=lambda one: one.missing)
        if nearest.state != "may meet":
            lines.append(f"None of {len(own)} meets it. The nearest, {nearest.operator}, {reason(nearest)}.")
        lines.append(_help(goal, nearest))
    return lines


def _help(goal: Goal, judged: Score) -> str:
    if judged.state == "may meet":
        if goal.lose_at_most is not None and not (isfinite(judged.lost.low) and isfinite(judged.lost.high)):
            return "Without an interval of the score nothing is certain: train with more seeds (train: seeds)."
        return "More seeds (train: seeds) and longer timing (tune: latency: least_ms) would narrow the intervals."
    return help_with([name for name, is_missed in (
        (SPEED, goal.speedup is not None and judged.speedup.value < goal.speedup),
        (SCORE, goal.lose_at_most is not None and judged.lost.value > goal.lose_at_most),
    ) if is_missed])  # fmt: skip


def help_with(binding: Sequence[str]) -> str:
    """Return advice for the requirements that are not met."""
    if SPEED in binding and SCORE in binding:
        return "Both speed and score bind: search longer (study: n_trials), or ask for less of one of the two."
    if SPEED in binding:
        return (
            "The speed binds: ask for less (goal: speedup), lower the bounds of the costs (relative_budget: most_flops), or "
            "search longer (study: n_trials)."
        )
    if SCORE in binding:
        return "The score binds: allow a larger loss (goal: lose_at_most), train longer, or search longer (study: n_trials)."
    return "Search longer (study: n_trials), or ask for less."


def no_operator_meets(nearest: Verdict) -> str:
    """Return the sentence that no selected operator met the goal in the search, with the nearest verdict and advice."""
    return f"No operator of the search meets the goal; the nearest {verdict_text(nearest)}. {help_with(nearest.binding)}"


def beside_rivals(goal: Goal, metric: Metric, networks: Sequence[Score]) -> list[Line]:
    """Return sentences on the best of all networks and the gain of synthesis over rivals; [] without rivals."""
    if not any(one.role == "rival" for one in networks):
        return []
    best, comparison = best_of(networks, goal, metric), compared(networks, goal, metric)
    lines = [] if best is None else [_best_of_all(best, metric)]
    if best is not None and best.among > 1:
        lines.append(Line(
            f"It was chosen among {best.among} networks: its intervals here, and whether it meets the goal, count that (95 % "
            "for all of these together)."
        ))  # fmt: skip
    return lines if comparison is None else [*lines, Line(worth(comparison, metric))]


def _best_of_all(best: Score, metric: Metric) -> Line:
    state = "is the nearest to the goal"
    if best.verdict is not None and best.verdict.state in STATES[:2]:
        state = f"{best.verdict.state} the goal{doubts(best.verdict)}"
    speed = "speedup not measured" if isnan(best.speedup.value) else times_as_fast(best.speedup)
    difference = metric.difference_text(*best.difference)
    score = f"{metric.name} {metric.text(best.score or 0.0)}{'' if difference is None else f': {difference}'}"
    return Line("The best of all networks: ", best.operator, f", {KINDS[best.role]}, {state}: {speed}, {score}.")


def worth(comparison: Comparison, metric: Metric) -> str:
    """Return two sentences: the gain of synthesis over the front of rivals, and what its interval takes into account."""

    def named(network: Score) -> str:  # the table has the intervals
        return with_numbers(network, metric, network.speedup.value)

    own, gain = named(comparison.synthesized), comparison.gain
    if comparison.faster is None:
        return f"Nothing without synthesis is as fast as {own}: the fastest is {named(comparison.slower)}."
    rival, size = named(comparison.faster), metric.with_unit(metric.steps_text(abs(gain.value)))
    if comparison.slower is not comparison.faster:
        at_its_speed = f"{metric.name} {metric.text(comparison.score)} at this speed"
        rival = f"the front between {named(comparison.slower)} and {rival}, {at_its_speed},"
    way = "better" if gain.value < 0 else "worse"
    if not gain.is_certain:
        return (
            f"Without synthesis, {rival} is {size} {way} than {own}; there is no interval, so nothing is certain: train with "
            "more seeds (train: seeds)."
        )
    among = f"of {comparison.synthesized.among} with synthesis, and of {comparison.others} without"
    counts = f" The interval counts that both are the best: {among}."
    low, high = (metric.steps_text(end, "+z") for end in (gain.low, gain.high))
    if gain.low > 0:
        sentence = (
            f"Synthesis is worth {size} (95 %: {low} to {high}): {own} beats {rival.removesuffix(',')}, the best without it."
        )
    elif gain.high < 0:
        low, high = (metric.steps_text(-end, "+z") for end in (gain.high, gain.low))
        sentence = f"Synthesis adds nothing here: {rival} is {size} better than {own} (95 %: {low} to {high})."
    else:
        unknown = "It is not shown that synthesis adds anything here"
        sentence = f"{unknown}: {rival} is {size} {way} than {own} (95 % of the gain: {low} to {high})."
    return sentence + counts


def with_numbers(network: Score, metric: Metric, speedup: Interval | float) -> str:
    """Return the name of a network with its speedup (and the speedup's interval, if it has one) and its score."""
    return f"{network.operator} ({times_as_fast(speedup, 'x')}, {metric.name} {metric.text(network.score or 0.0)})"


def rival_text(name: str, speedup: Interval | None, score: str, seeds: int) -> str:
    """Return the speedup and score of a rival in words, while other rivals still train. `score` is in words."""
    fast = "speed not known" if speedup is None else times_as_fast(speedup)
    return f"{name}: {fast}, {score} ({plural(seeds, 'seed')})"


def end_of_search(goal: Goal, trials: Sequence[Trial], n_trials: int) -> str | None:
    """Return a sentence on a search that ended before its number of trials, with the nearest operator; None for others."""
    counted = sum(trial.outcome in (*TRAINED, "failed") for trial in trials)
    out = [trial for trial in trials if trial.outcome == SCREENED]
    nothing = nothing_meets(goal, trials)
    if not out or (counted >= n_trials and nothing is None):
        return None
    kinds = Counter(trial.message.partition(":")[0] for trial in out)
    why = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    if failed := sum(trial.outcome == "failed" for trial in trials):
        why += f"; {failed} failed in training"
    advice = help_with([SPEED] if kinds["too slow"] >= len(out) / 2 else [])
    is_limit = len(out) >= goal.screened_for(n_trials)
    end = "goal: most_screened is when a search ends" if is_limit else "No other operator is left in the space"
    if nothing is not None:
        return f"{nothing} ({why}). {advice} {end}"
    return (
        f"{counted} of {n_trials} trials were trained when the search ended, since {len(out)} operators cannot meet the goal "
        f"({why}): {_nearest(goal, out)}. {advice} {end}"
    )


def nothing_meets(goal: Goal, trials: Sequence[Trial]) -> str | None:
    """Return a sentence on a search that trained no operator, with the one nearest to the goal; None if it trained any."""
    outcomes = {trial.outcome for trial in trials}
    return None if outcomes & {*TRAINED} or SCREENED not in outcomes else f"nothing meets the goal: {_nearest(goal, trials)}"


def _nearest(goal: Goal, trials: Iterable[Trial]) -> str:
    """Return the distance of the nearest screened operator from the goal, in words."""
    out = nearest_screened(goal, trials)
    best = max((one for one in out if one.timed is not None), key=lambda one: one.speedup.value, default=None)
    if best is None:
        return _smallest(goal, out)
    of = f"the fastest of {len(out)}" if len(out) > 1 else "the only operator"
    verb = "is" if best.timed == IN_TURNS else "is predicted to be"
    slower = "" if best.speedup.value > 1 else f"{NONE_FASTER}; "
    return f"{slower}{of} {verb} {times_as_fast(best.speedup)}, and the goal is {goal.least_speedup:g}"


def _smallest(goal: Goal, out: Sequence[Screened]) -> str:
    """Return a clause: the cost limit that the nearest operator exceeds, or the reason why no speedup was measured."""
    for option, most in goal.limits.items():
        share = out[0].trial.metrics.get(f"{COSTS[option]}_share")
        if share is not None and share > most:
            of = f"the smallest of {len(out)}" if len(out) > 1 else "the only operator"
            return f"{of} has {share:.3g} of the original's {COST_WORDS[COSTS[option]]}, and the goal is at most {most:g}"
    return f"none of {len(out)} operators could be measured; the last: {out[-1].trial.message}"


def goal_so_far(name: str, trials: Sequence[Trial], goal: Goal) -> str:
    """Return how many trained operators of a search meet the goal, and the verdict on the nearest. `name` names the search."""
    judged = [(verdict_on_trial(goal, trial.metrics), trial) for trial in best_first(trials)]
    if not judged:
        speeds = [one for trial in trials if (one := speedup_in(trial.metrics)) is not None]
        fastest = max(speeds, key=lambda one: one.value, default=None)
        none = f"{NONE_FASTER}: " if fastest is not None and not fastest.value > 1 else ""
        measured = "" if fastest is None else f"; {none}the fastest operator so far is {times_as_fast(fastest)}"
        return f"goal: no trial is complete yet{measured}"
    counts = Counter(one.state for one, _ in judged)
    nearest, trial = min(judged, key=lambda pair: order_of_trial(goal, pair[1].metrics))
    states = ", ".join(f"{counts[state]} {VERBS[state][counts[state] != 1]}" for state in STATES if counts[state])
    verdict = f"{name}_{trial.number}, {verdict_text(nearest)}"
    return f"goal: of {plural(len(judged), 'complete trial')}, {states}; the nearest, {verdict}"


def measured_in_trial(metrics: Mapping[str, float]) -> Iterator[str]:
    """Yield the score, the speedup and the costs of a trial in short words, as far as they were measured."""
    metric = METRICS.get(score_of(metrics) or "")
    if metric is not None:
        original = metrics.get(f"{OF_ORIGINAL}{metric.key}")
        beside = "" if original is None else f" (original {metric.text(original)})"
        yield f"{metric.name} {metric.text(metrics[metric.key])}{beside}"
    elif (value := metrics.get("value")) is not None:
        yield f"value {value:.4g}"
    if (speedup := speedup_in(metrics)) is not None:
        yield f"{SPEED} {times_as_fast(speedup, 'x')}"
    if (flops := metrics.get("flops")) is not None:
        original = metrics.get(f"{OF_ORIGINAL}flops")
        yield f"{flops / original:.1%} of the original's FLOPs" if original else f"{flops:,.0f} FLOPs"


def fastest_possible(share: float, least: float) -> str:
    """Return a sentence on the largest possible speedup of a network, by Amdahl's law, before its search.

    Args:
        share: the share of the network's time in the layers to replace, between 0 and 1.
        least: the speedup that the goal asks for.
    """
    most = 1 / (1 - share)
    line = (
        f"speed: the layers to replace take about {share:.0%} of the time in plain PyTorch on this machine's processor; "
        f"if they took none, the network would be {times_as_fast(most, form='.2g')}, and the goal is {least:g}"
    )
    return line if least < most else f"{line}: replace more layers (workload: layers), or ask for less (goal: speedup)"


def mixture_lines(choice: LayerChoice | None) -> Iterator[str]:
    """Yield a sentence for each mixture: its operators by layer, and the time that each saves as a share of the network's."""
    for mixture in () if choice is None else choice.mixtures:
        parts = []
        for operator in dict.fromkeys(mixture.operators.values()):
            layers = [layer for layer, name in mixture.operators.items() if name == operator]
            saved = sum(one.saving for layer in layers for one in mixture.options[layer] if one.operator == operator)
            parts.append(f"{operator} in {', '.join(layers)} (saves {saved:.0%})")
        is_original = mixture.base == ORIGINAL
        others = "the other layers stay" if is_original else f"the network around them is {mixture.base}"
        yield f"{mixture.name}: {'; '.join(parts)}; {others}. Shares are of the original network's time, each measured alone."


def mixture_notes(choice: LayerChoice | None) -> Iterator[str]:
    """Yield a sentence for each mixture: the expected speedup by its savings, and the measured speedup."""
    for mixture in () if choice is None else choice.mixtures:
        name = mixture.name if mixture.base == ORIGINAL else f"{mixture.name} is in the network {mixture.base}, and"
        expected = "take no time" if isinf(mixture.expected) else f"be {times_as_fast(mixture.expected)}"
        yield (
            f"{name} would {expected} by the sum of what its operators save; when it was chosen, it was "
            f"{speed_text(mixture.speedup)}. The verdict is by a later measurement."
        )


def not_taken(option: LayerOption, metric: Metric) -> str:
    """Return an alternative that was not chosen for a layer in words, with its saving of time and loss of score there."""
    lost = "–" if option.loss is None else metric.with_unit(f"{option.loss / metric.step:.2g}")
    return f"{option.operator} (saves {_percent(option.saving)}, loses {lost})"


def no_other_choice(speedup: float, apart: Sequence[str], *, is_by_hand: bool) -> str:
    """Return a clause: no other choice of operators would reach `speedup`; then the clauses `apart` on misfits."""
    around = " around those that are kept and fixed" if is_by_hand else ""
    fast = times_as_fast(speedup, form="g")
    return "; ".join([f"no other choice of operators{around} would make the network {fast}", *apart])


def majority_text(label: int | None, share: float) -> str:
    """Return a clause on the most frequent label: its share of the test data, and the accuracy of always answering it."""
    return f"{share:.1%} of the test data's labels are {label}, so that always answering {label} has the accuracy {share:.3f}"


def majority_warning(label: int | None, share: float | None, original: float | None) -> str | None:
    """Return a warning that accuracies say little, since one label is so frequent; None if no warning is due.

    Args:
        label, share: the most frequent label of the test data and its share; None where it is not known.
        original: the accuracy of the trained original network; None if it was not trained.
    """
    if share is None:
        return None
    if original is not None and original <= share:
        return (
            f"The original's accuracy of {original:.3f} is not above that of always answering {label}, the most frequent label "
            f"({share:.3f}): it learnt nothing, and what operators lose says nothing."
        )
    return f"{majority_text(label, share)}: {SAYS_LITTLE}." if share > WARNED_MAJORITY else None


def setting(times: Sequence[Latency]) -> str:
    """Return the batch and the threads of latencies in words; a value that differs among them is left out."""
    batches, threads = {row.batch for row in times} - {None}, {row.threads for row in times} - {None}
    parts = [f"batch of {batch}" for batch in batches] if len(batches) == 1 else []
    parts += [plural(count, "thread") for count in threads if count is not None] if len(threads) == 1 else []
    return ", ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def verdict_lines(run: Run) -> list[Line]:
    """Return the sentences at the top of the page: an answer for each compiler and device (the goal's first), and what was
    measured.

    The answer is the fastest operator with a small loss of score. If no operator is faster, or a quantity was not measured, the
    sentences say so.
    """
    return _PageVerdict(run).lines()


class _PageVerdict:
    """The sentences at the top of the page.

    Attributes:
        run: the run.
        metric: the metric of the scores.
        original: the score of the original network.
        networks: the other networks with finite scores, by name.
        most: the largest allowed loss of score: the goal's, else the metric's own default, else `WITHIN`.
        timed: the speedups by device and compiler, the goal's first, and by the network's name. A latency below what the
            device's peak speed allows is not counted, and neither is one in lower precision, since the scores are of networks
            as they were trained.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.metric = run, run.metric
        self.original = next((row for row in run.scores if row.role == ORIGINAL), None)
        self.networks = {row.operator: row for row in run.scores if row.role != ORIGINAL and row.is_finite}
        allowed = None if run.goal is None else run.goal.lose_at_most
        if allowed is None and (allowed := self.metric.margin) is None:
            known = 0.0 if self.original is None or not self.original.is_finite else self.original.score or 0.0
            allowed = float(f"{WITHIN * abs(known):.2g}")
        self.most = allowed
        counted = [
            row
            for row in run.speedups
            if not (row.is_suspicious or has_lower_precision(row.compiler) or isnan(row.ratio.value))
        ]
        wanted = None if run.goal is None else (run.goal.device, run.goal.compiler)
        targets = sorted(by_target(counted, lambda row: row.target).items(), key=lambda pair: pair[0] != wanted)
        self.timed = {target: {row.operator: row for row in rows} for target, rows in targets}

    def lines(self) -> list[Line]:
        lines = self._by_goal()
        if self.run.none_because is not None:
            lines.append(Line(self.run.none_because))
        lines += map(best_compilers, best_against_best(self.run.latencies, self._near() or None))
        beyond: dict[str, list[str]] = {}  # the nearest operators where none is within the margin, each with its speedups
        for target, speedups in self.timed.items():
            where = f"with {target[1]} on {target[0]}"
            if (nearest := self._nearest_beyond(speedups)) is None:
                lines.append(self._fastest(where, speedups))
            else:
                beyond.setdefault(nearest, []).append(f"{speed_text(speedups[nearest].ratio)} {where}")
        found = [row for speedups in self.timed.values() for row in speedups.values() if row.role == FOUND]
        none = "" if any(row.ratio.value > 1 for row in found) else f"{NONE_FASTER.capitalize()}. "
        for name, speeds in beyond.items():
            start = f"{none}No operator is within {self._margin} of the original's {self.metric.name}. The nearest: "
            lines.append(Line(start, name, f", {self._score(self.networks[name])}, {', '.join(speeds)}."))
        if not self.timed and self.networks:
            lines.append(self._cheapest())
        if not lines:
            lines.append(self._best_trial())
        return [*lines, *(Line(text) for text in (self._majority(), self._what_was_measured()) if text)]

    @property
    def _margin(self) -> str:
        """The loss that is allowed, with its unit, such as `1 point`."""
        return self.metric.amount(self.most)

    def _near(self) -> list[str]:
        """Return the names of the synthesized operators whose loss of score is allowed."""
        return [row.operator for row in self.networks.values() if row.role == FOUND and row.lost.value <= self.most]

    def _nearest_beyond(self, speedups: Mapping[str, Speedup]) -> str | None:
        """Return the synthesized operator with the best score, if all known scores lose more than is allowed; else None."""
        names = [name for name, row in speedups.items() if row.role == FOUND and name in self.networks]
        lost = {name: value for name in names if not isnan(value := self.networks[name].lost.value)}
        return min(lost, key=lost.__getitem__) if lost and min(lost.values()) > self.most else None

    def _by_goal(self) -> list[Line]:
        """Return sentences on how many operators meet the goal, and which is best; [] if none was judged."""
        goal, lines = self.run.goal, list[Line]()
        if goal is not None:
            lines += beside_rivals(goal, self.metric, self.run.scores)
        judged = [row for row in self.networks.values() if row.role == FOUND and row.verdict is not None]
        if not judged:
            return lines
        operators = plural(len(judged), "operator")
        meeting, doubted = ([row for row in judged if row.state == state] for state in STATES[:2])
        if meeting:
            find = "front" if goal is None else goal.find or "front"
            best = self._best(meeting, find)
            speed, kind = self._speed_at_goal(best), "most accurate" if find == "most_accurate" else "fastest"
            none = f"{NONE_FASTER.capitalize()}. " if kind == "fastest" and speed is not None and not speed > 1 else ""
            start = f"{none}The goal is met by {len(meeting)} of {operators}. "
            which = f"The {kind} of them: " if len(meeting) > 1 else "It is "
            return [*lines, Line(start + which, best.operator, ".")]
        if doubted:
            number = f"{len(doubted)} of {operators}"
            uncertain = f"Whether the goal is met is not certain: {number} may meet it, since {self._why(doubted)}."
            return [*lines, Line(uncertain), *self._doubt(doubted)]
        if all(row.state == "unknown" for row in judged):
            return [*lines, Line("Whether the goal is met is not known, since something was not measured.")]
        return [*lines, Line(f"The goal is not met by any of {operators}.")]

    def _best(self, meeting: Sequence[Score], find: str) -> Score:
        if find == "most_accurate" or self.run.goal is None:
            return max(meeting, key=lambda row: self.metric.quality(row.score or 0.0))
        return max(meeting, key=lambda row: -inf if (speed := self._speed_at_goal(row)) is None else speed)

    def _speed_at_goal(self, network: Score) -> float | None:
        """Return the speedup of a network with the goal's compiler on its device; None if there is none."""
        goal = self.run.goal
        row = None if goal is None else self.timed.get((goal.device, goal.compiler), {}).get(network.operator)
        return None if row is None else row.ratio.value

    def _why(self, doubted: Sequence[Score]) -> str:
        """Return a clause: why it is not certain that these networks meet the goal."""
        goal = self.run.goal
        if goal is None or goal.lose_at_most is None or all(row.lost.is_certain for row in doubted):
            return "an interval contains the limit"
        if any(row.lost.is_certain for row in doubted):
            return "an interval contains the limit, or there is none"
        one_seed = "one seed: " if all(row.seeds == 1 for row in doubted) else ""
        return f"there is no interval of the {self.metric.name} ({one_seed}train with more seeds)"

    def _doubt(self, doubted: Sequence[Score]) -> list[Line]:
        """Return a sentence on the nearest network, if its score's interval contains the goal's limit; else []."""
        nearest = min(doubted, key=lambda row: (isnan(row.lost.value), row.lost.value))
        lost, most = nearest.lost, None if self.run.goal is None else self.run.goal.lose_at_most
        if most is None or not (lost.is_certain and lost.low <= most < lost.high):
            return []
        where = f"where {self._margin} may be lost" if lost.value > most else f"within the {self._margin} that may be lost"
        seeds = f"{nearest.seeds} seeds cannot tell, more would narrow the interval"
        return [Line("The nearest by its score is ", nearest.operator, f", {self._score(nearest)}, {where}: {seeds}.")]

    def _fastest(self, where: str, speedups: Mapping[str, Speedup]) -> Line:
        """Return a sentence on the fastest synthesized operator with one compiler and device, or why none is faster.

        If scores are known, only operators with an allowed loss of score count; there must be one.
        """
        metric, fastest = self.metric, sorted(speedups, key=lambda name: -speedups[name].ratio.value)
        found = [name for name in fastest if speedups[name].role == FOUND]
        if not found:
            return Line(f"No operator of the search was measured {where}.")
        scored = [name for name in found if name in self.networks and not isnan(self.networks[name].lost.value)]
        if not scored:
            best = found[0]
            score = f"; its {metric.name} and the original's were not both measured"
            none = "" if speedups[best].ratio.value > 1 else f"{NONE_FASTER.capitalize()} {where}. "
            return Line(f"{none}The fastest {where}: ", best, f", {speed_text(speedups[best].ratio)}{score}.")
        best = next(name for name in scored if self.networks[name].lost.value <= self.most)
        speed, network = speedups[best].ratio, self.networks[best]
        also = f"; the interval of the {metric.name} reaches beyond {self._margin}" if network.lost.high > self.most else ""
        numbers = f"{speed_text(speed)}, {self._score(network)}{also}"
        if speed.value <= 1:
            within = f"No operator within {self._margin} of the original's {metric.name}"
            return Line(f"{within} is faster than the original {where}. The fastest: ", best, f", {numbers}.")
        known = [
            speedups[name]
            for name in fastest[: fastest.index(best)]
            if speedups[name].role != FOUND and name in self.networks and self.networks[name].lost.value <= self.most
        ]
        faster = ""
        if known:
            kind = "Without synthesis, it is faster" if known[0].role == "rival" else "A known operator is faster"
            faster = f" {kind}: {known[0].operator}, {speed_text(known[0].ratio)}."
        return Line(f"Fastest within {self._margin} {where}: ", best, f", {numbers}.{faster}")

    def _cheapest(self) -> Line:
        """Return a sentence on the synthesized operator with the fewest FLOPs and an allowed loss, if no latency is known."""
        metric, start = self.metric, "No speedup of a whole network was measured. "
        found = [row for row in self.networks.values() if row.role == FOUND]
        if not found:
            return Line(f"{start}No operator of the search was trained again.")
        near = {row.operator: row.flops_share for row in found if row.lost.value <= self.most and row.flops_share is not None}
        if near:
            best, share = min(near.items(), key=lambda pair: pair[1])
            numbers = f", {_percent(share)} of the original's, {self._score(self.networks[best])}."
            return Line(f"{start}The fewest FLOPs within {self._margin}: ", best, numbers)
        nearest = max(found, key=lambda row: metric.quality(row.score or 0.0))
        none = "" if isnan(nearest.lost.value) else f"No operator is within {self._margin} of the original's {metric.name}. "
        return Line(f"{start}{none}The best {metric.name}: ", nearest.operator, f", {self._score(nearest)}.")

    def _best_trial(self) -> Line:
        """Return a sentence on the best trial and its metrics, for a run in which nothing was trained again or measured."""
        run, done = self.run, best_first(self.run.trials)
        layers = "" if not run.layers else " Single layers were measured: see Layers."
        start = "No network was trained again or measured"
        if not done:
            return Line(f"{start}, so nothing is known of speed and score.{layers}")
        best, metrics, metric = done[0], done[0].metrics, self.metric
        numbers = []
        if metric.key in metrics:
            original = metrics.get(f"{OF_ORIGINAL}{metric.key}")
            beside = "" if original is None else f" (the original's: {metric.text(original)})"
            numbers.append(f"{metric.name} {metric.text(metrics[metric.key])}{beside}")
        if (speedup := speedup_in(metrics)) is not None:
            numbers.append(speed_text(speedup))
        unknown = " after the search" if numbers else ", so nothing is known of speed and score"
        before = f"{start}{unknown}.{layers} The highest reward of the search is {best.reward:.4g}: "
        shown, after = run.trial_operators[best.number].name, "".join(f", {number}" for number in numbers)
        return Line(before, shown, f"{after}.") if shown in run.operators else Line(f"{before}{shown}{after}.")

    def _score(self, network: Score) -> str:
        """Return the difference of a network's score from the original's in words; without an interval, both scores."""
        lost, metric = network.lost, self.metric
        if not lost.is_certain:
            theirs = None if self.original is None else self.original.score
            of = (
                f"; the original's is {metric.text(theirs)}, and no interval of the difference is known"
                if theirs is not None
                else ""
            )
            return f"{metric.name} {metric.text(network.score or 0.0)}{of}"
        sign = -1 if metric.more_is_better else 1
        value, *ends = (sign * end for end in lost)
        low, high = (metric.steps_text(end, "+z") for end in sorted(ends))
        size = metric.steps_text(abs(value))
        least = "" if metric.digits is None else f" to {metric.with_unit(f'{10**-metric.digits:g}')}"
        way = f"{metric.with_unit(size)} {'higher' if value > 0 else 'lower'}" if float(size) else f"the same{least}"
        return f"{metric.name} {way} (95 %: {low} to {high})"

    def _majority(self) -> str | None:
        """Return the warning of `majority_warning` for the run's test data; None if no warning is due."""
        if self.run.majority is None or self.metric != ACCURACY:
            return None
        return majority_warning(*self.run.majority, None if self.original is None else self.original.score)

    def _what_was_measured(self) -> str:
        """Return the compilers and devices of the measurements, in words; "" if there are none."""
        run, parts = self.run, []
        counts = [row.seeds for row in run.scores if row.seeds is not None and not is_converted(row.key)]
        if counts:
            least, most = min(counts), max(counts)
            each = plural(least, "seed") if least == most else f"{least} to {most} seeds"
            parts.append(f"{self.metric.name} of {len(counts)} trained networks, {each} each")
        rows = [row for row in run.latencies if row.is_ok]
        for device in dict.fromkeys(row.device for row in rows):
            here = [row for row in rows if row.device == device]
            names = dict.fromkeys(filter(None, (row.device_name for row in here)))
            compilers = ", ".join(dict.fromkeys(row.compiler for row in here))
            where = "; ".join(filter(None, [*names, setting(here)]))
            parts.append(f"latency of whole networks on {device}{f' ({where})' if where else ''} with {compilers}")
        in_turns = [row for row in run.speedups if row.timed != APART]
        for target in dict.fromkeys(row.target for row in in_turns):
            timed = {row.timed for row in in_turns if row.target == target}
            when = " after the selection" if IN_TURNS in timed else " in the search" if IN_SEARCH in timed else ""
            parts.append(f"speedups with {target[1]} on {target[0]}, timed in turns with the original{when}")
        return f"Measured: {'; '.join(parts)}." if parts else ""
