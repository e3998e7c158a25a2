"""benchmarks/evidence.py: questions answered by arithmetic, and the page that holds the answers."""
from __future__ import annotations

import json
from statistics import mean, variance

import pytest
import yaml
from scipy import stats
from scripts import ROOT, load_script

PLAN = yaml.safe_load((ROOT / 'benchmarks' / 'evidence.yaml').read_text())
VALUES = {'peg': [90.0, 91.0, 92.5], 'none': [60.0, 62.0, 61.0], 'wide': [80.0, 84.0, 80.5],
          'one': [50.0]}


@pytest.fixture(scope='module')
def evidence():
    return load_script('benchmarks', 'evidence')


def results(values=VALUES, **more):
    return dict(
        schema=1, title='t', config='c', command='mmposenc compare', budget={},
        metric={'unit': '%'},
        environment={}, sizes=[{'factor': 1.0}],
        encodings=[dict(name=name, label=name.upper(), changes={}, parameters=1234, costs=[])
                   for name in values],
        runs=[dict(encoding=name, seed=seed, status='finished', note='', train_cpu_seconds=1.0,
                   curve=[1], checkpoint='a', tests=[dict(factor=1.0, value=value, by_class={})])
              for name, each in values.items() for seed, value in enumerate(each)], **more)


def asked(evidence, **question):
    return evidence.ask({'at': 1, 'expect': 'more', **question}, results())


def test_a_question_is_a_t_test_of_the_study(evidence):
    found = asked(evidence, one='peg', other='none')
    known = {name: VALUES[name] for name in ('peg', 'none', 'wide')}
    own = {name: variance(each) for name, each in known.items()}
    parts = {name: own[name] * ((name != 'wide') / 2 + 1 / 3) / 3 for name in known}
    error = sum(parts.values()) ** .5
    assert error == pytest.approx(((own['peg'] + own['none']) / 2 / 3 + mean(own.values()) / 3)
                                  ** .5)
    freedom = error ** 4 / sum(part ** 2 / 2 for part in parts.values())
    assert found['mean'] == pytest.approx((30 + 29 + 31.5) / 3) and found['n'] == 3
    assert found['p'] == pytest.approx(2 * stats.t.sf(found['mean'] / error, freedom), abs=1e-9)
    assert found['low'] == pytest.approx(found['mean'] - stats.t.isf(.025, freedom) * error)
    assert found['means'] == pytest.approx([273.5 / 3, 61.0])


def test_several_encodings_are_one_mean(evidence):
    found = asked(evidence, one=['peg', 'wide'], other='none')
    assert found['means'] == pytest.approx([(273.5 + 244.5) / 6, 61.0])
    own = [variance(VALUES[name]) for name in ('peg', 'wide', 'none')]
    pooled = mean(own)
    assert found['error'] ** 2 == pytest.approx(sum(
        weight * (each + pooled) / 2 / 3 for weight, each in zip((.25, .25, 1), own, strict=True)))


def test_an_encoding_of_both_sides_counts_on_both(evidence):
    found = asked(evidence, one=['peg', 'wide'], other=['none', 'wide'])
    half = asked(evidence, one='peg', other='none')
    assert found['mean'] == pytest.approx(half['mean'] / 2)
    assert found['error'] == pytest.approx(half['error'] / 2)
    assert found['means'][0] - found['means'][1] == pytest.approx(found['mean'])


def test_answers_say_how_sure_they_are(evidence):
    def told(p, mean, expect=1, n=3):
        return dict(p=p, mean=mean, expect=expect, n=n)
    assert evidence.answers([
        told(.001, 5), told(.001, -5), told(.04, 5), told(.04, -5, -1), told(.04, -5), told(.2, 5),
        told(.5, 1, 0), told(.03, 1, 0), told(None, 1, n=2), told(None, None, n=0)]) == [
        '**yes**', '**no**', 'yes', 'yes', 'no', 'not seen', 'yes: no difference seen', 'no',
        'too few runs', 'not run']


def test_unfinished_runs_and_missing_encodings_have_no_answer(evidence):
    assert asked(evidence, one='peg', other='gone')['n'] == 0
    assert evidence.answers([asked(evidence, one='peg', other='one')]) == ['too few runs']
    plan = {'questions': [dict(of='a', study='x', ask='q', paper='1', at=1, one='peg',
                               other='none', expect='more')]}
    assert evidence.tables(plan, {})['questions a'].splitlines()[2] == (
        '| q | 1 | x, 1x | - | - | - | 0 | not run |')
    assert evidence.tables(plan, {'x': results()})['questions a'].splitlines()[2].startswith(
        '| q | 1 | x, 1x | 91.2, 61.0 | +30.2 (+')


def test_a_study_is_kept_without_what_tables_do_not_need(evidence):
    given = results()
    given['runs'][0]['status'] = 'failed'
    given['runs'][-1]['status'] = 'waiting'
    kept = json.loads(evidence.one_line_each(evidence.kept(given)))
    assert [each['name'] for each in kept['encodings']] == ['peg', 'none', 'wide']
    assert len(kept['runs']) == 8 and 'curve' not in kept['runs'][0]
    assert evidence.study_table(kept).splitlines()[2:4] == [
        '| PEG | 1,234 | 2 | 91.8 ± 1.1 |', '| NONE | 1,234 | 3 | 61.0 ± 1.0 |']


def test_the_page_holds_the_tables_of_the_studies_that_are_kept(evidence):
    studies = {path.stem: json.loads(path.read_text())
               for path in (ROOT / 'docs' / 'studies').glob('*.json')}
    assert set(studies) <= set(PLAN['studies'])
    page = (ROOT / 'docs' / 'evidence.md').read_text()
    found = evidence.tables(PLAN, studies)
    assert all(f'<!-- {name} -->' in page for name in found)
    assert evidence.filled(page, found) == page


@pytest.fixture(scope='module')
def entries():
    from mmposenc.lab.compare.study.encodings import read_entries
    return read_entries(sorted(map(str, (ROOT / 'configs' / 'studies').glob('*.yaml'))))


def test_questions_name_encodings_that_there_are(entries):
    from mmposenc.lab.compare.study.encodings import NAMES
    known = {entry.name for entry in entries} | set(NAMES)
    for question in PLAN['questions']:
        for side in ('one', 'other'):
            names = question[side] if isinstance(question[side], list) else [question[side]]
            assert all(part in known for name in names
                       for part in ([name] if name in known else name.split('+'))), question
        assert question['study'] in PLAN['studies'] and question['expect'] in (
            'more', 'less', 'same')


def test_entries_of_studies_fit_the_smallest_grid(entries):
    pytest.importorskip('mmpretrain')
    from mmposenc import engine
    from mmposenc.lab.compare.study.applying import check_fits
    cfg = engine.load_config(
        str(ROOT / 'configs/classification/small/deit-micro-none_1xb32-40e_mnist5k.py'))
    for entry in entries:
        check_fits(cfg, entry, [0.75])
