"""results.csv and report.html of a study; docs/report.md says how to read them."""
from __future__ import annotations

from collections import Counter
from pathlib import Path

from mmposenc.terminal.messages import counted

from ..statistics import formats, summary
from ..statistics.differences import LEAST_RUNS, TRAINED
from ..statistics.formats import Results
from ..study.files import Record, write_text
from . import exports, tables
from .charts import all_charts


def write_report(results: Results, folder: Path) -> None:
    """Write results.csv and report.html; each is complete or not there.

    Args:
        results: of :func:`~..statistics.summary.with_summary`.
        folder: of the study.
    """
    write_text(folder / 'results.csv', exports.results_csv(results), safe=False)
    write_text(folder / 'report.html', report_html(results), safe=False)


def report_html(results: Results) -> str:
    """The text of report.html for summarised results: one file without scripts, which loads nothing
    from a network."""
    import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('mmposenc.lab.compare.page'), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(capitalized_unless_name=formats.capitalized_unless_name,
                               breakable=breakable_html)
    sizes, label = summary.size_factors(results), summary.label_of_each_encoding(results)
    return environment.get_template('report.html').render(
        results=results, title=results['title'], label=label,
        answer=recommendation_and_facts(results),
        counts=runs_by_status(results),
        overview=tables.overview_table(results), charts=all_charts(results),
        differences=[tables.differences_table(results, factor) for factor in sorted(
            sizes, key=lambda factor: (factor != TRAINED, factor))] if len(label) > 1 else [],
        runs=tables.runs_table(results),
        base=label[summary.base_encoding(results)],
        seeds=len({run['seed'] for run in results['runs']}))


def breakable_html(name: str) -> str:
    """A name as HTML, such as that of a config, in which a line may break behind each part."""
    import markupsafe
    return markupsafe.Markup('_<wbr>').join(name.split('_'))


def recommendation_and_facts(results: Results) -> Record:
    """The recommendation, with the numbers that support it."""
    advice, metric, label = (results['recommendation'], results['metric'],
                             summary.label_of_each_encoding(results))
    name = advice['encoding']
    facts: list[tuple[str, str, str]] = []
    shown = dict(advice, facts=facts, head='No recommendation yet',
                 word='Best: every other is worse' if advice['confidence'] == formats.BEST else
                 f'{len(advice["candidates"])} of {len(label)} can still be best')
    if name is None:
        return shown
    at = [row for row in results['differences'] if row['factor'] == TRAINED]
    tested = any(row['n'] >= LEAST_RUNS for row in at)
    shown['head'] = f'{"Take" if tested else "So far:"} {label[name]}'
    row = summary.summary_at(results, TRAINED)[name]
    low, high = (formats.value_text(row[end], metric) for end in ('low', 'high'))
    among = f'95% interval {low} to {high}, ' if row['low'] is not None else ''
    facts.append((formats.capitalized_unless_name(f'{metric["label"]} at the trained size'),
                  formats.value_text(row['mean'], metric, unit=True),
                  f'{among}{counted(row["n"], "seed")}'))
    facts += [(f'Minus {label[row["against"]]}', formats.value_text(row['mean'], metric, sign=True),
               formats.verdict_text(row, metric)) for row in at
              if row['role'] == 'base' and row['encoding'] == name and row['mean'] is not None]
    costs = tables.costs_by_kind(results)
    facts += [(tables.COSTS[kind][0], tables.COSTS[kind][2](value), '')
              for kind in ('parameters', 'macs') if (value := costs[kind][name]) is not None]
    return shown


def runs_by_status(results: Results) -> Counter[str]:
    """The number of runs with each status, and of all runs under 'all'."""
    return Counter({'all': len(results['runs'])}) + Counter(
        run['status'] for run in results['runs'])
