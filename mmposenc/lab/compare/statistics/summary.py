"""Means over seeds, their intervals, and the differences in a study; pure functions.

How the numbers are to be read is in docs/report.md. Nothing here knows how runs are made.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from mmposenc.config_types import ImageSize

from . import differences, formats
from .differences import LEAST_RUNS, SAME, TRAINED, WORSE, Standing, Values
from .formats import Results, Row


def with_summary(results: Results) -> Row:
    """The results that :func:`..page.results.collect_results` returns, with 'summary' (a row for
    each encoding and size), 'differences' (a row for each comparison) and 'recommendation'
    added."""
    margin = margin_in_metric_unit(results)
    summary, compared = [], []
    for at in tested_sizes(results):
        values = values_at(results, at)
        stand = differences.standings(values)
        left = [name for name, each in stand.items() if each.by is None]
        word = formats.BEST if len(left) == 1 < len(values) else formats.CAN_BE
        summary += [dict(encoding=name, factor=at, **mean_row(
            list(seeds.values()), results['metric']),
            standing=word if stand[name].by is None else WORSE) for name, seeds in values.items()]
        compared += difference_rows(values, base_encoding(results), at, margin, stand)
    extended = {**results, 'summary': summary, 'differences': compared}
    return {**extended, 'recommendation': recommendation(extended)}


def margin_in_metric_unit(results: Results) -> float:
    """The difference below which encodings count as level, in the metric's unit; results have it in
    points."""
    points = results['margin']
    return points if results['metric']['unit'] == '%' else points / 100


def tested_sizes(results: Results) -> list[ImageSize]:
    """The image sizes of a study in its order: multiples of the test's size, then pixels."""
    return [each['factor'] for each in results['sizes']]


def base_encoding(results: Results) -> str:
    """The encoding with which others are compared: 'none', or otherwise the first one."""
    names = [each['name'] for each in results['encodings']]
    return 'none' if 'none' in names else str(names[0])


def summary_at(results: Results, at: ImageSize) -> dict[str, Results]:
    """For each encoding, its row of 'summary' at a size; the best mean comes first, and encodings
    without a mean last."""
    rows = [row for row in results['summary'] if row['factor'] == at]
    rows.sort(key=lambda row: math.inf if row['mean'] is None else -row['mean'])
    return {row['encoding']: row for row in rows}


def best_at(results: Results, at: ImageSize) -> str | None:
    """The encoding with the best mean at a size; None if no mean is known."""
    return next((name for name, row in summary_at(results, at).items()
                 if row['mean'] is not None), None)


def label_of_each_encoding(results: Results) -> dict[str, str]:
    """For each encoding, its name for readers, in the order of the study."""
    return {each['name']: each['label'] for each in results['encodings']}


def values_at(results: Results, at: ImageSize) -> Values:
    """For each encoding and each seed, the value at a size, of finished runs only; every encoding
    has an entry.

    A run that diverged or failed has no value, and neither has one whose value is not finite.
    """
    values: Values = {each['name']: {} for each in results['encodings']}
    for run in results['runs']:
        if run['status'] != 'finished':
            continue
        for test in run['tests']:
            value = test['value']
            if test['factor'] == at and value is not None and math.isfinite(value):
                values[run['encoding']][run['seed']] = float(value)
    return values


def mean_row(values: Sequence[float], metric: Results | None = None) -> Row:
    """The number of values, their mean, sample standard deviation and the 95% interval of the mean
    (Student)."""
    from scipy import stats
    n = len(values)
    bounds: Row = dict(n=n, mean=fmean(values) if n else None, std=None, low=None, high=None)
    if n > 1:
        std = stdev(values)
        half = float(stats.t.isf(differences.ERROR / 2, n - 1)) * std / math.sqrt(n)
        bounds.update(std=std, low=bounds['mean'] - half, high=bounds['mean'] + half)
        most = 100 if metric and metric['unit'] == '%' else 1
        if metric and min(values) >= 0 and max(values) <= most:
            bounds.update(low=max(bounds['low'], 0.), high=min(bounds['high'], float(most)))
    return bounds


