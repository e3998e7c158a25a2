"""Means over seeds, their intervals, the differences in a study, and which encoding to take, why,
and how sure that is; pure functions.

How the numbers are to be read, and by which rules, is in docs/report.md. Nothing here knows how
runs are made.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from mmposenc.config_types import ImageSize

from . import differences, formats
from .differences import LEAST_RUNS, SAME, TRAINED, WORSE, Standing
from .results import Metric, Results, Row, Values, encoding_with_best_mean


def with_summary(results: Results) -> Results:
    """The results that :func:`..page.results.collect_results` returns, with their summary,
    differences and recommendation."""
    summary, compared = [], []
    for at in results.tested_sizes:
        values = results.values_at(at)
        stand = differences.standings(values)
        can = [name for name, each in stand.items() if each.by is None]
        word = formats.BEST if len(can) == 1 < len(values) else formats.CAN_BE
        summary += [dict(encoding=name, factor=at, **mean_row(
            list(seeds.values()), results.metric),
            standing=word if stand[name].by is None else WORSE) for name, seeds in values.items()]
        left = results.without_images_at(at)
        compared += [dict(row, images=differences.reach_over_images(
            *(left.get(row[side], ()) for side in ('encoding', 'against'))))
            for row in difference_rows(values, results.base, at, results.margin_in_unit, stand)]
    extended = replace(results, summary=summary, differences=compared)
    return replace(extended, recommendation=recommendation(extended))


def mean_row(values: Sequence[float], metric: Metric | None = None) -> Row:
    """The number of values, their mean, sample standard deviation and the 95% interval of the mean
    (Student)."""
    from scipy import stats
    n = len(values)
    bounds: Row = dict(n=n, mean=fmean(values) if n else None, std=None, low=None, high=None)
    if n > 1:
        std = stdev(values)
        half = float(stats.t.isf(differences.ERROR / 2, n - 1)) * std / math.sqrt(n)
        bounds.update(std=std, low=bounds['mean'] - half, high=bounds['mean'] + half)
        most = 100 if metric and metric.unit == '%' else 1
        if metric and min(values) >= 0 and max(values) <= most:
            bounds.update(low=max(bounds['low'], 0.), high=min(bounds['high'], float(most)))
    return bounds


def difference_rows(values: Values, base: str, at: ImageSize, margin: float,
                    stand: Mapping[str, Standing]) -> list[Row]:
    """Differences of every encoding from the base, and from the best at this size.

    Args:
        values: those of all runs at one size.
        base: the encoding with which others are compared.
        at: that size, which the rows name.
        margin: encodings that differ by less are level.
        stand: what :func:`standings` returns.

    Returns:
        Rows of 'differences'. An encoding that is ruled out is compared with the one that does it,
        every other with the best mean; such intervals are two one-sided bounds.
    """
    best, rows = encoding_with_best_mean(values), []
    reach = differences.reach_in_standard_errors(values, [base], 2).get(base)
    for name, standing in stand.items():
        pairs = [('base', base, reach)] if name != base else []
        if best is not None and name != best:
            pairs.append(('best', standing.by or best, standing.reach))
        for role, other, bounds in pairs:
            gap = differences.weighted_contrast(values, {name: 1, other: -1})
            row = differences.verdict_row(gap, margin, bounds)
            rows.append(dict(encoding=name, against=other, role=role, factor=at, **row))
    return rows


def recommendation(results: Results) -> Row:
    """The encoding to take, from results with 'summary' and 'differences'.

    Of those that can still be best at the trained size, the one with the best mean; or the cheapest
    that is level with it. One of which a run diverged is taken only where no other can be best.

    Returns:
        encoding (None where no run has finished), reason, sure, candidates (what can still be
        best), and confidence: 'best' where it is the only one and no run of it diverged, else 'can
        still be best'.
    """
    metric, label = results.metric, results.label
    values = results.values_at(TRAINED)
    known = [name for name in values if values[name]]
    can = [name for name, row in results.summary_at(TRAINED).items()
           if row['standing'] != WORSE and name in known]
    advice: Row = dict(encoding=None, candidates=can, confidence=formats.CAN_BE)
    if not known:
        return {**advice, 'reason': 'No run has finished with a value at the trained size.',
                'sure': 'Nothing is sure yet.'}
    first = next((name for name in can if not results.num_diverged(name)), can[0])
    level = [first, *(name for name in can if name != first and not results.num_diverged(name)
                      and any(row['encoding'] == name and row['against'] == first
                              and row['verdict'] == SAME and row['factor'] == TRAINED
                              for row in results.differences))]
    taken = min(level, key=lambda name: _macs_and_parameters(results, name))
    mean = mean_row(list(values[first].values()))
    if mean['mean'] < (1 if metric.unit == '%' else 0.01):
        return {**advice, 'reason': f'The highest {metric.label} at the trained size is '
                f'{formats.value_text(mean["mean"], metric, unit=True)}: nothing was learned.',
                'sure': 'Train longer, or check the data with mmposenc browse.'}
    seeds = f'mean of {mean["n"]} seeds' if mean['n'] > 1 else 'one seed'
    who = 'The model without an encoding' if first == 'none' else label[first]
    tied = [label[name] for name in known
            if name != first and fmean(values[name].values()) == mean['mean']]
    has = (f'ties with {formats.names_in_words(tied)}: they have the same' if tied else
           'has the highest')
    reason = (f'{who} {has} {metric.label} at the trained size, '
              f'{formats.value_text(mean["mean"], metric, unit=True)} ({seeds}).')
    if first != can[0]:
        reason = f'{_diverged_text(results, can[0])} It is not taken. Of the others {reason}'
    if len(level) > 1:
        who = formats.names_in_words([label[name] for name in level[1:]])
        verb = 'are' if len(level) > 2 else 'is'
        margin = formats.margin_text(results.margin_in_unit)
        reason += (f' {who} {verb} level with it within {margin}: '
                   f'take the cheapest, {label[taken]}.')
    if first == can[0]:
        reason += _diverged_text(results, first)
    only = len(can) == 1 and len(known) > 1 and not results.num_diverged(taken)
    return dict(advice, encoding=taken, reason=reason.strip(),
                sure=_certainty_text(results, known, can),
                confidence=formats.BEST if only else formats.CAN_BE)


def _diverged_text(results: Results, name: str) -> str:
    """A sentence that follows another one: which runs the mean of an encoding leaves out; '' if
    none."""
    count = results.num_diverged(name)
    if not count:
        return ''
    started = sum(run['encoding'] == name and run['status'] in ('finished', 'diverged')
                  for run in results.runs)
    label = results.label[name]
    return f' Of {label} {count} of {started} runs diverged; its mean is of the others.'


def _macs_and_parameters(results: Results, name: str) -> tuple[float, float]:
    """The key by which encodings are sorted by cost: multiply-accumulates at the trained size, then
    parameters; unknown ones come last."""
    encoding = next(each for each in results.encodings if each['name'] == name)
    macs, unknown = formats.cost_at_size(encoding, TRAINED, 'macs'), float('inf')
    return (unknown if macs is None else macs,
            unknown if encoding['parameters'] is None else encoding['parameters'])


def _certainty_text(results: Results, known: Sequence[str], can: Sequence[str]) -> str:
    """Say what is ruled out at the trained size, and what is not."""
    label, values = results.label, results.values_at(TRAINED)
    if len(known) == 1:
        return 'Nothing is sure: there is nothing to compare it with.'
    if sum(len(values[name]) >= LEAST_RUNS for name in known) < 2:
        return (f'Nothing is sure: no two encodings have {LEAST_RUNS} finished runs each, so that '
                'no difference was tested.')
    worse = [name for name in known if name not in can]
    parts = []
    if len(can) > 1:
        parts.append(f'Can still be best: {formats.names_in_words([label[name] for name in can])}.')
    if worse:
        verb = 'are' if len(worse) > 1 else 'is'
        who = formats.names_in_words([label[name] for name in worse])
        parts.append(f'{formats.capitalized_unless_name(who)} {verb} worse.')
    if len(can) > 1:
        parts.append('More seeds may tell.')
    return ' '.join(parts)
