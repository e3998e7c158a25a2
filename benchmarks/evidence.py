"""The tables in docs/studies, for docs/evidence.md and docs/choose.md, from finished studies.

benchmarks/evidence.yaml lists the studies and the questions. docs/studies keeps what the
tables need of a study, so that they can be made anywhere.

    python benchmarks/evidence.py --studies work_dirs/evidence    # copy what is finished
    python benchmarks/evidence.py                                 # write the tables again
    python tools/page_tables.py                                   # and those inside of pages
"""
from __future__ import annotations

import argparse
import base64
import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

from mmposenc.encodings.build import listed
from mmposenc.lab.compare.page.report import csv_text, report_html
from mmposenc.lab.compare.page.results import collect_results
from mmposenc.lab.compare.statistics.differences import (
    BETTER,
    ERROR,
    LEAST_RUNS,
    SAME,
    WORSE,
    Contrast,
    standings,
    verdict_row,
    weighted_contrast,
)
from mmposenc.lab.compare.statistics.formats import verdict_text
from mmposenc.lab.compare.statistics.results import Metric, Results, Values
from mmposenc.lab.compare.statistics.summary import mean_row, with_summary
from mmposenc.lab.compare.study.study import read_study

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / 'docs' / 'studies'
MEASURED = ROOT / 'docs' / 'tables'
PLAN = ROOT / 'benchmarks' / 'evidence.yaml'
#: What a paper says of the first of two -> the sign that agrees with it.
EXPECTED = {'more': 1, 'less': -1, 'same': 0}
PERCENT = Metric('', '', '%')
MARGIN = 1.0  # points: what is closer than this is level


def kept(results: Results) -> dict[str, Any]:
    """What tables need of results, in points: no times but those of training."""
    points = 1 if results.metric.unit == '%' else 100  # COCO's AP is a share of 1
    runs = [{'encoding': run['encoding'], 'seed': run['seed'], 'status': run['status'],
             'note': run['note'], 'train_cpu_seconds': run['train_cpu_seconds'],
             'tests': [{'factor': each['factor'], 'value': round(points * each['value'], 4)}
                       for each in run['tests']]}
            for run in results.runs if run['status'] in ('finished', 'diverged')]
    known = {run['encoding'] for run in runs}
    encodings = [{key: each[key] for key in ('name', 'label', 'changes', 'parameters')}
                 for each in results.encodings if each['name'] in known]
    same = ('title', 'config', 'task', 'command', 'metric', 'sizes', 'length', 'environment')
    return {**{key: getattr(results, key) for key in same},
            'metric': results.metric._replace(unit='%')._asdict(),
            'encodings': encodings, 'runs': runs}


def read(folder: Path) -> Results:
    """The results of a study of ``mmposenc compare``, or of benchmarks/digits_long.py."""
    path = folder / 'results.json'
    return (Results.read(json.loads(path.read_text())) if path.is_file()
            else collect_results(read_study(folder)))


def report(results: Results) -> str:
    """The page of a study, of what is kept of it: without costs."""
    encodings = [{**each, 'costs': []} for each in results.encodings]
    runs = [{'train_seconds': None, 'peak_bytes': None, **run}
            for run in results.runs]
    return report_html(with_summary(replace(results, encodings=encodings, runs=runs)))


def one_line_each(results: Mapping[str, Any]) -> str:
    """JSON with a line for each run and encoding, so that a change of one is a change of a line."""
    parts = [f' {json.dumps(key)}: ' + (
        '[\n' + ',\n'.join(f'  {json.dumps(each)}' for each in value) + '\n ]'
        if key in ('encodings', 'runs') else json.dumps(value)) for key, value in results.items()]
    return '{\n' + ',\n'.join(parts) + '\n}\n'


