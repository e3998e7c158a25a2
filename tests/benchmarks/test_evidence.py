"""benchmarks/evidence.py: questions answered by arithmetic, and the page that holds the answers;
benchmarks/statistics_power.py: its table can be made."""
import csv
import json
import re

import pytest
import yaml
from helpers.made_up_studies import encoding, study
from helpers.scripts import ROOT, load_script
from scipy import stats

from mmposenc.lab.compare.statistics.differences import OPEN
from mmposenc.lab.compare.statistics.results import Results

evidence = load_script('benchmarks', 'evidence')
PLAN = yaml.safe_load((ROOT / 'benchmarks' / 'evidence.yaml').read_text())
VALUES = {'peg': [90.0, 91.0, 92.5], 'none': [60.0, 62.0, 61.0], 'wide': [80.0, 84.0, 80.5],
          'one': [50.0]}


def results(values=VALUES):
    return study({name: {1.0: each} for name, each in values.items()},
                 encodings=[encoding(name, label=name.upper()) for name in values])


def asked(**question):
    return evidence.ask({'at': 1, 'expect': 'more', 'paper': '2.0, 1.0', **question},
                        results().values_at(1))


def test_a_question_is_welchs_test():
    found = asked(one='peg', other='none')
    expected = stats.ttest_ind(VALUES['peg'], VALUES['none'], equal_var=False)
    assert found['mean'] == pytest.approx((30 + 29 + 31.5) / 3) and found['n'] == 3
    assert found['p'] == pytest.approx(expected.pvalue)
    assert found['low'] == pytest.approx(expected.confidence_interval(.95).low)
    assert found['means'] == pytest.approx([273.5 / 3, 61.0])


def test_an_encoding_of_both_sides_counts_on_both():
    found = asked(one=['peg', 'wide'], other=['none', 'wide'])
    half = asked(one='peg', other='none')
    assert found['mean'] == pytest.approx(half['mean'] / 2)
    assert found['error'] == pytest.approx(half['error'] / 2)
    assert found['means'][0] - found['means'][1] == pytest.approx(found['mean'])


def test_answers_say_how_sure_they_are():
    def told(p, verdict, mean, expect=1, n=3):
        return dict(p=p, mean=mean, expect=expect, n=n, verdict=verdict, low=-2., high=2.,
                    margin=1., error=1.)
    assert evidence.answers([
        told(.001, 'better', 5), told(.001, 'worse', -5), told(.04, 'better', 5),
        told(.04, 'worse', -5, -1), told(.2, OPEN, 5), told(.5, 'level', 1, 0),
        told(.5, 'level', 1), told(.03, 'better', 1, 0), told(None, OPEN, 1, n=2),
        told(None, OPEN, None, n=0)]) == [
        '**yes**: better by 5.0', '**no**: worse by 5.0', 'yes: better by 5.0',
        'yes: worse by 5.0', 'no measurable difference: ±2.0', 'yes: level within 1',
        'level within 1', 'no: better by 1.0', 'no measurable difference: ±2.0', 'not run']


def test_unfinished_runs_and_missing_encodings_have_no_answer():
    assert asked(one='peg', other='gone')['n'] == 0
    assert evidence.answers([asked(one='peg', other='one')]) == [
        'no measurable difference: too few runs']
    plan = {'questions': [dict(of='a', study='x', ask='q', paper='1', at=1, one='peg',
                               other='none', expect='more')],
            'columns': [['x', 1], ['gone', 1]], 'encodings': ['peg', 'one', 'gone']}
    without = evidence.tables(plan, {})
    assert without['questions.csv'].splitlines()[1] == 'a,q,1,"x, 1x",,,0,not run'
    assert len(without['answered.csv'].splitlines()) == 1
    found = evidence.tables(plan, {'x': results()})
    assert found['answered.csv'].splitlines()[1].startswith('q (1),x,"91.2, 61.0",+30.2 ± ')
    assert found['overview.csv'].splitlines()[1:] == [
        'peg,PEG,,91.2 (1.3)', 'one,ONE,,50.0']


@pytest.mark.slow
def test_the_page_shows_the_tables_of_the_studies_that_are_kept():
    studies = {path.stem: Results.read(json.loads(path.read_text()))
               for path in (ROOT / 'docs' / 'studies').glob('*.json')}
    assert set(studies) <= set(PLAN['studies'])
    pages = ''.join((ROOT / 'docs' / f'{name}.md').read_text() for name in ('evidence', 'choose'))
    for name, text in evidence.tables(PLAN, studies).items():
        assert (ROOT / 'docs' / 'studies' / name).read_text() == text, name
        assert f'studies/{name}' in pages, name
    # matplotlib draws the charts, and another version of it may draw them otherwise.
    assert without_charts(evidence.report(studies[PLAN['report']])) == without_charts(
        (ROOT / 'docs' / 'studies' / f"{PLAN['report']}.html").read_text())


def without_charts(page):
    return re.sub('base64,[^"]*', '', page)


@pytest.fixture(scope='module')
def entries():
    from mmposenc.engine.variants.encodings import read_entries
    return read_entries(sorted(map(str, (ROOT / 'configs' / 'studies').glob('*.yaml'))))


def test_questions_name_encodings_that_there_are(entries):
    from mmposenc.engine.variants.encodings import NAMES
    known = {entry.name for entry in entries} | set(NAMES)
    for question in PLAN['questions']:
        assert question['expect'] in ('more', 'less', 'same')
        if 'where' in question:
            assert evidence.values_for(question, {})
            continue
        for side in ('one', 'other'):
            names = question[side] if isinstance(question[side], list) else [question[side]]
            assert all(part in known for name in names
                       for part in ([name] if name in known else name.split('+'))), question
        assert question['study'] in PLAN['studies']


@pytest.mark.parametrize('step', [pytest.param(1, marks=pytest.mark.slow), 8])
def test_entries_of_studies_fit_the_smallest_grid(step):
    from helpers.variants import check_fits

    from mmposenc import engine
    from mmposenc.engine.variants.encodings import read_entries
    models = dict(rt_detr_neck='detection/small/rt-detr_vit-s14_1xb4-10e_trees.py',
                  pretrained_blocks='segmentation/small/'
                  'linear_vit-s14-tuned_1xb4-10e_camvid-crops-252x336.py')
    for path in sorted((ROOT / 'configs' / 'studies').glob('*.yaml')):
        model = models.get(path.stem, 'classification/small/deit-micro-none_1xb32-40e_mnist5k.py')
        cfg = engine.load_config(str(ROOT / 'configs' / model))
        for entry in read_entries([str(path)])[::step]:
            check_fits(cfg, entry, [0.75])


@pytest.mark.slow
def test_the_table_of_errors_of_statistics_can_be_made():
    shown = (ROOT / 'docs' / 'tables' / 'errors-best.csv').read_text().splitlines()
    made = load_script('benchmarks', 'statistics_power').errors(4).splitlines()
    assert made[0] == shown[0]
    assert [first for first, *_ in csv.reader(made)] == [first for first, *_ in csv.reader(shown)]
