"""Write the tables inside of pages again: python tools/page_tables.py.

A line `<!-- tables/trees.csv -->` of a page has the table of that file below it, `<!-- names -->`
has the words that `--encodings` takes, with their classes. Larger tables are links to their files,
which the site shows as tables (docs/hooks.py).
"""
import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mmposenc.engine.variants.encodings import NAMES

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r'^<!-- (\S+\.csv|names) -->\n(?:\|.*\n)*', re.MULTILINE)


def in_markdown(rows: Iterable[Sequence[str]]) -> str:
    """The lines of a table, whose first row is the header."""
    lines = [f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in row)}|" for row in rows]
    return '\n'.join([lines[0], '|-' * (lines[0].count('|') - 1) + '|', *lines[1:], ''])


def names() -> list[list[str]]:
    """The words of ``--encodings``, what charts call them, and their classes with the options."""
    rows = [['word', 'in charts', 'class']]
    for word, (label, cfg) in NAMES.items():
        kind, *options = [f'{key}={value!r}' for key, value in (cfg or {'type': ''}).items()
                          if key != 'default_positions']
        kind = kind.removeprefix("type='mmposenc.").strip("'")
        rows.append([f'`{word}`', label, f"`{kind}({', '.join(options)})`" if cfg else ''])
    return rows


def written(page: Path) -> str:
    """The text of a page with its tables as they are now."""
    def table(found: re.Match[str]) -> str:
        if found[1] == 'names':
            rows = names()
        else:
            with (page.parent / found[1]).open() as file:
                rows = list(csv.reader(file))
        return f'<!-- {found[1]} -->\n{in_markdown(rows)}'
    return TABLE.sub(table, page.read_text())


if __name__ == '__main__':
    for path in sorted((ROOT / 'docs').glob('*.md')):
        text = written(path)
        if text != path.read_text():
            path.write_text(text)