def study_rows(results: Results) -> list[list[str]]:
    """Every encoding: parameters, seeds, mean (and standard deviation) at every size, and the sizes
    at which no other is surely better."""
    sizes = results.tested_sizes
    rows = [['name', 'encoding', 'class', 'parameters', 'seeds',
             *(f'{size:g}x' + (' (trained)' if size == 1 else '') for size in sizes),
             'can still be best at']]
    leading = {size: standings(results.values_at(size)) for size in sizes}
    for each in results.encodings:
        cells = [mean_row(list(results.values_at(size)[each['name']].values())) for size in sizes]
        best = [f'{size:g}x' for size in sizes if leading[size][each['name']].by is None]
        rows.append([each['name'], each['label'], class_text(each['changes']),
                     str(each['parameters']), str(cells[0]['n']),
                     *(spread(cell) for cell in cells), ' '.join(best)])
    return rows


def class_text(changes: Mapping[str, Any]) -> str:
    """The encodings of an entry as Python writes them: 'PEG(kernel_size=27) + IRPE()'."""
    given = [each for slot in ('pos_encoding', 'rel_pos_encoding')
             for each in listed(changes.get(slot))]
    return ' + '.join('{}({})'.format(each['type'].rpartition('.')[2], ', '.join(
        f'{key}={value!r}' for key, value in each.items()
        if key not in ('type', 'default_positions'))) for each in given)


def overview(plan: Mapping[str, Any], studies: Mapping[str, Results]) -> list[list[str]]:
    """The encodings of several studies, at the columns of the plan: (study, size) pairs."""
    columns = [(name, size) for name, size in plan['columns'] if name in studies]
    values = [studies[name].values_at(size) for name, size in columns]
    known = {each['name']: each for name, _ in reversed(columns)
             for each in studies[name].encodings}
    rows = [['--encodings', 'encoding', 'class',
             *(f'{name}, {size:g}x' for name, size in columns)]]
    rows += [[name, known[name]['label'], class_text(known[name]['changes']),
              *(spread(mean_row(list(each.get(name, {}).values()))) for each in values)]
             for name in plan['encodings'] if any(name in each for each in values)]
    return rows


def spread(told: Mapping[str, Any]) -> str:
    """'93.1 (0.4)', or less where there are fewer runs."""
    if told['mean'] is None:
        return ''
    return f"{told['mean']:.1f}" + ('' if told['std'] is None else f" ({told['std']:.1f})")


def mean_of(names: str | Sequence[str]) -> dict[str, float]:
    """The weights of an encoding, or of the mean of several."""
    names = [names] if isinstance(names, str) else names
    return {name: 1 / len(names) for name in names}


def effect(paper: str) -> float | None:
    """The difference that a paper has, from its two numbers (or two groups of them, parted by a
    semicolon); None where it was not asked."""
    plain = re.sub(r'\(.*?\)', '', paper)
    sides = [[float(each) for each in re.findall(r'\d+\.\d+', side)]
             for side in plain.split(';' if ';' in plain else ',')[:2]]
    if len(sides) < 2 or not all(sides):
        return None
    one, other = (sum(side) / len(side) for side in sides)
    return round(abs(one - other), 4)


def values_for(row: Mapping[str, Any], studies: Mapping[str, Results]) -> Values:
    """The values of what a row of the plan compares: of a study, or of places in docs/tables."""
    if 'study' not in row:
        return {row[side]: values_of(row[side]) for side in ('one', 'other')}
    return studies[row['study']].values_at(row.get('at', 1)) if row['study'] in studies else {}


