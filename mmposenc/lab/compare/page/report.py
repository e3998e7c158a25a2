"""results.csv and report.html of a study; docs/report.md says how to read them."""
from __future__ import annotations

from collections import Counter
from pathlib import Path

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
        answer=recommendation_for_readers(results),
        counts=Counter(word for run in results['runs'] for word in ('all', run['status'])),
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


def recommendation_for_readers(results: Results) -> Record:
    """The recommendation, with a headline and a word on how sure it is."""
    advice, label = results['recommendation'], summary.label_of_each_encoding(results)
    sure = ('Best: every other is worse' if advice['confidence'] == formats.BEST else
            f'{len(advice["candidates"])} of {len(label)} can still be best')
    if advice['encoding'] is None:
        return dict(advice, head='No recommendation yet', word=sure)
    tested = any(row['n'] >= LEAST_RUNS for row in results['differences']
                 if row['factor'] == TRAINED)
    head = f'{"Take" if tested else "So far:"} {label[advice["encoding"]]}'
    return dict(advice, head=head, word=sure)
