"""Writes numbers and names for readers, alike in the page, on the terminal and in reasons."""
from __future__ import annotations

from collections.abc import Sequence

from mmposenc.config_types import ImageSize

from .results import Metric, Row

UNKNOWN = '–'
#: How an encoding stands at a size; one that is neither of these is 'worse'.
BEST, CAN_BE = 'best', 'can still be best'
_MINUS = '\N{MINUS SIGN}'
_MANY = 7
_STEPS = ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'))


def value_text(value: float | None, metric: Metric, *, sign: bool = False,
               unit: bool = False) -> str:
    """A value of the metric; with its sign if it is a difference, with its unit if asked for."""
    if value is None:
        return UNKNOWN
    decimals = 1 if metric.unit == '%' else 3
    text = f'{value:{"+" if sign else ""}.{decimals}f}'.replace('-', _MINUS)
    return f'{text} {metric.unit}' if unit and metric.unit else text


def interval_text(row: Row, metric: Metric, *, sign: bool = False) -> str:
    """A mean and the ends of its interval: '96.8 (96.3 to 97.3)'."""
    text = value_text(row['mean'], metric, sign=sign)
    if row['low'] is None:
        return text
    ends = (value_text(row[end], metric, sign=sign) for end in ('low', 'high'))
    return f'{text} ({" to ".join(ends)})'


def margin_text(margin: float) -> str:
    """A margin without unnecessary digits: '1', '0.5', '0.013'."""
    return f'{margin:.4g}'


def verdict_text(row: Row, metric: Metric) -> str:
    """The verdict in a row of 'differences': 'worse by 3.1', 'level within 1', 'no measurable
    difference: ±2.3'."""
    if row['verdict'] in ('better', 'worse'):
        return f'{row["verdict"]} by {value_text(abs(row["mean"]), metric)}'
    if row['verdict'] == 'level':
        return f'level within {margin_text(row["margin"])}'
    if row['low'] is None:
        why = 'too few runs' if row['error'] is None else 'no spread'
    else:
        why = f'±{value_text((row["high"] - row["low"]) / 2, metric)}'
    return f'no measurable difference: {why}'


def count_text(value: float) -> str:
    """A large number in four digits, as encodings may differ in the fourth: 61.11 k, 1.03 G."""
    size, name = next((step for step in _STEPS if abs(value) >= step[0]), (1, ''))
    return f'{value / size:.4g} {name}'.rstrip()


def seconds_text(seconds: float | None) -> str:
    """A duration: 8.3 ms, 12.1 s, 250 s, 14 min, 2 h 5 min."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 1:
        return f'{seconds * 1000:.3g} ms'
    if seconds < 600:
        return f'{seconds:.3g} s'
    hours, minutes = divmod(round(seconds / 60), 60)
    return f'{hours} h {minutes} min' if hours else f'{minutes} min'


def capitalized_unless_name(text: str) -> str:
    """Text as the beginning of a line: capitalised, unless it begins with a name such as mIoU."""
    return text[:1].upper() + text[1:] if text[:2].islower() else text


def metric_text(metric: Metric) -> str:
    """The metric with its unit, as the beginning of a line: 'Top-1 accuracy, %', 'mIoU, %'."""
    unit = f', {metric.unit}' if metric.unit else ''
    return capitalized_unless_name(f'{metric.label}{unit}')


def size_text(size: Row) -> str:
    """An image size: '1.5 times (48 × 48)', or '480 × 864' (height × width)."""
    at, pixels = size['factor'], ' × '.join(map(str, size['hw'] or ()))
    if isinstance(at, str):
        return at.replace('x', ' × ')
    return f'{at:g} times' + (f' ({pixels})' if pixels else '')


def size_head(at: ImageSize) -> str:
    """An image size as the head of a column: '1.5×', or '480×864' (height × width)."""
    return at.replace('x', '×') if isinstance(at, str) else f'{at:g}×'


def names_in_words(names: Sequence[str]) -> str:
    """Names as in a sentence: 'a', 'a and b', 'a, b and c'. Of many names only the first are
    written, with the number of the others. Names that contain a comma are separated by semicolons.
    """
    if len(names) > _MANY:
        names = [*names[:_MANY - 1], f'{len(names) - _MANY + 1} more']
    if len(names) > 2 and any(',' in name for name in names):
        return f'{"; ".join(names[:-1])}; and {names[-1]}'
    return names[0] if len(names) == 1 else f'{", ".join(names[:-1])} and {names[-1]}'


def cost_at_size(encoding: Row, at: ImageSize, key: str) -> float | None:
    """The cost of an encoding ('macs', 'seconds', ...) at a size; None if it is not known."""
    return next((each.get(key) for each in encoding['costs'] if each['factor'] == at), None)


def value_at_trained_size(run: Row) -> float | None:
    """The value of a run at the trained size; None if it was not tested there."""
    return next((test['value'] for test in run['tests'] if test['factor'] == 1), None)