def ask(question: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The numbers of a question: both means, their difference and what it says by itself."""
    one, other = (mean_of(question[key]) for key in ('one', 'other'))
    # An encoding may be in both.
    both = weighted_contrast(values, {name: one.get(name, 0) - other.get(name, 0)
                                      for name in {**one, **other}})
    means = [weighted_contrast(values, each).mean if both.n else None for each in (one, other)]
    margin = question.get('within') or max(MARGIN, effect(question['paper']) or 0)
    return {**verdict_row(both, margin), 'p': chance(both), 'means': means,
            'expect': EXPECTED[question['expect']]}


def chance(contrast: Contrast) -> float | None:
    """The chance of a contrast at least as far from 0 where there is none (Welch's test); None
    without an error, or with fewer runs than LEAST_RUNS."""
    if contrast.n < LEAST_RUNS or not contrast.error:
        return None
    return 2 * stats.t.sf(abs(contrast.mean) / contrast.error, contrast.freedom)


def corrected(chances: Sequence[float | None]) -> list[float | None]:
    """Chances corrected for all of them (false discovery rate, Benjamini and Hochberg 1995)."""
    tested = [each for each in chances if each is not None]
    shares = iter(stats.false_discovery_control(tested) if tested else ())
    return [None if each is None else next(shares) for each in chances]


def answers(asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """'yes' or 'no' where a difference is found, bold where it is so when all questions of the page
    are corrected for (false discovery rate, Benjamini and Hochberg 1995); else 'level within m',
    which is a 'yes' where the paper says the same; else 'no measurable difference: +-x'."""
    sure = corrected([each['p'] for each in asked])
    found = []
    for index, each in enumerate(asked):
        text = verdict_text(each, PERCENT)
        word = 'yes' if (each['mean'] or 0) * each['expect'] > 0 else 'no'
        if not each['n']:
            text = 'not run'
        elif each['verdict'] in (BETTER, WORSE):
            text = f'{f"**{word}**" if sure[index] < ERROR else word}: {text}'
        elif each['verdict'] == SAME and not each['expect']:
            text = f'yes: {text}'
        found.append(text)
    return found


def question_rows(questions: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]],
                  told: Sequence[str]) -> list[list[str]]:
    """A row a question: what the paper has, both means, the difference, n and the answer."""
    rows = [['of', 'claim', 'the paper', 'study, size', 'here', 'difference', 'seeds', 'answer']]
    for question, each, answer in zip(questions, asked, told, strict=True):
        known = each['means'][0] is not None
        rows.append([
            question['of'], question['ask'], question['paper'],
            question.get('where') or f"{question['study']}, {question['at']:g}x",
            f"{each['means'][0]:.1f}, {each['means'][1]:.1f}" if known else '',
            '' if not known else f"{each['mean']:+.1f}" + (
                '' if each['low'] is None else f" ± {each['high'] - each['mean']:.1f}"),
            str(each['n']), answer])
    return rows


def answered(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The claims of the page: questions whose answer is yes, no, or level."""
    lines = [['claim, and the paper\'s numbers', 'study', 'here', 'difference', 'answer']]
    for _, claim, paper, study, here, difference, _, answer in rows:
        if word := re.match(r'(\W*(?:yes|no)\b\W*?)(?::|$)|level', answer):
            numbers = re.sub(r' *\(.*?\)| at .*|, both with a table', '', paper)
            short = answer if 'level' in answer else word[1]
            lines.append([f'{claim} ({numbers})', study.removesuffix(', 1x'), here, difference,
                          short])
    return lines


def first_rows(plan: Sequence[Mapping[str, Any]], studies: Mapping[str, Results]
               ) -> list[list[str]]:
    """What a reader asks first: what the difference of two encodings says by itself, their means,
    and the seeds of each. Some rows hold several pairs."""
    rows = [['question', 'answer here', 'means', 'seeds']]
    for each in plan:
        found = {name: ask({'expect': 'more', 'paper': '', **pair}, values_for(pair, studies))
                 for name, pair in each['says'].items()}
        found = {name: known for name, known in found.items() if known['n'] >= LEAST_RUNS}
        if not found:
            continue
        rows.append([
            each['ask'], '; '.join(f'{name}: {verdict_text(known, PERCENT)}' + (
                f" ±{known['high'] - known['mean']:.1f}" if known['verdict'] in (BETTER, WORSE)
                else '') for name, known in found.items()),
            '; '.join('{:.1f}, {:.1f}'.format(*known['means']) for known in found.values()),
            ', '.join(dict.fromkeys(str(known['n']) for known in found.values()))])
    return rows


def values_of(place: str) -> dict[int, float]:
    """The runs in a file of docs/tables, in percent: 'trees.csv, PEG, same area: AP50' names the
    file, what rows begin with, and the column. Each of three has a row, or one row has all: as
    '30.2 33.9 33.4', or as '61.7 ± 4.0' or '59.7 (59.7 to 59.8)', from which three follow."""
    name, begin, column = place.split(', ', 2)
    with (MEASURED / name).open() as file:
        header, *rows = csv.reader(file)
    cells = [row[header.index(column)] for row in rows if ','.join(row).startswith(begin)]
    if '±' in cells[0]:
        mean, std = map(float, cells[0].split(' ± '))
        found = [mean - std, mean, mean + std]
    elif ' to ' in cells[0]:
        mean, low, high = map(float, re.findall(r'[\d.]+', cells[0]))
        found = [low, 3 * mean - low - high, high]
    elif ' ' in cells[0]:
        found = [float(each) for each in cells[0].split()]
    else:
        found = [100 * float(cell) for cell in cells[:3]]
    return dict(enumerate(found))


def choice_rows(plan: Sequence[Mapping[str, Any]], studies: Mapping[str, Results]
                ) -> list[list[str]]:
    """What docs/choose.md says to take: its mean and another's, their difference, and where both
    stand."""
    rows = [['situation', 'take', 'measured', 'difference in points', 'rows of']]
    for each in plan:
        file, values = each.get('study'), values_for(each, studies)
        names = [each[side] for side in ('one', 'other')]
        found = weighted_contrast(values, dict(zip(names, (1, -1), strict=True)))
        wide = stats.t.isf(ERROR / 2, found.freedom) * found.error
        means = [mean_row(list(values[name].values()))['mean'] for name in names]
        files = [f'studies/{file}.csv'] if file else dict.fromkeys(
            'tables/' + each[side].split(',')[0] for side in ('one', 'other'))
        rows.append([each['situation'], each['take'],
                     f"{each['metric']} {means[0]:.1f}; {each['label']} {means[1]:.1f}",
                     f'{found.mean:+.1f} ± {wide:.1f}',
                     ', '.join(f'[{Path(link).stem}]({link})' for link in files)
                     + f", {each.get('at', 1):g}x" * bool(file)])
    return rows


def tables(plan: Mapping[str, Any], studies: Mapping[str, Results]) -> dict[str, str]:
    """name of a file in docs/studies -> its table."""
    asked = [ask(each, values_for(each, studies)) for each in plan['questions']]
    told = answers(asked)
    rows = question_rows(plan['questions'], asked, told)
    found = {name: study_rows(results) for name, results in studies.items()}
    found['questions'] = [[re.sub(r'\*\*(\w+)\*\*', r'\1, also corrected', cell) for cell in row]
                          for row in rows]
    found['overview'] = overview(plan, studies)
    found['first'] = first_rows(plan.get('first', ()), studies)
    found['answered'] = answered(rows[1:])
    for name in ('choose', 'alike'):
        found[name] = choice_rows(plan.get(name, ()), studies)
    return {f'{name}.csv': csv_text(each) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--studies', type=Path, help='folder of the studies to take over, each '
                        'under its name in evidence.yaml')
    args = parser.parse_args()
    plan = yaml.safe_load(PLAN.read_text())
    for name in plan['studies'] if args.studies else []:
        if (args.studies / name).is_dir():
            results = kept(read(args.studies / name))
            if results['runs']:
                (KEPT / f'{name}.json').write_text(one_line_each(results))
    studies = {name: Results.read(json.loads((KEPT / f'{name}.json').read_text()))
               for name in plan['studies'] if (KEPT / f'{name}.json').is_file()}
    for name, text in tables(plan, studies).items():
        (KEPT / name).write_text(text)
    page = report(studies[plan['report']])
    (KEPT / f"{plan['report']}.html").write_text(page)
    for number, chart in enumerate(re.findall('svg[+]xml;base64,([^"]+)', page)):
        (ROOT / 'docs' / 'images' / f'compare_{number}.svg').write_bytes(base64.b64decode(chart))


if __name__ == '__main__':
    main()
