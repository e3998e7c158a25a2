"""Tables that go into a page."""
from __future__ import annotations

from collections.abc import Sequence


def markdown(lines: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A markdown table; the first line is its header, columns after the first few are numbers."""
    rule = ['---'] * text_columns + ['---:'] * (len(lines[0]) - text_columns)
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in (lines[0], rule, *lines[1:])) + '\n'