def difference_rows(values: Values, base: str, at: ImageSize, margin: float,
                    stand: Mapping[str, Standing]) -> list[Row]:
    """Differences of every encoding from the base, and from the best at this size.

    Args:
        values: at one size.
        base: an encoding.
        at: the size; goes into the rows.
        margin: what is closer is level.
        stand: of :func:`standings`.

    Returns:
        Rows of 'differences'. An encoding that is ruled out is compared with the one that does it,
        every other with the best mean; such intervals are two one-sided bounds.
    """
    best, rows = differences.encoding_with_best_mean(values), []
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


# This part of the file chooses which encoding to recommend, why, and how sure that is, by the rules
# of docs/report.md.


def recommendation(results: Results) -> Row:
    """The encoding to take, from results with 'summary' and 'differences'.

    Of those that can still be best at the trained size, the one with the best mean; or the cheapest
    that is level with it. One of which a run diverged is taken only where no other can be best.

    Returns:
        encoding (None where no run has finished), reason, sure, candidates (what can still be
        best), and confidence: 'best' where it is the only one and no run of it diverged, else 'can
        still be best'.
    """
    metric, label = results['metric'], label_of_each_encoding(results)
    values = values_at(results, TRAINED)
    known = [name for name in values if values[name]]
    can = [name for name, row in summary_at(results, TRAINED).items()
           if row['standing'] != WORSE and name in known]
    advice: Row = dict(encoding=None, candidates=can, confidence=formats.CAN_BE)
    if not known:
        return {**advice, 'reason': 'No run has finished with a value at the trained size.',
                'sure': 'Nothing is sure yet.'}
    first = next((name for name in can if not num_diverged(results, name)), can[0])
    level = [first, *(name for name in can if name != first and not num_diverged(results, name)
                      and any(row['encoding'] == name and row['against'] == first
                              and row['verdict'] == SAME and row['factor'] == TRAINED
                              for row in results['differences']))]
    taken = min(level, key=lambda name: _macs_and_parameters(results, name))
    mean = mean_row(list(values[first].values()))
    seeds = f'mean of {mean["n"]} seeds' if mean['n'] > 1 else 'one seed'
    who = 'The model without an encoding' if first == 'none' else label[first]
    reason = (f'{who} has the highest {metric["label"]} at the trained size, '
              f'{formats.value_text(mean["mean"], metric, unit=True)} ({seeds}).')
    if first != can[0]:
        reason = f'{_diverged_text(results, can[0])} It is not taken. Of the others {reason}'
    if len(level) > 1:
        who = formats.names_in_words([label[name] for name in level[1:]])
        verb = 'are' if len(level) > 2 else 'is'
        margin = formats.margin_text(margin_in_metric_unit(results))
        reason += (f' {who} {verb} level with it within {margin}: '
                   f'take the cheapest, {label[taken]}.')
    if first == can[0]:
        reason += _diverged_text(results, first)
    only = len(can) == 1 and len(known) > 1 and not num_diverged(results, taken)
    return dict(advice, encoding=taken, reason=reason.strip(),
                sure=_certainty_text(results, known, can),
                confidence=formats.BEST if only else formats.CAN_BE)


def num_diverged(results: Results, name: str) -> int:
    """The number of runs of an encoding that diverged."""
    return sum(run['encoding'] == name and run['status'] == 'diverged' for run in results['runs'])


def _diverged_text(results: Results, name: str) -> str:
    """A sentence that follows another one: which runs the mean of an encoding leaves out; '' if
    none."""
    count = num_diverged(results, name)
    if not count:
        return ''
    started = sum(run['encoding'] == name and run['status'] in ('finished', 'diverged')
                  for run in results['runs'])
    label = label_of_each_encoding(results)[name]
    return f' Of {label} {count} of {started} runs diverged; its mean is of the others.'


def _macs_and_parameters(results: Results, name: str) -> tuple[float, float]:
    """The key by which encodings are sorted by cost: multiply-accumulates at the trained size, then
    parameters; unknown ones come last."""
    encoding = next(each for each in results['encodings'] if each['name'] == name)
    macs, unknown = formats.cost_at_size(encoding, TRAINED, 'macs'), float('inf')
    return (unknown if macs is None else macs,
            unknown if encoding['parameters'] is None else encoding['parameters'])


def _certainty_text(results: Results, known: Sequence[str], can: Sequence[str]) -> str:
    """Say what is ruled out at the trained size, and what is not."""
    label, values = label_of_each_encoding(results), values_at(results, TRAINED)
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
