"""The tables of docs/evidence.md, from studies made by mmposenc compare.

Which studies there are, and what is asked of them, is in benchmarks/evidence.yaml. What a study
measured is kept without its curves in docs/studies, so that the tables can be made anywhere.

    python benchmarks/evidence.py --studies work_dirs/evidence    # take over what is finished
    python benchmarks/evidence.py                                 # fill in docs/evidence.md again
"""
from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from holm import corrected

from mmposenc.lab.compare.page.exports import markdown_rows
from mmposenc.lab.compare.statistics.differences import FEW, LEAST_RUNS, LEVEL, contrast, row
from mmposenc.lab.compare.statistics.summary import factors, interval, values_at

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / 'docs' / 'studies', ROOT / 'docs' / 'evidence.md'
PLAN = ROOT / 'benchmarks' / 'evidence.yaml'
#: What a paper says of the first of two -> the sign that agrees with it.
EXPECTED = {'more': 1, 'less': -1, 'same': 0}


def kept(results: Mapping[str, Any]) -> dict[str, Any]:
    """What tables need of results.json, in points: no curves, no values by class, no pictures."""
    points = 1 if results['metric'].get('unit') == '%' else 100  # COCO's AP is a share of 1
    runs = [{'encoding': run['encoding'], 'seed': run['seed'], 'status': run['status'],
             'note': run['note'], 'train_cpu_seconds': run['train_cpu_seconds'],
             'tests': [{'factor': each['factor'], 'value': round(points * each['value'], 4)}
                       for each in run['tests']]}
            for run in results['runs'] if run['status'] in ('finished', 'diverged')]
    known = {run['encoding'] for run in runs}
    encodings = [{key: each[key] for key in ('name', 'label', 'changes', 'parameters')}
                 for each in results['encodings'] if each['name'] in known]
    same = ('schema', 'title', 'config', 'command', 'metric', 'sizes', 'budget', 'environment')
    return {**{key: results[key] for key in same}, 'metric': {**results['metric'], 'unit': '%'},
            'encodings': encodings, 'runs': runs}


def one_line_each(results: Mapping[str, Any]) -> str:
    """JSON with a line for each run and encoding, so that a change of one is a change of a line."""
    parts = [f' {json.dumps(key)}: ' + (
        '[\n' + ',\n'.join(f'  {json.dumps(each)}' for each in value) + '\n ]'
        if key in ('encodings', 'runs') else json.dumps(value)) for key, value in results.items()]
    return '{\n' + ',\n'.join(parts) + '\n}\n'


def study_table(results: Mapping[str, Any]) -> str:
    """Every encoding: parameters, seeds, and mean and standard deviation at every size."""
    sizes = factors(results)
    lines = [['encoding', 'parameters', 'seeds',
              *(f'{size:g}x' + (' (trained)' if size == 1 else '') for size in sizes)]]
    for each in results['encodings']:
        told = [interval(list(values_at(results, size)[each['name']].values())) for size in sizes]
        lines.append([each['label'], f"{each['parameters']:,}", str(told[0]['n']),
                      *(spread(cell) for cell in told)])
    return markdown_rows(lines)


def spread(told: Mapping[str, Any]) -> str:
    """'93.1 ± 0.4', or less where there are fewer runs."""
    if told['mean'] is None:
        return '-'
    return f"{told['mean']:.1f}" + ('' if told['std'] is None else f" ± {told['std']:.1f}")


def mean_of(names: str | Sequence[str]) -> dict[str, float]:
    """The weights of an encoding, or of the mean of several."""
    names = [names] if isinstance(names, str) else names
    return {name: 1 / len(names) for name in names}


