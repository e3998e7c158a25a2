"""Tables of the papers: their numbers, the config of each row, and counted parameters and MACs.

    mmposenc papers                               # every table
    mmposenc papers cpvt/table6                   # one table, with the counts of the models here
    mmposenc train paper::cpvt/table6/3           # train a row
    mmposenc compare CONFIG --table cpvt/table6   # compare its encodings in a small model
"""
from __future__ import annotations

import argparse
import sys

from ..terminal.messages import Parser, reporting_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc papers')
    parser.add_argument('table', nargs='?', help="such as 'cpvt/table6'; default: list them")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args, only_prints=True):
        if args.table is not None:
            _print_table(args.table)
        else:
            _print_tables()


def _print_tables() -> None:
    from ..catalog.papers import tables_by_id
    width = max(map(len, tables_by_id())) + 2
    for name, table in tables_by_id().items():
        print(f'{name:<{width}}{table.source}: {table.title} ({table.here_text} rows here)')


def _print_table(name: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..catalog.papers import table
    shown = table(name)
    print(f'{shown.source}, {name.rpartition("/")[2]}: {shown.title}. {shown.url}')
    drawn = Table(box=box.SIMPLE)
    for column in ('', 'row', *shown.columns, 'counted here', 'model'):
        drawn.add_column(Text(column), overflow='fold',
                         justify='left' if column in ('row', 'model') else 'right')
    for number, row in enumerate(shown.rows, 1):
        counted = row.counted_costs
        macs = f', {counted["macs"] // 10 ** 6:,}M MACs' if 'macs' in counted else ''
        if 'macs_with_means' in counted:
            macs += f' ({counted["macs_with_means"] // 10 ** 6:,}M with the means)'
        cells = ['-' if value is None else str(value) for value in row.numbers.values()]
        drawn.add_row(*map(Text, (
            str(number), row.name, *cells, f'{counted["params"]:,}{macs}' if counted else '-',
            row.model or f'not here: {row.not_here}')))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(drawn)
    if shown.notes:
        print(shown.notes)
    for row_name, decision in shown.decisions.items():
        print(f'{row_name}: {decision}')
    print(f'Train a row with: mmposenc train paper::{name}/N. The results are those of the paper; '
          'none of these models was trained here.')
