"""results.csv and report.html of a study; docs/report.md says how to read them."""
from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections import Counter
from functools import partial
from pathlib import Path

from mmposenc.terminal.messages import counted

from ..statistics import formats, summary
from ..statistics.differences import LEAST_RUNS, TRAINED
from ..statistics.formats import Results
from ..study.files import Record, write_text
from . import exports, study_charts, tables
from .charts import COLORS, FRAME

#: The largest number of lines that can be distinguished in a chart.
_LINES = 8


def write_report(results: Results, folder: Path) -> None:
    """Write results.csv and report.html; each is complete or not there.

    Args:
        results: of :func:`~..statistics.summary.with_summary`.
        folder: of the study; files of pictures and figures are relative to it.
    """
    write_text(folder / 'results.csv', exports.results_csv(results), safe=False)
    write_text(folder / 'report.html', report_html(results, folder), safe=False)


def report_html(results: Results, folder: Path) -> str:
    """The text of report.html for summarised results: one file that loads nothing from a network.
    """
    import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('mmposenc.lab.compare.page'), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(capitalized_unless_name=formats.capitalized_unless_name,
                               address=partial(data_address, folder), breakable=breakable_html)
    script = (Path(__file__).parent / 'templates' / 'page.js').read_text(encoding='utf-8')
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template('report.html').render(
        **template_context(results), script=script, script_hash=digest, colors=COLORS,
        frame=FRAME)


def breakable_html(name: str) -> str:
    """A name as HTML, such as that of a config, in which a line may break behind each part."""
    import markupsafe
    return markupsafe.Markup('_<wbr>').join(name.split('_'))


def template_context(results: Results) -> Record:
    """Everything that the template shows; a section without content is empty or None."""
    sizes = summary.size_factors(results)
    style, label = study_charts.styles(results), summary.label_of_each_encoding(results)
    first = encodings_kept_if_many(results)
    return dict(
        results=results, title=results['title'], label=label,
        legend=[(label[name], style[name], name in first) for name in style],
        answer=recommendation_and_facts(results),
        by_size=best_by_size(results) if len(sizes) > 1 else [], counts=runs_by_status(results),
        overview=tables.overview_table(results), dots=study_charts.dot_chart_layout(results),
        differences=[(factor == TRAINED, tables.differences_table(results, factor))
                     for factor in sorted(sizes, key=lambda factor: (factor != TRAINED, factor))],
        size_chart=study_charts.size_chart(results),
        retention_chart=study_charts.retention_chart(results),
        cost_charts=study_charts.cost_charts(results),
        curve_charts=study_charts.curve_charts(results),
        parts=[table for table in (tables.parts_table(results, 'by_size', 'Object size'),
                                   tables.parts_table(results, 'by_class', 'Class')) if table],
        runs=tables.runs_table(results), base=label[summary.base_encoding(results)],
        seeds=len({run['seed'] for run in results['runs']}))


def encodings_kept_if_many(results: Results) -> set[str]:
    """The encodings that charts show first if there are too many: the base, the recommended one,
    and the best one at each size."""
    if len(results['encodings']) <= _LINES:
        return set()
    best = (summary.best_at(results, factor) for factor in summary.size_factors(results))
    return {summary.base_encoding(results), results['recommendation']['encoding'], *best} - {None}


def recommendation_and_facts(results: Results) -> Record:
    """The recommendation, with the numbers that support it."""
    advice, metric, trained = results['recommendation'], results['metric'], TRAINED
    name, label = advice['encoding'], summary.label_of_each_encoding(results)
    facts: list[tuple[str, str, str]] = []
    shown = dict(advice, facts=facts, head='No recommendation yet',
                word='Best: every other is worse' if advice['confidence'] == formats.BEST else
                f'{len(advice["candidates"])} of {len(label)} can still be best')
    if name is None:
        return shown
    at = [row for row in results['differences'] if row['factor'] == trained]
    tested = any(row['n'] >= LEAST_RUNS for row in at)
    shown['head'] = f'{"Take" if tested else "So far:"} {label[name]}'
    row = summary.summary_at(results, trained)[name]
    low, high = (formats.value_text(row[end], metric) for end in ('low', 'high'))
    among = f'95% interval {low} to {high}, ' if row['low'] is not None else ''
    facts.append((formats.capitalized_unless_name(f'{metric["label"]} at the trained size'),
                  formats.value_text(row['mean'], metric, unit=True),
                  f'{among}{counted(row["n"], "seed")}'))
    facts += [(f'Minus {label[row["against"]]}', formats.value_text(row['mean'], metric, sign=True),
               formats.verdict_text(row, metric)) for row in at
              if row['role'] == 'base' and row['encoding'] == name and row['mean'] is not None]
    encoding = summary.encoding_record(results, name)
    costs = (('Parameters', tables.count_with_commas(encoding['parameters']), ''),
             ('Multiply-accumulates',
              formats.count_text(formats.cost_at_size(encoding, trained, 'macs')),
              'an image at the trained size'))
    facts.extend(fact for fact in costs if fact[1] != formats.UNKNOWN)
    return shown


def best_by_size(results: Results) -> list[dict[str, str]]:
    """For every size the best mean, and which other encodings can still be best."""
    label, metric = summary.label_of_each_encoding(results), results['metric']
    rows = []
    for size in sorted(results['sizes'], key=lambda size: size['factor']):
        best = summary.best_at(results, size['factor'])
        if best is None:
            continue
        near = [label[name] for name in summary.possible_bests(results, size['factor'])
                if name != best]
        mean = summary.summary_at(results, size['factor'])[best]['mean']
        trained = ', trained' if size['factor'] == TRAINED else ''
        rows.append(dict(size=formats.size_text(size) + trained, best=label[best],
                         value=formats.value_text(mean, metric, unit=True),
                         near=formats.names_in_words(near) if near else 'no other'))
    return rows


def runs_by_status(results: Results) -> Counter[str]:
    """The number of runs with each status, and of all runs under 'all'."""
    return Counter({'all': len(results['runs'])}) + Counter(
        run['status'] for run in results['runs'])


def data_address(folder: Path, file: str) -> str | None:
    """A picture as a data address that contains it; None if there is no picture."""
    kind = mimetypes.guess_type(file)[0] or ''
    path = (folder / file).resolve()
    inside = path.is_relative_to(folder.resolve())
    if not kind.startswith('image/') or not inside or not path.is_file():
        return None
    return f'data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}'