def ask(question: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a question: both means and their difference, with its own test."""
    values = values_at(results, question['at'])
    one, other = (mean_of(question[key]) for key in ('one', 'other'))
    # An encoding may be in both.
    both = contrast(values, {name: one.get(name, 0) - other.get(name, 0)
                             for name in {**one, **other}})
    means = [contrast(values, each).mean if both.n else None for each in (one, other)]
    return {**row(both), 'means': means, 'expect': EXPECTED[question['expect']]}


def answers(asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """'**yes**' or '**no**' where the difference is seen when every question of the page is
    corrected for (Holm), 'yes' or 'no' where it is by its own test, else 'not seen'."""
    tested = [index for index, each in enumerate(asked) if each['p'] is not None]
    strict = dict(zip(tested, corrected([asked[index]['p'] for index in tested]), strict=True))
    found = []
    for index, each in enumerate(asked):
        if each['p'] is None:
            found.append('not run' if not each['n'] else FEW if each['n'] < LEAST_RUNS
                         else 'not seen')
        elif each['p'] >= LEVEL:
            found.append('yes: no difference seen' if not each['expect'] else 'not seen')
        else:
            word = 'yes' if each['mean'] * each['expect'] > 0 else 'no'
            found.append(f'**{word}**' if strict[index] < LEVEL else word)
    return found


def question_table(questions: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]],
                   told: Sequence[str]) -> str:
    """A row a question: what the paper has, both means, the difference, p, n and the answer."""
    lines = [['asked', 'the paper', 'study, size', 'here', 'difference', 'p', 'n', 'answer']]
    for question, each, answer in zip(questions, asked, told, strict=True):
        known = each['means'][0] is not None
        lines.append([
            question['ask'], question['paper'], f"{question['study']}, {question['at']:g}x",
            f"{each['means'][0]:.1f}, {each['means'][1]:.1f}" if known else '-',
            '-' if not known else f"{each['mean']:+.1f}" + (
                '' if each['low'] is None else f" ({each['low']:+.1f} to {each['high']:+.1f})"),
            '-' if each['p'] is None else f"{each['p']:.3f}" if each['p'] >= .001 else '< .001',
            str(each['n']), answer])
    return markdown_rows(lines, words=(0, 1, 2))


def in_short(questions: Sequence[Mapping[str, Any]], told: Sequence[str]) -> str:
    """How many questions of each paper have which answer."""
    kinds = {'yes': ('**yes**', 'yes'), 'no': ('**no**', 'no'),
             'no difference seen, as expected': ('yes: no difference seen',),
             'not seen': ('not seen',), 'not run': ('not run', FEW)}
    lines = [['of', *kinds]]
    for paper in dict.fromkeys(each['of'] for each in questions):
        own = [answer for each, answer in zip(questions, told, strict=True)
               if each['of'] == paper]
        lines.append([paper, *(str(sum(answer in kind for answer in own))
                               for kind in kinds.values())])
    return markdown_rows(lines)


def tables(plan: Mapping[str, Any], studies: Mapping[str, Any]) -> dict[str, str]:
    """name of a place in the page -> its table."""
    found = {f'study {name}': study_table(results) for name, results in studies.items()}
    empty = {'runs': [], 'encodings': [{'name': ''}], 'sizes': []}
    asked = [ask(each, studies.get(each['study'], empty)) for each in plan['questions']]
    told = answers(asked)
    found['in short'] = in_short(plan['questions'], told)
    for paper in dict.fromkeys(each['of'] for each in plan['questions']):
        chosen = [i for i, each in enumerate(plan['questions']) if each['of'] == paper]
        found[f'questions {paper}'] = question_table(
            *([rows[i] for i in chosen] for rows in (plan['questions'], asked, told)))
    return found


def filled(page: str, found: Mapping[str, str]) -> str:
    """The page with each table between its two marks; a place without a table stays as it is."""
    for name, table in found.items():
        page = re.sub(rf'(<!-- {re.escape(name)} -->\n).*?(\n<!-- end -->)',
                      lambda marks, table=table: f'{marks[1]}\n{table}{marks[2]}', page,
                      flags=re.DOTALL)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--studies', type=Path, help='folder of the studies to take over, each '
                        'under its name in evidence.yaml')
    args = parser.parse_args()
    plan = yaml.safe_load(PLAN.read_text())
    for name in plan['studies'] if args.studies else []:
        path = args.studies / name / 'results.json'
        if path.is_file():
            KEPT.mkdir(exist_ok=True)
            results = kept(json.loads(path.read_text()))
            if results['runs']:
                (KEPT / f'{name}.json').write_text(one_line_each(results))
    if args.studies:  # one report as compare wrote it, for those who want to see what it gives
        shutil.copy(args.studies / plan['report'] / 'report.html', KEPT / f"{plan['report']}.html")
    studies = {name: json.loads((KEPT / f'{name}.json').read_text()) for name in plan['studies']
               if (KEPT / f'{name}.json').is_file()}
    PAGE.write_text(filled(PAGE.read_text(), tables(plan, studies)))


if __name__ == '__main__':
    main()
